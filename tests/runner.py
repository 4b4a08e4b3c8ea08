# SPDX-License-Identifier: Apache-2.0
"""Builds rove and runs its tests; see tests/run.

The checks of the sources (tools/check_*) run first, while rove is built. Then one queue keeps the cores busy: the
sanitizer builds, the unit tests, the fuzz targets (tests/fuzz/run) and the system tests that only compute. Unit tests
run under ASan and UBSan, meson's suite `threads` also under TSan, and its suite `optimized` also in a release build.
The system tests (tests/system/test_*.py) wait most of the time, so two lanes of them run at the same time as that
queue. Tests that measure run at the end, one by one.

A test's name is check/TOOL, KIND/BINARY/SUITE.CASE (KIND: unit, asan, tsan), fuzz/TARGET or system/MODE/THEME/...
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
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.setdefault("ROVE_BUILD_DIR", str(ROOT / "build"))).resolve()
FAILED = BUILD / "failed-tests.txt"     # the names of tests that failed when they last ran
SANITIZERS = {"asan": "address,undefined", "tsan": "thread"}
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99",
    "ROVE_SEEDS": "40",     # Random worlds and networks are a few times slower.
}
SPENT = collections.Counter()   # seconds for each part of the run
# Factor for meson's timeout of a test, because the machine may have other work.
SLOWDOWN = {"": 4, "asan": 10, "tsan": 20}
LANES = 2   # The number of lanes of system tests that run at once. A lane uses about a quarter of two cores.


def indented(text):
    return "    " + text.rstrip().replace("\n", "\n    ")


class Selection:
    """Decides which tests run, from -k and from the names of --failed."""
    def __init__(self, expression="", names=None):
        self.text, self.names = expression, names
        self.alternatives = [[(not part.startswith("not "), re.compile(part.removeprefix("not ")))
                              for part in alternative.split(" and ")] for alternative in expression.split(" or ")]

    def is_all(self):
        return not self.text and self.names is None

    def wants(self, name):
        if self.names is not None and name not in self.names:
            return False
        return any(all(bool(pattern.search(name)) == expected for expected, pattern in parts)
                   for parts in self.alternatives)

    def wants_binary(self, prefix, cases):
        """Returns true if a test of the binary is wanted. A name in `cases` that ends in "/" is that of a parameterized
        test. A failed run may also leave other names than its cases, such as prefix/exit."""
        if self.names is not None:
            return any(name == prefix or name.startswith(f"{prefix}/") for name in self.names)
        return any(self.wants(name) for name in cases or [prefix])


class Results:
    def __init__(self, selection):
        self.selection = selection
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.seconds = {}   # duration by test name
        self.lock = threading.Lock()

    def wants(self, name):
        return self.selection.wants(name)

    def add(self, name, outcome, seconds, detail=""):
        word = {"passed": "PASS", "failed": "FAIL", "skipped": "SKIP"}[outcome]
        reason = f"  ({detail})" if outcome == "skipped" else ""
        text = f"{word} {name}  {seconds:.2f} s{reason}\n"
        with self.lock:
            setattr(self, outcome, getattr(self, outcome) + 1)
            self.seconds[name] = seconds
            if outcome == "failed":
                self.failures.append((name, detail))
                text += f"{indented(detail)}\n" if detail else ""
            sys.stdout.write(text)
            sys.stdout.flush()


def run(command, **options):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, **options)


def build(directory, sanitize=None, targets=(), quiet=False):
    """Configures `directory` if needed and builds `targets` (default: all). Ends the run if that fails."""
    options, environment = ["-Dtests=enabled"], dict(os.environ)
    if sanitize:
        # clang compiles a test file in 20 s, gcc in 33 s, and in 51 s with -O2 -g. Reports still have line numbers.
        # Most of the time is for headers; files that are compiled together read them once. lld links a library in a
        # quarter of the time of ld.
        environment |= {"CC": "clang", "CXX": "clang++", "CC_LD": "lld", "CXX_LD": "lld"}
        options += [
            "-Dbuildtype=debugoptimized", "-Doptimization=1", "-Dcpp_args=-g1", f"-Db_sanitize={sanitize}",
            "-Dbench=disabled", "-Dunity=on", "-Dunity_size=6"]
    steps = []
    if not (directory / "build.ninja").exists():
        steps.append(["meson", "setup", directory, ROOT, *([] if sanitize else ["-Dbench=disabled"]), *options])
    else:
        steps.append(["meson", "configure", directory, *options])
    steps.append(["ninja", "-C", directory, *(["-j", os.cpu_count()] if sanitize else []), *targets])
    started = time.monotonic()
    for step in steps:
        done = run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode != 0:
            lines = done.stdout.splitlines()
            errors = [line for line in lines if "error" in line.lower()][:20]
            print("\n".join(errors + lines[-30:]))
            sys.exit(f"'{' '.join(map(str, step))}' failed")
    SPENT["builds"] += time.monotonic() - started
    if not quiet:
        print(f"built {directory.name} in {time.monotonic() - started:.0f} s", flush=True)


def introspect(directory, what):
    return json.loads(
        run(["meson", "introspect", f"--{what}", directory], capture_output=True, text=True, check=True).stdout)


def by_default(directory):
    """Returns the targets that are built by default. ninja alone, with meson 1.0, adds the programs of unit tests,
    which run_unit() builds when it needs them."""
    return sorted(
        os.path.relpath(file, directory) for target in introspect(directory, "targets") if target["build_by_default"]
        for file in target["filename"])


def suites(meson_test):
    return {suite.split(":")[-1] for suite in meson_test["suite"]}


def prefix_of(meson_test, kind):
    return f"{kind or 'unit'}/{meson_test['name']}"


def cases_in_sources(meson_test, kind, targets):
    """Returns the names of the cases of a test binary that may not be built yet. The name of a parameterized test ends
    in "/" and lacks its parameter."""
    binary = targets.get(meson_test["cmd"][0])
    texts = [pathlib.Path(source).read_text(errors="replace") for group in (binary or {}).get("target_sources", ())
             for source in group.get("sources", ()) if os.path.exists(source)]
    prefixes = collections.defaultdict(list)
    for text in texts:
        for prefix, suite in re.findall(r"^INSTANTIATE_TEST_SUITE_P\(\s*(\w*),\s*(\w+)", text, re.M):
            prefixes[suite].append(f"{prefix}/" if prefix else "")
    names = []
    for text in texts:
        for parameter, suite, case in re.findall(r"^TEST(_P|_F)?\(\s*(\w+),\s*(\w+)\)", text, re.M):
            if parameter == "_P":
                names += [f"{prefix}{suite}.{case}/" for prefix in prefixes[suite]]
            else:
                names.append(f"{suite}.{case}")
    return [f"{prefix_of(meson_test, kind)}/{name}" for name in names]


def filter_of(meson_test, kind, selection, environment):
    """Returns the option that makes a test binary run the wanted cases only, or no option for all of them."""
    prefix = prefix_of(meson_test, kind)
    if selection.is_all() or {prefix, f"{prefix}/exit"} & (selection.names or set()):
        return []
    listed = run([*meson_test["cmd"], "--gtest_list_tests"], capture_output=True, text=True, errors="replace",
                 env=environment, cwd=meson_test["workdir"])
    suite, cases = "", []
    for line in listed.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if word.startswith("  "):
            cases.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    wanted = [case for case in cases if selection.wants(f"{prefix}/{case}")]
    option = f"--gtest_filter={':'.join(wanted)}"
    return [option] if len(wanted) < len(cases) and len(option) < 100_000 else []


def run_gtest(meson_test, kind, results):
    """Runs one test binary and adds a result for every gtest case."""
    prefix = prefix_of(meson_test, kind)
    environment = {**os.environ, **SANITIZER_ENV, **meson_test["env"]}
    only = filter_of(meson_test, kind, results.selection, environment)
    if only == ["--gtest_filter="]:
        return
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        started = time.monotonic()
        try:
            done = run([*meson_test["cmd"], *only, f"--gtest_output=json:{report.name}"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
                       cwd=meson_test["workdir"], timeout=meson_test["timeout"] * SLOWDOWN[kind])
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = "timeout", (late.stdout or b"").decode(errors="replace")
        seconds = time.monotonic() - started
        try:
            cases = [(suite["name"], case) for suite in json.load(report)["testsuites"] for case in suite["testsuite"]]
        except ValueError:
            cases = None
    counted = []
    if cases is None:   # It is not a gtest binary, or it ended before it wrote its report.
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


def unit_kinds(quick):
    """Yields the kind and the suite (None for all tests) of each run of unit tests."""
    yield ("", None) if quick else ("", "optimized")
    if not quick:
        yield "asan", None
        yield "tsan", "threads"


def unit_tests(kind, suite, selection):
    """Yields the wanted test binaries of a kind, the longest first, each with the names of its cases. All kinds have
    the same sources as the build without sanitizers."""
    targets = {file: target for target in introspect(BUILD, "targets") for file in target["filename"]}
    tests = sorted(introspect(BUILD, "tests"), key=lambda test: -test["priority"])
    for test in tests:
        cases = cases_in_sources(test, kind, targets)
        if (suite is None or suite in suites(test)) and selection.wants_binary(prefix_of(test, kind), cases):
            yield test, cases


def build_unit(kind, results, suite=None, more_targets=()):
    """Builds the unit tests (only those in `suite` if it is given) and `more_targets`. Returns the tests, the longest
    first."""
    directory = pathlib.Path(f"{BUILD}-{kind}") if kind else BUILD
    wanted = {test["name"] for test, _ in unit_tests(kind, suite, results.selection)}
    if not wanted and not more_targets:
        return []
    # The setup by meson is enough to list the tests. Only their programs are built with sanitizers.
    if kind:
        build(directory, SANITIZERS[kind], ["build.ninja"])
    tests = sorted((test for test in introspect(directory, "tests") if test["name"] in wanted),
                   key=lambda test: -test["priority"])
    build(directory, SANITIZERS.get(kind),
          sorted({os.path.relpath(test["cmd"][0], directory) for test in tests}) + list(more_targets))
    return tests


def run_tsan(results):
    for test in build_unit("tsan", results, "threads"):
        run_gtest(test, "tsan", results)


def checks():
    """Yields the name and the program of each check of the sources."""
    for tool in sorted((ROOT / "tools").glob("check_*")):
        if os.access(tool, os.X_OK):
            yield f"check/{tool.name.removeprefix('check_')}", tool


def run_checks(results):
    """Runs the checks. They need git for the list of the project's files, so they are skipped in a copy of the tree
    without it."""
    has_git = run(["git", "-C", ROOT, "rev-parse"], capture_output=True).returncode == 0
    for name, tool in checks():
        if results.wants(name) and not has_git:
            results.add(name, "skipped", 0, "needs a git checkout")
        elif results.wants(name):
            started = time.monotonic()
            done = run([tool], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            seconds, last = time.monotonic() - started, done.stdout.splitlines()[-40:]
            skipped = done.returncode == 0 and last and last[-1].startswith("SKIP: ")
            outcome = "failed" if done.returncode else "skipped" if skipped else "passed"
            results.add(name, outcome, seconds, last[-1].removeprefix("SKIP: ") if skipped else "\n".join(last))


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


def run_apart(results, names):
    """Runs system tests in a process of their own, so that others can run meanwhile."""
    reading, writing = os.pipe()
    child = subprocess.Popen([sys.executable, __file__, "--report", f"/dev/fd/{writing}", *names],
                             stdin=subprocess.DEVNULL, pass_fds=[writing])
    os.close(writing)
    missing = set(names)
    with open(reading) as lines:
        for outcome in map(json.loads, lines):
            missing.discard(outcome[0])
            results.add(*outcome)
    status = child.wait()
    for name in sorted(missing):
        results.add(name, "failed", 0, f"it did not run: the process of its lane ended with {status}")


def report_to(path, names):
    """Runs the system tests of these names. Writes a line of JSON for each, which holds the arguments of
    Results.add()."""
    with open(path, "w", buffering=1) as report:
        results = Results(Selection(names=set(names)))
        results.add = lambda *outcome: print(json.dumps(outcome), file=report)
        run_tests(results, system_tests(quick=False))


def lanes_of(system, needs_asan):
    """The names of the tests of each lane, the longest lane first: of those that need the ASan build, or of the others.
    The guest is the slowest peer, so its lane comes before all."""
    lanes = collections.defaultdict(list)
    for name, test in system:
        if ("asan" in name) == needs_asan and not test.computes and not test.alone:
            lanes[test.lane].append(name)
    return [lanes[lane] for lane in sorted(lanes, key=lambda lane: (lane != "guest", -len(lanes[lane])))]


class TimedOut(Exception):
    pass


def system_tests(quick):
    sys.path.insert(0, str(ROOT / "tests" / "system"))
    import harness

    for module in sorted((ROOT / "tests" / "system").glob("test_*.py")):
        __import__(module.stem)
    return [test for test in harness.TESTS if test.quick or not quick]


def in_modes(tests):
    """Yields the mode, the name and the test for each mode that a test of the harness has."""
    import harness

    for mode in ("auto", *harness.BOTH):
        for test in tests:
            if mode in test.modes:
                yield mode, f"system/{mode}/{test.name}", test


def run_tests(results, tests):
    """Runs tests of the harness (tests/system), each in its modes."""
    import harness

    def alarm(*_):
        raise TimedOut

    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # so that processes are terminated and namespaces deleted
    for mode, name, test in in_modes(tests):
        harness.mode = mode
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
        except Exception as error:  # A test that raises another error has failed, and the next tests still run.
            outcome, detail = "failed", f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
            harness.stop_all()
        SPENT["system"] += time.monotonic() - started
        results.add(name, outcome, time.monotonic() - started, detail)


SANITIZED_PROGRAMS = ("apps/rove-run", "lib/preload/librove-verbs.so", "tests/system/verbs_victim",
                      "tests/conformance/conformance")     # for the system tests with "asan" in their names


def read_failed():
    return set(FAILED.read_text().split()) if FAILED.exists() else set()


def main():
    parser = argparse.ArgumentParser(prog="tests/run")
    parser.add_argument("--unit", action="store_true", help="unit tests and the fuzz targets only")
    parser.add_argument("--system", action="store_true", help="system tests only")
    parser.add_argument("--quick", action="store_true", help="no sanitizer builds, and a few system tests")
    parser.add_argument("-k", default="", metavar="EXPRESSION", dest="expression",
                        help="only tests whose name matches a regular expression, or several that are joined by "
                             "' and ', ' or ' and 'not '; only their programs are built")
    parser.add_argument("--failed", action="store_true", help="only tests that failed when they last ran")
    parser.add_argument("--list", action="store_true", help="print the names of tests, and run none")
    parser.add_argument("--report", nargs="+", help=argparse.SUPPRESS)  # for run_apart()
    parser.add_argument("--durations", type=int, default=0, metavar="N", help="also print the N slowest tests")
    options = parser.parse_args()
    if options.report:
        return report_to(options.report[0], options.report[1:])
    if options.failed and not read_failed():
        sys.exit(f"no failed tests in {FAILED}")
    try:
        results = Results(Selection(options.expression, read_failed() if options.failed else None))
    except re.error as error:
        parser.error(f"-k: {error}")
    if options.list:
        print_names(results.selection, options)
    else:
        run_all(results, options)


def print_names(selection, options):
    """Prints the names of the wanted tests. Parameterized unit tests lack their parameters."""
    both = options.unit == options.system
    build(BUILD, targets=["build.ninja"], quiet=True)
    names = [name for name, _ in checks()] if both else []
    if both or options.unit:
        names += [case for kind, suite in unit_kinds(options.quick) for _, cases in unit_tests(kind, suite, selection)
                  for case in cases]
        names += [f"fuzz/{target}" for target in FUZZ_TARGETS]
    if both or options.system:
        names += [name for _, name, _ in in_modes(system_tests(options.quick))]
    print("\n".join(name for name in names if selection.wants(name)))


def run_all(results, options):
    both = options.unit == options.system
    started = time.monotonic()
    system = [(name, test) for _, name, test in in_modes(system_tests(options.quick)) if results.wants(name)] \
        if both or options.system else []
    computing = [name for name, test in system if test.computes]
    if "system/auto/debian13/demo" in computing:
        # It waits for the network and disks most of the time.
        subprocess.Popen([ROOT / "tests" / "debian13", "--install"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        checked = beside.submit(run_checks, results) if both else None
        build(BUILD, targets=["build.ninja"])
        if system or results.selection.is_all():
            build(BUILD, targets=by_default(BUILD))
    if checked:
        checked.result()
    unit = build_unit("", results, None if options.quick else "optimized") if both or options.unit else []

    def build_asan():
        """Builds what runs under ASan. Returns the unit tests."""
        sanitized = SANITIZED_PROGRAMS if any("asan" in name for name, _ in system) else ()
        if both or options.unit:
            return build_unit("asan", results, more_targets=sanitized)
        if sanitized:
            build(pathlib.Path(f"{BUILD}-asan"), SANITIZERS["asan"], sanitized)
        return []

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as cores, \
            concurrent.futures.ThreadPoolExecutor(LANES) as waiting:
        jobs = [waiting.submit(run_apart, results, names) for names in lanes_of(system, False)]
        # Tests that take several cores, or long, come first.
        longest = [name for name in computing if "debian13" in name]
        asan = None if options.quick else cores.submit(build_asan)
        groups = [longest, [name for name in computing if name not in longest]]
        jobs += [cores.submit(run_apart, results, group) for group in groups if group]
        jobs += [cores.submit(run_gtest, test, "", results) for test in unit]
        if both or options.unit:
            jobs.append(cores.submit(run_fuzz, results, 5 if options.quick else 10))
        unit_asan = asan.result() if asan else []
        jobs += [waiting.submit(run_apart, results, names) for names in lanes_of(system, True)]
        if (both or options.unit) and not options.quick:
            jobs.append(cores.submit(run_tsan, results))
        jobs += [cores.submit(run_gtest, test, "asan", results) for test in unit_asan]
    for job in jobs:
        job.result()
    run_tests(results, [test for test in system_tests(options.quick) if test.alone] if system else [])
    print(f"in {time.monotonic() - started:.0f} s, {SPENT['builds']:.0f} of them with builds and "
          f"{SPENT['system']:.0f} for system tests that were alone")
    for name, seconds in sorted(results.seconds.items(), key=lambda item: -item[1])[:options.durations]:
        print(f"{seconds:8.2f} s  {name}")
    remember_failed(results, options.failed)
    end(results)


def remember_failed(results, only_failed):
    """Stores the names of the tests that failed, and of those that failed before and did not run now."""
    before = {name for name in read_failed() if not only_failed and name not in results.seconds}
    FAILED.write_text("".join(f"{name}\n" for name in sorted(before | {name for name, _ in results.failures})))


def end(results):
    """Prints the failures again, so that the end of a log contains them, and then the sums."""
    for name, detail in results.failures:
        print(f"FAIL {name}\n{indented(detail[:1500])}")
    print(f"{results.passed} passed, {results.failed} failed, {results.skipped} skipped")
    sys.exit(0 if results.failed == 0 and results.passed > 0 else 1)


if __name__ == "__main__":
    main()
