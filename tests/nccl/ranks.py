#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs NCCL over rove on a machine with one NVIDIA GPU and PyTorch, and compares every element. It is not part of
tests/run.

    export NCCL_SOCKET_IFNAME=lo NCCL_GIN_TYPE=0
    rove-run -- tests/nccl/ranks.py 0 & rove-run -- tests/nccl/ranks.py 1

Both ranks share the GPU and report two different hosts, so that NCCL uses its InfiniBand transport; NCCL_DEBUG=INFO
shows whether it did. The GPU runs one process at a time, so the speed says little about the transport.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

RANK = int(sys.argv[1])
PORT = sys.argv[2] if len(sys.argv) > 2 else "29500"


def check(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
    if not torch.equal(got, want):
        sys.exit(f"rank {RANK}: {what} of {got.numel()} elements: wrong data")


def collectives(n: int) -> None:
    """Runs each collective, and one SEND, with n (even) elements of 4 bytes."""
    base = torch.arange(n, device="cuda", dtype=torch.int32)
    mine = slice(RANK * (n // 2), (RANK + 1) * (n // 2))

    x = base * (RANK + 1)
    dist.all_reduce(x)
    check("all_reduce", x, base * 3)

    x = torch.empty(2 * n, device="cuda", dtype=torch.int32)
    dist.all_gather_into_tensor(x, base + RANK)
    check("all_gather", x, torch.cat([base, base + 1]))

    x = base.clone() if RANK == 0 else torch.zeros_like(base)
    dist.broadcast(x, 0)
    check("broadcast", x, base)

    x = torch.empty(n // 2, device="cuda", dtype=torch.int32)
    dist.reduce_scatter_tensor(x, base * (RANK + 1))
    check("reduce_scatter", x, (base * 3)[mine])

    x = torch.empty_like(base)
    dist.all_to_all_single(x, base + RANK * 7)
    check("all_to_all", x, torch.cat([base[mine], base[mine] + 7]))

    if RANK == 0:
        dist.send(base ^ 5, 1)
    else:
        x = torch.empty_like(base)
        dist.recv(x, 0)
        check("recv", x, base ^ 5)


os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT, NCCL_HOSTID=f"host{RANK}")
torch.cuda.set_device(0)
dist.init_process_group("nccl", rank=RANK, world_size=2)
for elements in (2, 1000, 1 << 18, 1 << 22, 1 << 24):
    collectives(elements)
x = torch.ones(1 << 24, device="cuda")
torch.cuda.synchronize()
dist.barrier()
begin = time.monotonic()
for _ in range(10):
    dist.all_reduce(x)
torch.cuda.synchronize()
print(f"rank {RANK}: all right, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))};"
      f" all_reduce of 64 MiB in {(time.monotonic() - begin) * 100:.1f} ms")
dist.destroy_process_group()
