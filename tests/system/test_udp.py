# SPDX-License-Identifier: Apache-2.0
"""Tests RoCE over the kernel's UDP sockets as a user without privileges: over loopback and veth, against itself,
against rove on an AF_PACKET port, and against Linux's rdma_rxe in the guest."""
import contextlib
import errno
import os
import re
import signal
import stat
import subprocess
import sys

from harness import (CLIENT_CORE, ROVE_RUN, SCRATCH, SERVER_CORE, STOPPED, Link, Process, TwoNamespaces, check,
                     eventually, free_port, ip, loopback_address, once, program, run_pair, start_client, start_server,
                     telemetry, test)
from test_guest import GUEST, guest
from test_perftest import HASTY, perftest
from test_rdma_cm import wait_ready
from test_stall import sleeps
from test_veth import configs

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
ADDRESSES = {"1": ("10.0.0.1", "10.0.0.2"), "2": ("fd00::1", "fd00::2")}    # addresses of the veth's ends, by family
SIZES = "0,1,64,1000,4097,65537"


def udp(address, **device):
    return {"device": [{"port": f"udp:{address}" if address else "udp", **device}]}


def loopback(**device):
    return Link([udp(loopback_address(), **device) for _ in range(2)])


def unprivileged(words):
    if os.geteuid() != 0:
        return words
    SCRATCH.chmod(0o755)
    # Other users may not be able to enter the folders of this tree, for example in /root.
    reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in ROVE_RUN.parents)
    return [*(AS_NOBODY if reachable else WITHOUT_CAPABILITIES), *words]


def verified(link, *options, timeout=100):
    command = unprivileged([program("verbs_check"), "--gid-index", "1", *options])
    run_pair(link, command, command, "--port", timeout)


def on_loopback(*options, **device):
    verified(loopback(**device), *options)


test("udp/loopback/verified", on_loopback, "--both", "--rounds", "1", "--sizes", SIZES, quick=True)
once("udp/loopback/events-srq", on_loopback, "--events", "--srq", "--qps", "4", "--rounds", "1", "--sizes",
     "1,1000,4097")
once("udp/loopback/impaired", lambda: on_loopback(
    "--rounds", "1", "--sizes", "0,64,4097,65537",
    impair={"loss": 0.02, "reorder": 0.02, "duplicate": 0.02, "corrupt": 0.01}))


def perftests():
    for tool, options in (("ib_write_bw", "-n 200 -m 4096"), ("ib_read_bw", "-n 200 -q 2"), ("ib_send_bw", "-n 200"),
                          ("ib_write_lat", "-n 100"), ("ib_send_lat", "-n 100 -e"), ("ib_atomic_bw", "-n 100"),
                          ("ib_send_bw", "-c UD -s 1000 -n 20")):
        perftest(loopback(), tool, ["-x", "1", *options.split()])


once("udp/loopback/perftest", perftests)


# --- veth ------------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def veth(mtu, ends=(0, 1), **device):
    """Yields two namespaces with a veth pair. The kernel has addresses at the ends in `ends`."""
    with TwoNamespaces(mtu=mtu) as namespaces:
        for end in ends:
            for family, addresses in ADDRESSES.items():
                prefix = "/24" if family == "1" else "/64"
                ip("addr", "add", addresses[end] + prefix, "dev", "data", *["nodad"] * (family == "2"),
                   netns=namespaces.names[end])
        yield namespaces


def over_veth(mtu):
    roce_mtu = "4096" if mtu > 4200 else "1024"
    with veth(mtu) as namespaces:
        for addresses in ADDRESSES.values():
            verified(namespaces.link([udp(address) for address in addresses]), "--mtu", roce_mtu, "--both", "--rounds",
                     "1", "--sizes", SIZES)


test("udp/veth/9000", over_veth, 9000)
once("udp/veth/1500", over_veth, 1500)


