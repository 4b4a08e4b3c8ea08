# SPDX-License-Identifier: Apache-2.0
"""Tests that the C library's functions that rove hooks behave as without rove, except for its devices."""
import difflib

from harness import CLIENT_CORE, SCRATCH, SERVER_CORE, Process, check, once, program, unique
from test_doors import compiled
from test_mesh import folder, mesh


def pointers():
    """A hooked function refuses bad pointers as the kernel does, and crashes where the C library's own function
    crashes."""
    without = Process([program("verbs_pointers"), "eventfd"], None, CLIENT_CORE).succeed(60).out().splitlines()
    hooked = Process([program("verbs_pointers"), "channel"], mesh(folder()), SERVER_CORE)
    found = hooked.succeed(60).out().splitlines()
    check(len(without) > 800, f"only {len(without)} calls")
    difference = difflib.unified_diff(without, found, "without rove", "with it", n=0, lineterm="")
    check(found == without, "\n".join(difference))


# A shell and the programs that it starts read files, each by its own relative names.
SHELL = """
set -e
cd /sys/class/infiniband
guid=$(cat /sys/class/infiniband/rove0/node_guid)
test "$(cat rove0/node_guid)" = "$guid"
test "$(echo *)" = "$(ls)"
test "$(find . -name node_guid)" = ./rove0/node_guid
test "$(find /sys/class/infiniband -name node_guid)" = /sys/class/infiniband/rove0/node_guid
ls -R | grep -q '^./rove0/ports/1:$'
(cd rove0/ports && test "$(cat 1/link_layer)" = Ethernet && cd ../.. && test -d rove0)
cd ..
test "$(pwd)" = /sys/class && test -e net/lo
test "$(cat infiniband/rove0/node_guid)" = "$guid"
cd infiniband/rove0
test "$(cat ../rove0/node_guid)" = "$guid"
cat node_guid
"""


def names():
    """Relative names and patterns find the same files as absolute names."""
    for command in ([compiled("hooks_names.c", "-D_FORTIFY_SOURCE=0"), []],
                    [compiled("hooks_names.c", "-D_FORTIFY_SOURCE=2", name="hooks_names_checked"), []],
                    ["sh", ["-c", SHELL]], ["bash", ["-c", SHELL]]):
        temporary = SCRATCH / unique()
        temporary.mkdir()
        run = lambda *words: Process([str(word) for word in words], mesh(folder()), SERVER_CORE,
                                     env={"TMPDIR": str(temporary)}).succeed(40)
        run(command[0], *command[1])
        # A shell that executes a program leaves its folder in place as the working directory. The next process that
        # makes a folder sweeps it.
        run("cat", "/sys/class/infiniband/rove0/node_guid")
        check(list(temporary.iterdir()) == [], "a folder is left")


once("hooks/pointers", pointers, quick=True)
once("hooks/names", names)
