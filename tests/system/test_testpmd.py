# SPDX-License-Identifier: Apache-2.0
"""rove-testpmd: each mode with verification, options, the prompt through a pseudo-terminal, and every way to end."""
import itertools
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import time

import harness
from harness import (BUILD, CLIENT_CORE, ROOT, SCRATCH, SERVER_CORE, STOPPED, Process, Skip, TwoNamespaces, check, free_port, memif_pair, once,
                     shipped, telemetry, test, unique, write_toml)

TESTPMD = BUILD / "apps" / "rove-testpmd"


class Pair:
    """A target, and the arguments of an initiator for it."""

    def __init__(self, configs=None, target_options=(), netns=(None, None), host="127.0.0.1"):
        self.configs = [write_toml(config) for config in configs or memif_pair()]
        self.port = free_port(netns[0])
        self.netns, self.host = netns, host
        self.target = Process([TESTPMD, "--", "--config", self.configs[0], "--tcp-port", self.port, *target_options], core=SERVER_CORE,
                              netns=netns[0])
        self.target.wait_listening(self.port)

    def arguments(self, *options):
        return [TESTPMD, "--", "--config", self.configs[1], "--tcp-port", self.port, "--peer", self.host, *options]

    def initiator(self, *options):
        return Process(self.arguments(*options), core=CLIENT_CORE, netns=self.netns[1])

    def end(self):
        """The target ends by SIGTERM, in peace, and leaves nothing behind."""
        self.target.child.send_signal(signal.SIGTERM)
        self.target.succeed(STOPPED)
        clean(self.target)
        self.no_sockets()

    def no_sockets(self):
        for config in self.configs:
            for socket in re.findall("socket=([^,]+)", config.read_text()):
                check(socket not in pathlib.Path("/proc/net/unix").read_text() and not pathlib.Path(socket).exists(), f"{socket} is left behind")


def clean(process):
    check("FAIL" not in process.out() and "rror:" not in process.err(), process.story())
    leaves_nothing(process)


def leaves_nothing(process):
    check(not pathlib.Path(f"/var/run/dpdk/rove-{process.pid}").exists(), "EAL's directory is left behind")
    leftovers = [file for place in ("/dev/hugepages", "/dev/shm") for file in pathlib.Path(place).glob(f"*rove-{process.pid}*")]
    check(not leftovers, f"{leftovers} are left behind")


def result(path):
    (line,) = pathlib.Path(path).read_text().splitlines()
    return balanced(json.loads(line))


def balanced(said):
    """sent = acknowledged + lost + in flight, of packets and of requests; each is counted by itself."""
    packets = said["packets"]
    check(packets["sent"] == packets["acknowledged"] + packets["lost"] + packets["in_flight"], str(said))
    if requests := said.get("requests"):
        check(requests["submitted"] == requests["completed"] + requests["failed"] + requests["under_way"] > 0, str(said))
    if said["retransmissions"]["packets"]:
        check(sum(said["retransmissions"][cause] for cause in ("nack", "rnr", "inferred", "early", "timeout")), f"no cause: {said}")
    return said


def verified(mode, *options, count=400, pair=None):
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = pair or Pair(target_options=["--json", target_out])
    run = pair.initiator("--mode", mode, "--verify", "--count", count, "--json", out, *options).succeed(20)
    clean(run)
    pair.end()
    said = result(out)
    check((said["errors"], said["messages"], said["verified"]) == (0, count, "every byte"), str(said))
    check(said["requests"] == {"submitted": count, "completed": count, "failed": 0, "under_way": 0} and said["packets"]["in_flight"] == 0, str(said))
    check(0 < said["latency_us"]["p50"] <= said["latency_us"]["p99"] <= said["latency_us"]["most"], str(said))
    check(said["ports"]["rove0"]["share"] == 1 and said["ports"]["rove0"]["tx_frames"] > 0, str(said))
    return said, target_out


for name in ("write", "read", "send"):
    test(f"testpmd/verify/{name}", verified, name, "--size", "20000", "--qps", "3", "--batch", "4", quick=True)
test("testpmd/verify/atomic", verified, "atomic", "--qps", "2")


def gid_index():
    """IPv6 at both ends by --gid-index; at one end only, both say what is wrong."""
    pair = Pair(target_options=["--gid-index", "2"])
    pair.initiator("--gid-index", "2", "--mode", "write", "--verify", "--count", "50").succeed(20)
    run = pair.initiator("--mode", "write", "--count", "50")
    check(run.wait(20) == 1 and "--gid-index: IPv4 at one end, IPv6 at the other" in run.err(), run.story())
    pair.initiator("--gid-index", "2", "--mode", "read", "--count", "50").succeed(20)


once("testpmd/gid-index", gid_index)


