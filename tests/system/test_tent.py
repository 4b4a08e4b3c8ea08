# SPDX-License-Identifier: Apache-2.0
"""Tests the TENT engine between two processes: one and two rails, rails that die, and its error messages."""
import signal
import time

from harness import (BUILD, CLIENT_CORE, ROOT, ROVE_RUN, SERVER_CORE, Failure, Process, Skip, check, device_arguments,
                     device_string, free_port, memif_pair, once, program, shipped, telemetry, test, unique)


def rails(impair=None):
    """Returns the shipped pair of configurations with two rails and new sockets. `impair` holds the faults of each
    rail, or of both."""
    name = f"rove-test-{unique()}"
    pair = []
    for config in (shipped("two-rails-a"), shipped("two-rails-b")):
        for index, device in enumerate(config["device"]):
            driver, arguments = device_arguments(device["port"])
            arguments["socket"] = f"{name}-{index}"
            device["port"] = device_string(driver, arguments)
            here = impair[index] if isinstance(impair, (list, tuple)) else impair
            if here:
                device["impair"] = dict(here)
        pair.append(config)
    return pair


class Engines:
    """A target, and initiators that have its address."""

    def __init__(self, pair, *options, port=None, between=None):
        """`between` holds the namespaces of the two ends."""
        self.pair = pair
        self.netns = between.names if between else (None, None)
        self.hosts = ("192.0.2.1", "192.0.2.2") if between else ("127.0.0.1", "127.0.0.1")
        self.env = {"ROVE_TENT_SECRET": "a secret of these tests"} if between else {}
        self.port = port or free_port(self.netns[0])
        self.peer = f"{self.hosts[0]}:{self.port}"
        self.options = options
        self.start_target()

    def start_target(self):
        self.target = Process([program("tent_check"), "target", "--set", f"rpc_server_port={self.port}",
                               f"rpc_server_hostname={self.hosts[0]}", *self.options],
                              self.pair[0], SERVER_CORE, self.netns[0], self.env)
        self.target.wait_for(self.target.json, 20, "its memory")

    def start(self, scenario, *options, config=None):
        command = [program("tent_check"), scenario, "--peer", f"127.0.0.1:{self.port}", *options]
        return Process(command, config or self.pair[1], CLIENT_CORE)

    def run(self, scenario, *options, timeout=50):
        process = self.start(scenario, *options)
        try:
            process.succeed(timeout)
        except Failure as failure:
            raise Failure(f"{failure}\n--- target\n{self.target.story()}") from None
        self.target.stop()
        return process


def moved(pair, *options):
    Engines(pair).run("move", *options)


def move(links, *options):
    moved(memif_pair() if links == 1 else rails(), *options)


test("tent/move/one-rail", move, 1, "--sizes", "1,64,4096,65536,81920,1048577", "--rounds", "3", quick=True)
test("tent/move/two-rails", move, 2, "--sizes", "64,65536,1048576,8388608", "--rounds", "2", quick=True)
once("tent/move/nobody-polls", move, 2, "--sizes", "4096,4194304", "--rounds", "2", "--lazy")
test(
    "tent/move/loss", lambda: moved(rails({"loss": 0.01, "reorder": 0.01, "duplicate": 0.01}), "--sizes",
                                    "65536,1048576", "--rounds", "3"))


def impair(engines, initiator, device, changes):
    """Changes a rail in both directions."""
    for process in (engines.target, initiator):
        answer = telemetry(process.pid, f"/rove/impair,{device},all,{changes}")
        check(isinstance(answer, dict), str(answer))


# A READ whose answer is delayed by a busy peer waits for the timeout of verbs: 67 ms by default, and 8 ms with this.
QUICK_TIMEOUT = ("--set", "transports/rdma/endpoint/send_timeout=11")


def finish(process):
    """Ends the initiator, once the test has seen the expected state."""
    process.child.send_signal(signal.SIGUSR1)
    return process.succeed(30)


def rate(result, begun, first, last):
    """Returns the bytes per second between two points in time."""
    samples, step = result["samples"], result["step"]
    at = lambda when: samples[max(0, min(len(samples) - 1, int((when - begun) / step)))]
    return (at(last) - at(first)) / (last - first)


