# SPDX-License-Identifier: Apache-2.0
"""Checks that the transport executes as many instructions per message as the committed table says (bench/micro)."""
import subprocess

from harness import ROOT, Skip, check, once


def per_message():
    done = subprocess.run([ROOT / "bench" / "micro" / "instructions"], capture_output=True, text=True)
    if done.returncode == 77:
        raise Skip(done.stdout.strip())
    check(done.returncode == 0, done.stdout + done.stderr[-2000:] +
          "more than 2 % from bench/micro/instructions.json: 'bench/micro/instructions --update' if that is meant")


once("instructions/per-message", per_message)