def impaired():
    """Over config/impaired-*.toml's paths but the dead one, in mp: what is lost is sent again, and is counted by cause."""
    configs = memif_pair()
    for config, name in zip(configs, ("impaired-a", "impaired-b")):
        config["device"][0]["impair"] = shipped(name)["device"][0]["impair"]
        config["device"][0]["impair"]["path"] = [path for path in config["device"][0]["impair"]["path"] if "down" not in path]
    target_out = SCRATCH / f"{unique()}.json"
    said, _ = verified("write", count=200, pair=Pair(configs, ["--json", target_out]))
    resent = said["retransmissions"]
    check(resent["nack"] + resent["inferred"] + resent["early"] + resent["timeout"] > 0, str(said))
    degrees = result(target_out)["out_of_order_degree"]
    check(sum(count for degree, count in degrees.items() if degree != "0") > 0, str(degrees))


test("testpmd/impaired", impaired, modes=("mp",))


def causes(mode):
    """Packets that are lost are sent again; the result says why, and in rc mode each of them has one reason."""
    target_out = SCRATCH / f"{unique()}.json"
    said, _ = verified(mode, "--size", "20000", count=200, pair=Pair(memif_pair(impair={"loss": 0.02}), ["--json", target_out]))
    resent = [end["retransmissions"] for end in (said, result(target_out))]
    for one in resent:
        check(harness.mode == "mp" or one["packets"] == sum(one[cause] for cause in ("nack", "rnr", "inferred", "early", "timeout")), str(one))
    check(sum(one["packets"] for one in resent) > 0 and sum(one["nack"] + one["inferred"] for one in resent) > 0, str(resent))


for name in ("send", "read"):
    test(f"testpmd/causes/{name}", causes, name)


def options():
    """Rate, duration, statistics, priority, two runs against one target, and a capture that tshark reads."""
    from test_dissector import dissect
    pair = Pair()
    capture, out = SCRATCH / f"{unique()}.pcapng", SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "write", "--rate", "0.2", "--duration", "2.2", "--size", "4096", "--stats-period", "1", "--priority", "5",
                         "--mtu", "1024", "--json", out, "--depth", "32").succeed(20)
    said = result(out)
    check(2 < said["seconds"] < 4 and 0.05 < said["goodput_gbps"] < 0.21, str(said))
    check(run.out().count("tx_frames_per_s") == 2 and said["depth"] == 32, run.story())
    check(said["packets_per_s"] > 4 * said["messages_per_s"], f"--mtu: {said}")
    run = pair.initiator("--mode", "send", "--count", "20", "--size", "1000", "--pcap", capture).succeed(20)
    pair.end()
    try:
        packets = dissect(capture)
    except Skip:
        return
    text = json.dumps(packets)
    check("rove.hello" in text and text.count('"mp SEND Only') == 0 and "rove.mpaeth.aack" in text, f"{len(packets)} packets")
    sends = [packet for packet in packets if packet.get("rove", {}).get("rove.opcode") == "0xc4"]
    check(len({packet["rove"]["rove.psn"] for packet in sends}) == 20, f"{len(sends)} SENDs captured")


test("testpmd/options", options, modes=("mp",))


def path_table():
    """--stats-period has a line for each path of a port, those that lose first, and not too many of them; in rc mode none."""
    pair = Pair(memif_pair(impair={"loss": 0.05}))
    run = pair.initiator("--mode", "write", "--duration", "1.5", "--stats-period", "1", "--size", "8192", "--qps", "16").succeed(20)
    pair.end()
    head, *lines = (run.out().partition("by path, from rove0\n")[2].partition("impaired paths to rove0\n")[0] or "none").splitlines()
    if harness.mode == "rc":
        check(head == "none", run.story())
        return
    names, rows = head.split(), [re.fullmatch(r"  (\d+|others \(\d+\)) +(.*)", line) for line in lines]
    check(len(rows) == 9 and all(rows), run.story())
    *paths, others = [dict(zip(names, row[2].split())) for row in rows]
    check(all(49152 <= int(row[1]) for row in rows[:-1]) and rows[-1][1].startswith("others"), run.story())
    lost = [int(path["lost"]) for path in paths]
    check(lost == sorted(lost, reverse=True) and lost[0] > 0 and paths[0]["state"] in ("lossy", "dead"), run.story())
    check(0 < sum(int(path["packets"]) for path in (*paths, others)) <= 16 * 256, run.story())


test("testpmd/path-table", path_table)


