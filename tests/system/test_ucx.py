# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's UCX over rove's devices, with RC for data and UD to connect."""
from harness import CLIENT_CORE, SERVER_CORE, STOPPED, Process, check, free_port, memif_link, once, shipped, test

PERFTEST = "ucx_perftest"
ENVIRONMENT = {"UCX_NET_DEVICES": "rove0:1"}


def ucx(transports, *options):
    link = memif_link()
    port = free_port()
    environment = {**ENVIRONMENT, "UCX_TLS": transports}
    server = Process([PERFTEST, "-p", port], link.configs[0], SERVER_CORE, env=environment)
    server.wait_listening(port)
    client = Process([PERFTEST, "127.0.0.1", "-p", port, "-f", *options], link.configs[1], CLIENT_CORE, env=environment)
    client.succeed(40)
    server.succeed(STOPPED)
    iterations = options[options.index("-n") + 1]
    check(any(line.split()[:1] == [iterations] for line in client.out().splitlines()), client.story())


def listed():
    run = Process(["ucx_info", "-d"], shipped("loopback-a")).succeed(20)
    check("rc_verbs" in run.out() and "Device: rove0:1" in run.out(), run.story())


RC = "rc_verbs,ud_verbs,self"
once("ucx/info", listed, lane="shipped")
once("ucx/ud", ucx, "ud_verbs,self", "-t", "tag_bw", "-s", "20000", "-n", "500")
test("ucx/tag", ucx, RC, "-t", "tag_bw", "-s", "1000000", "-n", "300", quick=True)
test("ucx/put", ucx, RC, "-t", "ucp_put_bw", "-s", "65536", "-n", "2000")
test("ucx/get", ucx, RC, "-t", "ucp_get", "-s", "100000", "-n", "500")
test("ucx/fetch-and-add", ucx, RC, "-t", "ucp_fadd", "-s", "8", "-n", "2000")
