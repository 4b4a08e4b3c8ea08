# SPDX-License-Identifier: Apache-2.0
"""Tests processes that end while their threads are in verbs calls, and peers that disconnect at once."""
import pathlib
import socket

from harness import (STOPPED, check, device_arguments, free_port, memif_link, once, program, start_client, start_server,
                     test)

LEFT = 7  # exit status of verbs_leaver


def leave(progress, guests, *options):
    """Guests end one after the other with their own exit status, and the host serves the next."""
    link = memif_link(progress=progress)
    port = free_port()
    host = start_server(link, [program("verbs_leaver"), "--guests", guests], port, "--port")
    for _ in range(guests):
        guest = start_client(link, [program("verbs_leaver"), *options], port, "--port")
        check(guest.wait(20) == LEFT, guest.story())
        check(not pathlib.Path(f"/var/run/dpdk/rove-{guest.pid}").exists(), "EAL's files are left")
        check("--by-signal" in options or "destroyed after all" in guest.out(), guest.story())
    host.succeed(STOPPED)


test("exit/threads-at-work", leave, "shared", 2, quick=True)
test("exit/threads-at-work/dedicated", leave, "dedicated", 1)
test("exit/in-a-signal-handler", leave, "shared", 2, "--by-signal")


def fleeting_peers():
    """A peer that connects to the memif and disconnects at once does no harm."""
    link = memif_link()
    port = free_port()
    server = start_server(link, ["ib_send_lat", "-F", "-n", "100"], port)
    _, arguments = device_arguments(link.configs[0]["device"][0]["port"])
    for _ in range(300):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect("\0" + arguments["socket"])
    start_client(link, ["ib_send_lat", "-F", "-n", "100"], port).succeed(20)
    server.succeed(20)


once("exit/fleeting-peers", fleeting_peers)
