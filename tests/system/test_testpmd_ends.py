# SPDX-License-Identifier: Apache-2.0
"""Tests every way in which a run of rove-testpmd ends, or loses its port or peer. All sent data is accounted for, and
nothing is left behind."""
import re
import signal
import socket
import struct
import time

from harness import SCRATCH, STOPPED, check, once, test, unique
from testpmd import Pair, Terminal, clean, leaves_nothing, result, wait_for_traffic, wait_until


def port_stop():
    """Stops the port for a while under load. The run continues afterwards without errors, and all packets are accounted
    for."""
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    prompt = Terminal(pair.arguments("--mode", "write", "--verify", "-i", "--size", "8192", "--json", out))
    try:
        prompt.say(
            # QPs wait for 4 s and not for 0.5 s, because a busy machine needs part of that time.
            "set transport timeout 17")
        check(prompt.say("start") == "", "start")
        sent = lambda: prompt.json("show worker")["worker0"]["rx_packets"]
        wait_until(lambda: sent() > 100, 20, "traffic")
        prompt.say("port stop 0")
        time.sleep(0.2)
        before = sent()
        time.sleep(0.2)
        check(sent() == before, "a stopped port receives")
        check(prompt.json("show port info")["rove0"]["ready"] == 0, "show port info of a stopped port")
        prompt.say("port start 0")
        wait_until(lambda: sent() > before + 100, 20, "traffic again")
        check(prompt.json("show port info")["rove0"]["ready"] == 1, "show port info of a started port")
        text = prompt.say("stop")
        check(re.search(r"errors +0\n", text) and "failure" not in text, text)
        said = result(out)
        check(said["packets"]["lost"] > 0 == said["packets"]["in_flight"] == said["requests"]["under_way"], str(said))
        prompt.send("\x03")
        check((status := prompt.wait()) == 0, f"Ctrl-C: status {status}")
        pair.end()
    finally:
        prompt.close()


test("testpmd/port-stop", port_stop)


def ends(how):
    """Sends a signal during a run. The run stops, settles with the target, and prints its result. Everything that it
    sent has arrived: messages, packets, and frames according to the ports' own counters."""
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = Pair(target_options=["--json", target_out])
    run = pair.initiator("--mode", "send", "--verify", "--size", "20000", "--json", out)
    wait_for_traffic(run)
    run.child.send_signal(how)
    check(run.wait(STOPPED) == 0 and re.search(r"errors +0\n", run.out()), run.story())
    clean(run)
    pair.end()
    said, theirs = result(out), result(target_out)
    requests, packets = said["requests"], said["packets"]
    check(theirs["messages"] == requests["submitted"] == requests["completed"], f"{said}\n{theirs}")
    check(packets["acknowledged"] == 5 * requests["completed"] and packets["in_flight"] == 0, str(said))
    # Neighbours, group reports and HELLO add a few frames before the run or in it, and so does an ACK that ends it.
    for sent, arrived in ((packets["sent"], said["ports"]["rove0"]["tx_frames"]),
                          (said["ports"]["rove0"]["tx_frames"], theirs["ports"]["rove0"]["rx_frames"])):
        check(abs(sent - arrived) <= 10, f"{said}\n{theirs}")


for name, how in (("ctrl-c", signal.SIGINT), ("sigterm", signal.SIGTERM)):
    test(f"testpmd/{name}", ends, how)


def peer_is_silent():
    """A stopped target does not answer, and its TCP connection stays open. The QP gives up, and the packets in flight
    are reported."""
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "write", "--json", out)
    wait_for_traffic(run)
    pair.target.child.send_signal(signal.SIGSTOP)
    check(run.wait(20) == 1 and "transport retry counter exceeded" in run.err(), run.story())
    pair.target.child.send_signal(signal.SIGCONT)
    leaves_nothing(run)
    said = result(out)
    check(
        said["packets"]["in_flight"] > 0 and said["requests"]["failed"] == 1 and
        said["retransmissions"]["timeouts"] > 0,
        str(said))
    pair.initiator("--mode", "send", "--verify", "--count", "50").succeed(20)
    pair.end()


once("testpmd/peer-is-silent", peer_is_silent)


def target_is_told(how, *mode):
    """Sends a signal to the target during a run. Both ends end at once and print their results until then."""
    out, target_out = SCRATCH / f"{unique()}.json", SCRATCH / f"{unique()}.json"
    pair = Pair(target_options=["--json", target_out])
    run = pair.initiator(*mode, "--json", out)
    wait_for_traffic(run)
    pair.target.child.send_signal(how)
    check(pair.target.wait(STOPPED) == 0 and "told to end" in pair.target.err(), pair.target.story())
    check(run.wait(STOPPED) == 1 and "the peer has closed the connection" in run.err(), run.story())
    for process in (pair.target, run):
        leaves_nothing(process)
    pair.no_sockets()
    said, theirs = result(out), result(target_out)
    check(said["requests"]["completed"] > 0 and theirs["failure"].startswith("told to end"), f"{said}\n{theirs}")


test("testpmd/target-is-told/ctrl-c", target_is_told, signal.SIGINT, "--mode", "read")
once("testpmd/target-is-told/sigterm", target_is_told, signal.SIGTERM, "--mode", "spray", "--read-share", "0.5")


def peer_dies():
    """Kills the target by SIGKILL, and the initiator reports that and ends. Kills an initiator, and the target serves
    the next."""
    pair, out = Pair(), SCRATCH / f"{unique()}.json"
    run = pair.initiator("--mode", "send")
    wait_for_traffic(run)
    run.kill()
    pair.target.wait_for(lambda: "closed the connection" in pair.target.err(), 20, "word of the peer's death")
    pair.initiator("--mode", "send", "--verify", "--count", "50").succeed(20)
    run = pair.initiator("--mode", "read", "--json", out)
    wait_for_traffic(run)
    pair.target.kill()
    check(run.wait(STOPPED + 3) == 1 and "closed the connection" in run.err(), run.story())
    clean(run)
    pair.no_sockets()
    said = result(out)
    check(said["failure"] == "the peer has closed the connection" and said["requests"]["completed"] > 0, str(said))


test("testpmd/peer-dies", peer_dies)


def hostile_peer():
    """The target refuses a peer that is not rove-testpmd or requests too much, and continues."""
    pair = Pair()
    head = lambda size, qps, rails=1, mode=1: struct.pack(">IHBBIIIIBB", 0x526F7654, 1, mode, 0, size, qps, 16, 4096, 0,
                                                          rails)
    for hostile in (b"GET / HTTP/1.0\r\n\r\n" + bytes(64), head(1 << 31, 1), head(64, 100000), head(64, 1, 0),
                    head(64, 1, 200), head(64, 1, 1, 77), head(0xFFFFFFFF, 0xFFFFFFFF),
                    head(64, 1) + bytes(28) + struct.pack(">II", 0xFFFFFFFF, 0), head(64, 65, 0, 5),
                    head(1 << 26, 64, 0, 5), head(64, 1, 0, 5) + bytes(8) + b"\xff" * 256 + b"nonsense" * 8):
        with socket.create_connection(("127.0.0.1", pair.port), 5) as peer:
            peer.sendall(hostile)
            peer.settimeout(8)
            try:
                while peer.recv(4096):
                    pass
            except ConnectionError:
                pass
    pair.initiator("--mode", "write", "--verify", "--count", "50").succeed(20)
    pair.end()


once("testpmd/hostile-peer", hostile_peer)
