# SPDX-License-Identifier: Apache-2.0
"""Tests each policy of config/tent/policies.toml: the transports and ports that the bytes used."""
import time
import types

from harness import (CLIENT_CORE, ROOT, SCRATCH, Process, TwoNamespaces, check, device_arguments, device_string, once,
                     program, shipped, telemetry, unique)
from test_tent import QUICK_TIMEOUT, Engines, impair

POLICIES = ROOT / "config" / "tent" / "policies.toml"
HIGH, MEDIUM, LOW = 0, 1, 2
BULK = 104857600
COMPLETED = {"code": "Ok", "state": 4}


def four_rails():
    """Returns configurations with one port more than the policies name."""
    name, pair = f"{SCRATCH}/{unique()}", []
    for config, end in ((shipped("two-rails-a"), 1), (shipped("two-rails-b"), 2)):
        driver, arguments = device_arguments(config["device"][0]["port"])
        config["device"] = [{"port": device_string("memif", {**arguments, "socket": f"{name}-{i}"}),
                             "addresses": [f"10.0.{i}.{end}/24"], "mtu": 4096} for i in range(4)]
        pair.append(config)
    return pair


class Initiator:
    def __init__(self, engines, *options, peer=None, config=("--config", POLICIES)):
        command = [
            program("tent_check"), "obey", *config, "--peer", peer or engines.peer, *QUICK_TIMEOUT, "--set",
            f"rpc_server_hostname={engines.hosts[1]}", *options]
        self.process = Process(command, engines.pair[1], CLIENT_CORE, engines.netns[1], engines.env, stdin=True)
        self.process.wait_for(self.process.json, 20, "start")

    def tables(self):
        answer = {}
        for table in ("transports", "devices"):
            answer |= {name: row for name, row in telemetry(self.process.pid, f"/tent/{table}").items()}
        return {
            name: row.get("completed_bytes",
                          row.get("read_bytes", 0) + row.get("write_bytes", 0)) for name, row in answer.items()}

    def ask(self, *words):
        """Sends a command. Returns its result, and the transports and devices that carried bytes for it."""
        before, answers = self.tables(), len(self.process.json())
        self.process.child.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.child.stdin.flush()
        self.process.wait_for(lambda: len(self.process.json()) > answers, 30, "answer")
        after = self.tables()
        return self.process.json()[-1], {name for name in after if after[name] != before[name]}

    def expect(self, carriers, *words, answer=COMPLETED):
        got, used = self.ask(*words)
        check(got == answer, f"{words}: {got} instead of {answer}")
        ports = {name for name in used if name.startswith("rove")}
        check(used - ports == carriers, f"{words}: carried by {used} instead of {carriers}")
        check(("rdma" in carriers) == bool(ports), f"{words}: ports {ports}, transports {used - ports}")
        return ports

    def end(self):
        self.process.child.stdin.close()
        self.process.succeed(20)


def same_machine():
    engines = Engines(four_rails(), "--bytes", str(BULK))
    initiator = Initiator(engines)
    initiator.expect({"shm"}, HIGH, 1 << 20)                            # There is no NVLink.
    initiator.expect({"rdma"}, MEDIUM, 1 << 20)
    initiator.expect({"rdma"}, LOW, BULK)
    initiator.expect({"rdma"}, LOW, 65536)  # No policy matches, so the default order applies.
    # A hint precedes the policy's order, and may be refused.
    initiator.expect({"tcp"}, MEDIUM, 65536, 7)
    initiator.expect(set(), MEDIUM, 65536, 4, answer={"code": "InvalidArgument", "state": 0})
    # The request names a policy, which applies without regard to its other conditions.
    ports = set().union(*(initiator.expect({"rdma"}, MEDIUM, size, 0, "high_priority_remote")
                          for size in (64, 65536, 8 << 20)))
    check(ports == {"rove0", "rove1", "rove2"}, f"took {ports}")
    initiator.end()
    strict = Initiator(engines, "--set", "strict=true")
    strict.expect(set(), LOW, 65536, answer={"code": "InvalidArgument", "state": 0})
    strict.end()
    engines.target.stop()


def other_machine():
    """For the engine, a network namespace is a machine, because a process offers its shared memory on a socket in
    it."""
    with TwoNamespaces(1500) as namespaces:
        engines = Engines(four_rails(), "--bytes", str(BULK), between=namespaces)
        initiator = Initiator(engines)
        ports = set().union(*(initiator.expect({"rdma"}, HIGH, size) for size in (64, 4096, 65536, 65536, 8 << 20)))
        check(ports == {"rove0", "rove1", "rove2"}, f"took {ports}")
        used = initiator.expect({"rdma"}, MEDIUM, 32 << 20)
        check("rove3" in used, f"no policy keeps rove3 from MEDIUM, which took {used}")
        # All ports die during the run. The policy's next transport is used if it has one.
        for device in ("rove0", "rove1", "rove2", "rove3"):
            impair(engines, initiator.process, device, "down=true")
        answer, used = initiator.ask(LOW, BULK)
        check(answer == COMPLETED and "tcp" in used, f"{answer}, by {used}")
        answer, used = initiator.ask(HIGH, 65536)
        check(answer != COMPLETED and not used, f"{answer}, by {used}")
        for device in ("rove0", "rove1", "rove2", "rove3"):
            impair(engines, initiator.process, device, "down=false")
        deadline = time.monotonic() + 10
        while initiator.ask(HIGH, 65536)[0] != COMPLETED:
            check(time.monotonic() < deadline, "the ports are back, and are not used")
        initiator.end()
        engines.target.stop()


def file():
    path = SCRATCH / unique()
    path.write_bytes(bytes(1 << 20))
    alone = types.SimpleNamespace(pair=four_rails(), netns=(None, None), hosts=("127.0.0.1", "127.0.0.1"), env={})
    initiator = Initiator(alone, peer=f"file://{path}")
    for priority in (HIGH, MEDIUM, LOW):
        initiator.expect({"io_uring"}, priority, 1 << 20)               # There is no GDS.
    initiator.end()


once("tent/policies/same-machine", same_machine)
once("tent/policies/other-machine", other_machine)
once("tent/policies/file", file)
