# SPDX-License-Identifier: Apache-2.0
"""The networks of bench/loss, and the programs that it compares on them. A network applies the faults of a Setting and
runs one contestant from core 1 to core 0; the result is a Run."""
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys

from programs import Failed, started, tail, tcp_listens, tcp_ports, wait_until

PATHS = 8
MTU = 4096              # the path MTU, bytes of payload in a packet
MESSAGE = 64 << 10      # bytes of a WRITE. With DEPTH, 16 MiB are in flight: 1 Gb/s for 134 ms
DEPTH = 256
STOP_S = 3              # the time to complete the last messages, after which a run is interrupted
DRAIN_S = 15            # rove-testpmd ends within 4 s of that; the rest is for a busy machine
TCP_STREAM = pathlib.Path(__file__).with_name("tcp_stream.py")


@dataclasses.dataclass(frozen=True)
class Setting:
    """The faults of a network, in both directions."""
    loss: float = 0.0           # the chance that a packet is lost, on each path
    rtt_ms: float = 0.0
    rate_gbps: float = 0.0      # the rate of all paths together; 0: the cores are the limit
    bad: tuple = ()             # (path, loss) of the paths with a loss of their own; 1 is a dead path
    paths: int = PATHS
    queue: str = "pfifo"        # the kind of queue in front of a path with a rate


@dataclasses.dataclass
class Run:
    gbps: float
    error: str = ""             # why the run has no goodput, or ended early
    sent: int = 0               # packets of rove's sender, and the ones of them that were repetitions
    repeated: int = 0
    causes: dict = dataclasses.field(default_factory=dict)


def loss_of(setting, path):
    return dict(setting.bad).get(path, setting.loss)


class Testpmd:
    """Runs rove-testpmd, which writes from one end to the other for some seconds."""

    def __init__(self, build, scratch):
        self.program, self.scratch = build / "apps" / "rove-testpmd", scratch
        self.numbers = itertools.count()

    def run(self, configs, seconds, spaces=(None, None), host="127.0.0.1"):
        """`configs` are the texts of both configurations, the target's first."""
        number, port = next(self.numbers), next(tcp_ports)
        files = [self.scratch / f"loss-{number}-{end}.toml" for end in "ab"]
        for file, text in zip(files, configs):
            file.write_text(text)
        result = self.scratch / f"loss-{number}.json"
        target, initiator = [[*(["ip", "netns", "exec", space] if space else []), self.program, "--", "--config", file,
                              "--tcp-port", port] for space, file in zip(spaces, files)]
        initiator += ["--peer", host, "--mode", "write", "--size", MESSAGE, "--depth", DEPTH, "--mtu", MTU,
                      "--duration", seconds, "--json", result]
        with started(target, 0) as t:
            wait_until(tcp_listens(t, port), t)
            with started(initiator, 1) as i:
                output = self.end(i, seconds)
        return self.read(result, output, i.returncode)

    @staticmethod
    def end(process, seconds):
        """Waits for the end of a run, and returns its output. It interrupts a run whose last messages take too long;
        rove-testpmd then reports the packets that were acknowledged."""
        for wait in (seconds + 2 + STOP_S, DRAIN_S):    # 2 s: rove's start
            try:
                return process.communicate(timeout=wait)[0]
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
        process.kill()
        return process.communicate()[0]

    @staticmethod
    def read(result, output, status):
        lines = result.read_text().splitlines() if result.exists() else []
        if not lines:
            return Run(0.0, tail(output) or f"rove-testpmd ended with {status}")
        said = json.loads(lines[-1])
        packets, again = said["packets"], said["retransmissions"]
        failed = said["requests"]["failed"]
        causes = {cause: again[cause] for cause in ("nack", "rnr", "inferred", "early", "timeout") if again[cause]}
        # Packets are counted rather than messages, because an interrupted run leaves messages incomplete.
        gbps = packets["acknowledged"] * MTU * 8 / 1e9 / said["seconds"] if said["seconds"] else 0.0
        return Run(0.0 if failed else gbps, f"{failed} requests failed" if failed else "", packets["sent"],
                   again["packets"], causes)


