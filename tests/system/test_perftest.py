# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's unmodified perftest between two processes over memif. It moves data but does not verify it
(test_verified.py does)."""
import re

from harness import Failure, check, memif_link, once, program, run_pair, stop_all, test

BANDWIDTH = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw")
LATENCY = ("ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat")
# Without -F perftest asks cpufreq for the CPU's frequency.
COMMON = ("-F",)
HASTY = {"LD_PRELOAD": str(program("libhasty_clock.so"))}


def rows(output):
    """Returns the table with one row of numbers per message size. perftest's t_stdev is not a number where latencies
    vary by 46 ms."""
    table = []
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 4 and all(re.fullmatch(r"[0-9.]+|-?nan", word) for word in words):
            table.append([float(word) for word in words])
    return table


def perftest(link, tool, options, timeout=100, sizes=1, figures=False, tries=3):
    """Returns the table's rows. The numbers are accurate only with `figures`, which takes long."""
    try:
        return perftest_once(link, tool, options, timeout, sizes, figures)
    except Failure as failure:
        # perftest fails if it is interrupted between its reads of two clocks.
        if tries == 1 or "Correlation coefficient" not in str(failure):
            raise
    stop_all()
    return perftest(link, tool, options, timeout, sizes, figures, tries - 1)


def perftest_once(link, tool, options, timeout, sizes, figures):
    command = [tool, *COMMON, *options]
    link.env = {} if figures else HASTY
    # Packets that a memif loses before its server is there are retransmitted only by RC.
    _, client = run_pair(link, command, command, timeout=timeout, at_once=not figures and "-c" not in options,
                         measured=figures)
    table = rows(client.out())
    if len(table) < sizes:
        raise Failure(f"{len(table)} rows, not {sizes}\n{client.story()}")
    for row in table:
        # A bandwidth of few bytes may be rounded to 0, and so may the rate of few large messages.
        check(any(figure > 0 for figure in row[2:]), f"a row says 0\n{client.story()}")
    return table


def over_memif(tool, options, timeout=100, sizes=1, **changes):
    perftest(memif_link(**changes), tool, options.split(), timeout, sizes)


def iterations(tool, few):
    """Returns the option -n. Latency tests go back and forth, so they get fewer iterations."""
    return "" if few is None else f" -n {few if tool.endswith('_bw') else few // 4}"


def only_rc(*arguments, **options):
    test(*arguments, modes=("rc",), **options)


def all_tools(label, options, tools, few=1000, sizes=1, register=test, **changes):
    for tool in tools:
        register(f"perftest/{tool}/{label}", over_memif_with, tool, options + iterations(tool, few), sizes, changes,
             quick=label == "default")


def over_memif_with(tool, options, sizes, changes):
    over_memif(tool, options, sizes=sizes, **changes)


MOVERS = tuple(tool for tool in BANDWIDTH + LATENCY if "atomic" not in tool)    # An atomic always has 8 bytes.
EVENTS = tuple(tool for tool in BANDWIDTH + LATENCY if "write" not in tool)     # A WRITE has no completion to sleep on.
INLINE = ("ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat")

# All options of each tool in few runs, for links where one run for each would take long. -e is not combined with
# others, because perftest polls at most 16 completions after an event, and then waits for the next event even if there
# are more.
COMBINED = (("both-ways-16-qps-post-list", "ib_write_bw", "-b -q 16 -l 10"),
            ("both-ways-16-qps-post-list", "ib_read_bw", "-b -q 16 -l 10"),
            ("both-ways-16-qps-post-list", "ib_atomic_bw", "-b -q 16 -l 10"),
            ("both-ways-4-qps-post-list", "ib_send_bw", "-b -q 4 -l 10"), ("events", "ib_send_bw", "-e"),
            ("events", "ib_read_bw", "-e"), ("events", "ib_atomic_bw", "-e"), ("events", "ib_read_lat", "-e"),
            ("events", "ib_atomic_lat", "-e -A CMP_AND_SWAP"),
            ("events-inline-srq", "ib_send_lat", "-e -I 64 -s 64 --use-srq"),
            ("inline", "ib_write_lat", "-I 64 -s 64"), ("inline-srq", "ib_send_bw", "-I 64 -s 64 --use-srq -q 4"))

