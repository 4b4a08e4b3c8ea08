// SPDX-License-Identifier: Apache-2.0
// Collectives of gloo over its ibverbs transport: gloo_ranks DEVICE GID_INDEX FOLDER RANK RANKS. Every value is
// checked.
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void check(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "%s is wrong\n", what);
    std::exit(1);
}

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    const int rank = std::atoi(argv[4]), ranks = std::atoi(argv[5]);
    gloo::transport::ibverbs::attr attr{};
    attr.name = argv[1];
    attr.port = 1;
    attr.index = std::atoi(argv[2]);
    auto device = gloo::transport::ibverbs::CreateDevice(attr);
    gloo::rendezvous::FileStore store(argv[3]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    // An algorithm must not be destroyed before its last notification is complete, which gloo does not report: they
    // live as long as the process.
    for (const int count : {1, 1000, 300'000}) {
        auto& values = *new std::vector<int>(static_cast<size_t>(count));
        auto& allreduce = *new gloo::AllreduceRingChunked<int>(context, {values.data()}, count);
        auto& broadcast = *new gloo::BroadcastOneToAll<int>(context, {values.data()}, count);
        auto& barrier = *new gloo::BarrierAllToAll(context);
        for (int round = 0; round < 5; ++round) {
            for (int i = 0; i < count; ++i) values[static_cast<size_t>(i)] = rank + i % 1000 + round;
            allreduce.run();
            for (int i = 0; i < count; ++i)
                check(values[static_cast<size_t>(i)] == ranks * (ranks - 1) / 2 + ranks * (i % 1000 + round),
                      "allreduce");
            barrier.run();
            for (int i = 0; i < count; ++i) values[static_cast<size_t>(i)] = rank == 0 ? i ^ round : -1;
            barrier.run();
            broadcast.run();
            for (int i = 0; i < count; ++i) check(values[static_cast<size_t>(i)] == (i ^ round), "broadcast");
            barrier.run();
        }
    }
    // The last notifications of a rank may still be in flight.
    std::vector<std::string> ends;
    for (int i = 0; i < ranks; ++i) ends.push_back("end-" + std::to_string(i));
    store.set(ends[static_cast<size_t>(rank)], {'e'});
    store.wait(ends);
    std::printf("rank %d of %d: right\n", rank, ranks);
    std::fflush(stdout);
    std::_Exit(0);
}
