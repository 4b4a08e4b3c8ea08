// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender without a network: every packet that may be sent is sent, and the test chooses the acknowledgements.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "transport/paths/paths.h"

namespace rove::transport {

inline constexpr uint64_t kRtt = 12'800;  // ns; a multiple of the record's 64
inline constexpr uint32_t kOne = 1u << 16;
using wire::MpAck;

struct PathsTest : testing::Test {
    explicit PathsTest(PathsConfig config = make_config(), const DcqcnConfig& dcqcn = {}) : paths(config, 7, dcqcn) {
        paths.start(stream, Psn(0xFFFFF0));
    }
    static PathsConfig make_config() {
        PathsConfig config;
        config.control = PathsConfig::Control::kMpRdma;
        config.initial_window = 8;
        config.max_window = 128;
        config.probe_permille = 0;
        config.explore = false;
        return config;
    }

    // Sends all packets that may be sent now.
    std::vector<Departure> send(uint32_t more = 1000) {
        std::vector<Departure> left;
        Departure d;
        while (paths.next(stream, more != 0, now, d)) {
            paths.sent(stream, d, now);
            more -= !d.again;
            left.push_back(d);
        }
        return left;
    }
    // Delivers an ACK of a receiver that expects `aack`.
    void ack(const Departure& d, Psn aack, bool ece = false, MpAck kind = MpAck::kAck) {
        EXPECT_TRUE(paths.acknowledge(
            stream, {.kind = kind, .ece = ece, .retx = d.again, .response = false, .psn = d.psn.value(), .vp = d.vp},
            now));
        paths.advance(stream, aack, now);
    }
    void ack(const Departure& d) { ack(d, d.psn + 1); }
    void sack(const Departure& d, bool ece = false) { ack(d, stream.una, ece, MpAck::kSack); }
    void nack(const Departure& d) { ack(d, stream.una, false, MpAck::kNack); }
    // BX-10
    void nack_trimmed(const Departure& d) {
        EXPECT_TRUE(paths.acknowledge(stream,
                                      {.kind = MpAck::kNack,
                                       .ece = false,
                                       .retx = d.again,
                                       .response = false,
                                       .psn = d.psn.value(),
                                       .vp = d.vp,
                                       .trimmed = true},
                                      now));
    }

    SendStream stream;
    Paths paths;
    uint64_t now = 1'000'000;
};

}  // namespace rove::transport
