#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_xdp.py CLANG MULTIARCH SOURCE HEADER: compiles SOURCE for the kernel's BPF machine, and writes the object to
HEADER as the initializer of an array of bytes. XdpProgram loads it from this array, so no file has to be found at run
time."""
import pathlib
import subprocess
import sys
import tempfile


def main(clang, multiarch, source, header):
    with tempfile.TemporaryDirectory() as folder:
        compiled = pathlib.Path(folder) / "object"
        # The option -g describes the maps in BTF. The kernel's headers include headers of a machine.
        subprocess.run([clang, "-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-idirafter",
                        f"/usr/include/{multiarch}", "-c", source, "-o", compiled], check=True)
        content = compiled.read_bytes()
    rows = (content[at:at + 24] for at in range(0, len(content), 24))
    pathlib.Path(header).write_text("".join(",".join(map(str, row)) + ",\n" for row in rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
