# SPDX-License-Identifier: Apache-2.0
"""Tests interface:NAME over a veth pair between two namespaces. It shares the interface with the kernel, and uses the
kernel's addresses, neighbours and carrier. Needs root."""
import errno
import json
import re
import signal
import subprocess
import time

from harness import (CLIENT_CORE, ROVE_RUN, SERVER_CORE, STOPPED, Link, Process, TwoNamespaces, check, eventually,
                     free_port, ip, once, program, run_pair, shipped, start_client, start_server, telemetry, test,
                     with_changes)
from test_rdma_cm import listens, wait_ready
from test_stall import sleeps
from test_udp import PLAIN, WITHOUT_TRAINS

ADDRESSES = (("10.0.0.1/24", "fd00::1/64"), ("10.0.0.2/24", "fd00::2/64"))
INTERFACE = {"device": [{"port": "interface:data"}]}
UDP_PEER = {"device": [{"port": "udp:10.0.0.2"}]}
ALL_SIZES = ("--sizes", "0,1,64,4097,65537")


def address(netns, addresses):
    for one in addresses:
        ip("address", "add", one, "dev", "data", *(["nodad"] if ":" in one else []), netns=netns)


def with_queues(namespaces, mtu, queues):
    """Replaces the veth pair by one with several RX queues at either end. AF_XDP uses one socket for each."""
    a, b = namespaces.names
    end = ("data", "mtu", str(mtu), "numrxqueues", str(queues), "numtxqueues", str(queues))
    ip("link", "del", "data", netns=a)
    ip("link", "add", *end, "type", "veth", "peer", "name", *end, "netns", b, netns=a)


def interfaces(body, *arguments, mtu=4200, configs=(INTERFACE, INTERFACE), queues=1):
    with TwoNamespaces(mtu) as namespaces:
        if queues > 1:
            with_queues(namespaces, mtu, queues)
        for netns, addresses, config in zip(namespaces.names, ADDRESSES, configs):
            if config is INTERFACE:
                # The link-local address is added again without duplicate address detection, which takes seconds.
                subprocess.run(["ip", "netns", "exec", netns, "sh", "-c",
                                "echo 0 > /proc/sys/net/ipv6/conf/data/accept_dad"], check=True)
                ip("link", "set", "data", "down", netns=netns)
                ip("link", "set", "data", "up", netns=netns)
                address(netns, addresses)
        body(namespaces.link([*configs]), *arguments)


def beside(link, command, core=CLIENT_CORE):
    """Starts a program that uses the kernel's network, in the second namespace."""
    return Process(command, None, core, link.netns[1])


def shown(netns):
    done = subprocess.run(["ip", "-n", netns, "-j", "-d", "link", "show", "data"], capture_output=True, check=True)
    return json.loads(done.stdout)[0]


def all_verbs(link, *options):
    command = [program("verbs_check"), "--rounds", "1", *options]
    server, _ = run_pair(link, command, command, "--port")
    check("AF_PACKET" not in server.err(), server.story())


def verified(*options, mtu=4200, queues=1):
    interfaces(all_verbs, *options, mtu=mtu, queues=queues)


test("interface/verified", verified, "--mtu", "4096", "--both", *ALL_SIZES, quick=True)
test("interface/xdp/verified", lambda: verified("--mtu", "4096", "--both", "--qps", "8", *ALL_SIZES, queues=2))
once("interface/xdp/verified/ipv6", lambda: verified("--mtu", "4096", "--gid-index", "2", *ALL_SIZES, queues=2))
once("interface/xdp/verified/mtu-1500", lambda: verified("--mtu", "1024", "--qps", "8", *ALL_SIZES, mtu=1500, queues=2))
once("interface/verified/ipv6", verified, "--mtu", "4096", "--gid-index", "2", *ALL_SIZES)
once("interface/verified/link-local", verified, "--mtu", "1024", "--gid-index", "0", "--sizes", "0,64,4097")
once("interface/verified/events", verified, "--mtu", "2048", "--events", *ALL_SIZES)
once("interface/verified/ud", verified, "--mtu", "4096", "--transport", "ud", "--verbs", "send,send_imm", "--sizes",
     "0,1,64,4096")


