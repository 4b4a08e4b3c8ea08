// SPDX-License-Identifier: Apache-2.0
// Connects and disconnects RC QPs at a steady rate, each with its own CQ and MR, moves one verified message on each,
// and shows that memory stays flat. Prints {"connections", "seconds", "rss_warm", "rss_end"}, bytes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr size_t kBytes = 8192;

struct Options {
    std::string host;
    uint16_t port = 18515;
    int gid_index = 1;
    double rate = 64, seconds = 60;
};

struct Side {
    peer::QpAddress address;
    uint64_t va;
    uint32_t rkey;
    bool more;  // set by the initiator: another one follows
};

// Runs one life of a connection. The initiator writes, the target verifies.
bool connection(const peer::Device& device, peer::Control& control, bool initiator, uint32_t number, bool more) {
    std::vector<uint8_t> memory(kBytes);
    ibv_mr* mr = ibv_reg_mr(device.pd, memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
    if (mr == nullptr || cq == nullptr) fail("connection %u: out of objects", number);
    peer::QpOptions options;
    ibv_qp* qp = peer::create_qp(device, cq, options);
    const uint32_t psn = number * 7919 & 0xFFFFFF;
    const Side mine{{qp->qp_num, psn, device.gid}, reinterpret_cast<uint64_t>(memory.data()), mr->rkey, more};
    const Side theirs = control.exchange(mine);
    peer::to_init(qp, options);
    peer::to_rtr(qp, device, options, theirs.address);
    peer::to_rts(qp, options, psn);
    control.barrier();
    if (initiator) {
        peer::fill(memory.data(), kBytes, number);
        ibv_sge sge{mine.va, kBytes, mr->lkey};
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.rdma = {.remote_addr = theirs.va, .rkey = theirs.rkey};
        if (ibv_post_send(qp, &wr, &bad) != 0) fail("ibv_post_send");
        ibv_wc wc;
        while (ibv_poll_cq(cq, 1, &wc) == 0) {
        }
        if (wc.status != IBV_WC_SUCCESS) fail("connection %u: %s", number, ibv_wc_status_str(wc.status));
    }
    control.barrier();
    if (!initiator && peer::first_difference(memory.data(), kBytes, number) != kBytes)
        fail("connection %u: wrong data", number);
    if (ibv_destroy_qp(qp) != 0 || ibv_destroy_cq(cq) != 0 || ibv_dereg_mr(mr) != 0)
        fail("connection %u: destroy", number);
    return initiator ? more : theirs.more;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Connection churn over verbs"};
    app.add_option("host", options.host, "the listening side; none: listen");
    app.add_option("--port", options.port, "TCP port of the control channel");
    app.add_option("--gid-index", options.gid_index);
    app.add_option("--rate", options.rate, "connections per second");
    app.add_option("--seconds", options.seconds);
    CLI11_PARSE(app, argc, argv);

    peer::Device device("", options.gid_index);
    peer::Control control;
    const bool initiator = !options.host.empty();
    if (initiator)
        control.connect_to(options.host, options.port, 30);
    else
        control.accept_peer(options.port);

    const auto total = static_cast<uint32_t>(options.rate * options.seconds);
    // Tables and the heap reach their size after some hundred connections.
    const uint32_t warm = std::max(1U, total / 2);
    size_t rss_warm = 0;
    const double start = peer::now_s();
    uint32_t number = 0;
    for (bool more = true; more; ++number) {
        if (initiator)
            for (double wait; (wait = start + number / options.rate - peer::now_s()) > 0;)
                usleep(static_cast<useconds_t>(wait * 1e6) + 1);
        more = connection(device, control, initiator, number, number + 1 < total);
        if (number + 1 == warm) rss_warm = peer::resident_bytes();
    }
    std::printf("{\"connections\": %u, \"seconds\": %.2f, \"rss_warm\": %zu, \"rss_end\": %zu}\n", number,
                peer::now_s() - start, rss_warm, peer::resident_bytes());
    return 0;
}
