# SPDX-License-Identifier: Apache-2.0
"""The ways in: programs that are not linked with libibverbs find rove's devices too."""
import pathlib
import re
import subprocess

from harness import ROOT, SCRATCH, SERVER_CORE, Process, check, memif_pair, once

SOURCES = ROOT / "tests" / "system"


def compiled(source, *flags, compiler="gcc", name=None):
    """A program or library of tests/system (or a source of the scratch directory) as it comes from a compiler of the distribution."""
    output = SCRATCH / (name or pathlib.Path(source).stem)
    output.parent.mkdir(exist_ok=True)
    command = [compiler, "-O1", "-Wall", str(SOURCES / source), "-o", str(output), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(command)}\n{done.stderr}")
    return output


def doors():
    # RUNPATH as most programs have it: of the program, and not of those whose libraries it loads.
    return compiled("doors.c", "-ldl", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/only_here")


def plugin():
    return compiled("doors_plugin.c", "-shared", "-fPIC", "-libverbs", name="only_here/libdoors_plugin.so")


def finds(way, *file):
    process = Process([doors(), way, *file], memif_pair()[0], SERVER_CORE).succeed(20)
    check(process.json() == [{"devices": 1}], process.story())


def by_path():
    loaded = subprocess.run(["ldd", str(compiled("doors_plugin.c", "-shared", "-fPIC", "-libverbs", name="plugin.so"))],
                            capture_output=True, text=True, check=True).stdout
    finds("dlsym", re.search(r"libibverbs\.so\.1 => (\S+)", loaded)[1])


def by_runpath():
    plugin()
    finds("plugin", "libdoors_plugin.so")


CTYPES = """
import ctypes, sys
verbs = ctypes.CDLL(sys.argv[1])
count = ctypes.c_int()
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
devices = verbs.ibv_get_device_list(ctypes.byref(count))
print(*(verbs.ibv_get_device_name(ctypes.c_void_p(devices[i])).decode() for i in range(count.value)))
"""


def python_ctypes(library):
    process = Process(["/usr/bin/python3", "-c", CTYPES, library], memif_pair()[0], SERVER_CORE).succeed(20)
    check(process.out().split() == ["rove0"], process.story())


once("doors/dlsym", finds, "dlsym", quick=True)
once("doors/dlsym by path", by_path)
once("doors/dlvsym", finds, "dlvsym", quick=True)
once("doors/dlsym default", finds, "default")
once("doors/nccl", finds, "nccl", quick=True)
once("doors/runpath", by_runpath, quick=True)
once("doors/ctypes", python_ctypes, "libibverbs.so.1", quick=True)
