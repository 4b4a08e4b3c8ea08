# SPDX-License-Identifier: Apache-2.0
"""Tests every command of rove-testpmd's prompt through a pseudo-terminal."""
import json
import re
import signal
import time

from harness import (SCRATCH, SERVER_CORE, STOPPED, Process, check, free_port, memif_pair, once, telemetry, test,
                     unique, write_toml)
from testpmd import TESTPMD, Pair, Terminal, balanced, wait_until


def every_command():
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    prompt = Terminal(pair.arguments("--mode", "write", "--verify", "--interactive", "--size", "8192", "--json", out))
    try:
        text = prompt.say("help")
        check(all(word in text for word in ("show paths <number>", "port stop#start", "dump <number>")), text)
        prompt.send("sho\tpo\tst\t\n")
        check("rove0" in prompt.until("rove> "), "completion")
        prompt.send("show ?")
        text = prompt.until("rove> ")
        check("neighbours" in text, f"'?' says {text}")
        prompt.say("")
        for wrong, possible in (("nonsense", "show port info"), ("show nonsense", "show worker"),
                                ("port", "port stop#start <number>"), ("show qp 99999", "none: nothing is running"),
                                ("dump x", "dump <number>"), ("dump 1", "no QP"), ("show paths 1", "no QP"),
                                ("set impair rove9 all loss=1", "rove0"), ("set impair rove0 7 loss=1", "allowed all"),
                                ("set impair rove0 all loss=2",
                                 "allowed"), ("set transport mode tcp",
                                              "auto, rc, mp"), ("set transport mtu 7",
                                                                "4096"), ("set transport timeout 32",
                                                                          "31"), ("set transport retries 8", "7"),
                                ("port stop 1", "possible: 0"), ("port start 1",
                                                                 "possible: 0"), ("stop", "nothing is running")):
            check(possible in (text := prompt.say(wrong)), f"{wrong}: {text}")
        for thing in ("timeout 17", "retries 6"):  # A QP gives up after 4 s, which is longer than a path is down here.
            check(prompt.say(f"set transport {thing}") == "", thing)
        for mode in ("rc", "mp"):
            check(prompt.say(f"set transport mode {mode}") == "", "set transport")
            check(prompt.say("start") == "", "start")
            check("stop ends it" in prompt.say("start"), "a second start")
            wait_until(lambda: prompt.json("show worker")["worker0"]["tx_packets"] > 50, 20, "traffic")
            (qpn, qp), = prompt.json("show qp").items()
            check(qp["state"] == "RTS" and qp["mode"] == mode, str(qp))
            check(prompt.json(f"show qp {qpn}")["mode"] == mode, "show qp")
            check("remote_gid" in prompt.say(f"show qp {qpn}") and qpn in prompt.say("show qp"), "show qp as a table")
            paths = prompt.json(f"show paths {qpn}")
            check(set(paths) == ({"requests", "responses"} if mode == "mp" else {"requests"}), str(paths))
            check("una_psn" in prompt.say(f"dump {qpn}"), "dump")
            if mode == "mp":
                requests = lambda: prompt.json(f"show paths {qpn}")["requests"].values()
                wait_until(lambda: any(path["state"] == "good" for path in requests()), 20, "a good path")
                for harm, state, column in (("mark=1", "congested", "marked"), ("mark=0,loss=0.3", "lossy", "lost")):
                    telemetry(pair.target.pid, f"/rove/impair,rove0,all,{harm}")
                    wait_until(
                        lambda: any(path["state"] == state and path["packets"] and path[column]
                                    for path in requests()), 20, f"path {state}")
                telemetry(pair.target.pid, "/rove/impair,rove0,all,loss=0")
                check(prompt.json("show reorder")["worker0"]["marked_acks"] > 0, "marked_acks")
                check(
                    "new_packets" in prompt.say("show reorder") and
                    prompt.json("show reorder")["worker0"]["new_packets"] > 0, "show reorder")
            else:
                (port, path), = paths["requests"].items()
                check(int(port) == prompt.json(f"show qp {qpn}")["udp_src"] and "on_their_way" in path, str(paths))
                state = lambda: prompt.json(f"show paths {qpn}")["requests"][port]["state"]
                wait_until(lambda: state() == "good", 20, "a good path")
                wait_until(lambda: prompt.json(f"show qp {qpn}")["retries_left"] == 6, 20, "retries that were set")
                begun = time.monotonic()
                telemetry(pair.target.pid, "/rove/impair,rove0,all,down=true")
                wait_until(lambda: state() == "dead", 20, "a dead path")
                check(time.monotonic() - begun > 0.3, "an earlier timeout than was set")
                telemetry(pair.target.pid, "/rove/impair,rove0,all,down=false")
                wait_until(lambda: state() != "dead", 20, "life on the path")
                check(re.search(rf"^ +{port}$", text := prompt.say(f"show paths {qpn}"), re.M), text)
            prompt.say("clear stats")
            wait_until(lambda: prompt.json("show worker")["worker0"]["tx_packets"] > 0, 20, "traffic after clear stats")
            check("goodput_gbps" in (text := prompt.say("stop")) and re.search(r"errors +0\n", text), text)
            said = balanced(json.loads(out.read_text().splitlines()[-1]))
            check(said["messages"] < said["requests"]["completed"] and said["packets"]["in_flight"] == 0,
                  f"cleared on the way: {said}")
            prompt.say("clear stats")
            workers, ports = prompt.json("show worker")["worker0"], prompt.json("show port stats")["rove0"]
            check(workers["tx_packets"] == 0 and "lcore" in workers and ports["tx_frames"] < 10,
                  f"after clear stats: {workers} {ports}")
        for thing in ("port info", "port stats", "port xstats", "port impair", "qp", "reorder", "worker", "drops",
                      "neighbours"):
            check(prompt.say(f"show {thing}") != "" and isinstance(prompt.json(f"show {thing}"), dict), thing)
        check("10.0.0.1" in prompt.say("show neighbours"), "neighbours")
        for thing in ("info", "stats", "xstats"):
            check(
                set(prompt.json(f"show port {thing} all")) == {"rove0"} and prompt.say(f"show port {thing} all") != "",
                thing)
        check(not re.search("show port [a-z]+ all", text := prompt.say("help")), text)
        check(prompt.say("set impair rove0 all loss=0.25,delay_us=7") == "", "set impair")
        impaired = prompt.json("show port impair")["rove0"]["device"]
        check((impaired["loss"], impaired["delay_us"]) == ("0.25", "7"), str(impaired))
        for thing in ("mtu 1024", "timeout 12", "retries 3"):
            check(prompt.say(f"set transport {thing}") == "", thing)
        unsaid = [form for form in prompt.unsaid()
                  if not form.startswith("show tent")]  # tested by testpmd/spray/prompt
        check(unsaid == ["quit"], f"never said: {unsaid}")
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        pair.end()
    finally:
        prompt.close()