def small_mtu():
    def body(link):
        info = Process(["ibv_devinfo"], INTERFACE, netns=link.netns[0]).succeed(20)
        check("active_mtu:\t\t1024" in info.out(), info.story())
        all_verbs(link, "--mtu", "1024", "--both", *ALL_SIZES)

    interfaces(body, mtu=1500)


test("interface/verified/mtu-1500", small_mtu)


def multicast(link):
    command = [program("verbs_multicast")]
    run_pair(link, command, command, "--port")


def many_groups(link):
    """A group that cannot be joined, here because there are too few descriptors, is refused. Groups that were left free
    their descriptors."""
    command = [program("verbs_multicast")]
    server, _ = run_pair(link, ["prlimit", "--nofile=200", *command, "--fill", "--before", "400"], command, "--port")
    check(server.json()[0]["error"] == errno.EMFILE, server.story())


once("interface/multicast/many", interfaces, many_groups)
once("interface/multicast", interfaces, multicast)
once("interface/xdp/multicast", lambda: interfaces(multicast, queues=2))


def rdma_cm(link, to):
    command = ["rping", "-v", "-V", "-C", "50"]
    server = Process([*command, "-s", "-a", to], INTERFACE, SERVER_CORE, link.netns[0])
    wait_ready(server)
    Process([*command, "-c", "-a", to], INTERFACE, CLIENT_CORE, link.netns[1]).succeed(20)
    server.succeed(20)


once("interface/rdma-cm", interfaces, rdma_cm, "10.0.0.1")


def cmtime(link):
    """Debian 13's cmtime first makes a TCP connection to the same address, so the kernel must have it too."""
    command = ["cmtime", "-c", "500", "-p", "7471"]
    server = Process([*command, "-b", "10.0.0.1"], INTERFACE, SERVER_CORE, link.netns[0])
    server.wait_for(lambda: server.is_listening(7471) or listens(server), 20, "listener")
    Process([*command, "-s", "10.0.0.1"], INTERFACE, CLIENT_CORE, link.netns[1]).succeed(40)
    server.stop()


once("interface/rdma-cm/cmtime", interfaces, cmtime)


def without_xdp():
    """A process that may not load an XDP program uses AF_PACKET. Neither its kernel nor the peer's answers RDMA
    packets."""
    def body(link):
        command = ["setpriv", "--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin",
                   program("verbs_check"), "--rounds", "1", "--mtu", "4096", *ALL_SIZES]
        for side in run_pair(link, command, command, "--port"):
            check(side.err().count("AF_PACKET") == 1, side.story())
        for netns in link.netns:
            counters = subprocess.run(["ip", "netns", "exec", netns, "cat", "/proc/net/snmp"], capture_output=True,
                                      text=True, check=True).stdout
            names, values = (line.split()[1:] for line in counters.splitlines() if line.startswith("Icmp: "))
            check(dict(zip(names, values))["OutDestUnreachs"] == "0", counters)

    interfaces(body, queues=2)


once("interface/xdp/not-allowed", without_xdp)


# Sets the number of queues of an interface in its namespace, like `ethtool -L NAME rx N tx N`.
USE_QUEUES = """
import array, fcntl, socket, struct, sys
SIOCETHTOOL, SET_CHANNELS = 0x8946, 0x3D
with socket.socket() as any_socket:
    value = array.array("B", struct.pack("9I", SET_CHANNELS, 0, 0, 0, 0, int(sys.argv[1]), int(sys.argv[2]), 0, 0))
    fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", b"data", value.buffer_info()[0]))
"""


def use_queues(netns, rx, tx):
    subprocess.run(["ip", "netns", "exec", netns, "python3", "-c", USE_QUEUES, str(rx), str(tx)], check=True)


