# SPDX-License-Identifier: Apache-2.0
"""Checks that DPDK's own script shows the counters of a rove process."""
import json
import subprocess

from harness import check, free_port, memif_link, once, program, start_client, start_server, telemetry


def asked(pid, *commands):
    """Returns dpdk-telemetry.py's answers by command."""
    done = subprocess.run(["dpdk-telemetry.py", "-f", f"rove-{pid}"], input="\n".join([*commands, "quit"]) + "\n",
                          capture_output=True, text=True, timeout=20)
    check(done.returncode == 0, done.stdout + done.stderr)
    answers, decoder, rest = {}, json.JSONDecoder(), done.stdout
    while (at := rest.find("{")) >= 0:
        answer, end = decoder.raw_decode(rest[at:])
        answers |= answer
        rest = rest[at + end:]
    return answers


def script():
    link = memif_link()
    port = free_port()
    command = [program("verbs_check"), "--verbs", "write", "--sizes", "65536", "--rounds", "1000000"]
    server = start_server(link, command, port, "--port")
    client = start_client(link, command, port, "--port")
    server.wait_for(lambda: telemetry(server.pid, "/rove/workers")["worker0"]["rx_packets"], 20, "traffic")
    first = asked(client.pid, "/rove/devices", "/rove/ports", "/rove/workers", "/rove/drops", "/rove/qps",
                  "/rove/neighbours")
    check("rove0" in first["/rove/devices"] and "rove0" in first["/rove/ports"], str(first))
    check("worker0" in first["/rove/workers"] and "worker0" in first["/rove/drops"], str(first))
    (qpn,) = first["/rove/qps"]
    answers = asked(client.pid, f"/rove/qp,{qpn}", "/rove/workers")
    check(answers["/rove/qp"]["sq_completed"] > 0, str(answers))
    check(answers["/rove/workers"]["worker0"]["tx_packets"] > first["/rove/workers"]["worker0"]["tx_packets"] > 0,
          f"{first} {answers}")
    client.stop()
    server.stop()


once("telemetry/script", script, quick=True)
