# SPDX-License-Identifier: Apache-2.0
"""A peer, or the process itself, is off its core for longer than the verbs' timeouts. No data is lost, and no QP ends
(protocol_clock.h). On a busy host the scheduler causes such pauses of some hundred milliseconds; here a signal does."""
import signal
import time

from harness import BOTH, check, free_port, memif_link, start_client, start_server, telemetry, test

TOOLS = {("ib_write_bw", "-b -q 16"): BOTH, ("ib_read_bw", "-q 16"): BOTH, ("ib_send_bw", "-b -q 1"): BOTH,
         ("ib_atomic_bw", "-q 16"): ("rc",), ("ib_write_bw", "-q 64"): ("mp",)}
ABSENT = 0.9  # seconds; perftest's QPs give up after 0.54 s of silence
RETRIES_EXCEEDED = "status 12"


def begin(link, tool, options):
    """Starts both processes and returns them when they exchange traffic."""
    port = free_port(link.netns[0])
    command = [tool, "-F", "-x", "1", *options.split()]
    server = start_server(link, command, port)
    client = start_client(link, command, port)
    for process in (server, client):
        wait_for_more(process, 1000)
    return server, client


def wait_for_more(process, count):
    """Waits until the process has received `count` more packets."""
    before = packets(process)
    process.wait_for(lambda: packets(process) > before + count, 20, "traffic")


def packets(process):
    try:
        return telemetry(process.pid, "/rove/workers")["worker0"]["rx_packets"]
    except (OSError, KeyError, TypeError):  # The process has not begun.
        return 0


def absent(tool, options):
    """Stops each process in turn. perftest would end with the first QP that ends."""
    both = begin(memif_link(), tool, f"{options} -D 60")
    for absent in both:
        absent.child.send_signal(signal.SIGSTOP)
        time.sleep(ABSENT)
        absent.child.send_signal(signal.SIGCONT)
        for process in both:
            wait_for_more(process, 1000)
    for process in both:
        process.stop()


def gone(tool, options):
    """QPs give up a peer that does not return."""
    server, client = begin(memif_link(), tool, f"{options} -D 60")
    server.child.send_signal(signal.SIGSTOP)
    try:
        check(client.wait(20) != 0 and RETRIES_EXCEEDED in client.out() + client.err(), client.story())
    finally:
        server.child.send_signal(signal.SIGCONT)


def sleeps(link, most=0.01):
    """A connected process that waits for events uses no CPU time while its peer is stopped, and a frame wakes it."""
    server, client = begin(link, "ib_send_lat", "-e -n 1000000 -u 21")
    client.child.send_signal(signal.SIGSTOP)
    server.sleeps(most)
    client.child.send_signal(signal.SIGCONT)
    wait_for_more(server, 1000)
    client.stop()
    server.stop()


for (tool, options), modes in TOOLS.items():
    test(f"stall/absent/{tool}/{options.replace(' ', '')}", absent, tool, options, quick="write" in tool, modes=modes)
test("stall/gone", gone, "ib_send_bw", "-q 4")