def with_flows(queues, body):
    """Gives the interface `queues` RX queues. The peer's kernel spreads flows of UDP over them."""
    with TwoNamespaces(1500) as namespaces:
        with_queues(namespaces, 1500, queues)
        for netns, addresses in zip(namespaces.names, ADDRESSES):
            ip("link", "set", "data", "up", netns=netns)
            address(netns, addresses)
        # mp would stop using the paths on which no packets arrive.
        link = namespaces.link([{**config, "transport": {"mode": "rc"}} for config in (INTERFACE, UDP_PEER)])
        command = [program("verbs_check"), "--gid-index", "1", "--mtu", "1024", "--qps", "60", "--verbs", "write",
                   "--sizes", "64,4097"]
        body(link, command)


def queues_beyond_64(link, command):
    """AF_XDP reads 64 RX queues. Flows on other queues arrive by AF_PACKET."""
    command = [*command, "--rounds", "1"]
    server, _ = run_pair(link, command, command, "--port")
    check(server.err().count("it has 80 RX queues, and AF_XDP reads 64") == 1, server.story())


once("interface/xdp/queues/80", with_flows, 80, queues_beyond_64)


def more_queues_later(link, command):
    """Adds RX queues to the interface while a program runs."""
    command = [*command, "--rounds", "100"]
    interface, peer = link.netns
    use_queues(peer, 16, 2)
    use_queues(interface, 2, 2)
    server = start_server(link, command, port := free_port("netns"), "--port")
    client = start_client(link, command, port, "--port")
    client.wait_for(lambda: telemetry(server.pid, "/rove/ports")["rove0"]["rx_frames"] > 1000, 20, "traffic")
    use_queues(interface, 16, 2)
    use_queues(peer, 16, 16)
    check(client.child.poll() is None, f"the transfer was over before\n{client.story()}")
    client.succeed(40)
    server.succeed(STOPPED)
    check(server.err().count("it has 16 RX queues, and AF_XDP reads 2") == 1, server.story())


once("interface/xdp/queues/later", with_flows, 16, more_queues_later)


def other_port():
    """The peer is a rove that does ARP and ND itself, and the kernel answers it. Its net_af_packet does not support
    segmentation."""
    def body(link, *options):
        subprocess.run(["ip", "netns", "exec", link.netns[0], "python3", "-c", PLAIN], check=True)
        all_verbs(link, *options)

    config = with_changes(shipped("af_packet-b"), mtu=4096)
    config["device"][0]["port"] = config["device"][0]["port"].replace("rove-veth-b", "data")
    interfaces(body, "--mtu", "4096", "--sizes", "0,64,4097", mtu=4300, configs=(INTERFACE, config))


once("interface/af_packet-peer", other_port)


def kernels_traffic(link):
    """Runs ping and TCP over the same interfaces during RDMA traffic."""
    server = start_server(link, ["ib_write_bw", "-x", "1", "-F", "-D", "2", "-s", "65536"], port := free_port("netns"))
    tcp_server = Process(["iperf3", "-s", "-1"], None, SERVER_CORE, link.netns[0])
    tcp_server.wait_listening(5201)
    client = start_client(link, ["ib_write_bw", "-x", "1", "-F", "-D", "2", "-s", "65536"], port)
    tcp = beside(link, ["iperf3", "-c", "10.0.0.1", "-t", "1", "-J"])
    pings = [beside(link, ["ping", "-c", "10", "-i", "0.1", "-W", "2", to]) for to in ("10.0.0.1", "fd00::1")]
    for one in (*pings, tcp, client, server):
        one.succeed(30)
    for one in pings:
        check(" 0% packet loss" in one.out(), one.story())
    sent = json.loads(tcp.out())["end"]["sum_received"]["bytes"]
    check(sent > 1_000_000, f"{sent} bytes by TCP")


once("interface/beside-the-kernel", interfaces, kernels_traffic)
once("interface/xdp/beside-the-kernel", lambda: interfaces(kernels_traffic, queues=2))


