# SPDX-License-Identifier: Apache-2.0
"""Ports over a veth pair between two namespaces: AF_PACKET (path MTU up to 4096) and AF_XDP (up to 2048), IPv4 and IPv6; the
kernel pings rove; dropped link. Needs root."""
import re
import subprocess
import time

from harness import (SERVER_CORE, Failure, Process, Skip, TwoNamespaces, check, device_arguments, device_string, free_port, once, shipped,
                     start_server, test, verified, with_changes)
from test_perftest import COMBINED, iterations, perftest
from test_pingpong import run_pair

PORTS = {"af_packet": 4096, "af_xdp": 2048}     # path MTU


def configs(port, **changes):
    """The shipped pair, on interface `data` of its namespace."""
    pair = []
    for end in "ab":
        config = with_changes(shipped(f"{port}-{end}"), mtu=PORTS[port], **changes)
        (device,) = config["device"]
        driver, arguments = device_arguments(device["port"])
        device["port"] = device_string(driver, {**arguments, "iface": "data"})
        pair.append(config)
    return pair


def veth(port, body, *arguments, **changes):
    with TwoNamespaces(mtu=4300 if PORTS[port] > 2048 else 2300) as namespaces:
        body(namespaces.link(configs(port, **changes)), port, *arguments)


def movers(link, port, gid):
    for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_bw", "ib_atomic_lat"):
        perftest(link, tool, ["-x", gid, "-n", "500"], timeout=40)


def combined(link, port):
    several = [(tool, options) for label, tool, options in COMBINED if "both-ways" in label or "srq" in label]
    for at, (tool, options) in enumerate(several):
        perftest(link, tool, ["-x", str(1 + at % 2), *(options + iterations(tool, 200)).split()], timeout=40)


def unreliable(link, port):
    """Few small messages: perftest waits for ever for one that is lost."""
    for tool, options in (("ib_write_lat", "-c UC -x 1"), ("ib_send_bw", "-c UC -x 2"), ("ib_send_bw", "-c UD -x 1"), ("ib_send_lat", "-c UD -x 2")):
        perftest(link, tool, f"{options} -s 1000 -n 50".split(), timeout=40)


def one_tool(link, port, tool, options):
    perftest(link, tool, options.split(), timeout=60)


def all_verbs(link, port, options):
    lines = verified(link, "--mtu", PORTS[port], "--sizes", "0,1,64,1000,4097,65537", "--rounds", "2", *options.split(), timeout=80)
    check(all(line["lost"] == 0 for line in lines), str(lines))


def thousand_qps(link, port):
    """All at once are more packets than the port has descriptors, and nothing holds them back: a timeout of half a second."""
    lines = verified(link, "--mtu", PORTS[port], "--sizes", "1000,4097", "--rounds", "2", "--qps", "1000", "--depth", "1", "--timeout", "17",
                     "--verbs", "write,read,send", timeout=100)
    check(all(line["lost"] == 0 for line in lines), str(lines))


def examples(link, port):
    for service in ("rc", "uc", "ud", "srq"):
        command = [f"ibv_{service}_pingpong", "-g", "1", "-c", "-n", "200"]
        run_pair(link, command, command)


def ping(link, port):
    """The kernel of the other namespace pings a rove process that is otherwise asleep."""
    server = start_server(link, ["ib_write_bw", "-F"], free_port(link.netns[0]))
    for address, mine in (("10.0.0.1", "10.0.0.9/24"), ("fd00::1", "fd00::9/64")):
        subprocess.run(["ip", "-n", link.netns[1], "addr", "add", mine, "dev", "data", "nodad"], check=True)
        done = subprocess.run(["ip", "netns", "exec", link.netns[1], "ping", "-c", "5", "-i", "0.2", "-W", "2", address],
                              capture_output=True, text=True, timeout=30)
        check(" 0% packet loss" in done.stdout, f"{done.stdout}{done.stderr}\n{server.story()}")
    large = subprocess.run(["ip", "netns", "exec", link.netns[1], "ping", "-c", "3", "-i", "0.2", "-s", "1400", "10.0.0.1"],
                           capture_output=True, text=True, timeout=30)
    check(" 0% packet loss" in large.stdout, large.stdout)
    server.stop()


for port in PORTS:
    test(f"veth/{port}/perftest/ipv4", veth, port, movers, "1", timeout=300)
    test(f"veth/{port}/perftest/ipv6", veth, port, movers, "2", timeout=300)
    test(f"veth/{port}/perftest/combined", veth, port, combined, timeout=300)
    once(f"veth/{port}/perftest/unreliable", veth, port, unreliable, timeout=100)
    test(f"veth/{port}/verified/ipv4", veth, port, all_verbs, "", timeout=100, quick=port == "af_packet")
    test(f"veth/{port}/verified/ipv6", veth, port, all_verbs, "--gid-index 2 --qps 4 --both --depth 4", timeout=100)
    once(f"veth/{port}/verified/uc", veth, port, all_verbs, "--transport uc --verbs send,send_imm,write,write_imm --depth 2", timeout=100)
    once(f"veth/{port}/verified/ud", veth, port, all_verbs, "--transport ud --verbs send,send_imm", timeout=100)
    test(f"veth/{port}/verified/1000-qps", veth, port, thousand_qps, timeout=120)
    test(f"veth/{port}/pingpong", veth, port, examples, timeout=150)
    once(f"veth/{port}/ping", veth, port, ping, timeout=60)
    test(f"veth/{port}/all-sizes", veth, port, one_tool, "ib_write_bw", "-a -n 10", timeout=90)
    for mtu in (256, 1024, PORTS[port]):
        test(f"veth/{port}/mtu-{mtu}", veth, port, one_tool, "ib_send_bw", f"-m {mtu} -n 200", timeout=90)


def lossy(port):
    veth(port, all_verbs, "--timeout 10", impair={"loss": 0.01, "seed": 3})


for port in PORTS:
    test(f"veth/{port}/loss", lossy, port, timeout=120)
