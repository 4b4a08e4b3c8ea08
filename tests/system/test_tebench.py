# SPDX-License-Identifier: Apache-2.0
"""Tests rove-tebench between two processes over two rails: each operation with every byte compared, its output, and
wrong arguments."""
import csv
import json
import subprocess

from harness import BUILD, CLIENT_CORE, SCRATCH, SERVER_CORE, Process, check, free_port, once, telemetry, unique
from test_tent import rails

TEBENCH = BUILD / "apps" / "rove-tebench"
ENGINE = ("--set", "rpc_server_hostname=127.0.0.1", "--set", "transports/shm/enable=false", "--total_buffer_size",
          "16M")
COLUMNS = ("BlkSize", "Batch", "BW (GB/s)", "Avg Inst BW", "Avg Lat", "Avg Tx", "P99 Tx", "P999 Tx")


class Target:
    """A target with its memory, and its initiators."""

    def __init__(self):
        self.port, self.jsonl = free_port(), SCRATCH / f"{unique()}.jsonl"
        config, self.config = rails()
        self.process = Process([TEBENCH, *ENGINE, "--rpc_server_port", self.port], config, SERVER_CORE)
        self.process.wait_for(lambda: "target_seg_name" in self.process.out(), 20, "its memory")

    def initiator(self, *options, duration=0.1):
        return Process([TEBENCH, *ENGINE, "--warmup", "0.05", "--duration", duration, "--target_seg_name",
                        f"127.0.0.1:{self.port}", "--qos_output_jsonl", self.jsonl, *options], self.config, CLIENT_CORE)

    def points(self):
        return [json.loads(line) for line in self.jsonl.read_text().splitlines()]


def against_target(*options, duration=0.1):
    """Runs an initiator against a new target. Returns the initiator, the target, and the JSON objects of the points."""
    target = Target()
    initiator = target.initiator(*options, duration=duration)
    initiator.succeed(40)
    target.process.stop()
    return initiator, target.process, target.points()


def operation(name):
    """Runs two block sizes by two batch sizes. The last combinations do not fit into the buffers and are skipped."""
    target = Target()
    initiator = target.initiator(
        "-op_type", name, "--check_consistency", "--notifi", "--tent_transport_hint", "rdma",
        "--start_block_size", "96K", "--max_block_size", "192K",
        "--start_batch_size", 1, "--max_batch_size", 64).succeed(40)
    ports, points = telemetry(target.process.pid, "/rove/ports"), target.points()
    target.process.stop()
    check(all(column in initiator.out() for column in COLUMNS), initiator.story())
    check("skipped: 64 x 196608 bytes" in initiator.err(), initiator.story())
    check([(p["batch_size"], p["block_size"])
           for p in points][:3] == [(1, 98304), (1, 196608), (2, 98304)], str(points))
    for point in points:
        check(point["schema_version"] == 1 and point["operations"] > 0 and point["aggregate_throughput_gbps"] > 0,
              str(point))
        # An operation that begins before the measured time, or ends after it, is counted in only one of the two.
        moved = point["aggregate_throughput_gbps"] * 1e9 * point["seconds"]
        arrived = moved / (point["block_size"] * point["batch_size"])
        check(abs(arrived - point["operations"]) < 1.001, f"the bytes of {arrived} operations: {point}")
        check(0 < point["p50_us"] <= point["p99_us"] <= point["p999_us"], str(point))
    used = [line for line in initiator.out().splitlines() if line.startswith("Dev ")]
    check(len(used) == 2 and all(port["rx_bytes"] + port["tx_bytes"] > 100_000 for port in ports.values()),
          f"both rails are to be used: {used} {ports}")
    (received,) = (int(line.split()[1]) for line in target.process.out().splitlines()
                   if line.startswith("notifications"))
    check(received > 0, "the target saw no notification")


