#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dpdk_archives.py LIBDIR [SOURCE...]: the linker's arguments that put DPDK into a library or program of ours, one a line.

Whole archives: drivers and buses register themselves by constructors, to which nobody refers. Its symbols stay inside,
so that a program may have a DPDK of its own. Left out is what moves no packets (crypto and its kind), and what would
bring libraries into every process under rove-run that few have a use for: net_pcap and net_softnic need libpcap, which
needs systemd's; common_qat needs OpenSSL. NXP's systems on a chip take 6 KB of each thread's static storage.

Calls of a NAME of the C library's for which a SOURCE defines __wrap_NAME() lead to that function (libc.h).
"""
import pathlib
import re
import sys

DRIVERS = ("bus", "common", "mempool", "net")
LEFT_OUT = ("common_qat", "net_pcap", "net_softnic",
            "bus_dpaa", "bus_fslmc", "common_dpaax", "mempool_dpaa", "mempool_dpaa2", "net_dpaa", "net_dpaa2",
            "net_enetc", "net_pfe")
# What those and rove refer to. Log and argparse were EAL's before DPDK 23.11 and 24.03.
LIBRARIES = ("argparse", "cmdline", "cryptodev", "dmadev", "eal", "ethdev", "eventdev", "gso", "hash", "ip_frag",
             "kvargs", "log", "mbuf", "mempool", "meter", "net", "pci", "pcapng", "rawdev", "rcu", "ring", "sched",
             "security", "stack", "telemetry", "timer", "vhost")
OTHERS = ("mlx5", "mlx4", "mana", "ibverbs", "xdp", "bpf", "elf", "z", "bsd", "fdt", "numa", "jansson", "atomic", "m",
          "dl")
# lib/runtime/interrupts.cc, eal.cc and dpdk_files.cc
WRAPPED = ("rte_intr_callback_register", "rte_intr_callback_unregister", "rte_intr_callback_unregister_sync",
           "rte_intr_callback_unregister_pending", "dlopen", "nanosleep", "setsockopt", "ioctl",
           "xsk_socket__fd")
# What librove-tent.so shows is told by the telemetry of librove-verbs.so, which exports these (version_script.py).
EXPORTED = ("telemetry",)


def replaced(sources):
    """The names of the C library for which the sources have a function that stands in its place."""
    return sorted({name for source in sources for name in re.findall(r"\b__wrap_(\w+)", source.read_text())})


def main(folder, *sources):
    names = [path.name[len("librte_"):-len(".a")] for kind in DRIVERS for path in folder.glob(f"librte_{kind}_*.a")]
    names = [name for name in names if name not in LEFT_OUT]
    names += [name for name in LIBRARIES if (folder / f"librte_{name}.a").exists()]
    archives = sorted(f"librte_{name}.a" for name in names)
    hidden = [archive for archive in archives if archive not in [f"librte_{name}.a" for name in EXPORTED]]
    present = [name for name in OTHERS if any(folder.glob(f"lib{name}.so")) or name in ("atomic", "m", "dl")]
    print("-Wl,--whole-archive", *[folder / archive for archive in archives], "-Wl,--no-whole-archive", sep="\n")
    print("-Wl,--exclude-libs," + ":".join(hidden))
    print(*[f"-Wl,--wrap={name}" for name in (*WRAPPED, *replaced(sources))], sep="\n")
    print(*[f"-l{name}" for name in present], sep="\n")   # those that are needed: meson says --as-needed


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
