# SPDX-License-Identifier: Apache-2.0
"""Compares rove-sim's prediction for two ports whose paths are impaired with the measurement. Both use the same
configuration files and the same changes."""
import json
import subprocess
import time

from harness import BUILD, SCRATCH, check, memif_pair, once, telemetry, unique, write_toml
from testpmd import Pair, clean, result, wait_for_traffic

# There are eight paths, of which one loses packets, one is slow, and one dies and returns. Packets are milliseconds
# apart and a round trip takes tens of milliseconds. So the paths determine the result, and not the delays of a busy
# machine, where an end may be off its core for 4 ms.
LOSSY, SLOW, DYING = 2, 5, 7
IMPAIR = {
    "paths": 8, "rate_mbps": 5, "delay_us": 10000, "queue_packets": 64, "ecn_threshold_packets": 8,
    "path": [{"index": LOSSY, "loss": 0.05}, {"index": SLOW, "rate_mbps": 2}]}
TRANSPORT = {"mode": "mp", "batch_acks": False, "paths": {"min_rto_us": 100000}}
TRAFFIC = ("--qps", 4, "--size", 262144, "--depth", 4, "--mtu", 1024)
CAUSES = ("nack", "inferred", "early", "timeout")


def changes(seconds):
    """Returns (time, path, settings) for each change."""
    return [(seconds * 0.3, DYING, "down=true"), (seconds * 0.6, DYING, "down=false")]


def on_ports(pair, seconds):
    """Runs rove-testpmd and returns its results under the names that rove-sim uses."""
    out = SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "write", *TRAFFIC, "--duration", seconds, "--json", out)
    wait_for_traffic(run)
    start = time.monotonic()
    for at, path, settings in changes(seconds):
        time.sleep(max(start + at - time.monotonic(), 0))
        for process in (run, pair.target):
            telemetry(process.pid, f"/rove/impair,rove0,{path},{settings}")
    clean(run.succeed(seconds + 20))
    paths = telemetry(pair.target.pid, "/rove/impair,rove0")
    said = result(out)
    values = {
        "goodput_gbps": said["goodput_gbps"], "errors": said["errors"], "sent": said["packets"]["sent"],
        **said["retransmissions"]}
    for path, counters in paths.items():
        values |= {f"path {path}: {name}": counters[name]
                   for name in ("frames", "lost", "marked", "drop_queue_full", "drop_down")}
    return values


def predicted(pair, seconds, seed=1):
    out = SCRATCH / f"{unique()}.json"
    receiver, sender = pair.configs
    options = [option for at, path, settings in changes(seconds) for option in ("--change", f"{at}:{path}:{settings}")]
    ran = subprocess.run([
        str(word) for word in (BUILD / "apps" / "rove-sim", "prediction", "--receiver", receiver, "--sender", sender,
                               *TRAFFIC, "--duration", seconds, "--seed", seed, "--json", out, *options)],
                         capture_output=True, text=True)
    check(ran.returncode == 0, ran.stderr)
    return {measure["metric"]: measure["ours"] for measure in json.loads(out.read_text())}


def agree(port, name, prediction, within=0.1):
    """Returns true if the port's value is near the prediction. Causes of few retransmissions may differ by half as much
    of all retransmissions."""
    few = 0 if name in ("goodput_gbps", "packets") else within / 2 * port["packets"]
    return abs(port[name] - prediction) <= max(within * prediction, few)


def pair():
    configs = memif_pair(impair=IMPAIR)
    return Pair([{**config, "transport": TRANSPORT} for config in configs])


def predicts():
    """Checks wide bounds, because the run is short and the machine may be busy. bench/prediction checks 10 %."""
    ends, seconds = pair(), 3
    port, prediction = on_ports(ends, seconds), predicted(ends, seconds)
    ends.end()
    said = f"{port}\n{prediction}"
    check(port["errors"] == prediction["errors"] == 0, said)
    check(0.5 < port["goodput_gbps"] / prediction["goodput_gbps"] < 1.2, said)
    for ours in (port, prediction):
        check(ours["inferred"] > 0 and ours[f"path {LOSSY}: lost"] > 0 and ours[f"path {DYING}: drop_down"] > 0, said)


def refused():
    """Checks that rove-sim refuses settings that it does not model."""
    def refuses(says, *options, **impair):
        a, b = [write_toml({**config, "transport": TRANSPORT})
                for config in memif_pair(impair={"paths": 2, "rate_mbps": 5, **impair})]
        ran = subprocess.run([str(word) for word in (BUILD / "apps" / "rove-sim", "prediction", "--receiver", a,
                                                     "--sender", b, *options)], capture_output=True, text=True)
        check(ran.returncode == 2 and says in ran.stderr, f"{ran.returncode}: {ran.stderr}")

    refuses("allowed: paths with a rate_mbps", rate_mbps=0)
    refuses("without duplicate, reorder and mark", reorder=0.1)
    refuses("allowed: SECONDS:PATH:key=value", "--change", "1:2:down=true")
    refuses("'colour'", "--change", "1:1:colour=red")


once("sim/prediction", predicts, alone=True)
once("sim/prediction/refused", refused)
