#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""version_script.py symbols.def: the linker's version script of librove-verbs.so.

Each exported call stands in the node of its default version, so that dlvsym() finds it. C++ names are local. What is in
no node is exported without a version, which any version matches: the calls of rdma-core's private node, hooks of the C
library, and DPDK's rte_intr_callback_* (lib/datapath/interrupts.cc).
"""
import re
import sys


def calls(text):
    """(version, name) of each exported call."""
    text = re.sub(r"//.*", "", text)
    call = r"ROVE_(?:NEWER_)?CALL\(([\w.]+),[^(]*?(\w+),\s*\("
    own = r"ROVE_OWN_CALL\(([\w.]+), (\w+)\)"
    return [found.groups() for pattern in (own, call) for found in re.finditer(pattern, text)]


def main(file):
    with open(file) as source:
        exported = calls(source.read())
    versions = sorted({version for version, _ in exported if version != "PRIVATE"},
                      key=lambda version: int(version.split(".")[1]))
    before = ""
    for version in versions:
        names = sorted(name for node, name in exported if node == version)
        print(f"IBVERBS_{version} {{\n  global:\n" + "".join(f"    {name};\n" for name in names), end="")
        print(f"{'' if before else '  local:' + chr(10) + '    _Z*;' + chr(10)}}}{before};")
        before = f" IBVERBS_{version}"


if __name__ == "__main__":
    main(sys.argv[1])
