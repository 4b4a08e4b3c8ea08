# SPDX-License-Identifier: Apache-2.0
"""One of two MPI ranks. They exchange eager and rendezvous messages, in order and crossing each other, and use
collectives and one-sided access. Every byte is checked."""
import struct

from mpi4py import MPI

SIZES = (1, 64, 1000, 8192, 100_000, 3_000_000)
world = MPI.COMM_WORLD
rank, peer = world.rank, 1 - world.rank


def content(sender, size, number):
    return bytes((sender * 101 + number * 7 + i) & 255 for i in range(251)) * (size // 251 + 1)


def right(data, sender, number):
    return bytes(data) == content(sender, len(data), number)[:len(data)]


def ping_pong():
    for size in SIZES:
        for number in range(200 if size < 10_000 else 10):
            mine, theirs = bytearray(content(rank, size, number)[:size]), bytearray(size)
            if rank == 0:
                world.Send(mine, peer)
            world.Recv(theirs, peer)
            if rank == 1:
                world.Send(mine, peer)
            assert right(theirs, peer, number), (size, number)


def crossing():
    for size in SIZES:
        sent = [bytearray(content(rank, size, number)[:size]) for number in range(16)]
        received = [bytearray(size) for _ in sent]
        requests = [world.Irecv(buffer, peer, tag) for tag, buffer in enumerate(received)]
        requests += [world.Isend(buffer, peer, tag) for tag, buffer in reversed(list(enumerate(sent)))]
        MPI.Request.Waitall(requests)
        assert all(right(buffer, peer, number) for number, buffer in enumerate(received)), size


def collectives():
    for number in range(300):
        assert world.allreduce(rank + number) == 2 * number + 1
    everybodys = world.allgather(content(rank, 50_000, 0))
    assert everybodys == [content(0, 50_000, 0), content(1, 50_000, 0)]


def one_sided():
    size, counts = 500_000, 1000
    window = MPI.Win.Allocate(size + 8, comm=world)
    memory = window.tomemory()
    memory[:] = bytes(size + 8)
    window.Fence()
    mine = bytearray(content(rank, size, 1)[:size])   # The peer may read it until the fence.
    window.Put(mine, peer)
    window.Fence()
    assert right(memory[:size], peer, 1)
    fetched = bytearray(size)
    window.Get(fetched, peer)
    window.Fence()
    assert right(fetched, rank, 1)
    one, before = bytearray(struct.pack("q", 1)), bytearray(8)
    window.Lock_all()
    for _ in range(counts):  # Both ranks count at rank 0.
        window.Fetch_and_op([one, MPI.INT64_T], [before, MPI.INT64_T], 0, size, MPI.SUM)
        window.Flush(0)
    window.Unlock_all()
    world.Barrier()
    if rank == 0:
        assert struct.unpack("q", bytes(memory[size:]))[0] == 2 * counts
    window.Free()


for part in (ping_pong, crossing, collectives, one_sided):
    part()
    if rank == 0:
        print("right:", part.__name__, flush=True)
