# SPDX-License-Identifier: Apache-2.0
"""rove-sim: what it lists, refuses and writes. Its figures take a minute and are no tests; nor are planted bugs, but
that they can be planted is one."""
import json
import pathlib
import runpy
import subprocess
import tempfile
import xml.etree.ElementTree

from harness import BUILD, ROOT, check, once

QUICK = "eu-memory"
KEYS = {"figure", "metric", "unit", "paper", "ours", "interval", "bar", "holds"}


def sim(*arguments):
    return subprocess.run([BUILD / "apps" / "rove-sim", *map(str, arguments)], capture_output=True, text=True,
                          timeout=50)


def lists():
    listed = sim("--list")
    check(listed.returncode == 0, listed.stderr)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    check({"mp-fig11a", "bx1", QUICK} <= set(names) and len(names) == len(set(names)), listed.stdout)


def refuses(says, *arguments):
    refused = sim(*arguments)
    check(refused.returncode == 2, f"{arguments}: status {refused.returncode}")
    check(says in refused.stderr and not refused.stdout, f"{arguments}: {refused.stderr!r}")


def writes(figure):
    with tempfile.TemporaryDirectory() as directory:
        files = [pathlib.Path(directory, name) for name in ("first.json", "again.json", "other.json", "plot.svg")]
        first = sim(figure, "--seed", 5, "--json", files[0], "--svg", files[3])
        check(first.returncode == 0, first.stderr)
        check(sim(figure, "--seed", 5, "--json", files[1]).stdout == first.stdout, "the same seed told something else")
        sim(figure, "--seed", 6, "--json", files[2])
        texts = [file.read_text() for file in files]
        check(texts[0] == texts[1], "the same seed wrote something else")
        check(texts[0] != texts[2], "another seed wrote the same")
        measures = json.loads(texts[0])
        check(len(measures) > 0, "no measures")
        for measure in measures:
            check(measure.keys() == KEYS and measure["figure"] == figure, str(measure))
            check(isinstance(measure["ours"], (int, float)), str(measure))
            check(measure["paper"] is None or isinstance(measure["paper"], (int, float)), str(measure))
            check((measure["bar"] is None) == (measure["holds"] is None), str(measure))
            check(measure["metric"] in first.stdout, f"not printed: {measure}")
        check(len(list(xml.etree.ElementTree.fromstring(texts[3]))) > 10, "an empty figure")


def mutants_have_their_place():
    planted = runpy.run_path(str(ROOT / "tests" / "sim" / "mutants.py"))
    for name, (file, before, _) in [
            *planted["MUTANTS"].items(), *(mutant for mutants in planted["UNIT_MUTANTS"].values()
                                           for mutant in mutants.items())]:
        check((ROOT / file).read_text().count(before) == 1, f"{name}: its place is not in {file}")


once("sim/list", lists, quick=True)
once("sim/refused/no-figure", refuses, "which FIGURE")
once("sim/refused/unknown-figure", refuses, "no figure 'mp-fig99'", "mp-fig99")
once("sim/refused/unknown-option", refuses, "--fast", QUICK, "--fast")
once("sim/refused/seed", refuses, "--seed", QUICK, "--seed", "one")
once("sim/refused/quick", refuses, "no quick form", QUICK, "--quick")
once("sim/refused/flows", refuses, "--flows goes with --results", "mp-fig13", "--flows")
once("sim/writes", writes, QUICK, quick=True)
once("sim/unwritable", lambda: check(sim(QUICK, "--json", "/nowhere/x").returncode == 1, "status"))
once("sim/mutants", mutants_have_their_place)
