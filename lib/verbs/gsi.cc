// SPDX-License-Identifier: Apache-2.0
// See gsi.h.
#include "verbs/gsi.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/datagram.h"
#include "verbs/verbs.h"

namespace rove::verbs {

std::unique_ptr<Gsi> Gsi::open(Device& device) {
    std::unique_ptr<Gsi> gsi(new Gsi(device));
    if (const int error = gsi->set_up(); error != 0) {
        gsi.reset();
        errno = error;
        return nullptr;
    }
    return gsi;
}

Gsi::~Gsi() {
    if (qp_ != nullptr) destroy_qp(qp_);
    for (ibv_cq* const cq : {send_cq_, cq_})
        if (cq != nullptr) destroy_cq(cq);
    if (mr_ != nullptr) dereg_mr(mr_);
    if (channel_ != nullptr) destroy_comp_channel(channel_);
    if (pd_ != nullptr) dealloc_pd(pd_);
    if (context_ != nullptr) close_device(context_);
}

int Gsi::set_up() {
    context_ = open_device(&device_);
    if (context_ == nullptr) return errno;
    pd_ = alloc_pd(context_);
    channel_ = create_comp_channel(context_);
    if (pd_ == nullptr || channel_ == nullptr) return errno;
    if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return errno;
    mr_ = reg_mr(pd_, buffers_.data(), buffers_.size(), reinterpret_cast<uintptr_t>(buffers_.data()),
                 IBV_ACCESS_LOCAL_WRITE);
    cq_ = create_cq(context_, kReceives, nullptr, channel_, 0);
    // No thread needs to wake up because a MAD was sent.
    send_cq_ = create_cq(context_, kSends, nullptr, nullptr, 0);
    if (mr_ == nullptr || cq_ == nullptr || send_cq_ == nullptr) return errno;
    ibv_qp_init_attr init{};
    init.send_cq = send_cq_;
    init.recv_cq = cq_;
    init.qp_type = IBV_QPT_UD;
    init.sq_sig_all = 1;
    init.cap = {.max_send_wr = kSends,
                .max_recv_wr = kReceives,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = kMadBytes};
    qp_ = create_gsi_qp(pd_, &init);
    if (qp_ == nullptr) return errno;
    for (uint32_t i = 0; i < kSends; ++i) {
        sends_[i].context = context_;
        sends_[i].pd = pd_;
        free_sends_.push_back(i);
    }
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    if (const int error = modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
        return error;
    for (uint32_t i = 0; i < kReceives; ++i)
        if (!post_receive(i)) return ENOMEM;
    attr.qp_state = IBV_QPS_RTR;
    if (const int error = modify_qp(qp_, &attr, IBV_QP_STATE)) return error;
    attr.qp_state = IBV_QPS_RTS;
    return modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

bool Gsi::post_receive(uint32_t index) {
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(buffers_.data() + index * kReceiveBytes),
                .length = kReceiveBytes,
                .lkey = mr_->lkey};
    ibv_recv_wr wr{.wr_id = index, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return post_recv(qp_, &wr, &bad) == 0;
}

void Gsi::arm() {
    ibv_cq* ready = nullptr;
    void* context = nullptr;
    while (get_cq_event(channel_, &ready, &context) == 0) ack_cq_events(ready, 1);
    req_notify_cq(cq_, 0);
}

std::optional<Gsi::Received> Gsi::receive() {
    if (taken_) post_receive(*taken_);
    taken_.reset();
    for (ibv_wc wc; poll_cq(cq_, 1, &wc) == 1;) {
        const auto index = static_cast<uint32_t>(wc.wr_id);
        uint8_t* const buffer = buffers_.data() + index * kReceiveBytes;
        ibv_ah_attr from;
        if (wc.status != IBV_WC_SUCCESS || wc.byte_len != transport::kGrhBytes + kMadBytes ||
            init_ah_from_wc(context_, 1, &wc, reinterpret_cast<ibv_grh*>(buffer), &from) != 0) {
            post_receive(index);
            continue;
        }
        taken_ = index;
        Received received{.back = {}, .src_qpn = wc.src_qp, .mad = {buffer + transport::kGrhBytes, kMadBytes}};
        received.back.src = device_.interface->gids()[from.grh.sgid_index];
        std::memcpy(received.back.dst.data(), from.grh.dgid.raw, received.back.dst.size());
        std::memcpy(received.back.dst_mac.data(), buffer + wc.byte_len, received.back.dst_mac.size());
        received.back.traffic_class = static_cast<uint8_t>(from.grh.traffic_class & ~3);
        received.back.flow_label = from.grh.flow_label;
        return received;
    }
    return std::nullopt;
}

bool Gsi::send(const wire::Flow& flow, uint32_t remote_qpn, std::span<const uint8_t, kMadBytes> mad) {
    // The QP enters no error state, so a failure concerns one datagram only.
    if (free_sends_.empty())
        for (ibv_wc wc; poll_cq(send_cq_, 1, &wc) == 1;) free_sends_.push_back(static_cast<uint32_t>(wc.wr_id));
    if (free_sends_.empty()) return false;
    Ah& ah = sends_[free_sends_.back()];
    wire::Flow way = flow;
    way.udp_src = datapath::RdmaInterface::udp_source_port(flow.flow_label, 0, 0);
    if (!device_.interface->find_path(way, ah.path)) return false;
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(mad.data()), .length = kMadBytes, .lkey = 0};
    ibv_send_wr wr{};
    wr.wr_id = free_sends_.back();
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.wr.ud = {.ah = &ah, .remote_qpn = remote_qpn, .remote_qkey = kQkey};
    ibv_send_wr* bad = nullptr;
    if (post_send(qp_, &wr, &bad) != 0) return false;
    free_sends_.pop_back();
    return true;
}

}  // namespace rove::verbs
