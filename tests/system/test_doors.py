# SPDX-License-Identifier: Apache-2.0
"""Tests that programs that are not linked with libibverbs find rove's devices too."""
import errno
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import threading

from harness import (BUILD, CLIENT_CORE, ROOT, ROVE_RUN, SCRATCH, SERVER_CORE, Process, Skip, check, free_port,
                     memif_pair, once, unique, write_toml)

SOURCES = ROOT / "tests" / "system"


def compiled(source, *flags, compiler="gcc", name=None):
    """Compiles a program or library of tests/system, or a source of the scratch directory, with the distribution's
    compiler and default settings."""
    output = SCRATCH / (name or pathlib.Path(source).stem)
    output.parent.mkdir(exist_ok=True)
    command = [compiler, "-O1", "-Wall", str(SOURCES / source), "-o", str(output), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(command)}\n{done.stderr}")
    return output


def doors():
    # The RUNPATH applies to the program only and not to the libraries that it loads, as for most programs.
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


# --- other preloaded libraries, and programs without a preloaded library

OPENED = [{"devices": 1, "opened": True}]
WARNING = "it has no rove devices"


def beside(library, seen):
    """Runs rove together with a library of LD_PRELOAD, which must come first. It is not enough that `seen` is in the
    process's memory map."""
    process = Process([compiled("doors_count.c", "-libverbs")], memif_pair()[0], SERVER_CORE,
                      env={"LD_PRELOAD": library, "LD_DEBUG": "bindings"}).succeed(20)
    check(process.json() == OPENED, process.story())
    bound = re.search(r"binding file \S*doors_count \[0\] to (\S+) \[0\]: normal symbol `malloc'", process.err())
    check(bound is not None and seen in bound[1], f"malloc is {bound and bound[1]}'s")


def sanitized(preload):
    program = compiled("doors_count.c", "-fsanitize=address", "-libverbs", name="doors_sanitized")
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True,
                             check=True).stdout.strip()
    process = Process([program], memif_pair()[0], SERVER_CORE, env={"LD_PRELOAD": runtime} if preload
                      else {"ASAN_OPTIONS": "detect_leaks=1"}).succeed(30)
    check(process.json() == OPENED, process.story())
    broken = SCRATCH / "broken.c"
    broken.write_text("#include <stdlib.h>\n"
                      "int main(int n, char** v) { volatile char* p = malloc(10); p[9 + n] = 1; return p[0]; }\n")
    process = Process([compiled(broken, "-fsanitize=address")], memif_pair()[0], SERVER_CORE,
                      env={"LD_PRELOAD": runtime} if preload else None)
    check(process.wait(20) != 0 and "heap-buffer-overflow" in process.err(),
          "ASan does not see an overflow\n" + process.story())


def source(text, *flags, **options):
    file = SCRATCH / "small.c"
    file.write_text(text)
    return compiled(file, *flags, **options)


EMPTY = "int main(void) { return 0; }\n"


def warns(program, *words):
    process = Process([program] if isinstance(program, (str, pathlib.Path)) else program, memif_pair()[0], SERVER_CORE)
    check(process.wait(20) == 0, process.story())
    lines = process.err().splitlines()
    check(len(lines) == 1 and lines[0].startswith("rove-run: ") and WARNING in lines[0]
          and all(word in lines[0] for word in words),
          f"expected one line with {words}\n" + process.story())


def silent(program):
    """Checks that nothing is printed, because rove's devices are available."""
    process = Process(program, memif_pair()[0], SERVER_CORE)
    check(process.wait(20) == 0, process.story())
    check(process.err() == "", process.story())


def static():
    warns(source(EMPTY, "-static", name="static"), "statically linked")
    warns(source(EMPTY, "-static-pie", name="static_pie"), "statically linked")
    script = SCRATCH / "script-of-a-static-program"
    script.write_text(f"#!{SCRATCH}/static -x\n")
    script.chmod(0o755)
    warns(script, "interpreter", "statically linked")


def musl():
    if shutil.which("musl-gcc") is None:
        raise Skip("no musl-gcc")
    warns(source(EMPTY, compiler="musl-gcc", name="for_musl"), "another C library", "ld-musl")


def as_nobody(program):
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(ROVE_RUN), "--config",
            str(memif_pair_file()), "--", str(program)]


def memif_pair_file():
    file = write_toml(memif_pair()[0])
    for folder in (SCRATCH, file):
        folder.chmod(0o755)
    return file


