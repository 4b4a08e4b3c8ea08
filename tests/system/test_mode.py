# SPDX-License-Identifier: Apache-2.0
"""Tests which mode two hosts choose by transport.mode. Telemetry shows it while a program runs."""
from harness import check, free_port, memif_link, once, start_client, start_server, telemetry

COMMAND = ["ib_write_bw", "-F", "-D", "60"]     # It runs until its mode was read.


def modes(a, b):
    link = memif_link()
    for config, mode in zip(link.configs, (a, b)):
        config["transport"] = {"mode": mode}
    port = free_port()
    return start_server(link, COMMAND, port), start_client(link, COMMAND, port)


def chosen(pid):
    """Returns the mode of the process's only QP once it is connected, or None before that."""
    try:
        numbers = telemetry(pid, "/rove/qps")
        qp = telemetry(pid, f"/rove/qp,{numbers[0]}") if numbers else {}
    except OSError:
        return None
    return qp["mode"] if qp.get("state") in ("RTR", "RTS") else None


def agree(a, b, expected):
    server, client = modes(a, b)
    for process in (server, client):
        mode = process.wait_for(lambda: chosen(process.pid), 20, "connected QP")
        check(mode == expected, f"{a} and {b}: {process.name} speaks {mode}, not {expected}")
        check(process.child.poll() is None, process.story())
    client.stop()
    server.stop()


def disagree(a, b):
    """A process that requires mp cannot connect to a peer that does not support it."""
    for process in modes(a, b):
        check(process.wait(20) != 0, f"succeeded\n{process.story()}")


for a, b, expected in (("auto", "auto", "mp"), ("mp", "mp", "mp"), ("rc", "rc", "rc"), ("mp", "auto", "mp"),
                       ("auto", "rc", "rc"), ("rc", "auto", "rc")):
    once(f"mode/{a}-and-{b}", agree, a, b, expected, quick=a == b)
once("mode/mp-and-rc", disagree, "mp", "rc")
