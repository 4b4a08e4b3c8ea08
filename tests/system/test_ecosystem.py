# SPDX-License-Identifier: Apache-2.0
"""Runs widely used programs from Debian over rove, and verifies data where the program can. docs/guide/programs.md has
the table.

`tests/ecosystem` runs only these tests. Other files have perftest (test_perftest.py), rdmacm-utils and perftest -R
(test_rdma_cm.py), ibverbs-utils (test_pingpong.py), pyverbs (test_pyverbs.py), and a pair of Open MPI's ranks with
one-sided access (test_mpi.py).
"""
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
from functools import partial

from harness import (CLIENT_CORE, CORES, LOCAL_RANKS, ROVE_RUN, SCRATCH, SERVER_CORE, STOPPED, Failure, Process, Skip,
                     TwoNamespaces, check, device_arguments, device_string, free_port, ip, memif_link, mpi_ranks, once,
                     shipped, stop_all, telemetry, test, unique, write_toml)
from test_bridge import TwoSites
from test_rdma_cm import A, both
from test_veth import configs

HERE = pathlib.Path(__file__).parent


def needs(*programs):
    for name in programs:
        if shutil.which(name) is None:
            raise Skip(f"needs {name}")


def pair(server_command, client_command, env=None, seconds=60, waits_for=None, server_ends=True):
    """Runs a server and a client over a memif. Both must succeed. If `waits_for` is given, the client starts when the
    server listens on that TCP port."""
    link = memif_link()
    server = Process(server_command, link.configs[0], SERVER_CORE, env=env)
    if waits_for:
        server.wait_listening(waits_for)
    client = Process(client_command, link.configs[1], CLIENT_CORE, env=env)
    try:
        client.succeed(seconds)
        if server_ends:
            server.succeed(STOPPED)
    except Failure as failure:
        first = str(failure).splitlines()[0]
        raise Failure(f"{first}\n--- server\n{server.story()}\n--- client\n{client.story()}") from None
    return server, client


def compiled(source, *command):
    """Compiles a program of this folder to the scratch folder by `command SOURCE -o PROGRAM`."""
    needs(command[0])
    path = SCRATCH / f"{unique()}-{pathlib.Path(source).stem}"
    split = command.index("--") if "--" in command else len(command)
    done = subprocess.run([*command[:split], HERE / source, "-o", path, *command[split + 1:]], capture_output=True,
                          text=True, timeout=60)
    check(done.returncode == 0, done.stderr)
    return path


# --- libfabric -------------------------------------------------------------------------------------------------------

def fi_pingpong(provider, domain, endpoint, mode):
    """Runs fi_pingpong, which checks its data because of -c."""
    needs("fi_pingpong")
    port = free_port()
    command = ["fi_pingpong", "-p", provider, "-d", domain, "-e", endpoint, "-m", mode, "-c", "-I", "50"]
    _, client = pair([*command, "-B", port], [*command, "-P", port, "127.0.0.1"], waits_for=port)
    sizes = [line.split()[0] for line in client.out().splitlines()[1:]]
    check(sizes == ["64", "256", "1k", "4k", "64k", "1m"], client.story())


once("ecosystem/libfabric/fi_pingpong/rxd/msg", fi_pingpong, "verbs;ofi_rxd", "rove0-dgram", "rdm", "msg")
once("ecosystem/libfabric/fi_pingpong/rxd/tagged", fi_pingpong, "verbs;ofi_rxd", "rove0-dgram", "rdm", "tagged")


# --- UCX: every test of ucx_perftest ---------------------------------------------------------------------------------

OVER_ROVE = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "rove0:1", "UCX_IB_GID_INDEX": "1"}
UCP = dict.fromkeys(("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get",
                     "stream_bw", "stream_lat", "ucp_am_lat", "ucp_am_bw"), 1000)
UCP |= dict.fromkeys(("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"), 8)
# The tests of the transport alone, with the layout of the data. Layouts that rc_verbs lacks are refused on every
# device.
UCT = {"am_lat": (48, "short"), "am_bw": (1000, "bcopy"), "put_lat": (48, "short"), "put_bw": (100_000, "zcopy"),
       "get": (1000, "bcopy"),
       "add_mr": (8, "short"), "fadd": (8, "short"), "cswap": (8, "short")}


