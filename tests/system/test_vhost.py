# SPDX-License-Identifier: Apache-2.0
"""Tests vhost-user and virtio-user: config/vhost-*.toml between two processes."""
from harness import (SCRATCH, Link, check, device_arguments, device_string, once, shipped, test, unique, verified,
                     with_changes)
from test_loss import peer_killed
from test_perftest import perftest


def vhost_link(**changes):
    """Returns the shipped pair of configurations with a socket of its own."""
    socket = SCRATCH / unique()
    pair = []
    for end, key in (("a", "iface"), ("b", "path")):
        config = with_changes(shipped(f"vhost-{end}"), **changes)
        (device,) = config["device"]
        driver, arguments = device_arguments(device["port"])
        device["port"] = device_string(driver, {**arguments, key: str(socket)})
        pair.append(config)
    return Link(pair)


def tools(options=""):
    for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_send_lat"):
        perftest(vhost_link(), tool, ["-n", "500", *options.split()])


def moves(options):
    lines = verified(vhost_link(), *options.split())
    check(all(line["lost"] == 0 for line in lines), str(lines))


def killed(virtio_user_survives):
    peer_killed(vhost_link(), virtio_user_survives)


test("vhost/perftest", tools)
test("vhost/verified", moves, "--mtu 4096 --sizes 0,1,64,1000,4097,300001 --rounds 2 --both --qps 4")
once("vhost/verified/events", moves, "--mtu 4096 --sizes 0,1,64,1000,4097,300001 --rounds 2 --events")
once("vhost/verified/ud", moves, "--transport ud --verbs send,send_imm --mtu 4096 --sizes 0,1,1000,4096")
test("vhost/peer-killed/vhost-survives", killed, False, modes=("rc",))
test("vhost/peer-killed/virtio-user-survives", killed, True, modes=("mp",))