once("testpmd/prompt", every_command)


def prompt_of_target():
    """A target has the same prompt, but its peers start and stop the runs."""
    configs, port = [write_toml(config) for config in memif_pair()], free_port()
    prompt = Terminal([TESTPMD, "--", "--config", configs[0], "--tcp-port", port, "-i"])
    run = lambda *mode: Process([
        TESTPMD, "--", "--config", configs[1], "--tcp-port", port, "--peer", "127.0.0.1", *mode], core=SERVER_CORE)
    try:
        check("its peers start" in prompt.say("start") and "nothing is running" in prompt.say("stop"),
              "a target without a peer")
        check("an initiator chooses" in prompt.say("set transport mtu 1024"), "set transport mtu")
        sender = run("--mode", "send", "--size", "4096", "--rate", "0.1")
        wait_until(lambda: [qp["rq_consumed"] > 10 for qp in prompt.json("show qp").values()] == [True], 20, "messages")
        check("the peer stops" in prompt.say("stop"), "stop")
        (qpn,) = prompt.json("show qp")
        check("una_psn" in prompt.say(f"dump {qpn}") and prompt.json("show reorder")["worker0"]["degree_0"] > 10,
              "dump, show reorder")
        sender.child.send_signal(signal.SIGTERM)
        check(sender.wait(STOPPED) == 0, sender.story())
        prompt.until("goodput_gbps")
        sprayer = run("--mode", "spray")
        received = lambda: prompt.json("show worker")["worker0"]["rx_packets"]
        prompt.say("clear stats")
        wait_until(lambda: "no engine" not in prompt.say("show tent devices") and received() > 1000, 20, "spray")
        check(list(prompt.json("show tent devices")) == ["rove0"], "show tent devices")
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        check(sprayer.wait(STOPPED) == 1 and "the peer has closed the connection" in sprayer.err(), sprayer.story())
    finally:
        prompt.close()


test("testpmd/prompt-of-target", prompt_of_target, modes=("mp",))
