// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow.h"

#include "rove/verbs.h"

namespace rove::fabric {

Flow::Flow(Network& network, Host& from, Host& to, const FlowConfig& config)
    : network_(network),
      from_(from),
      config_(config),
      from_qp_(from.create_qp(config.qp, *this)),
      to_qp_(to.create_qp(config.qp, *this)) {
    from.connect(from_qp_, config.qp, to, to_qp_);
    to.connect(to_qp_, config.qp, from, from_qp_);
}

void Flow::start() {
    start_ = network_.now();
    post();
}

void Flow::post() {
    const transport::Region& memory = network_.scratch();
    Request write;
    write.local = {memory.iova, config_.message_bytes, memory.key};
    write.remote_addr = memory.iova;
    write.rkey = memory.key;
    // Counted before it is posted: it may complete within the call.
    while (posted_ < config_.messages && posted_ - completed_ < config_.in_flight && status_ == IBV_WC_SUCCESS) {
        const auto synchronised = [&] {
            return static_cast<uint64_t>(config_.synchronise * static_cast<double>(posted_));
        };
        const uint64_t before = synchronised();
        ++posted_;
        write.flags = IBV_SEND_SIGNALED | (synchronised() != before ? ROVE_SEND_SYNC : 0);
        posted_at_.push_back(network_.now());
        from_.post(from_qp_, write);
    }
}

void Flow::complete(const ibv_wc& wc) {
    if (ended()) return;  // the flushed ones after a failure
    if (wc.status == IBV_WC_SUCCESS) {
        ++completed_;
        const Time took = network_.now() - posted_at_.front();
        posted_at_.pop_front();
        if (on_message) on_message(took);
        post();
    } else {
        status_ = wc.status;
    }
    if (completed_ < config_.messages && status_ == IBV_WC_SUCCESS) return;
    end_ = network_.now();
    if (on_end) on_end(*this);
}

}  // namespace rove::fabric