def privileged():
    """A program that gains privileges is not preloaded. A program that could gain them, but does not, is preloaded."""
    if os.geteuid() != 0:
        raise Skip("needs root")
    program = compiled("doors_count.c", "-libverbs", name="with_privileges")

    def run(expected, *before):
        process = Process([*before, *as_nobody(program)], None, SERVER_CORE)
        process.wait(20)
        lines = process.err().splitlines()
        if expected:
            check(len(lines) == 1 and expected in lines[0] and WARNING in lines[0],
                  f"expected a line with '{expected}'\n" + process.story())
        else:
            check(lines == [], "a false alarm\n" + process.story())
        check((process.json() != OPENED) == bool(expected), "the line is wrong\n" + process.story())

    run("")
    program.chmod(0o4755)
    silent([program])   # root gains no privileges
    run("set-user-ID")
    run("", "setpriv", "--no-new-privs")
    program.chmod(0o755)
    os.setxattr(program, "security.capability", CAP_NET_RAW)
    silent([program])
    run("file capabilities")


def no_false_alarm():
    silent([compiled("doors_count.c", "-libverbs")])
    loader = re.search(r"\S+/ld-linux\S+", subprocess.run(["ldd", "/bin/true"], capture_output=True, text=True,
                                                          check=True).stdout)[0]
    for program in (["sh", "-c", "true"], [loader, compiled("doors_count.c", "-libverbs")], ["python3", "-c", "0"],
                    ["ldd", "/bin/true"]):
        silent(program)


CAP_NET_RAW = bytes([1, 0, 0, 2]) + (1 << 13).to_bytes(4, "little") + bytes(12)   # vfs_cap_data, version 2, effective

for _name, _library in (("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")):
    once(f"doors/beside {_name}", beside, _library, _name)
once("doors/beside asan", sanitized, True)
once("doors/asan program", sanitized, False)
once("doors/static program", static)
once("doors/musl program", musl)
once("doors/privileged program", privileged)
once("doors/no false alarm", no_false_alarm, quick=True)


# --- programs that read a device in sysfs

SYSFS = """
import os, re, subprocess, sys
root = "/sys/class/infiniband/rove0/"
def content(path, how=lambda path: open(path).read()):
    return how(path).strip()
def by_openat(path):
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    with open(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder)) as file:
        return file.read()
by_cat = lambda path: subprocess.run(["cat", path], capture_output=True, text=True, check=True).stdout
for how in (lambda path: open(path).read(), by_openat, by_cat):
    assert content(root + "ports/1/gid_attrs/types/1", how) == "RoCE v2"
    assert content(root + "ports/1/gids/1", how) == "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert content(root + "ports/1/state", how) == "4: ACTIVE"
    assert content(root + "ports/1/rate", how) == "25 Gb/sec (1X EDR)"
    assert content(root + "ports/1/link_layer", how) == "Ethernet"
    assert content(root + "device/numa_node", how) == "0"
    assert content("/sys/class/infiniband_verbs/uverbs_rove0/ibdev", how) == "rove0"
assert "rove0" in os.listdir("/sys/class/infiniband") and sorted(os.listdir(root + "ports/1/gids")) == ["0", "1", "2"]
assert os.path.isdir(os.path.realpath(root + "device"))
# libfabric and others read a PCI address there.
assert os.path.islink(root + "device")
assert re.fullmatch("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]", os.path.basename(os.path.realpath(root + "device")))
assert os.access("/dev/infiniband/uverbs_rove0", os.R_OK | os.W_OK)
for absent in (root + "ports/2", root + "ports/1/gids/3", "/sys/class/infiniband/rove1",
               "/dev/infiniband/uverbs_rove1", "/sys/class/infiniband_verb"):
    assert not os.path.exists(absent), absent
real = os.path.isdir("/sys/class/infiniband_verbs")
assert os.path.isdir("/sys/class/infiniband_verbs") == real
assert not (real and "uverbs_rove0" in os.listdir("/sys/class/infiniband_verbs"))
child = os.fork()
if child == 0:
    assert content(root + "ports/1/gid_attrs/types/1") == "RoCE v2"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("right", [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("rove-sysfs-")])
if sys.argv[1] == "die":
    os.kill(os.getpid(), 9)
"""


