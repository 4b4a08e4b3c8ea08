# SPDX-License-Identifier: Apache-2.0
"""The programs that the speed table runs. Each function runs a server on core 0 and a client on core 1, and returns a
Sample. Goodput is in Gb/s of payload (of frames for port_floor), rates are in packets or messages per second, and
latency is in ns.
"""
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import tomllib
from contextlib import ExitStack, contextmanager

from sampling import Sample

TIMEOUT_S = 90            # limit of one run
LISTEN_S = 20             # time within which a server must listen
HEAP_MIB = 512            # memory of port_floor's EAL; rove computes its own
tcp_ports = itertools.count(18600)  # Each run has a new port, because the port of the last run may be in TIME_WAIT.


class Failed(Exception):
    """A program did not finish, or printed nothing that can be parsed."""


def own_scheduling_group():
    """Starts a session, and with it an autogroup, that has the highest weight, so that other work on the machine takes
    little CPU time from it."""
    os.setsid()
    try:
        pathlib.Path("/proc/self/autogroup").write_text("-19")
    except OSError:
        pass  # This process is not root, or there are no autogroups. The run is only noisier.


@contextmanager
def started(command, core, env=None):
    process = subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], env={**os.environ, **(env or {})},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               preexec_fn=own_scheduling_group)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        process.stdout.close()


def wait_until(listens, process):
    deadline = time.monotonic() + LISTEN_S
    while not listens():
        if process.poll() is not None:
            raise Failed(f"the server ended with {process.returncode}: {tail(process.stdout.read())}")
        if time.monotonic() > deadline:
            raise Failed("the server does not listen")
        time.sleep(0.01)


