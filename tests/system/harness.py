# SPDX-License-Identifier: Apache-2.0
"""The parts of the system tests: configurations, processes under rove-run, namespaces, and the list of tests.

A test is a function and its arguments, registered by `test(name, function, ...)`. It fails by raising an exception.
Most tests have two processes on two cores: a server on the first core that the run may use, and a client on the last.
Times are in seconds.
"""
import atexit
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ROVE_BUILD_DIR", ROOT / "build")).resolve()
SANITIZED_BUILD = pathlib.Path(f"{BUILD}-asan")
ROVE_RUN = BUILD / "apps" / "rove-run"
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]
STOPPED = 20  # time in which a terminated process must end, on a machine that may have other work


class Failure(Exception):
    pass


class Skip(Exception):
    pass


@dataclasses.dataclass
class Test:
    name: str
    function: object
    arguments: tuple
    timeout: float
    quick: bool
    modes: tuple
    computes: bool
    alone: bool
    lane: str


TESTS: list[Test] = []
BOTH = ("rc", "mp")
mode = "auto"  # transport.mode of the running test, unless its configuration sets it


def test(name, function, *arguments, timeout=120, quick=False, modes=BOTH, computes=False, alone=False, lane=None):
    """Registers a test that runs in each of `modes`. `tests/run --quick` runs only tests that are marked `quick`.

    Most tests wait most of the time, so two lanes of them run at once, while the sanitizer builds and the unit tests
    keep the cores busy. The tests of a lane run one after another in one process, because they share a guest or the
    name of a socket. By default the lane is the first part of the name. A test that is `alone` measures a time or a
    rate, or changes the machine's settings, so it runs after all others. A test that `computes` takes turns with the
    unit tests."""
    TESTS.append(Test(name, function, arguments, timeout, quick, modes, computes, alone, lane or name.split("/")[0]))


def once(name, function, *arguments, **options):
    """Registers a test that does not depend on the mode of RC QPs."""
    test(name, function, *arguments, modes=("auto",), **options)


def check(condition, message):
    if not condition:
        raise Failure(message)


