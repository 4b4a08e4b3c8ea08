# SPDX-License-Identifier: Apache-2.0
"""Tests rove with the Linux kernel's RoCE (rdma_rxe) in a QEMU guest (tests/guest) over a tap: both directions, IPv4
and IPv6, and loss on either side. The emulated kernel stalls for half a second at times, so timeouts are long and
messages are few."""
import re
import sys

from harness import (BUILD, CLIENT_CORE, ROOT, ROVE_RUN, STOPPED, Failure, Process, check, free_port, once, program,
                     with_changes)

sys.path.insert(0, str(ROOT / "tests" / "guest"))

from guest import GUEST, HOST, guest  # noqa: E402
from test_rdma_cm import wait_ready  # noqa: E402
from test_veth import configs  # noqa: E402

FAMILIES = {"ipv4": "1", "ipv6": "2"}       # index of the GID on both sides
ADDRESSES = {"ipv4": ("10.0.0.1", "10.0.0.2"), "ipv6": ("fd00::1", "fd00::2")}
# The role of rove in the test's name; the guest has the other role.
DIRECTIONS = ("initiates", "responds")
TIMEOUT = "18"                              # timeout of a QP, 1.07 s


def config(**changes):
    return with_changes(configs("af_packet")[0], **changes)


def rove(arguments, **changes):
    return Process(arguments, config(**changes), CLIENT_CORE, guest().netns)


def both(direction, command, port_option="-p", timeout=60, listens=True, **changes):
    """Runs the same command on both sides, as a server and as a client with the server's address appended. rove is the
    client if it `initiates`. With `listens` the client starts when the server listens. Returns rove's process and the
    guest's."""
    machine, port = guest(), free_port(guest().netns)
    command = [*command, port_option, port]
    if direction == "initiates":
        server = machine.process(command)
        if listens:
            machine.wait_listening(port)
        client = rove([*command, GUEST], **changes)
    else:
        server = rove(command, **changes)
        if listens:
            server.wait_listening(port)
        client = machine.process([*command, HOST])
    try:
        client.succeed(timeout)
        server.succeed(STOPPED)
    except Failure as failure:
        first = str(failure).splitlines()[0]
        raise Failure(f"{first}\n--- server\n{server.story()}\n--- client\n{client.story()}") from None
    return (client, server) if direction == "initiates" else (server, client)


def verified(direction, family, mtu, *options, timeout=TIMEOUT, **changes):
    command = [program("verbs_check"), "--gid-index", FAMILIES[family], "--mtu", mtu, "--rounds", "2", "--depth", "4",
               "--timeout", timeout, *options]
    ours, theirs = both(direction, command, "--port", listens=False, **changes)
    check(ours.json() and len(ours.json()) == len(theirs.json()), f"{ours.story()}\n{theirs.story()}")
    return ours, theirs


def boots():
    check("ACTIVE" in guest().run("rdma", "link"), guest().machine.story())


def ping():
    """The kernel pings rove at both addresses."""
    server = rove(["ib_write_bw", "-F"])
    server.wait_listening(18515)
    for ours, _ in ADDRESSES.values():
        answered = guest().run("ping", "-c", "3", "-i", "0.2", "-W", "5", "-s", "1400", ours)
        check(" 0% packet loss" in answered, answered)
    server.stop()


def refused(direction, family, mtu):
    ours, theirs = both(direction, [program("verbs_refused"), "--gid-index", FAMILIES[family], "--mtu", mtu], "--port",
                        listens=False)
    asked = (ours if direction == "initiates" else theirs).json()
    check(len(asked) == 8, f"{ours.story()}\n{theirs.story()}")


# --- loss ------------------------------------------------------------------------------------------------------------

LOSES = ("tc qdisc replace dev data root netem loss {0}%", "ip link set ifb0 mtu 4300 up",
         "tc qdisc replace dev ifb0 root netem loss {0}%",
         "tc qdisc add dev data handle ffff: ingress",
         "tc filter add dev data parent ffff: protocol all matchall action mirred egress redirect dev ifb0")
