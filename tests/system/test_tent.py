# SPDX-License-Identifier: Apache-2.0
"""The TENT engine between two processes: one and two rails, rails that die, and what it says when something is wrong."""
import time

from harness import (CLIENT_CORE, SCRATCH, SERVER_CORE, STOPPED, Failure, Link, Process, check, device_arguments, device_string,
                     free_port, memif_pair, once, program, shipped, telemetry, test, unique, with_changes)


def rails(impair=None):
    """The shipped pair of two rails with sockets of its own; `impair` of each rail, or of both."""
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
    """A target, and initiators that know where it is."""

    def __init__(self, pair, *options, port=None):
        self.pair = pair
        self.port = port or free_port()
        self.options = options
        self.start_target()

    def start_target(self):
        self.target = Process([program("tent_check"), "target", "--set", f"rpc_server_port={self.port}", *self.options],
                              self.pair[0], SERVER_CORE)
        self.target.wait_for(self.target.json, 20, "its memory")

    def start(self, scenario, *options):
        return Process([program("tent_check"), scenario, "--peer", f"127.0.0.1:{self.port}", *options], self.pair[1], CLIENT_CORE)

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
test("tent/move/two-rails", move, 2, "--sizes", "64,65536,1048576,8388608", "--rounds", "4", quick=True)
test("tent/move/nobody-polls", move, 2, "--sizes", "4096,4194304", "--rounds", "4", "--lazy")
test("tent/move/loss", lambda: moved(rails({"loss": 0.01, "reorder": 0.01, "duplicate": 0.01}), "--sizes", "65536,1048576",
                                     "--rounds", "3"))


def impair(engines, initiator, device, changes):
    """In both directions."""
    for process in (engines.target, initiator):
        answer = telemetry(process.pid, f"/rove/impair,{device},all,{changes}")
        check(isinstance(answer, dict), str(answer))


def rate(result, begun, first, last):
    """Bytes per second between two points in time."""
    samples, step = result["samples"], result["step"]
    at = lambda when: samples[max(0, min(len(samples) - 1, int((when - begun) / step)))]
    return (at(last) - at(first)) / (last - first)


def silent_death():
    """One of two shaped rails stops carrying anything, without a word; later it comes back."""
    engines = Engines(rails({"rate_mbps": 1000, "queue_packets": 2048}))
    initiator = engines.start("stream", "--seconds", "4", "--sizes", "4194304", "--depth", "4")
    begun = initiator.wait_for(initiator.json, 20, "start")[0]["begun"]
    time.sleep(1.5)
    died = time.monotonic()
    impair(engines, initiator, "rove1", "down=true")
    time.sleep(1)
    back = time.monotonic()
    impair(engines, initiator, "rove1", "down=false")
    initiator.succeed(30)
    result = initiator.json()[-1]
    both, one = rate(result, begun, begun + 0.5, died), rate(result, begun, died + 0.05, back)
    again = rate(result, begun, back + 0.1, begun + 4)
    note = f"{both / 1e6:.0f}, then {one / 1e6:.0f}, then {again / 1e6:.0f} MB/s, longest {result['longest']:.3f} s"
    check(result["failed"] == 0 and result["timeout"] == 0, note)
    check(one > 0.35 * both and again > 0.7 * both, note)


test("tent/rails/silent-death", silent_death, modes=("rc",))
