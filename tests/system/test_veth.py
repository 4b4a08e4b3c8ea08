# SPDX-License-Identifier: Apache-2.0
"""Tests ports over a veth pair between two namespaces: AF_PACKET (path MTU up to 4096) and AF_XDP (up to 2048), IPv4
and IPv6, pings by the kernel, an unplugged cable, and a peer that is killed. Needs root."""
import json
import subprocess
import time

from harness import (ROVE_RUN, STOPPED, Process, TwoNamespaces, check, device_arguments, device_string, free_port, ip,
                     once, program, run_pair, shipped, start_client, start_server, test, verified, with_changes,
                     write_toml)
from test_loss import peer_killed
from test_perftest import COMBINED, MOVERS, iterations, only_rc, perftest
from test_pingpong import devices, devinfo
from test_stall import wait_for_more

PORTS = {"af_packet": 4096, "af_xdp": 2048}     # path MTU


def configs(port, **changes):
    """Returns the shipped pair of configurations, on interface `data` of its namespace."""
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


SAME_GROUP = """
import socket, struct, sys
interface, number = sys.argv[1], int(sys.argv[2])
PACKET_FANOUT, FANOUT_FLAG_DEFRAG = 18, 0x8000
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
    packets.bind((interface, 0))
    packets.setsockopt(263, PACKET_FANOUT, struct.pack("I", number & 0xFFFF | FANOUT_FLAG_DEFRAG << 16))
    print("joined", flush=True)
    sys.stdin.read()
"""


def same_group():
    """The packet sockets of another interface have the group number that the driver computes for rove's sockets from
    PID and interface."""
    with TwoNamespaces(mtu=4300) as namespaces:
        netns = namespaces.names[0]
        config = write_toml(configs("af_packet")[0])
        waits = f"read go; exec {ROVE_RUN} --config {config} -- ibv_devinfo"
        rove = Process(["sh", "-c", waits], netns=netns, stdin=True)
        shown = subprocess.run(["ip", "-n", netns, "-j", "link", "show", "data"], capture_output=True,
                               check=True).stdout
        [data] = json.loads(shown)
        other = Process(["python3", "-c", SAME_GROUP, "ctl", rove.pid ^ data["ifindex"]], netns=netns, stdin=True)
        other.wait_for(lambda: "joined" in other.out(), 20, "group")
        rove.child.stdin.write(b"go\n")
        rove.child.stdin.close()
        check("PORT_ACTIVE" in rove.succeed(20).out(), rove.story())


def movers(link, port, gid):
    for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat",
                 "ib_atomic_bw", "ib_atomic_lat"):
        perftest(link, tool, ["-x", gid, "-n", "500"], timeout=100)


def combined(link, port):
    several = [(tool, options) for label, tool, options in COMBINED if "both-ways" in label or "srq" in label]
    for at, (tool, options) in enumerate(several):
        perftest(link, tool, ["-x", str(1 + at % 2), *(options + iterations(tool, 200)).split()], timeout=100)


def unreliable(link, port):
    """Sends few small messages, because perftest waits forever for a lost one."""
    for tool, options in (("ib_write_lat", "-c UC -x 1"), ("ib_send_bw", "-c UC -x 2"), ("ib_send_bw", "-c UD -x 1"),
                          ("ib_send_lat", "-c UD -x 2")):
        perftest(link, tool, f"{options} -s 1000 -n 50".split(), timeout=100)


def all_verbs(link, port, options):
    lines = verified(link, "--mtu", PORTS[port], "--sizes", "0,1,64,1000,4097,65537", "--rounds", "2", *options.split(),
                     timeout=100)
    check(all(line["lost"] == 0 for line in lines), str(lines))


def thousand_qps(link, port):
    """The QPs send more packets at once than the port has descriptors, and no window limits them. So the timeout is
    half a second."""
    lines = verified(link, "--mtu", PORTS[port], "--sizes", "1000,4097", "--rounds", "2", "--qps", "1000", "--depth",
                     "1", "--timeout", "17", "--verbs", "write,read,send", timeout=100)
    check(all(line["lost"] == 0 for line in lines), str(lines))


def examples(link, port, options):
    for service in ("rc", "uc", "ud", "srq"):
        command = [f"ibv_{service}_pingpong", "-c", "-n", "200", *options.split()]
        run_pair(link, command, command)


def listed(link, port):
    devices(link.configs[0], link.netns[0])
    devinfo(link.configs[0], link.netns[0], PORTS[port])


def all_sizes(link, port):
    for at, tool in enumerate(MOVERS):
        perftest(link, tool, ["-a", "-n", "5", "-x", str(1 + at % 2)], sizes=23)