LOSES_NO_MORE = ("tc qdisc del dev data root", "tc qdisc del dev data ingress", "tc qdisc del dev ifb0 root")
LOSSY = ["--sizes", "64,1000,4097,20000,20000"]


def netem(direction, family, mtu):
    """The guest loses 3 % of the packets in each direction."""
    guest().run("sh", "-ec", "\n".join(LOSES).format(3))
    try:
        verified(direction, family, mtu, *LOSSY, timeout="16")
        told = guest().run("tc", "-s", "qdisc", "show")
    finally:
        guest().run("sh", "-c", "\n".join((*LOSES_NO_MORE, "true")))
    lost = [int(number) for number in re.findall(r"netem.*?\(dropped (\d+)", told, re.S)]
    check(len(lost) == 2 and all(lost), f"netem lost nothing\n{told}")


def impaired(direction, family, mtu):
    verified(direction, family, mtu, *LOSSY, timeout="16", impair={"loss": 0.03, "seed": 5})


# --- programs of Debian ----------------------------------------------------------------------------------------------

def pingpong(service, direction, family):
    command = [f"ibv_{service}_pingpong", "-g", FAMILIES[family], "-c", "-n",
               "50"] + (["-m", "1024"] if service != "ud" else [])
    ours, theirs = both(direction, command)
    for one in (ours, theirs):
        check("invalid data" not in one.out() and "iters in" in one.out(), one.story())


def perftest(tool, direction, family, *options):
    ours, theirs = both(direction, [tool, "-F", "-x", FAMILIES[family], "-u", TIMEOUT, *options])
    client = ours if direction == "initiates" else theirs       # The server of a latency test prints no table.
    check(re.search(r"^ *\d+ +\d+ +[\d.]+", client.out(), re.M), client.story())


# --- rdma_cm ---------------------------------------------------------------------------------------------------------

# A server and a client, to which the server's address is appended. They compare their data, except for ucmatose, which
# does not check it.
CM_PROGRAMS = {
    "rping": (["rping", "-s", "-V", "-C", "20", "-S", "3000", "-a"], ["rping", "-c", "-V", "-C", "20", "-S", "3000",
                                                                      "-a"]),
    "ucmatose": (["ucmatose", "-C", "10", "-S", "3000", "-b"], ["ucmatose", "-C", "10", "-S", "3000", "-s"]),
    "udaddy": (["udaddy", "-C", "10", "-S", "800", "-b"], ["udaddy", "-C", "10", "-S", "800", "-s"]),
    "rstream": (["rstream", "-S", "3000", "-C", "20", "-I", "20", "-T", "v", "-b"],
                ["rstream", "-S", "3000", "-C", "20", "-I", "20", "-T", "v", "-s"]),
}


def rdma_cm(name, direction, family, **changes):
    """Runs a program of rdmacm-utils on both sides. The client is on rove's side if it `initiates`."""
    machine, (ours, theirs) = guest(), ADDRESSES[family]
    server_command, client_command = CM_PROGRAMS[name]
    if direction == "initiates":
        server = machine.process([*server_command, theirs])
        machine.run("sh", "-c", "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done")
        client = rove([*client_command, theirs], **changes)
    else:
        server = rove([*server_command, ours], **changes)
        wait_ready(server)
        client = machine.process([*client_command, ours])
    try:
        client.succeed(60)
        server.succeed(STOPPED)
    except Failure as failure:
        first = str(failure).splitlines()[0]
        raise Failure(f"{first}\n--- server\n{server.story()}\n--- client\n{client.story()}") from None


def rejected(direction, family):
    """No program listens. The client is rejected and does not wait."""
    ours, theirs = ADDRESSES[family]
    if direction == "initiates":
        client = rove(["rping", "-c", "-C", "1", "-p", "7999", "-a", theirs])
    else:
        wait_ready(rove(["rping", "-s", "-a", ours]))
        client = guest().process(["rping", "-c", "-C", "1", "-p", "7999", "-a", ours])
    check(client.wait(20) != 0 and "RDMA_CM_EVENT_REJECTED, error 8" in client.out() + client.err(), client.story())


