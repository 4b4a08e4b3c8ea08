# SPDX-License-Identifier: Apache-2.0
"""Tests bench/compare without hardware (published figures next to rove's, with both ends here and as two hosts) and
with a rove device in place of hardware. Also tests wrong arguments of it and of the scripts for NICs."""
import json
import os
import shutil

from harness import (BUILD, CLIENT_CORE, ROOT, ROVE_RUN, SCRATCH, SERVER_CORE, Process, Skip, check, covering,
                     memif_pair, once, unique, write_toml)

COMPARE = ROOT / "bench" / "compare"
ONE_ROW = ("--rounds", "1", "--only", "32 B", "--build", BUILD)
QUICK = ("--device", "none0", *ONE_ROW)
NIC = "mlx5_0"
# perftest on this "NIC" is perftest on another rove device, with the words that were meant for the NIC.
STAND_IN = """#!/bin/bash
echo "{end} $*" >> {log}
words=("$@")
for i in "${{!words[@]}}"; do
    [[ "${{words[i]}}" != {nic} ]] || exec {rove_run} --config {config} -- \\
        {tool} "${{words[@]:0:i}}" rove0 "${{words[@]:i+1}}"
done
exec {tool} "$@"
"""


class Nic:
    """Starts processes of a "host" that has a device NIC, in mount namespaces of their own."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Skip("needs root")
        self.sys = SCRATCH / unique()
        (self.sys / "infiniband" / NIC).mkdir(parents=True)
        self.log = SCRATCH / f"{unique()}.log"
        self.configs = [write_toml(config) for config in memif_pair()]

    def compare(self, *options, end=None, core=CLIENT_CORE):
        """Runs bench/compare. `end` is 0 on the serving host and 1 on the other. It is None if both ends are here; then
        the last word of the client's command identifies it."""
        tools = SCRATCH / unique()
        tools.mkdir()
        config = f'$([[ "${{@: -1}}" == 127.0.0.1 ]] && echo {self.configs[1]} || echo {self.configs[0]})'
        if end is not None:
            config = self.configs[end]
        tool = tools / "ib_send_lat"
        tool.write_text(
            STAND_IN.format(end=end, log=self.log, nic=NIC, rove_run=ROVE_RUN, config=config,
                            tool=shutil.which(tool.name)))
        tool.chmod(0o755)
        command = [*covering(self.sys, "/sys/class"), COMPARE, "--device", NIC, "--gid-index", "1"]
        return Process([*command, *ONE_ROW, *options], core=core, env={"PATH": f"{tools}:{os.environ['PATH']}"})

    def commands(self):
        """Returns the end and the words of each run of perftest."""
        return [line.split() for line in self.log.read_text().splitlines()]


def published():
    out = SCRATCH / f"{unique()}.json"
    configs = [write_toml(config) for config in memif_pair()]
    run = Process([COMPARE, *QUICK, "--rove", *configs, "--json", out]).succeed(40)
    check("no hardware device none0 here" in run.err(), run.story())
    (row,) = json.loads(out.read_text())
    check(
        row["failed"] is None and row["ours"] > 0 and row["ratio"] == row["ours"] / row["reference"] and row["source"],
        str(row))


def two_hosts():
    """Runs the serving host and the other as two processes of one host."""
    served, peer = (write_toml(config) for config in memif_pair())
    server = Process([COMPARE, *QUICK, "--serve", "--rove", served], core=SERVER_CORE)
    client = Process([COMPARE, *QUICK, "--peer", "127.0.0.1", "--rove", peer], core=CLIENT_CORE).succeed(40)
    server.succeed(20)
    check("SEND 32 B" in client.out(), client.story())


def compared(run, out):
    (row,) = json.loads(out.read_text())
    check(row["failed"] is None and row["source"] is None and "no hardware" not in run.err(), run.story())
    check(
        row["ours"] > 0 and row["reference"] > 0 and row["ratio"] == row["ours"] / row["reference"] and
        row["samples"] == [1, 1], str(row))


def hardware():
    """Runs the same commands on the NIC and on rove, with both ends here. A NIC that fails makes a row that failed."""
    nic, out = Nic(), SCRATCH / f"{unique()}.json"
    configs = [write_toml(config) for config in memif_pair()]
    run = nic.compare("--rove", *configs, "--json", out).succeed(40)
    compared(run, out)
    theirs, ours = ([command for command in nic.commands() if device in command] for device in (NIC, "rove0"))
    check(len(theirs) == len(ours) == 2, str(nic.commands()))
    for on_nic, on_rove in zip(theirs, ours):
        device, port = on_nic.index("-d"), on_nic.index("-p")
        check(on_nic[device + 1:device + 4] == [NIC, "-x", "1"] and "-x" not in on_rove, f"{on_nic} {on_rove}")
        check(on_nic[:device] == on_rove[:device] and on_nic[port + 2:] == on_rove[on_rove.index("-p") + 2:],
              f"{on_nic} {on_rove}")
    nic.configs = [SCRATCH / "nonexistent.toml"] * 2
    run = nic.compare("--rove", *configs, "--json", out)
    (row,) = json.loads(out.read_text()) if (status := run.wait(40)) == 1 else (None,)
    check(status == 1 and row["failed"].startswith(NIC) and row["ours"] > 0, run.story())


def hardware_of_two_hosts():
    nic, out = Nic(), SCRATCH / f"{unique()}.json"
    served, peer = (write_toml(config) for config in memif_pair())
    server = nic.compare("--serve", "--rove", served, end=0, core=SERVER_CORE)
    client = nic.compare("--peer", "127.0.0.1", "--rove", peer, "--json", out, end=1).succeed(40)
    server.succeed(20)
    compared(client, out)
    check({(command[0], device) for command in nic.commands() for device in (NIC, "rove0") if device in command} ==
          {(end, device) for end in "01" for device in (NIC, "rove0")}, str(nic.commands()))


def refused():
    for wrong, what in ((("--only", "no such row"), "no row has"), (("--rove", "a.toml"), "wanted two"),
                        (("--rove", "a.toml", "b.toml"), "no file a.toml"), (("--peer", "h", "--rove", "a.toml",
                                                                              "b.toml"), "wanted one")):
        run = Process([COMPARE, "--device", "none0", *wrong])
        check(run.wait(20) == 2 and what in run.err(), run.story())
    prepare = [(["prepare-nic"], "usage"), (["prepare-nic", "ffff:ff:1f.7"], "no PCI device"),
               (["prepare-nic", "ffff:ff:1f.7", "much"], "hugepages: got"), (["prepare-af-xdp"], "usage"),
               (["prepare-af-xdp", "rove-none"], "no interface"), (["prepare-af-xdp", "lo", "0"], "queues: got")]
    for (script, *arguments), what in prepare:
        run = Process([ROOT / "scripts" / script, *arguments])
        check(run.wait(20) == 1 and what in run.err(), run.story())


once("compare/published", published, lane="shipped")
once("compare/two-hosts", two_hosts, lane="shipped")
once("compare/hardware", hardware, lane="shipped")
once("compare/hardware-of-two-hosts", hardware_of_two_hosts, lane="shipped")
once("compare/refused", refused, lane="shipped")
