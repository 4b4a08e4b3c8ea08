# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's unmodified librdmacm and its programs over rove.

The programs that compare their data are rping -V, rcopy, and verified TCP under librspreload. The others report whether
their connections and transfers succeeded.
"""
import os
import pathlib
import signal
import struct

import harness
from harness import (CLIENT_CORE, SCRATCH, SERVER_CORE, STOPPED, Failure, Process, Skip, check, memif_link, memif_pair,
                     once, program, run_pair, telemetry, test, unique, write_toml)

A, B = "10.0.0.1", "10.0.0.2"
A6, B6 = "fd00::1", "fd00::2"
LOSS = {"loss": 0.01}
RSPRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"


def queue_pairs(process):
    try:
        return telemetry(process.pid, "/rove/qps") or []
    except (OSError, KeyError):  # The datapath has not started.
        return []


def listens(server):
    try:
        return telemetry(server.pid, "/rove/cm")["listeners"] > 0
    except (OSError, KeyError, TypeError):  # There is no connection manager yet.
        return False


def wait_ready(server):
    server.wait_for(lambda: listens(server), 20, "listener of rdma_cm")


def wait_joined(server):
    """Waits until mckey, which does not listen, has joined its group. It posts its receives before that."""
    server.wait_for(lambda: "joined dgid" in server.out(), 20, "group")


def both(server, client, stays=False, timeout=40, env=None, while_it_runs=None, lost=0, ready=wait_ready,
         **changes):
    """Runs `client` against `server` when the server is `ready`. Both must succeed. With `stays` the server does not
    end by itself, and is stopped. `lost` is the share of the client's packets that is lost."""
    pair = memif_pair(**changes)
    if lost:
        pair[0]["device"][0]["impair"] = {"loss": lost}
    listening = Process(server, pair[0], SERVER_CORE, env=env)
    try:
        ready(listening)
        connecting = Process(client, pair[1], CLIENT_CORE, env=env)
        if while_it_runs:
            while_it_runs(listening, connecting)
        connecting.succeed(timeout)
        if stays:
            check(listening.child.poll() is None, "the server has ended")
            listening.stop()
        else:
            listening.succeed(STOPPED)
    except Failure as failure:
        raise Failure(f"{failure}\n--- server\n{listening.story()}") from None
    return listening, connecting


def outweigh(*ends):
    for end in ends:
        end.outweigh()


def rping(address=A, count=100, persistent=False, **changes):
    """Runs rping, which compares every byte (-V)."""
    how = ["-v", "-V", "-C", count, "-a", address]
    _, client = both(["rping", "-s", *(["-P"] if persistent else []), *how], ["rping", "-c", *how], persistent,
                     **changes)
    check(client.out().count("ping data: rdma-ping-") == count, client.story())


def speaks(expected):
    """Checks the mode of a connection's QPs. REQ and REP determine it, so no QP waits for an answer to HELLO."""
    def look(_, client):
        def modes():
            return [telemetry(client.pid, f"/rove/qp,{qp}").get("mode") for qp in queue_pairs(client) if qp != 1]

        client.wait_for(lambda: modes() == [expected], 20, f"QP in {expected} mode")

    how = ["-v", "-C", 3000, "-a", A]
    both(["rping", "-s", *how], ["rping", "-c", *how], while_it_runs=look)


def rcopy():
    """Copies a file, which must arrive unchanged. The server waits for the next file."""
    source, copy = SCRATCH / f"{unique()}.sent", SCRATCH / f"{unique()}.copied"
    source.write_bytes(os.urandom(3_000_001))
    both(["rcopy"], ["rcopy", source, f"{A}:{copy}"], stays=True)
    check(copy.read_bytes() == source.read_bytes(), "the copy is another one")


def tcp_program(**changes):
    """Runs a TCP program under librspreload. It sends 8 MB in each direction and compares every byte."""
    if not pathlib.Path(RSPRELOAD).exists():
        raise Skip(f"no {RSPRELOAD}")
    rest = [A, 7477, 8_000_000]
    both([program("tcp_stream"), "server", *rest], [program("tcp_stream"), "client", *rest],
         env={"LD_PRELOAD": RSPRELOAD}, **changes)


def perftest(tool, *options):
    """With -R perftest connects twice, first to exchange parameters. Its server opens the second listener at a time
    when the client may already connect to it."""
    pair = memif_pair()
    server = Process([tool, "-R", "-n", 200, *options], pair[0], SERVER_CORE)
    wait_ready(server)
    Process([tool, "-R", "-n", 200, *options, A], pair[1], CLIENT_CORE).succeed(30)
    server.succeed(STOPPED)