def rdma_cm():
    with veth(1500) as namespaces:
        ends = namespaces.link([udp(address) for address in ADDRESSES["1"]])
        command = ["rping", "-v", "-V", "-C", "50", "-a", "10.0.0.1"]
        server = Process([*command, "-s"], ends.configs[0], SERVER_CORE, ends.netns[0])
        wait_ready(server)
        Process([*command, "-c"], ends.configs[1], CLIENT_CORE, ends.netns[1]).succeed(20)
        server.succeed(STOPPED)


once("udp/veth/rdma-cm", rdma_cm)


# Turns off the checksums and the segmentation of an interface, in its namespace. A NIC completes both, but the other
# end of a veth receives the frames as they are.
PLAIN = """
import array, fcntl, socket, struct
SIOCETHTOOL, SET_TX_CHECKSUM, SET_GSO = 0x8946, 0x17, 0x24
with socket.socket() as any_socket:
    for command in SET_TX_CHECKSUM, SET_GSO:
        value = array.array("B", struct.pack("II", command, 0))
        fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", b"data", value.buffer_info()[0]))
"""


def against_af_packet():
    """The other end is a port of another kind, which checks every byte of the kernel's headers."""
    with veth(4300, ends=(0,)) as namespaces:
        subprocess.run(["ip", "netns", "exec", namespaces.names[0], "python3", "-c", PLAIN], check=True)
        for family, addresses in ADDRESSES.items():
            link = namespaces.link([udp(addresses[0]), configs("af_packet")[1]])
            options = [program("verbs_check"), "--mtu", "4096", "--both", "--rounds", "1", "--sizes", SIZES]
            run_pair(link, [*options, "--gid-index", "1"], [*options, "--gid-index", family], "--port")


test("udp/af_packet", against_af_packet)


def by_route():
    """The port `udp` without an address uses the addresses of the default routes. Without such a route an error names
    it."""
    with veth(1500) as namespaces:
        netns = namespaces.names[0]
        lost = Process(["ibv_devinfo"], udp(None), netns=netns)
        check(lost.wait(20) != 0 and "no default route" in lost.err(), lost.story())
        ip("route", "add", "default", "via", "10.0.0.2", netns=netns)
        ip("-6", "route", "add", "default", "via", "fd00::2", netns=netns)
        shown = Process(unprivileged(["ibv_devinfo", "-v"]), udp(None), netns=netns).succeed(20)
        check("::ffff:10.0.0.1" in shown.out() and "fd00::1" in shown.out(), shown.story())
        check(re.search(r"active_mtu:\s+1024", shown.out()) and "PORT_ACTIVE" in shown.out(), shown.story())


once("udp/by-route", by_route)