def mtus(link, port):
    for mtu in (256, 512, 1024, 2048, 4096):
        if mtu > PORTS[port]:
            continue
        for at, tool in enumerate(MOVERS[:3]):
            perftest(link, tool, ["-m", str(mtu), "-n", "50", "-x", str(1 + at % 2)], timeout=100)


def killed(link, port, verbs):
    peer_killed(link, True, verbs)


def pulled_out(link, port):
    """Programs get events when the cable is unplugged and plugged in again, and packets in flight arrive. The test
    sends 72 MB, and the cable is out after the first two."""
    watch = Process(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0"], link.configs[0], netns=link.netns[0])
    watch.wait_for(lambda: "async event FD" in watch.out(), 20, "its start")
    for state, event in (("down", "PORT_ERR"), ("up", "PORT_ACTIVE")) * 2:
        seen = watch.out().count(event)
        ip("link", "set", "data", state, netns=link.netns[1])
        watch.wait_for(lambda: watch.out().count(event) == seen + 1, 20, event)
    watch.stop()
    control = free_port(link.netns[0])
    command = [program("verbs_check"), "--mtu", PORTS[port], "--timeout", "17", "--sizes", "100000", "--rounds",
               "30", "--verbs", "send,write,read"]
    server = start_server(link, command, control, "--port")
    client = start_client(link, command, control, "--port")
    wait_for_more(server, 500)
    ip("link", "set", "data", "down", netns=link.netns[1])
    time.sleep(0.3)
    check(client.child.poll() is None, f"it was done before\n{client.story()}")
    ip("link", "set", "data", "up", netns=link.netns[1])
    client.succeed(60)
    server.succeed(STOPPED)


def ping(link, port):
    """The kernel of the other namespace pings a rove process that is otherwise asleep."""
    server = start_server(link, ["ib_write_bw", "-F"], free_port(link.netns[0]))
    for address, mine in (("10.0.0.1", "10.0.0.9/24"), ("fd00::1", "fd00::9/64")):
        subprocess.run(["ip", "-n", link.netns[1], "addr", "add", mine, "dev", "data", "nodad"], check=True)
        done = subprocess.run([
            "ip", "netns", "exec", link.netns[1], "ping", "-c", "5", "-i", "0.2", "-W", "2", address],
                              capture_output=True, text=True, timeout=30)
        check(" 0% packet loss" in done.stdout, f"{done.stdout}{done.stderr}\n{server.story()}")
    large = subprocess.run([
        "ip", "netns", "exec", link.netns[1], "ping", "-c", "3", "-i", "0.2", "-s", "1400", "10.0.0.1"],
                           capture_output=True, text=True, timeout=30)
    check(" 0% packet loss" in large.stdout, large.stdout)
    server.stop()


for port in PORTS:
    test(f"veth/{port}/perftest/ipv4", veth, port, movers, "1", timeout=300)
    once(f"veth/{port}/perftest/ipv6", veth, port, movers, "2", timeout=300)
    only_rc(f"veth/{port}/perftest/combined", veth, port, combined, timeout=300)
    once(f"veth/{port}/perftest/unreliable", veth, port, unreliable)
    test(f"veth/{port}/verified/ipv4", veth, port, all_verbs, "", quick=port == "af_packet")
    once(f"veth/{port}/verified/ipv6", veth, port, all_verbs, "--gid-index 2 --qps 4 --both --depth 4")
    once(f"veth/{port}/verified/uc", veth, port, all_verbs,
         "--transport uc --verbs send,send_imm,write,write_imm --depth 2")
    once(f"veth/{port}/verified/ud", veth, port, all_verbs, "--transport ud --verbs send,send_imm")
    once(f"veth/{port}/verified/1000-qps", veth, port, thousand_qps, timeout=120)
    only_rc(f"veth/{port}/pingpong", veth, port, examples, "-g 1", timeout=150)
    once(f"veth/{port}/pingpong/ipv6/events", veth, port, examples, "-g 2 -e", timeout=150)
    once(f"veth/{port}/devices", veth, port, listed)
    once(f"veth/{port}/ping", veth, port, ping)
    only_rc(f"veth/{port}/mtus", veth, port, mtus, timeout=200)
    only_rc(f"veth/{port}/peer-killed", veth, port, killed, "write,send")
    once(f"veth/{port}/peer-killed/read", veth, port, killed, "read,faa")
    once(f"veth/{port}/pulled-out", veth, port, pulled_out)


def lossy(port):
    veth(port, all_verbs, "--timeout 10", impair={"loss": 0.01, "seed": 3})


for port in PORTS:
    test(f"veth/{port}/loss", lossy, port, timeout=120)
only_rc("veth/af_xdp/all-sizes", veth, "af_xdp", all_sizes, timeout=200)
once("veth/af_packet/same-group", same_group)
