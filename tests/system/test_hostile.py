# SPDX-License-Identifier: Apache-2.0
"""Sends hostile packets to live QPs: there must be no crash, no sanitizer report and no wrong byte, all packets must be
counted by reason, and answers must be small. ROVE_HOSTILE_PACKETS=10000000 sets the number of packets per test, and
ROVE_GUESS_SECONDS=600 the time in which keys are guessed."""
import os

from harness import (BUILD, CLIENT_CORE, ROOT, SANITIZED_BUILD, SERVER_CORE, STOPPED, Failure, Link, Process, Skip,
                     check, device_arguments, device_string, free_port, memif_pair, once, program, start_client,
                     start_server, telemetry, test)
from test_rdma_cm import wait_ready

PACKETS = int(os.environ.get("ROVE_HOSTILE_PACKETS", "0"))
KEYS = 2 ** 32
GUESS_SECONDS = int(os.environ.get("ROVE_GUESS_SECONDS", "2"))

ATTACKER_MAC = "02:00:00:00:66:66"
VICTIM_MAC = "02:00:00:00:11:11"
# The drops of packets that had reached a QP and are counted in its packets too, and the drops of frames that were to be
# sent.
IN_QPS = ("drop_qkey", "drop_sequence", "drop_early_sync", "drop_response", "drop_length", "drop_no_receive",
          "drop_overload", "tx_drop_link_down", "tx_drop_full", "tx_no_mbuf")
ADDRESSES = {"ipv4": (1, "10.0.0.2"), "ipv6": (2, "fd00::2")}     # GID index and the attacker's address


def gid(address):
    if "." in address:
        return "0" * 20 + "ffff" + "".join(f"{int(part):02x}" for part in address.split("."))
    head, _, tail = address.partition("::")
    return head.rjust(4, "0") + tail.rjust(28, "0")


def counters(pid):
    """Returns every counter of rove's telemetry, by "command/path/name"."""
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
        if isinstance(answer, list):    # The answer lists items that have a command each.
            for item in answer:
                walk(f"{command},{item}", telemetry(pid, f"{command},{item}"))
    return found


def victim_of(family, build=BUILD, *options, mode="auto"):
    """Starts the victim and returns it with the sender's command, which has the victim's addresses and keys."""
    if build != BUILD and not program("verbs_victim", build).exists():
        raise Skip("no sanitizer build: run tests/run without --system or --quick first")
    index, address = ADDRESSES[family]
    config = memif_pair()[0]
    config["transport"] = {"mode": mode}
    (device,) = config["device"]
    device["mac"] = VICTIM_MAC
    device["neighbour"] = [{"address": address, "mac": ATTACKER_MAC}]
    _, arguments = device_arguments(device["port"])
    # An instrumented program expects its run-time before any preloaded library, but here rove's library must come
    # first.
    env = {
        "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:exitcode=99",
        "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99"}
    victim = Process([program("verbs_victim", build),
                      gid(address), "--gid-index", index, *options], config, SERVER_CORE, env=env, build=build,
                     stdin=True)
    target, *_ = victim.wait_for(victim.json, 30, "its addresses")
    if mode != "mp":
        victim.wait_for(lambda: len(victim.json()) > 1, 30, "connected QPs")
    captures = sorted((ROOT / "tests" / "data").glob("*.pcap"))
    return victim, [
        program("hostile_sender"), *captures, "--socket", "@" + arguments["socket"], "--src-mac", ATTACKER_MAC,
        "--dst-mac", VICTIM_MAC, "--src-gid",
        gid(address), "--dst-gid", target["gid"], "--rc-qpn", target["rc_qpn"], "--ud-qpn", target["ud_qpn"], "--psn",
        target["psn"], "--peer-qpn", target["peer_qpn"], "--qkey", target["qkey"], "--block", target["block"], "--keys",
        ",".join(map(str, target["keys"])), "--vas", ",".join(map(str, target["vas"])),
        *(["--multipath"] if mode == "mp" else [])]


def attacked(victim, sender_command, timeout):
    """Returns the sender's report, the victim's final report, and the growth of the victim's counters."""
    before = counters(victim.pid)
    sender = Process(sender_command, core=CLIENT_CORE)
    sender.succeed(timeout)
    check(victim.child.poll() is None, f"the victim has ended\n{victim.story()}")
    after = counters(victim.pid)
    victim.child.stdin.close()
    victim.succeed(20)
    check("runtime error" not in victim.err() and "Sanitizer" not in victim.err(), victim.story())
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    (sent,) = sender.json()
    return sent, victim.json()[-1], grown


