# SPDX-License-Identifier: Apache-2.0
"""Tests rove-testpmd --mode spray: the TENT engine over two rails and over AF_XDP, the output of its prompt, every way
in which it can end, and that all sent data is accounted for."""
import pathlib
import re
import signal

from harness import (SCRATCH, STOPPED, TwoNamespaces, check, eventually, once, telemetry, test, unique)
from test_tent import rails
from test_veth import configs
from testpmd import Pair, Terminal, clean, leaves_nothing, result, wait_for_traffic, wait_until

SPRAY = ("--mode", "spray", "--size", "300000", "--slice-size", "65536")
BY_QP = ("drop_sequence", "drop_early_sync", "drop_response", "drop_length", "drop_no_receive", "drop_overload"
         )  # counted as received, too
FATES = ("lost", "drop_down", "drop_queue_full", "drop_shelf_full", "waiting")


def verified(*options, pair=None, count=301):
    """Compares every byte. The target counts the same messages."""
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = pair(["--json", target_out]) if pair else Pair(rails(), ["--json", target_out])
    run = pair.initiator(*SPRAY, "--verify", "--count", count, "--json", out, *options).succeed(30)
    clean(run)
    pair.end()
    said, theirs = result(out), result(target_out)
    check((said["errors"], said["messages"], said["verified"]) == (0, count, "every byte"), str(said))
    check(said["requests"] == {"submitted": count, "completed": count, "failed": 0, "under_way": 0}, str(said))
    check(said["transports"]["rdma"]["slices"] > 0, str(said))
    check((theirs["mode"], theirs["messages"], theirs["errors"]) == ("spray", count, 0), str(theirs))
    return said, theirs


def two_rails():
    """Runs WRITEs and READs of two priorities by two threads."""
    said, theirs = verified("--priority-mix", "high:1,low:2", "--read-share", "0.4", "--batch", "3", "--threads", "2",
                            "--depth", "7")
    high, low = (said["priorities"][name] for name in ("high", "low"))
    check(said["threads"] == 2 and "medium" not in said["priorities"], str(said))
    check(high["reads"] + high["writes"] < low["reads"] + low["writes"], str(said))
    check(0.2 < (high["reads"] + low["reads"]) / 301 < 0.6 and 0 < high["p50_us"] <= high["p99_us"] <= high["most_us"],
          str(said))
    for rail in ("rove0", "rove1"):
        # The target reads its counters later. Each packet that it sends after the initiator has read its own, such as a
        # retransmission that was acknowledged late, has an answer.
        mine, its = said["ports"][rail], theirs["ports"][rail]
        later, answers = its["rx_frames"] - mine["tx_frames"], its["tx_frames"] - mine["rx_frames"]
        check(mine["share"] > 0.05 and 0 <= later <= answers + 4, f"{said}\n{theirs}")


def options():
    """Tests a rate, the table of --stats-period, a configuration of the engine, and READs of memory that was never
    written."""
    tent = SCRATCH / f"{unique()}.toml"
    tent.write_text('[[policy]]\nname = "one"\nsegment_type = "memory"\ndevices = ["rove1"]\ntransports = ["rdma"]\n')
    pair, out = Pair(rails()), SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "spray", "--verify", "--rate", "0.2", "--duration", "1.2", "--size", "65536",
                         "--stats-period", "1", "--priority-mix", "medium:1", "--read-share", "1", "--tent", tent,
                         "--mtu", "1024", "--slice-size", "16384", "--json", out).succeed(20)
    said = result(out)
    check(said["transports"]["rdma"]["slices"] >= 3 * said["messages"], f"--slice-size: {said}")
    check(said["errors"] == 0 and 0.05 < said["goodput_gbps"] < 0.21, str(said))
    check(said["ports"]["rove1"]["share"] > 0.9, f"the policy names rove1: {said}")
    check(re.search(r"^ +medium$", run.out(), re.M) and "p99_us" in run.out(), run.story())
    pair.end()


def priority_mix():
    """Requests of a priority use QPs of that priority."""
    pair = Pair(rails())
    prompt = Terminal(pair.arguments(*SPRAY, "-i", "--auto-start", "--priority-mix", "medium:1,low:1", "--threads",
                                     "1"))
    posted = lambda: [
        sum(qp["sq_posted"] for qp in prompt.json("show qp").values() if qp["priority"] == priority)
        for priority in range(3)]
    try:
        wait_until(lambda: min(posted()[1:]) > 200, 20, "requests of both priorities")
        high, medium, low = posted()
        # The probes have priority HIGH.
        check(10 * high < min(medium, low), f"{high} of HIGH: more than the engine's own probes")
        queues = prompt.json("show tent queues")
        check([queues[name]["completed_requests"] > 0 for name in ("high", "medium", "low")] == [False, True, True],
              str(queues))
        check(re.search(r"errors +0\n", text := prompt.say("stop")), text)
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        pair.end()
    finally:
        prompt.close()


