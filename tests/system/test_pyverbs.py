# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's python3-pyverbs under rove-run (data, error statuses on both ends, and the errno of bad arguments), and
rdma-core's own tests."""
import pathlib

from harness import (CLIENT_CORE, ROOT, SERVER_CORE, Process, Skip, check, free_port, memif_link, memif_pair, test,
                     write_toml)

PEER = pathlib.Path(__file__).with_name("pyverbs_peer.py")


def pyverbs():
    link, port = memif_link(), free_port()
    server = Process(["/usr/bin/python3", PEER, "server", "-", port], link.configs[0], SERVER_CORE)
    server.wait_listening(port)
    client = Process(["/usr/bin/python3", PEER, "client", link.server_host, port], link.configs[1], CLIENT_CORE)
    failed = client.wait(60) != 0
    check(not failed and "OK" in client.out(), f"{client.story()}\n--- server\n{server.story()}")
    server.succeed(20)


test("pyverbs", pyverbs, quick=True)


def rdma_core():
    suite = Process([ROOT / "tests" / "pyverbs" / "run", "--config", write_toml(memif_pair()[0])])
    status = suite.wait(200)
    if status == 77:
        raise Skip(suite.out().strip())
    check(status == 0, suite.story())


test("pyverbs/rdma-core", rdma_core, timeout=220)