def beside():
    """Programs in the guest have a device of rove's on a mesh and that of Soft-RoCE. A listener at any address has
    peers over both. A client uses the device that reaches the address."""
    machine, (ours, theirs) = guest(), ADDRESSES["ipv4"]
    rping, under_rove = ["rping", "-V", "-p", "7180", "-C", "5"], [BUILD / "apps" / "rove-run", "--"]
    server = machine.process([*under_rove, *rping, "-P", "-s"])
    machine.run("sh", "-c", "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done")
    try:
        rove([*rping, "-c", "-a", theirs]).succeed(30)
        machine.process([*under_rove, *rping, "-c", "-a", "10.77.0.1"]).succeed(30)
        second = machine.process([*under_rove, *rping, "-s"])
        check(second.wait(20) != 0 and "rdma_bind_addr" in second.out(), second.story())
    except Failure as failure:
        raise Failure(f"{failure}\n--- server\n{server.story()}") from None
    server.stop()
    server = rove([*rping, "-s", "-a", ours])
    wait_ready(server)
    machine.process([*under_rove, *rping, "-c", "-a", ours]).succeed(30)
    server.succeed(STOPPED)


def hello():
    """rove asks the kernel whether it supports mp. The HELLO arrives, the kernel is unaffected, and the connection uses
    rc."""
    machine = guest()
    # A HELLO has opcode 0xFF in the BTH, the first byte after the UDP header.
    dump = machine.process(["timeout", "20", "tcpdump", "-i", "data", "-c", "1", "-n",
                            "udp dst port 4791 and udp[8] = 0xff"])
    dump.wait_for(lambda: "listening on" in dump.out(), 20, "its start")
    verified("initiates", "ipv4", "1024", "--sizes", "1,5000")
    dump.succeed(20)
    check("10.0.0.1" in dump.out(), dump.story())
    verified("responds", "ipv6", "1024", "--sizes", "1,5000")


def vlan():
    """rove in the guest shares the kernel's VLAN interface. rove on this side tags its frames itself."""
    machine, port = guest(), free_port(guest().netns)
    machine.run("sh", "-ec", "ip link add link data name data.100 type vlan id 100\n"
                "ip address add 10.7.0.2/24 dev data.100\nip link set data.100 up")
    try:
        tagged = config()
        tagged["device"][0] |= {"vlan": 100, "addresses": ["10.7.0.1/24"]}
        command = [program("verbs_check"), "--device", "rove0", "--gid-index", "1", "--mtu", "1024", "--rounds", "1",
                   "--depth", "4", "--timeout", TIMEOUT, "--sizes", "0,64,4097", "--port", port]
        server = machine.process([ROVE_RUN, "--interface", "data.100", "--", *command])
        client = Process([*command, GUEST], tagged, CLIENT_CORE, machine.netns)
        client.succeed(60)
        server.succeed(STOPPED)
        check(client.json() and len(client.json()) == len(server.json()), f"{client.story()}\n{server.story()}")
    finally:
        machine.run("ip", "link", "del", "data.100")


def kernel_log():
    """Checks that the kernel has logged no error after all other tests."""
    log = guest().run("dmesg")
    bad = [line for line in log.splitlines()
           if re.search(r"BUG|WARNING|Oops|Call Trace|lockup|rcu.*stall|general protection", line)]
    check("rdma_rxe" in log and not bad, "\n".join(bad or log.splitlines()[-20:]))


SIZES = ["--sizes", "0,1,7,64,1000,4097,30000"]
VERBS = {"send": "send,send_imm", "write": "write,write_imm", "read": "read", "atomic": "faa,cas"}
BOOTED = 160        # seconds, because the first test that runs boots the guest

