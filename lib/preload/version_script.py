#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""version_script.py symbols.def: the linker's version script of librove-verbs.so.

Each exported call is in the node of its default version, so that dlvsym() finds it. C++ names are local. A symbol in no
node is exported without a version, which matches any version: the calls of rdma-core's private node, and the hooks of
the C library. The DPDK inside is not exported (lib/runtime/dpdk_archives.py), except for TELEMETRY. These symbols have
rove's own version, so that no other library's reference to DPDK binds to them.
"""
import re
import sys


# Called by librove-tent.so to show its state in the telemetry of the process. u64 is named uint since DPDK 23.03.
TELEMETRY = ("rte_tel_data_add_dict_container", "rte_tel_data_add_dict_string", "rte_tel_data_add_dict_u64",
             "rte_tel_data_add_dict_uint", "rte_tel_data_alloc", "rte_tel_data_start_dict",
             "rte_telemetry_register_cmd")
ROVE_VERSION = "ROVE_1"


def calls(text):
    """Returns (version, name) of each exported call."""
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
    exported = "".join(f"    {name};\n" for name in TELEMETRY)
    hidden = "".join(f"    {name};\n" for name in ("rte_tel*", "telemetry_*", "callbacks", "*legacy_c*"))
    print(f"{ROVE_VERSION} {{\n  global:\n{exported}  local:\n{hidden}}};")


if __name__ == "__main__":
    main(sys.argv[1])
