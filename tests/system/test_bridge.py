# SPDX-License-Identifier: Apache-2.0
"""Tests rove-bridge with two namespaces that a veth pair joins, a mesh in each, and a bridge between mesh and veth.
Needs root."""
import json
import signal
import subprocess

from harness import (BUILD, CLIENT_CORE, CORES, SCRATCH, SERVER_CORE, STOPPED, Link, Process, TwoNamespaces, check,
                     free_port, ip, once, program, run_pair, shipped, start_client, start_server, telemetry, test,
                     unique)
from test_mesh import mesh
from test_veth import configs
from testpmd import Terminal, leaves_nothing, wait_until

BRIDGE = BUILD / "apps" / "rove-bridge"
PORT = shipped("af_packet-a")["device"][0]["port"].replace("rove-veth-a", "data")
SIZES = "0,1,64,1000,4097,65537"


def addresses(host):
    return [f"10.0.0.{host}/24", f"fd00::{host}/64"]


def folder():
    path = SCRATCH / f"bridge-{unique()}"
    path.mkdir(mode=0o700)
    return path


def start_bridge(where, netns, *options, port=PORT):
    bridge = Process([BRIDGE, "--mesh", where, "--port", port, *options], netns=netns, core=set(CORES))
    bridge.wait_for(lambda: "bridge: uplink" in bridge.out(), 20, "its start")
    return bridge


def said(bridge, what="bridge"):
    return telemetry(bridge.pid, f"/rove/{what}")


def members(bridge):
    """Returns the bridge's members by name."""
    return {member["name"]: member for member in said(bridge, "members").values()}


class TwoSites(TwoNamespaces):
    """Two namespaces, each with a mesh and a bridge."""

    def __init__(self, *options, port=PORT):
        super().__init__(mtu=4300)
        self.options, self.port = options, port

    def __enter__(self):
        super().__enter__()
        self.folders = folder(), folder()
        self.bridges = [start_bridge(where, netns, *self.options, port=self.port)
                        for where, netns in zip(self.folders, self.names)]
        return self

    def member(self, site, host, **device):
        return mesh(self.folders[site], addresses=addresses(host), **device)

    def across(self):
        """Returns a link between a member of each mesh."""
        return Link([self.member(0, 11), self.member(1, 22)], self.names, "192.0.2.1")


def verify(link, *options):
    command = [program("verbs_check"), *options]
    return run_pair(link, command, command, "--port")


def across(options):
    with TwoSites() as sites:
        verify(sites.across(), "--rounds", 1, "--sizes", SIZES, *options)
        for bridge in sites.bridges:
            now = said(bridge)
            check(now["to_uplink"] > 100 and now["to_members"] > 100 and now["between_members"] == 0, str(now))
            check(now["drop_spoofed"] == now["drop_malformed"] == now["drop_member_full"] == 0, str(now))


test("bridge/across/ipv4", across, ["--both"], quick=True)
test("bridge/across/ipv6", across, ["--gid-index", "2"])


def plain_host():
    """Tests a member with a host that has a port of its own, and then two members of one mesh, whose traffic does not
    pass the bridge."""
    with TwoNamespaces(mtu=4300) as namespaces:
        where = folder()
        bridge = start_bridge(where, namespaces.names[0])
        (host,) = configs("af_packet")[1:]
        member = mesh(where, addresses=addresses(11))
        for gid in (1, 2):
            verify(Link([member, host], namespaces.names, "192.0.2.1"), "--gid-index", gid, "--rounds", 1, "--sizes",
                   "0,64,4097")
        answered = said(bridge, "neighbours")
        check(answered["solicits_answered"] > 0, str(answered))
        before = said(bridge)
        netns = namespaces.names[0]
        two = Link([member, mesh(where, addresses=addresses(12))], (netns, netns))
        verify(two, "--rounds", 1, "--sizes", "64,4097")
        after = said(bridge)
        # Members report their multicast groups to the bridge, which forwards those reports.
        check(after["to_uplink"] - before["to_uplink"] < 10 and after["between_members"] == 0, f"{before} {after}")


test("bridge/plain-host", plain_host)


def vlan_and_mtu():
    """The bridges add and remove the tag, and members learn the MTU of the uplink."""
    with TwoSites("--vlan", "7", "--mtu", "1024") as sites:
        shown = Process(["ibv_devinfo", "-v"], sites.member(0, 11), netns=sites.names[0]).succeed(20)
        check("active_mtu:\t\t1024" in shown.out(), shown.story())
        verify(sites.across(), "--mtu", 1024, "--rounds", 1, "--sizes", "64,4097", "--verbs", "write,send")
        link = sites.across()
        command = [program("verbs_check"), "--mtu", 4096, "--timeout", 8, "--retry", 1, "--sizes", "4096", "--verbs",
                   "write", "--rounds", 1]
        port = free_port(link.netns[0])
        server = start_server(link, command, port, "--port")
        client = start_client(link, command, port, "--port")
        check(client.wait(30) != 0, client.story())
        server.stop()
        check(sum(said(bridge)["drop_too_long"] for bridge in sites.bridges) > 0, "nothing was too long")


