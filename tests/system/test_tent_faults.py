# SPDX-License-Identifier: Apache-2.0
"""Tests the TENT engine under every kind of fault. A seed determines the schedules of faults, and verified traffic to
two peers runs meanwhile. ROVE_SCHEDULES sets the number of schedules, and ROVE_SEED the first seed."""
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

from harness import (CLIENT_CORE, SERVER_CORE, Failure, Process, Skip, check, ip, once, program, stop_all, telemetry,
                     unique)

SCHEDULES = int(os.environ.get("ROVE_SCHEDULES", 3))
FIRST_SEED = int(os.environ.get("ROVE_SEED", time.time_ns() % 1_000_000))
LENGTH = 1.2            # seconds in which faults begin
RECOVERS = 15           # seconds within which each peer is served again
SIZE, DEPTH, REGIONS = 1 << 16, 4, 64
SECRET = "a secret of these schedules"


class World:
    """A namespace for the initiator and one for each target. A control network joins each target with the initiator.
    Two meshes, which are folders of files, join all."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Skip("needs root for network namespaces")
        self.names = [f"rove-{who}-{unique()}" for who in "iab"]

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="rove-faults-")
        for name in self.names:
            try:
                ip("netns", "add", name)
            except Failure as failure:
                raise Skip(str(failure)) from None
            ip("link", "set", "lo", "up", netns=name)
        self.hosts = []
        for index, name in enumerate(self.names[1:]):
            link = f"ctl{index}"
            ip("link", "add", link, "type", "veth", "peer", "name", "ctl", "netns", name, netns=self.names[0])
            ip("addr", "add", f"192.0.2.{4 * index + 1}/30", "dev", link, netns=self.names[0])
            ip("addr", "add", f"192.0.2.{4 * index + 2}/30", "dev", "ctl", netns=name)
            ip("link", "set", link, "up", netns=self.names[0])
            ip("link", "set", "ctl", "up", netns=name)
            ip("route", "add", "default", "via", f"192.0.2.{4 * index + 1}", netns=name)
        return self

    def __exit__(self, *_):
        stop_all()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.folder.cleanup()

    def config(self, number):
        """Returns a configuration with two rails, each on a mesh of its own."""
        return {"device": [{"port": f"mesh:{self.folder.name}/{rail}", "addresses": [f"10.{rail}.0.{number}/24"]}
                           for rail in (0, 1)]}

    def control_network(self, target, state):
        ip("link", "set", f"ctl{target}", state, netns=self.names[0])


class Etcd:
    """The store of the names, in the initiator's namespace."""

    def __init__(self, world):
        self.world = world
        self.directory = pathlib.Path(world.folder.name) / "etcd"
        self.start()

    def start(self):
        self.server = Process(
            ["etcd", "--data-dir", self.directory, "--listen-client-urls", "http://0.0.0.0:2379",
             "--advertise-client-urls", "http://127.0.0.1:2379", "--unsafe-no-fsync", "--log-level", "error"],
            core=SERVER_CORE, netns=self.world.names[0])
        self.server.wait_listening(2379)

    def settings(self, host, name):
        return (f"metadata_type=etcd", f"metadata_servers={host}:2379", f"local_segment_name={name}")


class Target:
    def __init__(self, world, index, options, etcd):
        self.world, self.index, self.options = world, index, options
        self.host = f"192.0.2.{4 * index + 2}"
        settings = [f"rpc_server_hostname={self.host}", "rpc_server_port=7000"]
        self.name = f"{self.host}:7000"
        if etcd:
            self.name = f"target-{index}"
            settings += etcd.settings(f"192.0.2.{4 * index + 1}", self.name)
        self.settings = settings
        self.start()

    def start(self):
        # The memory is zero at the start, because filling it could overwrite data that the initiator writes.
        command = [program("tent_check"), "target", "--bytes", SIZE * DEPTH * REGIONS, "--seed", 0, *self.options,
                   "--set", *self.settings]
        self.process = Process(command, self.world.config(2 + self.index), SERVER_CORE,
                               self.world.names[1 + self.index], {"ROVE_TENT_SECRET": SECRET})

    def ready(self):
        self.process.wait_for(self.process.json, 20, "its memory")

    def impair(self, rail, changes):
        self.ready()    # The target may have just been started.
        answer = telemetry(self.process.pid, f"/rove/impair,rove{rail},all,{changes}")
        check(isinstance(answer, dict), str(answer))


