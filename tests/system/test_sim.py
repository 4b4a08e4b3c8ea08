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


def refuses_files():
    with tempfile.TemporaryDirectory() as directory:
        sizes, trace = (pathlib.Path(directory, name) for name in ("sizes.txt", "trace.txt"))
        sizes.write_text("0 0\n4000 50\n3000 100\n")
        refuses(f"{sizes}:3: '3000 100'; allowed: two numbers", "flows", "--sizes", sizes)
        trace.write_text("0 1 3 1000 0\n0 128 3 1000 0\n")
        refuses(f"{trace}:2: '0 128 3 1000 0'; allowed: ", "flows", "--trace", trace)
        refuses("allowed: ecmp, ", "flows", "--scheme", "best")


def follows_a_trace():
    with tempfile.TemporaryDirectory() as directory:
        trace, flows = (pathlib.Path(directory, name) for name in ("trace.txt", "flows.csv"))
        trace.write_text("0 17 3 100000 0\n3 4 3 2000 0.00001\n")
        ran = sim("flows", "--trace", trace, "--csv", flows)
        check(ran.returncode == 0, ran.stderr)
        lines = [line.split(",") for line in flows.read_text().splitlines()]
        check(lines[0] == ["src", "dst", "sport", "size", "start", "fct", "ideal"], lines)
        check(sorted(line[:2] + line[3:5] for line in lines[1:]) == [["0", "17", "100000", "0"],
                                                                     ["3", "4", "2000", "10000"]], lines)
        check(all(float(line[5]) <= 1.2 * float(line[6]) for line in lines[1:]), lines)


def holds(figure, least):
    with tempfile.TemporaryDirectory() as directory:
        told = pathlib.Path(directory, "told.json")
        ran = sim(figure, "--quick", "--json", told)
        check(ran.returncode == 0, ran.stderr)
        bars = [measure["holds"] for measure in json.loads(told.read_text()) if measure["bar"] is not None]
        check(sum(bars) >= least, ran.stdout)


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
once("sim/refused/letter", refuses, "--letter goes with figures of MP-RDMA", "--letter", QUICK)
once("sim/refused/files", refuses_files)
once("sim/trace", follows_a_trace)
once("sim/holds/mp-fig12b", holds, "mp-fig12b", 6)   # all
once("sim/holds/mp-fig13", holds, "mp-fig13", 10)   # of 12
once("sim/writes", writes, QUICK, quick=True)
once("sim/unwritable", lambda: check(sim(QUICK, "--json", "/nowhere/x").returncode == 1, "status"))
once("sim/mutants", mutants_have_their_place)