once("bridge/vlan-and-mtu", vlan_and_mtu)


def shown(netns):
    done = subprocess.run(["ip", "-n", netns, "-j", "-d", "link", "show", "data"], capture_output=True, check=True)
    return json.loads(done.stdout)[0]


def pings(netns, *to):
    for address in to:
        done = subprocess.run(["ip", "netns", "exec", netns, "ping", "-q", "-c", "2", "-i", "0.1", "-W", "2", address],
                              capture_output=True, text=True, timeout=20)
        check(" 0% packet loss" in done.stdout, f"{address}: {done.stdout}")


def beside_the_kernel():
    """The uplink is an interface of the kernel, which keeps its address. The other host runs the kernel's stack and
    rove on the same interface. A killed bridge leaves no setting behind."""
    interface = {"device": [{"port": "interface:data"}]}
    with TwoNamespaces(mtu=4300) as namespaces:
        here, there = namespaces.names
        for host, netns in enumerate(namespaces.names, 1):
            for address in addresses(host):
                ip("address", "add", address, "dev", "data", *["nodad"] * (":" in address), netns=netns)
        where = folder()
        bridge = start_bridge(where, here, port="interface:data")
        link = Link([mesh(where, addresses=addresses(11)), interface], namespaces.names, "192.0.2.1")
        for gid in ("1", "2"):
            command = [program("verbs_check"), "--rounds", "1", "--both", "--sizes", SIZES, "--gid-index"]
            run_pair(link, [*command, gid], [*command, gid], "--port")
        run_pair(link, [program("verbs_multicast")], [program("verbs_multicast")], "--port")
        server = start_server(link, ["ib_send_lat", "-F"], free_port("any"))
        wait_until(lambda: "10.0.0.11" in members(bridge), 20, "member")
        pings(there, "10.0.0.11", "fd00::11", "10.0.0.1", "fd00::1")
        now = said(bridge)
        check(now["to_uplink"] > 100 and now["to_members"] > 100 and now["drop_malformed"] == 0, str(now))
        other = Process(["ibv_devinfo"], interface, netns=here)
        check(other.wait(20) != 0 and f"in use by process {bridge.pid} (rove-bridge)" in other.err(), other.story())
        check(shown(here)["allmulti"] == 1, str(shown(here)))
        bridge.kill(signal.SIGKILL)
        check(shown(here)["allmulti"] == shown(here)["promiscuity"] == 0, str(shown(here)))
        server.stop()
        pings(there, "10.0.0.1")
        for options, word in ((["--mac", "02:00:00:00:00:09"], "MAC"), (["--vlan", "7"], "VLAN")):
            refused_one = Process([BRIDGE, "--mesh", where, "--port", "interface:data", *options], netns=here)
            check(refused_one.wait(20) == 1 and word in refused_one.err(), refused_one.story())


once("bridge/interface", beside_the_kernel)


def interface_across():
    with TwoSites(port="interface:data") as sites:
        verify(sites.across(), "--rounds", 1, "--both", "--sizes", SIZES)


once("bridge/interface/across", interface_across)


def multicast():
    with TwoSites() as sites:
        command = [program("verbs_multicast")]
        run_pair(sites.across(), command, command, "--port")


once("bridge/multicast", multicast)


def killed():
    """The bridges are killed and replaced during a transfer, which continues. A member is killed, and another takes its
    address."""
    with TwoSites() as sites:
        link, port = sites.across(), free_port("any")
        command = [program("verbs_check"), "--timeout", 17, "--sizes", "100000", "--rounds", 20]
        server = start_server(link, command, port, "--port")
        client = start_client(link, command, port, "--port")
        client.wait_for(client.json, 20, "a verb that is done")
        for site in (0, 1):
            sites.bridges[site].kill(signal.SIGKILL)
            sites.bridges[site] = start_bridge(sites.folders[site], sites.names[site])
        client.succeed(50)
        server.succeed(STOPPED)
        port = free_port("any")
        server = start_server(link, ["ib_send_lat", "-F"], port)
        bridge = sites.bridges[0]
        wait_until(lambda: "10.0.0.11" in members(bridge), 20, "member")
        server.kill(signal.SIGKILL)
        wait_until(lambda: said(bridge)["members"] == [], 20, "end of the member")
        verify(link, "--rounds", 1, "--sizes", "64", "--verbs", "write")


