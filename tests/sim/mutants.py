#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants bugs one by one and prints which test finds each: tests/sim/mutants.py [--directory DIR] [PART-OF-A-NAME...]

At the end it prints a table of how many bugs were planted and how many were found. Random worlds must find the bugs of
mp mode, below, and unit tests must find the bugs in unit_mutants.py. It works on a copy of the tree and one build
directory. It fails if no test finds a bug, or if a bug's place is no longer in the code.

Bugs from which the sender's timer recovers are not listed, such as an acknowledgement of a packet that was not kept.
They cost time, but break no guarantee.
"""
import argparse
import contextlib
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "sim"))
from unit_mutants import UNIT_MUTANTS  # noqa: E402

SEEDS = 3000
WORLDS = "tests/sim/worlds_test"
TIMEOUT_S = 240     # This also finds a world that never ends.

REQUESTER, RESPONDER = "lib/transport/mp/requester.h", "lib/transport/mp/responder.h"
CORE, BURST, HYBRID = "lib/transport/core.h", "lib/transport/burst.h", "lib/transport/reorder/hybrid_bitmap.h"
# Each bug by its description: the file, the code in it, and the code with the bug.
MUTANTS = {
    "every other retransmission is skipped": (
        REQUESTER, "if (!emit(*wqe, departure, bytes)) {",
        "if ((fresh || departure.psn.value() % 2 == 0) && !emit(*wqe, departure, bytes)) {"),
    "a retransmission carries the packet before": (
        REQUESTER, "const uint32_t offset = packet * qp_.mtu;\n        bytes",
        "const uint32_t offset = (packet - (packet != 0 && departure.again)) * qp_.mtu;\n        bytes"),
    "a retransmission has lost its Last bit": (
        REQUESTER, "if (last && &wqe ==", "if (last && !departure.again && &wqe =="),
    "a request completes one packet early": (
        REQUESTER, "< static_cast<int32_t>(wqe.packets)) break;", "< static_cast<int32_t>(wqe.packets) - 1) break;"),
    "a READ completes one packet early": (
        REQUESTER, "> mp_.responses_in.expected) break;", "> mp_.responses_in.expected + 1) break;"),
    "a fence is ignored": (
        REQUESTER, "if ((wqe.send_flags & IBV_SEND_FENCE) != 0 && reads != 0) return false;", ""),
    "who waits for completions is not told of signaled ones": (
        REQUESTER, "if (at == first) return;", "if (at == qp_.sq.consumed()) return;"),
    "a request that fails at home does not wait for its turn": (
        REQUESTER, "            if (qp_.sq.consumed() == p_.failed_wqe) fail(p_.failure);\n            if (fresh",
        "            fail(p_.failure);\n            if (fresh"),
    "a READ that fails at home does not wait for its turn": (
        REQUESTER, "if (arrival == Arrival::kInOrder && wqe == &oldest()) fail(status);", "fail(status);"),
    "a paused send queue goes on": (
        REQUESTER, "return qp_.state == IBV_QPS_SQD ? p_.drain_wqe : qp_.sq", "return qp_.sq"),
    "a send queue is said to have drained early": (
        CORE, "qp.state != IBV_QPS_SQD || qp.sq.consumed() != position.begun_wqe", "qp.state != IBV_QPS_SQD"),
    "a WRITE_IMM is not counted": (
        REQUESTER, "if (wqe.opcode != IBV_WR_RDMA_WRITE) mp_.msn_out", "if (!wqe.is_write()) mp_.msn_out"),
    "a SEND of a run is not counted": (
        REQUESTER, "(mp_.msn_out + messages)", "(mp_.msn_out + messages / 2)"),
    "a run is not begun": (
        REQUESTER, "p_.next_wqe = p_.begun_wqe = index;", "p_.next_wqe = index;"),
    "a run goes on with a request of another length": (
        BURST, "wqe.kind() != kind_ || wqe.length != length_", "wqe.kind() != kind_"),
    "a run goes beyond its region": (
        BURST, "region_->at(sge.addr, length_)", "region_->host + (sge.addr - region_->iova)"),
    "sender-delay does not wait": (
        REQUESTER, "return sync || (wqe.is_write() &&", "return sync && (wqe.is_write() &&"),
    "responses to a dead peer are sent for ever": (
        REQUESTER, "if (mp_.responses.backoff == Mp::kSilence)", "if (false)"),
    "the cumulative ACK is one too high": (
        RESPONDER, "mp_.requests_in).expected.value(),",
        "mp_.requests_in).expected.value() + (first.entry.kind == wire::MpAck::kSack),"),
    "an atomic executes twice": (
        RESPONDER, "            core_.note_duplicate(qp_);\n",
        "            core_.note_duplicate(qp_);\n"
        "            if (op == wire::Op::kFetchAdd && execute_atomic(h, op) == Outcome::kDone)\n"
        "                --mp_.jobs.tail, mp_.response_end = mp_.response_end.previous();\n"),
    "an ATOMIC WRITE executes twice": (
        RESPONDER, "            core_.note_duplicate(qp_);\n",
        "            core_.note_duplicate(qp_);\n"
        "            if (op == wire::Op::kAtomicWrite) (void)executor_.execute_atomic_write(frame);\n"),
    "an early ATOMIC WRITE does not wait for its turn": (
        RESPONDER, "            taken = shared_.hold(mp_.held, frame, ahead);\n",
        "            taken = shared_.hold(mp_.held, frame, ahead);\n"
        "            if (op == wire::Op::kAtomicWrite) (void)executor_.execute_atomic_write(frame);\n"),
    "a FLUSH is answered before its turn": (
        RESPONDER, "            taken = shared_.hold(mp_.held, frame, ahead);\n",
        "            if (taken = shared_.hold(mp_.held, frame, ahead); op == wire::Op::kFlush && !mp_.jobs.full())\n"
        "                (void)execute_empty_answered(frame, op);\n"),
    "a duplicate WRITE is placed again": (
        RESPONDER, "            core_.note_duplicate(qp_);\n",
        "            core_.note_duplicate(qp_);\n"
        "            if (op == wire::Op::kWriteOnly) (void)place_write(frame, op);\n"),
    "the middle of later WRITEs is placed early": (
        RESPONDER, "return relaxed ? Early::kPlace", "return relaxed || !is_last(op) ? Early::kPlace"),
    "a last packet is placed early": (
        RESPONDER, "(in_progress && !is_last(op))", "in_progress"),
    "a receiver set to hold believes the sender": (
        RESPONDER, "h.mp.early() && core_.config.ordering != Ordering::kReceiverHold", "h.mp.early()"),
    "an early Sync packet is placed": (
        RESPONDER, "if (h.mp.sync() && !in_progress) return", "if (h.mp.sync() && !in_progress && false) return"),
    "an early SEND does not wait for its turn": (
        RESPONDER, "slot = is_send(op) || has_immediate(op) ? Slot::kTailWithCompletion : Slot::kTail;",
        "slot = Slot::kReceived;"),
    "a held packet that is refused is kept": (
        RESPONDER, "    shared_.release(mp_.held, psn);\n    return taken;",
        "    if (taken) shared_.release(mp_.held, psn);\n    return taken;"),
    "damage is not seen": (
        RESPONDER, "    payload.read(target, qp_.mtu);\n"
        "    if (!payload.icrc_matches()) return DirectPlacement::kBadIcrc;",
        "    payload.read(target, qp_.mtu);"),
    "damage to READ data is not seen": (
        REQUESTER, "    if (!payload.icrc_matches()) return DirectPlacement::kBadIcrc;\n    take_in_order",
        "    take_in_order"),
    "rings of a grown bitmap do not join": (
        HYBRID, "            m.head = static_cast<uint16_t>(slots(m.circular));\n", ""),
}


def worlds_failure(program):
    """Returns the seed of the first world that fails, another reason for the end of the run, or None if all passed."""
    started = time.monotonic()
    with subprocess.Popen(["timeout", str(TIMEOUT_S), program, "--gtest_filter=*many_paths"], text=True,
                          errors="replace", env={**os.environ, "ROVE_SEEDS": str(SEEDS)}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as run:
        for line in run.stdout:
            if seed := re.search(r"ROVE_SEED=(\d+)", line):
                run.terminate()
                return f"seed {seed[1]}, {time.monotonic() - started:.1f} s"
        run.wait()
    return {0: None, 124: "a world that does not end"}.get(run.returncode, "a crash")


def unit_failure(program):
    """Returns the first unit test that fails, another reason for the end of the run, or None if all passed."""
    run = subprocess.run(["timeout", str(TIMEOUT_S), program, "--gtest_fail_fast"], text=True, errors="replace",
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if failed := re.search(r"\[  FAILED  \] ([^ ,]+)", run.stdout):
        return failed[1]
    return {0: None, 124: "a test that does not end"}.get(run.returncode, "a crash")


class Tree:
    """A copy of the tree, in which one bug is planted at a time, and its build."""

    def __init__(self, directory):
        self.tree, self.build = pathlib.Path(directory, "tree"), pathlib.Path(directory, "build")
        # A file that has not changed keeps its time. A file that was last compiled with a bug is newer than its object
        # file, so it is compiled again.
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(".git", "build", "build-*", "__pycache__"),
                        dirs_exist_ok=True, copy_function=self.copy_if_changed)
        if not (self.build / "build.ninja").exists():
            subprocess.run(["meson", "setup", self.build, self.tree, "-Dtests=enabled", "-Dbench=disabled",
                            "--buildtype=plain", "-Doptimization=1"], check=True, stdout=subprocess.DEVNULL)
        self.world_commands = None

    @staticmethod
    def copy_if_changed(source, copy):
        if not os.path.exists(copy) or not filecmp.cmp(source, copy, shallow=False):
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)

    def make(self, program):
        subprocess.run(["ninja", "-C", self.build, "-j2", program], check=True, stdout=subprocess.DEVNULL)

    def make_worlds_again(self):
        """Compiles only the engine again. It is compiled in one place, and no bug changes a type."""
        if self.world_commands is None:
            commands = subprocess.run(["ninja", "-C", self.build, "-t", "commands", WORLDS], check=True, text=True,
                                      stdout=subprocess.PIPE).stdout.splitlines()
            self.world_commands = [line for line in commands
                                   if " -c " not in line or "virtual_network.cc" in line or "transport/paths/" in line]
        for command in self.world_commands:
            subprocess.run(command, shell=True, cwd=self.build, check=True, stdout=subprocess.DEVNULL)

    def failure(self, program):
        return (worlds_failure if program == WORLDS else unit_failure)(self.build / program)

    def try_out(self, program, file, before, after):
        """Plants a bug. Returns the test that finds it, or None if no test does."""
        path = self.tree / file
        source = path.read_text()
        path.write_text(source.replace(before, after))
        try:
            if program == WORLDS:
                self.make_worlds_again()
            else:
                self.make(program)
            return self.failure(program)
        except subprocess.CalledProcessError:
            return "DOES NOT COMPILE"
        finally:
            path.write_text(source)


def print_table(killed):
    print(f"\n{'found by':24} killed planted")
    for program in dict.fromkeys(program for program, _ in killed):
        found = [how for (by, _), how in killed.items() if by == program]
        print(f"{program.split('/')[-1]:24} {sum(map(bool, found)):6} {len(found):7}")
    print(f"{'all':24} {sum(map(bool, killed.values())):6} {len(killed):7}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="bugs whose name or file contains one of these (default: all)")
    parser.add_argument("--directory", help="where to work, kept for the next run (default: a temporary folder)")
    parser.add_argument("--list", action="store_true", help="list the bugs and run nothing")
    parser.add_argument("--places", action="store_true", help="only check that each place is still in the code")
    options = parser.parse_args()
    planted = {(program, name): mutant for program, mutants in {WORLDS: MUTANTS, **UNIT_MUTANTS}.items()
               for name, mutant in mutants.items()
               if not options.names or any(part in name or part in mutant[0] for part in options.names)}
    if options.list:
        for (program, name), mutant in planted.items():
            print(f"{program.split('/')[-1]:24} {mutant[0]:40} {name}")
        return
    # the test that found each bug, by program and name
    killed = {key: None for key in planted}
    gone = [key for key, (file, before, _) in planted.items() if (ROOT / file).read_text().count(before) != 1]
    for _, name in gone:
        print(f"{name}: its place is not in the code")
    if options.places:
        print(f"{len(planted) - len(gone)} of {len(planted)} places are there")
        sys.exit(1 if gone else 0)
    with contextlib.ExitStack() as stack:
        tree = Tree(options.directory or stack.enter_context(tempfile.TemporaryDirectory()))
        last = None
        for (program, name), mutant in planted.items():
            if (program, name) in gone:
                continue
            if program != last:
                tree.make(program)
                if found := tree.failure(program):
                    sys.exit(f"without any planted bug: {program}: {found}")
                last = program
            found = tree.try_out(program, *mutant)
            print(f"{name}: {found or 'NOT FOUND'}", flush=True)
            killed[program, name] = found if found != "DOES NOT COMPILE" else None
    print_table(killed)
    sys.exit(0 if all(killed.values()) else 1)


if __name__ == "__main__":
    main()
