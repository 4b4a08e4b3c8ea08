# SPDX-License-Identifier: Apache-2.0
"""Takes samples of two programs, and chooses the samples that may be compared.

The distance of the two cores (nanoseconds for a cache line's round trip, from core_distance) is recorded while a sample
is taken. Where a hypervisor moves virtual cores, the distance jumps by a factor of four, and the sample's value with
it.
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
    seconds: float         # duration of the measured part; it ended when the sample was returned
    distance: float = 0.0  # distance of the cores in ns; 0 if it changed during the sample


class DistanceWatch:
    """Runs core_distance while samples are taken. It uses 0.2 % of each core and does not spin."""

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
        """Returns the distance between two times of the monotonic clock, or 0 if it changed between them."""
        self.file.seek(0)
        probes = [tuple(map(float, line.split())) for line in self.file if line.endswith("\n")]
        distances = [ns for when, ns in probes if start <= when <= end]
        if not distances:
            return 0.0
        median = statistics.median(distances)
        steady = sum(median / SAME < ns < median * SAME for ns in distances)
        return median if steady >= STEADY * len(distances) else 0.0


def take(run, watch):
    """Takes one sample by run() and adds the cores' distance during its measured part."""
    sample = run()
    end = time.monotonic()
    sample.distance = watch.over(end - sample.seconds - 0.2, end)  # the time that the programs need to exit
    return sample


def by_state(ours, reference):
    """Returns pairs (ours, reference) of the steady samples. There is one pair for each state of the machine, and the
    nearest cores come first."""
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
    """Returns the samples that the table compares, from the state in which the side with fewer samples has the
    most."""
    return max(by_state(ours, reference), key=lambda sides: min(map(len, sides)), default=([], []))