def udp_peer():
    """The other end uses the kernel's UDP sockets. Segments and packets with incomplete checksums arrive intact."""
    with TwoNamespaces(4200) as namespaces:
        for netns, addresses in zip(namespaces.names, ADDRESSES):
            address(netns, addresses)
        link = namespaces.link([INTERFACE, UDP_PEER])
        command = [program("verbs_check"), "--rounds", "1", "--mtu", "4096", "--both", *ALL_SIZES, "--gid-index", "1"]
        run_pair(link, command, command, "--port")


once("interface/udp-peer", udp_peer)


def without_trains():
    """The kernel does not support segmentation, so frames are sent one by one."""
    def body(link):
        link.env = WITHOUT_TRAINS
        all_verbs(link, "--mtu", "4096", *ALL_SIZES)

    interfaces(body)


once("interface/without-trains", without_trains)


def killed(link):
    """A killed process leaves nothing behind, and the next one can open the port."""
    for _ in range(2):
        server = start_server(link, ["ib_write_bw", "-F"], free_port("netns"))
        check("xdp" in shown(link.netns[0]), shown(link.netns[0]))
        second = Process(["ibv_devinfo"], INTERFACE, netns=link.netns[0])
        check(second.wait(20) != 0 and str(server.pid) in second.err(), second.story())
        server.kill(signal.SIGKILL)
        check("xdp" not in shown(link.netns[0]), shown(link.netns[0]))


once("interface/xdp/killed", lambda: interfaces(killed, queues=2))


