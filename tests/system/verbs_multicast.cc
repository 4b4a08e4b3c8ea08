// SPDX-License-Identifier: Apache-2.0
// UD QPs of one process that are members of a group: each gets every message, whole. The side without HOST has the
// members; the other sends. With --before, the first member has been in other groups, all of which it has left. With
// --leave, the sender destroys the address handle and the QP after each message, and asks for no completion. Sizes in
// bytes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr uint32_t kMembers = 4, kMessages = 64, kBytes = 1000, kGrhBytes = 40;
constexpr uint32_t kGroupQpn = 0xFFFFFF;  // IBTA 9.2.2
constexpr double kPatience = 20;          // seconds
constexpr size_t kSlot = kGrhBytes + kBytes;

ibv_gid group(uint32_t number = 0) {
    ibv_gid gid{};
    // Writes it as an IPv4-mapped address.
    const uint8_t ipv4[] = {0xFF, 0xFF, 239, static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number), 3};
    std::memcpy(gid.raw + 10, ipv4, sizeof(ipv4));
    return gid;
}

ibv_qp* create(const peer::Device& device, ibv_cq* cq, const peer::QpOptions& options) {
    ibv_qp* qp = peer::create_qp(device, cq, options);
    peer::to_init(qp, options);
    peer::to_rtr(qp, device, options, {});
    peer::to_rts(qp, options, 0);
    return qp;
}

ibv_wc next_completion(ibv_cq* cq) {
    const double deadline = peer::now_s() + kPatience;
    ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
        if (peer::now_s() > deadline) fail("no completion");
    if (found < 0 || wc.status != IBV_WC_SUCCESS)
        fail("completion: %s", found < 0 ? "none" : ibv_wc_status_str(wc.status));
    return wc;
}

// Attaches `qp` to one group after the other and detaches it from each at once.
void visit_groups(ibv_qp* qp, uint32_t count) {
    for (uint32_t i = 1; i <= count; ++i) {
        const ibv_gid gid = group(i);
        if (const int error = ibv_attach_mcast(qp, &gid, 0); error != 0)
            fail("ibv_attach_mcast of group %u: %s", i, strerror(error));
        if (ibv_detach_mcast(qp, &gid, 0) != 0) fail("ibv_detach_mcast");
    }
}

// Attaches `qp` to more and more groups until that is refused, and detaches it from all.
void fill_groups(ibv_qp* qp) {
    constexpr uint32_t kMost = 5000;
    uint32_t attached = 0;
    int error = 0;
    while (attached < kMost && error == 0) {
        const ibv_gid gid = group(attached + 1);
        error = ibv_attach_mcast(qp, &gid, 0);
        attached += error == 0;
    }
    if (error == 0) fail("%u groups, and none was refused", attached);
    std::printf("{\"groups\": %u, \"error\": %d}\n", attached, error);
    for (uint32_t i = 1; i <= attached; ++i) {
        const ibv_gid gid = group(i);
        if (ibv_detach_mcast(qp, &gid, 0) != 0) fail("ibv_detach_mcast of group %u", i);
    }
}

