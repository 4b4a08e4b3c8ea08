# SPDX-License-Identifier: Apache-2.0
"""Tests messages of the link layer other than RoCE: a gateway that is replaced by one with another MAC during
transfers, and a bridge that forwards multicast only to members that have reported themselves. Needs root."""
import os
import subprocess
import time

from harness import (STOPPED, Failure, Link, Skip, check, device_arguments, device_string, free_port, ip, once, program,
                     shipped, start_client, start_server, stop_all, telemetry, test, unique)
from test_tap import Bridge

GATE_MACS = ("02:00:00:00:0a:01", "02:00:00:00:0a:02")


def batch(netns, lines):
    done = subprocess.run(["ip", "-n", netns, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True)
    check(done.returncode == 0, f"{lines}: {done.stderr.strip()}")


class Router:
    """Three namespaces: rove's processes in `a` (10.0.1.1) and `b` (10.0.2.1), and a router between them, which `a`
    reaches through a bridge. The router has two interfaces on that bridge, and one at a time is the gateway 10.0.1.254.
    Neither resolves the address of `a` nor announces its own."""

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("needs root for network namespaces")
        self.names = [f"rove-{end}-{unique()}" for end in ("a", "b", "router")]
        a, b, router = self.names
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", "bridge", "type", "bridge", netns=router)
        except Failure as failure:
            self.__exit__()
            raise Skip(str(failure)) from None
        ip("link", "add", "ctl", "type", "veth", "peer", "name", "ctl", "netns", b, netns=a)
        ip("link", "add", "data", "type", "veth", "peer", "name", "to-a", "netns", router, netns=a)
        ip("link", "add", "data", "type", "veth", "peer", "name", "to-b", "netns", router, netns=b)
        for name, address in ((a, "192.0.2.1/24"), (b, "192.0.2.2/24")):
            ip("addr", "add", address, "dev", "ctl", netns=name)
            for device in ("lo", "ctl", "data"):
                ip("link", "set", device, "up", netns=name)
        for number, mac in enumerate(GATE_MACS):
            ip("link", "add", f"gate{number}", "address", mac, "type", "veth", "peer", "name", f"port{number}",
               netns=router)
        for device in ("bridge", "to-a", "to-b", "port0", "port1", "gate0"):
            if device.startswith("port") or device == "to-a":
                ip("link", "set", device, "master", "bridge", netns=router)
            ip("link", "set", device, "up", netns=router)
        self.mac = subprocess.run(["ip", "-n", a, "-br", "link", "show", "dev", "data"], capture_output=True,
                                  text=True).stdout.split()[2]
        ip("addr", "add", "10.0.2.254/24", "dev", "to-b", netns=router)
        ip("addr", "add", "10.0.1.254/24", "dev", "gate0", netns=router)
        ip("neigh", "replace", "10.0.1.1", "lladdr", self.mac, "nud", "permanent", "dev", "gate0", netns=router)
        subprocess.run([
            "ip", "netns", "exec", router, "sh", "-c",
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore"], check=True)
        return self

    def __exit__(self, *_):
        stop_all()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def link(self):
        configs = []
        for number, end in enumerate("ab", 1):
            config = shipped(f"af_packet-{end}")
            (device,) = config["device"]
            driver, arguments = device_arguments(device["port"])
            device.update(port=device_string(driver, {**arguments, "iface": "data"}), addresses=[f"10.0.{number}.1/24"],
                          gateway_ipv4=f"10.0.{number}.254")
            configs.append(config)
        return Link(configs, self.names[:2], "192.0.2.1")

    def replace(self, old, new):
        batch(self.names[2], [
            f"link set gate{old} down", f"addr flush dev gate{old}", f"link set gate{new} up",
            f"neigh replace 10.0.1.1 lladdr {self.mac} nud permanent dev gate{new}",
            f"addr add 10.0.1.254/24 dev gate{new}"])


def moved(process):
    """Returns how many neighbours of the process have moved, or 0 if the process has ended."""
    try:
        return telemetry(process.pid, "/rove/neighbours")["rove0"]["moved"]
    except OSError:
        return 0


def replaced():
    with Router() as router:
        link, port = router.link(), free_port(router.names[0])
        command = [
            program("verbs_check"), "--mtu", "1024", "--timeout", "17", "--sizes", "100000", "--rounds", "300",
            "--verbs", "write,read,send"]
        server = start_server(link, command, port, "--port")
        client = start_client(link, command, port, "--port")
        client.wait_for(lambda: telemetry(server.pid, "/rove/workers")["worker0"]["rx_packets"] > 1000, 60, "data")
        for old, new in ((0, 1), (1, 0)):
            before = moved(server)
            router.replace(old, new)
            server.wait_for(lambda: moved(server) > before, 20, "the other gateway")
            time.sleep(0.2)
        timeouts = [telemetry(process.pid, "/rove/workers")["worker0"]["timeouts"] for process in (server, client)]
        print(f"{timeouts} timeouts for two replacements")
        client.succeed(60)
        server.succeed(STOPPED)
        # A timeout is half a second. The gateway was found before the first, or after one of them.
        check(max(timeouts) <= 2, f"{timeouts} timeouts")


def snooped(version):
    with Bridge() as bridge:
        # The bridge acts as a querier. After one response interval, here a second, it assumes that it knows all
        # members.
        for option in (("mcast_snooping", "1"), ("mcast_igmp_version", str(version)), ("mcast_query_response_interval",
                                                                                       "100"), ("mcast_querier", "1")):
            ip("link", "set", "bridge", "type", "bridge", *option, netns=bridge.netns)
        link, port = bridge.link(), free_port(bridge.netns)
        command = [program("verbs_multicast")]
        server = start_server(link, command, port, "--port")
        bridge.join(server, 1)
        ip("link", "set", "dev", "tap1", "type", "bridge_slave", "mcast_flood", "off", netns=bridge.netns)
        time.sleep(2)
        client = start_client(link, command, port, "--port")
        bridge.join(client, 2)
        # Without reports the bridge would not forward the datagrams to the members.
        client.succeed(40)
        server.succeed(STOPPED)


once("neighbours/gateway-replaced", replaced, alone=True)
for version in (2, 3):
    once(f"neighbours/snooped/igmpv{version}", snooped, version)