def reads_sysfs():
    temporary = SCRATCH / "tmp"
    temporary.mkdir(exist_ok=True)
    config = memif_pair()[0]
    config["device"][0].update(link_rate_mbps=25000, numa_node=0)
    run = lambda how: Process(["/usr/bin/python3", "-c", SYSFS, how], config, SERVER_CORE,
                              env={"TMPDIR": str(temporary)})
    process = run("exit").succeed(20)
    check(process.out().startswith("right ['rove-sysfs-"), process.story())
    check(list(temporary.iterdir()) == [], "the folder is left")
    check(run("die").wait(20) == -9 and len(list(temporary.iterdir())) == 1, "nothing was left to sweep")
    run("exit").succeed(20)
    check(list(temporary.iterdir()) == [], "the folder of a killed process is not swept")


once("doors/sysfs", reads_sysfs, quick=True)


def swept(folder, stop):
    """Repeatedly removes the folders of ended processes, as a rove process does when it starts."""
    while not stop.is_set():
        for entry in os.scandir(folder):
            file = -1
            try:
                file = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            except OSError:
                pass
            if file >= 0:
                os.close(file)


def neighbours_start():
    """Processes that start together also sweep. None may remove a folder that another process has created and not
    locked yet. This once left a rank of four without a device."""
    folder, stop = SCRATCH / unique(), threading.Event()
    folder.mkdir()
    sweeper = threading.Thread(target=swept, args=(folder, stop))
    sweeper.start()
    try:
        path = "/sys/class/infiniband/rove0/ports/1/gid_attrs/types/1"
        config = write_toml(memif_pair()[0])
        readers = [Process(["cat", path], config, CLIENT_CORE, env={"TMPDIR": str(folder)}) for _ in range(60)]
        for reader in readers:
            check(reader.succeed(20).out() == "RoCE v2\n", reader.story())
    finally:
        stop.set()
        sweeper.join()


once("doors/sysfs/neighbours-start", neighbours_start)


# --- DPDK is inside rove; a program may have its own

def own_dpdk():
    flags = subprocess.run(["pkg-config", "--cflags", "libdpdk"], capture_output=True, text=True,
                           check=True).stdout.split()
    libraries = ["-lrte_eal", "-lrte_ethdev", "-lrte_mempool", "-lrte_mbuf"]
    process = Process([compiled("doors_dpdk.c", *flags, *libraries, "-libverbs")], memif_pair()[0],
                      SERVER_CORE).succeed(40)
    check(process.json() == [{"ports": 1, "devices": 1, "opened": True, "received": 64, "still": 64}], process.story())


once("doors/own dpdk", own_dpdk)


# --- rove's libibverbs.so.1 in place of the installed one

DROP_IN = BUILD / "lib" / "preload" / "ibverbs"


def under(arguments):
    """Runs the command with rove's libibverbs.so.1, as `rove-run --libibverbs` does."""
    config = write_toml(memif_pair()[0])
    return Process([ROVE_RUN, "--libibverbs", "--config", config, "--", *arguments], None, SERVER_CORE)


def drop_in(way, *file):
    process = under([doors(), way, *file]).succeed(20)
    check(process.json() == [{"devices": 1}], process.story())


def deepbind():
    """The plug-in's own libibverbs precedes preloaded libraries, so it must be rove's. Without --libibverbs it is the
    installed one."""
    drop_in("deepbind", plugin())
    process = Process([doors(), "deepbind", plugin()], memif_pair()[0], SERVER_CORE).succeed(20)
    check(process.json() == [{"devices": 0}],
          "RTLD_DEEPBIND works without --libibverbs now: change docs/guide/running.md\n" + process.story())


def in_library_path():
    """Uses LD_LIBRARY_PATH without rove-run, for a program that is linked with libibverbs and for one with
    librdmacm."""
    environment = {"LD_LIBRARY_PATH": str(DROP_IN), "ROVE_CONFIG": str(write_toml(memif_pair()[0])), "LD_BIND_NOW": "1"}
    process = Process(["ibv_devinfo"], None, SERVER_CORE, env=environment).succeed(20)
    check(re.search(r"hca_id:\s+rove0", process.out()), process.story())
    loaded = subprocess.run(["ldd", shutil.which("rping")], capture_output=True, text=True,
                            env={**os.environ, **environment}, check=True).stdout
    check(str(DROP_IN) in loaded and "not found" not in loaded, loaded)
    process = Process(["rping", "-h"], None, SERVER_CORE, env=environment)
    process.wait(20)
    check("rping" in process.out() + process.err() and "symbol" not in process.err(), process.story())


