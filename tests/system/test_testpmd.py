# SPDX-License-Identifier: Apache-2.0
"""Tests rove-testpmd: each mode with verification, and every option, right and wrong. The next two files test its
prompt and its ends."""
import json
import pathlib
import re
import socket

import harness
from harness import (ROOT, SCRATCH, Process, Skip, TwoNamespaces, check, memif_pair, once, shipped, telemetry, test,
                     unique, write_toml)
from testpmd import TESTPMD, Pair, Terminal, result, verified, wait_until

for name in ("write", "read", "send"):
    test(f"testpmd/verify/{name}", verified, name, "--size", "20000", "--qps", "3", "--batch", "4", quick=True)
test("testpmd/verify/atomic", verified, "atomic", "--qps", "2")


def gid_index():
    """Uses IPv6 at both ends by --gid-index. If only one end uses it, both report the error."""
    pair = Pair(target_options=["--gid-index", "2"])
    pair.initiator("--gid-index", "2", "--mode", "write", "--verify", "--count", "50").succeed(20)
    run = pair.initiator("--mode", "write", "--count", "50")
    check(run.wait(20) == 1 and "--gid-index: IPv4 at one end, IPv6 at the other" in run.err(), run.story())
    pair.initiator("--gid-index", "2", "--mode", "read", "--count", "50").succeed(20)


once("testpmd/gid-index", gid_index)


def impaired():
    """Uses the paths of config/impaired-*.toml, except for the dead one, in mp. Lost packets are retransmitted and
    counted by cause."""
    configs = memif_pair()
    for config, name in zip(configs, ("impaired-a", "impaired-b")):
        config["device"][0]["impair"] = shipped(name)["device"][0]["impair"]
        config["device"][0]["impair"]["path"] = [
            path for path in config["device"][0]["impair"]["path"] if "down" not in path]
    target_out = SCRATCH / f"{unique()}.json"
    said, _ = verified("write", count=200, pair=Pair(configs, ["--json", target_out]))
    resent = said["retransmissions"]
    check(resent["nack"] + resent["inferred"] + resent["early"] + resent["timeout"] > 0, str(said))
    degrees = result(target_out)["out_of_order_degree"]
    check(sum(count for degree, count in degrees.items() if degree != "0") > 0, str(degrees))


test("testpmd/impaired", impaired, modes=("mp",))


def causes(mode):
    """Lost packets are retransmitted. The result has the causes, and in rc mode each retransmission has one cause."""
    target_out = SCRATCH / f"{unique()}.json"
    said, _ = verified(mode, "--size", "20000", count=200, pair=Pair(memif_pair(impair={"loss": 0.02}),
                                                                     ["--json", target_out]))
    resent = [end["retransmissions"] for end in (said, result(target_out))]
    for one in resent:
        check(
            harness.mode == "mp" or one["packets"] == sum(one[cause]
                                                          for cause in ("nack", "rnr", "inferred", "early", "timeout")),
            str(one))
    check(
        sum(one["packets"] for one in resent) > 0 and sum(one["nack"] + one["inferred"] for one in resent) > 0,
        str(resent))


for name in ("send", "read"):
    test(f"testpmd/causes/{name}", causes, name)


def options():
    """Tests rate, duration, statistics, priority, two runs against one target, and a capture that tshark reads."""
    from test_dissector import dissect
    pair = Pair()
    capture, out = SCRATCH / f"{unique()}.pcapng", SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "write", "--rate", "0.2", "--duration", "2.2", "--size", "4096", "--stats-period",
                         "1", "--priority", "5", "--mtu", "1024", "--json", out, "--depth", "32").succeed(20)
    said = result(out)
    check(2 < said["seconds"] < 4 and 0.05 < said["goodput_gbps"] < 0.21, str(said))
    check(run.out().count("tx_frames_per_s") == 2 and said["depth"] == 32, run.story())
    check(said["packets_per_s"] > 4 * said["messages_per_s"], f"--mtu: {said}")
    run = pair.initiator("--mode", "send", "--count", "20", "--size", "1000", "--pcap", capture).succeed(20)
    pair.end()
    try:
        packets = dissect(capture)
    except Skip:
        return
    text = json.dumps(packets)
    check("rove.hello" in text and text.count('"mp SEND Only') == 0 and "rove.mpaeth.aack" in text,
          f"{len(packets)} packets")
    sends = [packet for packet in packets if packet.get("rove", {}).get("rove.opcode") == "0xe4"]
    check(len({packet["rove"]["rove.psn"] for packet in sends}) == 20, f"{len(sends)} SENDs captured")


