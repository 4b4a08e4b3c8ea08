// SPDX-License-Identifier: Apache-2.0
// Many threads, each with an RC QP that is connected to itself and one operation in flight. A thread READs over and
// over, or with --churn creates its objects, moves verified data and destroys them each time. Prints {"threads",
// "operations", "seconds", "cpu_seconds", "worst_ms"}; "cpu_seconds" is the process's CPU time for them, "worst_ms" the
// longest time of one operation.
#include <pthread.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr size_t kBytes = 4096;

struct Options {
    uint32_t threads = 64;
    double seconds = 2;
    int gid_index = 1;
    bool churn = false;
};

// One thread's objects.
class Self {
  public:
    Self(const peer::Device& device, uint32_t psn) : source_(kBytes), target_(kBytes) {
        const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
        peer::QpOptions options;
        options.timeout = 18;  // a second: the driving thread may be off its core
        cq_ = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
        from_ = ibv_reg_mr(device.pd, source_.data(), kBytes, access);
        to_ = ibv_reg_mr(device.pd, target_.data(), kBytes, access);
        if (cq_ == nullptr || from_ == nullptr || to_ == nullptr) fail("out of objects");
        qp_ = peer::create_qp(device, cq_, options);
        peer::to_init(qp_, options);
        peer::to_rtr(qp_, device, options, {qp_->qp_num, psn, device.gid});
        peer::to_rts(qp_, options, psn);
    }
    ~Self() {
        if (ibv_destroy_qp(qp_) != 0 || ibv_destroy_cq(cq_) != 0 || ibv_dereg_mr(from_) != 0 || ibv_dereg_mr(to_) != 0)
            fail("destroy");
    }
    Self(const Self&) = delete;
    Self& operator=(const Self&) = delete;

    void read(uint32_t bytes) {
        ibv_sge sge{reinterpret_cast<uint64_t>(target_.data()), bytes, to_->lkey};
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_READ;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.rdma = {.remote_addr = reinterpret_cast<uint64_t>(source_.data()), .rkey = from_->rkey};
        if (ibv_post_send(qp_, &wr, &bad) != 0) fail("ibv_post_send");
        ibv_wc wc;
        while (ibv_poll_cq(cq_, 1, &wc) == 0) {
        }
        if (wc.status != IBV_WC_SUCCESS) fail("%s", ibv_wc_status_str(wc.status));
    }
    void read_verified(uint64_t seed) {
        peer::fill(source_.data(), kBytes, seed);
        read(kBytes);
        if (peer::first_difference(target_.data(), kBytes, seed) != kBytes) fail("wrong data");
    }

  private:
    std::vector<uint8_t> source_, target_;
    ibv_cq* cq_ = nullptr;
    ibv_mr *from_ = nullptr, *to_ = nullptr;
    ibv_qp* qp_ = nullptr;
};

struct Result {
    uint64_t operations = 0;
    double worst_s = 0;
};

// Without `self`, creates objects each time.
Result work(const peer::Device& device, Self* self, uint32_t thread, double until_s) {
    Result result;
    for (double begun = peer::now_s(); begun < until_s;) {
        if (self == nullptr)
            Self(device, thread).read_verified(thread + (result.operations << 32));
        else
            self->read(8);
        const double now = peer::now_s();
        result.worst_s = std::max(result.worst_s, now - begun);
        ++result.operations;
        begun = now;
    }
    return result;
}

double cpu_s() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Many threads over verbs"};
    app.add_option("--threads", options.threads);
    app.add_option("--seconds", options.seconds);
    app.add_option("--gid-index", options.gid_index);
    app.add_flag("--churn", options.churn, "make and destroy everything for each operation");
    CLI11_PARSE(app, argc, argv);
    const peer::Device device("", options.gid_index);
    std::vector<Result> results(options.threads);
    std::vector<std::thread> threads;
    // All begin together: starting some hundred threads takes a while, and so does creating their objects.
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, options.threads + 1);
    std::atomic<double> until_s{0};
    for (uint32_t thread = 0; thread < options.threads; ++thread) {
        threads.emplace_back([&, thread] {
            std::unique_ptr<Self> self;
            if (!options.churn) self = std::make_unique<Self>(device, thread);
            pthread_barrier_wait(&barrier);
            pthread_barrier_wait(&barrier);
            results[thread] = work(device, self.get(), thread, until_s);
        });
    }
    pthread_barrier_wait(&barrier);
    const double begun = peer::now_s(), cpu_begun = cpu_s();
    until_s = begun + options.seconds;
    pthread_barrier_wait(&barrier);
    for (std::thread& thread : threads) thread.join();
    const double seconds = peer::now_s() - begun, cpu_seconds = cpu_s() - cpu_begun;
    uint64_t operations = 0;
    double worst_s = 0;
    for (const Result& result : results) {
        if (result.operations == 0) fail("a thread has done nothing");
        operations += result.operations;
        worst_s = std::max(worst_s, result.worst_s);
    }
    std::printf(
        "{\"threads\": %u, \"operations\": %lu, \"seconds\": %.3f, \"cpu_seconds\": %.3f, \"worst_ms\": %.1f}\n",
        options.threads, operations, seconds, cpu_seconds, worst_s * 1e3);
}
