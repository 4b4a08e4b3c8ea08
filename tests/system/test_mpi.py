# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's Open MPI over UCX over rove's devices, with two ranks that can only reach each other by RC."""
import pathlib

from harness import (CLIENT_CORE, LOCAL_RANKS, ROVE_RUN, SERVER_CORE, Process, check, memif_link, mpi_ranks, test,
                     write_toml)

RANK = pathlib.Path(__file__).with_name("mpi_peer.py")
ENVIRONMENT = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "rove0:1"}
OPTIONS = [
    "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
    "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any",
    *(word for name in ENVIRONMENT for word in ("-x", name))]


def mpi():
    ranks = [["taskset", "-c", core, ROVE_RUN, "--config", write_toml(config), "--", "/usr/bin/python3", RANK]
             for config, core in zip(memif_link().configs, (SERVER_CORE, CLIENT_CORE))]
    run = Process(["mpirun", *OPTIONS, *mpi_ranks(ranks)], env={**ENVIRONMENT, **LOCAL_RANKS}).succeed(50)
    check(run.out().count("right:") == 4, run.story())


test("mpi", mpi, quick=True)