def calls(**changes):
    """Tests errors, event channels, ids, endpoints and fork. rdma_cm_check prints each line that differs from the
    manual pages."""
    check_program = program("rdma_cm_check")
    if not check_program.exists():
        raise Skip("built without librdmacm")
    Process([check_program, A, "10.0.0.99"], memif_pair(**changes)[0], SERVER_CORE).succeed(30)


def commands():
    """Sends hostile commands, with bad addresses, lengths, numbers and ids, to rove's replacement of the kernel.
    Thousands of ids resolve one absent neighbour, and the peer receives one request per 50 ms."""
    pair = memif_pair()
    peer = Process(["rping", "-s", "-P", "-a", B], pair[1], CLIENT_CORE)
    wait_ready(peer)
    Process([program("rdma_cm_commands"), A], pair[0], SERVER_CORE).succeed(30)
    counters = telemetry(peer.pid, "/rove/neighbours")["rove0"]
    check(0 < counters["ignored"] < 200, counters)
    peer.stop()


def symbolic_librdmacm():
    """Returns the folder of a librdmacm whose calls of itself cannot be intercepted, as if linked with -Bsymbolic (like
    Ubuntu's). It copies the installed library and sets DF_SYMBOLIC in DT_FLAGS of its dynamic section."""
    library = bytearray(pathlib.Path("/usr/lib/x86_64-linux-gnu/librdmacm.so.1").read_bytes())
    headers, size, count = struct.unpack_from("<Q", library, 0x20)[0], *struct.unpack_from("<HH", library, 0x36)
    segments = [struct.unpack_from("<IIQQQQ", library, headers + i * size) for i in range(count)]
    [(start, length)] = [(offset, bytes_) for kind, _, offset, _, _, bytes_ in segments if kind == 2]     # PT_DYNAMIC
    [flags] = [at + 8 for at in range(start, start + length, 16) if struct.unpack_from("<Q", library,
                                                                                       at)[0] == 30]    # DT_FLAGS
    struct.pack_into("<Q", library, flags, struct.unpack_from("<Q", library, flags)[0] | 2)
    folder = SCRATCH / unique()
    folder.mkdir()
    (folder / "librdmacm.so.1").write_bytes(library)
    return folder


def symbolic():
    environment = {"LD_LIBRARY_PATH": str(symbolic_librdmacm()), "LD_BIND_NOW": "1"}
    both(["rdma_server", "-p", 7471], ["rdma_client", "-s", A, "-p", 7471], env=environment)
    both(["rstream", "-b", A, "-C", 20, "-S", 1000], ["rstream", "-s", A, "-C", 20, "-S", 1000], env=environment)


CTYPES = """
import ctypes, os, subprocess, sys
librdmacm = ctypes.CDLL("librdmacm.so.1", os.RTLD_NOW | int(sys.argv[1]))
librdmacm.rdma_create_event_channel.restype = ctypes.POINTER(ctypes.c_int)
channel = librdmacm.rdma_create_event_channel()[0]
ids = ctypes.c_void_p()
subprocess.run(["true"])    # closes in its child what is open here
print(librdmacm.rdma_create_id(ctypes.byref(ctypes.c_int(channel)), ctypes.byref(ids), None, 0x0106))
"""


def opened_at_run_time(mode, *options):
    config = write_toml(memif_pair()[0])
    process = Process([harness.ROVE_RUN, *options, "--config", config, "--", "/usr/bin/python3", "-c", CTYPES, mode],
                      None, SERVER_CORE)
    check(process.succeed(20).out().split() == ["0"], process.story())


def counted():
    """Checks /rove/cm of a server after twenty connections."""
    def look(server, client):
        client.wait_for(client.json, 20, "result")
        seen = telemetry(server.pid, "/rove/cm")
        check(seen["connections_received"] == seen["established"] == 20 and seen["listeners"] == 1, str(seen))
        check(seen["received"] >= 60 and not any(seen[name] for name in seen if name.startswith("drop_")), str(seen))

    command = program("rdma_cm_churn")
    both([command, "server", A, 7500], [command, "client", A, 7500, 20], stays=True, while_it_runs=look)


