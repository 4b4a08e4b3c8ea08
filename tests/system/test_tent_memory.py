# SPDX-License-Identifier: Apache-2.0
"""Tests memory of the TENT engine: memory that containers share, that is registered again, that is read-only, and that
a killed process leaves."""
import os
import pathlib

from harness import CLIENT_CORE, SERVER_CORE, Process, Skip, check, free_port, memif_pair, once, program
from test_tent import Engines

CONTAINER = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             "mount -t tmpfs none /dev/shm && exec \"$@\"", "sh"]


def containers():
    """Two processes share memory although they have the same pid, a /dev/shm each, and only the network namespace in
    common."""
    if os.geteuid() != 0:
        raise Skip("namespaces need root")
    port = free_port()
    no_device = ["--set", "transports/rdma/enable=false"]
    target = Process([*CONTAINER, program("tent_check"), "target", "--set", f"rpc_server_port={port}", *no_device],
                     core=SERVER_CORE)
    target.wait_for(target.json, 20, "its memory")
    Process([*CONTAINER, program("tent_check"), "move", "--peer", f"127.0.0.1:{port}", "--hint", "3", "--sizes",
             "1,1048576", "--rounds", "2", *no_device], core=CLIENT_CORE).succeed(20)
    target.kill()


def registered_anew(*options):
    engines = Engines(memif_pair())
    engines.run("anew", "--sizes", "262144", "--rounds", "3", *options)


def read_only_mapping():
    Engines(memif_pair(), "--mapped", "--bytes", "1048576").run("weights", "--sizes", "1048576", "--hint", "1")


def killed():
    """Peers unmap the memory of a killed process, and none of it stays in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    engines = Engines(memif_pair())
    initiator = engines.start("stream", "--seconds", "20", "--sizes", "65536", "--hint", "3", "--tolerate")

    def mapped():
        return pathlib.Path(f"/proc/{initiator.pid}/maps").read_text().count("memfd:rove-tent")

    initiator.wait_for(lambda: initiator.json() and mapped() == 2, 20, "its own memory and the target's")
    engines.target.kill()
    initiator.wait_for(lambda: mapped() == 1, 20, "the target's memory to be unmapped")
    initiator.kill()
    left = [name for name in set(os.listdir("/dev/shm")) - before if name.startswith("rove-tent")]
    check(not left, f"left in /dev/shm: {left}")


once("tent/memory/containers", containers, quick=True)
once("tent/memory/anew", registered_anew, "--hint", "1")
once("tent/memory/anew-tcp", registered_anew, "--hint", "7")
once("tent/memory/read-only", read_only_mapping)
once("tent/memory/killed", killed, quick=True, alone=True)
