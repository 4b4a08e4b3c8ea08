# SPDX-License-Identifier: Apache-2.0
"""Runs rove-tebench between processes over shaped rails: a target on core 0 and initiators on core 1. Rates of rails
are in Mb/s of frames. The fault injection of the receiving process shapes them, so both ends do. Times are in seconds.
"""
import bisect
import csv
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "system"))

import harness  # noqa: E402
from programs import TIMEOUT_S, Failed, started, tail, wait_until, tcp_listens  # noqa: E402

QUEUE_PACKETS = 1024   # 4 MiB, the buffer of a typical switch; packets that exceed it are lost
WARMUP_S = 1.0
scratch = tempfile.TemporaryDirectory(prefix="rove-bench-tent-")
numbers = itertools.count()


def scratch_file(name):
    return pathlib.Path(scratch.name) / f"{next(numbers)}-{name}"


def rails(rates, initiators=1):
    """Returns the configurations of a target and of each initiator. Each initiator has rails of its own, one for each
    of `rates`; a rate of 0 means that the rail is not shaped."""
    ends = [harness.shipped("two-rails-a"), *(harness.shipped("two-rails-b") for _ in range(initiators))]
    target, sockets = {**ends[0], "device": []}, f"rove-bench-{harness.unique()}"
    for i, initiator in enumerate(ends[1:]):
        devices = harness.shipped("two-rails-a")["device"][:len(rates)]
        initiator["device"] = initiator["device"][:len(rates)]
        for j, rate in enumerate(rates):
            index = len(target["device"])
            for device, host in (devices[j], 1), (initiator["device"][j], 2):
                driver, arguments = harness.device_arguments(device["port"])
                device["port"] = harness.device_string(driver, {**arguments, "socket": f"{sockets}-{index}"})
                device["addresses"] = [f"10.0.{index}.{host}/24"]
                if rate:
                    device["impair"] = {"rate_mbps": rate, "queue_packets": QUEUE_PACKETS}
            target["device"].append(devices[j])
    return target, ends[1:]


class Initiator:
    def __init__(self, process, jsonl, timeline):
        self.process, self.jsonl, self.timeline_file = process, jsonl, timeline

    def wait(self):
        """Waits for a successful end and returns what the program printed."""
        try:
            output = self.process.communicate(timeout=TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            raise Failed(f"tebench did not finish in {TIMEOUT_S} s") from None
        if self.process.returncode != 0:
            raise Failed(f"tebench ended with {self.process.returncode}: {tail(output)}")
        return output

    def points(self):
        return [json.loads(line) for line in self.jsonl.read_text().splitlines()]

    def timeline(self, name="all"):
        """Returns (time of the monotonic clock, bytes until then) over all streams of a class."""
        streams = defaultdict(int)
        samples = []
        with open(self.timeline_file) as file:
            for line in csv.DictReader(file):
                if line["class"] == name:
                    streams[line["stream"]] = int(line["bytes"])
                    samples.append((float(line["time_s"]), sum(streams.values())))
        return samples


class Tebench:
    """Runs a target and its initiators until the context ends."""

    def __init__(self, build, rates, engine=(), initiators=1):
        self.build, self.engine = build, [option for key in engine for option in ("--set", key)]
        self.target_config, self.initiator_configs = rails(rates, initiators)
        self.port = harness.free_port()
        self.open = []

    def command(self, config, *options):
        return [
            self.build / "apps" / "rove-run", "--config",
            harness.write_toml(config), "--", self.build / "apps" / "rove-tebench", "--total_buffer_size", "256M",
            "--set", "rpc_server_hostname=127.0.0.1", *self.engine, *options]

    def enter(self, context):
        self.open.append(context)
        return context.__enter__()

    def __enter__(self):
        self.target = self.enter(started(self.command(self.target_config, "--rpc_server_port", self.port), 0))
        wait_until(tcp_listens(self.target, self.port), self.target)
        return self

    def __exit__(self, *_):
        while self.open:
            self.open.pop().__exit__(None, None, None)

    def start(self, *options, seconds=2.0, warmup=WARMUP_S, which=0, classes=None, timeline=False):
        """Starts an initiator and returns it when its first point has begun."""
        jsonl, csv_file = scratch_file("points.jsonl"), scratch_file("timeline.csv")
        if classes:
            of_classes = scratch_file("classes.json")
            of_classes.write_text(json.dumps(classes))
            options += ("--workload_classes_json", of_classes, "--worker_threads", 1, "--max_block_size", "4K")
        if timeline:
            options += ("--timeline", csv_file)
        command = self.command(self.initiator_configs[which], "--target_seg_name", f"127.0.0.1:{self.port}",
                               "--qos_output_jsonl", jsonl, "--warmup", warmup, "--duration", seconds, *options)
        process = self.enter(started(command, 1))
        lines = [""]
        while "BlkSize" not in lines[-1]:
            lines.append(process.stdout.readline())
            if not lines[-1]:
                raise Failed(f"tebench ended with {process.wait()} before its first point: {tail(''.join(lines))}")
        return Initiator(process, jsonl, csv_file)

    def run(self, *options, **keywords):
        """Returns the points of one initiator."""
        initiator = self.start(*options, **keywords)
        initiator.wait()
        return initiator.points()

    def impair(self, initiator, device, changes):
        """Changes a rail at both ends, first at the end that receives the data. Returns when the change began and when
        both ends had made it."""
        begun = time.monotonic()
        for process in (self.target, initiator.process):
            answer = harness.telemetry(process.pid, f"/rove/impair,{device},all,{changes}")
            if not isinstance(answer, dict):
                raise Failed(f"/rove/impair: {answer}")
        return begun, time.monotonic()


def rate(samples, begin, end):
    """Returns the bytes per second between two times."""
    first, last = (samples[max(0, bisect.bisect(samples, (when, float("inf"))) - 1)] for when in (begin, end))
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


def seconds_until(samples, since, least_rate, until, settled=0.05, step=0.002):
    """Returns the seconds from `since` until the rate stays at or above `least_rate`. From that time on, the mean rate
    up to every time that is at least `settled` later must reach it."""
    begin = since
    while begin + settled < until:
        ends = [begin + settled + i * 0.01 for i in range(int((until - begin - settled) / 0.01) + 1)]
        if all(rate(samples, begin, end) >= least_rate for end in ends):
            return begin - since
        begin += step
    raise Failed(
        f"{rate(samples, since, until) / 1e6:.0f} MB/s: "
        f"not {least_rate / 1e6:.0f} MB/s for good in {until - since:.1f} s")


def longest_pause(samples, begin, end):
    """Returns the longest time in seconds in which nothing arrived."""
    longest, last_time, last_bytes = 0.0, None, None
    for when, count in samples:
        if not begin <= when <= end:
            continue
        if last_time is None or count > last_bytes:
            longest = max(longest, when - (last_time or when))
            last_time, last_bytes = when, count
    return max(longest, end - last_time) if last_time is not None else end - begin
