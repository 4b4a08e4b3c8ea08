// SPDX-License-Identifier: Apache-2.0
// A process that ends in the midst of work: main() returns, or a signal's handler calls exit(), while threads write
// over RC QPs, poll and register memory; one QP is destroyed by the very last handler of exit(), after all libraries.
// The other side serves several such processes and verifies their data.
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr int kLeft = 7;  // the leaving side's exit status
constexpr uint32_t kWriters = 2, kDepth = 16;
constexpr size_t kBytes = 16 * 1024, kSliceBytes = kBytes / kWriters;
constexpr auto kWorkTime = std::chrono::milliseconds(50);

struct Side {
    std::array<peer::QpAddress, kWriters> addresses;
    uint64_t va;
    uint32_t rkey;
};

// One end of the shared objects.
struct Connection {
    const peer::Device& device;
    std::vector<uint8_t> memory = std::vector<uint8_t>(kBytes);
    ibv_mr* mr;
    ibv_cq* cq;
    std::array<ibv_qp*, kWriters> qps;
    Side theirs;

    Connection(const peer::Device& on, peer::Control& control) : device(on) {
        mr = ibv_reg_mr(device.pd, memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        cq = ibv_create_cq(device.context, kWriters * kDepth, nullptr, nullptr, 0);
        if (mr == nullptr || cq == nullptr) fail("out of objects");
        Side mine{{}, reinterpret_cast<uint64_t>(memory.data()), mr->rkey};
        const peer::QpOptions options{.depth = kDepth};
        for (uint32_t i = 0; i < kWriters; ++i) {
            qps[i] = peer::create_qp(device, cq, options);
            mine.addresses[i] = {qps[i]->qp_num, i, device.gid};
        }
        theirs = control.exchange(mine);
        for (uint32_t i = 0; i < kWriters; ++i) {
            peer::to_init(qps[i], options);
            peer::to_rtr(qps[i], device, options, theirs.addresses[i]);
            peer::to_rts(qps[i], options, i);
        }
        control.barrier();
    }
};

std::atomic<uint32_t> written = 0;  // bit i: writer i has written its slice

void write_for_ever(Connection& connection, uint32_t i) {
    ibv_sge sge{reinterpret_cast<uint64_t>(&connection.memory[i * kSliceBytes]), kSliceBytes, connection.mr->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = i;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {.remote_addr = connection.theirs.va + i * kSliceBytes, .rkey = connection.theirs.rkey};
    for (ibv_wc wc;;) {
        ibv_post_send(connection.qps[i], &wr, &bad);  // ENOMEM while the queue is full
        if (ibv_poll_cq(connection.cq, 1, &wc) != 1) continue;
        if (wc.status != IBV_WC_SUCCESS) fail("a write: %s", ibv_wc_status_str(wc.status));
        written.fetch_or(1U << wc.wr_id);
    }
}

void control_for_ever(const peer::Device& device) {
    std::vector<uint8_t> memory(kBytes);
    for (;;) {
        ibv_mr* mr = ibv_reg_mr(device.pd, memory.data(), memory.size(), 0);
        if (mr == nullptr || ibv_dereg_mr(mr) != 0) fail("a control call");
        usleep(100);
    }
}

ibv_qp* kept = nullptr;  // until the last handler

void destroy_last(int, void*) {
    if (kept == nullptr) return;
    ibv_cq* cq = kept->send_cq;
    if (ibv_destroy_qp(kept) != 0 || ibv_destroy_cq(cq) != 0) _exit(1);
    static constexpr char kDone[] = "destroyed after all\n";
    if (write(STDOUT_FILENO, kDone, sizeof kDone - 1) < 0) _exit(1);
}

// Handlers run in reverse. The C library adds the handlers of libraries once they are loaded: this one is older.
void before_libraries(int, char**, char**) {
    on_exit(destroy_last, nullptr);
}
__attribute__((section(".preinit_array"), used)) void (*const first_of_all)(int, char**, char**) = before_libraries;

int leave(peer::Control& control, bool by_signal) {
    // Never destroyed: threads are still inside.
    const auto& device = *new peer::Device("", 1);
    auto& connection = *new Connection(device, control);
    peer::fill(connection.memory.data(), kBytes, 1);
    // Only without a signal handler that exits: its thread may be inside a worker, which then admits no control call.
    if (!by_signal) kept = peer::create_qp(device, ibv_create_cq(device.context, 1, nullptr, nullptr, 0), {});
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kWriters; ++i) threads.emplace_back(write_for_ever, std::ref(connection), i);
    threads.emplace_back(control_for_ever, std::ref(device));
    while (written != (1U << kWriters) - 1) usleep(1000);
    std::this_thread::sleep_for(kWorkTime);
    if (by_signal) {
        signal(SIGUSR1, [](int) { std::exit(kLeft); });
        pthread_kill(threads.front().native_handle(), SIGUSR1);
        threads.front().join();
    }
    for (std::thread& thread : threads) thread.detach();
    return kLeft;
}

int stay(peer::Control& control, uint16_t port, int guests) {
    const peer::Device device("", 1);
    for (int i = 0; i < guests; ++i) {
        control.accept_peer(port);
        Connection connection(device, control);
        char none;
        recv(control.fd(), &none, 1, 0);  // returns when the guest has ended
        for (ibv_qp* qp : connection.qps)
            if (ibv_destroy_qp(qp) != 0) fail("ibv_destroy_qp");
        if (ibv_destroy_cq(connection.cq) != 0 || ibv_dereg_mr(connection.mr) != 0) fail("destroy");
        if (peer::first_difference(connection.memory.data(), kBytes, 1) != kBytes) fail("guest %d: wrong data", i);
        control.close_peer();
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::string host;
    uint16_t port = 18515;
    int guests = 1;
    bool by_signal = false;
    CLI::App app{"A process that ends in the midst of work"};
    app.add_option("host", host, "the staying side; none: stay");
    app.add_option("--port", port, "TCP port of the control channel");
    app.add_option("--guests", guests, "how many leave, one after the other, before the staying side does");
    app.add_flag("--by-signal", by_signal, "exit() in a handler, on a thread that writes");
    CLI11_PARSE(app, argc, argv);

    peer::Control& control = *new peer::Control;  // open until the process has ended
    if (host.empty()) return stay(control, port, guests);
    control.connect_to(host, port, 30);
    return leave(control, by_signal);
}