def churn(count=300, median_us=None, **changes):
    """Makes connections one after the other. Each must be established and ended correctly."""
    if not program("rdma_cm_churn").exists():
        raise Skip("built without librdmacm")
    command = [program("rdma_cm_churn")]
    _, client = both([*command, "server", A, 7500], [*command, "client", A, 7500, count], stays=True,
                     while_it_runs=outweigh if median_us else None, **changes)
    check(median_us is None or client.json()[0]["median_us"] <= median_us, client.story())


def many(count=500):
    """Opens `count` connections at once, over each of which both ends send. bench/connections opens more."""
    if not program("rdma_cm_many").exists():
        raise Skip("built without librdmacm")
    command = [program("rdma_cm_many")]
    both([*command, "server", A, 7500, count], [*command, "client", A, 7500, count, 2], stays=True)


def survivor(call="pause"):
    """Starts a server with a connection from a client that is idle in the given call."""
    if not program("rdma_cm_survivor").exists():
        raise Skip("built without librdmacm")
    pair = memif_pair()
    server = Process([program("rdma_cm_survivor"), "server", A], pair[0], SERVER_CORE, stdin=True)
    wait_ready(server)
    client = Process([program("rdma_cm_survivor"), "client", A, call], pair[1], CLIENT_CORE)
    server.wait_for(lambda: "established" in server.out(), 20, "connection")
    return server, client


def killed():
    """The peer is killed and cannot disconnect. An outstanding request fails when its retries are exhausted, and the
    disconnect ends with its event."""
    server, client = survivor()
    client.kill()
    server.child.stdin.write(b"\n")
    server.child.stdin.close()
    [seen] = server.succeed(20).json()
    check(seen["send"] == "transport retry counter exceeded" and seen["send_s"] < 5, str(seen))
    check(seen["event"] == -110 and 1 < seen["event_s"] < 8, str(seen))


def ended_by_signal(how, call, times=1):
    """A program that a signal ends is disconnected, as the kernel would do it for any program. It ends as without rove,
    and none of its calls returns."""
    server, client = survivor(call)
    for _ in range(times):
        client.child.send_signal(how)
    check(client.wait(STOPPED) == -how and client.out() == "", client.story())
    if times == 1:
        check(server.succeed(STOPPED).json() == [{"event": 0}], server.story())


def aborted():
    """A program that aborts ends at once, so that its core dump shows the cause. Its peers are not notified."""
    server, client = survivor("threads")
    client.child.send_signal(signal.SIGABRT)
    check(client.wait(STOPPED) == -signal.SIGABRT and client.out() == "", client.story())


def keepalive():
    """rsockets probe an idle peer if the program requests that (-k, SO_KEEPALIVE)."""
    pair = memif_pair()
    server = Process(["rstream", "-b", A, "-k", 1, "-T", "a", "-C", 1000000000], pair[0], SERVER_CORE)
    wait_ready(server)
    client = Process(["rstream", "-s", A, "-C", 1000000000], pair[1], CLIENT_CORE)
    server.wait_for(lambda: telemetry(server.pid, "/rove/cm")["established"], 20, "connection")
    client.kill()
    check(server.wait(20) != 0, server.story())


def leave_at_once(progress):
    """A sender destroys its address handle and its QP right after it has posted, as mckey does."""
    command = [program("verbs_multicast")]
    run_pair(memif_link(progress=progress), command, [*command, "--leave"], "--port")


def nobody():
    """Connects to an address that no process answers. The client gets the error within its timeout (2 s)."""
    client = Process(["rping", "-c", "-C", 1, "-a", A], memif_pair()[1], CLIENT_CORE)
    check(client.wait(20) != 0, f"it has succeeded\n{client.story()}")
    check("RDMA_CM_EVENT_ADDR_ERROR, error -110" in client.err(), client.story())


test("rdma-cm/rping", rping, quick=True)
test("rdma-cm/rping/ipv6", rping, A6)
test("rdma-cm/rping/persistent", lambda: rping(persistent=True))
for progress in ("shared", "dedicated"):
    test(f"rdma-cm/rping/loss/{progress}", lambda progress: rping(count=300, impair=LOSS, progress=progress), progress)
    once(f"rdma-cm/ucmatose/loss/{progress}",
         lambda progress: both(["ucmatose", "-b", A, "-c", 20], ["ucmatose", "-s", A, "-b", B, "-c", 20], impair=LOSS,
                               progress=progress),
         progress)
    once(f"rdma-cm/calls/{progress}", lambda progress: calls(progress=progress), progress, quick=progress == "shared")
