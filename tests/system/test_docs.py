# SPDX-License-Identifier: Apache-2.0
"""Runs the commands in README.md and docs/guide as they are written (tools/check_docs)."""
from harness import CORES, ROOT, Process, check, once


def commands():
    run = Process([ROOT / "tools" / "check_docs", "--commands"], core=set(CORES)).succeed(500)
    check("all is right" in run.out(), run.story())


once("docs/commands", commands, timeout=600, lane="shipped")
