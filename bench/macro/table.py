# SPDX-License-Identifier: Apache-2.0
"""A table of ratios. Samples of both sides of a row are taken in turn until enough are comparable. The result is
printed as text and written as JSON."""
import json
import statistics
import sys
from dataclasses import dataclass

from programs import Failed
from sampling import by_state, comparable, take

PATIENCE = 4  # rounds to try, as a multiple of the wanted rounds, until that many samples of both sides are comparable


@dataclass
class Measure:
    """One row: the run `ours` against the run `reference`. The goal is a bound of their ratio, or of the value of
    `ours`."""
    name: str
    unit: str
    ours: str
    reference: str
    at_least: float | None = None
    at_most: float | None = None
    ours_at_least: float | None = None
    ours_at_most: float | None = None

    def bounds(self):
        """Returns (whether it bounds the ratio, sign, bound) for each bound that is set."""
        given = [(True, ">=", self.at_least), (True, "<=", self.at_most), (False, ">=", self.ours_at_least),
                 (False, "<=", self.ours_at_most)]
        return [bound for bound in given if bound[2] is not None]

    def goal(self):
        return " and ".join(f"{sign} {bound:.3g}" if of_ratio else f"ours {sign} {shown(bound)}"
                            for of_ratio, sign, bound in self.bounds())

    def holds(self, ours, ratio):
        if not self.bounds():
            return None  # The row is only reported.
        return all((value >= bound) if sign == ">=" else (value <= bound)
                   for of_ratio, sign, bound in self.bounds() for value in [ratio if of_ratio else ours])


def sample_group(runs, measures, rounds, watch, failures):
    """Takes samples of all runs in turn until every measure has `rounds` comparable samples of both sides."""
    samples = {name: [] for name in runs}

    def lacks(measure):
        if measure.ours in failures or measure.reference in failures:
            return False
        return min(map(len, comparable(samples[measure.ours], samples[measure.reference]))) < rounds

    for turn in range(PATIENCE * rounds):
        needed = {name for m in measures if turn == 0 or lacks(m) for name in (m.ours, m.reference)}
        if not needed:
            break
        for name in (name for name in runs if name in needed and name not in failures):
            try:
                samples[name].append(take(runs[name], watch))
                print(f"  {name}: {shown(samples[name][-1].value)}", file=sys.stderr)
            except Failed as failure:
                failures[name] = str(failure)
                print(f"  {name}: {failure}", file=sys.stderr)
    return samples


def result(measure, samples, failures):
    sides = samples[measure.ours], samples[measure.reference]
    states = [compared(*state) for state in by_state(*sides)]
    # The samples are shown even when none may be compared.
    shown_state = compared(*comparable(*sides)) if states else compared(*sides) | {"ratio": None}
    ratio = shown_state["ratio"]
    return row(measure.name, measure.unit, measure.goal(), **shown_state, by_distance=states,
               holds=None if ratio is None else measure.holds(shown_state["ours"], ratio),
               failed=failures.get(measure.ours) or failures.get(measure.reference))


def compared(ours, reference):
    ours_median, reference_median = median(s.value for s in ours), median(s.value for s in reference)
    return {"reference": reference_median, "ours": ours_median,
            "ratio": ours_median / reference_median if ours and reference else None,
            "samples": [len(reference), len(ours)],
            "core_distance_ns": median(s.distance for s in ours + reference if s.distance)}


def row(measure, unit, goal, **known):
    """Returns a row of the table and of the JSON file. `samples` counts the reference's and ours. `by_distance` has the
    same numbers for every distance of the cores that both sides met, including the one in the table."""
    return {"measure": measure, "unit": unit, "reference": None, "ours": None, "ratio": None, "goal": goal,
            "holds": None, "samples": [0, 0], "core_distance_ns": None, "by_distance": [], "failed": None} | known


def median(values):
    values = list(values)
    return statistics.median(values) if values else None


def shown(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def print_table(rows):
    heading = ("measure", "unit", "reference", "ours", "ratio", "goal", "holds", "cores")
    lines = [heading] + [(r["measure"], r["unit"], shown(r["reference"]), shown(r["ours"]),
                          "-" if r["ratio"] is None else f"{r['ratio']:.2f}", r["goal"] or "reported",
                          {True: "yes", False: "NO", None: "-"}[r["holds"]],
                          "-" if r["core_distance_ns"] is None else f"{r['core_distance_ns']:.0f} ns") for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heading))]
    for line in lines:
        print("  ".join(text.ljust(width) if i < 2 else text.rjust(width)
                        for i, (text, width) in enumerate(zip(line, widths))).rstrip())


def write(rows, file):
    """Prints the table and writes the JSON file if one is given. Returns the exit status, which is 0 if all ran and
    every goal holds."""
    print_table(rows)
    if file:
        file.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if any(r["holds"] is False or r["failed"] for r in rows) else 0
