// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of mp mode: a pair whose packets can be made to overtake each other.
#pragma once

#include <optional>

#include "rove/verbs.h"
#include "transport/pair.h"

namespace rove::test {

using wire::MpAck;

struct Multipath : Pair {
    static Config make_config() {
        Config config;
        config.batch_acks = false;
        config.paths.min_rto_ns = 10 * kMillisecond;
        config.paths.infer_losses = false;
        return config;
    }
    explicit Multipath(const Config& config = make_config()) : Multipath(config, config) {}
    Multipath(const Config& config_a, const Config& config_b) : Pair(config_a, config_b) {
        connect(QpOptions{.multipath = true});
    }

    // Holds back the `nth` packet that a sends, until release(); its retransmissions (MP-10) are lost.
    void delay(size_t nth) {
        net.filter = [this, nth, seen = size_t{0}, held = std::optional<uint32_t>()](const Observed& p) mutable {
            if (p.from != a.index() || p.op() == Op::kAck) return Verdict::kPass;
            if (held == p.headers.bth.psn) return Verdict::kDrop;
            if (seen++ != nth) return Verdict::kPass;
            held = p.headers.bth.psn;
            return Verdict::kHold;
        };
    }
    void run_briefly() { net.run_for(100 * kMicrosecond); }
    std::vector<MpAck> acks(const Host& from) const {
        std::vector<MpAck> all;
        for (const Observed& p : net.trace) {
            if (p.from == from.index() && p.op() == Op::kAck) all.push_back(p.headers.mp_ack.entry.kind);
        }
        return all;
    }
    bool arrived(size_t at, size_t bytes, size_t from) { return mb.bytes(at, bytes) == ma.bytes(from, bytes); }
};

inline Config with(transport::Ordering ordering) {
    Config config = Multipath::make_config();
    config.ordering = ordering;
    return config;
}

struct Optimistic : Multipath {
    static Config make() {
        Config config = with(transport::Ordering::kOptimistic);
        config.paths.delta = 8;
        return config;
    }
    Optimistic() : Multipath(make()) {}
    Send sync(Send s) {
        s.flags |= ROVE_SEND_SYNC;
        return s;
    }
};

}  // namespace rove::test