once("bridge/killed", killed)


def stopped_member():
    """A stopped member does not delay the others."""
    with TwoSites() as sites:
        stopped = Process(["ib_send_lat", "-F", "-p", free_port("any")], sites.member(0, 13), netns=sites.names[0])
        wait_until(lambda: "10.0.0.13" in members(sites.bridges[0]), 20, "member")
        stopped.child.send_signal(signal.SIGSTOP)
        flood = ["ping", "-f", "-q", "-l", "800", "-c", "800", "-W", "1", "10.0.0.13"]
        subprocess.run(["ip", "-n", sites.names[1], "addr", "add", "10.0.0.99/24", "dev", "data"], check=True)
        subprocess.run(["ip", "netns", "exec", sites.names[1], *flood], capture_output=True, timeout=30)
        verify(sites.across(), "--rounds", 1, "--sizes", "64,4097", "--verbs", "write,send")
        member = members(sites.bridges[0])["10.0.0.13"]
        check(member["tx_drops"] > 0, str(member))
        stopped.child.send_signal(signal.SIGCONT)
        ping = ["ping", "-q", "-c", "3", "-i", "0.2", "-W", "2", "10.0.0.13"]
        done = subprocess.run(["ip", "netns", "exec", sites.names[1], *ping], capture_output=True, text=True,
                              timeout=20)
        check(" 0% packet loss" in done.stdout, done.stdout)


once("bridge/stopped-member", stopped_member)


def idle():
    """An idle bridge uses no CPU time if its uplink has a doorbell. An uplink without one is polled from time to
    time."""
    with TwoNamespaces(mtu=4300) as namespaces:
        name = unique()
        for port, most in ((f"memif:@{name},role=server", 0.01), (PORT, 0.1)):
            bridge = start_bridge(folder(), namespaces.names[0], port=port)
            bridge.sleeps(most)
            bridge.stop()


once("bridge/idle", idle)


def refused():
    with TwoNamespaces(mtu=4300) as namespaces:
        where = folder()
        bridge = start_bridge(where, namespaces.names[0])
        for options, status, *words in (
            (["--mesh", where, "--port", PORT], 1, "has a bridge already", str(bridge.pid)),
            (["--mesh", "/dev/null", "--port", PORT], 1, "/dev/null", "is not a directory"),
            (["--port", "net_af_packet0,iface=nowhere"], 1, "nowhere"),
            (["--port", "mesh"], 2, "Name another port"),
            (["--port", "udp:10.0.0.1"], 2, "members have their own"),
            (["--port", PORT, "--mtu", "1000"], 2, "--mtu"),
            (["--port", PORT, "--vlan", "4095"], 2, "--vlan"),
            (["--port", PORT, "--gateway", "10.0.0.1"], 2, "10.0.0.254/24"),
            (["--port", PORT, "--mac", "ff:ff:ff:ff:ff:ff"], 2, "unicast"),
            ([], 2, "--port")):
            other = Process([BRIDGE, *options], netns=namespaces.names[0])
            check(other.wait(20) == status, other.story())
            lines = [line for line in other.err().splitlines() if line.startswith("rove-bridge: ")]
            check(len(lines) == 1 and all(word in lines[0] for word in words), other.story())
        bridge.child.send_signal(signal.SIGTERM)
        bridge.succeed(STOPPED)
        leaves_nothing(bridge)
        check(list(where.iterdir()) == [], "left behind")


once("bridge/refused", refused)


def prompt():
    """Enters every command on a bridge over memif, without any namespace."""
    where = folder()
    port = f"memif:@{unique()},role=server"
    terminal = Terminal([BRIDGE, "--mesh", where, "--port", port, "--interactive"])
    try:
        server = start_server(Link([mesh(where, addresses=addresses(11))]), ["ib_send_lat", "-F"], free_port())
        wait_until(lambda: "10.0.0.11" in terminal.json("show members"), 20, "member")
        check("fd00::11" in terminal.say("show members"), "its addresses")
        check("uplink" in terminal.say("show port stats all") and "mesh" in terminal.say("show port stats"), "stats")
        for command in ("show port info", "show port info all", "show drops", "show neighbours"):
            terminal.say(command)
            check(isinstance(terminal.json(command), dict), command)
        terminal.json("show port stats"), terminal.json("show port stats all")
        check("to_uplink" in terminal.json("show drops"), "show drops")
        terminal.say("clear stats")
        check("show members" in terminal.say("show nonsense"), "a wrong command does not list the possible ones")
        server.stop()
        check(terminal.unsaid() == ["quit"], str(terminal.unsaid()))
        terminal.send("quit\n")
        check(terminal.wait() == 0, "its end")
    finally:
        terminal.close()


once("bridge/prompt", prompt)