def all_versions():
    """Checks that rove's library has every symbol of the installed one, in every version."""
    listing = lambda library: set(subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True,
                                                 text=True, check=True).stdout.split())
    loaded = subprocess.run(["ldd", shutil.which("ibv_devinfo")], capture_output=True, text=True, check=True).stdout
    theirs = {word for word in listing(re.search(r"libibverbs\.so\.1 => (\S+)", loaded)[1]) if "IBVERBS" in word}
    missing = theirs - listing(DROP_IN / "libibverbs.so.1")
    check(len(theirs) > 150 and not missing, f"missing: {sorted(missing)}")


def drop_in_ctypes():
    process = under(["/usr/bin/python3", "-c", CTYPES, "libibverbs.so"]).succeed(20)
    check(process.out().split() == ["rove0"], process.story())


def drop_in_pingpong():
    configs = [write_toml(config) for config in memif_pair()]
    port = free_port()
    command = lambda config, core, *rest: Process([ROVE_RUN, "--libibverbs", "--config", config, "--",
                                                   "ibv_rc_pingpong", "-g", "1", "-c", "-p", port, *rest], None, core)
    server = command(configs[0], SERVER_CORE)
    server.wait_listening(port)
    client = command(configs[1], CLIENT_CORE, "127.0.0.1").succeed(30)
    server.succeed(20)
    check("1000 iters" in client.out(), client.story())


if (DROP_IN / "libibverbs.so.1").exists():
    once("doors/drop-in/nccl", drop_in, "nccl")
    once("doors/drop-in/dlvsym", drop_in, "dlvsym")
    once("doors/drop-in/ctypes", drop_in_ctypes)
    once("doors/drop-in/deepbind", deepbind)
    once("doors/drop-in/library path", in_library_path)
    once("doors/drop-in/versions", all_versions, quick=True)
    once("doors/drop-in/pingpong", drop_in_pingpong)


def drops_privileges():
    if os.geteuid() != 0:
        raise Skip("needs root")
    process = Process([compiled("doors_nobody.c", "-libverbs")], memif_pair()[0], SERVER_CORE).succeed(30)
    check(process.out() == "right\n", process.story())


once("doors/drop privileges", drops_privileges)


# --- constructors: they run before main() and within dlopen(), whose lock another thread cannot get meanwhile

def in_constructor(run):
    """A constructor may access files in a thread and open a device."""
    source, shared = "doors_constructor.c", ("-shared", "-fPIC")
    opens = compiled(source, "-DPROGRAM", name="constructor_opens")
    for name, flags in (("files", ["-DTHREAD"]), ("device", ["-libverbs"])):
        library = compiled(source, *shared, *flags, name=f"libconstructor_{name}.so")
        linked = compiled(source, "-DLINKED", str(library), name=f"constructor_linked_{name}")
        for arguments in ([opens, library], [linked]):
            process = run(arguments).succeed(20)
            check(process.out() == "right\n", process.story())


# A library uses a device outside of main(), and prints these lines, by the moment of the use. In "forks" a child is
# forked before and after the first use. The second child inherits an open device, so it cannot get one (ENOSYS).
LAST = {"destructor": ["used"], "atexit": ["used"], "thread-variable": ["used"],
        "forks": ["used", "used", "refused", "used"]}


def at_the_end(run, when):
    """A library may use a device as late as in its destructor, whether or not the program has one open."""
    source, refused = "doors_last.c", f"ibv_get_device_list: {os.strerror(errno.ENOSYS)}"
    number = 1 + list(LAST).index(when)
    library = compiled(source, "-shared", "-fPIC", f"-DWHEN={number}", "-libverbs", name=f"liblast_{number}.so")
    opens = compiled(source, "-DPROGRAM", "-libverbs", name="last_opens")
    linked = compiled(source, "-DLINKED", str(library), "-libverbs", name=f"last_linked_{number}")
    for arguments in ([opens, library], [opens, library, "open"], [linked], [linked, "open"]):
        lines = run(arguments).succeed(25).out().replace(refused, "refused").splitlines()
        # The children of a process that has opened a device have no device.
        expected = ["refused", "used", "refused", "used"] if (when, *arguments[2:]) == ("forks", "open") else LAST[when]
        check(lines == (LAST[when] if arguments[0] == linked else expected), f"{arguments}: {lines}")


preloaded = lambda arguments: Process(arguments, memif_pair()[0], SERVER_CORE)
for _run, _name in ((preloaded, "doors"), (under, "doors/drop-in")):
    if _run is preloaded or (DROP_IN / "libibverbs.so.1").exists():
        once(f"{_name}/constructors", in_constructor, _run)
        for _when in LAST:
            once(f"{_name}/last/{_when}", at_the_end, _run, _when)
