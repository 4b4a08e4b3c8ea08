# SPDX-License-Identifier: Apache-2.0
"""Tests more threads than cores, each with a QP of its own. A thread must not spin for another thread that has lost its
core."""
from harness import CORES, Process, check, program, test

# For one READ; when threads waited for each other, it took 10 s with 64 of them and half a minute with 128.
WORST_MS = 2000
# The minimum, relative to the READs per second of a core with 4 threads. With the cores for themselves 256 threads
# reach nine tenths. With other busy processes they reach a quarter, because the thread that runs a round is off its
# core for as long as all the others' time slices take. When threads spun for each other, they reached a
# three-hundredth.
LEAST, LEAST_BESIDE_OTHERS = 1 / 2, 1 / 10
OWN = 0.9   # share of the cores from which on the process counts as alone
ALONE = {"device": [{"port": "net_null0,no-rx=1", "addresses": ["10.9.0.1/24"]}]}


def run(threads, *options):
    command = [program("verbs_threads"), "--threads", threads, "--seconds", "1", *options]
    (result,) = Process(command, ALONE, core=set(CORES)).succeed(50).json()
    result["share"] = result["cpu_seconds"] / result["seconds"] / min(len(CORES), threads)
    return result["operations"] / result["cpu_seconds"], result


def many(threads):
    """Compares READs per CPU time, because a thread that spins for another reduces that rate."""
    for tries in range(3):
        few, _ = run(4)
        rate, result = run(threads)
        check(result["worst_ms"] < WORST_MS, str(result))
        least = LEAST if result["share"] > OWN else LEAST_BESIDE_OTHERS
        said = (f"{rate:.0f} READs for each second of a core by {threads} threads, {few:.0f} by 4: {rate / few:.2f}; "
                f"{result['share']:.2f} of the cores")
        if rate > few * least:
            print(said)
            return
    check(False, said)


def churn(threads):
    """All threads create, connect, use and destroy their objects at the same time."""
    _, result = run(threads, "--churn")
    check(result["worst_ms"] < 5 * WORST_MS, str(result))


for threads in (64, 256):
    test(f"threads/{threads}", many, threads, quick=threads == 64, alone=True)
test("threads/256/churn", churn, 256, alone=True)