def silent_death():
    """One of two shaped rails silently stops carrying frames, and returns later."""
    engines = Engines(rails({"rate_mbps": 1000, "queue_packets": 2048}))
    initiator = engines.start("stream", "--seconds", "30", "--sizes", "1048576", "--depth", "4", *QUICK_TIMEOUT)
    begun = initiator.wait_for(initiator.json, 20, "start")[0]["begun"]

    def rail():
        return next(values for name, values in telemetry(initiator.pid, "/tent/rails").items()
                    if name.endswith("rove1_rove1"))

    initiator.wait_for(lambda: rail()["slices"] > 100, 20, "use of both rails")
    died = time.monotonic()
    impair(engines, initiator, "rove1", "down=true")
    initiator.wait_for(lambda: rail()["silences"] + rail()["errors"] > 0, 20, "the death to be noticed")
    time.sleep(0.7)
    back = time.monotonic()
    impair(engines, initiator, "rove1", "down=false")
    before = rail()["slices"]
    initiator.wait_for(lambda: rail()["slices"] > before, 20, "the rail to be taken again")
    result = finish(initiator).json()[-1]
    both, one = rate(result, begun, begun, died), rate(result, begun, died + 0.05, back)
    note = f"{both / 1e6:.0f}, then {one / 1e6:.0f} MB/s, longest {result['longest']:.3f} s"
    check(result["failed"] == 0 and result["timeout"] == 0 and one > 0, note)


def mp_again():
    """The QPs of a dead rail are created again while it is dead, and use mp when it returns."""
    engines = Engines(rails({"rate_mbps": 1000, "queue_packets": 2048}))
    initiator = engines.start("stream", "--seconds", "30", "--sizes", "1048576", "--depth", "4", *QUICK_TIMEOUT)

    def rail():
        return next(values for name, values in telemetry(initiator.pid, "/tent/rails").items()
                    if name.endswith("rove1_rove1"))

    initiator.wait_for(lambda: initiator.json() and rail()["slices"] > 50, 20, "use of both rails")
    impair(engines, initiator, "rove1", "down=true")
    initiator.wait_for(lambda: rail()["silences"] + rail()["errors"] > 0, 20, "the death to be noticed")
    time.sleep(0.7)  # A silent unknown peer counts as rc after a quarter of a second, at each end.
    impair(engines, initiator, "rove1", "down=false")
    before = rail()["slices"]
    initiator.wait_for(lambda: rail()["slices"] > before, 20, "the rail to be taken again")

    def modes(process):
        return [(telemetry(process.pid, f"/rove/qp,{qp}") or {}).get("mode")
                for qp in telemetry(process.pid, "/rove/qps")]

    for process in (initiator, engines.target):
        process.wait_for(lambda: modes(process) == ["mp"] * 6, 20, "mp on both rails, in all three priorities")


def transports(process):
    return telemetry(process.pid, "/tent/transports")


def all_ports_dead():
    """The only rail dies. tcp takes over, and no request fails. The rail returns and is used again."""
    engines = Engines(memif_pair(impair={"rate_mbps": 2000, "queue_packets": 1024}))
    initiator = engines.start("stream", "--seconds", "30", "--sizes", "1048576", "--depth", "2", "--set",
                              "transports/shm/enable=false", *QUICK_TIMEOUT)
    initiator.wait_for(initiator.json, 20, "start")
    initiator.wait_for(lambda: transports(initiator)["rdma"]["slices"] > 500, 20, "use of the rail")
    check(transports(initiator)["tcp"]["slices"] == 0, "tcp is used though a rail is up")
    impair(engines, initiator, "rove0", "down=true")
    initiator.wait_for(lambda: transports(initiator)["tcp"]["slices"] > 50, 20, "tcp to take over")
    impair(engines, initiator, "rove0", "down=false")
    before = transports(initiator)["rdma"]["slices"]
    initiator.wait_for(lambda: transports(initiator)["rdma"]["slices"] > before + 50, 20, "rdma to be taken again")
    result = finish(initiator).json()[-1]
    check(result["failed"] == 0 and result["timeout"] == 0, initiator.story())
    said = [line for line in initiator.err().splitlines() if line.startswith("rove-tent: warning: ")]
    check(any("rail rove0-rove0 is down" in line for line in said) and
          any("rdma failed a request of high priority, which continues over tcp" in line for line in said) and
          len(said) <= 40, initiator.story())


