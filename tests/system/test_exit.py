# SPDX-License-Identifier: Apache-2.0
"""Processes that end while their threads are inside of verbs calls."""
import pathlib

from harness import STOPPED, check, free_port, memif_link, program, start_client, start_server, test

LEFT = 7  # the exit status that verbs_leaver has chosen


def leave(progress, guests, *options):
    """Guests end one after the other with their own status; the host is there for the next."""
    link = memif_link(progress=progress)
    port = free_port()
    host = start_server(link, [program("verbs_leaver"), "--guests", guests], port, "--port")
    for _ in range(guests):
        guest = start_client(link, [program("verbs_leaver"), *options], port, "--port")
        check(guest.wait(10) == LEFT, guest.story())
        check(not pathlib.Path(f"/var/run/dpdk/rove-{guest.pid}").exists(), "EAL's files are left")
        check("--by-signal" in options or "destroyed after all" in guest.out(), guest.story())
    host.succeed(STOPPED)


test("exit/threads-at-work", leave, "shared", 2, quick=True)
test("exit/threads-at-work/dedicated", leave, "dedicated", 1)
test("exit/in-a-signal-handler", leave, "shared", 2, "--by-signal")
