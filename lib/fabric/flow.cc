// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow.h"

#include <algorithm>
#include <cmath>

#include "rove/verbs.h"

namespace rove::fabric {

Flow::Flow(Network& network, Host& from, Host& to, const FlowConfig& config)
    : network_(network),
      from_(from),
      config_(config),
      from_qp_(from.create_qp(config.qp, *this)),
      to_qp_(to.create_qp(config.qp, *this)),
      random_(config.bits_per_s != 0 ? network.world().new_stream() : Random(0, 0)) {
    from.connect(from_qp_, config.qp, to, to_qp_);
    to.connect(to_qp_, config.qp, from, from_qp_);
}

void Flow::start() {
    start_ = network_.now();
    if (config_.bits_per_s == 0) arrived_ = UINT64_MAX;
    arrive();
    post();
}

// Schedules the arrival of the next message.
void Flow::arrive() {
    if (config_.bits_per_s == 0 || ended()) return;
    const double mean_s = config_.message_bytes * 8 / config_.bits_per_s;
    const double gap_s = -std::log1p(-random_.uniform()) * mean_s;
    network_.at(network_.now() + static_cast<Time>(gap_s * static_cast<double>(kSecond)), [this] {
        ++arrived_;
        post();
        arrive();
    });
}

void Flow::post() {
    const transport::Region& memory = network_.scratch();
    Request write;
    write.local = {memory.iova, config_.message_bytes, memory.key};
    write.remote_addr = memory.iova;
    write.rkey = memory.key;
    // The counter changes before the post, since a request may complete within the call.
    const uint64_t end = std::min(config_.messages, arrived_);
    while (posted_ < end && posted_ - completed_ < config_.in_flight && status_ == IBV_WC_SUCCESS) {
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
    if (ended()) return;  // flushed requests after a failure
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