def dead_peer():
    """Two peers use one port each. One of them is killed during the run and started again."""
    (a, mine), (b, other) = memif_pair(), memif_pair()
    mine["device"].append(other["device"][0])
    mine["device"][1]["port"] = mine["device"][1]["port"].replace("net_memif0", "net_memif1")
    for config, addresses in ((b, ["10.1.0.1/24"]), (mine, ["10.1.0.2/24"])):
        config["device"][-1]["addresses"] = addresses
    live, dies = Engines([a, mine]), Engines([b, mine])
    initiator = live.start("two-peers", "--other-peer", f"127.0.0.1:{dies.port}", "--seconds", "30", "--sizes",
                           "262144", "--set", "transports/shm/enable=false", "--tolerate")
    initiator.wait_for(initiator.json, 20, "start")
    time.sleep(0.3)
    dies.target.kill()
    time.sleep(0.5)
    dies.start_target()
    initiator.wait_for(lambda: {"served_again": 1} in initiator.json(), 20, "the second life")
    alive, dead = finish(initiator).json()[-2:]
    check(alive["failed"] == 0 and alive["refused"] == 0 and alive["slowest"] < 2.5, f"the live peer: {alive}")
    check(dead["failed"] + dead["refused"] > 0 and dead["slowest_failure"] < 5, f"the dead peer: {dead}")
    check(dead["after"] > 0, f"its second life: {dead}")


def paused_peer():
    """The peer's process is stopped for a while. Only one transport is enabled, so the requests wait for the peer, and
    none fails."""
    engines = Engines(memif_pair())
    initiator = engines.start("stream", "--seconds", "30", "--sizes", "65536", "--depth", "4", "--set",
                              "transports/shm/enable=false", "transports/tcp/enable=false")
    initiator.wait_for(initiator.json, 20, "start")
    slices = lambda: transports(initiator)["rdma"]["slices"]  # noqa: E731
    initiator.wait_for(lambda: slices() > 100, 20, "use of the rail")
    engines.target.child.send_signal(signal.SIGSTOP)
    time.sleep(0.8)
    before = slices()
    engines.target.child.send_signal(signal.SIGCONT)
    initiator.wait_for(lambda: slices() > before + 100, 20, "the rail to be taken again")
    result = finish(initiator).json()[-1]
    check(result["failed"] == 0 and result["timeout"] == 0, initiator.story())


def lanes():
    """A variable of the original requests several QPs for each priority. Both ends have them, and all bytes are
    right."""
    engines = Engines(memif_pair())
    command = [program("tent_check"), "stream", "--peer", f"127.0.0.1:{engines.port}", "--seconds", "30"]
    initiator = Process(command, engines.pair[1], CLIENT_CORE, env={"MC_NUM_QP_PER_EP": "3"})
    initiator.wait_for(initiator.json, 20, "start")
    initiator.wait_for(lambda: transports(initiator)["rdma"]["slices"] > 100, 20, "use of the rail")
    numbers = [telemetry(process.pid, "/rove/qps") for process in (initiator, engines.target)]
    check([len(qps) for qps in numbers] == [9, 9], f"3 priorities, 3 lanes: {numbers}")
    sent = [telemetry(initiator.pid, f"/rove/qp,{qp}") for qp in numbers[0]]
    check(sum(qp["sq_posted"] > 10 for qp in sent) == 3, f"HIGH is to use its 3 QPs: {sent}")
    finish(initiator)
    wrong = Process(command, engines.pair[1], CLIENT_CORE, env={"MC_MTU": "77"})
    check(wrong.wait(20) == 1 and "path_mtu" in wrong.err() and "keys were set by MC_MTU" in wrong.err(), wrong.story())


