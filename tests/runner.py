# SPDX-License-Identifier: Apache-2.0
"""Builds rove and runs its tests; see tests/run.

Unit tests run under ASan and UBSan; those of meson's suite `threads` also under TSan, those of `optimized` also as
released. Then the fuzz targets (tests/fuzz/run) for a short time, and the system tests (tests/system/test_*.py) one by
one.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.setdefault("ROVE_BUILD_DIR", str(ROOT / "build"))).resolve()
SANITIZERS = {"asan": "address,undefined", "tsan": "thread"}
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99",
    "ROVE_SEEDS": "40",     # random worlds and networks are a few times slower
}
SPENT = collections.Counter()   # seconds by part of the run
SLOWDOWN = {"": 4, "asan": 10, "tsan": 20}  # of meson's timeout for a test, on a machine that has other work


def indented(text):
    return "    " + text.rstrip().replace("\n", "\n    ")


class Results:
    def __init__(self, pattern):
        self.pattern = re.compile(pattern)
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def wants(self, name):
        return self.pattern.search(name) is not None

    def add(self, name, outcome, seconds, detail=""):
        setattr(self, outcome, getattr(self, outcome) + 1)
        word = {"passed": "PASS", "failed": "FAIL", "skipped": "SKIP"}[outcome]
        reason = f"  ({detail})" if outcome == "skipped" else ""
        print(f"{word} {name}  {seconds:.2f} s{reason}", flush=True)
        if outcome == "failed":
            self.failures.append((name, detail))
            if detail:
                print(indented(detail), flush=True)


def run(command, **options):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, **options)


def build(directory, sanitize=None, targets=()):
    """Configures `directory` if need be and builds `targets` (default: all). Ends the run when that fails."""
    options, environment = ["-Dtests=enabled"], dict(os.environ)
    if sanitize:
        # By clang a test file takes 20 s, by gcc 33, and 51 with -O2 -g; reports still name their lines. Most
        # of that is headers, which files that are compiled together read once.
        environment |= {"CC": "clang", "CXX": "clang++"}
        options += [
            "-Dbuildtype=debugoptimized", "-Doptimization=1", "-Dcpp_args=-g1", f"-Db_sanitize={sanitize}",
            "-Dbench=disabled", "-Dunity=on", "-Dunity_size=6"]
    steps = []
    if not (directory / "build.ninja").exists():
        steps.append(["meson", "setup", directory, ROOT, *([] if sanitize else ["-Dbench=disabled"]), *options])
    else:
        steps.append(["meson", "configure", directory, *options])
    steps.append(["ninja", "-C", directory, *targets])
    started = time.monotonic()
    for step in steps:
        done = run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode != 0:
            lines = done.stdout.splitlines()
            errors = [line for line in lines if "error" in line.lower()][:20]
            print("\n".join(errors + lines[-30:]))
            sys.exit(f"'{' '.join(map(str, step))}' failed")
    SPENT["builds"] += time.monotonic() - started
    print(f"built {directory.name} in {time.monotonic() - started:.0f} s", flush=True)


def introspect(directory, what):
    return json.loads(
        run(["meson", "introspect", f"--{what}", directory], capture_output=True, text=True, check=True).stdout)


def by_default(directory):
    """What is built by default. ninja alone, with meson 1.0, adds the programs of unit tests, which run_unit() builds
    as it needs them."""
    return sorted(
        os.path.relpath(file, directory) for target in introspect(directory, "targets") if target["build_by_default"]
        for file in target["filename"])


def suites(meson_test):
    return {suite.split(":")[-1] for suite in meson_test["suite"]}


def run_gtest(meson_test, kind, results):
    """Runs one test binary; every gtest case counts."""
    prefix = f"{kind or 'unit'}/{meson_test['name']}"
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        started = time.monotonic()
        try:
            done = run([*meson_test["cmd"], f"--gtest_output=json:{report.name}"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace",
                       env={**os.environ, **SANITIZER_ENV, **meson_test["env"]}, cwd=meson_test["workdir"],
                       timeout=meson_test["timeout"] * SLOWDOWN[kind])
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = "timeout", (late.stdout or b"").decode(errors="replace")
        seconds = time.monotonic() - started
        try:
            cases = [(suite["name"], case) for suite in json.load(report)["testsuites"] for case in suite["testsuite"]]
        except ValueError:
            cases = None
    counted = []
    if cases is None:   # not gtest, or it did not live to write its report
        finished = re.findall(r"^\[       OK \] (\S+)", output, re.M)
        counted += [(f"{prefix}/{name}", "passed", 0, "") for name in finished]
        if not finished or status != 0:
            begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
            name = f"{prefix}/{begun[-1]}" if begun else prefix
            outcome = "passed" if status == 0 else "failed"
            counted.append((name, outcome, seconds, f"status {status}\n" + "\n".join(output.splitlines()[-40:])))
    else:
        for suite, case in cases:
            failures = "\n".join(failure["failure"] for failure in case.get("failures", []))
            skipped = case.get("result") == "SKIPPED" or case["status"] == "NOTRUN"
            outcome = "failed" if failures else "skipped" if skipped else "passed"
            counted.append((f"{prefix}/{suite}.{case['name']}", outcome, float(case["time"].rstrip("s")), failures or
                            "by the test"))
        if status != 0 and not any(outcome == "failed" for _, outcome, _, _ in counted):
            tail = "\n".join(output.splitlines()[-40:])
            counted.append((f"{prefix}/exit", "failed", seconds, f"status {status}\n{tail}"))
    for name, outcome, took, detail in counted:
        if results.wants(name):
            results.add(name, outcome, took, detail)


def run_unit(kind, results, suite=None):
    """Builds and runs the unit tests, those of `suite` if it is given."""
    directory = pathlib.Path(f"{BUILD}-{kind}") if kind else BUILD
    # meson setup alone is enough to list the tests; only their programs are built with sanitizers.
    if kind:
        build(directory, SANITIZERS[kind], ["build.ninja"])
    tests = sorted(introspect(directory, "tests"),
                   key=lambda test: -test["priority"])  # the longest first, beside all others
    if suite:
        tests = [test for test in tests if suite in suites(test)]
    if tests:
        build(directory, SANITIZERS.get(kind), sorted({os.path.relpath(test["cmd"][0], directory) for test in tests}))
    workers = 1 if kind == "tsan" else os.cpu_count()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda test: run_gtest(test, kind, results), tests))


FUZZ_TARGETS = ("parse_frame", "cm_messages", "cm", "tent")


def run_fuzz(results, seconds):
    with tempfile.TemporaryDirectory() as folder:
        for target in FUZZ_TARGETS:
            name = f"fuzz/{target}"
            if not results.wants(name):
                continue
            started = time.monotonic()
            done = run([ROOT / "tests" / "fuzz" / "run", seconds, target], text=True, errors="replace", cwd=folder,
                       env={**os.environ, "ROVE_FUZZ_OBJECTS": folder}, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
            detail = "\n".join(done.stdout.splitlines()[-30:])
            results.add(name, "passed" if done.returncode == 0 else "failed", time.monotonic() - started, detail)


class TimedOut(Exception):
    pass


def run_system(results, options):
    sys.path.insert(0, str(ROOT / "tests" / "system"))
    import harness

    for module in sorted((ROOT / "tests" / "system").glob("test_*.py")):
        __import__(module.stem)
    run_tests(results, [test for test in harness.TESTS if test.quick or not options.quick])


def run_tests(results, tests):
    """Runs tests of the harness (tests/system), each in its modes."""
    import harness

    def alarm(*_):
        raise TimedOut

    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # so that processes are ended and namespaces deleted
    for mode, test in [(mode, test) for mode in ("auto", *harness.BOTH) for test in tests if mode in test.modes]:
        harness.mode = mode
        name = f"system/{mode}/{test.name}"
        if not results.wants(name):
            continue
        started = time.monotonic()
        outcome, detail = "passed", ""
        signal.alarm(int(test.timeout) + 1)
        try:
            test.function(*test.arguments)
        except harness.Skip as skip:
            outcome, detail = "skipped", str(skip)
        except harness.Failure as failure:
            outcome, detail = "failed", str(failure)
        except TimedOut:
            outcome, detail = "failed", f"took more than {test.timeout:.0f} s"
        except Exception as error:  # a test that cannot go on has failed, the next ones are run
            outcome, detail = "failed", f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
            harness.stop_all()
        SPENT["system"] += time.monotonic() - started
        results.add(name, outcome, time.monotonic() - started, detail)


def main():
    parser = argparse.ArgumentParser(prog="tests/run")
    parser.add_argument("--unit", action="store_true", help="unit tests and the fuzz targets only")
    parser.add_argument("--system", action="store_true", help="system tests only")
    parser.add_argument("--quick", action="store_true", help="no sanitizer builds, and a few system tests")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only tests whose name matches")
    options = parser.parse_args()
    both = options.unit == options.system
    results = Results(options.filter)
    started = time.monotonic()
    if (both or options.system) and not options.quick and results.wants("system/auto/debian13/demo"):
        # It waits for a network and disks most of the time.
        subprocess.Popen([ROOT / "tests" / "debian13", "--install"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    build(BUILD, targets=["build.ninja"])
    build(BUILD, targets=by_default(BUILD))
    if both or options.unit:
        run_unit("", results, None if options.quick else "optimized")
        if not options.quick:
            run_unit("asan", results)
        # Each takes one core.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(run_fuzz, results, 5 if options.quick else 10)]
            jobs += [] if options.quick else [pool.submit(run_unit, "tsan", results, "threads")]
        for job in jobs:
            job.result()
    if both or options.system:
        if not options.quick:
            build(pathlib.Path(f"{BUILD}-asan"), SANITIZERS["asan"], [
                "apps/rove-run", "lib/preload/librove-verbs.so", "tests/system/verbs_victim",
                "tests/conformance/conformance"])
        run_system(results, options)
    print(f"in {time.monotonic() - started:.0f} s, {SPENT['builds']:.0f} of them to build and "
          f"{SPENT['system']:.0f} for system tests")
    end(results)


def end(results):
    """Says what failed once more, so that a log of which only the end is kept tells it, and the sums."""
    for name, detail in results.failures:
        print(f"FAIL {name}\n{indented(detail[:1500])}")
    print(f"{results.passed} passed, {results.failed} failed, {results.skipped} skipped")
    sys.exit(0 if results.failed == 0 and results.passed > 0 else 1)


if __name__ == "__main__":
    main()