def refreshed_table():
    """On a terminal --stats-period draws its table over the one before."""
    pair, clear = Pair(), "\x1b[2J\x1b[H"
    screen = Terminal(pair.arguments("--mode", "write", "--rate", "0.1", "--size", "4096", "--stats-period", "1"), clear)
    try:
        table = screen.until(clear)
        check(all(word in table for word in ("ports, the last 1.0 s", "rove0", "tx_frames_per_s", "since the start", "p99.99")), table)
        screen.send("\x03")     # a signal: the terminal is as it was
        check((status := screen.wait()) == 0, f"Ctrl-C: status {status}")
        pair.end()
    finally:
        screen.close()


once("testpmd/refreshed-table", refreshed_table)


def priority():
    """--priority is the service level of the QPs of both ends: the worker's ring that they wait in, and on a VLAN the PCP of all their frames."""
    from test_dissector import dissect
    configs = memif_pair()
    for config in configs:
        config["device"][0]["vlan"] = 100
    pair, captures = Pair(configs), {}
    for level, ring in ((5, 0), (1, 2)):
        captures[level] = SCRATCH / f"{unique()}.pcapng"
        prompt = Terminal(pair.arguments("--mode", "write", "--priority", level, "--pcap", captures[level], "-i", "--auto-start", "--size", "4096",
                                         "--rate", "0.005"))
        try:
            wait_until(lambda: prompt.json("show worker")["worker0"]["rx_packets"] > 10, 10, "traffic")
            (here,), (qpn,) = prompt.json("show qp").values(), telemetry(pair.target.pid, "/rove/qps")
            there = telemetry(pair.target.pid, f"/rove/qp,{qpn}")
            check((here["priority"], there["priority"]) == (ring, ring), f"--priority {level}: {here} {there}")
            check(re.search(r"errors +0\n", text := prompt.say("stop")), text)
            prompt.send("quit\n")
            check((status := prompt.wait()) == 0, f"quit: status {status}")
        finally:
            prompt.close()
    pair.end()
    for level, capture in captures.items():
        seen = {(packet["eth"]["eth.dst"], packet["vlan"]["vlan.priority"]) for packet in dissect(capture) if "udp" in packet}
        check(len(seen) == 2 and {pcp for _, pcp in seen} == {str(level)}, f"--priority {level}: {seen}")


test("testpmd/priority", priority)


def live_interface():
    """As hardware.md has it: scripts/prepare-af-xdp of a kernel interface, config/af_xdp-nic.toml on it, and what the script says to undo it."""
    with TwoNamespaces(1500) as namespaces:
        state = lambda name: [(name, key, Process(["cat", f"/sys/class/net/data/{key}"], netns=name).succeed(5).out().strip())
                              for key in ("mtu", "napi_defer_hard_irqs", "gro_flush_timeout")]
        before = [state(name) for name in namespaces.names]
        prepared = [Process([ROOT / "scripts" / "prepare-af-xdp", "data"], netns=name).succeed(10).out() for name in namespaces.names]
        check(all("data is ready: iface=data,start_queue=0,queue_count=1" in text for text in prepared), str(prepared))
        configs = [shipped("af_xdp-nic"), shipped("af_xdp-nic")]
        for end, config in enumerate(configs, start=1):
            (device,) = config["device"]
            device["port"] = device["port"].replace("iface=eth1", "iface=data")
            device["addresses"] = [f"192.168.10.{end}/24"]
        verified("write", "--size", "20000", pair=Pair(configs, netns=namespaces.names, host="192.0.2.1"))
        for name, text in zip(namespaces.names, prepared):
            Process(["sh", "-ec", text.partition("To undo:\n")[2]], netns=name).succeed(5)
        check(before == [state(name) for name in namespaces.names], f"not undone: {before}")


once("testpmd/live-interface", live_interface)


def refused(arguments, status, *words):
    run = Process([TESTPMD, *arguments])
    check(run.wait(20) == status, run.story())
    lines = [line for line in run.err().splitlines() if all(word in line for word in words)]
    check(len(lines) == 1, f"not one line with {words}\n{run.story()}")


