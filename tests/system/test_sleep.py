# SPDX-License-Identifier: Apache-2.0
"""Tests programs that sleep for their completions, in every call in which a program can sleep. The sleeping thread
receives the frames itself where rove intercepts the call. Elsewhere the progress thread does."""
import os
import pathlib
import re
import time

from harness import (CLIENT_CORE, SERVER_CORE, STOPPED, Process, check, free_port, memif_link, once, program, run_pair,
                     start_client, start_server)
from test_mesh import link as mesh_link
from test_udp import loopback

CALLS = ("get", "poll", "ppoll", "select", "pselect", "epoll", "epoll_pwait", "epoll_pwait2", "epoll-set",
         "system-call")
IDLE_S = 5


def sleepers(link, call, connections, count, *options):
    command = [program("sleepers"), "--sleep-in", call, "--connections", str(connections), "--count", str(count),
               *map(str, options)]
    run_pair(link, command, command, "--port")


for call in CALLS:
    once(f"sleep/mesh/{call}", lambda call=call: sleepers(mesh_link(), call, 8, 2000), quick=call in ("get", "epoll"))
for call in ("get", "epoll", "system-call"):
    once(f"sleep/udp/{call}", lambda call=call: sleepers(loopback(), call, 8, 1000))
    once(f"sleep/memif/{call}", lambda call=call: sleepers(memif_link(), call, 8, 1000))
# Both compute between two messages, for as long as the progress thread sleeps and longer.
once("sleep/mesh/pauses", lambda: sleepers(mesh_link(), "epoll", 1, 200, "--pause-us", 5000))


def begins_late():
    """While the server computes, its progress thread sleeps on the doorbells, and still does so when the server waits
    for the next request. The request wakes both threads. The progress thread gets the core first, and must receive the
    frames of the doorbells that it resets."""
    link = mesh_link()
    port = free_port()
    command = [program("sleepers"), "--count", 50, "--pause-us"]
    server = start_server(link, [*command, 20000], port, "--port")
    client = start_client(link, [*command, 40000], port, "--port")
    server.wait_for(lambda: "rove" in [name for name, _ in wakeups(server.pid)], 20, "background thread")
    os.setpriority(os.PRIO_PROCESS, server.pid, 10)  # the waiting thread
    client.succeed(100)
    server.succeed(STOPPED)
    slowest_us = float(re.search(r"p99_us=(\S+)", client.out()).group(1))
    check(slowest_us < 300_000, f"a request waited until it was sent again: {client.out()}")


once("sleep/mesh/begins-late", begins_late)


def wakeups(pid):
    """Returns how often each thread of a process went to sleep."""
    counts = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        words = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        counts[words["Name"].strip(), task.name] = int(words["voluntary_ctxt_switches"])
    return counts


def dedicated(link):
    """Returns the same link with a dedicated worker for each process."""
    for config, core in zip(link.configs, (SERVER_CORE, CLIENT_CORE)):
        config["runtime"] = {"progress": "dedicated", "lcores": [str(core)]}
    return link


# Each message finds both workers asleep.
once("sleep/mesh/dedicated", lambda: sleepers(dedicated(mesh_link()), "get", 1, 100, "--pause-us", 15000))
once("sleep/udp/dedicated", lambda: sleepers(dedicated(loopback()), "get", 1, 100, "--pause-us", 15000))
once("sleep/memif/dedicated", lambda: sleepers(dedicated(memif_link()), "get", 1, 100, "--pause-us", 15000))


def cpu_s(pid):
    """Returns the CPU time of all threads of a process in seconds."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


IDLE = {"get": ("get", mesh_link), "epoll": ("epoll", mesh_link), "system-call": ("system-call", mesh_link),
        "dedicated": ("get", lambda: dedicated(mesh_link()))}
_idle_faults = {}   # faults by name, once they have been measured


def slept(link, call):
    """Returns a server and a client that have exchanged messages and now wait for more."""
    port = free_port()
    command = [program("sleepers"), "--sleep-in", call, "--port", port]
    server = Process([*command, "--count", 1001], link.configs[0], SERVER_CORE)
    server.wait_listening(port)
    client = Process([*command, "--count", 1000, "--stay-s", 60, "127.0.0.1"], link.configs[1], CLIENT_CORE)
    client.wait_for(lambda: "sleepers over" in client.out(), 30, "result")
    return server, client


def measure_idle():
    """Yields the name and the fault for each fault of the pairs in IDLE. All pairs are idle at the same time."""
    pairs = {name: slept(link(), call) for name, (call, link) in IDLE.items()}
    time.sleep(2)  # The last retransmission timer must be cancelled and the sleeps must become long first.
    processes = [process for pair in pairs.values() for process in pair]
    before = {process: wakeups(process.pid) for process in processes}
    used_s = {process: cpu_s(process.pid) for process in processes}
    time.sleep(IDLE_S)
    after = {process: wakeups(process.pid) for process in processes}
    used_s = {process: cpu_s(process.pid) - used_s[process] for process in processes}
    for name, pair in pairs.items():
        for process in pair:
            if used_s[process] > 0.005 * IDLE_S:
                yield name, f"{process.name} used {used_s[process] / IDLE_S:.2%} of a core"
            for thread, count in after[process].items():
                if (woke := count - before[process].get(thread, 0)) > 4 * IDLE_S:
                    yield name, f"{process.name}: thread {thread} woke up {woke} times in {IDLE_S} s"
            process.kill()


def idle(name):
    """While no data moves, no thread polls, or wakes up more often than its housekeeping needs."""
    if not _idle_faults:
        faults = list(measure_idle())
        _idle_faults.update({name: [fault for faulty, fault in faults if faulty == name] for name in IDLE})
    check(not _idle_faults[name], "\n".join(_idle_faults[name]))


for name in IDLE:
    once(f"sleep/idle/{name}", idle, name, alone=True)
