# SPDX-License-Identifier: Apache-2.0
"""Tests the exported symbols: every public call of the installed libibverbs is in lib/preload/symbols.def, and every
kind of lookup finds it."""
import ctypes.util
import re
import subprocess
import sys

from harness import BUILD, ROOT, SERVER_CORE, Process, check, memif_pair, once

sys.path.insert(0, str(ROOT / "lib" / "preload"))
import version_script  # noqa: E402

TABLE = (ROOT / "lib" / "preload" / "symbols.def").read_text()
EXPORTED = {name: version for version, name in version_script.calls(TABLE)}
NOT_EXPORTED = set(re.findall(r"^ROVE_NOT_EXPORTED\((\w+),", TABLE, re.MULTILINE))
HOOKS = set(re.findall(r"^ROVE_HOOK\((\w+)\)", TABLE, re.MULTILINE))
NAME = r"(?:_?ibv|mult|mbps)_\w+"


def symbols(library):
    """Returns (name, version, whether it is the default version) of each symbol that a library exports. A symbol
    without a version has ("", False)."""
    listing = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True,
                             check=True).stdout
    found = (re.search(r" [TWi] (\w+)(?:(@@?)(\S+))?$", line) for line in listing.splitlines())
    return [(match[1], (match[3] or "").replace("IBVERBS_", ""), match[2] == "@@") for match in found if match]


def installed():
    with open("/proc/self/maps") as maps:
        ctypes.CDLL(ctypes.util.find_library("ibverbs") or "libibverbs.so.1")
        return re.search(r"\S*/libibverbs\.so\S*", maps.read())[0]


def complete():
    """This fails if a newer libibverbs has a call that the table lacks. Add it there."""
    public = {
        name for name, version, _ in symbols(installed())
        if re.fullmatch(NAME, name) and not version.startswith("PRIVATE")}
    check(len(public) > 70, f"only {len(public)} calls in {installed()}")
    unknown = public - EXPORTED.keys() - NOT_EXPORTED
    check(not unknown, f"neither exported nor in the list of symbols.def: {sorted(unknown)}")
    check(not EXPORTED.keys() & NOT_EXPORTED, "both exported and not")


def versions():
    """The library exports exactly the symbols of the table, with the default versions of libibverbs."""
    ours = {
        name: version for name, version, default in symbols(BUILD / "lib" / "preload" / "librove-verbs.so")
        if default or not version}
    check(all(ours.get(name) == "" for name in HOOKS), f"hooks: {HOOKS} are not all exported without a version")
    # DPDK has one of these two.
    counts = {"rte_tel_data_add_dict_u64", "rte_tel_data_add_dict_uint"}
    exported = {name for name in version_script.TELEMETRY if ours.get(name) == version_script.ROVE_VERSION}
    check(exported | counts == set(version_script.TELEMETRY) and exported & counts,
          f"the telemetry that librove-tent.so needs is not there: {exported}")
    named = {name: "PRIVATE" if version == "" else version for name, version in ours.items()
             if name not in HOOKS and name not in version_script.TELEMETRY}
    check(named == EXPORTED, f"differ: {sorted(set(named.items()) ^ set(EXPORTED.items()))}")
    theirs = {
        name: version for name, version, default in symbols(installed())
        if default and not version.startswith("PRIVATE")}
    wrong = {name for name in EXPORTED.keys() & theirs.keys() if EXPORTED[name] not in (theirs[name], "PRIVATE")}
    check(not wrong, f"other default versions than libibverbs': {sorted(wrong)}")


def engine():
    """librove-tent.so exports the symbols that its headers declare, with a version, and no internal ones."""
    library = BUILD / "lib" / "tent" / "librove-tent.so.0"
    header = (ROOT / "include" / "rove" / "tent.h").read_text()
    declared = set(re.findall(r"\b(tent_\w+)\(", header))
    listed = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    found = {line.split(" ", 2)[2].partition("@@")[0] for line in listed.splitlines() if " A " not in line}
    functions = {name for name in found if name.startswith("tent_")}
    public = r"mooncake::tent::(TransferEngine::|Status::|name\(|transportTypeName|parseTransportType)"
    others = {name for name in found - functions if not re.match(public, name)}
    check(functions == declared, f"differ: {sorted(functions ^ declared)}")
    check(not others and len(found) > len(functions) + 20, f"shown besides: {sorted(others)}")
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    check("[librove-tent.so.0]" in dynamic, dynamic)


LOOKUPS = """
import ctypes, sys
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
libc.dlvsym.restype = libc.dlsym.restype = ctypes.c_void_p
ctypes.CDLL("libibverbs.so.1", ctypes.RTLD_GLOBAL)
for word in sys.argv[1:]:
    name, version = word.split("@")
    if version == "PRIVATE":
        found = libc.dlsym(None, name.encode())
    else:
        found = libc.dlvsym(None, name.encode(), b"IBVERBS_" + version.encode())
    info = Info()
    libc.dladdr(ctypes.c_void_p(found), ctypes.byref(info))
    if b"librove-verbs" not in (info.file or b""):
        print(word, "is found in", info.file)
"""


def lookups():
    """Lookups by dlvsym() and dlsym() in the program's own scope find rove's symbols."""
    words = [f"{name}@{version}" for name, version in EXPORTED.items()]
    process = Process(["/usr/bin/python3", "-c", LOOKUPS, *words], memif_pair()[0], SERVER_CORE).succeed(20)
    check(process.out() == "", process.out())


once("exports/complete", complete, quick=True)
once("exports/versions", versions, quick=True)
once("exports/lookups", lookups, quick=True)
once("exports/engine", engine, quick=True)
