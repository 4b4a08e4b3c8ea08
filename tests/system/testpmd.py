# SPDX-License-Identifier: Apache-2.0
"""Starts rove-testpmd for tests: a target and initiators, on a pseudo-terminal or not. Checks their output, and that
they leave nothing behind."""
import itertools
import json
import os
import pathlib
import pty
import re
import select
import signal
import time

from harness import (BUILD, CLIENT_CORE, SCRATCH, SERVER_CORE, STOPPED, Process, check, free_port, memif_pair,
                     telemetry, unique, write_toml)

TESTPMD = BUILD / "apps" / "rove-testpmd"


class Pair:
    """A target, and the arguments of an initiator for it."""

    def __init__(self, configs=None, target_options=(), netns=(None, None), host="127.0.0.1"):
        self.configs = [write_toml(config) for config in configs or memif_pair()]
        self.port = free_port(netns[0])
        self.netns, self.host = netns, host
        # The engines of two hosts need a secret.
        self.env = {"ROVE_TENT_SECRET": "a secret of the system tests"} if netns[0] else {}
        self.target = Process([TESTPMD, "--", "--config", self.configs[0], "--tcp-port", self.port, *target_options],
                              core=SERVER_CORE, netns=netns[0], env=self.env)
        self.target.wait_listening(self.port)

    def arguments(self, *options):
        return [TESTPMD, "--", "--config", self.configs[1], "--tcp-port", self.port, "--peer", self.host, *options]

    def initiator(self, *options):
        return Process(self.arguments(*options), core=CLIENT_CORE, netns=self.netns[1],
                       env=self.env)

    def end(self):
        """Terminates the target by SIGTERM. It must succeed and leave nothing behind."""
        self.target.child.send_signal(signal.SIGTERM)
        self.target.succeed(STOPPED)
        clean(self.target)
        self.no_sockets()

    def no_sockets(self):
        for config in self.configs:
            for socket in re.findall('memif:@?([^,"]+)', config.read_text()):
                check(socket not in pathlib.Path("/proc/net/unix").read_text() and not pathlib.Path(socket).exists(),
                      f"{socket} is left behind")


def clean(process):
    check("FAIL" not in process.out() and "rror:" not in process.err(), process.story())
    leaves_nothing(process)


def leaves_nothing(process):
    check(not pathlib.Path(f"/var/run/dpdk/rove-{process.pid}").exists(), "EAL's directory is left behind")
    leftovers = [
        file for place in ("/dev/hugepages", "/dev/shm") for file in pathlib.Path(place).glob(f"*rove-{process.pid}*")]
    check(not leftovers, f"{leftovers} are left behind")


def result(path):
    (line,) = pathlib.Path(path).read_text().splitlines()
    return balanced(json.loads(line))


def balanced(said):
    """Checks that sent = acknowledged + lost + in flight, for packets and for requests. Each is counted separately."""
    packets = said["packets"]
    check(packets["sent"] == packets["acknowledged"] + packets["lost"] + packets["in_flight"], str(said))
    if requests := said.get("requests"):
        check(requests["submitted"] == requests["completed"] + requests["failed"] + requests["under_way"] > 0,
              str(said))
    if said["retransmissions"]["packets"]:
        check(sum(said["retransmissions"][cause]
                  for cause in ("nack", "rnr", "inferred", "early", "timeout")), f"no cause: {said}")
    return said


def verified(mode, *options, count=400, pair=None):
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = pair or Pair(target_options=["--json", target_out])
    run = pair.initiator("--mode", mode, "--verify", "--count", count, "--json", out, *options).succeed(20)
    clean(run)
    pair.end()
    said = result(out)
    check((said["errors"], said["messages"], said["verified"]) == (0, count, "every byte"), str(said))
    check(
        said["requests"] == {"submitted": count, "completed": count, "failed": 0, "under_way": 0} and
        said["packets"]["in_flight"] == 0, str(said))
    check(0 < said["latency_us"]["p50"] <= said["latency_us"]["p99"] <= said["latency_us"]["most"], str(said))
    check(said["ports"]["rove0"]["share"] == 1 and said["ports"]["rove0"]["tx_frames"] > 0, str(said))
    return said, target_out


class Terminal:
    """rove-testpmd on a pseudo-terminal, mostly with a prompt. `first` is its first output to wait for."""

    def __init__(self, arguments, first="rove> "):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.sched_setaffinity(0, {CLIENT_CORE})
            # Otherwise the engine's messages about failed rails would be mixed into the output of commands.
            os.execve(arguments[0], [str(argument) for argument in arguments], {**os.environ, "MC_LOG_LEVEL": "error"})
        self.seen, self.said = "", []
        self.until(first)

    def until(self, what, timeout=20):
        """Reads up to the next `what` and returns the text before it."""
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
        """Enters a command and returns its output."""
        self.send(line + "\n")
        self.said.append(line)
        answer = self.until("rove> ")
        return re.sub(r"\x1b\[[0-9]*[A-Za-z]", "", answer).replace("\r", "").partition("\n")[2]

    def json(self, line):
        text = self.say(line + " --json")
        return json.loads(text)

    def unsaid(self):
        """Returns the commands of `help` that were not entered. For alternatives separated by `#` it needs each word,
        and for a show the form with and without --json."""
        forms = []
        for syntax in re.findall(r"^  (\S.*?)  ", self.say("help"), re.M):
            words = [["<.*>"] if word.startswith("<") else word.split("#") for word in syntax.split()]
            for choice in itertools.product(*words):
                form = " ".join(choice)
                forms += [form, form + " --json"] if form.startswith("show") else [form]
        return [
            form for form in forms
            if not any(re.fullmatch(form.replace("<.*>", r"[^ -]\S*"), line) for line in self.said)]

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


def wait_for_traffic(process):
    """Waits until packets arrive at an initiator: its run has begun, and its target has accepted it."""
    def packets():
        try:
            workers = telemetry(process.pid, "/rove/workers")
        except OSError:
            return False    # The telemetry socket does not exist yet.
        return workers is not None and workers["worker0"]["rx_packets"] > 50
    process.wait_for(packets, 20, "traffic")