def ucx(name, size, environment, *options, transport=None):
    """Runs ucx_perftest. `transport` is for tests below UCP. On Debian 13 the server needs it too."""
    needs("ucx_perftest")
    port = free_port()
    command = ["ucx_perftest", "-p", port, *(("-d", "rove0:1", "-x", transport) if transport else ())]
    server, client = pair(command, [*command, "-f", "-t", name, "-s", size, "-n", 500, "-w", 10, *options, "127.0.0.1"],
                          environment, waits_for=port)
    check(any(line.split()[:1] == ["500"] for line in client.out().splitlines()), client.story())
    return server, client


for name, size in UCP.items():
    once(f"ecosystem/ucx/{name}", ucx, name, size, OVER_ROVE)
for name, (size, layout) in UCT.items():
    once(f"ecosystem/ucx/uct/{name}", partial(ucx, transport="rc_verbs"), name, size, OVER_ROVE, "-D", layout)
once("ecosystem/ucx/uct/ud", partial(ucx, transport="ud_verbs"), "am_lat", 1000, OVER_ROVE, "-D", "bcopy")


def ucx_unconfigured():
    """Runs UCX without any setting. It then uses mostly shared memory here."""
    ucx("tag_bw", 100_000, {})


def ucx_two_hosts():
    """Disables this machine's shared memory, so that UCX sees two hosts. It chooses rove and the right GID without
    further settings."""
    _, client = ucx("tag_bw", 100_000, {"UCX_TLS": "^posix,sysv,cma,tcp", "UCX_LOG_LEVEL": "info"})
    check("rc_verbs/rove0:1" in client.out() + client.err(), client.story())


once("ecosystem/ucx/unconfigured", ucx_unconfigured)
once("ecosystem/ucx/two-hosts", ucx_two_hosts)


UCX_EXAMPLE = pathlib.Path("/usr/share/doc/libucx-dev/examples/ucp_client_server.c")


def ucx_sockaddr(kind):
    """Runs UCX's own example, whose ends find each other by IP address, here by rdma_cm. The server prints the data
    that the client has sent."""
    if not UCX_EXAMPLE.exists():
        raise Skip("needs libucx-dev")
    program = compiled(UCX_EXAMPLE, "gcc", "-w", "--", "-lucp", "-lucs")
    command = ["stdbuf", "-o0", program, "-c", kind, "-s", 5000]
    server, client = both(command, [*command, "-a", A], stays=True, env={**OVER_ROVE,
                                                                         "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm"})
    sent = max(client.out().splitlines(), key=len)
    check(len(sent) >= 4999 and sent in server.out(), f"{len(sent)} bytes sent\n{server.story()}")


for kind in ("stream", "tag", "am"):
    once(f"ecosystem/ucx/sockaddr/{kind}", ucx_sockaddr, kind)


# --- librpma ---------------------------------------------------------------------------------------------------------

def rpma():
    if not pathlib.Path("/usr/include/librpma.h").exists():
        raise Skip("needs librpma-dev")
    program = compiled("rpma_pair.c", "gcc", "-O1", "--", "-lrpma", "-libverbs")
    for side in both([program, "server", A], [program, "client", A]):
        check(side.out() == "right\n", side.story())


once("ecosystem/librpma", rpma)


# --- DAPL ------------------------------------------------------------------------------------------------------------

def dtest(provider, library):
    """Runs SENDs, READs and WRITEs of 4 MiB. dtest compares the data that it reads. -D is not used, because it expects
    a completion that dtest's own disconnect may flush."""
    needs("dtest")
    registry = SCRATCH / f"{unique()}.dat.conf"
    registry.write_text(f'{provider} u2.0 nonthreadsafe default {library} dapl.2.0 "rove0 1" ""\n')
    command = ["dtest", "-P", provider, "-B", "2"]
    sides = pair(command, [*command, "-h", "127.0.0.1"], {"DAT_OVERRIDE": str(registry)}, waits_for=15828)
    for side in sides:
        check("DAPL Test Complete. PASSED" in side.out(), side.story())


once("ecosystem/dapl/dtest", dtest, "ofa-v2-rove0-1s", "libdaploscm.so.2")


# --- over rdma_cm ----------------------------------------------------------------------------------------------------

