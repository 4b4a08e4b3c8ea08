# SPDX-License-Identifier: Apache-2.0
"""Runs tests/conformance over a memif pair, with RC QPs in rc and in mp mode. Each case is a test. Each theme also runs
under ASan and UBSan.

The cases of a theme run together, when the first of them is requested.
"""
import re

from harness import (BUILD, CLIENT_CORE, ROOT, SANITIZED_BUILD, SERVER_CORE, Process, Skip, check, memif_pair, test,
                     write_toml)
import harness

CASES = {build: build / "tests" / "conformance" / "conformance" for build in (BUILD, SANITIZED_BUILD)}
THEME_LIMIT = 110   # seconds
VERDICT = re.compile(r"(PASS|FAIL|SKIP) (\S+)  \S+ s(?:  (.*))?")
# An instrumented program expects its run-time before any preloaded library, but here rove's library must come first. A
# fault ends a program by its signal. rove would call ASan's handlers first, as it does with a program's own.
SANITIZERS = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:exitcode=99:handle_segv=0:handle_sigbus=0",
              "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99"}
# The cases that may be skipped on rove, and why. A case skips features that a device does not offer. Any other skip
# means that rove no longer offers a feature.
SKIPPED = {
    "optional/the_own_device_is_imported_or_refused": "rove imports no devices: the call is refused, as it may be",
    "qp_transitions/rtr_refuses_an_mtu_above_the_ports": "no MTU is above that of these ports",
}
# The cases that cannot run under sanitizers. Sanitizers replace rove's system calls by functions that are cancellation
# points, so a thread may be cancelled while it drives the datapath. That does not happen in the other cases of the
# theme.
NOT_SANITIZED = ("cancel/not_in_posting_and_polling", "cancel/in_get_cq_event_while_others_wait")
_verdicts = {}


def names():
    """Returns the cases' names from the sources, because the list is needed before the program is built."""
    return [f"{theme}/{rule}" for file in sorted((ROOT / "tests" / "conformance").glob("*.cc"))
            for theme, rule in re.findall(r"^(?:CASE|PAIR|DOOMED|ALONE)\((\w+),\s*(\w+)\)", file.read_text(), re.M)]


def verdicts(theme, build=BUILD):
    """Returns the outcome and the reason of each case of `theme`, by name."""
    key = (theme, harness.mode, build)
    if key not in _verdicts:
        first, second = memif_pair()
        left_out = "" if build == BUILD else "".join(f"(?!{name}$)" for name in NOT_SANITIZED)
        command = [CASES[build], "--filter", f"^{left_out}{theme}/", "--peer-env",
                   f"ROVE_CONFIG={write_toml(second)}", "--limit", 20 if build == BUILD else 60]
        process = Process(command, first, build=build, env=SANITIZERS if build != BUILD else None)
        process.wait(THEME_LIMIT)
        _verdicts[key] = {name: (outcome, detail or "")
                          for outcome, name, detail in VERDICT.findall(process.out())}, process
    return _verdicts[key]


def case(name):
    found, process = verdicts(name.split("/")[0])
    check(name in found, f"no verdict\n{process.story()}")
    outcome, detail = found[name]
    if outcome == "SKIP":
        check(name in SKIPPED, f"rove offers this, and it was skipped: {detail}")
        raise Skip(SKIPPED[name])
    check(outcome == "PASS", detail)


def lossy(name):
    """Runs one case over a network that loses, duplicates and reorders."""
    first, second = memif_pair(impair={"loss": 0.05, "reorder": 0.02, "duplicate": 0.02})
    process = Process([CASES[BUILD], "--filter", f"^{name}$", "--peer-env", f"ROVE_CONFIG={write_toml(second)}"], first)
    check(process.wait(40) == 0, process.story())


def dedicated(theme):
    """Runs a theme in which each process has a dedicated thread of the library, so that faults in the program's memory
    happen on that thread."""
    first, second = memif_pair()
    for config, core in ((first, SERVER_CORE), (second, CLIENT_CORE)):
        config["runtime"] = {"progress": "dedicated", "lcores": [str(core)]}
    command = [CASES[BUILD], "--filter", f"^{theme}/", "--peer-env", f"ROVE_CONFIG={write_toml(second)}"]
    process = Process(command, first)
    check(process.wait(THEME_LIMIT) == 0, process.story())


def sanitized(theme):
    if not CASES[SANITIZED_BUILD].exists():
        raise Skip("no sanitizer build: run tests/run without --system or --quick first")
    found, process = verdicts(theme, SANITIZED_BUILD)
    failed = [f"{outcome} {name}: {detail}" for name, (outcome, detail) in found.items()
              if outcome == "FAIL" or (outcome == "SKIP" and name not in SKIPPED)]
    check(found and not failed, "\n".join(failed) + "\n" + process.story())
    check("runtime error" not in process.err() and "Sanitizer" not in process.err(), process.story())


for name in names():
    test(f"conformance/{name}", case, name, timeout=THEME_LIMIT + 10)
for theme in ("mr_gone", "cq_resize"):
    test(f"conformance/dedicated/{theme}", dedicated, theme, timeout=THEME_LIMIT + 10)
test("conformance/lossy/uc", lossy, "uc/what_arrives_is_whole_and_in_order")
for theme in sorted({name.split("/")[0] for name in names()}):
    # Cases with objects only, and with processes, run the same code in both modes.
    modes = ("rc",) if theme in ("device_limits", "fork", "process", "signals") else harness.BOTH
    test(f"conformance/asan/{theme}", sanitized, theme, timeout=THEME_LIMIT + 10, modes=modes)
