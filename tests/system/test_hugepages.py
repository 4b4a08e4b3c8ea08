# SPDX-License-Identifier: Apache-2.0
"""Reserves hugepages for the time of the test. rove uses them, and releases all of them however a process ends."""
import contextlib
import fcntl
import os
import pathlib
import re
import subprocess
import time

from harness import (ROVE_RUN, SCRATCH, STOPPED, Skip, check, covering, free_port, memif_link, once, program,
                     start_client, start_server, stop_all, verified, write_toml)
from test_vhost import vhost_link

COUNT = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
FREE = COUNT.with_name("free_hugepages")
PAGES = 160     # 320 MiB; each process wants 71 MiB and uses about 43


def number(path):
    return int(path.read_text())


@contextlib.contextmanager
def reserved():
    """Reserves hugepages. Yields the number of pages that are free while no process of the test runs."""
    if not COUNT.exists() or os.geteuid() != 0:
        raise Skip("needs hugepages of 2 MiB, and root to reserve them")
    before = number(COUNT)
    try:
        try:
            COUNT.write_text(str(before + PAGES))
        except OSError as error:
            raise Skip(f"hugepages cannot be reserved: {error}") from None
        if number(COUNT) < before + PAGES:
            raise Skip(f"{number(COUNT) - before} of {PAGES} hugepages could be reserved")
        yield number(FREE)
    finally:
        stop_all()
        with contextlib.suppress(OSError):
            COUNT.write_text(str(before))


def hugetlb_kilobytes(process):
    smaps = pathlib.Path(f"/proc/{process.pid}/smaps").read_text()
    return sum(int(amount) for amount in re.findall(r"^(?:Private|Shared)_Hugetlb: +(\d+) kB", smaps, re.M))


def check_given_back(free):
    """Checks that no page is in use, which implies that no file is left in any hugetlbfs."""
    deadline = time.monotonic() + STOPPED
    while number(FREE) < free:
        check(time.monotonic() < deadline, f"{free - number(FREE)} hugepages are still in use")
        time.sleep(0.05)


def used():
    with reserved() as free:
        link, port = memif_link(), free_port()
        command = [program("verbs_check"), "--rounds", "50"]
        server = start_server(link, command, port, "--port")
        check(hugetlb_kilobytes(server) > 0, server.story())
        client = start_client(link, command, port, "--port")
        client.succeed(40)
        server.succeed(STOPPED)
        check_given_back(free)
        doomed = start_server(link, command, free_port(), "--port")
        check(number(FREE) < free, "a killed process would have nothing to leave behind")
        doomed.kill()
        check_given_back(free)


def vhost():
    """virtio-user passes all its memory to its peer, so it must be in few files."""
    with reserved() as free:
        verified(vhost_link(), "--rounds", "2")
        check_given_back(free)


def withheld():
    """The file in /sys shows free hugepages, but none can be allocated. rove starts without them."""
    if not FREE.exists() or os.geteuid() != 0:
        raise Skip("needs hugepages of 2 MiB in /sys, and root to cover a file there")
    if number(FREE) != 0:
        raise Skip("this machine has free hugepages")
    many = SCRATCH / "free_hugepages"
    many.write_text("1000\n")
    command = [str(ROVE_RUN), "--config", str(write_toml(memif_link().configs[0])), "--", "ibv_devinfo"]
    done = subprocess.run([*covering(many, FREE), *command], capture_output=True, text=True, timeout=20,
                          stdin=subprocess.DEVNULL)
    check(done.returncode == 0 and "rove0" in done.stdout, f"{done.stdout}{done.stderr}")


def by_turns():
    """If two processes start together, the second does not count the pages that the first is about to allocate."""
    command = [str(ROVE_RUN), "--config", str(write_toml(memif_link().configs[0])), "--", "ibv_devinfo"]
    with reserved(), open(f"/dev/shm/rove-hugepages-{os.geteuid()}", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(1)
        check(hugetlb_kilobytes(waiting) == 0 and waiting.poll() is None, "it did not wait for its turn")
        fcntl.flock(turn, fcntl.LOCK_UN)
        told = waiting.communicate(timeout=20)[0]
        check(waiting.returncode == 0 and "rove0" in told, told)
        fcntl.flock(turn, fcntl.LOCK_EX)    # A process that keeps the lock does not prevent others from starting.
        told = subprocess.run(command, capture_output=True, text=True, timeout=20)
        check(told.returncode == 0 and "rove0" in told.stdout, told.stderr)


once("hugepages/used", used, alone=True)
once("hugepages/by-turns", by_turns, alone=True)
once("hugepages/withheld", withheld, alone=True)
once("hugepages/vhost", vhost, alone=True)