def amplification(sent):
    """Returns how many bytes the victim has sent for each hostile byte."""
    ratio = sent["received_bytes"] / sent["sent_bytes"]
    print(
        f"{sent['sent']} hostile packets, {sent['sent_bytes']} bytes; {sent['received_bytes']} bytes in answer: "
        f"{ratio:.4f} times"
    )
    return ratio


def storm(family, count, build, seed, mode="auto"):
    count = max(count, PACKETS)
    victim, command = victim_of(family, build, mode=mode)
    sent, end, grown = attacked(victim, [*command, "--count", count, "--seed", seed], 150 + count / 5000)
    amplification(sent)     # amplified by READs, which a peer that has the keys may make
    drops = {name: value for name, value in grown.items() if "drop" in name}
    check(end["completions"] > 0 and sent["received"] > 0, f"nothing got through to the QP: {end} {sent} {grown}")
    # Half of the packets have damaged bytes, and each is counted under its reason.
    check(len(drops) >= 8, f"few reasons: {drops}")
    check(sum(drops.values()) >= count * 0.3, f"few drops of {count}: {drops}")
    count = sent["sent"]  # The sender also answered HELLOs.

    # Every frame is counted in one of these. An ACK that arrives at a QP between RTR and RTS is counted in two.
    before_qps = sum(value for name, value in grown.items()
                     if name.startswith("/rove/drops/") and not name.endswith(IN_QPS))
    at_qps = sum(grown.get(f"/rove/workers/worker0/{name}", 0) for name in ("rx_packets", "rx_cnp"))
    accounted = before_qps + at_qps
    print(f"{at_qps} of them at QPs; {end}")
    if mode == "mp":
        check(any(name.startswith("/rove/multipath/") for name in grown), f"no QP spoke mp: {grown}")
    check(count <= accounted <= count * 1.001, f"{accounted} frames accounted for, {count} sent: {grown}")


def keyless(family, count):
    """An attacker without keys receives fewer bytes than it sends."""
    count = max(count, PACKETS)
    victim, command = victim_of(family)
    sent, _, grown = attacked(victim, [*command, "--count", count, "--seed", 4, "--keyless"], 150 + count / 5000)
    check(amplification(sent) <= 1, f"{sent} {grown}")


def guessed(unreliable):
    """Models a peer that knows everything except the key. With RC each try ends the QP, so the victim's reconnection
    limits the rate. With UC no try ends it."""
    victim, command = victim_of("ipv4", BUILD, *(["--unreliable"] if unreliable else []))
    sent, end, grown = attacked(victim, [
        *command, "--guess", GUESS_SECONDS, "--seed", 5, *(["--unreliable"] if unreliable else [])], GUESS_SECONDS + 60)
    at_qp = grown.get("/rove/workers/worker0/rx_packets", 0)
    tries = at_qp if unreliable else grown.get("/rove/workers/worker0/tx_nak_error", 0)
    # One of 2^32 keys opens the block for writing, so a packet hits with a probability of 2^-32, and 2^32 tries are
    # expected until one does.
    rate, at_once = tries / GUESS_SECONDS, "" if unreliable else ", each of which ended the connection"
    print(
        f"{sent['sent']} WRITEs in {GUESS_SECONDS} s, {tries} keys tried ({rate:.0f}/s){at_once}; a hit within these: "
        f"{tries / KEYS:.2g}; expected tries to a hit: {KEYS}, {KEYS / max(rate, 1) / 86400:.1f} days at this rate"
    )
    check(tries > 0, f"no key was tried: {sent} {end} {grown}")
    # A hit would be an executed WRITE of 8 bytes, which would change the first block.
    check(end["written"] == 0, f"{end['written']} bytes were written by a guessed key")


