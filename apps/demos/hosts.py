# SPDX-License-Identifier: Apache-2.0
"""Starts the hosts of the demo and of bench/soak. A host is a rove-testpmd process on a core of its own; two rails join
the two hosts. DPDK's telemetry shows and changes them while they run."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

BUILD = pathlib.Path(os.environ["ROVE_BUILD_DIR"])
CORES = sorted(os.sched_getaffinity(0))
PATIENCE_S = 15
# EAL's runtime folder.
RUNTIME = pathlib.Path("/var/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp")) / "dpdk"


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Host:
    """A rove-testpmd process. The end of the `with` statement ends it and checks that its exit status is 0."""

    def __init__(self, config, core, *options):
        self.log = config.with_suffix(f".{core}.log")
        command = [BUILD / "apps" / "rove-testpmd", "--", "--config", config, *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.telemetry = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.telemetry:
            self.telemetry.close()
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status != 0 and kind is None:
            raise Failed(f"{self.story()}\nexit status {status}")

    def alive(self):
        return self.process.poll() is None

    def story(self):
        """Returns the errors that the host printed, or else the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if line.startswith("rove-testpmd:")] or lines[-5:])

    def ask(self, command):
        """Sends a telemetry command and returns the answer. Raises OSError if the host does not answer yet or no
        longer."""
        if self.telemetry is None:
            query = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            query.settimeout(PATIENCE_S)
            try:
                query.connect(str(RUNTIME / f"rove-{self.process.pid}" / "dpdk_telemetry.v2"))
            except OSError:
                query.close()
                raise
            query.recv(1024)
            self.telemetry = query
        self.telemetry.send(command.encode())
        answer = json.loads(self.telemetry.recv(65536) or "{}").get(command.split(",")[0])
        if not answer:
            raise ConnectionError(f"no answer to {command}")
        return answer

    def wait_for(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            if not self.alive() or time.monotonic() > deadline:
                raise Failed(f"no {what}\n{self.story()}")
            time.sleep(0.02)

    def rails(self):
        """Returns the bytes that the engine has moved, by rail."""
        bytes_ = {"rove0": 0, "rove1": 0}
        for name, rail in self.ask("/tent/rails").items():
            bytes_[name.rsplit("_", 1)[-1]] += rail["read_bytes"] + rail["write_bytes"]
        return bytes_

    def priorities(self):
        """Returns the bytes of completed requests, by priority."""
        return {name: one["completed_bytes"] for name, one in self.ask("/tent/priorities").items()}

    def paths(self):
        """Returns the bytes that arrived on each path of each rail."""
        return {rail: [path["bytes"] for name, path in self.ask(f"/rove/impair,{rail}").items() if name != "device"]
                for rail in ("rove0", "rove1")}

    def impair(self, rail, path, changes):
        answer = self.ask(f"/rove/impair,{rail},{path},{changes}")
        if not isinstance(answer, dict):
            raise Failed(f"impair {rail} {path} {changes}: {answer}")


def two_rails(directory, impair=()):
    """Writes the configurations of two hosts that two memifs join, and returns their paths. `impair` holds the lines of
    each port's [device.impair]. A port impairs the frames that it receives, so each end impairs one direction."""
    configs = []
    for end, role in enumerate(("server", "client"), start=1):
        # In mode "auto" an endpoint that does not answer, such as one behind a dead rail, counts as standard RoCEv2.
        lines = ["[transport]", 'mode = "mp"']
        for rail in range(2):
            lines += [
                "[[device]]", f'port = "memif:@{directory.name}-{rail},role={role}"',
                f'addresses = ["10.0.{rail}.{end}/24"]', "mtu = 4096",
                *(["[device.impair]", *impair] if impair else [])]
        configs.append(directory / f"{role}.toml")
        configs[-1].write_text("\n".join(lines) + "\n")
    return configs


@contextlib.contextmanager
def spraying(configs, *options):
    """Runs a target and an initiator that sprays to it and compares every byte. Yields both, and a dictionary that
    holds the initiator's report after the `with` statement. Fails unless all requests complete and every byte is
    right."""
    port, out, said = free_port(), configs[1].with_suffix(".json"), {}
    with Host(configs[0], CORES[0], "--tcp-port", port) as target:
        target.wait_for(lambda: target.ask("/rove/ports"), "ports of the target")
        with Host(configs[1], CORES[-1], "--tcp-port", port, "--peer", "127.0.0.1", "--mode", "spray", "--verify",
                  "--json", out, *options) as initiator:
            initiator.wait_for(lambda: sum(initiator.rails().values()) > 0, "bytes on the rails")
            try:
                yield target, initiator, said
            except OSError as error:
                raise Failed(f"{error}\n{initiator.story()}\n{target.story()}") from None
    said |= json.loads(out.read_text())
    requests = said["requests"]
    if said["errors"] or not said["messages"] or requests["completed"] != requests["submitted"]:
        raise Failed(f"not every byte was right: {said}")


def elsewhere(said):
    """Returns the bytes that used another transport because the rails were not ready."""
    return sum(one["read_bytes"] + one["write_bytes"] for name, one in said["transports"].items() if name != "rdma")


def iperf3(seconds):
    """Returns the goodput in Gb/s of one TCP connection of the kernel over lo."""
    port = free_port()
    on = lambda core, *words: ["taskset", "-c", str(core), "iperf3", *words, "-p", str(port)]
    server = subprocess.Popen(on(CORES[0], "-s", "-1"), stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        client = subprocess.run(on(CORES[-1], "-c", "127.0.0.1", "-t", str(seconds), "-J"), capture_output=True,
                                text=True)
        if client.returncode != 0:
            raise Failed(f"iperf3: {client.stdout[-300:]}{client.stderr[-300:]}")
        server.wait(PATIENCE_S)
        return json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"] / 1e9
    finally:
        server.kill()
        server.wait()