def eventually(body, timeout):
    """Runs `body` until it does not fail, for a state that follows its cause after a while. Returns the result of
    `body`, or raises its last failure."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return body()
        except Failure:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


# --- one number never used twice -------------------------------------------------------------------------------------

_unique = itertools.count()


def unique():
    return f"{os.getpid()}-{next(_unique)}"


def free_port(netns=None):
    """Returns a TCP port on which no process listens. A namespace has ports of its own, so any number works there."""
    if netns:
        return 20000 + next(_unique)
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return probe.getsockname()[1]


def loopback_address():
    """Returns an address in 127.0.0.0/8 that neither another test nor another run on this machine uses, because the UDP
    port of RoCE is shared by the whole machine."""
    number = (os.getpid() << 10) + next(_unique)
    return f"127.{64 + (number >> 16) % 64}.{(number >> 8) % 256}.{number % 256}"


# --- configurations --------------------------------------------------------------------------------------------------

_directory = tempfile.TemporaryDirectory(prefix="rove-system-")
SCRATCH = pathlib.Path(_directory.name)


def _toml(value):
    return json.dumps(value)  # JSON and TOML write strings, numbers, booleans and lists of them alike.


def write_toml(config):
    """Writes a nested dict as a TOML file and returns its path."""
    config = {**config, "transport": {"mode": mode, **config.get("transport", {})}}
    lines = []

    def table(header, content):
        if header:
            lines.append(header)
        for key, value in content.items():
            if not isinstance(value, dict) and not (isinstance(value, list) and value and isinstance(value[0], dict)):
                lines.append(f"{key} = {_toml(value)}")
        name = header.strip("[]")
        for key, value in content.items():
            path = f"{name}.{key}" if name else key
            if isinstance(value, dict):
                table(f"[{path}]", value)
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                for element in value:
                    table(f"[[{path}]]", element)

    table("", config)
    path = SCRATCH / f"{unique()}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def shipped(name):
    """Returns a configuration of config/ as a dict."""
    return tomllib.loads((ROOT / "config" / f"{name}.toml").read_text())


def device_arguments(port):
    """Splits a port: "net_memif0,a=b,c" becomes ("net_memif0", {"a": "b", "c": None}), and "memif:@x,a=b" becomes
    ("memif", {"socket": "x", "a": "b"})."""
    driver, *rest = port.split(",")
    driver, _, place = driver.partition(":")
    socket = {"socket": place.removeprefix("@")} if place else {}
    return driver, socket | dict((item.split("=", 1) + [None])[:2] for item in rest)


def device_string(driver, arguments):
    if driver == "memif":
        arguments = dict(arguments)
        place = arguments.pop("socket")
        driver += f":{place}" if place.startswith("/") else f":@{place}"
    return ",".join([driver] + [key if value is None else f"{key}={value}" for key, value in arguments.items()])


def memif_pair(of="loopback", **changes):
    """Returns a shipped pair of configurations with a socket of its own. For the keyword arguments see
    with_changes()."""
    name = f"rove-test-{unique()}"
    pair = []
    for config in (shipped(f"{of}-a"), shipped(f"{of}-b")):
        for device in config["device"]:
            driver, arguments = device_arguments(device["port"])
            arguments["socket"] = name if arguments.get("socket-abstract", "yes") == "yes" else f"{SCRATCH}/{name}"
            device["port"] = device_string(driver, arguments)
        pair.append(with_changes(config, **changes))
    dedicate(pair)
    return pair


def with_changes(config, impair=None, mtu=None, progress=None):
    config = copy.deepcopy(config)
    for device in config["device"]:
        if impair:
            device["impair"] = dict(impair)
        if mtu:
            device["mtu"] = mtu
    if progress:
        config.setdefault("runtime", {})["progress"] = progress
    return config


def dedicate(pair):
    for config, core in zip(pair, (SERVER_CORE, CLIENT_CORE)):
        if config.get("runtime", {}).get("progress") == "dedicated":
            config["runtime"]["lcores"] = [str(core)]


# --- processes -------------------------------------------------------------------------------------------------------

_running = []


def stop_all():
    for process in list(_running):
        process.stop()


atexit.register(stop_all)


@functools.cache
def terminal():
    """Returns a descriptor of a terminal on which there is no input."""
    return os.openpty()[1]


# Open MPI 4 and 5 do not start if they find no program to reach other machines, although all ranks are on this one.
LOCAL_RANKS = {"OMPI_MCA_plm_rsh_agent": "true", "PRTE_MCA_plm_ssh_agent": "true"}


def mpi_ranks(commands):
    """Returns arguments of mpirun and mpiexec that run each command as a rank. It does not use "-np 1 A : -np 1 B",
    because Open MPI 5 of Debian 13 crashes with it, whatever the programs are (open-mpi/ompi issue 13303)."""
    one = 'shift "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec $1'
    return ["-np", len(commands), "sh", "-c", one, "sh", *(" ".join(map(str, command)) for command in commands)]


class Process:
    """A program on one core or on a set of cores. It runs under rove-run if it has a configuration. Its output goes to
    files."""

    def __init__(self, arguments, config=None, core=CLIENT_CORE, netns=None, env=None, build=BUILD, stdin=False,
                 outlives_test=False):
        arguments = [str(argument) for argument in arguments]
        self.name = pathlib.Path(arguments[0]).name
        command = ["ip", "netns", "exec", netns] if netns else []
        if config is not None:
            path = config if isinstance(config, pathlib.Path) else write_toml(config)
            command += [str(build / "apps" / "rove-run"), "--config", str(path), "--"]
        self.command = command + arguments
        self.output = SCRATCH / f"{unique()}-{self.name}.out"
        self.errors = self.output.with_suffix(".err")
        with open(self.output, "wb") as out, open(self.errors, "wb") as err:
            self.child = subprocess.Popen(
                self.command, stdin=self.standard_input(stdin), stdout=out, stderr=err,
                env={**os.environ, **(env or {})}, cwd=SCRATCH, start_new_session=True,
                preexec_fn=lambda: self.begin(core))
        self.pid, self.netns = self.child.pid, netns
        if outlives_test:       # The caller stops it.
            atexit.register(self.stop)
        else:
            _running.append(self)

    @staticmethod
    def begin(core):
        os.sched_setaffinity(0, core if isinstance(core, set) else {core})
        # A background job of a shell ignores these signals, and so would all its children. The tests may be such a job.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)

    def standard_input(self, written):
        if written:
            return subprocess.PIPE
        # Without a terminal, UCX 1.18's program gets its rank from MPI.
        return terminal() if self.name == "ucx_perftest" else subprocess.DEVNULL

    def out(self):
        return self.output.read_text(errors="replace")

    def err(self):
        return self.errors.read_text(errors="replace")

    def json(self):
        """Returns the lines of output that are JSON objects. The last line of a running process may be incomplete, so
        it is left out."""
        whole, _, _ = self.out().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def threads(self):
        """Returns for each thread where it waits in the kernel, because a hang may not be reproducible."""
        lines = []
        for task in sorted(pathlib.Path(f"/proc/{self.pid}/task").glob("*")):
            try:
                name, place, call = ((task / file).read_text().strip() for file in ("comm", "wchan", "syscall"))
            except OSError:  # It has ended.
                continue
            lines.append(f"thread {name}: in {place}, system call {call}")
        return lines

    def story(self):
        lines = (self.out() + self.err()).splitlines()
        status = self.child.returncode
        end = [*self.threads(), "-> still running"] if status is None else [f"-> {status}"]
        return "\n".join([f"$ {' '.join(self.command)}", *lines[-25:], *end])

    def wait(self, timeout):
        """Returns the exit status. Raises Failure if the process takes longer than `timeout`."""
        if self.child.poll() is None:
            # Popen.wait(timeout) polls only every 50 ms.
            with open(os.pidfd_open(self.pid), "rb", buffering=0) as ended:
                if not select.select([ended], [], [], timeout)[0]:
                    raise Failure(f"{self.name} is not done after {timeout:.0f} s\n{self.story()}")
        status = self.child.wait()
        if self in _running:
            _running.remove(self)
        return status

    def succeed(self, timeout):
        check(self.wait(timeout) == 0, f"{self.name} failed\n{self.story()}")
        return self

    def wait_for(self, condition, timeout, what):
        """Polls `condition()` while the process lives."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            check(self.child.poll() is None, f"{self.name} ended before {what}\n{self.story()}")
            check(time.monotonic() < deadline, f"{self.name}: no {what} after {timeout} s\n{self.story()}")
            time.sleep(0.01)
        return value

    def is_listening(self, port):
        """Returns true if a process listens on this TCP port in the process's namespace. At first `ip netns exec` has
        not entered that namespace yet."""
        try:
            if self.netns and not os.path.samefile(f"/proc/{self.pid}/ns/net", f"/run/netns/{self.netns}"):
                return False
        except OSError:     # It has ended.
            return False
        for family in ("tcp", "tcp6"):
            try:
                rows = pathlib.Path(f"/proc/{self.pid}/net/{family}").read_text().splitlines()[1:]
            except OSError:
                continue
            if any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in rows):
                return True
        return False

    def wait_listening(self, port, timeout=20):
        self.wait_for(lambda: self.is_listening(port), timeout, f"listener on TCP port {port}")

    def cpu_time(self):
        """Returns the CPU time of the process in seconds, with a resolution of 10 ms."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sleeps(self, most=0.01, seconds=1):
        """Fails unless the process uses almost no CPU time for some seconds. A process that polls never passes; one
        that was busy passes once it has finished its remaining work."""
        def quiet():
            before = self.cpu_time()
            time.sleep(seconds)
            used = round(self.cpu_time() - before, 2)
            check(self.child.poll() is None and used <= most, f"{used} s of CPU time in {seconds} s\n{self.story()}")

        eventually(quiet, 20)

    def waited_for_core(self):
        """Returns the seconds for which the threads were ready to run and had no core, summed over all of them."""
        threads = pathlib.Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9

    def outweigh(self):
        """Gives the process a high weight, so that other work takes little CPU time from a measurement."""
        try:
            pathlib.Path(f"/proc/{self.pid}/autogroup").write_text("-19")
        except OSError:
            pass  # The run is not root, or there are no autogroups. The process is only slower.

    def kill(self, how=signal.SIGKILL):
        self.child.send_signal(how)
        self.wait(STOPPED)

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOPPED)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            with contextlib.suppress(ProcessLookupError):   # its children, such as fio's jobs
                os.killpg(self.pid, signal.SIGKILL)
        if self in _running:
            _running.remove(self)


@dataclasses.dataclass
class Link:
    """How a pair of processes is connected: a configuration for each, and the address of the TCP control connection."""
    configs: list
    netns: tuple = (None, None)
    server_host: str = "127.0.0.1"
    build: pathlib.Path = BUILD
    env: dict = dataclasses.field(default_factory=dict)


def memif_link(**changes):
    return Link(memif_pair(**changes))


def run_pair(link, server, client, port_option="-p", timeout=100, at_once=False, measured=False):
    """Starts `server`, waits until it listens (unless `at_once`), and runs `client HOST`. Both must succeed. If they
    are `measured`, they get a high weight. Returns both processes."""
    port = free_port(link.netns[0])
    listening = start_server(link, server, port, port_option, not at_once)
    connecting = start_client(link, client, port, port_option)
    for process in (listening, connecting) if measured else ():
        process.outweigh()
    try:
        connecting.succeed(timeout)
        listening.succeed(STOPPED)
    except Failure as failure:
        raise Failure(
            f"{str(failure).splitlines()[0]}\n--- server\n{listening.story()}\n--- client\n{connecting.story()}"
        ) from None
    return listening, connecting


def start_server(link, arguments, port, port_option="-p", wait=True):
    server = Process([*arguments, port_option, port], link.configs[0], SERVER_CORE, link.netns[0], link.env, link.build)
    if wait:
        server.wait_listening(port)
    return server


def start_client(link, arguments, port, port_option="-p"):
    return Process([*arguments, port_option, port, link.server_host], link.configs[1], CLIENT_CORE, link.netns[1],
                   link.env, link.build)


def program(name, build=BUILD):
    return build / "tests" / "system" / name


def verified(link, *options, timeout=100):
    """Runs verbs_check on both sides with the same options. Returns the JSON lines of the server, which sees losses."""
    command = [program("verbs_check", link.build), *options]
    server, _ = run_pair(link, command, command, "--port", timeout)
    return server.json()


def covering(file, over):
    """Returns words that precede a command and make it see `file` in the place of `over`."""
    command = [
        "unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh",
        str(file),
        str(over)]
    told = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=20)
    if told.returncode != 0:
        raise Skip(f"no mount namespace: {told.stderr.strip()}")
    return command


# --- namespaces ------------------------------------------------------------------------------------------------------

def ip(*arguments, netns=None):
    command = ["ip", *(["-n", netns] if netns else []), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}")


class TwoNamespaces:
    """Two namespaces with two veth pairs: `data`, for rove's ports, and `ctl`, 192.0.2.1 and .2, for TCP."""

    def __init__(self, mtu):
        if os.geteuid() != 0:
            raise Skip("needs root for network namespaces")
        self.mtu = mtu

    def __enter__(self):
        self.names = (f"rove-a-{unique()}", f"rove-b-{unique()}")
        for name in self.names:
            try:
                ip("netns", "add", name)
            except Failure as failure:
                raise Skip(str(failure)) from None
        a, b = self.names
        for device in ("data", "ctl"):
            ip("link", "add", device, "type", "veth", "peer", "name", device, "netns", b, netns=a)
        for name, address in zip(self.names, ("192.0.2.1/24", "192.0.2.2/24")):
            ip("link", "set", "lo", "up", netns=name)
            ip("addr", "add", address, "dev", "ctl", netns=name)
            ip("link", "set", "ctl", "up", netns=name)
            ip("link", "set", "data", "mtu", str(self.mtu), "up", netns=name)
        return self

    def __exit__(self, *_):
        stop_all()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def link(self, configs):
        dedicate(configs)
        return Link(configs, self.names, "192.0.2.1")


# --- telemetry -------------------------------------------------------------------------------------------------------

def telemetry(pid, command):
    """Returns the answer to one command that it sends to a rove process's DPDK telemetry socket."""
    path = f"/var/run/dpdk/rove-{pid}/dpdk_telemetry.v2"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as query:
        query.settimeout(20)
        query.connect(path)
        hello = json.loads(query.recv(1024))
        query.send(command.encode())
        answer = json.loads(query.recv(hello["max_output_len"]))
    return answer[command.split(",")[0]]
