// SPDX-License-Identifier: Apache-2.0
// An MPI program for any number of ranks and any MPI: each rank sends to each, and collectives over all. Every byte is
// checked.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ranks, rank;

static void check(int right, const char* what) {
    if (right) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int sender, int receiver, int at) {
    return (unsigned char)(sender * 101 + receiver * 37 + at * 7 + at / 251);
}

static void each_to_each(int size) {
    unsigned char *out = malloc((size_t)ranks * (size_t)size), *in = calloc((size_t)ranks, (size_t)size);
    MPI_Request* requests = malloc(2 * (size_t)ranks * sizeof(MPI_Request));
    for (int peer = 0; peer < ranks; ++peer)
        for (int at = 0; at < size; ++at) out[peer * size + at] = byte_of(rank, peer, at);
    for (int peer = 0; peer < ranks; ++peer) {
        MPI_Irecv(in + peer * size, size, MPI_BYTE, peer, size, MPI_COMM_WORLD, &requests[2 * peer]);
        MPI_Isend(out + peer * size, size, MPI_BYTE, peer, size, MPI_COMM_WORLD, &requests[2 * peer + 1]);
    }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < ranks; ++peer)
        for (int at = 0; at < size; ++at) check(in[peer * size + at] == byte_of(peer, rank, at), "a byte of a message");
    MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < ranks; ++peer)
        for (int at = 0; at < size; ++at) check(in[peer * size + at] == byte_of(peer, rank, at), "a byte of alltoall");
    free(requests);
    free(in);
    free(out);
}

static void collectives(void) {
    enum { kCount = 20000 };
    static int mine[kCount], sum[kCount], root[kCount];
    for (int at = 0; at < kCount; ++at) mine[at] = rank * at + 1;
    MPI_Allreduce(mine, sum, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < kCount; ++at) check(sum[at] == ranks * (ranks - 1) / 2 * at + ranks, "allreduce");
    for (int from = 0; from < ranks; ++from) {
        for (int at = 0; at < kCount; ++at) root[at] = rank == from ? from * 1000003 + at : 0;
        MPI_Bcast(root, kCount, MPI_INT, from, MPI_COMM_WORLD);
        for (int at = 0; at < kCount; ++at) check(root[at] == from * 1000003 + at, "bcast");
    }
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int sizes[] = {1, 1000, 8192, 100000, 1000000};
    for (int i = 0; i < 5; ++i) each_to_each(sizes[i]);
    collectives();
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d: right\n", rank, ranks);
    MPI_Finalize();
    return 0;
}
