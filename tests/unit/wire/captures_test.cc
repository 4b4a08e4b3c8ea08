// SPDX-License-Identifier: Apache-2.0
// Tests captures of Soft-RoCE. Every packet of the golden captures parses, its ICRC is right, and building it again
// from the parsed fields gives the same bytes.
#include <gtest/gtest.h>

#include "support/pcap.h"
#include "wire/frame.h"

namespace rove::wire {
namespace {

struct Capture {
    const char* name;
    size_t packets;
};

class Captures : public testing::TestWithParam<Capture> {};

TEST_P(Captures, ParseAndRebuild) {
    const auto frames = test::read_pcap(std::string(ROVE_TEST_DATA) + "/" + GetParam().name + ".pcap");
    EXPECT_EQ(frames.size(), GetParam().packets);
    for (size_t i = 0; i < frames.size(); ++i) {
        SCOPED_TRACE(i);
        ParsedFrame parsed;
        ASSERT_EQ(parse_frame(frames[i], parsed), ParseError::kNone);
        const FlowTemplate flow = make_template(parsed.flow);
        ASSERT_EQ(frame_bytes(flow, parsed.headers.bth.opcode, parsed.payload_bytes), frames[i].size());
        test::Frame rebuilt(frames[i].size());
        const Segment payload[] = {{parsed.payload, parsed.payload_bytes}};
        ASSERT_EQ(build_frame(rebuilt.data(), flow, parsed.headers, payload), rebuilt.size());
        EXPECT_EQ(rebuilt, frames[i]);
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, Captures,
                         testing::Values(Capture{"cm_rping_ipv4", 29}, Capture{"rc_ipv4_mtu1024", 85},
                                         Capture{"rc_ipv4_mtu4096", 85}, Capture{"rc_ipv6_mtu1024", 85},
                                         Capture{"rc_loss", 104}, Capture{"rc_nak", 17}, Capture{"rc_rnr", 46},
                                         Capture{"uc_ipv4_mtu1024", 15}, Capture{"ud_ipv4", 10}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rove::wire
