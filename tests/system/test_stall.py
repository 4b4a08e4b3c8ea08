# SPDX-License-Identifier: Apache-2.0
"""A peer, or the process itself, is off its core for longer than the verbs' timeouts: nothing is lost, and no QP ends
(protocol_clock.h). On a busy host the scheduler does so for some hundred milliseconds; here a signal does."""
import signal
import time

from harness import BOTH, check, free_port, memif_link, start_client, start_server, telemetry, test

TOOLS = {("ib_write_bw", "-b -q 16"): BOTH, ("ib_read_bw", "-q 16"): BOTH, ("ib_send_bw", "-b -q 1"): BOTH,
         ("ib_atomic_bw", "-q 16"): ("rc",), ("ib_write_bw", "-q 64"): ("mp",)}
ABSENT = 0.9  # seconds; perftest's QPs give up after 0.54 s of silence
RETRIES_EXCEEDED = "status 12"


def begin(tool, options):
    """Both processes, with traffic under way."""
    link, port = memif_link(), free_port()
    command = [tool, "-F", "-x", "1", *options.split()]
    server = start_server(link, command, port)
    client = start_client(link, command, port)
    client.wait_for(lambda: packets(client) > 1000 and packets(server) > 1000, 20, "traffic")
    return server, client


def packets(process):
    try:
        return telemetry(process.pid, "/rove/workers")["worker0"]["rx_packets"]
    except (OSError, KeyError, TypeError):  # it has not begun
        return 0


def absent(tool, options):
    """perftest ends at the first QP that does."""
    both = begin(tool, f"{options} -D 60")
    for absent in both:
        absent.child.send_signal(signal.SIGSTOP)
        time.sleep(ABSENT)
        absent.child.send_signal(signal.SIGCONT)
        for process in both:
            before = packets(process)
            process.wait_for(lambda: packets(process) > before + 1000, 20, "traffic after the absence")
    for process in both:
        process.stop()


def gone(tool, options):
    """Who does not come back is given up."""
    server, client = begin(tool, f"{options} -D 60")
    server.child.send_signal(signal.SIGSTOP)
    try:
        check(client.wait(20) != 0 and RETRIES_EXCEEDED in client.out() + client.err(), client.story())
    finally:
        server.child.send_signal(signal.SIGCONT)


for (tool, options), modes in TOOLS.items():
    test(f"stall/absent/{tool}/{options.replace(' ', '')}", absent, tool, options, quick="write" in tool, modes=modes)
test("stall/gone", gone, "ib_send_bw", "-q 4")