test("testpmd/options", options, modes=("mp",), alone=True)


def path_table():
    """With --stats-period there is a line for each path of a port, at most eight of them, with the lossy paths first.
    In rc mode there is no such table."""
    pair = Pair(memif_pair(impair={"loss": 0.05}))
    seconds = "3.5" if harness.mode == "mp" else "1.2"
    run = pair.initiator("--mode", "write", "--duration", seconds, "--stats-period", "1", "--size", "8192", "--qps",
                         "16").succeed(20)
    pair.end()
    tables = [text.partition("impaired paths to rove0\n")[0] for text in run.out().split("by path, from rove0\n")[1:]]
    if harness.mode == "rc":
        check(not tables, run.story())
        return
    check(len(tables) == 3, run.story())
    losses = 0
    for table in tables:
        head, *lines = table.splitlines()
        names, rows = head.split(), [
            re.fullmatch(r"  (\d+|others \(\d+\)) +(.*)", line) for line in lines if line.startswith("  ")]
        check(len(rows) == 9 and all(rows), run.story())
        *paths, others = [dict(zip(names, row[2].split())) for row in rows]
        check(all(49152 <= int(row[1]) for row in rows[:-1]) and rows[-1][1].startswith("others"), run.story())
        check(0 < sum(int(path["packets"]) for path in (*paths, others)) <= 16 * 256, run.story())
        if "lost" not in names:     # A column of zeros is not shown, because none of the last packets was lost.
            continue
        lost = [int(path["lost"]) for path in paths]
        check(lost == sorted(lost, reverse=True) and lost[0] > 0 and paths[0]["state"] in ("lossy", "dead"),
              run.story())
        losses += 1
    check(losses != 0, run.story())


test("testpmd/path-table", path_table)


def refreshed_table():
    """On a terminal --stats-period draws its table over the previous one."""
    pair, clear = Pair(), "\x1b[2J\x1b[H"
    screen = Terminal(pair.arguments("--mode", "write", "--rate", "0.1", "--size", "4096", "--stats-period", "1"),
                      clear)
    try:
        table = screen.until(clear)
        check(
            all(word in table
                for word in ("ports, the last ", "rove0", "tx_frames_per_s", "since the start", "p99.99")), table)
        screen.send("\x03")     # This is a signal, because the terminal is not in raw mode.
        check((status := screen.wait()) == 0, f"Ctrl-C: status {status}")
        pair.end()
    finally:
        screen.close()


once("testpmd/refreshed-table", refreshed_table)


def priority():
    """The option --priority sets the service level of the QPs of both ends. It determines the worker's ring in which
    they wait, and on a VLAN the PCP of all their frames."""
    from test_dissector import dissect
    configs = memif_pair()
    for config in configs:
        config["device"][0]["vlan"] = 100
    pair, captures = Pair(configs), {}
    for level, ring in ((5, 0), (1, 2)):
        captures[level] = SCRATCH / f"{unique()}.pcapng"
        prompt = Terminal(
            pair.arguments("--mode", "write", "--priority", level, "--pcap", captures[level], "-i", "--auto-start",
                           "--size", "4096", "--rate", "0.005"))
        try:
            wait_until(lambda: prompt.json("show worker")["worker0"]["rx_packets"] > 10, 20, "traffic")
            (here,), (qpn,) = prompt.json("show qp").values(), telemetry(pair.target.pid, "/rove/qps")
            there = telemetry(pair.target.pid, f"/rove/qp,{qpn}")
            check((here["priority"], there["priority"]) == (ring, ring), f"--priority {level}: {here} {there}")
            check(re.search(r"errors +0\n", text := prompt.say("stop")), text)
            prompt.send("quit\n")
            check((status := prompt.wait()) == 0, f"quit: status {status}")
        finally:
            prompt.close()
    pair.end()
    for level, capture in captures.items():
        seen = {(packet["eth"]["eth.dst"], packet["vlan"]["vlan.priority"]) for packet in dissect(capture)
                if "udp" in packet}
        check(len(seen) == 2 and {pcp for _, pcp in seen} == {str(level)}, f"--priority {level}: {seen}")


test("testpmd/priority", priority)