def af_xdp():
    """Uses two namespaces over veth."""
    with TwoNamespaces(2300) as namespaces:
        link = namespaces.link(configs("af_xdp"))
        verified("--read-share", "0.4",
                 pair=lambda target_options: Pair(link.configs, target_options, link.netns, link.server_host),
                 count=100)


def prompt_shows():
    """Tests `show tent ...` of a spray with a policy and slots. Without an engine it prints "no engine"."""
    pair, shared = Pair(rails()), f"/rove-test-{unique()}"
    tent = SCRATCH / f"{unique()}.toml"
    tent.write_text(
        '[[policy]]\nname = "bulk"\nsegment_type = "memory"\npriority = "low"\ntransports = ["rdma", "tcp"]\n'
        f'[transports.rdma]\nshared_quota_shm_path = "{shared}"\n')
    prompt = Terminal(pair.arguments(*SPRAY, "--interactive", "--priority-mix", "high:1,low:1", "--tent", tent))
    try:
        check("no engine" in prompt.say("show tent devices") and "no engine" in prompt.say("show tent slots --json"),
              "no engine")
        check(
            all(f"show tent {what}\n" in (text := prompt.say("show tent nonsense"))
                for what in ("devices", "policy", "queues", "slots")), text)
        check(prompt.say("start") == "", "start")
        wait_until(lambda: prompt.json("show tent queues")["low"]["completed_requests"] > 10, 20, "requests")
        devices = prompt.json("show tent devices")
        check(
            set(devices) == {"rove0", "rove1"} and all(one["completed_bytes"] > 0 for one in devices.values()),
            str(devices))
        policies = prompt.json("show tent policy")
        check(
            list(policies) == ["bulk", "default/memory", "default/file"] and
            policies["bulk"]["transports"] == "rdma, tcp" and policies["bulk"]["priority"] == "low" and
            policies["default/memory"]["transports"].endswith("rdma, shm, tcp"), str(policies))
        slots = prompt.json("show tent slots")
        check(
            slots["all"]["rotations"] > 0 and slots["all"]["high_may_send"] == 1 and
            set(slots) == {"0", "1", "2", "all"}, str(slots))
        ways, transports = prompt.json("show tent rails"), prompt.json("show tent transports")
        check(
            sum(one["write_bytes"]
                for one in ways.values()) > 0 and transports["rdma"]["slices"] > 0, f"{ways} {transports}")
        for what, word in (("devices", "ewma_bytes_per_s"), ("rails", "window_bytes"), ("policy", "bulk"),
                           ("queues", "completed_requests"), ("slots", "rotations"), ("transports", "rdma")):
            check(word in (text := prompt.say(f"show tent {what}")), text)
        check(not (unsaid := [form
                              for form in prompt.unsaid() if form.startswith("show tent")]), f"never said: {unsaid}")
        check(re.search(r"errors +0\n", text := prompt.say("stop")), text)
        check("no engine" in (text := prompt.say("show tent devices")), text)
        for thing in ("mtu 1024", "timeout 12", "retries 3", "mode rc"):
            check(prompt.say(f"set transport {thing}") == "", thing)
        check(prompt.say("start") == "", "a second start")
        wait_until(lambda: prompt.json("show tent queues")["low"]["completed_requests"] > 0, 20, "requests")
        check({(qp["mode"], qp["mtu"]) for qp in prompt.json("show qp").values()} == {("rc", 1024)},
              prompt.say("show qp"))
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        pair.end()
    finally:
        prompt.close()
        pathlib.Path("/dev/shm" + shared).unlink(missing_ok=True)


def every_frame():
    """Uses paths that lose, damage and duplicate. Each frame that one end sent arrived at the other, or is counted as
    lost, dropped or still waiting."""
    impair = {"paths": 4, "loss": 0.01, "duplicate": 0.01, "corrupt": 0.005, "reorder": 0.01}
    pair = Pair(rails(impair))
    prompt = Terminal(pair.arguments(*SPRAY, "--verify", "--interactive", "--read-share", "0.5", "--auto-start"))
    ends = {
        "initiator": lambda what: telemetry(prompt.pid, what), "target": lambda what: telemetry(pair.target.pid, what)}

    def all_accounted():
        for here, there in (("initiator", "target"), ("target", "initiator")):
            arrived = 0
            sent = ends[here]("/rove/ports")
            for rail in ("rove0", "rove1"):
                paths = ends[there](f"/rove/impair,{rail}")
                check(sent[rail]["tx_frames"] == sum(path["frames"]
                                                     for path in paths.values()), f"{here}, {rail}: {sent}\n{paths}")
                check(sum(path["lost"] for path in paths.values()) > 0, f"{rail}: nothing was lost")
                arrived += sum(path["frames"] + path["duplicated"] - sum(path[fate] for fate in FATES)
                               for path in paths.values())
            drops = ends[there]("/rove/drops")["worker0"]
            taken = ends[there]("/rove/workers")["worker0"]["rx_packets"] + sum(drops[reason] for reason in drops
                                                                                if reason not in BY_QP)
            check(arrived == taken,
                  f"{here} to {there}: {arrived} arrived, {taken} were taken or dropped: {ends[there]('/rove/drops')}")

    try:
        wait_until(lambda: prompt.json("show tent queues")["high"]["completed_requests"] > 40, 20, "requests")
        check(re.search(r"errors +0\n", text := prompt.say("stop")) and "failure" not in text, text)
        # Neither end waits for the last frames, and either process may be off its core while they are in its rings.
        eventually(all_accounted, 20)
        prompt.send("quit\n")
        check((status := prompt.wait()) == 0, f"quit: status {status}")
        pair.end()
    finally:
        prompt.close()


