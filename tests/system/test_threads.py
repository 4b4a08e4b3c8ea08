# SPDX-License-Identifier: Apache-2.0
"""More threads than cores, each with a QP of its own: none may spin where another, preempted, would have to go on
first."""
from harness import CORES, Process, check, program, test

WORST_MS = 2000  # of one READ. Where threads waited for each other, 64 of them took 10 s and 128 half a minute
# Of what 4 threads READ in a second of a core. With the cores for themselves 256 have nine tenths. Beside other busy
# processes, where whoever makes a round is off its core for as long as all the others' slices take: a quarter; where
# they spun for each other they had a three-hundredth.
LEAST, LEAST_BESIDE_OTHERS = 1 / 2, 1 / 10
OWN = 0.9   # of the cores: the process had them for itself
ALONE = {"device": [{"port": "net_null0,no-rx=1", "addresses": ["10.9.0.1/24"]}]}


def run(threads, *options):
    command = [program("verbs_threads"), "--threads", threads, "--seconds", "1", *options]
    (result,) = Process(command, ALONE, core=set(CORES)).succeed(50).json()
    result["share"] = result["cpu_seconds"] / result["seconds"] / min(len(CORES), threads)
    return result["operations"] / result["cpu_seconds"], result


def many(threads):
    """By the time that the process had a core: what a thread spins for another takes of it."""
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
    """All of them make, connect, use and destroy their objects at the same time."""
    _, result = run(threads, "--churn")
    check(result["worst_ms"] < 5 * WORST_MS, str(result))


for threads in (64, 256):
    test(f"threads/{threads}", many, threads, quick=threads == 64)
test("threads/256/churn", churn, 256)