def classes():
    """Runs HIGH at a fixed rate together with unlimited LOW by one thread. The timeline has both."""
    timeline = SCRATCH / f"{unique()}.csv"
    _, _, (point,) = against_target(
        "--op_type", "write", "--workload_classes_json",
        written([{
            "name": "urgent", "priority": "high", "block_size": 4096, "rate": 200, "slo_us": 1e7, "isolated_gbps": 100},
                 {"name": "low", "threads": 2, "block_size": 1 << 20, "weight": 2}]), "--max_block_size", "4K",
        "--worker_threads", 1, "--timeline", timeline, "--qos_link_capacity_gbps", 1000, duration=1)
    high, low = point["classes"]
    check((high["name"], high["priority"], low["priority"], low["threads"]) == ("urgent", 0, 2, 2), str(point))
    check(50 < high["operations"] < 400, f"{high['operations']} instead of about 200 arrivals")
    check(high["slo_attainment"] == 1 and 0.9 < high["isolation_leakage"] <= 1, str(high))
    check(0 < point["jain_fairness"] <= 1 and 0 < point["total_utilization"] < 1 and low["throughput_gbps"] > 0,
          str(point))
    with open(timeline) as file:
        lines = list(csv.DictReader(file))
    check({line["class"] for line in lines} == {"urgent", "low"} and {line["stream"]
                                                                      for line in lines} == {"0", "1", "2"},
          str(lines[:3]))
    for stream in "012":
        arrived = [int(line["bytes"]) for line in lines if line["stream"] == stream]
        check(arrived == sorted(arrived) and arrived[-1] > 0, f"stream {stream}: {arrived[-3:]}")


def short_classes():
    _, _, (point,) = against_target("--op_type", "read", "--qos_classes", "high:1:0:1,low:1:0:1:5", "--max_block_size",
                                     "4K", "--request_interval_us", 100)
    check([c["name"] for c in point["classes"]] == ["high", "low"] and all(c["operations"] > 0
                                                                           for c in point["classes"]), str(point))


def seeds():
    """One run verifies the data that another run has written, with other block sizes and offsets. It reports data that
    was overwritten since."""
    target, small = Target(), ("--max_block_size", 4096)
    target.initiator("--op_type", "write_seed", "--start_block_size", "256K", "--max_block_size", "256K",
                     "--start_num_threads", 2, "--max_num_threads", 2).succeed(20)
    target.initiator("--op_type", "read_verify", "--start_block_size", 4093, "--max_block_size", 4093,
                     "--start_batch_size", 4, "--max_batch_size", 4, "--target_offset", 7).succeed(20)
    check([point["num_threads"] for point in target.points()] == [2, 1], "the second run adds to the file of the first")
    target.initiator("--op_type", "write", *small).succeed(20)
    late = target.initiator("--op_type", "read_verify", *small)
    check(late.wait(20) == 1 and "differs from the data that write_seed writes" in late.err(), late.story())


def deadlines():
    """Batches of the tight streams end at their deadline, which passes before they could complete, except for requests
    that are in flight by that time. Batches of the other streams complete."""
    run = ("--op_type", "write", "--start_block_size", "4M", "--max_block_size", "4M", "--start_num_threads", 2,
           "--max_num_threads", 2)
    initiator, _, (point,) = against_target(*run, "--deadline_us", 1, "--deadline_tight_threads", 1,
                                            "--tent_intent_type", "migration", "--deadline_bw_arbitration",
                                            "--seg_type", "dram")
    tight, loose = (next(line for line in initiator.out().splitlines() if f"[deadline-{name}]" in line)
                    for name in ("tight", "loose"))
    check("threads=1 deadline_us=1 operations=" in tight and "missed=0" not in tight, tight)
    check("threads=1 operations=0" not in loose and "missed=0" in loose, loose)
    (only,) = point["classes"]
    check(only["deadline_missed"] > 0 and only["slo_attainment"] is None, str(only))
    check("deadline_bw_arbitration' of Mooncake has no effect here" in initiator.err(), initiator.err())
    of_class = [{"name": "prefetch", "threads": 1, "deadline_us": 1, "slo_us": 1, "intent_type": "background_prefetch"},
                {"name": "get", "threads": 1, "isolated_gbps": None, "intent_type": "foreground_get"}]
    initiator, _, (point,) = against_target(*run, "--workload_classes_json", json.dumps(of_class))
    prefetch, get = point["classes"]
    check(prefetch["deadline_missed"] > 0 and prefetch["slo_attainment"] == 0, str(point))
    check(get["deadline_missed"] == 0 and get["operations"] > 0, str(point))
    check("[qos-class] name=prefetch" in initiator.out(), initiator.out())
    check("isolation_leakage=N/A" in initiator.out(), initiator.out())


