# SPDX-License-Identifier: Apache-2.0
"""Runs the demo for a shorter time than its default, and checks its report when a host dies. Also runs bench/soak,
which uses the same hosts, and the demo with perftest."""
import json
import os
import pathlib
import re
import signal
import xml.etree.ElementTree

from harness import BUILD, CORES, ROOT, SCRATCH, Process, check, once, unique

SPRAY = ROOT / "apps" / "demos" / "spray"


def demo(*options):
    process = Process([SPRAY, *options], env={"ROVE_BUILD_DIR": str(BUILD)})
    os.sched_setaffinity(process.pid, CORES)    # The demo gives each of its hosts a core.
    return process


def spray():
    out, picture = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.svg"
    run = demo("--seconds", "3", "--json", out, "--svg", picture).succeed(40)
    check("every byte right" in run.out() and "rail 1 dies" in run.out() and "path 7" in run.out(), run.story())
    said = json.loads(out.read_text())
    well, lossy, whole, dead, back = said["phases"]
    for phase in said["phases"]:
        check(phase["rails_gbps"]["rove0"] > 0, str(phase))
    check(
        min(well["rails_gbps"]["rove1"], back["rails_gbps"]["rove1"]) > 2 * dead["rails_gbps"]["rove1"],
        str(said["phases"]))
    check(said["spray"]["errors"] == said["free"]["errors"] == 0 and said["tcp_gbps"] > 0, str(said))
    svg = xml.etree.ElementTree.parse(picture)
    text = " ".join(svg.getroot().itertext())
    check(all(what in text for _, what in said["events"]) and len(said["events"]) == 4, text)
    check(len(svg.findall(".//{*}polyline")) == 3, "three lines")


def host_dies():
    run = demo("--seconds", "4", "--json", SCRATCH / "none", "--svg", SCRATCH / "none")
    run.wait_for(lambda: "loses" in run.out(), 20, "its first event")
    children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    check(run.wait(30) == 1 and "rove: FAIL" in run.out(), run.story())
    check(not (SCRATCH / "none").exists(), "results of a demo that failed")


def perftest():
    run = Process([ROOT / "apps" / "demos" / "perftest"], env={"ROVE_BUILD_DIR": str(BUILD)})
    os.sched_setaffinity(run.pid, CORES)
    check(re.search(r"rove: PASS  WRITE [\d.]+ Gb/s  READ [\d.]+ Gb/s  SEND latency [\d.]+ us",
                    run.succeed(60).out()), run.story())


def soak():
    """Checks only that the soak test starts and runs. It is too short to measure memory."""
    run = Process([ROOT / "bench" / "soak", "4", "--seed", "5"], env={"ROVE_BUILD_DIR": str(BUILD)})
    os.sched_setaffinity(run.pid, CORES)
    check("every byte right" in run.succeed(30).out(), run.story())


once("demo/spray", spray, alone=True)
once("demo/perftest", perftest, alone=True)
once("demo/soak", soak, alone=True)
once("demo/host-dies", host_dies, alone=True)
