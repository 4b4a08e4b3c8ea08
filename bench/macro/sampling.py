# SPDX-License-Identifier: Apache-2.0
"""Samples of two programs that are compared, and the choice of those that may be compared.

The distance of the two cores (nanoseconds for a cache line's round trip, from core_distance) is recorded while a sample
is taken: where a hypervisor moves virtual cores it jumps by a factor of four, and the sample's value with it.
"""
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass

STEADY = 0.8  # share of a sample's probes that must lie within SAME of their median
SAME = 1.6    # largest ratio between neighbouring distances that count as one state of the machine


@dataclass
class Sample:
    value: float           # in the unit of the measure
    seconds: float         # how long the measured part took; it ended when the sample was returned
    distance: float = 0.0  # of the cores, ns; 0: it changed during the sample


class DistanceWatch:
    """Runs core_distance while samples are taken (0.2 % of each core: not a third spinning process)."""

    def __init__(self, program):
        self.file = tempfile.NamedTemporaryFile("r", prefix="rove-bench-")
        self.process = subprocess.Popen([program], stdout=open(self.file.name, "w"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.file.close()

    def over(self, start, end):
        """The distance between two times of the monotonic clock, or 0 when it was not one."""
        self.file.seek(0)
        probes = [tuple(map(float, line.split())) for line in self.file if line.endswith("\n")]
        distances = [ns for when, ns in probes if start <= when <= end]
        if not distances:
            return 0.0
        median = statistics.median(distances)
        steady = sum(median / SAME < ns < median * SAME for ns in distances)
        return median if steady >= STEADY * len(distances) else 0.0


def take(run, watch):
    """One sample by run(), with the cores' distance during its measured part."""
    sample = run()
    end = time.monotonic()
    sample.distance = watch.over(end - sample.seconds - 0.2, end)  # 0.2 s: the programs' own end
    return sample


def by_state(ours, reference):
    """Pairs (ours, reference) of the steady samples, one pair for each state of the machine, nearest cores first."""
    states, last = [], None
    for sample, side in sorted([(s, 0) for s in ours] + [(s, 1) for s in reference], key=lambda p: p[0].distance):
        if sample.distance == 0:
            continue
        if last is None or sample.distance > last * SAME:
            states.append(([], []))
        states[-1][side].append(sample)
        last = sample.distance
    return [state for state in states if all(state)]


def comparable(ours, reference):
    """The state in which the side with fewer samples has most: what the table compares."""
    return max(by_state(ours, reference), key=lambda sides: min(map(len, sides)), default=([], []))