def cancelled():
    engines = Engines(memif_pair(impair={"rate_mbps": 200, "queue_packets": 1024}))
    engines.run("cancel", "--sizes", "16777216")


def slow_but_moving():
    """The transfer takes 0.7 s in each direction. In every interval of 0.4 s, data of one of two requests arrives."""
    moved(memif_pair(impair={"rate_mbps": 200, "queue_packets": 1024}), "--sizes", "8388608", "--depth", "2",
          "--rounds", "1", "--set", "merge_requests=false", "transports/rdma/max_timeout_ns=400000000",
          "transports/shm/enable=false", "transports/tcp/enable=false")


def refused(*options):
    engines = Engines(memif_pair(), *options)
    initiator = engines.start("errors", *options)
    initiator.succeed(30)
    engines.target.wait_for(lambda: {"notification": "done"} in engines.target.json(), 20,
                            "the notification of a submit")


def high_beside_low():
    """Tests priorities within a process. If HIGH waited for LOW, it would wait for some 100 ms. The bound is wide,
    because the process has more work with LOW, and loses its core more often."""
    engines = Engines(rails({"rate_mbps": 2000, "queue_packets": 1024}), "--bytes", "134217728")
    initiator = engines.start("qos", "--sizes", "67108864", "--seconds", "0.6")
    for process in (engines.target, initiator):
        process.outweigh()
    alone, beside = initiator.succeed(50).json()
    check(beside["low_bytes"] > 0 and beside["p50_us"] < 6 * alone["p50_us"] + 4000, f"{alone}\n{beside}")


once("tent/rails/all-dead", all_ports_dead)
once("tent/peers/dead", dead_peer)
once("tent/peers/paused", paused_peer)
def sample(command, env=None):
    """Runs a sample of the documents. It needs no device, because the segment is its own."""
    process = Process(command, env=env)
    process.succeed(20)
    check(process.out().endswith("ok\n"), process.story())


def python_program(name):
    module = BUILD / "lib" / "tent" / "api"
    if not list(module.glob("tent.*.so")):
        raise Skip("built without pybind11")
    sample(["python3", ROOT / "tests" / "system" / name], {"PYTHONPATH": str(module)})


def python_imports(code, *under):
    """Imports modules and libraries at run time, in a process without preloaded libraries and without settings."""
    module = BUILD / "lib" / "tent" / "api"
    if not list(module.glob("tent.*.so")):
        raise Skip("built without pybind11")
    process = Process([*under, "/usr/bin/python3", "-c", code], env={"PYTHONPATH": str(module)})
    process.succeed(20)


once("tent/files", lambda: Process([program("tent_check"), "files"]).succeed(20), quick=True)
once("tent/sample/c", lambda: sample([program("tent_sample_c")]), quick=True)
once("tent/sample/c++", lambda: sample([program("tent_sample_cc")]), quick=True)
once("tent/sample/python", python_program, "tent_sample.py", quick=True)
once("tent/python", python_program, "tent_calls.py")
for name, code in {"tent": "import tent", "mooncake": "import mooncake.engine",
                   "c": "import ctypes; ctypes.CDLL('" + str(BUILD / "lib" / "tent" / "librove-tent.so.0") +
                        "')"}.items():
    once(f"tent/import/{name}", python_imports, code, quick=True)
    once(f"tent/import/{name}/rove-run", python_imports, code, ROVE_RUN, "--")
once("tent/classic", python_program, "tent_classic.py")
once("tent/lanes", lanes)
once("tent/cancel", cancelled)
once("tent/deadline/progress", slow_but_moving)
once("tent/errors", refused, quick=True)
once("tent/errors/read-only", refused, "--read-only")
once("tent/qos/one-process", high_beside_low, alone=True)
once("tent/hint/tcp", lambda: moved(memif_pair(), "--hint", "7", "--sizes", "1,65536,8388608", "--rounds", "2"))
once("tent/hint/shm", lambda: moved(memif_pair(), "--hint", "3", "--sizes", "1,65536,8388608", "--rounds", "2"))
test("tent/rails/silent-death", silent_death)
once("tent/rails/mp-again", mp_again)
