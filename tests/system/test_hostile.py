# SPDX-License-Identifier: Apache-2.0
"""A million mutated golden captures at live QPs: no crash, no sanitizer report, no wrong byte, everything counted by reason."""
from harness import (BUILD, CLIENT_CORE, ROOT, SANITIZED_BUILD, SERVER_CORE, Process, Skip, check, device_arguments, memif_pair, program, telemetry,
                     once)

ATTACKER_MAC = "02:00:00:00:66:66"
VICTIM_MAC = "02:00:00:00:11:11"
# Drops of packets that had reached a QP, and that are among its packets too; and of frames that were to be sent.
IN_QPS = ("drop_qkey", "drop_sequence", "drop_early_sync", "drop_response", "drop_length", "drop_no_receive", "drop_overload",
          "tx_drop_link_down", "tx_drop_stalled", "tx_no_mbuf")
ADDRESSES = {"ipv4": (1, "10.0.0.2"), "ipv6": (2, "fd00::2")}     # GID index, attacker's address


def gid(address):
    if "." in address:
        return "0" * 20 + "ffff" + "".join(f"{int(part):02x}" for part in address.split("."))
    head, _, tail = address.partition("::")
    return head.rjust(4, "0") + tail.rjust(28, "0")


def counters(pid):
    """Every counter of rove's telemetry, by "command/path/name"."""
    found = {}

    def walk(path, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{path}/{key}", inner)
        elif isinstance(value, int):
            found[path] = value

    for command in telemetry(pid, "/"):
        if not command.startswith("/rove"):
            continue
        answer = telemetry(pid, command)
        walk(command, answer)
        if isinstance(answer, list):    # a list of things to ask about one by one
            for item in answer:
                walk(f"{command},{item}", telemetry(pid, f"{command},{item}"))
    return found


def storm(family, count, build, seed):
    if build != BUILD and not program("verbs_victim", build).exists():
        raise Skip("no sanitizer build: run tests/run without --system or --quick first")
    index, address = ADDRESSES[family]
    config = memif_pair()[0]
    (device,) = config["device"]
    device["mac"] = VICTIM_MAC
    device["neighbour"] = [{"address": address, "mac": ATTACKER_MAC}]
    _, arguments = device_arguments(device["port"])
    # An instrumented program finds a preloaded library in front of its run-time, which is how it must be here.
    env = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:exitcode=99", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99"}
    victim = Process([program("verbs_victim", build), gid(address), "--gid-index", index], config, SERVER_CORE, env=env, build=build, stdin=True)
    (target,) = victim.wait_for(victim.json, 30, "its addresses")
    before = counters(victim.pid)
    captures = sorted((ROOT / "tests" / "data").glob("*.pcap"))
    sender = Process([program("hostile_sender"), *captures, "--socket", "@" + arguments["socket"], "--count", count, "--seed", seed,
                      "--src-mac", ATTACKER_MAC, "--dst-mac", VICTIM_MAC, "--src-gid", gid(address), "--dst-gid", target["gid"],
                      "--rc-qpn", target["rc_qpn"], "--ud-qpn", target["ud_qpn"], "--psn", target["psn"], "--qkey", target["qkey"],
                      "--block", target["block"], "--keys", ",".join(map(str, target["keys"])), "--vas", ",".join(map(str, target["vas"]))],
                     core=CLIENT_CORE)
    sender.succeed(150)
    check(victim.child.poll() is None, f"the victim is gone\n{victim.story()}")
    after = counters(victim.pid)
    victim.child.stdin.close()
    victim.succeed(20)
    check("runtime error" not in victim.err() and "Sanitizer" not in victim.err(), victim.story())

    (sent,) = sender.json()
    end = victim.json()[-1]
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    drops = {name: value for name, value in grown.items() if "drop" in name}
    check(end["completions"] > 0 and sent["received"] > 0, f"nothing got through to the QP: {end} {sent} {grown}")
    # Damaged bytes are half of what was sent, and each is counted under its reason.
    check(len(drops) >= 8, f"few reasons: {drops}")
    check(sum(drops.values()) >= count * 0.3, f"few drops of {count}: {drops}")

    # Every frame is in one of these; an ACK that comes to a QP between RTR and RTS in two.
    before_qps = sum(value for name, value in grown.items() if name.startswith("/rove/drops/") and not name.endswith(IN_QPS))
    at_qps = sum(grown.get(f"/rove/workers/worker0/{name}", 0) for name in ("rx_packets", "rx_cnp"))
    accounted = before_qps + at_qps
    check(count <= accounted <= count * 1.001, f"{accounted} frames accounted for, {count} sent: {grown}")


for family in ADDRESSES:
    once(f"hostile/{family}", storm, family, 1_000_000, BUILD, 1, timeout=200)
    once(f"hostile/{family}/asan", storm, family, 1_000_000, SANITIZED_BUILD, 2, timeout=200)
once("hostile/quick", storm, "ipv4", 50_000, BUILD, 3, quick=True)
