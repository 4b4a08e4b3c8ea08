// SPDX-License-Identifier: Apache-2.0
// A workload that checks the data that arrives.
#pragma once

#include <gtest/gtest.h>

#include "fabric/network.h"
#include "support/random.h"

namespace rove::fabric {

// Sends WRITEs of random lengths from random source offsets, each to its own range of the target, and compares the data
// in the end.
class Transfer final : Consumer {
  public:
    Transfer(Network& network, Host& from, Host& to, uint64_t seed, uint32_t bytes, bool multipath = false,
             uint32_t port = 0)
        : from_(from), random_(seed), source_(bytes), target_(bytes) {
        for (uint8_t& byte : source_) byte = static_cast<uint8_t>(random_.next());
        local_ = &network.register_memory(source_);
        remote_ = &network.register_memory(target_);
        const QpConfig config{.multipath = multipath,
                              .udp_src = static_cast<uint16_t>(0xC000 + random_.below(1000)),
                              .psn = 0xFFFFF0,
                              .port = port};
        qp_ = &from.create_qp(config, *this);
        peer_ = &to.create_qp(config, *this);
        from.connect(*qp_, config, to, *peer_);
        to.connect(*peer_, config, from, *qp_);
    }
    void start() {
        while (posted_ < source_.size() && in_flight_ < 16) {
            const auto length = static_cast<uint32_t>(
                std::min<uint64_t>(random_.pick<uint64_t>(1, 7, 1024, 4096, 20'000), source_.size() - posted_));
            Request write;
            write.local = {local_->iova + posted_, length, local_->key};
            write.remote_addr = remote_->iova + posted_;
            write.rkey = remote_->key;
            ASSERT_TRUE(from_.post(*qp_, write));
            posted_ += length;
            ++in_flight_;
        }
    }
    void complete(const ibv_wc& wc) override {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        --in_flight_;
        start();
    }
    bool done() const { return posted_ == source_.size() && in_flight_ == 0; }
    bool icrc_matches() const { return source_ == target_; }

  private:
    Host& from_;
    test::Random random_;
    std::vector<uint8_t> source_, target_;
    transport::Region *local_, *remote_;
    transport::QueuePair *qp_, *peer_;
    uint64_t posted_ = 0;
    uint32_t in_flight_ = 0;
};

}  // namespace rove::fabric