def wrong_options():
    config = write_toml(memif_pair()[0])
    write = ["--", "--config", config, "--mode", "write", "--peer", "127.0.0.1"]
    for option, value in (("--size", "0"), ("--qps", "0"), ("--qps", "1025"), ("--depth", "0"), ("--batch", "17"), ("--mtu", "1500"),
                          ("--priority", "8"), ("--rate", "0"), ("--rate", "nan"), ("--duration", "-1"), ("--duration", "nan"),
                          ("--count", "0"), ("--count", "-5"), ("--stats-period", "0"),
                          ("--tcp-port", "70000"), ("--gid-index", "-1"), ("--nonsense", "1"), ("--cmdline-file", "/nonexistent")):
        refused([*write, option, value], 2, option.strip("-"))
    for option in ("--json", "--pcap", "--cmdline-file", "--priority-mix"):
        refused([*write, option, ""], 2, f"{option}: is empty")
        refused([*write, f"{option}=", "--verify"], 2, f"{option}: is empty")
    for option in ("--config", "--mode", "--peer", "--size", "--rate", "--tent"):
        refused(["--", option, ""], 2, option)
    refused([*write, "--size", "1000000", "--depth", "1000"], 2, "512 MiB")
    refused(["--", "--config", config, "--mode", "fly"], 2, "--mode", "fly")
    spray = ["--", "--config", config, "--mode", "spray", "--peer", "127.0.0.1"]
    for option, value in (("--threads", "0"), ("--threads", "65"), ("--slice-size", "1"), ("--read-share", "2"), ("--read-share", "nan"), ("--tent", "/nonexistent"),
                          ("--priority-mix", "urgent:1"), ("--priority-mix", "high"), ("--priority-mix", "high:"), ("--priority-mix", "low:-1"),
                          ("--priority-mix", "high:0"), ("--priority-mix", "high:1,"), ("--priority-mix", "high:1,,low:1"),
                          ("--priority-mix", "high:1,low:2,high:0"),
                          ("--priority-mix", ",high:1"), ("--qps", "2"), ("--priority", "5")):
        refused([*spray, option, value], 2, option)
    of_spray = (("--threads", "2"), ("--slice-size", "65536"), ("--read-share", "1"), ("--priority-mix", "low:1"))
    for option, value in (*of_spray, ("--tent", config)):
        refused([*write, option, value], 2, f"{option}: not of --mode write")
    for option, *value in (*of_spray, ("--size", "8"), ("--qps", "2"), ("--depth", "2"), ("--batch", "2"), ("--mtu", "1024"), ("--duration", "1"),
                           ("--count", "1"), ("--rate", "1"), ("--priority", "1"), ("--verify",), ("--auto-start",)):
        refused(["--", "--config", config, option, *value], 2, f"{option}: not of --mode target")
    refused(["--", "--config", config, "--mode", "write"], 2, "--peer")
    refused(["--", "--config", config, "--peer", "here"], 2, "--peer")
    refused(["--", "--config", "/nonexistent.toml"], 2, "/nonexistent.toml")
    if not pathlib.Path("/etc/rove/rove.toml").exists():
        refused(["--"], 2, "no --config, and neither ./rove.toml")
    default = SCRATCH / "rove.toml"  # where a Process runs
    config.rename(default)
    refused(["--", "--gid-index", "200"], 1, "--gid-index")
    default.rename(config)
    refused(["--no-such-eal-option", "--", "--config", config], 1, "no-such-eal-option", "EAL did not start")
    refused(["nonsense", "--", "--config", config], 1, "'nonsense' is no option of DPDK's EAL")
    refused(["--", "--config", config, "--gid-index", "200"], 1, "--gid-index")
    refused(["--log-level=lib.eal:debug", "--", "--config", config, "--gid-index", "200"], 1, "EAL: Detected NUMA nodes")
    refused(["--", "--config", config, "--json", "/nonexistent/x"], 1, "--json")
    refused([*write[:-1], "no such host", "--count", "1"], 1, "peer no such host")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(["--", "--config", config, "--tcp-port", taken.getsockname()[1]], 1, f"TCP port {taken.getsockname()[1]}")
    refused(["--", "--config", config, "--pcap", "/nonexistent/x"], 1, "--pcap")
    refused(["--", "--config", config, "--pcap=/nonexistent/x="], 1, "--pcap")  # not empty
    bad = SCRATCH / f"{unique()}.toml"
    bad.write_text('[[device]]\nport = "net_null0"\naddresses = ["10.0.0.1/24"]\nmtu = 7\n')
    refused(["--", "--config", bad], 1, "device[0].mtu", f"{bad}:4")
    for wrong, word in (("[policy", ""), ("\nnonsense = 1", "nonsense"), ("\ntransports.rdma.workers.block_size = 1", "block_size"),
                        ('[[policy]]\nname = "a"\nsegment_type = "memory"\ntransports = ["rdma"]\ndevices = ["rove1"]', 'got "rove1", allowed rove0')):
        tent = SCRATCH / f"{unique()}.toml"
        tent.write_text(wrong)
        for arguments in (spray, ["--", "--config", config]):
            refused([*arguments, "--tent", tent], 1, f"--tent: {tent}:{1 + wrong.count(chr(10))}", word)
    help = Process([TESTPMD, "--help"]).succeed(10).out()
    check(all(word in help for word in ("--verify", "--stats-period", "--cmdline-file", "EAL")), help)
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "system").glob("test_*.py"))
    untested = {option for option in re.findall("--[a-z][a-z-]+", help) if f'"{option}"' not in tests}
    check(not untested, f"no test uses {untested}")


