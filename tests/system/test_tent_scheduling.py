# SPDX-License-Identifier: Apache-2.0
"""Tests the TENT engine's scheduling by its telemetry: allocation of devices, priorities, deadlines and rails."""
import os
import signal
import threading
import time

from harness import CLIENT_CORE, Process, check, loopback_address, memif_pair, once, program, telemetry, test
from test_tent import QUICK_TIMEOUT, Engines, impair, rails
from test_tent_policies import Initiator

HIGH, MEDIUM, LOW = 0, 1, 2
ONLY_RDMA = ("transports/shm/enable=false", "transports/tcp/enable=false")
# Memory of this host's node is three times nearer to rove0.
NEAR = ("transports/rdma/numa_penalties=[1, 3, 10]", 'topology/priority_matrix={"cpu:0" = [["rove0"], ["rove1"]]}')


def table(process, name):
    return telemetry(process.pid, f"/tent/{name}")


def deadlines():
    engines = Engines(memif_pair(impair={"rate_mbps": 200, "queue_packets": 1024}))
    engines.run("deadlines", "--sizes", "16777216", "--set", *ONLY_RDMA)


def in_order(priority):
    """Requests of a priority complete in order, even if some were promoted and one waits for room on its rail."""
    engines = Engines(memif_pair(impair={"rate_mbps": 200, "queue_packets": 1024}))
    engines.run("order", "--sizes", "65536", "--depth", "64", "--priority", priority, "--set", *ONLY_RDMA)


def many_small():
    """Posts more work requests at once than a completion queue has entries."""
    Engines(memif_pair()).run("move", "--sizes", "8", "--depth", "12000", "--rounds", "1", "--set",
                              "merge_requests=false", "transports/rdma/endpoint/max_qp_wr=16384", *ONLY_RDMA)


class Sprayer(Initiator):
    """Submits requests and returns how many of their slices each rail carried."""

    def __init__(self, engines, *keys):
        super().__init__(engines, "--set", *ONLY_RDMA, *keys, config=())
        up = 3
        self.process.wait_for(lambda: [row["state"] for row in self.connected()] == [up] * 2, 20, "both rails")

    def connected(self):
        return [row for _, row in sorted(table(self.process, "rails").items()) if row["connects"]]

    def slices(self):
        return [row["slices"] for row in self.connected()]

    def spray(self, *words):
        before = self.slices()
        answer, _ = self.ask(*words)
        check(answer == {"code": "Ok", "state": 4}, f"{words}: {answer}")
        return [b - a for a, b in zip(before, self.slices())]

    def counts(self, figure):
        return [row[figure] for _, row in sorted(table(self.process, "devices").items())]


def allocation(*keys):
    """Uses idle rails, the second of which is three times as far away. Returns the slices of requests of 16 slices and
    of one, and the allotted slices."""
    engines = Engines(rails())
    sprayer = Sprayer(engines, *NEAR, *keys)
    many = [sprayer.spray(HIGH, 16 * 65536) for _ in range(2)]
    single = [sprayer.spray(HIGH, 65536) for _ in range(2)]
    allotted = sprayer.counts("allotted_slices")
    check(sprayer.counts("inflight_bytes") == [0, 0], "bytes in flight when nothing is")
    sprayer.end()
    engines.target.stop()
    return many, single, allotted


def documented():
    # Each request is a WRITE and a READ. Of 16 slices the rails get 12 and 4, or one more or less where the cores are
    # busy and a rail is found to be slower. All single slices use the best rail.
    many, single, allotted = allocation()
    check(all(near > far for near, far in many) and single == [[2, 0]] * 2 and sum(allotted) == 64 and
          44 <= allotted[0] <= 52, f"{many}, {single}, {allotted}")


def per_slice():
    many, single, allotted = allocation("transports/rdma/batch_allocation_policy=per_slice")
    spread = all(near > far > 0 and near + far == 32 for near, far in many)
    check(spread and single == [[2, 0]] * 2 and allotted == [0, 0], f"{many}, {single}, {allotted}")


def baseline():
    # Only devices of the best rank are used, in turn, and each slice waits for its own device.
    many, single, allotted = allocation("transports/rdma/enable_smart_scheduling=false")
    check(many == [[32, 0]] * 2 and single == [[2, 0]] * 2 and allotted == [68, 0], f"{many}, {single}, {allotted}")