class Memory:
    """A memif or a mesh. Its paths are made by rove's fault injection: a packet takes path UDP source port modulo
    paths. A QP in rc mode has one path, which has the rate of all paths together unless a row has bad paths."""
    contestants = ("rc", "mp")
    names = itertools.count()

    def __init__(self, kind, testpmd):
        self.kind, self.testpmd = kind, testpmd

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def lacks(self, setting, contestant):
        """Returns the reason why this cannot run here, or an empty string."""
        return "" if setting.queue == "pfifo" else "impaired ports have one kind of queue"

    def run(self, contestant, setting, seconds, seed):
        name = f"rove-loss-{os.getpid()}-{next(self.names)}"
        folder = self.testpmd.scratch / name
        if self.kind == "mesh":
            folder.mkdir()
        ports = {"memif": [f"memif:@{name},role=server", f"memif:@{name}"], "mesh": [f"mesh:{folder}"] * 2}[self.kind]
        return self.testpmd.run([self.config(port, number, contestant, setting, seed)
                                 for number, port in enumerate(ports, 1)], seconds)

    @staticmethod
    def config(port, number, mode, setting, seed):
        paths = setting.paths if mode == "mp" or setting.bad else 1
        lines = ["[transport]", f'mode = "{mode}"', "[[device]]", f'port = "{port}"',
                 f'addresses = ["10.0.0.{number}/24"]', f"mtu = {MTU}",
                 "[device.impair]", f"paths = {paths}", f"seed = {seed * 100 + number}", f"loss = {setting.loss}",
                 f"delay_us = {round(setting.rtt_ms * 500)}", f"rate_mbps = {round(setting.rate_gbps * 1000 / paths)}"]
        for path, loss in setting.bad:
            lines += ["[[device.impair.path]]", f"index = {path}", "down = true" if loss == 1 else f"loss = {loss}"]
        return "\n".join(lines) + "\n"