class Schedule:
    """The times of the faults, and the targets whose requests may fail because of them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.events = []            # (seconds, order, what, function)
        self.suffers = set()        # targets that may lose requests
        self.silences = []          # (target, seconds) for each rail that becomes silent
        self.returns = []           # seconds from a rail's return until slices use it
        self.order = itertools.count()

    def at(self, when, what, function):
        self.events.append((when, next(self.order), what, function))

    def draw(self, world, targets, etcd, own):
        kinds = [self.kill, self.stop, self.silent_rail, self.lossy_rail, self.power_off, self.no_control]
        kinds += [self.register_again] if own else []
        for target in targets:
            when = 0.2
            for kind in self.random.sample(kinds, self.random.choice([0, 1, 1, 2])):
                when = kind(world, target, when + self.random.uniform(0, LENGTH / 2))
        if etcd:
            # An engine does not start without its store. Its start takes a moment, or longer where cores are few.
            begun = [when + 1 for when, _, what, _ in self.events if what.endswith((": begins", ": power on"))]
            ends = max([self.random.uniform(0, LENGTH), *begun])

            def end():
                for target in targets:
                    target.ready()
                etcd.server.kill()

            self.at(ends, "etcd ends", end)
            self.at(max(LENGTH, ends) + 0.2, "etcd begins", etcd.start)
        return sorted(self.events)

    # Each of the following methods returns the time at which its fault is over.

    def kill(self, _, target, when):
        self.suffers.add(target.index)
        self.at(when, f"{target.index}: kill -9", lambda: target.process.kill())
        over = when + self.random.uniform(0, 0.3)
        self.at(over, f"{target.index}: begins", target.start)
        return over + 0.5

    def stop(self, _, target, when):
        self.suffers.add(target.index)
        over = when + self.random.uniform(0.02, 0.8)
        self.at(when, f"{target.index}: SIGSTOP", lambda: target.process.child.send_signal(signal.SIGSTOP))
        self.at(over, f"{target.index}: SIGCONT", lambda: target.process.child.send_signal(signal.SIGCONT))
        return over

    def silent_rail(self, _, target, when):
        rail, over = self.random.randrange(2), when + self.random.uniform(0.1, 0.6)

        def silence():
            self.silences.append((target.index, time.monotonic()))
            target.impair(rail, "down=true")

        def back():
            target.impair(rail, "down=false")
            begun, before = time.monotonic(), self.slices(target, rail)
            while self.slices(target, rail) == before:
                check(time.monotonic() < begun + RECOVERS, f"rail {rail} of target {target.index} is not used again")
                time.sleep(0.001)
            self.returns.append(time.monotonic() - begun)

        self.at(when, f"{target.index}: rail {rail} is silent", silence)
        self.at(over, f"{target.index}: rail {rail} is back", back)
        return over + 0.1

    def slices(self, target, rail):
        """Returns how many slices a rail of the initiator has carried to this target."""
        name = re.sub(r"\W", "_", target.name) + f"/rove{rail}_rove{rail}"
        return telemetry(self.initiator.pid, "/tent/rails").get(name, {"slices": 0})["slices"]

    def lossy_rail(self, _, target, when):
        rail, over = self.random.randrange(2), when + self.random.uniform(0.1, 0.6)
        self.at(when, f"{target.index}: rail {rail} loses 5 %", lambda: target.impair(rail, "loss=0.05"))
        self.at(over, f"{target.index}: rail {rail} is whole", lambda: target.impair(rail, "loss=0"))
        return over

    def power_off(self, world, target, when):
        """The target vanishes without ending its connections. Later another process with its name takes its place."""
        self.suffers.add(target.index)
        over = when + self.random.uniform(0.3, 1)

        def off():
            world.control_network(target.index, "down")
            target.process.child.send_signal(signal.SIGSTOP)

        def on():
            target.process.kill()
            world.control_network(target.index, "up")
            target.start()

        self.at(when, f"{target.index}: power off", off)
        self.at(over, f"{target.index}: power on", on)
        return over + 0.5

    def no_control(self, world, target, when):
        self.suffers.add(target.index)
        over = when + self.random.uniform(0.05, 1)
        self.at(when, f"{target.index}: no control network",
                lambda: world.control_network(target.index, "down"))
        self.at(over, f"{target.index}: control network", lambda: world.control_network(target.index, "up"))
        return over

    def register_again(self, _, target, when):
        def again():
            target.ready()    # An earlier signal would end the process.
            target.process.child.send_signal(signal.SIGUSR1)

        self.at(when, f"{target.index}: registers again", again)
        return when + 0.05


def run(seed):
    schedule = Schedule(seed)
    own, stored = schedule.random.random() < 0.5, schedule.random.random() < 0.25 and shutil.which("etcd")
    with World() as world:
        etcd = Etcd(world) if stored else None
        options = ["--own"] if own else []
        targets = [Target(world, index, options, etcd) for index in (0, 1)]
        for target in targets:
            target.ready()
        events = schedule.draw(world, targets, etcd, own)
        settings = ["rpc_server_hostname=192.0.2.1", "rpc_server_port=7000",
                    "transports/rdma/max_timeout_ns=3000000000"]
        if etcd:
            settings += etcd.settings("127.0.0.1", "initiator")
        command = [program("tent_check"), "faults", "--peer", targets[0].name, "--other-peer", targets[1].name,
                   "--sizes", SIZE, "--depth", DEPTH, "--bytes", SIZE * DEPTH * REGIONS, "--set", *settings]
        initiator = Process(command, world.config(1), CLIENT_CORE, world.names[0], {"ROVE_TENT_SECRET": SECRET},
                            stdin=True)
        schedule.initiator, happened = initiator, []
        try:
            begun = initiator.wait_for(initiator.json, 20, "start")[0]["begun"]
            for when, _, what, function in events:
                time.sleep(max(0, begun + when - time.monotonic()))
                happened.append(f"{time.monotonic() - begun:.3f} s  {what}")
                function()
            done = lambda: initiator.json()[-1]["completed"]  # noqa: E731
            before = done()
            initiator.wait_for(lambda: all(now > then + 2 * DEPTH for now, then in zip(done(), before)), RECOVERS,
                               "service by both peers")
            initiator.child.stdin.close()
            initiator.succeed(60)
            results = initiator.json()[-2:]
            gaps = [longest_gap(results[index], silent - begun) for index, silent in schedule.silences
                    if index not in schedule.suffers]
            for index, peer in enumerate(results):
                lost = peer["failed"] + peer["timeout"] + peer["refused"]
                peer.pop("samples")
                check(index in schedule.suffers or lost + peer["begun_anew"] == 0, f"peer {index}: {peer}")
        except (Failure, OSError) as failure:
            story = "\n".join(target.process.story() for target in targets)
            raise Failure("\n".join([f"ROVE_SEED={seed} ROVE_SCHEDULES=1", *happened, str(failure), story])) from None
    return gaps, schedule.returns


def longest_gap(peer, when):
    """Returns the longest time in seconds without a byte in the second after `when`."""
    samples, step = peer["samples"], peer["step"]
    first = int(when / step)
    second = samples[first:first + int(1 / step)]
    return step * max((len(list(same)) for _, same in itertools.groupby(second)), default=0)


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def schedules():
    gaps, returns, failures = [], [], []
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        try:
            for all_of, some in zip((gaps, returns), run(seed)):
                all_of.extend(some)
        except Failure as failure:
            failures.append(str(failure))
    for what, values in (("without a byte after a rail fell silent", gaps), ("until a rail was used again", returns)):
        if values:
            print(f"{what}: {len(values)} times, median {1e3 * percentile(values, 0.5):.0f} ms, "
                  f"99 % {1e3 * percentile(values, 0.99):.0f} ms")
    check(not failures, f"{len(failures)} of {SCHEDULES} failed\n" + "\n".join(failures))


once("tent/faults", schedules, timeout=60 + 30 * SCHEDULES)
