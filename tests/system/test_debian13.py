# SPDX-License-Identifier: Apache-2.0
"""Runs the first commands of the README on Debian 13, with its DPDK, rdma-core and compiler, in a chroot.
tests/debian13 runs all tests there."""
import os
import pathlib

from harness import CORES, ROOT, Process, Skip, check, once

TOOL = ROOT / "tests" / "debian13"


def demo():
    if os.geteuid() != 0:
        raise Skip("needs root")
    if "VERSION_ID=\"12\"" not in pathlib.Path("/etc/os-release").read_text():
        raise Skip("this is not Debian 12")
    installed = Process([TOOL, "--install"], core=set(CORES))
    if installed.wait(900) == 77:
        raise Skip(f"Debian 13 cannot be installed: {installed.out()[-300:]}")
    run = Process([TOOL, "--demo", "--seconds", "3"], core=set(CORES)).succeed(900)
    check("every byte right" in run.out(), run.story())


once("debian13/demo", demo, timeout=1800, computes=True)