class Routers:
    """Two hosts behind two routers, each in a network namespace. Eight veths join the routers, and ECMP by addresses
    and ports (fib_multipath_hash_policy 1) spreads flows over them. The kernel segments before the hosts' veths, so the
    routers see single packets. They lose packets at their ends of the eight veths: by netem, or without that module by
    a BPF program in tc's filter, which draws a random number for each packet as netem does."""
    contestants = ("interface rc", "interface mp", "udp rc", "udp mp", "TCP cubic", "TCP bbr")
    HOSTS = {"c": "10.250.1.2", "s": "10.250.2.2"}
    CONTROL = {"c": "10.250.0.1", "s": "10.250.0.2"}    # a veth of its own between the hosts, for rove-testpmd's TCP
    LINK_MTU = 4200
    BURST = 4 * 4250    # bytes that a link with a rate may send at once

    def __init__(self, testpmd):
        self.testpmd = testpmd
        self.spaces = {end: f"rove-loss-{end}-{os.getpid()}" for end in "cabs"}
        self.qdiscs = {}

    def __enter__(self):
        try:
            for space in self.spaces.values():
                quietly("ip", "netns", "add", space)
            self.build()
        except (subprocess.CalledProcessError, OSError) as error:
            self.__exit__()
            raise Failed(f"no namespaces or veths: {reason(error)}") from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in self.spaces.values():      # the veths go with them
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)

    def build(self):
        for space in self.spaces.values():
            quietly("ip", "-n", space, "link", "set", "lo", "up")
        self.link("c", "edge", self.HOSTS["c"] + "/24", "a", "edge", "10.250.1.1/24")
        self.link("s", "edge", self.HOSTS["s"] + "/24", "b", "edge", "10.250.2.1/24")
        self.link("c", "control", self.CONTROL["c"] + "/24", "s", "control", self.CONTROL["s"] + "/24")
        hops = {"a": [], "b": []}
        for path in range(PATHS):
            here, there = f"10.250.{10 + path}.1", f"10.250.{10 + path}.2"
            self.link("a", f"path{path}", here + "/30", "b", f"path{path}", there + "/30")
            hops["a"] += ["nexthop", "via", there, "dev", f"path{path}"]
            hops["b"] += ["nexthop", "via", here, "dev", f"path{path}"]
        for end, net in (("a", "10.250.2.0/24"), ("b", "10.250.1.0/24")):
            for key in ("ip_forward=1", "fib_multipath_hash_policy=1"):
                self.inside(end, "sysctl", "-qw", f"net.ipv4.{key}")
            quietly("ip", "-n", self.spaces[end], "route", "add", net, *hops[end])
        for end, net, router in (("c", "10.250.2.0/24", "10.250.1.1"), ("s", "10.250.1.0/24", "10.250.2.1")):
            quietly("ip", "-n", self.spaces[end], "route", "add", net, "via", router)
            self.inside(end, "ethtool", "-K", "edge", "tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation",
                        "off")
            # Room for 1 Gb/s over 100 ms, which the defaults of 4 and 6 MB do not have.
            for key in ("tcp_rmem", "tcp_wmem"):
                self.inside(end, "sysctl", "-qw", f"net.ipv4.{key}=4096 131072 67108864")

    def link(self, end, name, address, other, other_name, other_address):
        quietly("ip", "link", "add", name, "netns", self.spaces[end], "mtu", str(self.LINK_MTU), "type", "veth",
                "peer", "name", other_name, "netns", self.spaces[other], "mtu", str(self.LINK_MTU))
        for space, device, own in ((self.spaces[end], name, address), (self.spaces[other], other_name, other_address)):
            quietly("ip", "-n", space, "addr", "add", own, "dev", device)
            quietly("ip", "-n", space, "link", "set", device, "up")

    def inside(self, end, *command):
        quietly("ip", "netns", "exec", self.spaces[end], *command)

    def lacks(self, setting, contestant):
        needed = (["netem"] if setting.rtt_ms else []) + (["tbf", setting.queue] if setting.rate_gbps else [])
        for kind in needed:
            if not self.has_qdisc(kind):
                return f"this kernel has no sch_{kind}"
        if contestant.startswith("TCP") and self.congestion(contestant) not in self.available():
            return f"this kernel has no TCP {self.congestion(contestant)}"
        return ""

    @staticmethod
    def congestion(contestant):
        return contestant.removeprefix("TCP ")

    @staticmethod
    def available():
        subprocess.run(["modprobe", "-q", "tcp_bbr"], check=False, stderr=subprocess.DEVNULL)
        return pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()

    def has_qdisc(self, kind):
        if kind not in self.qdiscs:
            needs = {"netem": ["delay", "1ms"], "tbf": ["rate", "1gbit", "burst", "64k", "limit", "64k"]}
            added = subprocess.run(["tc", "-n", self.spaces["a"], "qdisc", "add", "dev", "lo", "root", kind,
                                    *needs.get(kind, [])], capture_output=True, check=False)
            self.qdiscs[kind] = added.returncode == 0
            if added.returncode == 0:
                quietly("tc", "-n", self.spaces["a"], "qdisc", "del", "dev", "lo", "root")
        return self.qdiscs[kind]

    def apply(self, setting):
        for end, path in itertools.product("ab", range(PATHS)):
            tc = ["tc", "-n", self.spaces[end]]
            device = ["dev", f"path{path}"]
            for old in (["root"], ["clsact"]):
                subprocess.run([*tc, "qdisc", "del", *device, *old], check=False, stderr=subprocess.DEVNULL)
            loss, parent = loss_of(setting, path), ["root"]
            netem = (["loss", f"{loss * 100}%"] if loss else []) + (["delay", f"{setting.rtt_ms / 2}ms"]
                                                                     if setting.rtt_ms else [])
            if netem and self.has_qdisc("netem"):
                quietly(*tc, "qdisc", "add", *device, "root", "handle", "1:", "netem", "limit", "100000", *netem)
                parent = ["parent", "1:1"]
            elif loss:
                quietly(*tc, "qdisc", "add", *device, "clsact")
                quietly(*tc, "filter", "add", *device, "egress", "bpf", "direct-action", "bytecode", dropping(loss))
            if setting.rate_gbps:
                rate = f"{round(setting.rate_gbps * 1000 / PATHS)}mbit"
                quietly(*tc, "qdisc", "add", *device, *parent, "handle", "2:", "tbf", "rate", rate, "burst",
                        str(self.BURST), "limit", str(1 << 20))
                limits = {"pfifo": ["limit", "64"], "fq_codel": ["limit", "1000", "ecn"]}
                quietly(*tc, "qdisc", "add", *device, "parent", "2:", setting.queue, *limits[setting.queue])

    def run(self, contestant, setting, seconds, seed):
        del seed    # the kernel's random numbers have none
        self.apply(setting)
        if contestant.startswith("TCP"):
            return self.tcp(self.congestion(contestant), seconds)
        port, mode = contestant.split()
        configs = [f'[transport]\nmode = "{mode}"\n[[device]]\nport = "{port}:'
                   f'{self.HOSTS[end] if port == "udp" else "edge"}"\n' for end in "sc"]
        return self.testpmd.run(configs, seconds, [self.spaces["s"], self.spaces["c"]], self.CONTROL["s"])

    def tcp(self, congestion, seconds):
        port = next(tcp_ports)
        command = [sys.executable, TCP_STREAM, "--address", self.HOSTS["s"], "--port", port, "--congestion", congestion,
                   "--seconds", seconds]
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(started(["ip", "netns", "exec", self.spaces["s"], *command, "--listen"], 0))
            wait_until(tcp_listens(server, port), server)
            stack.enter_context(started(["ip", "netns", "exec", self.spaces["c"], *command], 1))
            output = server.communicate(timeout=seconds + DRAIN_S)[0]
        if not output.startswith("tcp_stream "):
            return Run(0.0, tail(output))
        return Run(float(output.split()[1]))


def dropping(loss):
    """Returns a classic BPF program that drops a packet with this chance, in tc's notation. It loads a random word, and
    lets the packet pass if that is not below the threshold (-1: no decision)."""
    random_word, dropped, passed = 0xFFFFF000 + 56, 2, 0xFFFFFFFF
    threshold = round(loss * 2**32)
    if loss == 1:   # no threshold is above every word
        return f"1,6 0 0 {dropped}"
    return f"4,32 0 0 {random_word},53 1 0 {threshold},6 0 0 {dropped},6 0 0 {passed}"


def quietly(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def reason(error):
    return (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