def by_rdma_cm(server_command, client_command, listens, seconds=60, server_ends=True):
    """Runs a server and a client in two namespaces. rove's address is also one of the kernel's, for TCP, as on a host
    with an RDMA NIC. `listens` is the TCP port on which the server listens first, or its output when it listens by
    rdma_cm."""
    needs(server_command[0])
    with TwoNamespaces(mtu=4300) as namespaces:
        for number, name in enumerate(namespaces.names, 1):
            ip("addr", "add", f"10.0.0.{number}/24", "dev", "ctl", netns=name)
        ours, theirs = configs("af_packet")
        server = Process(server_command, ours, SERVER_CORE, namespaces.names[0])
        server.wait_for(lambda: server.is_listening(listens) if isinstance(listens, int) else listens in server.out(),
                        20, "listener")
        client = Process(client_command, theirs, CLIENT_CORE, namespaces.names[1])
        check(client.wait(seconds) == 0,
              f"{client.name} failed\n--- server\n{server.story()}\n--- client\n{client.story()}")
        if server_ends:
            server.succeed(STOPPED)
        return server, client


def qperf(*tests):
    """Runs qperf. Its tests ver_... compare the results of atomics."""
    _, client = by_rdma_cm(["qperf"], ["qperf", "10.0.0.1", "-cm", "1", "-t", "1", *tests], 19765,
                           server_ends=False)
    check(all(f"{name}:" in client.out() for name in tests), client.story())


def fio(verb):
    """Runs fio. The server is the job that "reads". With SENDs it verifies every block. They are paced, because fio
    permits no RNR."""
    job = ["fio", "--ioengine=rdma", "--port=7777", "--bs=64k", "--size=8m"]
    verify = ["--verify=crc32c", "--do_verify=0"] if verb == "send" else []
    pace = ["--rate_iops=200"] if verb == "send" else []
    server, _ = by_rdma_cm([*job, *verify, "--name=server", "--rw=read", "--iodepth=32"],
                           [*job, *verify, *pace, "--name=client", "--rw=write", "--iodepth=4", "--hostname=10.0.0.1",
                            f"--verb={verb}"], "waiting for connection")
    check("err= 0" in server.out(), server.story())


def dapl(program, verdict):
    """Uses DAPL's connection manager over rdma_cm."""
    needs(program)

    def command(address):
        registry = SCRATCH / f"{unique()}.dat.conf"
        registry.write_text(f'ofa-v2-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{address} 0" ""\n')
        return ["env", f"DAT_OVERRIDE={registry}", program, "-P", "ofa-v2-cma",
                *(["-B", "2"] if program == "dtest" else [])]

    for side in by_rdma_cm(command("10.0.0.1"), [*command("10.0.0.2"), "-h", "10.0.0.1"], 15828):
        check(verdict in side.out(), side.story())


once("ecosystem/dapl/rdma-cm/dtest", dapl, "dtest", "DAPL Test Complete. PASSED")
once("ecosystem/dapl/rdma-cm/dtestx", dapl, "dtestx", "immed/atomic test PASSED")
once("ecosystem/qperf", qperf, "rc_bw", "rc_rdma_read_lat", "ver_rc_compare_swap", "ver_rc_fetch_add")
for verb in ("write", "read", "send"):
    once(f"ecosystem/fio/{verb}", fio, verb)
for register, provider, endpoint in ((once, "verbs", "dgram"), (test, "verbs", "msg"), (test, "verbs;ofi_rxm", "rdm")):
    command = ["fi_pingpong", "-p", provider, "-e", endpoint, "-c"]
    register(f"ecosystem/libfabric/fi_pingpong/{provider.replace(';', '/')}/{endpoint}",
             by_rdma_cm, command, [*command, "10.0.0.1"], 47592)


# --- several ranks: a switch -----------------------------------------------------------------------------------------

class Switch:
    """A namespace with a bridge. For each rank a veth pair leads to the bridge, and rove uses it by AF_PACKET."""

    def __init__(self, ranks):
        if os.geteuid() != 0:
            raise Skip("needs root for a network namespace")
        self.ranks = ranks

    def __enter__(self):
        self.netns = f"rove-switch-{unique()}"
        try:
            ip("netns", "add", self.netns)
        except Failure as failure:
            raise Skip(str(failure)) from None
        # The kernel sends nothing of its own on these interfaces.
        for key in ("all", "default"):
            ip("netns", "exec", self.netns, "sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{key}/disable_ipv6")
        ip("link", "set", "lo", "up", netns=self.netns)
        ip("link", "add", "bridge", "mtu", "4300", "type", "bridge", netns=self.netns)
        ip("link", "set", "bridge", "up", netns=self.netns)
        for rank in range(self.ranks):
            ip("link", "add", f"data{rank}", "mtu", "4300", "type", "veth", "peer", "name", f"port{rank}", "mtu",
               "4300", netns=self.netns)
            ip("link", "set", f"port{rank}", "master", "bridge", "up", netns=self.netns)
            ip("link", "set", f"data{rank}", "up", netns=self.netns)
        return self

    def __exit__(self, *_):
        stop_all()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)

    def commands(self, program):
        """Yields for each rank the words that run `program(rank)` over its port and on its core."""
        for rank in range(self.ranks):
            config = shipped("af_packet-a")
            (device,) = config["device"]
            driver, arguments = device_arguments(device["port"])
            device["port"] = device_string(driver, {**arguments, "iface": f"data{rank}"})
            device["addresses"] = [f"10.0.0.{rank + 1}/24", f"fd00::{rank + 1}/64"]
            core = CORES[rank % len(CORES)]
            yield ["taskset", "-c", core, ROVE_RUN, "--config", write_toml(config), "--", *program(rank)]