once("testpmd/wrong-options", wrong_options, quick=True)


class Terminal:
    """rove-testpmd on a pseudo-terminal, mostly with a prompt; `first` is what it shows then."""

    def __init__(self, arguments, first="rove> "):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.sched_setaffinity(0, {CLIENT_CORE})
            os.execv(arguments[0], [str(argument) for argument in arguments])
        self.seen, self.said = "", []
        self.until(first)

    def until(self, what, timeout=20):
        """Reads to the first `what` behind what was read before, and returns the text before it."""
        deadline = time.monotonic() + timeout
        while what not in self.seen:
            left = deadline - time.monotonic()
            check(left > 0 and select.select([self.fd], [], [], max(left, 0))[0], f"no '{what}' in:\n{self.seen}")
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                check(False, f"ended before '{what}':\n{self.seen}")
        before, _, self.seen = self.seen.partition(what)
        return before

    def send(self, text):
        os.write(self.fd, text.encode())

    def say(self, line):
        """What a command prints."""
        self.send(line + "\n")
        self.said.append(line)
        answer = self.until("rove> ")
        return re.sub(r"\x1b\[[0-9]*[A-Za-z]", "", answer).replace("\r", "").partition("\n")[2]

    def json(self, line):
        text = self.say(line + " --json")
        return json.loads(text)

    def unsaid(self):
        """The commands of `help` that nobody has said; of `#` any word, of a show with and without --json."""
        forms = []
        for syntax in re.findall(r"^  (\S.*?)  ", self.say("help"), re.M):
            words = [["<.*>"] if word.startswith("<") else word.split("#") for word in syntax.split()]
            for choice in itertools.product(*words):
                form = " ".join(choice)
                forms += [form, form + " --json"] if form.startswith("show") else [form]
        return [form for form in forms if not any(re.fullmatch(form.replace("<.*>", r"[^ -]\S*"), line) for line in self.said)]

    def wait(self, timeout=STOPPED):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                if select.select([self.fd], [], [], 0.01)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        check(False, "does not end")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.fd)
            self.pid = 0


def wait_until(condition, timeout, what):
    deadline = time.monotonic() + timeout
    while not condition():
        check(time.monotonic() < deadline, f"no {what}")
        time.sleep(0.05)


