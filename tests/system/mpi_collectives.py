# SPDX-License-Identifier: Apache-2.0
"""Runs mpi4py's collectives over any number of ranks, with Python objects and with buffers. Every value is checked."""
import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size


def content(sender, size):
    return bytes((sender * 101 + i) & 255 for i in range(251)) * (size // 251 + 1)


def objects():
    for root in range(ranks):
        sent = {"root": root, "data": content(root, 30_000)} if rank == root else None
        assert world.bcast(sent, root)["data"] == content(root, 30_000)
        gathered = world.gather((rank, "x" * rank), root)
        assert gathered == ([(i, "x" * i) for i in range(ranks)] if rank == root else None)
        assert world.scatter([i * i for i in range(ranks)] if rank == root else None, root) == rank * rank
    assert world.allgather(rank * 3) == [i * 3 for i in range(ranks)]
    assert world.alltoall([(rank, peer) for peer in range(ranks)]) == [(peer, rank) for peer in range(ranks)]
    assert world.scan(rank + 1) == (rank + 1) * (rank + 2) // 2


def buffers():
    for count in (1, 1000, 200_000):
        mine, total = array.array("q", (rank + i for i in range(count))), array.array("q", bytes(8 * count))
        world.Allreduce(mine, total, MPI.SUM)
        assert all(total[i] == ranks * i + ranks * (ranks - 1) // 2 for i in range(count)), count
        everybodys = bytearray(ranks * count)
        world.Allgather(bytearray(content(rank, count)[:count]), everybodys)
        assert all(everybodys[i * count:(i + 1) * count] == content(i, count)[:count] for i in range(ranks)), count
    for _ in range(200):
        world.Barrier()


for part in (objects, buffers):
    part()
    if rank == 0:
        print("right:", part.__name__, flush=True)
