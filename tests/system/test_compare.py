# SPDX-License-Identifier: Apache-2.0
"""bench/compare without hardware: published figures beside rove, both ends here and apart. What it and the scripts for NICs refuse."""
import json

from harness import BUILD, CLIENT_CORE, ROOT, SCRATCH, SERVER_CORE, Process, check, memif_pair, once, unique, write_toml

COMPARE = ROOT / "bench" / "compare"
QUICK = ("--device", "none0", "--rounds", "1", "--only", "32 B", "--build", BUILD)


def published():
    out = SCRATCH / f"{unique()}.json"
    configs = [write_toml(config) for config in memif_pair()]
    run = Process([COMPARE, *QUICK, "--rove", *configs, "--json", out]).succeed(40)
    check("no hardware device none0 here" in run.err(), run.story())
    (row,) = json.loads(out.read_text())
    check(row["failed"] is None and row["ours"] > 0 and row["ratio"] == row["ours"] / row["reference"] and row["source"], str(row))


def two_hosts():
    """The serving side and the other, as two processes of one host."""
    served, peer = (write_toml(config) for config in memif_pair())
    server = Process([COMPARE, *QUICK, "--serve", "--rove", served], core=SERVER_CORE)
    client = Process([COMPARE, *QUICK, "--peer", "127.0.0.1", "--rove", peer], core=CLIENT_CORE).succeed(40)
    server.succeed(10)
    check("SEND 32 B" in client.out(), client.story())


def refused():
    for wrong, what in ((("--only", "no such row"), "no row has"), (("--rove", "a.toml"), "wanted two"),
                        (("--rove", "a.toml", "b.toml"), "no file a.toml"), (("--peer", "h", "--rove", "a.toml", "b.toml"), "wanted one")):
        run = Process([COMPARE, "--device", "none0", *wrong])
        check(run.wait(10) == 2 and what in run.err(), run.story())
    prepare = [(["prepare-nic"], "usage"), (["prepare-nic", "ffff:ff:1f.7"], "no PCI device"),
               (["prepare-nic", "ffff:ff:1f.7", "much"], "hugepages: got"), (["prepare-af-xdp"], "usage"),
               (["prepare-af-xdp", "rove-none"], "no interface"), (["prepare-af-xdp", "lo", "0"], "queues: got")]
    for (script, *arguments), what in prepare:
        run = Process([ROOT / "scripts" / script, *arguments])
        check(run.wait(10) == 1 and what in run.err(), run.story())


once("compare/published", published)
once("compare/two-hosts", two_hosts)
once("compare/refused", refused)