def every_command():
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    prompt = Terminal(pair.arguments("--mode", "write", "--verify", "--interactive", "--size", "8192", "--json", out))
    try:
        text = prompt.say("help")
        check(all(word in text for word in ("show paths <number>", "port stop#start", "dump <number>")), text)
        prompt.send("sho\tpo\tst\t\n")
        check("rove0" in prompt.until("rove> "), "completion")
        prompt.send("show ?")
        text = prompt.until("rove> ")
        check("neighbours" in text, f"'?' says {text}")
        prompt.say("")
        for wrong, possible in (("nonsense", "show port info"), ("show nonsense", "show worker"), ("port", "port stop#start <number>"),
                                ("show qp 99999", "none: nothing is running"), ("dump x", "dump <number>"), ("dump 1", "no QP"), ("show paths 1", "no QP"),
                                ("set impair rove9 all loss=1", "rove0"), ("set impair rove0 7 loss=1", "allowed all"),
                                ("set impair rove0 all loss=2", "allowed"), ("set transport mode tcp", "auto, rc, mp"),
                                ("set transport mtu 7", "4096"), ("set transport timeout 32", "31"), ("set transport retries 8", "7"),
                                ("port stop 1", "possible: 0"), ("port start 1", "possible: 0"), ("stop", "nothing is running")):
            check(possible in (text := prompt.say(wrong)), f"{wrong}: {text}")
        for thing in ("timeout 17", "retries 6"):  # after 4 s a QP gives up: longer than a path is down here
            check(prompt.say(f"set transport {thing}") == "", thing)
        for mode in ("rc", "mp"):
            check(prompt.say(f"set transport mode {mode}") == "", "set transport")
            check(prompt.say("start") == "", "start")
            check("stop ends it" in prompt.say("start"), "a second start")
            wait_until(lambda: prompt.json("show worker")["worker0"]["tx_packets"] > 50, 10, "traffic")
            (qpn, qp), = prompt.json("show qp").items()
            check(qp["state"] == "RTS" and qp["mode"] == mode, str(qp))
            check(prompt.json(f"show qp {qpn}")["mode"] == mode, "show qp")
            check("remote_gid" in prompt.say(f"show qp {qpn}") and qpn in prompt.say("show qp"), "show qp as a table")
            paths = prompt.json(f"show paths {qpn}")
            check(set(paths) == ({"requests", "responses"} if mode == "mp" else {"requests"}), str(paths))
            check("una_psn" in prompt.say(f"dump {qpn}"), "dump")
            if mode == "mp":
                requests = lambda: prompt.json(f"show paths {qpn}")["requests"].values()
                wait_until(lambda: any(path["state"] == "good" for path in requests()), 5, "a good path")
                for harm, state, column in (("mark=1", "congested", "marked"), ("mark=0,loss=0.3", "lossy", "lost")):
                    telemetry(pair.target.pid, f"/rove/impair,rove0,all,{harm}")
                    wait_until(lambda: any(path["state"] == state and path["packets"] and path[column] for path in requests()), 5, f"path {state}")
                telemetry(pair.target.pid, "/rove/impair,rove0,all,loss=0")
                check(prompt.json("show reorder")["worker0"]["marked_acks"] > 0, "marked_acks")
                check("new_packets" in prompt.say("show reorder") and prompt.json("show reorder")["worker0"]["new_packets"] > 0, "show reorder")
            else:
                (port, path), = paths["requests"].items()
                check(int(port) == prompt.json(f"show qp {qpn}")["udp_src"] and "on_their_way" in path, str(paths))
                state = lambda: prompt.json(f"show paths {qpn}")["requests"][port]["state"]
                wait_until(lambda: state() == "good", 5, "a good path")
                wait_until(lambda: prompt.json(f"show qp {qpn}")["retries_left"] == 6, 5, "retries that were set")
                begun = time.monotonic()
                telemetry(pair.target.pid, "/rove/impair,rove0,all,down=true")
                wait_until(lambda: state() == "dead", 5, "a dead path")
                check(time.monotonic() - begun > 0.3, "an earlier timeout than was set")
                telemetry(pair.target.pid, "/rove/impair,rove0,all,down=false")
                wait_until(lambda: state() != "dead", 5, "life on the path")
                check(re.search(rf"^ +{port}$", text := prompt.say(f"show paths {qpn}"), re.M), text)
            prompt.say("clear stats")
            wait_until(lambda: prompt.json("show worker")["worker0"]["tx_packets"] > 0, 5, "traffic after clear stats")
            check("goodput_gbps" in (text := prompt.say("stop")) and re.search(r"errors +0\n", text), text)
            said = balanced(json.loads(out.read_text().splitlines()[-1]))
            check(said["messages"] < said["requests"]["completed"] and said["packets"]["in_flight"] == 0, f"cleared on the way: {said}")
            prompt.say("clear stats")
            workers, ports = prompt.json("show worker")["worker0"], prompt.json("show port stats")["rove0"]
            check(workers["tx_packets"] == 0 and "lcore" in workers and ports["tx_frames"] < 10, f"after clear stats: {workers} {ports}")
        for thing in ("port info", "port stats", "port xstats", "port impair", "qp", "reorder", "worker", "drops", "neighbours"):
            check(prompt.say(f"show {thing}") != "" and isinstance(prompt.json(f"show {thing}"), dict), thing)
        check("10.0.0.1" in prompt.say("show neighbours"), "neighbours")
        for thing in ("info", "stats", "xstats"):
            check(set(prompt.json(f"show port {thing} all")) == {"rove0"} and prompt.say(f"show port {thing} all") != "", thing)
        check(not re.search("show port [a-z]+ all", text := prompt.say("help")), text)
        check(prompt.say("set impair rove0 all loss=0.25,delay_us=7") == "", "set impair")
        impaired = prompt.json("show port impair")["rove0"]["device"]
        check((impaired["loss"], impaired["delay_us"]) == ("0.25", "7"), str(impaired))
        for thing in ("mtu 1024", "timeout 12", "retries 3"):
            check(prompt.say(f"set transport {thing}") == "", thing)
        unsaid = [form for form in prompt.unsaid() if not form.startswith("show tent")]     # those are testpmd/spray/prompt's
        check(unsaid == ["quit"], f"never said: {unsaid}")
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        pair.end()
    finally:
        prompt.close()


once("testpmd/prompt", every_command, timeout=60)