# These tests show the effect of each option on QPs in mp.
for label, tool, options in COMBINED:
    if label != "events":
        test(f"perftest/{tool}/{label}", over_memif_with, tool, options + iterations(tool, 1000), 1, {}, modes=("mp",))

all_tools("default", "", BANDWIDTH + LATENCY)
all_tools("all-sizes", "-a -n 20", MOVERS[:3], few=None, sizes=23)              # 2 B to 8 MiB
all_tools("all-sizes", "-a -n 5", MOVERS[3:], few=None, sizes=23)
for mtu in (256, 512, 1024, 2048, 4096):
    all_tools(f"mtu-{mtu}", f"-m {mtu}", MOVERS[:3], few=500)
all_tools("mtu-256", "-m 256 -s 20000", MOVERS[3:], few=200)
all_tools("mtu-256", "-m 256", ("ib_atomic_bw", "ib_atomic_lat"), few=200)
all_tools("both-ways", "-b", BANDWIDTH)
all_tools("16-qps", "-q 16", BANDWIDTH, register=only_rc)
all_tools("16-qps-both-ways", "-q 16 -b", BANDWIDTH, register=only_rc)
all_tools("events", "-e", EVENTS)
all_tools("inline", "-I 64 -s 64", INLINE, register=only_rc)
# -n must be a multiple of -l.
all_tools("post-list", "-l 16", BANDWIDTH, few=1600, register=only_rc)
all_tools("post-list-small", "-l 32 -s 8 -Q 32", ("ib_write_bw", "ib_send_bw", "ib_read_bw"), few=20000)
all_tools("receive-list", "--recv_post_list=16 -l 16", ("ib_send_bw",), few=1600, register=only_rc)
all_tools("srq", "--use-srq", ("ib_send_bw", "ib_send_lat"), register=only_rc)
all_tools("srq-16-qps", "--use-srq -q 16", ("ib_send_bw",), register=only_rc)
all_tools("uc", "-c UC", INLINE, register=once)
all_tools("uc-all-sizes", "-c UC -a -n 5", INLINE, few=None, sizes=23, register=once)
all_tools("uc-mtu-256", "-c UC -m 256 -s 20000", INLINE, few=200, register=once)
all_tools("uc-events", "-c UC -e", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("uc-inline", "-c UC -I 64 -s 64", INLINE, register=once)
all_tools("uc-16-qps-both-ways-post-list", "-c UC -q 16 -b -l 10", ("ib_write_bw", "ib_send_bw"), register=once)
all_tools("ud", "-c UD -s 1024", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("ud-all-sizes", "-c UD -a -n 50", ("ib_send_bw", "ib_send_lat"), few=None, sizes=11, register=once)
all_tools("ud-mtu-256", "-c UD -m 256 -s 256", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("ud-events", "-c UD -s 1024 -e", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("ud-inline", "-c UD -I 64 -s 64", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("ud-srq", "-c UD -s 1024 --use-srq", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("ud-16-qps", "-c UD -s 1024 -q 16", ("ib_send_bw",), register=once)
all_tools("ud-both-ways-post-list", "-c UD -s 1024 -b -l 10", ("ib_send_bw",), register=once)
all_tools("multicast", "-c UD -g -x 2 -s 1024", ("ib_send_bw", "ib_send_lat"), register=once)
all_tools("compare-and-swap", "-A CMP_AND_SWAP", ("ib_atomic_bw", "ib_atomic_lat"), register=only_rc)
all_tools("ipv6", "-x 2", BANDWIDTH + LATENCY)
all_tools("service-level", "-S 5", ("ib_write_bw", "ib_send_lat"), register=only_rc)
all_tools("one-outstanding", "-o 1", ("ib_read_bw", "ib_atomic_bw"), register=only_rc)
all_tools("dedicated", "", ("ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat"), few=100, progress="dedicated")

for tool in ("ib_write_bw", "ib_send_bw"):
    test(f"perftest/{tool}/duration", over_memif, tool, "-D 1")