def link_state():
    """The interface goes down and up, and its address is removed and added. Programs get the events."""
    with veth(1500) as namespaces:
        netns = namespaces.names[0]
        watch = Process(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0"], udp("10.0.0.1"), netns=netns)
        watch.wait_for(lambda: "async event FD" in watch.out(), 20, "its start")
        for change, event in ((("addr", "del", "10.0.0.1/24", "dev", "data"), "PORT_ERR"),
                              (("addr", "add", "10.0.0.1/24", "dev", "data"), "PORT_ACTIVE"),
                              (("link", "set", "data", "down"), "PORT_ERR")):
            seen = watch.out().count(event)
            ip(*change, netns=netns)
            watch.wait_for(lambda: watch.out().count(event) == seen + 1, 20, event)
        watch.stop()


once("udp/link-state", link_state)


def multicast():
    with veth(9000) as namespaces:
        command = [program("verbs_multicast")]
        run_pair(namespaces.link([udp(address) for address in ADDRESSES["1"]]), command, command, "--port")


once("udp/multicast", multicast)


def many_groups():
    """Groups that were left make room for others. A group is refused when there is no room."""
    with veth(9000) as namespaces:
        command = [program("verbs_multicast")]
        server, _ = run_pair(namespaces.link([udp(address) for address in ADDRESSES["1"]]),
                             [*command, "--fill", "--before", "200"], command, "--port")
        check(server.json() == [{"groups": 63, "error": errno.ENOMEM}], server.story())


once("udp/multicast/many", many_groups)


# --- kernels without segmentation, a smaller MTU, forged ICMP, a slow link -------------------------------------------

WITHOUT_TRAINS = {"LD_PRELOAD": str(program("libno_trains.so"))}


def counts(process):
    return telemetry(process.pid, "/rove/ports")["rove0"]


def without_trains():
    """The kernel does not support segmentation, so frames are sent one by one."""
    with veth(9000) as namespaces:
        link = namespaces.link([udp(address) for address in ADDRESSES["1"]])
        link.env = WITHOUT_TRAINS
        command = [program("verbs_check"), "--gid-index", "1", "--mtu", "4096", "--rounds", "1", "--sizes", SIZES]
        run_pair(link, command, command, "--port")


once("udp/without-trains", without_trains)


def path_mtu_falls():
    """The MTU of the interface falls (EMSGSIZE). Frames are lost and counted, as on a cut cable. Then the MTU rises
    again, and the transfer continues."""
    with veth(9000) as namespaces:
        link, port = namespaces.link([udp(address) for address in ADDRESSES["1"]]), free_port("netns")
        command = [program("verbs_check"), "--gid-index", "1", "--mtu", "4096", "--verbs", "write", "--timeout", "15",
                   "--sizes", "100000", "--rounds", "300"]
        server = start_server(link, command, port, "--port")
        client = start_client(link, command, port, "--port")
        client.wait_for(lambda: counts(server)["rx_frames"] > 1000, 20, "traffic")
        ip("link", "set", "data", "mtu", "1500", netns=namespaces.names[1])
        client.wait_for(lambda: counts(client)["tx_over_mtu"] > 0, 20, "a frame that is too long")
        ip("link", "set", "data", "mtu", "9000", netns=namespaces.names[1])
        client.succeed(30)
        server.succeed(STOPPED)
        check(client.err().count("the interface's MTU is less than it was") == 1, client.story())


once("udp/path-mtu-falls", path_mtu_falls)


# A host can forge ICMP messages about datagrams that it has not seen: that they are too long, that the destination is
# unreachable, or that another router is better. This program sends them for all UDP ports from which rove sends.
FORGER = """
import socket, struct, sys
us, victim, quoted_to = sys.argv[1:]        # the victim is said to have sent to `quoted_to`
ipv6 = ":" in victim
family = socket.AF_INET6 if ipv6 else socket.AF_INET
own, theirs, to = (socket.inet_pton(family, address) for address in (us, victim, quoted_to))

def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

def icmp(kind, code, rest, quoted):
    message = struct.pack(">BBH", kind, code, 0) + rest + quoted
    return message if ipv6 else message[:2] + struct.pack(">H", checksum(message)) + message[4:]

def quote(port):
    udp = struct.pack(">HHHH", port, 4791, 4080, 0)
    if ipv6:
        return struct.pack(">IHBB", 6 << 28, 4080, 17, 64) + theirs + to + udp
    header = struct.pack(">BBHHHBBH", 0x45, 0, 4100, 0, 0x4000, 64, 17, 0) + theirs + to
    return header[:10] + struct.pack(">H", checksum(header)) + header[12:] + udp

sender = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if ipv6 else socket.IPPROTO_ICMP)
sender.setsockopt(socket.IPPROTO_IPV6 if ipv6 else socket.IPPROTO_IP,
                  socket.IPV6_UNICAST_HOPS if ipv6 else socket.IP_TTL, 255)
zero = bytes(4)
for port in (4791, *range(0xC000, 0x10000)):
    quoted = quote(port)
    if ipv6:
        messages = [icmp(2, 0, struct.pack(">I", 1280), quoted), *(icmp(1, code, zero, quoted) for code in range(7))]
    else:
        messages = [icmp(3, 4, struct.pack(">HH", 0, 552), quoted), icmp(5, 1, own, quoted),
                    *(icmp(3, code, zero, quoted) for code in range(4))]
    for message in messages:
        sender.sendto(message, (victim, 0))
if ipv6:    # the link is said to have an MTU of 1280
    sender.sendto(icmp(134, 0, struct.pack(">BBHII", 64, 0, 0, 0, 0), struct.pack(">BBHI", 5, 1, 0, 1280)),
                  ("ff02::1%data", 0))
"""


def forged(family):
    """Forged ICMP about a connection neither ends it nor costs it a frame."""
    addresses = ADDRESSES[family]
    def is_ready():
        """The advertisement is sent from a link-local address, on which the kernel first does duplicate address
        detection."""
        shown = subprocess.run(["ip", "-n", namespaces.names[0], "-6", "addr"], capture_output=True, text=True,
                               check=True)
        check("tentative" not in shown.stdout, shown.stdout)

    with veth(9000) as namespaces:
        eventually(is_ready, 20)
        link, port = namespaces.link([udp(address) for address in addresses]), free_port("netns")
        command = [program("verbs_check"), "--gid-index", "1", "--mtu", "4096", "--verbs", "write", "--timeout", "15",
                   "--sizes", "100000", "--rounds", "300"]
        server = start_server(link, command, port, "--port")
        client = start_client(link, command, port, "--port")
        client.wait_for(lambda: counts(server)["rx_frames"] > 1000, 20, "traffic")
        client.child.send_signal(signal.SIGSTOP)    # so that it does not end before the forger
        check(client.child.poll() is None, client.story())
        subprocess.run(["ip", "netns", "exec", namespaces.names[0], sys.executable, "-c", FORGER, addresses[0],
                        addresses[1], addresses[0]], check=True)
        route = subprocess.run(["ip", "-n", namespaces.names[1], "route", "get", addresses[0]], capture_output=True,
                               text=True, check=True).stdout
        check(f"mtu {1280 if ':' in addresses[0] else 552}" in route, f"the kernel believes it: {route}")
        client.child.send_signal(signal.SIGCONT)
        client.succeed(30)
        server.succeed(STOPPED)
        check("MTU" not in client.err(), client.story())    # The first frame that is too long would cause this message.


for family, name in (("1", "ipv4"), ("2", "ipv6")):
    once(f"udp/forged/{name}", forged, family)


def slow_link():
    """Sends datagrams over a link of 400 Mb/s. Its queue is longer than a socket's buffer (EAGAIN), so no datagram is
    lost. It uses UD, because the window of RC is smaller."""
    with veth(9000) as namespaces:
        for netns in namespaces.names:
            subprocess.run(["ip", "netns", "exec", netns, "tc", "qdisc", "add", "dev", "data", "root", "tbf", "rate",
                            "400mbit", "burst", "128k", "limit", "64m"], check=True)
        command = [program("verbs_check"), "--gid-index", "1", "--mtu", "4096", "--transport", "ud", "--verbs", "send",
                   "--sizes", "4096", "--depth", "512", "--rounds", "2"]
        _, client = run_pair(namespaces.link([udp(address) for address in ADDRESSES["1"]]), command, command, "--port")
        check([line["lost"] for line in client.json()] == [0], client.story())


once("udp/slow-link", slow_link)


# --- ports that are in use, and wrong configurations -----------------------------------------------------------------

def refused(config, *parts, netns=None):
    process = Process(["ibv_devinfo"], config, netns=netns)
    check(process.wait(20) != 0 and "hca_id" not in process.out(), process.story())
    lines = [line for line in process.err().splitlines() if line.startswith("rove")]
    check(len(lines) == 1 and all(part in lines[0] for part in parts), f"{parts}\n{process.story()}")


HOLDER = "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 4791)); " \
         "print('bound', flush=True); sys.stdin.read()"


def taken():
    ours, theirs = loopback_address(), loopback_address()
    owner = Process(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0"], udp(ours))
    owner.wait_for(lambda: "async event FD" in owner.out(), 20, "its start")
    refused(udp(ours), f"in use by process {owner.pid} (ibv_asyncwatch)")
    owner.kill(signal.SIGKILL)
    Process(["ibv_devinfo"], udp(ours)).succeed(20)
    stranger = Process([sys.executable, "-c", HOLDER, theirs], stdin=True)
    stranger.wait_for(lambda: "bound" in stranger.out(), 20, "its socket")
    refused(udp(theirs), f"UDP port 4791 is in use by process {stranger.pid} (python3", "Allowed: ")


def bad():
    refused(udp("203.0.113.5"), "does not have that address", "Allowed: ")
    refused(udp("eth0"), "key 'device[0].port'", "udp:ADDRESS")
    refused(udp("127.0.0.1", vlan=5), "key 'device[0].vlan'", "udp")
    refused(udp("127.0.0.1", addresses=["10.0.0.1/24"]), "key 'device[0].addresses'", "udp")
    with veth(1500) as namespaces:
        refused(udp("10.0.0.1", mtu=4096), "interface's MTU of 1500", "Allowed: 256, 512, 1024",
                netns=namespaces.names[0])


once("udp/taken", taken)
once("udp/bad", bad)


# --- sleep -----------------------------------------------------------------------------------------------------------

once("udp/sleeps", lambda: sleeps(loopback(), 0.02))


# --- Linux's rdma_rxe ------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def addressed(machine):
    """Gives the kernel the addresses of this side of the guest's tap for a while."""
    disable = "/proc/sys/net/ipv6/conf/data/disable_ipv6"

    def ipv6(disabled):
        subprocess.run(["ip", "netns", "exec", machine.netns, "sh", "-c", f"echo {disabled} > {disable}"], check=True)

    ipv6(0)
    ip("addr", "add", "10.0.0.1/24", "dev", "data", netns=machine.netns)
    ip("addr", "add", "fd00::1/64", "dev", "data", "nodad", netns=machine.netns)
    machine.run("ip", "neigh", "flush", "dev", "data")
    try:
        yield
    finally:
        ip("addr", "flush", "dev", "data", netns=machine.netns)
        ipv6(1)
        machine.run("ip", "neigh", "flush", "dev", "data")


def rxe(family):
    """rxe sets the identification of its IPv4 packets. The ICRC covers it, and a socket does not see it."""
    machine = guest()
    address = ADDRESSES[family][0]
    with addressed(machine):
        port = free_port(machine.netns)
        command = ["ib_write_bw", "-F", "-u", "18", "-s", "65536", "-n", "10", "-p", port]
        server = machine.process([*command, "-x", family])
        machine.wait_listening(port)
        client = Process([*command, "-x", "1", GUEST], udp(address), CLIENT_CORE, machine.netns, HASTY)
        client.succeed(40)
        server.succeed(20)
        command = [program("verbs_check"), "--mtu", "1024", "--rounds", "1", "--depth", "4", "--timeout", "18",
                   "--sizes", "1,1000,9000", "--port", free_port(machine.netns)]
        theirs = machine.process([*command, "--gid-index", family])
        ours = Process([*command, "--gid-index", "1", GUEST], udp(address), CLIENT_CORE, machine.netns)
        ours.succeed(60)
        theirs.succeed(STOPPED)
        check(ours.json() and len(ours.json()) == len(theirs.json()), f"{ours.story()}\n{theirs.story()}")


for family, name in (("1", "ipv4"), ("2", "ipv6")):
    once(f"udp/rxe/{name}", rxe, family, timeout=160, lane="guest")