def prompt_of_target():
    """A target has the same prompt; its peers start and stop."""
    configs, port = [write_toml(config) for config in memif_pair()], free_port()
    prompt = Terminal([TESTPMD, "--", "--config", configs[0], "--tcp-port", port, "-i"])
    run = lambda *mode: Process([TESTPMD, "--", "--config", configs[1], "--tcp-port", port, "--peer", "127.0.0.1", *mode], core=SERVER_CORE)
    try:
        check("its peers start" in prompt.say("start") and "nothing is running" in prompt.say("stop"), "a target without a peer")
        check("an initiator chooses" in prompt.say("set transport mtu 1024"), "set transport mtu")
        sender = run("--mode", "send", "--size", "4096", "--rate", "0.1")
        wait_until(lambda: [qp["rq_consumed"] > 10 for qp in prompt.json("show qp").values()] == [True], 10, "messages")
        check("the peer stops" in prompt.say("stop"), "stop")
        (qpn,) = prompt.json("show qp")
        check("una_psn" in prompt.say(f"dump {qpn}") and prompt.json("show reorder")["worker0"]["degree_0"] > 10, "dump, show reorder")
        sender.child.send_signal(signal.SIGTERM)
        check(sender.wait(STOPPED) == 0, sender.story())
        prompt.until("goodput_gbps")
        sprayer = run("--mode", "spray")
        wait_until(lambda: "no engine" not in prompt.say("show tent devices"), 10, "engine")
        check(list(prompt.json("show tent devices")) == ["rove0"], "show tent devices")
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        check(sprayer.wait(STOPPED) == 1 and "the peer is gone" in sprayer.err(), sprayer.story())
    finally:
        prompt.close()


test("testpmd/prompt-of-target", prompt_of_target, modes=("mp",))


def port_stop():
    """The port stops for a while under load: the run goes on afterwards, nothing is wrong, and all packets are accounted for."""
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    prompt = Terminal(pair.arguments("--mode", "write", "--verify", "-i", "--size", "8192", "--json", out))
    try:
        prompt.say("set transport timeout 17")  # QPs wait for 4 s, not for 0.5 s, of which a busy machine takes its part
        check(prompt.say("start") == "", "start")
        sent = lambda: prompt.json("show worker")["worker0"]["rx_packets"]
        wait_until(lambda: sent() > 100, 10, "traffic")
        prompt.say("port stop 0")
        time.sleep(0.2)
        before = sent()
        time.sleep(0.2)
        check(sent() == before, "a stopped port receives")
        check(prompt.json("show port info")["rove0"]["ready"] == 0, "show port info of a stopped port")
        prompt.say("port start 0")
        wait_until(lambda: sent() > before + 100, 10, "traffic again")
        check(prompt.json("show port info")["rove0"]["ready"] == 1, "show port info of a started port")
        text = prompt.say("stop")
        check(re.search(r"errors +0\n", text) and "failure" not in text, text)
        said = result(out)
        check(said["packets"]["lost"] > 0 == said["packets"]["in_flight"] == said["requests"]["under_way"], str(said))
        prompt.send("\x03")
        check((status := prompt.wait()) == 0, f"Ctrl-C: status {status}")
        pair.end()
    finally:
        prompt.close()


test("testpmd/port-stop", port_stop)


def wait_for_traffic(process):
    """Until packets come to an initiator: its run is under way, and its target has taken it."""
    def packets():
        try:
            workers = telemetry(process.pid, "/rove/workers")
        except OSError:
            return False    # not yet there
        return workers is not None and workers["worker0"]["rx_packets"] > 50
    process.wait_for(packets, 10, "traffic")


def ends(how):
    """A signal in the middle of a run: it stops, settles with the target, and says what was done. What it sent has come to the target:
    messages, packets, and by the ports' own counters frames."""
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = Pair(target_options=["--json", target_out])
    run = pair.initiator("--mode", "send", "--verify", "--size", "20000", "--json", out)
    wait_for_traffic(run)
    run.child.send_signal(how)
    check(run.wait(STOPPED) == 0 and re.search(r"errors +0\n", run.out()), run.story())
    clean(run)
    pair.end()
    said, theirs = result(out), result(target_out)
    requests, packets = said["requests"], said["packets"]
    check(theirs["messages"] == requests["submitted"] == requests["completed"], f"{said}\n{theirs}")
    check(packets["acknowledged"] == 5 * requests["completed"] and packets["in_flight"] == 0, str(said))
    # Neighbours and HELLO take a few frames before the run or in it; so does an ACK that ends it.
    for sent, arrived in ((packets["sent"], said["ports"]["rove0"]["tx_frames"]),
                          (said["ports"]["rove0"]["tx_frames"], theirs["ports"]["rove0"]["rx_frames"])):
        check(abs(sent - arrived) <= 4, f"{said}\n{theirs}")


for name, how in (("ctrl-c", signal.SIGINT), ("sigterm", signal.SIGTERM)):
    test(f"testpmd/{name}", ends, how)


def peer_is_silent():
    """A target that stops answers nothing, and its TCP connection stands: the QP gives up, and what was in flight is said to be."""
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "write", "--json", out)
    wait_for_traffic(run)
    pair.target.child.send_signal(signal.SIGSTOP)
    check(run.wait(10) == 1 and "transport retry counter exceeded" in run.err(), run.story())
    pair.target.child.send_signal(signal.SIGCONT)
    leaves_nothing(run)
    said = result(out)
    check(said["packets"]["in_flight"] > 0 and said["requests"]["failed"] == 1 and said["retransmissions"]["timeout"] > 0, str(said))
    pair.initiator("--mode", "send", "--verify", "--count", "50").succeed(20)
    pair.end()


