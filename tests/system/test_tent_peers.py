# SPDX-License-Identifier: Apache-2.0
"""One TENT engine and many peers, all by TCP on this machine. ROVE_PEERS says how many."""
import os
import signal

from harness import CLIENT_CORE, SERVER_CORE, Process, check, once, program

PEERS = int(os.environ.get("ROVE_PEERS", 16))
SETTINGS = ("transports/shm/enable=false", "transports/rdma/enable=false", "transports/rdma/max_timeout_ns=2000000000")


def start():
    return Process([program("tent_check"), "target", "--bytes", 1 << 20, "--seconds", 600, "--set", *SETTINGS],
                   core=SERVER_CORE)


def many_peers():
    """HIGH requests to one peer go on beside LOW ones to all others, of which one falls silent."""
    targets = [start() for _ in range(PEERS)]
    names = [target.wait_for(target.json, 60, "its memory")[0]["segment"] for target in targets]
    initiator = Process(
        [program("tent_check"), "fanout", "--peer", names[0], "--other-peer", ",".join(names[1:]), "--sizes", 1 << 20,
         "--seconds", 1, "--rounds", 2, "--set", *SETTINGS], core=CLIENT_CORE)
    initiator.wait_for(lambda: len(initiator.json()) == 3, 120, "HIGH alone and beside LOW")
    targets[-1].child.send_signal(signal.SIGSTOP)
    try:
        initiator.succeed(60)
    finally:
        targets[-1].child.send_signal(signal.SIGCONT)
    peers, alone, beside, with_one_silent = initiator.json()
    print(f"{PEERS} peers: {peers['threads']} threads, {peers['descriptors']} descriptors, "
          f"{peers['resident'] >> 20} MiB; HIGH 64 KiB: P99 {alone['p99_us']:.0f} us alone, "
          f"{beside['p99_us']:.0f} beside LOW, {with_one_silent['p99_us']:.0f} with one peer silent")
    check(min(beside["low_bytes"], with_one_silent["low_bytes"]) > 0 and beside["refused"] == 0, initiator.story())


once("tent/many-peers", many_peers, timeout=60 + PEERS)
