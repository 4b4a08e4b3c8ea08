# SPDX-License-Identifier: Apache-2.0
"""Tests the mesh: programs without a configuration are hosts of one network. There may be any number of them, and they
start, end and are killed at any time."""
import json
import os
import resource
import signal
import socket
import time

from harness import (CLIENT_CORE, CORES, ROVE_RUN, SCRATCH, SERVER_CORE, STOPPED, Link, Process, check, free_port, once,
                     program, run_pair, start_client, start_server, telemetry, test, unique)
from test_rdma_cm import wait_ready
from test_stall import sleeps

# Each member takes some 0.1 s to start. ROVE_MESH_MEMBERS=250 starts the number that a mesh must support at least.
MEMBERS = int(os.environ.get("ROVE_MESH_MEMBERS", "64"))


def folder():
    return SCRATCH / f"mesh-{unique()}"


def mesh(where, **device):
    return {"device": [{"port": f"mesh:{where}", **device}]}


def link(where=None, **device):
    where = where or folder()
    return Link([mesh(where, **device), mesh(where, **device)])


def verified(*options):
    command = [program("verbs_check"), *options]
    run_pair(link(), command, command, "--port")


test("mesh/verified", verified, "--both", "--rounds", "2", quick=True)
test("mesh/verified/events", verified, "--events", "--rounds", "2", "--sizes", "0,1,64,4097,65537")
test("mesh/verified/ipv6", verified, "--gid-index", "2", "--rounds", "1", "--sizes", "0,1,64,4097,65537")
test("mesh/verified/link-local", verified, "--gid-index", "0", "--rounds", "1", "--sizes", "0,64,4097")
test("mesh/verified/mtu-1024", verified, "--mtu", "1024", "--rounds", "1", "--sizes", "0,1,64,4097,65537")


def impaired():
    where = folder()
    impair = {"loss": 0.02, "reorder": 0.02, "duplicate": 0.02, "corrupt": 0.01}
    command = [program("verbs_check"), "--both", "--rounds", "1", "--sizes", "0,1,64,4097,65537"]
    run_pair(link(where, impair=impair), command, command, "--port")


test("mesh/impaired", impaired)


def rdma_cm(family):
    """rdma_resolve_addr() finds a member, too."""
    where = folder()
    command = ["rping", "-v", "-V", "-C", 100]
    server = Process([*command, "-s", "-a", ("0.0.0.0", "::")[family]], mesh(where), SERVER_CORE)
    wait_ready(server)
    _, *addresses = telemetry(server.pid, "/rove/devices")["rove0"]["gids"]
    Process([*command, "-c", "-a", addresses[family]], mesh(where), CLIENT_CORE).succeed(30)
    server.succeed(STOPPED)


test("mesh/rdma-cm/ipv4", rdma_cm, 0)
test("mesh/rdma-cm/ipv6", rdma_cm, 1)


def no_configuration():
    """Starts programs as a user does, without options."""
    where = folder()
    where.mkdir(mode=0o700)
    env = {"XDG_RUNTIME_DIR": str(where)}
    port = free_port()
    command = [str(ROVE_RUN), "--", "ib_write_bw", "-x", "1", "-F", "-n", "200", "-p", str(port)]
    server = Process(command, core=SERVER_CORE, env=env)
    server.wait_listening(port)
    check({"10.77.0.1", "fd77::1"} <= set(os.listdir(where / "rove")), os.listdir(where / "rove"))
    Process([*command, "127.0.0.1"], core=CLIENT_CORE, env=env).succeed(30)
    server.succeed(20)
    check(os.listdir(where / "rove") == [], f"left behind: {os.listdir(where / 'rove')}")


once("mesh/no-configuration", no_configuration, quick=True)


def killed():
    """The server is killed and another takes its address. The client finds the new one."""
    where = folder()
    ends = link(where)
    command = ["ib_send_lat", "-x", "1", "-F", "-n", "100"]
    for round_ in range(3):
        port = free_port()
        server = start_server(ends, command, port)
        check((where / "10.77.0.1").exists(), f"round {round_}: {os.listdir(where)}")
        if round_ != 2:
            server.kill(signal.SIGKILL)
            continue
        start_client(ends, command, port).succeed(20)
        server.succeed(20)


once("mesh/killed", killed)


def neighbours_die():
    """Members start, send data and are killed while a pair moves verified data. The pair is unaffected."""
    where = folder()
    ends, port = link(where), free_port()
    command = [program("verbs_check"), "--both", "--rounds", "6", "--sizes", "0,1,64,4097,65537,1048576"]
    server = start_server(ends, command, port, "--port")
    client = start_client(ends, command, port, "--port")
    for _ in range(8):
        others, talk = link(where), free_port()
        talker = ["ib_write_bw", "-x", "1", "-F", "-D", "20", "-s", "65536"]
        pair = start_server(others, talker, talk), start_client(others, talker, talk)
        time.sleep(0.5)
        for one in pair:
            one.kill(signal.SIGKILL)
    client.succeed(60)
    server.succeed(20)
    # The next member can use the addresses of the killed ones.
    last = Process(["ibv_devinfo", "-v"], mesh(where), CLIENT_CORE).succeed(20)
    check("::ffff:10.77.0.1" in last.out() and not (where / "10.77.0.1").exists(), last.story())


