# SPDX-License-Identifier: Apache-2.0
"""Runs the smallest parts of bench/loss: one short sample of two rows, in memory and over the kernel's network."""
import json
import os
import pathlib
import subprocess

from harness import BUILD, ROOT, SCRATCH, Skip, check, once, unique


def table(group, *contestants):
    """Runs two rows of a group. A missed goal is no failure here, because the samples are short and the machine may be
    busy."""
    out = SCRATCH / f"{unique()}.json"
    command = [ROOT / "bench" / "loss", "--group", group, "--only", "loss 1 %", "--rounds", 1, "--seconds", 0.3,
               "--json", out, *(word for contestant in contestants for word in ("--contestant", contestant))]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                         env={**os.environ, "ROVE_BUILD_DIR": str(BUILD)})
    check(run.returncode in (0, 1) and out.exists(), run.stdout + run.stderr)
    lines = json.loads(out.read_text())
    for line in lines:
        if line["skipped"]:
            raise Skip(line["skipped"])
    measured = {(line["row"], line["contestant"]) for line in lines}
    check(measured == {(row, contestant) for row in ("no loss", "loss 1 %") for contestant in contestants}, run.stdout)
    check(all(line["gbps"] > 0 and not line["errors"] for line in lines), f"{lines}\n{run.stderr}")
    lossy = [line for line in lines if line["row"] == "loss 1 %" and not line["contestant"].startswith("TCP")]
    check(all(line["repeated"] > 0.001 and line["causes"] for line in lossy), f"no packet was lost: {lossy}")


def routed(*contestants):
    """Runs two rows over veths, and checks that no namespace is left."""
    before = set(pathlib.Path("/run/netns").glob("rove-loss-*"))
    table("veth", *contestants)
    left = set(pathlib.Path("/run/netns").glob("rove-loss-*")) - before
    check(not left, f"{left} are left behind")


once("bench/loss/memif", table, "memif", "rc", "mp", quick=True)
once("bench/loss/mesh", table, "mesh", "mp")
once("bench/loss/veth", routed, "interface mp", "udp rc", "TCP cubic")
