# SPDX-License-Identifier: Apache-2.0
"""Tests ports with several queues and processes with several workers. Frames arrive at workers that do not own their
QP, and are handed over."""
import time

from harness import (CLIENT_CORE, SERVER_CORE, STOPPED, Link, check, free_port, memif_pair, once, program, start_client,
                     start_server, telemetry, run_pair, test)


def two_workers(queues):
    """Returns a link whose server has two workers, one on each core, and whose client has one shared worker."""
    link = Link(memif_pair("dedicated"))
    for config in link.configs:
        (device,) = config["device"]
        device["queues"] = queues
        del config["runtime"]
    link.configs[0]["runtime"] = {"progress": "dedicated", "lcores": [str(SERVER_CORE), str(CLIENT_CORE)]}
    return link


def transfer(link, *options, timeout=80):
    """Runs verbs_check, whose ends sleep while they wait, because two polling lcores occupy one core each. A process
    that shares a core with an lcore may be off it for long, so the timeout is a second. Returns the server's lines and
    its last /rove/drops before the end."""
    command = [program("verbs_check"), "--events", "--timeout", "18", *options]
    port = free_port()
    server = start_server(link, command, port, "--port")
    client = start_client(link, command, port, "--port")
    drops, deadline = {}, time.monotonic() + timeout
    while client.child.poll() is None and time.monotonic() < deadline:
        try:
            drops = telemetry(server.pid, "/rove/drops")
        except OSError:  # The process has not begun, or has ended.
            pass
        time.sleep(0.05)
    check(client.child.poll() == 0, f"{client.story()}\n{server.story()}")
    server.succeed(STOPPED)
    lines = server.json()
    check(lines and all(line["operations"] > 0 for line in lines), server.story())
    return lines, drops


def handed_over(options):
    """The client sends all packets by one queue, to QPs of both workers."""
    lines, drops = transfer(two_workers(queues=2), "--qps", "4", *options.split())
    check(all(line["lost"] == 0 for line in lines), str(lines))
    check(drops["worker0"]["rx_handed_over"] > 100, str(drops))
    check(drops["worker1"]["rx_handed_over"] == 0, f"the client has sent by its second queue: {drops}")


def one_queue():
    """Uses a port with one queue. The worker that has the queue owns all QPs, and no packet is handed over."""
    _, drops = transfer(two_workers(queues=1), "--qps", "4", "--rounds", "2")
    check(all(worker["rx_handed_over"] == 0 for worker in drops.values()), str(drops))


def multicast():
    """Members of a group belong to both workers, and one worker receives the frames."""
    command = [program("verbs_multicast")]
    run_pair(two_workers(queues=2), command, command, "--port")


def other_number():
    """A memif needs the same number of queues at both ends; otherwise there is no link. net_memif 22.11 would use rings
    that do not exist."""
    link = two_workers(queues=2)
    link.configs[1]["device"][0]["queues"] = 1
    port = free_port()
    server = start_server(link, [program("verbs_check"), "--events"], port, "--port")
    client = start_client(link, [program("verbs_check"), "--events"], port, "--port")
    # The client tries to resolve its neighbour for three seconds, and then both end.
    looked_until = time.monotonic() + 1.5
    while time.monotonic() < looked_until:
        devices = telemetry(server.pid, "/rove/devices")
        check(devices["rove0"]["ready"] == 0, str(devices))
        time.sleep(0.1)
    check(client.wait(30) == 1 and "No route to host" in client.err(), client.story())


test("queues/handed-over", handed_over, "--rounds 6")
test("queues/handed-over/srq", handed_over, "--srq --verbs send,send_imm,write_imm --rounds 12")
once("queues/handed-over/uc", handed_over, "--transport uc --verbs send,send_imm,write,write_imm --depth 2 --rounds 12")
once("queues/handed-over/ud", handed_over, "--transport ud --verbs send,send_imm --sizes 64,1024 --rounds 200")
test("queues/fewer-than-workers", one_queue)
once("queues/multicast", multicast)
once("queues/other-number", other_number)