def right_ranks(ranks, launcher, program, environment, seconds=100, lines=None):
    """Runs an MPI job with a rank for each port. `lines` lines of its output contain "right"."""
    with Switch(ranks) as switch:
        commands = list(switch.commands(lambda rank: program))
        run = Process([*launcher, *mpi_ranks(commands)], netns=switch.netns, env=environment).succeed(seconds)
        check(run.out().count("right") == (lines or ranks), run.story())


def openmpi(ranks, python, point_to_point, environment):
    needs("mpirun.openmpi")
    launcher = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
                "mpi_yield_when_idle", "1",
                "--mca", "btl", "self", "--mca", "oob_tcp_if_include", "lo", *point_to_point,
                *(word for name in environment for word in ("-x", name))]
    environment = {**environment, **LOCAL_RANKS}
    if python:
        right_ranks(ranks, launcher, ["/usr/bin/python3", HERE / "mpi_collectives.py"], environment, lines=2)
    else:
        right_ranks(ranks, launcher, [compiled("mpi_ranks.c", "mpicc.openmpi", "-O2")], environment)


BY_UCX = ("--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices",
          "any")
BY_RXD = ("--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxd")


def mpich(ranks):
    """Runs Debian's MPICH, which is built with UCX. NOLOCAL makes ranks of one machine use the network."""
    needs("mpiexec.mpich")
    launcher = ["mpiexec.mpich", "-launcher", "fork", "-iface", "lo"]
    right_ranks(ranks, launcher, [compiled("mpi_ranks.c", "mpicc.mpich", "-O2")],
                {**OVER_ROVE, "MPIR_CVAR_NOLOCAL": "1"})


def mesh(ranks):
    """Runs ranks without any configuration. Each rank is a host of the user's mesh."""
    needs("mpiexec.mpich")
    folder = SCRATCH / unique()
    folder.mkdir(mode=0o700)
    launcher = ["mpiexec.mpich", "-launcher", "fork", "-iface", "lo", "-n", str(ranks), ROVE_RUN, "--"]
    run = Process([*launcher, compiled("mpi_ranks.c", "mpicc.mpich", "-O2")], core=set(CORES),
                  env={**OVER_ROVE, "MPIR_CVAR_NOLOCAL": "1", "XDG_RUNTIME_DIR": str(folder)}).succeed(100)
    check(run.out().count("right") == ranks, run.story())


def bridged(ranks):
    """Runs `ranks` ranks on the mesh of each of two namespaces. They reach the ranks of the other mesh through two
    bridges."""
    needs("mpiexec.mpich")
    ranks_program = compiled("mpi_ranks.c", "mpicc.mpich", "-O2")
    with TwoSites() as sites:
        commands = []
        for site, netns in enumerate(sites.names):
            for rank in range(ranks):
                config = write_toml(sites.member(site, 10 * (site + 1) + rank))
                commands.append(["ip", "netns", "exec", netns, ROVE_RUN, "--config", config, "--", ranks_program])
        launcher = ["mpiexec.mpich", "-launcher", "fork", "-iface", "lo"]
        run = Process([*launcher, *mpi_ranks(commands)], core=set(CORES),
                      env={**OVER_ROVE, "MPIR_CVAR_NOLOCAL": "1"}).succeed(100)
        check(run.out().count("right") == 2 * ranks, run.story())
        check(all(telemetry(bridge.pid, "/rove/bridge")["to_uplink"] > 100 for bridge in sites.bridges), run.story())