once("mesh/neighbours-die", neighbours_die)


def many_members():
    """Most members sleep. Two move data, and two more send to a group, of which all members are informed. Then half of
    them are killed, and two move data again."""
    where = folder()
    ends = link(where)
    idle = [Process(["ibv_asyncwatch", "-d", "rove0"], mesh(where), set(CORES)) for _ in range(MEMBERS - 2)]
    joined = lambda: len(list(where.glob("10.77.*[0-9]")))
    idle[-1].wait_for(lambda: joined() == len(idle), 10 + MEMBERS / 4, "its mesh")
    verify = [program("verbs_check"), "--both", "--rounds", "1", "--sizes", "0,64,4097,65537"]
    run_pair(ends, verify, verify, "--port")
    run_pair(ends, [program("verbs_multicast")], [program("verbs_multicast")], "--port")
    for one in idle[::2]:
        one.kill(signal.SIGKILL)
    run_pair(ends, verify, verify, "--port")
    for one in idle[1::2]:
        check(one.child.poll() is None, one.story())
        one.stop()


once("mesh/many-members", many_members, timeout=60 + MEMBERS)


def multicast():
    command = [program("verbs_multicast")]
    run_pair(link(), command, command, "--port")


once("mesh/multicast", multicast)


once("mesh/sleeps", lambda: sleeps(link()))


def silent(*addresses):
    """Returns sockets that have connected to the addresses and send nothing."""
    sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in addresses]
    for one, address in zip(sockets, addresses):
        one.setblocking(False)
        try:
            one.connect(address)
        except BlockingIOError:  # The listener's queue is full.
            pass
    return sockets


def strangers(ends, address):
    """A process that connects and does not complete the handshake blocks no other."""
    port = free_port()
    command = ["ib_write_bw", "-x", "1", "-F", "-s", "65536", "-n", "100"]
    server = start_server(ends, command, port)
    held = silent(*[address()] * 200)
    start_client(ends, command, port).succeed(30)
    server.succeed(STOPPED)
    for one in held:
        one.close()


def mesh_strangers():
    where = folder()
    strangers(link(where), lambda: str(next(where.glob("10.77.*[0-9]"))))


def memif_strangers():
    name = f"rove-strangers-{unique()}"
    ends = Link([{"device": [{"port": f"memif:@{name}{role}", "addresses": [f"10.0.0.{n}/24"]}]}
                 for n, role in ((1, ",role=server"), (2, ""))])
    strangers(ends, lambda: f"\0{name}")


once("mesh/strangers", mesh_strangers)
once("mesh/strangers/memif", memif_strangers)


def no_descriptors(hard):
    """A member without free descriptors rejects new connections and does not wake up repeatedly. It raises its soft
    limit if the hard limit allows that."""
    where = folder()
    ends = link(where)
    port = free_port()
    command = ["ib_send_lat", "-e", "-x", "1", "-F", "-n", "1000"]
    server = start_server(ends, command, port)
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    used = max(int(file) for file in os.listdir(f"/proc/{server.pid}/fd")) + 1
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used, used if hard else limits[1]))
    address = str(next(where.glob("10.77.*[0-9]")))
    held = silent(*[address] * 20)
    server.sleeps(0.02)
    if hard:
        server.stop()
    else:
        start_client(ends, command, port).succeed(30)
        server.succeed(STOPPED)
    for one in held:
        one.close()


once("mesh/no-descriptors", no_descriptors, True)
once("mesh/few-descriptors", no_descriptors, False)


def crowd(*options):
    """Runs processes that all send each other a message, and checks the cost of a pair and of a silent link."""
    where = folder()
    one = Process([program("mesh_crowd"), *options], mesh(where), set(CORES)).succeed(240)
    cost = json.loads(one.out())
    print(cost)
    check(cost["used_kib_a_pair"] <= 160 and cost["files_a_peer"] <= 2.5, cost)


# The device's own memory is not counted here. It is 6 MiB for each process, whatever its number of peers.
once("mesh/crowd/all", crowd, "--members", MEMBERS // 3, timeout=60 + MEMBERS, alone=True)
once("mesh/crowd/sparse", crowd, "--members", MEMBERS, "--neighbours", 2, timeout=60 + MEMBERS, alone=True)


def taken():
    where = folder()
    address = ["10.9.0.1/24"]
    port = free_port()
    first = Process(["ib_send_lat", "-F", "-p", str(port)], mesh(where, addresses=address), SERVER_CORE)
    first.wait_listening(port)
    second = Process(["ib_send_lat", "-F", "-p", str(free_port())], mesh(where, addresses=address), CLIENT_CORE)
    check(second.wait(20) != 0, second.story())
    check("10.9.0.1" in second.err() and str(first.pid) in second.err(), second.story())
    first.stop()


once("mesh/address-is-taken", taken)


def wrong_folder():
    """Other users could write to the folder of this user's mesh."""
    where = folder()
    (where / "rove").mkdir(parents=True)
    (where / "rove").chmod(0o777)
    refused = Process([ROVE_RUN, "--", "ibv_devinfo"], env={"XDG_RUNTIME_DIR": str(where)})
    check(refused.wait(20) != 0 and str(where) in refused.err(), refused.story())


once("mesh/wrong-rights", wrong_folder)