def nics():
    """The configuration sets the ports' nodes. Memory of node 0 is near to the second port only."""
    engines = Engines(rails())
    sprayer = Sprayer(engines, "transports/rdma/enable_smart_scheduling=false",
                      'topology/nics=[{name = "rove0", numa_node = 1}, {name = "rove1", numa_node = 0}]')
    many = sprayer.spray(HIGH, 16 * 65536)
    sprayer.end()
    check(many == [0, 32], f"{many}")


def ports():
    """Tests the same when the ports report their nodes."""
    pair = rails()
    for device, node in zip(pair[1]["device"], (1, 0)):
        device["numa_node"] = node
    engines = Engines(pair)
    sprayer = Sprayer(engines, "transports/rdma/enable_smart_scheduling=false")
    many = sprayer.spray(HIGH, 16 * 65536)
    sprayer.end()
    check(many == [0, 32], f"{many}")


def remote_memory():
    """The peer reports that its memory is near to its second port. The distance at the other end counts, too."""
    engines = Engines(rails(), "--set", 'topology/priority_matrix={"cpu:0" = [["rove1"], ["rove0"]]}')
    sprayer = Sprayer(engines, "transports/rdma/enable_smart_scheduling=false")
    many = sprayer.spray(HIGH, 16 * 65536)
    sprayer.end()
    check(many == [0, 32], f"{many}")


def epsilon():
    # The weight is 1 / (score + epsilon). With an epsilon far above all scores, shares are equal.
    many, _, allotted = allocation("transports/rdma/score_epsilon=1.0")
    check(allotted == [36, 28], f"{many}, {allotted}")    # 16 / 2 rounded down is 7, and the best rail gets the rest


def probes():
    # Every 100th call probes all devices in turn, however far they are.
    engines = Engines(rails())
    sprayer = Sprayer(engines, *NEAR)
    carried = [0, 0]
    for _ in range(60):
        carried = [a + b for a, b in zip(carried, sprayer.spray(HIGH, 64))]
    check(carried in ([119, 1], [120, 0]), f"{carried}")
    sprayer.end()


def placed_anew():
    """The slices that were allotted to a rail that becomes slow are carried by the other."""
    engines = Engines(rails({"rate_mbps": 1000, "queue_packets": 1024}))
    initiator = engines.start("stream", "--seconds", "60", "--sizes", "16777216", "--depth", "2", *QUICK_TIMEOUT,
                              *ONLY_RDMA)
    initiator.wait_for(initiator.json, 20, "start")
    initiator.wait_for(lambda: table(initiator, "devices")["rove1"]["completed_bytes"], 20, "use of the rail")
    impair(engines, initiator, "rove1", "rate_mbps=50")
    before = table(initiator, "devices")["rove1"]["placed_anew_slices"]
    initiator.wait_for(lambda: table(initiator, "devices")["rove1"]["placed_anew_slices"] > before + 20, 20,
                       "slices of the slow rail to be placed anew")
    initiator.kill()


# A lost packet causes an error at once.
HASTY = ("transports/rdma/endpoint/send_timeout=8", "transports/rdma/endpoint/send_retry_count=0")


def rail_fails(*keys, errors=2):
    """The only rail carries no frames for some time, and until it has had `errors` errors, and tcp is used meanwhile.
    Returns the rail's row at that time, and the seconds from its death until it is used again."""
    engines = Engines(memif_pair(impair={"rate_mbps": 2000, "queue_packets": 1024}))
    initiator = engines.start("stream", "--seconds", "30", "--sizes", "262144", "--depth", "2", "--set",
                              "transports/shm/enable=false", *HASTY, *keys)

    def row():
        (values,) = table(initiator, "rails").values()
        return values

    initiator.wait_for(lambda: initiator.json() and row()["slices"] > 20, 20, "use of the rail")
    died = time.monotonic()
    impair(engines, initiator, "rove0", "down=true")
    time.sleep(0.15)
    initiator.wait_for(lambda: row()["errors"] >= errors, 20, f"{errors} errors")
    failed = row()
    impair(engines, initiator, "rove0", "down=false")
    initiator.wait_for(lambda: row()["slices"] > failed["slices"], 20, "the rail to be used again")
    back = time.monotonic() - died
    initiator.kill()
    engines.target.stop()
    check(failed["silences"] == 0, f"{failed}")
    return failed, back


def rail_threshold():
    failed, _ = rail_fails("transports/rdma/rail_error_threshold=100000", errors=4)
    check(failed["pauses"] == 0, f"{failed}")
    failed, _ = rail_fails(errors=3)
    check(failed["pauses"] > 0, f"{failed}")