def tcp_listens(process, port):
    """Returns a function that tests for a listener in the server's network namespace. It does not connect, because
    perftest accepts the first connection as its client."""
    def listens():
        try:
            tables = [pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text() for table in ("tcp", "tcp6")]
        except OSError:
            return False
        return any(re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", table) for table in tables)
    return listens


def cm_listens(process):
    """Returns a function that tests whether the process has opened its device for rdma_cm, that is whether it has QP 1.
    The program then binds and listens."""
    path = f"/var/run/dpdk/rove-{process.pid}/dpdk_telemetry.v2"

    def listens():
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as query:
                query.settimeout(5)
                query.connect(path)
                query.recv(1024)
                query.send(b"/rove/qps")
                opened = 1 in json.loads(query.recv(1 << 16))["/rove/qps"]
        except (OSError, TypeError):  # The datapath has not started.
            return False
        if opened:
            time.sleep(0.1)
        return opened
    return listens


def pair(server, client, listens, env=None, stays=False):
    """Runs both to their end and returns what the server and the client printed. If `stays` is set, the server is
    terminated and its output is not read."""
    with started(server, 0, env) as s:
        wait_until(listens(s), s)
        with started(client, 1, env) as c:
            outputs = {"server": ""}
            for name, process in (("client", c),) if stays else (("client", c), ("server", s)):
                try:
                    outputs[name] = process.communicate(timeout=TIMEOUT_S)[0]
                except subprocess.TimeoutExpired:
                    raise Failed(f"the {name} did not finish in {TIMEOUT_S} s") from None
                if process.returncode != 0:
                    raise Failed(f"the {name} ended with {process.returncode}: {tail(outputs[name])}")
    return outputs["server"], outputs["client"]


def tail(text):
    return " / ".join(line for line in text.splitlines()[-4:] if line.strip())


def fields(output, program):
    """Returns the name=value fields of the last line that a program of rove printed."""
    lines = [line for line in output.splitlines() if line.startswith(program + " ")]
    if not lines:
        raise Failed(f"no line of {program}: {tail(output)}")
    return dict(field.split("=", 1) for field in lines[-1].split()[1:])


def perftest_row(program, output):
    """Returns the number columns of perftest's last result line: bytes, iterations, and then what the program
    measures."""
    rows, after_heading = [], False
    for line in output.splitlines():
        if after_heading and re.match(r" *\d", line):
            rows.append([float(column) for column in line.split()])
        after_heading |= line.lstrip().startswith("#bytes")
    if not rows:
        raise Failed(f"no result of {program}: {tail(output)}")
    return rows[-1]


def dpdk_port(port):
    """Returns the DPDK vdev on which port_floor runs. rove has a memif of its own, and port_floor uses DPDK's driver
    instead."""
    memif = re.fullmatch(r"memif:@([^,]+)(,role=server)?", port)
    return f"net_memif0,socket={memif[1]},rsize=8,bsize=4352{memif[2] or ''}" if memif else port


class Floor:
    """Runs port_floor on the ports of the two configurations."""

    def __init__(self, program, configs):
        self.program = program
        self.ports, self.eal = [], []
        for file in configs:
            config = tomllib.loads(pathlib.Path(file).read_text())
            self.ports.append(dpdk_port(config["device"][0]["port"]))
            self.eal.append(config.get("runtime", {}).get("eal", []))

    def command(self, side, mode, frame_bytes, seconds, *options):
        huge = int(re.search(r"HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
        memory = ["--in-memory"] if huge * 2 >= HEAP_MIB else ["--no-huge", "--no-shconf", "-m", HEAP_MIB]
        return [self.program, "--lcores", f"(0)@{side}", *memory, "--no-pci", "--no-telemetry", "--log-level=3",
                "--file-prefix", f"rove-floor-{side}", "--vdev", self.ports[side], *self.eal[side],
                "--", mode, "--size", frame_bytes, "--seconds", seconds, *options]

    def listens(self, _process):
        socket = re.search(r"socket=([^,]+)", self.ports[0])
        return lambda: socket is None or socket[1] in pathlib.Path("/proc/net/unix").read_text()

    def rate(self, frame_bytes, field, *options, seconds=0.8):
        server, _ = pair(self.command(0, "--recv", frame_bytes, seconds, *options),
                         self.command(1, "--send", frame_bytes, seconds, *options), self.listens)
        return Sample(float(fields(server, "port_floor")[field]), seconds)

    def latency(self, frame_bytes, seconds=0.5):
        _, client = pair(self.command(0, "--echo", frame_bytes, seconds),
                         self.command(1, "--pingpong", frame_bytes, seconds), self.listens)
        return Sample(float(fields(client, "port_floor")["median_ns"]), seconds)


class MemoryFloor:
    """Runs memory_floor, which uses no port."""

    def __init__(self, program):
        self.program = program

    def rate(self, seconds=0.8):
        name = f"/rove-floor-{os.getpid()}"
        server, _ = pair([self.program, "--recv", name], [self.program, "--send", name, "--seconds", seconds],
                         lambda _process: pathlib.Path(f"/dev/shm{name}").exists)
        return Sample(float(fields(server, "memory_floor")["gbps"]), seconds)


class Rove:
    """Runs programs under rove-run, the server with the first configuration and the client with the second."""

    def __init__(self, build, configs):
        self.rove_run, self.configs = build / "apps" / "rove-run", configs
        self.qp_scale = build / "bench" / "macro" / "qp_scale"
        self.churn = build / "tests" / "system" / "rdma_cm_churn"
        self.ucx = Ucx(self.run, "127.0.0.1", UCX_TLS="rc_verbs,ud_verbs,self", UCX_NET_DEVICES="rove0:1",
                       UCX_IB_GID_INDEX="1")

    def run(self, server, client, port, env=None):
        under = [[self.rove_run, "--config", config, "--", *command]
                 for config, command in zip(self.configs, (server, client))]
        return pair(*under, lambda process: tcp_listens(process, port), env)

    def pair(self, command, port, clients=()):
        return self.run(command, command + self.to_server(command) + list(clients), port)

    def to_server(self, command):
        """The out-of-band TCP connection uses lo. perftest takes a bare address, and qp_scale takes --host."""
        return ["--host", "127.0.0.1"] if command[0] == self.qp_scale else ["127.0.0.1"]

    def perftest(self, program, *args):
        port = next(tcp_ports)
        _, client = self.pair([program, "-F", "-d", "rove0", "-p", port, *args], port)
        return perftest_row(program, client)

    def goodput(self, program, size, mtu, iterations):
        # Columns 2 and 3 are the peak and the average in Gb/s.
        row = self.perftest(program, "--report_gbits", "-s", size, "-m", mtu, "-n", iterations)
        return Sample(row[3], row[1] * size * 8 / 1e9 / row[3])

    def rate(self, program, iterations, *args):
        # -N measures no peak, which would need a timestamp per message. Column 4 is in millions of messages per second
        # over all QPs.
        row = self.perftest(program, "--report_gbits", "-N", "-n", iterations, *args)
        return Sample(row[4] * 1e6, row[1] / (row[4] * 1e6))

    def latency(self, program, size, iterations):
        # Columns 2 to 5 are the minimum, maximum, typical (the median) and average half round trip in us.
        row = self.perftest(program, "-s", size, "-n", iterations)
        return Sample(row[4] * 1000, row[1] * 2 * row[5] / 1e6)

    def over_cm(self, server, client, stays=False):
        """Runs two programs that find each other by rdma_cm, and returns what the client printed."""
        under = [[self.rove_run, "--config", config, "--", *command]
                 for config, command in zip(self.configs, (server, client))]
        return pair(*under, cm_listens, stays=stays)[1]

    def connections(self, count=1000):
        """Returns a Sample of the median time from rdma_connect to ESTABLISHED in ns, and one of the connections per
        second when they are made one after the other."""
        address = ["10.0.0.1", next(tcp_ports)]
        client = self.over_cm([self.churn, "server", *address], [self.churn, "client", *address, count], stays=True)
        lines = [line for line in client.splitlines() if line.startswith("{")]
        if not lines:
            raise Failed(f"no line of rdma_cm_churn: {tail(client)}")
        end = json.loads(lines[-1])
        seconds = end["connections"] / end["per_second"]
        return Sample(end["median_us"] * 1000, seconds), Sample(end["per_second"], seconds)

    def rstream(self, *options):
        return rstream(self.over_cm, "10.0.0.1", *options)

    def beside_registrations(self, rate, size, seconds=1.0):
        """Measures the goodput of one QP while the client makes `rate` registrations and deregistrations per second."""
        port = next(tcp_ports)
        common = ["--qps", 1, "--size", size, "--seconds", seconds, "--port", port, "--device", "rove0"]
        _, client = self.pair([self.qp_scale, *common], port, ["--registrations", rate])
        end = fields(client, "qp_scale")
        if float(end["registrations_per_s"]) < 0.9 * rate:
            raise Failed(f"only {end['registrations_per_s']} registrations a second")
        return Sample(float(end["gbps"]), float(end["seconds"]))

    def scale(self, qps, size, seconds=1.0):
        """Returns the goodput over `qps` QPs, and the larger of both ends' resident bytes per QP."""
        port = next(tcp_ports)
        server, client = self.pair([self.qp_scale, "--qps", qps, "--size", size, "--seconds", seconds, "--port", port,
                                    "--device", "rove0"], port)
        ends = fields(server, "qp_scale_server"), fields(client, "qp_scale")
        memory = max(float(end["rss_bytes_per_qp"]) for end in ends)
        return Sample(float(ends[1]["gbps"]), float(ends[1]["seconds"])), Sample(memory, seconds)


class Mesh:
    """Runs processes of one mesh, which share both cores."""

    def __init__(self, build):
        self.rove_run, self.program = build / "apps" / "rove-run", build / "bench" / "macro" / "all_to_all"

    def all_to_all(self, processes, seconds=1.5):
        """Returns the sum of all processes. Raises Failed if one has less than half of the mean."""
        with tempfile.TemporaryDirectory() as folder:
            scratch = pathlib.Path(folder)
            (scratch / "files").mkdir()
            config = scratch / "mesh.toml"
            config.write_text(f'[[device]]\nport = "mesh:{scratch}/mesh"\n')
            rank = f"{self.rove_run} --config {config} -- {self.program} --folder {scratch / 'files'}"
            # All ranks share one session, as mpiexec's ranks do. Between scheduling groups a sched_yield() does not
            # yield the core.
            ranks = f"for rank in $(seq 0 {processes - 1}); do {rank} --processes {processes} --rank $rank " \
                    f"--seconds {seconds} & done; wait"
            with started(["sh", "-c", ranks], "0,1") as shell:
                output = shell.communicate(timeout=TIMEOUT_S)[0]
        shares = [float(share) for share in re.findall(r"all_to_all rank=.* gbps=([\d.]+)", output)]
        if len(shares) != processes:
            raise Failed(f"{len(shares)} of {processes} processes were done: {tail(output)}")
        if min(shares) < 0.5 * statistics.mean(shares):
            raise Failed(f"one of {processes} processes has {min(shares):.3g} of {statistics.mean(shares):.3g} Gb/s")
        return Sample(sum(shares), seconds)


class Sleepers:
    """Runs two programs that sleep until a message arrives (tests/system/sleepers), over a mesh or kernel TCP, while
    other processes keep the cores busy."""

    def __init__(self, build):
        self.rove_run, self.program = build / "apps" / "rove-run", build / "tests" / "system" / "sleepers"

    def run(self, over, field, busy, *options):
        port = next(tcp_ports)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as beside:
            for number in range(busy):
                beside.enter_context(started(["sh", "-c", "while :; do :; done"], number % 2))
            command = [self.program, "--over", over, "--port", port, *options]
            if over == "verbs":
                config = pathlib.Path(folder) / "mesh.toml"
                config.write_text(f'[[device]]\nport = "mesh:{folder}/mesh"\n')
                command = [self.rove_run, "--config", config, "--", *command]
            begun = time.monotonic()
            _, client = pair(command, [*command, "127.0.0.1"], lambda server: tcp_listens(server, port))
            return Sample(float(fields(client, "sleepers")[field]), min(1.0, time.monotonic() - begun))


class Ucx:
    """Runs ucx_perftest between two ends. `pair(server, client, port, env)` runs them, and `address` is the
    server's."""

    def __init__(self, pair, address, **env):
        self.pair, self.address, self.env = pair, address, env

    def run(self, test, size, iterations, column):
        port = next(tcp_ports)
        started_at = time.monotonic()
        _, client = self.pair(["ucx_perftest", "-p", port],
                              ["ucx_perftest", self.address, "-p", port, "-f", "-t", test, "-s", size,
                               "-n", iterations, "-w", max(10, iterations // 10)], port, self.env)
        rows = [line.split() for line in client.splitlines() if re.match(r" *\d+ ", line)]
        if not rows:
            raise Failed(f"no result of ucx_perftest: {tail(client)}")
        return Sample(float(rows[-1][column]), min(1.0, time.monotonic() - started_at))

    def goodput(self, test, size, iterations):
        sample = self.run(test, size, iterations, 5)  # overall MB/s, with 2^20 bytes per MB
        sample.value *= 2**20 * 8 / 1e9
        return sample

    def latency(self, test, size, iterations):
        sample = self.run(test, size, iterations, 1)  # median of half round trips in us
        sample.value *= 1000
        return sample


def rstream(run, address, size, transfers, iterations, *options):
    """Runs rstream, non-blocking at both ends. It sends and receives `transfers` transfers, and repeats that
    `iterations` times. Returns a Sample of the goodput in Gb/s and one of the time per transfer in ns."""
    common = ["rstream", "-p", next(tcp_ports), "-S", size, "-C", transfers, "-I", iterations, *options]
    client = run([*common, "-b", address], [*common, "-s", address])
    rows = [line.split() for line in client.splitlines() if line.startswith("custom")]
    if not rows:
        raise Failed(f"no result of rstream: {tail(client)}")
    seconds = float(rows[-1][5].rstrip("s"))
    return Sample(float(rows[-1][6]), seconds), Sample(float(rows[-1][7]) * 1000, seconds)


class KernelLoopback:
    """Runs kernel TCP over lo, with both ends in one namespace, and UCX through shared memory."""
    ADDRESS = "127.0.0.1"

    def __init__(self):
        self.ucx_memory = Ucx(self.pair, self.ADDRESS, UCX_TLS="posix,cma,self")

    def pair(self, server, client, port, env=None):
        return pair(server, client, lambda process: tcp_listens(process, port), env)

    def rstream(self, *options):
        def run(server, client):
            return self.pair(server, client, server[server.index("-p") + 1])[1]
        return rstream(run, self.ADDRESS, *options, "-T", "s")

    def connections(self, count=1000):
        """Returns a Sample of the median of connect() in ns, and one of the connections per second. The kernel
        completes the handshake without the listener's process."""
        with socket.create_server((self.ADDRESS, 0)) as listener:
            took = []
            begun = time.monotonic()
            for _ in range(count):
                with socket.socket() as client:
                    asked = time.perf_counter_ns()
                    client.connect(listener.getsockname())
                    took.append(time.perf_counter_ns() - asked)
                listener.accept()[0].close()
        seconds = time.monotonic() - begun
        return Sample(statistics.median(took), seconds), Sample(count / seconds, seconds)


class Kernel:
    """Runs kernel TCP between two network namespaces that a veth joins, as UCX and iperf3 use it."""
    ADDRESSES = "10.254.7.1", "10.254.7.2"

    def __init__(self, tcp_pingpong):
        self.tcp_pingpong = tcp_pingpong
        self.ucx = Ucx(self.pair, self.ADDRESSES[0], UCX_TLS="tcp,self")
        self.spaces = [f"rove-bench-{end}-{os.getpid()}" for end in "ab"]
        self.links = [f"rvb{end}{os.getpid() % 1000000}" for end in "ab"]

    def __enter__(self):
        try:
            for space in self.spaces:
                ip("netns", "add", space)
            ip("link", "add", self.links[0], "netns", self.spaces[0], "type", "veth",
               "peer", "name", self.links[1], "netns", self.spaces[1])
            for space, link, address in zip(self.spaces, self.links, self.ADDRESSES):
                ip("-n", space, "addr", "add", address + "/24", "dev", link)
                ip("-n", space, "link", "set", link, "up")
                ip("-n", space, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in self.spaces:  # The veth is deleted with its namespaces.
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)

    def pair(self, server, client, port, env=None):
        inside = [["ip", "netns", "exec", space, *command] for space, command in zip(self.spaces, (server, client))]
        return pair(*inside, lambda process: tcp_listens(process, port), env)

    def iperf3(self, seconds=1):
        port = next(tcp_ports)
        _, client = self.pair(["iperf3", "-s", "-1", "-p", port],
                              ["iperf3", "-c", self.ADDRESSES[0], "-p", port, "-t", seconds, "-J"], port)
        return Sample(json.loads(client)["end"]["sum_received"]["bits_per_second"] / 1e9, seconds)

    def pingpong(self, size, seconds=0.5):
        port = next(tcp_ports)
        command = [self.tcp_pingpong, "--port", port, "--size", size, "--seconds", seconds]
        _, client = self.pair(command, [*command, "--host", self.ADDRESSES[0]], port)
        return Sample(float(fields(client, "tcp_pingpong")["median_ns"]), seconds)


class Veth(Kernel):
    """A veth pair with a given MTU, with and without the offloads that a veth shares with a NIC. rove runs on its ends
    too."""
    numbers = itertools.count()

    def __init__(self, build, scratch, port, mtu):
        super().__init__(None)
        self.mtu = mtu
        number = next(self.numbers)
        self.spaces = [f"{space}-{number}" for space in self.spaces]
        configs = []
        for end, link, address in zip("ab", self.links, self.ADDRESSES):
            configs.append(scratch / f"veth-{number}-{end}.toml")
            where = f"{port}:{link if port == 'interface' else address}"
            configs[-1].write_text(f'[transport]\nmode = "rc"\n[[device]]\nport = "{where}"\n')
        self.rove = RoveOverVeth(build, configs, self)

    def __enter__(self):
        super().__enter__()
        for space, link in zip(self.spaces, self.links):
            ip("-n", space, "link", "set", link, "mtu", str(self.mtu))
        return self

    def iperf3_with(self, offloads):
        state = "on" if offloads else "off"
        for space, link in zip(self.spaces, self.links):
            states = [word for feature in ("tx", "tso", "gso", "gro") for word in (feature, state)]
            subprocess.run(["ip", "netns", "exec", space, "ethtool", "-K", link, *states], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self.iperf3()

    def goodput(self):
        return self.rove.goodput("ib_write_bw", 1 << 20, 4096 if self.mtu >= 4200 else 1024, 1000)


class RoveOverVeth(Rove):
    def __init__(self, build, configs, veth):
        super().__init__(build, configs)
        self.veth = veth

    def run(self, server, client, port, env=None):
        inside = [[self.rove_run, "--config", config, "--", *command]
                  for config, command in zip(self.configs, (server, client))]
        return self.veth.pair(*inside, port, env)

    def to_server(self, command):
        return [self.veth.ADDRESSES[0]]


def ip(*args):
    subprocess.run(["ip", *args], check=True)