test("testpmd/peer-is-silent", peer_is_silent)


def target_is_told(how, *mode):
    """A signal to the target in the middle of a run: both ends end at once, and say what they have done so far."""
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = Pair(target_options=["--json", target_out])
    run = pair.initiator(*mode, "--json", out)
    wait_for_traffic(run)
    pair.target.child.send_signal(how)
    check(pair.target.wait(STOPPED) == 0 and "told to end" in pair.target.err(), pair.target.story())
    check(run.wait(STOPPED) == 1 and "the peer is gone" in run.err(), run.story())
    for process in (pair.target, run):
        leaves_nothing(process)
    pair.no_sockets()
    said, theirs = result(out), result(target_out)
    check(said["requests"]["completed"] > 0 and theirs["failure"].startswith("told to end"), f"{said}\n{theirs}")


test("testpmd/target-is-told/ctrl-c", target_is_told, signal.SIGINT, "--mode", "read")
once("testpmd/target-is-told/sigterm", target_is_told, signal.SIGTERM, "--mode", "spray", "--read-share", "0.5")


def peer_dies():
    """kill -9 of the target: the initiator says so and ends; of an initiator: the target serves the next."""
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "send")
    wait_for_traffic(run)
    run.kill()
    pair.target.wait_for(lambda: "gone" in pair.target.err(), 10, "word of the peer's death")
    pair.initiator("--mode", "send", "--verify", "--count", "50").succeed(20)
    run = pair.initiator("--mode", "read", "--json", out)
    wait_for_traffic(run)
    pair.target.kill()
    check(run.wait(STOPPED + 3) == 1 and "gone" in run.err(), run.story())
    clean(run)
    pair.no_sockets()
    said = result(out)
    check(said["failure"] == "the peer is gone" and said["requests"]["completed"] > 0, str(said))


test("testpmd/peer-dies", peer_dies)


def hostile_peer():
    """What is not rove-testpmd, or asks for too much, is refused, and the target goes on."""
    import struct
    pair = Pair()
    head = lambda size, qps, rails=1, mode=1: struct.pack(">IHBBIIIIBB", 0x526F7654, 1, mode, 0, size, qps, 16, 4096, 0, rails)
    for hostile in (b"GET / HTTP/1.0\r\n\r\n" + bytes(64), head(1 << 31, 1), head(64, 100000), head(64, 1, 0), head(64, 1, 200),
                    head(64, 1, 1, 77), head(0xFFFFFFFF, 0xFFFFFFFF), head(64, 1) + bytes(28) + struct.pack(">II", 0xFFFFFFFF, 0),
                    head(64, 65, 0, 5), head(1 << 26, 64, 0, 5), head(64, 1, 0, 5) + bytes(8) + b"\xff" * 256 + b"nonsense" * 8):
        with socket.create_connection(("127.0.0.1", pair.port), 5) as peer:
            peer.sendall(hostile)
            peer.settimeout(8)
            try:
                while peer.recv(4096):
                    pass
            except ConnectionError:
                pass
    pair.initiator("--mode", "write", "--verify", "--count", "50").succeed(20)
    pair.end()


once("testpmd/hostile-peer", hostile_peer)


def command_file():
    """Commands of a file; the first that is wrong or fails is named, and ends the program and the run that was begun."""
    pair = Pair()
    commands = SCRATCH / f"{unique()}.cmds"
    commands.write_text("# first a look\nshow port info --json\n\nset transport mode rc\nstart   # now\n")
    run = pair.initiator("--mode", "read", "--verify", "--count", "50", "--cmdline-file", commands).succeed(20)
    check('"rove0":{' in run.out() and re.search(r"errors +0\n", run.out()), run.story())
    for wrong, why in (("nonsense # no", "not a command; possible:"), ("set impair rove9 all loss=1", "possible: rove0"), ("start", "it is running")):
        commands.write_text(f"start\n{wrong}\nshow port info --json\n")
        run = pair.initiator("--mode", "write", "--verify", "--cmdline-file", commands)
        check(run.wait(20) == 1, run.story())
        lines = [line for line in run.err().splitlines() if f"--cmdline-file: {commands}:2: '{wrong.partition('#')[0]}': " in line]
        check(len(lines) == 1 and why in lines[0], run.story())
        check('"rove0":{' not in run.out() and re.search(r"errors +0\n", run.out()), run.story())
    pair.end()


once("testpmd/cmdline-file", command_file)