def rail_window():
    """An error takes longer than the window, so that no two of them count together."""
    failed, _ = rail_fails("transports/rdma/rail_error_window_secs=0.001", errors=4)
    check(failed["pauses"] == 0, f"{failed}")


def rail_paused():
    """A peer that is stopped for a while is silent on all rails. The rail that carries requests is not declared
    dead."""
    engines = Engines(rails())
    sprayer = Sprayer(engines, *NEAR, "transports/rdma/enable_smart_scheduling=false")
    pid, carried = engines.target.pid, []
    for _ in range(3):  # Where cores are few, a pause may last longer than the engine waits for a peer.
        os.kill(pid, signal.SIGSTOP)
        back = threading.Timer(0.06, os.kill, (pid, signal.SIGCONT))
        back.start()
        carried.append(sprayer.spray(HIGH, 16 * 65536))
        back.join()
    sprayer.end()
    check([32, 0] in carried, f"slices of the rails, by pause: {carried}")


def rail_cooldown():
    failed, back = rail_fails("transports/rdma/rail_error_threshold=2", "transports/rdma/rail_cooldown_secs=0.6")
    check(failed["pauses"] == 1 and 0.5 < back < 10, f"{back} s: {failed}")


def wrong_key():
    """A request that the peer refuses affects only itself. Other requests in flight on the rail are not sent again."""
    engines = Engines(memif_pair())
    initiator = Process([program("tent_check"), "stale", "--peer", engines.peer, "--rounds", "5", "--set", *ONLY_RDMA],
                        engines.pair[1], CLIENT_CORE, stdin=True)
    initiator.wait_for(initiator.json, 30, "its end")
    (rail,) = table(initiator, "rails").values()
    (result,) = initiator.json()
    check(rail["errors"] >= 2 and rail["resprayed"] == 0 and rail["pauses"] == 0, f"{rail}, {result}")
    check(result["high_completed"] + result["high_failed"] == 5 and result["low_completed"] > 0, f"{result}")
    initiator.child.stdin.close()
    initiator.succeed(20)


def any_pair():
    """Each end has two ports on one network. The local port of one rail and the peer's port of the other are dead."""
    engines = Engines([{"device": [{"port": f"udp:{loopback_address()}"} for _ in range(2)]} for _ in range(2)])
    initiator = engines.start("stream", "--seconds", "60", "--sizes", "65536", "--depth", "2", *QUICK_TIMEOUT,
                              *ONLY_RDMA, "--tolerate")
    initiator.wait_for(initiator.json, 20, "start")

    def rail(name):
        return next((row for label, row in table(initiator, "rails").items() if label.endswith(name)), None)

    initiator.wait_for(lambda: rail("rove0_rove0")["slices"] > 10, 20, "use of the rails")
    check(rail("rove1_rove0")["connects"] == 0, "a spare rail is connected though nothing is wrong")
    for process, device in ((initiator, "rove0"), (engines.target, "rove1")):
        check(isinstance(telemetry(process.pid, f"/rove/impair,{device},all,down=true"), dict), "impair")
    initiator.wait_for(lambda: rail("rove1_rove0")["slices"] > 50, 20, "use of the pair that is left")
    for process, device in ((initiator, "rove0"), (engines.target, "rove1")):
        telemetry(process.pid, f"/rove/impair,{device},all,down=false")
    before = rail("rove0_rove0")["slices"]
    initiator.wait_for(lambda: rail("rove0_rove0")["slices"] > before and rail("rove1_rove0")["state"] == 0, 20,
                       "the usual pairs to be used again, and the spare one to be closed")
    initiator.kill()


test("tent/rails/threshold", rail_threshold, modes=("rc",))
test("tent/rails/window", rail_window, modes=("rc",))
test("tent/rails/cooldown", rail_cooldown, modes=("rc",))
once("tent/rails/paused", rail_paused)
once("tent/rails/wrong-key", wrong_key)
once("tent/rails/any-pair", any_pair)
once("tent/allocation/documented", documented)
once("tent/allocation/per-slice", per_slice)
once("tent/allocation/baseline", baseline)
once("tent/allocation/nics", nics)
once("tent/allocation/ports", ports)
once("tent/allocation/remote-memory", remote_memory)
once("tent/allocation/epsilon", epsilon)
once("tent/allocation/probes", probes)
once("tent/allocation/placed-anew", placed_anew)
once("tent/deadline/own", deadlines)
once("tent/completions/many-small", many_small)
once("tent/order/high", in_order, HIGH)
once("tent/order/low", in_order, LOW)