def live_interface():
    """Follows hardware.md: runs scripts/prepare-af-xdp for a kernel interface, uses config/af_xdp-nic.toml on it, and
    runs the commands that the script prints to undo it."""
    with TwoNamespaces(1500) as namespaces:
        state = lambda name: [
            (name, key, Process(["cat", f"/sys/class/net/data/{key}"], netns=name).succeed(20).out().strip())
            for key in ("mtu", "napi_defer_hard_irqs", "gro_flush_timeout")]
        before = [state(name) for name in namespaces.names]
        prepared = [
            Process([ROOT / "scripts" / "prepare-af-xdp", "data"], netns=name).succeed(20).out()
            for name in namespaces.names]
        check(all("data is ready: iface=data,start_queue=0,queue_count=1" in text for text in prepared), str(prepared))
        configs = [shipped("af_xdp-nic"), shipped("af_xdp-nic")]
        for end, config in enumerate(configs, start=1):
            (device,) = config["device"]
            device["port"] = device["port"].replace("iface=eth1", "iface=data")
            device["addresses"] = [f"192.168.10.{end}/24"]
        verified("write", "--size", "20000", pair=Pair(configs, netns=namespaces.names, host="192.0.2.1"))
        for name, text in zip(namespaces.names, prepared):
            Process(["sh", "-ec", text.partition("To undo:\n")[2]], netns=name).succeed(20)
        check(before == [state(name) for name in namespaces.names], f"not undone: {before}")


once("testpmd/live-interface", live_interface)


def refused(arguments, status, *words):
    run = Process([TESTPMD, *arguments])
    check(run.wait(20) == status, run.story())
    lines = [line for line in run.err().splitlines() if all(word in line for word in words)]
    check(len(lines) == 1, f"not one line with {words}\n{run.story()}")


