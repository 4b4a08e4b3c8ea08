// SPDX-License-Identifier: Apache-2.0
// All verbs are thread-safe (`man ibv_create_qp` and libibverbs' README): many threads use one object, and objects of
// their own.
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "verbs.h"

using namespace conformance;

namespace {

// Runs `body(i)` in `count` threads. The case fails with the first failure.
void in_threads(int count, const std::function<void(int)>& body) {
    std::mutex mutex;
    std::string failed;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            try {
                body(i);
            } catch (const std::exception& error) {
                std::lock_guard guard(mutex);
                if (failed.empty()) failed = "thread " + std::to_string(i) + ": " + error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT(failed.empty(), "%s", failed.c_str());
}

// A connection in which each object except the PD belongs to one thread.
struct Own {
    Owned<ibv_cq> cq = make_cq(), peer_cq = make_cq();
    Buffer local, remote;
    Owned<ibv_qp> a, b;

    explicit Own(ibv_pd* pd)
        : local(pd, 8192), remote(pd, 8192), a(make_qp(pd, cq, cq)), b(make_qp(pd, peer_cq, peer_cq)) {
        connect(a, b, {});
    }
    void round(ibv_wr_opcode opcode, uint32_t seed, double patience = 10) {
        fill(opcode == IBV_WR_RDMA_READ ? remote.at() : local.at(), 2000, seed);
        post(a, {.opcode = opcode, .sges = {local.sge(0, 2000)}, .to = remote.address(), .rkey = remote.rkey()});
        succeeded(cq, patience);
        EXPECT(matches(opcode == IBV_WR_RDMA_READ ? local.at() : remote.at(), 2000, seed));
    }
};

}  // namespace

CASE(threads, each_with_its_own_connection) {
    Owned<ibv_pd> pd = make_pd();
    in_threads(4, [&](int thread) {
        Own own(pd);
        for (uint32_t i = 0; i < 200; ++i)
            own.round(i % 2 != 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, static_cast<uint32_t>(thread) * 1000 + i);
    });
}

// With more threads than cores, threads wait for each other only as long as the scheduler requires.
CASE(threads, many_more_than_cores) {
    Owned<ibv_pd> pd = make_pd();
    const double begun = now();
    in_threads(64, [&](int thread) {
        Own own(pd);
        for (uint32_t i = 0; i < 10; ++i) own.round(IBV_WR_RDMA_READ, static_cast<uint32_t>(thread) * 1000 + i, 15);
    });
    EXPECT(now() - begun < 15, "%.1f s for 640 READs", now() - begun);
}

CASE(threads, one_send_queue) {
    Ends ends({.send_wr = 512});
    Owned<ibv_cq> cq = make_cq(1024);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, cq, {.send_wr = 512}),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    constexpr uint64_t kThreads = 4, kEach = 100;
    std::memset(ends.local.at(), 0x11, 8);
    in_threads(kThreads, [&](int thread) {
        for (uint64_t i = 0; i < kEach; ++i) {
            const uint64_t id = static_cast<uint64_t>(thread) * kEach + i;
            post(a, {.opcode = IBV_WR_RDMA_WRITE,
                     .sges = {ends.local.sge(0, 8)},
                     .to = ends.remote.address(id * 8),
                     .rkey = ends.remote.rkey(),
                     .id = id});
        }
    });
    std::vector<bool> seen(kThreads * kEach);
    uint64_t last[kThreads] = {};
    for (uint64_t i = 0; i < kThreads * kEach; ++i) {
        const ibv_wc wc = succeeded(cq);
        EXPECT(wc.wr_id < seen.size() && !seen[wc.wr_id]);
        seen[wc.wr_id] = true;
        EXPECT(wc.wr_id % kEach == last[wc.wr_id / kEach]++, "the order of one thread's requests");
    }
    EXPECT(all_bytes(ends.remote.at(), kThreads * kEach * 8, 0x11));
}

CASE(threads, one_completion_queue_polled_by_several) {
    Ends ends;
    constexpr uint64_t kRequests = 2000;
    std::vector<std::atomic<int>> seen(kRequests);
    std::atomic<uint64_t> posted = 0, done = 0;
    in_threads(4, [&](int thread) {
        const double end = now() + 15;
        while (done < kRequests) {
            EXPECT(now() < end, "%lu of %lu", done.load(), kRequests);
            if (thread == 0 && posted < kRequests && posted - done < 50) {
                const uint64_t id = posted++;
                post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                              .sges = {ends.local.sge(0, 8)},
                              .to = ends.remote.address(),
                              .rkey = ends.remote.rkey(),
                              .id = id});
            }
            ibv_wc wc[4];
            const int got = ibv_poll_cq(ends.send_cq, 4, wc);
            EXPECT(got >= 0);
            for (int i = 0; i < got; ++i) {
                EXPECT(wc[i].status == IBV_WC_SUCCESS && ++seen[wc[i].wr_id] == 1);
                ++done;
            }
        }
    });
    for (auto& times : seen) EXPECT(times == 1);
}

CASE(threads, that_make_and_destroy_objects) {
    Owned<ibv_pd> pd = make_pd();
    in_threads(8, [&](int thread) {
        for (uint32_t i = 0; i < 8; ++i) {
            Own own(pd);
            own.round(IBV_WR_RDMA_WRITE, static_cast<uint32_t>(thread) * 100 + i);
            own.round(IBV_WR_RDMA_READ, static_cast<uint32_t>(thread) * 100 + i + 50);
        }
    });
}

CASE(threads, that_register_beside_traffic) {
    Owned<ibv_pd> pd = make_pd();
    std::atomic<bool> stop = false;
    in_threads(3, [&](int thread) {
        if (thread == 0) {
            Own own(pd);
            for (uint32_t i = 0; i < 300; ++i) own.round(IBV_WR_RDMA_WRITE, i);
            stop = true;
            return;
        }
        Memory memory(65536);
        for (const double end = now() + 15; !stop && now() < end;) {
            Owned<ibv_mr> mr = make_mr(pd, memory.at(), 65536);
            EXPECT(mr->length == 65536);
        }
    });
}

// Several threads fill one receive queue.
CASE(threads, one_receive_queue) {
    Ends ends({.recv_wr = 256});
    in_threads(4, [&](int thread) {
        for (uint64_t i = 0; i < 50; ++i)
            post_recv(ends.b, {ends.remote.sge(static_cast<size_t>(thread) * 10000, 100)},
                      static_cast<uint64_t>(thread) * 50 + i);
    });
    std::vector<bool> seen(200);
    for (int i = 0; i < 200; ++i) {
        post(ends.a, {.sges = {ends.local.sge(0, 10)}});
        succeeded(ends.send_cq);
        const ibv_wc wc = succeeded(ends.peer_recv_cq);
        EXPECT(wc.wr_id < 200 && !seen[wc.wr_id]);
        seen[wc.wr_id] = true;
    }
}