def written(value):
    path = SCRATCH / f"{unique()}.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def refused(says, *options):
    done = subprocess.run([TEBENCH, "--target_seg_name", "127.0.0.1:1", *options], capture_output=True, text=True,
                          timeout=20)
    check(done.returncode == 2 and not done.stdout, f"{options}: status {done.returncode}, {done.stdout!r}")
    check(len(done.stderr.splitlines()) == 1 and says in done.stderr, f"{options}: {done.stderr!r}")


WRONG = (("--op_type", "--op_type", "erase"), ("--start_block_size", "--start_block_size",
                                               "0"), ("--max_block_size", "--max_block_size",
                                                      "many"), ("--start_block_size", "--start_block_size", "128M"),
         ("--start_batch_size", "--start_batch_size", "2"), ("--start_num_threads", "--start_num_threads", "2"),
         ("--duration", "--duration", "0"), ("--rate", "--rate", "-1"), ("--outstanding", "--outstanding", "0"),
         ("--xport_type", "--xport_type",
          "pigeon"), ("--tent_transport_hint", "--tent_transport_hint",
                      "pigeon"), ("--config", "--config", "/nowhere"), ("--set", "--set", "key"), ("--fast", "--fast"),
         ("--rpc_server_port", "--rpc_server_port",
          "65536"), ("--qos_classes", "--qos_classes",
                     "high:1"), ("--qos_classes", "--qos_classes",
                                 ":1:0:1"), ("--qos_classes", "--qos_classes",
                                                   "high:0:0:1"), ("--qos_classes", "--qos_classes", "high:1:x:1"),
         ("--workload_classes_json", "--workload_classes_json",
          written("[")), ("'size'", "--workload_classes_json",
                          written('[{"name": "high", "size": 1}]')), ("--workload_classes_json",
                                                      "--workload_classes_json", written([])),
         ("--seg_type", "--seg_type", "VRAM"),
         ("--backend", "--backend", "classic"), ("--deadline_us", "--deadline_us", "-1"),
         ("--deadline_tight_threads", "--deadline_tight_threads", "2"),
         ("--check_consistency", "--check_consistency", "--op_type", "write_seed"),
         ("--tent_intent_type", "--tent_intent_type", "joy"),
         ("'joy'", "--workload_classes_json", written('[{"name": "high", "intent_type": "joy"}]')))


def all_refused():
    for says, *options in WRONG:
        refused(says, *options)


def no_target():
    """A missing target causes an error after some time, not a hang."""
    initiator = Process([TEBENCH, *ENGINE, "--target_seg_name", f"127.0.0.1:{free_port()}"], rails()[1], CLIENT_CORE)
    check(initiator.wait(40) == 1 and "--target_seg_name" in initiator.err(), initiator.story())


for each in ("read", "write", "mix"):
    once(f"tebench/operation/{each}", operation, each, quick=each == "mix")
once("tebench/classes", classes, alone=True)
once("tebench/classes/short", short_classes)
once("tebench/seeds", seeds)
once("tebench/deadlines", deadlines)
once("tebench/refused", all_refused, quick=True)
once("tebench/no-target", no_target)