def wrong_options():
    config = write_toml(memif_pair()[0])
    write = ["--", "--config", config, "--mode", "write", "--peer", "127.0.0.1"]
    for option, value in (("--size", "0"), ("--qps", "0"), ("--qps", "1025"), ("--depth", "0"), ("--batch", "17"),
                          ("--mtu", "1500"), ("--priority", "8"), ("--rate", "0"), ("--rate", "nan"),
                          ("--duration", "-1"), ("--duration",
                                                 "nan"), ("--count", "0"), ("--count", "-5"), ("--stats-period", "0"),
                          ("--tcp-port", "70000"), ("--gid-index", "-1"), ("--nonsense", "1"), ("--cmdline-file",
                                                                                                "/nonexistent")):
        refused([*write, option, value], 2, option.strip("-"))
    for option in ("--json", "--pcap", "--cmdline-file", "--priority-mix"):
        refused([*write, option, ""], 2, f"{option}: is empty")
        refused([*write, f"{option}=", "--verify"], 2, f"{option}: is empty")
    for option in ("--config", "--mode", "--peer", "--size", "--rate", "--tent"):
        refused(["--", option, ""], 2, option)
    refused([*write, "--size", "1000000", "--depth", "1000"], 2, "512 MiB")
    refused(["--", "--config", config, "--mode", "fly"], 2, "--mode", "fly")
    spray = ["--", "--config", config, "--mode", "spray", "--peer", "127.0.0.1"]
    for option, value in (("--threads", "0"), ("--threads", "65"), ("--slice-size", "1"), ("--read-share", "2"),
                          ("--read-share", "nan"), ("--tent", "/nonexistent"), ("--priority-mix", "urgent:1"),
                          ("--priority-mix", "high"), ("--priority-mix", "high:"), ("--priority-mix", "low:-1"),
                          ("--priority-mix", "high:0"), ("--priority-mix", "high:1,"), ("--priority-mix",
                                                                                        "high:1,,low:1"),
                          ("--priority-mix", "high:1,low:2,high:0"), ("--priority-mix",
                                                                      ",high:1"), ("--qps", "2"), ("--priority", "5")):
        refused([*spray, option, value], 2, option)
    of_spray = (("--threads", "2"), ("--slice-size", "65536"), ("--read-share", "1"), ("--priority-mix", "low:1"))
    for option, value in (*of_spray, ("--tent", config)):
        refused([*write, option, value], 2, f"{option}: not of --mode write")
    for option, *value in (*of_spray, ("--size", "8"), ("--qps", "2"), ("--depth", "2"), ("--batch", "2"),
                           ("--mtu", "1024"), ("--duration", "1"), ("--count", "1"), ("--rate", "1"),
                           ("--priority", "1"), ("--verify", ), ("--auto-start", )):
        refused(["--", "--config", config, option, *value], 2, f"{option}: not of --mode target")
    refused(["--", "--config", config, "--mode", "write"], 2, "--peer")
    refused(["--", "--config", config, "--peer", "here"], 2, "--peer")
    refused(["--", "--config", "/nonexistent.toml"], 2, "/nonexistent.toml")
    if not pathlib.Path("/etc/rove/rove.toml").exists():
        refused(["--"], 2, "no --config, and neither ./rove.toml")
    default = SCRATCH / "rove.toml"  # the working directory of a Process
    config.rename(default)
    refused(["--", "--gid-index", "200"], 1, "--gid-index")
    default.rename(config)
    refused(["--no-such-eal-option", "--", "--config", config], 1, "no-such-eal-option", "EAL did not start")
    refused(["nonsense", "--", "--config", config], 1, "'nonsense' is no option of DPDK's EAL")
    refused(["--", "--config", config, "--gid-index", "200"], 1, "--gid-index")
    refused(["--log-level=lib.eal:debug", "--", "--config", config, "--gid-index", "200"], 1,
            "EAL: Detected NUMA nodes")
    refused(["--", "--config", config, "--json", "/nonexistent/x"], 1, "--json")
    refused([*write[:-1], "no such host", "--count", "1"], 1, "peer no such host")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(["--", "--config", config, "--tcp-port", taken.getsockname()[1]], 1,
                f"TCP port {taken.getsockname()[1]}")
    refused(["--", "--config", config, "--pcap", "/nonexistent/x"], 1, "--pcap")
    refused(["--", "--config", config, "--pcap=/nonexistent/x="], 1, "--pcap")  # not empty
    bad = SCRATCH / f"{unique()}.toml"
    bad.write_text('[[device]]\nport = "net_null0"\naddresses = ["10.0.0.1/24"]\nmtu = 7\n')
    refused(["--", "--config", bad], 1, "device[0].mtu", f"{bad}:4")
    for wrong, word in (("[policy", ""), ("\nnonsense = 1", "nonsense"), ("\ntransports.rdma.workers.block_size = 1",
                                                                          "block_size"),
                        ('[[policy]]\nname = "a"\nsegment_type = "memory"\ntransports = ["rdma"]\ndevices = ["rove1"]',
                         'got "rove1", allowed rove0')):
        tent = SCRATCH / f"{unique()}.toml"
        tent.write_text(wrong)
        for arguments in (spray, ["--", "--config", config]):
            refused([*arguments, "--tent", tent], 1, f"--tent: {tent}:{1 + wrong.count(chr(10))}", word)
    help = Process([TESTPMD, "--help"]).succeed(20).out()
    check(all(word in help for word in ("--verify", "--stats-period", "--cmdline-file", "EAL")), help)
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "system").glob("*.py"))
    untested = {option for option in re.findall("--[a-z][a-z-]+", help) if f'"{option}"' not in tests}
    check(not untested, f"no test uses {untested}")


once("testpmd/wrong-options", wrong_options, quick=True)


def command_file():
    """Runs commands of a file. The first that is wrong or fails is named, and ends the program and the current run."""
    pair = Pair()
    commands = SCRATCH / f"{unique()}.cmds"
    commands.write_text("# first a look\nshow port info --json\n\nset transport mode rc\nstart   # now\n")
    run = pair.initiator("--mode", "read", "--verify", "--count", "50", "--cmdline-file", commands).succeed(20)
    check('"rove0":{' in run.out() and re.search(r"errors +0\n", run.out()), run.story())
    for wrong, why in (("nonsense # no", "not a command; possible:"), ("set impair rove9 all loss=1",
                                                                       "possible: rove0"), ("start", "it is running")):
        commands.write_text(f"start\n{wrong}\nshow port info --json\n")
        run = pair.initiator("--mode", "write", "--verify", "--cmdline-file", commands)
        check(run.wait(20) == 1, run.story())
        lines = [
            line for line in run.err().splitlines()
            if f"--cmdline-file: {commands}:2: '{wrong.partition('#')[0]}': " in line]
        check(len(lines) == 1 and why in lines[0], run.story())
        check('"rove0":{' not in run.out() and re.search(r"errors +0\n", run.out()), run.story())
    pair.end()


once("testpmd/cmdline-file", command_file)
