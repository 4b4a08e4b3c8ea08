#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dpdk_archives.py LIBDIR [SOURCE...]: prints the linker arguments that put DPDK into a library or program of rove.

Prints one argument per line. Archives are linked whole, because drivers and buses register themselves by constructors
to which no symbol refers. DPDK's symbols are hidden, so that a program may have a DPDK of its own. Drivers that move no
packets, such as crypto, are left out. So are drivers whose libraries few processes under rove-run need: net_pcap and
net_softnic need libpcap, which needs a library of systemd, and common_qat needs OpenSSL. The drivers of NXP's systems
on a chip are left out because they use 6 KB of each thread's static storage.

If a SOURCE defines __wrap_NAME() for a function NAME of the C library, all calls of NAME go to that function (libc.h).
"""
import pathlib
import re
import sys

DRIVERS = ("bus", "common", "mempool", "net")
LEFT_OUT = ("common_qat", "net_pcap", "net_softnic",
            "bus_dpaa", "bus_fslmc", "common_dpaax", "mempool_dpaa", "mempool_dpaa2", "net_dpaa", "net_dpaa2",
            "net_enetc", "net_pfe")
# The libraries that the drivers and rove refer to. Before DPDK 23.11, log was part of EAL; before 24.03, argparse was.
LIBRARIES = ("argparse", "cmdline", "cryptodev", "dmadev", "eal", "ethdev", "eventdev", "gso", "hash", "ip_frag",
             "kvargs", "log", "mbuf", "mempool", "meter", "net", "pci", "pcapng", "rawdev", "rcu", "ring", "sched",
             "security", "stack", "telemetry", "timer", "vhost")
OTHERS = ("mlx5", "mlx4", "mana", "ibverbs", "xdp", "bpf", "elf", "z", "bsd", "fdt", "numa", "jansson", "atomic", "m",
          "dl")
# Functions that lib/runtime/interrupts.cc, lib/runtime/eal.cc and lib/base/dpdk_files.cc replace.
WRAPPED = ("rte_intr_callback_register", "rte_intr_callback_unregister", "rte_intr_callback_unregister_sync",
           "rte_intr_callback_unregister_pending", "dlopen", "nanosleep", "setsockopt", "ioctl",
           "xsk_socket__fd")
# librove-tent.so shows its state through the telemetry of librove-verbs.so, which exports this (version_script.py).
EXPORTED = ("telemetry",)


def replaced(sources):
    """Returns the names of the C library's functions that the sources replace."""
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
    # Meson passes --as-needed, which drops those that are not needed.
    print(*[f"-l{name}" for name in present], sep="\n")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