once("guest/boot", boots, timeout=240)
once("guest/ping", ping, timeout=BOOTED)
for family in FAMILIES:
    for at, direction in enumerate(DIRECTIONS):
        # Each verb runs in each direction over each address family, and every MTU with each of them.
        mtu, other = ("1024", "4096") if (family == "ipv4") == (at == 0) else ("4096", "1024")
        for verb, verbs in VERBS.items():
            once(f"guest/rc/{verb}/{family}/{direction}", verified, direction, family, mtu, "--verbs", verbs, *SIZES,
                 timeout=BOOTED)
        once(f"guest/uc/{family}/{direction}", verified, direction, family, other, "--transport", "uc", "--verbs",
             "send,send_imm,write,write_imm",
             "--lossy", "--sizes", "1,1000,4097", timeout=BOOTED)
        once(f"guest/ud/{family}/{direction}", verified, direction, family, mtu, "--transport", "ud", "--verbs",
             "send,send_imm", "--lossy", "--sizes",
             f"0,1,64,{mtu}", timeout=BOOTED)
for at, direction in enumerate(DIRECTIONS):
    family, other = ("ipv4", "ipv6") if at == 0 else ("ipv6", "ipv4")
    once(f"guest/rc/rnr/{direction}", verified, direction, family, "1024", "--late", "--verbs",
         "send,send_imm,write_imm", "--sizes", "1,1000,4097",
         timeout=BOOTED)
    once(f"guest/rc/refused/{direction}", refused, direction, other, "1024", timeout=BOOTED)
    once(f"guest/loss/netem/{direction}", netem, direction, family, "1024", timeout=BOOTED)
    once(f"guest/loss/impair/{direction}", impaired, direction, other, "4096", timeout=BOOTED)
once("guest/rc/both-at-once", verified, "initiates", "ipv4", "1024", "--both", "--qps", "2", "--sizes", "1,1000,20000",
     timeout=BOOTED)
once("guest/rc/events-srq", verified, "responds", "ipv6", "4096", "--events", "--srq", "--qps", "2", "--verbs",
     "send,write_imm", "--sizes", "1,1000,4097",
     timeout=BOOTED)
once("guest/rc/inline-sge", verified, "initiates", "ipv6", "1024", "--inline", "64", "--sge", "3", "--sizes",
     "1,64,5000", timeout=BOOTED)
once("guest/hello", hello, timeout=BOOTED)
for at, service in enumerate(("rc", "uc", "ud", "srq")):
    once(f"guest/pingpong/{service}", pingpong, service, DIRECTIONS[at % 2], tuple(FAMILIES)[at // 2], timeout=BOOTED)
# ib_send_lat -e is left out. It has two kinds of completions, whose events use one channel, and perftest takes the next
# event for the send's. If the ACK arrives after the answer, it sleeps forever (linux-rdma/perftest, pull request 127).
for at, (tool, options) in enumerate((("ib_write_bw", "-s 65536 -n 50 -m 4096"),
                                      ("ib_read_bw", "-s 65536 -n 50 -m 1024"), ("ib_send_bw", "-s 16384 -n 50 -q 4"),
                                      ("ib_write_lat", "-n 100"), ("ib_send_lat", "-n 100"),
                                      ("ib_atomic_lat", "-n 50"))):
    once(f"guest/perftest/{tool}", perftest, tool, DIRECTIONS[at % 2], tuple(FAMILIES)[at // 2 % 2], *options.split(),
         timeout=BOOTED)
for family in FAMILIES:
    for direction in DIRECTIONS:
        for name in CM_PROGRAMS:
            once(f"guest/rdma_cm/{name}/{family}/{direction}", rdma_cm, name, direction, family, timeout=BOOTED)
        once(f"guest/rdma_cm/rejected/{family}/{direction}", rejected, direction, family, timeout=BOOTED)
for direction in DIRECTIONS:
    once(f"guest/rdma_cm/loss/{direction}", lambda direction=direction: rdma_cm("rping", direction, "ipv4",
                                                                                impair={"loss": 0.03, "seed": 7}),
         timeout=BOOTED)
once("guest/rdma_cm/beside", beside, timeout=BOOTED)
once("guest/interface/vlan", vlan, timeout=BOOTED)
once("guest/kernel-log", kernel_log, timeout=BOOTED)