def gloo(ranks):
    """Runs gloo's ibverbs transport."""
    if not pathlib.Path("/usr/include/gloo").exists():
        raise Skip("needs libgloo-dev")
    program = compiled("gloo_ranks.cc", "g++", "-O1", "-std=c++17", "--", "-lgloo", "-libverbs")
    meeting = SCRATCH / unique()
    meeting.mkdir()
    with Switch(ranks) as switch:
        commands = switch.commands(lambda rank: [program, "rove0", 1, meeting, rank, ranks])
        processes = [Process(command, netns=switch.netns, core=CORES[rank % len(CORES)]) for rank,
                     command in enumerate(commands)]
        statuses = [process.wait(60) for process in processes]
        check(not any(statuses), "\n".join(process.story() for process in processes))


for ranks in (2, 4):
    test(f"ecosystem/openmpi/ucx/{ranks}", openmpi, ranks, False, BY_UCX, OVER_ROVE, timeout=120)
    once(f"ecosystem/mpi4py/collectives/{ranks}", openmpi, ranks, True, BY_UCX, OVER_ROVE, timeout=120)
    once(f"ecosystem/mpich/{ranks}", mpich, ranks, timeout=120)
    once(f"ecosystem/gloo/{ranks}", gloo, ranks)
for ranks in (4, 8):
    once(f"ecosystem/mesh/{ranks}", mesh, ranks, timeout=120)
once("ecosystem/bridge/4", bridged, 4, timeout=120)
once("ecosystem/openmpi/ofi-rxd/2", openmpi, 2, False, BY_RXD, {}, timeout=120)


# --- QEMU ------------------------------------------------------------------------------------------------------------

class Machine:
    """A virtual machine under rove-run that runs only its firmware."""
    MIB = 64

    def __init__(self, config, core, *options):
        self.monitor = SCRATCH / f"{unique()}.qmp"
        self.process = Process(["qemu-system-x86_64", "-machine", "q35,accel=tcg", "-m", self.MIB, "-nodefaults",
                                "-display", "none", "-S", "-qmp", f"unix:{self.monitor},server=on,wait=off", *options],
                               config, core)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.process.wait_for(self.connects, 20, "monitor")
        self.answers = self.socket.makefile()
        self.ask("qmp_capabilities")

    def connects(self):
        """Returns true when QEMU listens, which is some time after its socket exists."""
        return self.socket.connect_ex(str(self.monitor)) == 0

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        for line in self.answers:
            answer = json.loads(line)
            if "return" in answer or "error" in answer:
                check("return" in answer, f"{command}: {answer}")
                return answer["return"]
        raise Failure(f"no answer to {command}\n{self.process.story()}")

    def migration_ends(self):
        return (status := self.ask("query-migrate").get("status")) in ("completed", "failed") and status

    def memory(self):
        """Returns the guest's memory from 1 MiB on, which the firmware does not change."""
        path = SCRATCH / unique()
        self.ask("pmemsave", val=1 << 20, size=(self.MIB - 1) << 20, filename=str(path))
        return path.read_bytes()


def migration(pinned=False, killed=False):
    """Migrates a machine with its memory to another QEMU. If `pinned`, the memory is registered as a whole and not in
    pieces. If `killed`, the target ends during the migration, and the machine continues where it is."""
    needs("qemu-system-x86_64")
    contents = SCRATCH / unique()
    contents.write_bytes(random.Random(1).randbytes(32 << 20))
    link, uri = memif_link(), f"rdma:{A}:{free_port()}"
    capabilities = [{"capability": "rdma-pin-all", "state": pinned}]
    there = Machine(link.configs[0], SERVER_CORE, "-incoming", "defer")
    there.ask("migrate-set-capabilities", capabilities=capabilities)
    there.ask("migrate-incoming", uri=uri)
    here = Machine(link.configs[1], CLIENT_CORE, "-device", f"loader,file={contents},addr={16 << 20},force-raw=on")
    here.ask("migrate-set-capabilities", capabilities=capabilities)
    here.ask("migrate-set-parameters", **{"max-bandwidth": (8 if killed else 1000) << 20})
    here.ask("migrate", uri=uri)
    if killed:
        here.process.wait_for(lambda: here.ask("query-migrate").get("ram", {}).get("normal", 0) > 100, 20, "page sent")
        there.process.child.kill()
    status = here.process.wait_for(here.migration_ends, 30, "end of the migration")
    check(status == ("failed" if killed else "completed"), here.process.story())
    if killed:
        here.ask("cont")
        return
    memory = here.memory()
    check(contents.read_bytes() in memory, "the machine does not have its contents")
    check(there.memory() == memory, there.process.story())


once("ecosystem/qemu/migration", migration)
once("ecosystem/qemu/migration/pinned", migration, True)
once("ecosystem/qemu/migration/killed", migration, False, True)