def ends(how):
    """Sends a signal during a spray. The run stops and settles with the target, and all submitted requests complete."""
    out = SCRATCH / f"{unique()}.json"
    pair = Pair(rails())
    run = pair.initiator(*SPRAY, "--verify", "--json", out)
    wait_for_traffic(run)
    run.child.send_signal(how)
    check(run.wait(STOPPED) == 0, run.story())
    clean(run)
    said = result(out)
    check(said["errors"] == 0 and said["requests"]["completed"] == said["requests"]["submitted"], str(said))
    pair.end()


def peer_dies():
    """Kills an initiator by SIGKILL, and the target serves the next. Then kills the target, and the initiator reports
    that and its requests in flight."""
    out = SCRATCH / f"{unique()}.json"
    pair = Pair(rails())
    run = pair.initiator(*SPRAY)
    wait_for_traffic(run)
    run.kill()
    pair.target.wait_for(lambda: "closed the connection" in pair.target.err(), 20, "word of the peer's death")
    pair.initiator(*SPRAY, "--verify", "--count", "20").succeed(20)
    run = pair.initiator(*SPRAY, "--json", out)
    wait_for_traffic(run)
    pair.target.kill()
    check(run.wait(STOPPED + 3) == 1 and "closed the connection" in run.err(), run.story())
    leaves_nothing(run)
    pair.no_sockets()
    said = result(out)
    check(said["failure"] == "the peer has closed the connection" and all(port["tx_frames"] < 1 << 40 for port in said["ports"].values()),
          str(said))
    check(said["requests"]["submitted"] > said["requests"]["completed"], str(said))


def port_stop():
    """Stops a port under load. The other port continues, and the stopped one is used again after its start. The memifs'
    sockets are files here."""
    pair = rails()
    for config in pair:
        for device in config["device"]:
            device["port"] = device["port"].replace("@", f"{SCRATCH}/")
    pair, out = Pair(pair), SCRATCH / f"{unique()}.json"
    prompt = Terminal(pair.arguments(*SPRAY, "--verify", "--interactive", "--auto-start", "--json", out))
    used = lambda: {name[-5:]: one["write_bytes"] for name, one in prompt.json("show tent rails").items()
                    if name[-11:] in ("rove0_rove0", "rove1_rove1")}
    moved = lambda rail, since: lambda: used().get(rail, 0) > since
    try:
        wait_until(moved("rove1", 10_000_000), 20, "traffic on rail 1")
        prompt.say("port stop 1")
        wait_until(moved("rove0", used()["rove0"] + 10_000_000), 20, "traffic on the other rail")
        before = used()["rove1"]
        wait_until(moved("rove0", used()["rove0"] + 10_000_000), 20, "more of it")
        check(used()["rove1"] == before, "a stopped port carries something")
        prompt.say("port start 1")
        wait_until(moved("rove1", before + 1_000_000), 20, "traffic on rail 1 again")
        text = prompt.say("stop")
        said = result(out)
        check(
            said["errors"] == said["requests"]["failed"] == said["requests"]["under_way"] == 0 and
            "failure" not in said, text)
        prompt.send("\x03")
        check((status := prompt.wait()) == 0, f"Ctrl-C: status {status}")
        pair.end()
    finally:
        prompt.close()


test("testpmd/spray/two-rails", two_rails, quick=True)
once("testpmd/spray/options", options, alone=True)
once("testpmd/spray/priority-mix", priority_mix)
once("testpmd/spray/af_xdp", af_xdp)
once("testpmd/spray/prompt", prompt_shows)
test("testpmd/spray/every-frame", every_frame)
once("testpmd/spray/ctrl-c", ends, signal.SIGINT)
once("testpmd/spray/sigterm", ends, signal.SIGTERM)
test("testpmd/spray/peer-dies", peer_dies)
once("testpmd/spray/port-stop", port_stop)