def resident_mib(pid):
    (line,) = [line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def mads(count):
    """Attacks a server of rdma_cm that accepts all requests on two devices. On one device a client moves verified data
    from before the attack to its end, and another client connects afterwards. On the other device hostile MADs arrive,
    some of them in the clients' name."""
    count = max(count, PACKETS)
    pair = memif_pair()
    (device,) = pair[0]["device"]
    driver, arguments = device_arguments(device["port"])
    arguments.update(socket=f"{arguments['socket']}-hostile")
    pair[0]["device"].append({
        "port": device_string(driver, arguments), "mac": VICTIM_MAC, "addresses": ["10.1.0.1/24"],
        "neighbour": [{"address": "10.1.0.2", "mac": ATTACKER_MAC}]})
    address = device["addresses"][0].split("/")[0]
    server = Process(["rping", "-s", "-P"], pair[0], SERVER_CORE)

    qps = lambda: telemetry(server.pid, "/rove/qps")
    wait_ready(server)
    steady = Process(["rping", "-c", "-V", "-C", 1_000_000, "-a", address], pair[1], CLIENT_CORE)
    server.wait_for(lambda: len(qps()) > 2, 20, "a connection")
    before = resident_mib(server.pid)
    attacker = Process([
        program("hostile_mads"), "--socket", "@" + arguments["socket"], "--count", count, "--src-mac", ATTACKER_MAC,
        "--dst-mac", VICTIM_MAC, "--src-gid", gid("10.1.0.2"), "--dst-gid", gid("10.1.0.1"), "--peer-gid",
        gid("10.0.0.2")], core=CLIENT_CORE)
    attacker.succeed(60 + count / 3000)
    after = resident_mib(server.pid)
    print(f"{attacker.json()[-1]}; the server's memory: {before} MiB, then {after} MiB; "
          f"{len(qps())} QPs")
    check(server.child.poll() is None, f"the server has ended\n{server.story()}")
    check(steady.child.poll() is None, f"the client's connection has ended\n{steady.story()}")
    check(after - before < 400, f"{after - before} MiB more")
    steady.stop()
    # A new client is accepted.
    Process(["rping", "-c", "-v", "-V", "-C", 10, "-a", address], pair[1], CLIENT_CORE).succeed(40)
    server.stop()


def between(count):
    """Runs a pair that moves verified data, and an attacker between them that reads and forges packets."""
    count = max(count, PACKETS)
    pair = memif_pair()
    sockets = []
    for number, config in enumerate(pair):
        (device,) = config["device"]
        driver, arguments = device_arguments(device["port"])
        arguments.update(role="server", socket=f"{arguments['socket']}-{number}")
        sockets.append("@" + arguments["socket"])
        device["port"] = device_string(driver, arguments)
    link, port = Link(pair), free_port()
    command = [
        program("verbs_check"), "--mtu", "1024", "--timeout", "17", "--sizes", "0,1,64,1000,4097,65537", "--qps", "2",
        "--both", "--rounds",
        str(max(2, count // 5000))]
    server = start_server(link, command, port, "--port")
    forger = Process([program("hostile_between"), *sockets, "--count", count], core=CLIENT_CORE, stdin=True)
    client = start_client(link, command, port, "--port")
    forger.wait_for(forger.json, 30, "both peers")
    try:
        client.succeed(100 + count / 1000)
        server.succeed(STOPPED)
    except Failure as failure:
        raise Failure(f"{failure}\n--- server\n{server.story()}\n--- client\n{client.story()}") from None
    forger.child.stdin.close()
    forger.succeed(20)
    end = forger.json()[-1]
    print(end)
    check(end["hostile"] >= min(count, 20_000), f"the pair was done before it was attacked: {end}")


for family in ADDRESSES:
    once(f"hostile/{family}", storm, family, 500_000, BUILD, 1, timeout=200 + PACKETS / 2000)
    once(f"hostile/{family}/asan", storm, family, 300_000, SANITIZED_BUILD, 2, timeout=200 + PACKETS / 2000)
for name, build in (("hostile/mp", BUILD), ("hostile/mp/asan", SANITIZED_BUILD)):
    once(name, storm, "ipv4", 300_000, build, 6, "mp", timeout=200 + PACKETS / 2000)
once("hostile/quick", storm, "ipv4", 50_000, BUILD, 3, quick=True)
for family in ADDRESSES:
    once(f"hostile/keyless/{family}", keyless, family, 200_000, timeout=200 + PACKETS / 2000)
for service in ("rc", "uc"):
    once(f"hostile/keys/{service}", guessed, service == "uc", timeout=120 + GUESS_SECONDS)
once("hostile/mads", mads, 500_000, timeout=500 + PACKETS / 2000, alone=True)
test("hostile/between", between, 100_000, timeout=150 + PACKETS / 500)
