# SPDX-License-Identifier: Apache-2.0
"""Tests one TENT engine with many peers on this machine, by TCP and by the ports of one mesh, and many buffers and
requests. ROVE_PEERS and ROVE_MESH_PEERS set the numbers of peers."""
import os
import re
import signal
import urllib.request

from harness import (CLIENT_CORE, SCRATCH, SERVER_CORE, Process, check, free_port, memif_pair, once, program,
                     unique)
from test_tent import Engines

PEERS = int(os.environ.get("ROVE_PEERS", 16))
# With 200 the test takes half a minute. A mesh has at most 250 members.
MESH_PEERS = int(os.environ.get("ROVE_MESH_PEERS", 16))
SETTINGS = ("transports/shm/enable=false", "transports/rdma/enable=false", "transports/rdma/max_timeout_ns=2000000000")
ONLY_RAILS = ("transports/shm/enable=false", "transports/tcp/enable=false")


def start(settings=SETTINGS, config=None, core=SERVER_CORE):
    return Process([program("tent_check"), "target", "--bytes", 1 << 20, "--seconds", 600, "--lazy", "--set",
                    *settings], config, core)


def many_peers():
    """HIGH requests to one peer continue during LOW requests to all others, one of which becomes silent."""
    targets = [start() for _ in range(PEERS)]
    names = [target.wait_for(target.json, 60, "its memory")[0]["segment"] for target in targets]
    port = free_port()
    metrics = ("metrics/enabled=true", f"metrics/http_port={port}")
    initiator = Process(
        [program("tent_check"), "fanout", "--peer", names[0], "--other-peer", ",".join(names[1:]), "--sizes", 1 << 20,
         "--seconds", 0.6, "--rounds", 2, "--set", *SETTINGS, *metrics], core=CLIENT_CORE)
    initiator.wait_for(lambda: len(initiator.json()) == 3, 120, "HIGH alone and with LOW")
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    lock = {name: float(value) for name, value in re.findall(r'tent_lock_(\w+){lock="shard0"} (\S+)', text)}
    targets[-1].child.send_signal(signal.SIGSTOP)
    try:
        initiator.succeed(60)
    finally:
        targets[-1].child.send_signal(signal.SIGCONT)
    opened, alone, beside, with_one_silent, used = initiator.json()
    for what, use in (("opened", opened), ("used", used)):
        print(f"{PEERS} peers {what}: {use['threads']} threads, {use['descriptors']} descriptors, "
              f"{(use['resident'] - use['alone']) / PEERS / 1024:.0f} KiB for each")
    print(f"HIGH 64 KiB: P99 {alone['p99_us']:.0f} us alone, "
          f"{beside['p99_us']:.0f} beside LOW, {with_one_silent['p99_us']:.0f} with one peer silent; "
          f"50 % {alone['p50_us']:.0f}, {beside['p50_us']:.0f}, {with_one_silent['p50_us']:.0f}")
    print(f"LOW: {beside['low_bytes'] / 0.6e6:.0f} MB/s, "
          f"{with_one_silent['low_bytes'] / 0.6e6:.0f} with one peer silent")
    for what, of, count in (("by the clock", "", "holds_total"), ("its holder ran", "ran_", "sampled_total")):
        p50, p99, p999, longest = (lock[f"{of}{name}_ns"] / 1e3 for name in ("p50", "p99", "p999", "longest"))
        print(f"lock held, {what}: 50 % {p50:.0f} us, 99 % {p99:.0f}, 99.9 % {p999:.0f}, "
              f"longest {longest:.0f}, of {lock[count]:.0f}")
    print(f"holders that slept: {lock['slept_total']:.0f}")
    check(lock["ran_p99_ns"] < 1e6, f"the lock is held for long: {lock}")
    check(min(beside["low_bytes"], with_one_silent["low_bytes"]) > 0 and beside["refused"] == 0, initiator.story())


def many_rails():
    """Uses peers in one mesh, with a rail to each, on both cores. All are served at the same time, and every byte is
    right. If ROVE_MESH_PEERS is set, it also prints the latency of HIGH to one peer, alone and with LOW to all
    others."""
    config = {"device": [{"port": f"mesh:{SCRATCH / f'tent-mesh-{unique()}'}"}]}
    targets = [start(ONLY_RAILS, config, (SERVER_CORE, CLIENT_CORE)[i % 2]) for i in range(MESH_PEERS)]
    names = [target.wait_for(target.json, 60 + MESH_PEERS, "its memory")[0]["segment"] for target in targets]
    options = ["--peer", names[0], "--other-peer", ",".join(names[1:]), "--set", *ONLY_RAILS]
    initiator = Process([program("tent_check"), "visit", "--sizes", 1 << 18, "--rounds", 2, *options], config)
    initiator.succeed(60 + MESH_PEERS)
    print(initiator.json())
    if "ROVE_MESH_PEERS" not in os.environ:
        return
    initiator = Process([program("tent_check"), "fanout", "--sizes", 1 << 20, "--seconds", 0.6, "--rounds", 1,
                         *options], config)
    initiator.succeed(60 + MESH_PEERS)
    _, alone, beside, _ = initiator.json()
    print(f"HIGH 64 KiB beside LOW to {MESH_PEERS - 1}: {alone}, {beside}")
    check(beside["low_bytes"] > 0 and beside["refused"] == 0, initiator.story())


def crowd():
    """Registers 10 000 buffers, and submits 100 000 requests before it waits for any of them. Every byte is right."""
    initiator = Engines(memif_pair()).start("crowd", "--rounds", 10_000, "--depth", 100_000, "--sizes", 256,
                                            "--hint", 1, "--set", "merge_requests=false")
    initiator.succeed(40)
    (found,) = initiator.json()
    print(found)
    # The rail has begun to carry requests before the last one is submitted.
    check(found["under_way"] > 20_000, initiator.story())


once("tent/crowd", crowd, alone=True)
once("tent/many-peers", many_peers, timeout=60 + PEERS, alone=True)
once("tent/many-peers/mesh", many_rails, timeout=120 + 3 * MESH_PEERS)
