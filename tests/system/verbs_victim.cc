// SPDX-License-Identifier: Apache-2.0
// The target of hostile packets: one RC and one UD QP with receives posted, and four blocks of memory with guards
// between them: one that the network may write, one that it may only read, one that is only local, one that is not
// registered at all. Prints one line of JSON with everything an attacker could know (QPN, PSN, keys, addresses), then
// revives QPs that fell into error until stdin closes, and verifies that nothing outside the writable block has
// changed.
#include <poll.h>
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

constexpr size_t kBlock = 64 * 1024, kGap = 4096;
enum Block { kWritable, kReadOnly, kLocal, kUnregistered, kReceive, kBlocks };
constexpr size_t offset_of(int block) {
    return kGap + static_cast<size_t>(block) * (kBlock + kGap);
}
constexpr size_t kTotal = offset_of(kBlocks);
constexpr uint32_t kReceives = 64, kReceiveBytes = kBlock / kReceives;
constexpr uint32_t kPeerQpn = 0x123456, kPsn = 0xFFFF00;

ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attributes;
    ibv_qp_init_attr init;
    if (ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init) != 0) fail("ibv_query_qp");
    return attributes.qp_state;
}

struct Victim {
    peer::Device device;
    std::vector<uint8_t> memory = std::vector<uint8_t>(kTotal);
    ibv_mr* mrs[kBlocks] = {};
    ibv_cq* cq;
    ibv_qp *rc, *ud;
    peer::QpOptions rc_options, ud_options;
    peer::QpAddress attacker;

    Victim(int gid_index, bool unreliable) : device("", gid_index) {
        peer::fill(memory.data(), kTotal, 1);
        const int access[] = {
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
            IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, 0, IBV_ACCESS_LOCAL_WRITE};
        for (int block = 0; block < kBlocks; ++block)
            if (block != kUnregistered) {
                mrs[block] = ibv_reg_mr(device.pd, memory.data() + offset_of(block), kBlock, access[block]);
                if (mrs[block] == nullptr) fail("ibv_reg_mr of block %d", block);
            }
        cq = ibv_create_cq(device.context, 4096, nullptr, nullptr, 0);
        if (cq == nullptr) fail("ibv_create_cq");
        rc_options.depth = ud_options.depth = kReceives;
        ud_options.type = IBV_QPT_UD;
        if (unreliable) rc_options.type = IBV_QPT_UC;
        rc = peer::create_qp(device, cq, rc_options);
        ud = peer::create_qp(device, cq, ud_options);
    }

    void post_receive(ibv_qp* qp, uint32_t slot) {
        ibv_sge sge{reinterpret_cast<uint64_t>(memory.data() + offset_of(kReceive) + slot * kReceiveBytes),
                    kReceiveBytes, mrs[kReceive]->lkey};
        ibv_recv_wr wr{.wr_id = slot, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad;
        ibv_post_recv(qp, &wr, &bad);
    }

    void revive(ibv_qp* qp, const peer::QpOptions& options) {
        do {
            ibv_qp_attr attributes{};
            attributes.qp_state = IBV_QPS_RESET;
            if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) fail("ibv_modify_qp to RESET");
            peer::to_init(qp, options);
            for (uint32_t slot = 0; slot < kReceives; ++slot) post_receive(qp, slot);
            peer::to_rtr(qp, device, options, attacker);
            const int error = peer::try_rts(qp, options, kPsn);
            if (error != 0 && state_of(qp) != IBV_QPS_ERR) fail("ibv_modify_qp to RTS: %s", std::strerror(error));
        } while (state_of(qp) == IBV_QPS_ERR);  // a packet ended it, possibly before it could send
    }

    // Completions free receives; they are posted again.
    unsigned reap() {
        ibv_wc wc[32];
        const int found = ibv_poll_cq(cq, 32, wc);
        for (int i = 0; i < found; ++i)
            if (wc[i].status == IBV_WC_SUCCESS)
                post_receive(wc[i].qp_num == rc->qp_num ? rc : ud, static_cast<uint32_t>(wc[i].wr_id));
        return found > 0 ? static_cast<unsigned>(found) : 0;
    }