def live(link):
    """The GIDs follow the kernel's addresses, and the port's state follows the carrier. The program gets the events."""
    netns = link.netns[0]
    watch = Process(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0"], INTERFACE, netns=netns)
    watch.wait_for(lambda: "async event FD" in watch.out(), 20, "its start")
    gids = lambda: telemetry(watch.pid, "/rove/devices")["rove0"]["gids"]
    first = gids()
    check(first[1:] == ["10.0.0.1", "fd00::1"], first)
    for change, expected in (("add", [*first, "10.0.0.7"]), ("del", first)):
        seen = watch.out().count("GID_CHANGE")
        ip("address", change, "10.0.0.7/24", "dev", "data", netns=netns)
        watch.wait_for(lambda: watch.out().count("GID_CHANGE") == seen + 1, 20, "GID_CHANGE")
        check(gids() == expected, gids())
    for state, event in (("down", "PORT_ERR"), ("up", "PORT_ACTIVE")):
        ip("link", "set", "data", state, netns=link.netns[1])
        watch.wait_for(lambda: event in watch.out(), 20, event)
    watch.stop()


for name, queues in (("interface/live", 1), ("interface/xdp/live", 2)):
    once(name, lambda queues=queues: interfaces(live, queues=queues))


def neighbour_moves(link):
    """Packets follow the kernel's neighbour entries. With a wrong entry a transfer stalls until the entry is right
    again."""
    command = [program("verbs_check"), "--mtu", "1024", "--timeout", "17", "--sizes", "100000", "--rounds", "100",
               "--verbs", "write"]
    server = start_server(link, command, port := free_port("netns"), "--port")
    client = start_client(link, command, port, "--port")
    frames = lambda process: telemetry(process.pid, "/rove/ports")["rove0"]["rx_frames"]
    client.wait_for(lambda: frames(server) > 100, 20, "traffic")
    right = shown(link.netns[0])["address"]
    ip("neigh", "replace", "10.0.0.1", "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "data",
       netns=link.netns[1])

    def stands_still():
        before = frames(client)
        time.sleep(0.2)
        check((answered := frames(client) - before) == 0, f"{answered} frames were answered")

    eventually(stands_still, 20)
    ip("neigh", "replace", "10.0.0.1", "lladdr", right, "nud", "reachable", "dev", "data", netns=link.netns[1])
    client.succeed(30)
    server.succeed(20)


once("interface/neighbour-moves", interfaces, neighbour_moves)


def address_later(link):
    """A listener at all addresses also gets addresses that the interface receives after it began to listen."""
    server = Process([program("rdma_cm_address"), "server", "7800"], INTERFACE, SERVER_CORE, link.netns[0])
    server.wait_for(lambda: "listening" in server.out(), 20, "listener")
    ip("address", "add", "10.0.0.7/24", "dev", "data", netns=link.netns[0])
    server.wait_for(lambda: "10.0.0.7" in telemetry(server.pid, "/rove/devices")["rove0"]["gids"], 5, "its address")
    Process([program("rdma_cm_address"), "client", "7800", "10.0.0.7"], INTERFACE, CLIENT_CORE,
            link.netns[1]).succeed(20)
    server.succeed(STOPPED)
    check(server.out().split() == ["listening", "::ffff:10.0.0.7"], server.story())


once("interface/rdma-cm/address-later", interfaces, address_later)


def link_local_only():
    """The interfaces have only the address that IPv6 gives each of them."""
    def body(link):
        for netns in link.netns:
            ip("-4", "address", "flush", "dev", "data", netns=netns)
            ip("-6", "address", "flush", "dev", "data", "scope", "global", netns=netns)
        all_verbs(link, "--mtu", "1024", "--gid-index", "0", "--sizes", "0,64,4097")
        shown_gids = Process(["ibv_devinfo", "-v"], INTERFACE, netns=link.netns[0]).succeed(20)
        check(shown_gids.out().count("GID[") == 1, shown_gids.story())

    interfaces(body)


once("interface/link-local-only", link_local_only)


def by_option():
    """Runs rove-run with two options --interface."""
    def body(link):
        netns = link.netns[0]
        info = Process([ROVE_RUN, "--interface", "data", "--interface", "ctl", "--", "ibv_devinfo", "-v"],
                       netns=netns).succeed(20)
        for wanted in ("rove0", "rove1", "::ffff:10.0.0.1", "::ffff:192.0.2.1"):
            check(wanted in info.out(), info.story())

    interfaces(body)


once("interface/rove-run", by_option)


def named(link):
    """A device has the name that its configuration gives it."""
    netns = link.netns[0]
    config = {"device": [{"port": "interface:data", "name": "rove-data"}, {"port": "interface:ctl"}]}
    info = Process(["ibv_devinfo", "-v"], config, netns=netns).succeed(20)
    check(re.findall(r"hca_id:\s*(\S+)", info.out()) == ["rove-data", "rove1"], info.story())
    ends = Link([config, INTERFACE], link.netns, link.server_host)
    command = ["ib_write_bw", "-F", "-n", "100", "-x", "1"]
    server = start_server(ends, [*command, "-d", "rove-data"], port := free_port(netns))
    start_client(ends, [*command, "-d", "rove0"], port).succeed(20)
    server.succeed(STOPPED)


once("interface/named", interfaces, named)


def refused():
    def body(link):
        netns = link.netns[0]
        for port, changes, wanted in (("interface:none", {}, "no such interface"),
                                      ("interface:lo", {}, "not an Ethernet"),
                                      ("interface:data", {}, "ip address add"),
                                      ("interface:data", {"addresses": ["10.0.0.1/24"]}, "the kernel's")):
            one = Process(["ibv_devinfo"], {"device": [{"port": port, **changes}]}, netns=netns)
            lines = one.wait(20) and [line for line in one.err().splitlines() if "rove" in line]
            check(lines and len(lines) == 1 and wanted in lines[0], one.story())
        address(netns, ADDRESSES[0])
        ip("link", "set", "data", "down", netns=link.netns[1])
        info = Process(["ibv_devinfo"], INTERFACE, netns=netns).succeed(20)
        check("PORT_DOWN" in info.out() and "no carrier" in info.err(), info.story())

    with TwoNamespaces(1500) as namespaces:
        ip("link", "set", "data", "addrgenmode", "none", netns=namespaces.names[0])
        ip("-6", "address", "flush", "dev", "data", netns=namespaces.names[0])
        body(namespaces.link([INTERFACE, INTERFACE]))


once("interface/refused", refused)


for name, queues in (("interface/sleeps", 1), ("interface/xdp/sleeps", 2)):
    once(name, lambda queues=queues: interfaces(sleeps, queues=queues))
