# SPDX-License-Identifier: Apache-2.0
"""Tests slots between two real processes by their telemetry, and the metrics for Prometheus."""
import pathlib
import re
import time
import urllib.request

from harness import check, free_port, memif_pair, once, telemetry, unique
from test_tent import Engines, rails

SHM = pathlib.Path("/dev/shm")


def low_beside_high(strict):
    """One process sends bulk data at LOW and another sends small requests at HIGH. Each has a port of its own to the
    target."""
    (target, bulk), (second, small) = memif_pair(), memif_pair()
    target["device"].append(second["device"][0])
    for config, address in ((target, "10.1.0.1/24"), (small, "10.1.0.2/24")):
        config["device"][-1]["addresses"] = [address]
    slots = f"/rove-test-{unique()}"
    options = (
        "--set",
        f"transports/rdma/shared_quota_shm_path={slots}",
        "transports/rdma/slot_rotation_interval_ms=50",
        f"transports/rdma/strict_slots={str(strict).lower()}",
        "transports/shm/enable=false",
        # The gate treats promoted LOW requests as LOW (T-11). If it did not, this timeout would show it.
        "transports/rdma/priority_promotion_timeout_us=1000",
        "--seconds",
        "30")
    engines = Engines([target, bulk])
    low = engines.start("stream", "--priority", "2", "--sizes", "4194304", "--depth", "2", *options)
    high = engines.start("stream", "--priority", "0", "--sizes", "4096", "--depth", "1", "--offset", "16777216",
                         *options, config=small)
    for process in (low, high):
        process.wait_for(process.json, 20, "start")

    def done(process):
        return {name: row["slices"] for name, row in telemetry(process.pid, "/tent/slots").items() if name != "all"}

    def shared(process):
        return telemetry(process.pid, "/tent/slots")["all"]

    try:
        before = done(low), done(high)
        begun = shared(low)["rotations"]
        low.wait_for(lambda: shared(low)["rotations"] > begun + 15, 20, "some rounds of slots")
        after = done(low), done(high)
        grown = [{slot: b[slot] - a[slot] for slot in b} for a, b in zip(before, after)]
        check(all(grown[1].values()), f"HIGH was kept out of a slot: {grown}")
        # Requests that were posted before a slot ended may complete in the next slot. Without `strict`, LOW may
        # continue while HIGH is not scheduled.
        check(grown[0]["2"] > (grown[0]["0"] + grown[0]["1"] if strict else 0),
              f"LOW went on in slots of others: {grown}")
        first, second = sorted((low, high), key=lambda process: shared(process)["rotating"])
        check([shared(process)["rotating"] for process in (first, second)] == [0, 1], "one process rotates the slots")
        # The HIGH process is killed, whether or not it rotates the slots, and the other continues. A LOW process that
        # is alone may use all slots, unless they are strict.
        high.kill()
        before, rotations = done(low), shared(low)["rotations"]
        low.wait_for(lambda: shared(low)["rotations"] > rotations + 12, 20, "slots to continue")
        check(shared(low)["rotating"] == 1, "no process took over")
        check(shared(low)["takeovers"] == (second is high), f"{shared(low)}")
        alone = {slot: count - before[slot] for slot, count in done(low).items()}
        check(alone["2"] > 0 and (alone["0"] + alone["1"] > alone["2"]) != strict, f"LOW alone: {alone}")
    finally:
        (SHM / slots[1:]).unlink(missing_ok=True)


def scrape(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
    values = re.findall(r'^(tent_\w+)\{(\w+)="([^"]*)"\} (\S+)$', text, re.M)
    return text, {(name, label, of): float(value) for name, label, of, value in values}


def prometheus():
    engines, port, slots = Engines(rails()), free_port(), f"/rove-test-{unique()}"
    options = ("--set", "metrics/enabled=true", f"metrics/http_port={port}")
    try:
        initiator = engines.start("stream", "--sizes", "1048576", "--seconds", "30", *options,
                                  f"transports/rdma/shared_quota_shm_path={slots}")
        initiator.wait_for(initiator.json, 20, "start")
        wanted = [("tent_device_completed_bytes_total", "device", "rove1"),
                  ("tent_rail_write_bytes_total", "rail", f"127.0.0.1:{engines.port}/rove0-rove0"),
                  ("tent_priority_completed_requests_total", "priority", "high"),
                  ("tent_slot_bytes_total", "slot", "2"), ("tent_transport_read_bytes_total", "transport", "rdma")]
        initiator.wait_for(lambda: all(scrape(port)[1].get(one, 0) > 0 for one in wanted), 20, "figures")
        text, first = scrape(port)
        check(
            "# TYPE tent_device_completed_bytes_total counter" in text and
            "# TYPE tent_device_inflight_bytes gauge" in text, text)
        of_requests = '{priority="high",transport="rdma",le="1048576"}'
        check(f"tent_request_bytes_bucket{of_requests}" in text and "tent_request_latency_seconds_sum" in text, text)
        (requests,) = telemetry(initiator.pid, "/tent/requests").values()
        check(requests["p99_bytes"] == 1048576 and 0 < requests["p50_ns"] <= requests["p99_ns"], str(requests))
        health = urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20)
        check(health.status == 200 and b"tent_devices_up 2" in health.read(), "/health")
        initiator.wait_for(lambda: scrape(port)[1][wanted[-1]] > first[wanted[-1]], 20, "growth")
        other = engines.start("target", *options)
        check(other.wait(20) == 1 and "cannot listen on 127.0.0.1" in other.err(), other.story())
    finally:
        (SHM / slots[1:]).unlink(missing_ok=True)


once("tent/slots/two-processes", low_beside_high, False, alone=True)
once("tent/slots/strict", low_beside_high, True, alone=True)
once("tent/metrics/prometheus", prometheus)