    void verify() const {
        for (size_t at = 0; at < kTotal;) {
            size_t end = kTotal;
            bool open = false;
            for (const int block : {kWritable, kReceive}) {
                if (at >= offset_of(block) && at < offset_of(block) + kBlock) {
                    open = true;
                    end = offset_of(block) + kBlock;
                } else if (at < offset_of(block)) {
                    end = std::min(end, offset_of(block));
                }
            }
            // Offsets are multiples of 8, so the pattern can be compared piece by piece with a copy of the whole.
            if (!open && std::memcmp(memory.data() + at, expected.data() + at, end - at) != 0)
                fail("memory at offset %zu..%zu was written", at, end);
            at = end;
        }
    }
    std::vector<uint8_t> expected = [] {
        std::vector<uint8_t> all(kTotal);
        peer::fill(all.data(), kTotal, 1);
        return all;
    }();
};

}  // namespace

int main(int argc, char** argv) {
    int gid_index = 1;
    bool unreliable = false;
    std::string attacker;
    CLI::App app{"Target of hostile packets"};
    app.add_option("attacker", attacker, "IPv4-mapped GID of the attacker, 32 hex digits")->required();
    app.add_option("--gid-index", gid_index);
    app.add_flag("--unreliable", unreliable, "a UC QP in place of the RC one");
    CLI11_PARSE(app, argc, argv);

    Victim victim(gid_index, unreliable);
    victim.attacker = {kPeerQpn, kPsn, {}};
    for (int i = 0; i < 16; ++i)
        victim.attacker.gid.raw[i] =
            static_cast<uint8_t>(std::stoul(attacker.substr(2 * static_cast<size_t>(i), 2), nullptr, 16));
    std::string gid;
    for (const uint8_t byte : victim.device.gid.raw) {
        char text[3];
        std::snprintf(text, sizeof(text), "%02x", byte);
        gid += text;
    }
    std::printf(
        "{\"gid\": \"%s\", \"rc_qpn\": %u, \"ud_qpn\": %u, \"psn\": %u, \"qkey\": %u, \"peer_qpn\": %u, \"block\": "
        "%zu, \"keys\": [%u, %u, %u], "
        "\"vas\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]}\n",
        gid.c_str(), victim.rc->qp_num, victim.ud->qp_num, kPsn, peer::kQkey, kPeerQpn, kBlock,
        victim.mrs[kWritable]->rkey, victim.mrs[kReadOnly]->rkey, victim.mrs[kLocal]->rkey,
        reinterpret_cast<uint64_t>(victim.memory.data() + offset_of(kWritable)),
        reinterpret_cast<uint64_t>(victim.memory.data() + offset_of(kReadOnly)),
        reinterpret_cast<uint64_t>(victim.memory.data() + offset_of(kLocal)),
        reinterpret_cast<uint64_t>(victim.memory.data() + offset_of(kUnregistered)));
    std::fflush(stdout);
    // An attacker that speaks mp is present from now on, and will answer the question whether it does.
    victim.revive(victim.rc, victim.rc_options);
    victim.revive(victim.ud, victim.ud_options);
    std::printf("{\"connected\": true}\n");
    std::fflush(stdout);

    uint64_t completions = 0, revivals = 0;
    for (uint64_t turn = 1;; ++turn) {
        completions += victim.reap();
        if (turn % 64 != 0) continue;
        if (state_of(victim.rc) == IBV_QPS_ERR) {
            victim.revive(victim.rc, victim.rc_options);
            ++revivals;
        }
        if (state_of(victim.ud) == IBV_QPS_ERR) {
            victim.revive(victim.ud, victim.ud_options);
            ++revivals;
        }
        pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
        if (poll(&input, 1, 0) != 0) break;  // closed
    }
    victim.verify();
    // These are in the block that the network may write.
    uint64_t written = 0;
    for (size_t at = offset_of(kWritable); at < offset_of(kWritable) + kBlock; ++at)
        written += victim.memory[at] != victim.expected[at];
    std::printf("{\"completions\": %" PRIu64 ", \"revivals\": %" PRIu64 ", \"written\": %" PRIu64 "}\n", completions,
                revivals, written);
    return 0;
}