once("rdma-cm/commands", commands, quick=True)
once("rdma-cm/symbolic", symbolic)
once("rdma-cm/ctypes", opened_at_run_time, 0)
if (harness.BUILD / "lib" / "preload" / "ibverbs" / "libibverbs.so.1").exists():
    once("rdma-cm/ctypes/deepbind", opened_at_run_time, os.RTLD_DEEPBIND, "--libibverbs")
once("rdma-cm/counters", counted)
test("rdma-cm/speaks", lambda: speaks("mp" if harness.mode == "mp" else "rc"))
once("rdma-cm/speaks/auto", speaks, "mp")
once("rdma-cm/nobody", nobody)
once("rdma-cm/killed", killed)
once("rdma-cm/keepalive", keepalive)
for how in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    once(f"rdma-cm/ended/{how.name}", ended_by_signal, how, "pause")
for call in ("poll", "select", "nanosleep", "ibv_poll_cq", "threads"):
    once(f"rdma-cm/ended/in {call}", ended_by_signal, signal.SIGTERM, call)
once("rdma-cm/ended/aborted", aborted)
once("rdma-cm/ended/twice", ended_by_signal, signal.SIGTERM, "poll", 2)
test("rdma-cm/churn", churn)
test("rdma-cm/many", many)
# A worker that did not yield the core to the thread that waits for it would make this 8 ms.
once("rdma-cm/churn/dedicated", lambda: churn(median_us=4000, progress="dedicated"), alone=True)
once("rdma-cm/churn/loss", lambda: churn(60, impair=LOSS))
for own, theirs, name in ((A, B, "ipv4"), (A6, B6, "ipv6")):
    once(f"rdma-cm/ucmatose/{name}", both, ["ucmatose", "-b", own], ["ucmatose", "-s", own, "-b", theirs])
    once(f"rdma-cm/udaddy/{name}", both, ["udaddy", "-b", own], ["udaddy", "-s", own])
# Only the client's packets are lost. The server ends after its answer, as a server of the kernel's CM may, and does not
# repeat it.
once("rdma-cm/udaddy/loss", lambda: both(["udaddy", "-b", A, "-C", 0], ["udaddy", "-s", A, "-C", 0], lost=0.5))
for own, theirs, group, name in ((A, B, "239.1.2.3", "ipv4"), (A6, B6, "ff15::77", "ipv6")):
    once(f"rdma-cm/mckey/{name}",
         lambda own, theirs, group: both(["stdbuf", "-oL", "mckey", "-m", group, "-b", own],
                                         ["mckey", "-m", group, "-s", "-b", theirs], ready=wait_joined),
         own, theirs, group)
for progress in ("shared", "dedicated"):
    once(f"rdma-cm/leave/{progress}", leave_at_once, progress)
once("rdma-cm/rdma_client", both, ["rdma_server", "-p", 7471], ["rdma_client", "-s", A, "-p", 7471])
for service in ("r", "x"):
    once(f"rdma-cm/rdma_xclient/{service}", both, ["rdma_xserver", "-c", service],
         ["rdma_xclient", "-s", A, "-c", service])
# There is no -T a, because rstream gives up when poll() returns POLLHUP, even if that arrives with its last data.
for options in (["-S", "all", "-C", 20], ["-T", "r", "-C", 100], ["-T", "n", "-C", 100]):
    name = "".join(str(option) for option in options).strip("-").replace("-", "/")
    test(f"rdma-cm/rstream/{name}", both, ["rstream", "-b", A, *options], ["rstream", "-s", A, *options])
once("rdma-cm/rstream/loss", lambda: both(["rstream", "-b", A, "-C", 100, "-S", 65536],
                                          ["rstream", "-s", A, "-C", 100, "-S", 65536],
                                          impair=LOSS))
test("rdma-cm/riostream", both, ["riostream", "-b", A, "-C", 100], ["riostream", "-s", A, "-C", 100])
once("rdma-cm/rcopy", rcopy)
test("rdma-cm/librspreload", tcp_program)
once("rdma-cm/librspreload/loss", lambda: tcp_program(impair=LOSS))
for tool in ("ib_send_bw", "ib_write_lat", "ib_read_bw"):
    test(f"rdma-cm/perftest/{tool}", perftest, tool)
once("rdma-cm/perftest/ud", perftest, "ib_send_lat", "-c", "UD")
