# SPDX-License-Identifier: Apache-2.0
"""Runs rdma-core's examples: the ping-pongs (with -c they verify the received data), ibv_devices and ibv_devinfo."""
import re

from harness import SERVER_CORE, Process, check, memif_link, memif_pair, once, run_pair, test


def pingpong(service, options, **changes):
    command = [f"ibv_{service}_pingpong", *options.split()]
    if "-g" not in command:
        command += ["-g", "1"]
    _, client = run_pair(memif_link(**changes), command, command)
    check("invalid data" not in client.out(), client.story())
    check("iters in" in client.out(), client.story())


def over_progress(service, options, progress):
    pingpong(service, options, progress=progress)


for service, register in (("rc", test), ("srq", test), ("uc", once), ("ud", once)):
    register(f"pingpong/{service}", pingpong, service, "", quick=True)
    register(f"pingpong/{service}/verified", pingpong, service, "-c")
    register(f"pingpong/{service}/events", pingpong, service, "-e -c")
    register(f"pingpong/{service}/dedicated", over_progress, service, "-e -c -n 100", "dedicated")
    for mtu in (256, 4096) if service != "ud" else ():
        register(f"pingpong/{service}/mtu-{mtu}", pingpong, service, f"-m {mtu} -s 40000 -c -n 200")
    register(f"pingpong/{service}/ipv6/events", pingpong, service, "-g 2 -e -c")


def xrc_pingpong(options):
    # This program compares no data and prints little. tests/conformance/xrc.cc tests the rest.
    command = ["ibv_xsrq_pingpong", *options.split(), "-g", "1"]
    run_pair(memif_link(), command, command)


for options in ("", "-e", "-s 100000 -m 4096 -n 200", "-m 256"):
    once(f"pingpong/xrc{options.replace(' ', '')}", xrc_pingpong, options)
test("pingpong/rc/new-post-send", pingpong, "rc", "-N -c")


def devices(config, netns=None):
    listing = Process(["ibv_devices"], config, SERVER_CORE, netns).succeed(20)
    check(re.search(r"^\s+rove0\s+[0-9a-f]{16}$", listing.out(), re.M), listing.story())


def devinfo(config, netns=None, mtu=4096):
    info = Process(["ibv_devinfo", "-v"], config, SERVER_CORE, netns).succeed(20)
    for wanted in ("hca_id:\trove0", "link_layer:\t\tEthernet", f"active_mtu:\t\t{mtu} (", "atomic_cap:",
                   "::ffff:10.0.0.1, RoCE v2", "fd00::1, RoCE v2"):
        check(wanted in info.out(), f"no '{wanted}'\n{info.out()}\n{info.err()}")


once("devices", lambda: devices(memif_pair()[0]), quick=True)
once("devinfo", lambda: devinfo(memif_pair()[0]), quick=True)