void receive(const peer::Device& device, const std::vector<ibv_qp*>& members, ibv_cq* cq, ibv_mr* mr, uint8_t* memory,
             peer::Control& control) {
    const ibv_gid gid = group();
    for (uint32_t member = 0; member < kMembers; ++member) {
        if (ibv_attach_mcast(members[member], &gid, 0) != 0) fail("ibv_attach_mcast");
        for (uint32_t i = 0; i < kMessages; ++i) {
            const uint64_t slot = member * kMessages + i;
            ibv_sge sge{reinterpret_cast<uint64_t>(memory + slot * kSlot), kSlot, mr->lkey};
            ibv_recv_wr wr{.wr_id = slot, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad;
            if (ibv_post_recv(members[member], &wr, &bad) != 0) fail("ibv_post_recv");
        }
    }
    control.exchange(device.gid);
    for (uint32_t left = kMembers * kMessages; left > 0; --left) {
        const ibv_wc wc = next_completion(cq);
        const uint64_t message = wc.wr_id % kMessages;  // a member's receives are filled in turn
        const uint8_t* data = memory + wc.wr_id * kSlot + kGrhBytes;
        if (wc.byte_len != kSlot || peer::first_difference(data, kBytes, message) != kBytes)
            fail("message %d of member %d is damaged", static_cast<int>(message),
                 static_cast<int>(wc.wr_id / kMessages));
    }
    control.barrier();
    for (ibv_qp* member : members)
        if (ibv_detach_mcast(member, &gid, 0) != 0) fail("ibv_detach_mcast");
}

void send(const peer::Device& device, ibv_qp* qp, ibv_cq* cq, ibv_mr* mr, uint8_t* memory, peer::Control& control) {
    // A group's address is not resolved, so it does not show that the port has its peer; the peer's own address does.
    ibv_destroy_ah(peer::create_ah(device, {}, {0, 0, control.exchange(device.gid)}));
    ibv_ah* ah = peer::create_ah(device, {}, {kGroupQpn, 0, group()});
    for (uint32_t i = 0; i < kMessages; ++i) {
        peer::fill(memory, kBytes, i);
        ibv_sge sge{reinterpret_cast<uint64_t>(memory), kBytes, mr->lkey};
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.ud = {.ah = ah, .remote_qpn = kGroupQpn, .remote_qkey = peer::kQkey};
        if (ibv_post_send(qp, &wr, &bad) != 0) fail("ibv_post_send");
        next_completion(cq);
    }
    control.barrier();
    ibv_destroy_ah(ah);
}

// Sends each message so that only the request itself remains.
void send_and_leave(const peer::Device& device, ibv_cq* cq, ibv_mr* mr, uint8_t* memory, peer::Control& control) {
    ibv_destroy_ah(peer::create_ah(device, {}, {0, 0, control.exchange(device.gid)}));
    peer::QpOptions options;
    options.type = IBV_QPT_UD;
    for (uint32_t i = 0; i < kMessages; ++i) {
        ibv_qp* const qp = create(device, cq, options);
        ibv_ah* const ah = peer::create_ah(device, {}, {kGroupQpn, 0, group()});
        peer::fill(memory, kBytes, i);
        ibv_sge sge{reinterpret_cast<uint64_t>(memory), kBytes, mr->lkey};
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.ud = {.ah = ah, .remote_qpn = kGroupQpn, .remote_qkey = peer::kQkey};
        if (ibv_post_send(qp, &wr, &bad) != 0) fail("ibv_post_send");
        ibv_destroy_ah(ah);
        ibv_destroy_qp(qp);
    }
    control.barrier();
}

}  // namespace

int main(int argc, char** argv) {
    std::string host;
    uint16_t port = 18515;
    CLI::App app{"A multicast group, verified"};
    app.add_option("host", host, "the side that listens; none: listen");
    uint32_t before = 0;
    bool fill = false;
    app.add_option("--before", before, "how many other groups the first member was in before");
    bool leave = false;
    app.add_flag("--leave", leave, "the sender asks for no completion, and destroys what it has sent by at once");
    app.add_flag("--fill", fill, "before that, it was in as many at once as it could");
    app.add_option("--port", port, "TCP port of the control channel");
    CLI11_PARSE(app, argc, argv);

    peer::Device device("", 1);
    std::vector<uint8_t> memory(kMembers * kMessages * kSlot);
    ibv_mr* mr = ibv_reg_mr(device.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_cq* cq = ibv_create_cq(device.context, static_cast<int>(kMembers * kMessages), nullptr, nullptr, 0);
    if (mr == nullptr || cq == nullptr) fail("no memory region or CQ");
    peer::QpOptions options;
    options.type = IBV_QPT_UD;
    options.depth = kMessages;
    std::vector<ibv_qp*> qps(host.empty() ? kMembers : 1);
    for (ibv_qp*& qp : qps) qp = create(device, cq, options);

    peer::Control control;
    if (host.empty()) {
        if (fill) fill_groups(qps.front());
        visit_groups(qps.front(), before);
        control.accept_peer(port);
        receive(device, qps, cq, mr, memory.data(), control);
    } else {
        control.connect_to(host, port, kPatience);
        if (leave)
            send_and_leave(device, cq, mr, memory.data(), control);
        else
            send(device, qps.front(), cq, mr, memory.data(), control);
    }
    for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    ibv_dereg_mr(mr);
}
