# SPDX-License-Identifier: Apache-2.0
"""Tests that rove's own calls of the C library reach the C library, and not a library that a program preloads before
rove, nor rove's hooks."""
import importlib.util
import re
import subprocess

from harness import BUILD, ROOT, SCRATCH, SERVER_CORE, Process, check, memif_link, memif_pair, once, verified
from test_rdma_cm import rping

LIBRARY = BUILD / "lib" / "preload" / "librove-verbs.so"
_spec = importlib.util.spec_from_file_location(
    "dpdk_archives", ROOT / "lib" / "runtime" / "dpdk_archives.py")
dpdk_archives = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dpdk_archives)
REPLACED = dpdk_archives.replaced([ROOT / "lib" / name
                                   for name in ("base/libc.cc", "base/libc_files.cc", "runtime/eal.cc")])

# The names to which the library may refer: functions for memory, the process or its threads, and allocators and signal
# functions, which a program may replace.
HARMLESS = """
    (__)?(str|mem|stp|is|to|wcs|mbs)\\w+ | \\w*printf_chk | snprintf | __isoc(99|23)_(sscanf|strto\\w+) | qsort | ff\\w+
    (\\w*alloc\\w*) | free\\w* | posix_memalign | if_freenameindex | inet_\\w+ | \\w+env | optarg | optind | optopt
    getopt_long | pthread_\\w+ | sched_\\w+ | __sched_cpucount | sig\\w+ | raise | kill | prctl | abort | exit
    personality
    get(uid|euid|pid|tid|pagesize|auxval|entropy|random|rlimit64) | setrlimit64 | sysconf | uname | iopl | mlock(all)?
    clock_gettime | gettimeofday | time | difftime | s?rand | round | pow | log\\d* | frexp | ldexp | tc[gs]etattr
    reg(comp|exec|free) | fnmatch | dirname | dirfd | ferror | fileno | fmemopen | fopencookie | setbuf | stderr
    stdin | stdout
    backtrace | dl(addr1?|close|error|info|sym) | dl_iterate_phdr | __(sigsetjmp|longjmp_chk|chk_fail|read|assert_fail)
    __(cxa_\\w+|ctype_b_loc|errno_location|libc_\\w+|register_atfork|stack_chk_fail|tls_get_addr|xpg_\\w+|gmon_start__)
"""
HARMLESS = re.compile("|".join(word.strip() for line in HARMLESS.split("\n") for word in line.split(" | ")))


def lines_of(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout.splitlines()


def refers_to_nothing_else():
    undefined = [line.split()[-1] for line in lines_of("nm", "-D", "--undefined-only", LIBRARY)]
    libc = {name.split("@")[0] for name in undefined if "@GLIBC_" in name}
    check({"malloc", "pthread_create"} <= libc, f"not the names of the C library: {sorted(libc)}")
    bad = sorted(name for name in libc if name in REPLACED or not HARMLESS.fullmatch(name))
    check(not bad, f"librove-verbs.so refers to {bad}: they need a function in lib/base/libc.cc or libc_files.cc, or "
                   "a place among those that are harmless")
    # The streams and file systems of C++ call the C library by its global names.
    bad = [name for name in undefined if re.search("fstream|filebuf|10filesystem", name)]
    check(not bad, f"librove-verbs.so refers to {bad}: lib/base/files.h has calls for files")
    relocated = {line.split()[4].split("@")[0] for line in lines_of("readelf", "-rW", LIBRARY)
                 if len(line.split()) > 4}
    check("malloc" in relocated and not relocated & set(REPLACED), f"called by name: {relocated & set(REPLACED)}")


# A library that defines all those names. Each call continues with the next definition, except for a call from within
# librove-verbs.so, which ends the process.
INTERPOSER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

extern const char* const names[];
static void* real[{count}];
static uintptr_t begin, end;

static long raw(long number, long a, long b, long c) {{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}}

static int look(struct dl_phdr_info* library, size_t size, void* unused) {{
    (void)size, (void)unused;
    if (strstr(library->dlpi_name, "/librove-verbs.so") == NULL) return 0;
    for (int i = 0; i < library->dlpi_phnum; ++i) {{
        if (library->dlpi_phdr[i].p_type != PT_LOAD || (library->dlpi_phdr[i].p_flags & PF_X) == 0) continue;
        begin = library->dlpi_addr + library->dlpi_phdr[i].p_vaddr;
        end = begin + library->dlpi_phdr[i].p_memsz;
    }}
    return 0;
}}

__attribute__((constructor)) static void find(void) {{
    dl_iterate_phdr(look, NULL);
    for (int i = 0; i < {count}; ++i) real[i] = dlsym(RTLD_NEXT, names[i]);
    if (end != 0) raw(SYS_write, 2, (long)"rove is watched\\n", 16);
}}

__attribute__((used)) void* next_of(long name, uintptr_t caller) {{
    if (caller - begin < end - begin) {{
        raw(SYS_write, 2, (long)names[name], (long)strlen(names[name]));
        raw(SYS_write, 2, (long)" called by rove\\n", 16);
        raw(SYS_exit_group, 86, 0, 0);
    }}
    if (real[name] == NULL) real[name] = dlsym(RTLD_NEXT, names[name]);
    return real[name];
}}

__asm__(
    ".text\\n"
    "all:\\n"
    "push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %rax; sub $128, %rsp\\n"
    "movups %xmm0, (%rsp); movups %xmm1, 16(%rsp); movups %xmm2, 32(%rsp); movups %xmm3, 48(%rsp)\\n"
    "mov %r11, %rdi; mov 184(%rsp), %rsi; call next_of; mov %rax, %r11\\n"
    "movups (%rsp), %xmm0; movups 16(%rsp), %xmm1; movups 32(%rsp), %xmm2; movups 48(%rsp), %xmm3\\n"
    "add $128, %rsp; pop %rax; pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\\n"
    "jmp *%r11\\n"
{functions});
const char* const names[] = {{{names}}};
"""


def interposer():
    source = SCRATCH / "interposer.c"
    library = source.with_suffix(".so")
    if library.exists():
        return library
    functions = "\n".join(f'    ".globl {name}; .type {name}, @function; {name}: mov ${i}, %r11; jmp all\\n"'
                          for i, name in enumerate(REPLACED))
    names = ", ".join(f'"{name}"' for name in REPLACED)
    source.write_text(INTERPOSER.format(count=len(REPLACED), functions=functions, names=names))
    done = subprocess.run(["gcc", "-O1", "-fno-builtin", "-shared", "-fPIC", source, "-o", library, "-ldl"],
                          capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    return library


def beside_others(run):
    """The libraries that a program preloads do not see rove's calls."""
    run({"LD_PRELOAD": str(interposer())})


def data(env):
    link = memif_link()
    link.env = env
    verified(link, "--sizes", "1,4097", "--events")


def devices(env):
    process = Process(["ibv_devinfo", "-v"], memif_pair()[0], SERVER_CORE, env=env).succeed(20)
    check("rove0" in process.out() and "rove is watched" in process.err(), process.story())


once("libc/symbols", refers_to_nothing_else, quick=True)
once("libc/interposed/devices", beside_others, devices, quick=True)
once("libc/interposed/data", beside_others, data, quick=True)
once("libc/interposed/rdma_cm", beside_others, lambda env: rping(env=env))
