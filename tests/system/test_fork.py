# SPDX-License-Identifier: Apache-2.0
"""Tests processes that fork: children of a parent with objects, children of one that only listed devices, and Python's
multiprocessing."""
import pathlib
import signal
import time

from harness import CLIENT_CORE, SERVER_CORE, Process, check, memif_link, memif_pair, once

PYTHON = pathlib.Path(__file__).with_name("multiprocessing_forks.py")


def forker(case, progress):
    Process([program(), case], memif_pair(progress=progress)[0], SERVER_CORE).succeed(60)


def program():
    from harness import program as path
    return path("verbs_forker")


for progress in ("shared", "dedicated"):
    once(f"fork/with-objects/{progress}", forker, "with-objects", progress, quick=True)
    once(f"fork/after-list/{progress}", forker, "after-list", progress)
    once(f"fork/hammered/{progress}", forker, "hammered", progress)


def daemonized():
    config = memif_link().configs[0]
    parent = Process([program(), "daemon"], config, SERVER_CORE).succeed(20)
    deadline = time.monotonic() + 15
    while "moved" not in parent.out():
        check(time.monotonic() < deadline, parent.story())
        time.sleep(0.05)


once("fork/daemon", daemonized)


def child_outlives():
    """A child that outlives its killed parent keeps nothing of the parent's port, so the next process can open it."""
    config = memif_link().configs[0]
    parent = Process([program(), "orphan"], config, SERVER_CORE)
    check(parent.wait(20) == -signal.SIGKILL, parent.story())
    Process([program(), "move"], config, CLIENT_CORE).succeed(30)


once("fork/child-outlives", child_outlives)


def python(case):
    process = Process(["/usr/bin/python3", PYTHON, case], memif_pair()[0], SERVER_CORE)
    process.succeed(60)
    check("OK" in process.out() and "Traceback" not in process.err(), process.story())


once("fork/multiprocessing/after-list", python, "after-list", quick=True)
once("fork/multiprocessing/with-objects", python, "with-objects", quick=True)
