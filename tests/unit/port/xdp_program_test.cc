// SPDX-License-Identifier: Apache-2.0
// Tests our XDP program on frames, through the kernel's BPF_PROG_TEST_RUN.
#include "port/kernel_interface/xdp_program.h"

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/socket.h>

#include <vector>

#include "base/file_descriptor.h"
#include "wire/frame.h"

namespace rove::datapath {
namespace {

using Frame = std::vector<uint8_t>;

class XdpProgramTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string error;
        program_ = XdpProgram::load(1, &error);
        if (program_ == nullptr) GTEST_SKIP() << error;
        ASSERT_TRUE(program_->lead(0, socket_.get()));
        for (const bool ipv4 : {true, false}) program_->take(address(ipv4));
    }

    // Returns XDP_PASS or XDP_REDIRECT.
    uint32_t run(const Frame& frame) {
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(),
                    .data_size_in = static_cast<uint32_t>(frame.size()));
        EXPECT_EQ(bpf_prog_test_run_opts(program_->file(), &options), 0);
        return options.retval;
    }

    static wire::Gid address(bool ipv4) {
        return ipv4 ? wire::Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1} : wire::Gid{0xFD, 1};
    }
    static Frame roce(bool ipv4, std::optional<uint16_t> vlan = std::nullopt) {
        wire::Flow flow;
        flow.dst_mac = {2, 0, 0, 0, 0, 1};
        flow.src_mac = {2, 0, 0, 0, 0, 2};
        flow.src = flow.dst = address(ipv4);
        flow.vlan = vlan;
        const uint8_t payload[64] = {};
        const wire::Segment segment{payload, sizeof payload};
        wire::Headers headers;
        Frame frame(256);
        frame.resize(wire::build_frame(frame.data(), wire::make_template(flow), headers, {&segment, 1}));
        return frame;
    }
    static Frame changed(Frame frame, size_t at, uint8_t value) {
        frame[at] = value;
        return frame;
    }

    std::unique_ptr<XdpProgram> program_;
    const FileDescriptor socket_{socket(AF_XDP, SOCK_RAW, 0)};
};

constexpr size_t kIp = 14;

TEST_F(XdpProgramTest, RoceGoesToTheSocket) {
    EXPECT_EQ(run(roce(true)), uint32_t{XDP_REDIRECT});
    EXPECT_EQ(run(roce(false)), uint32_t{XDP_REDIRECT});
    EXPECT_EQ(run(roce(true, 0xE000)), uint32_t{XDP_REDIRECT}) << "a priority, but no VLAN";
    EXPECT_EQ(run(roce(false, 0)), uint32_t{XDP_REDIRECT});
    EXPECT_EQ(run(changed(roce(true), kIp + 6, 0x40)), uint32_t{XDP_REDIRECT}) << "don't fragment";
}

TEST_F(XdpProgramTest, OtherPacketsAreTheKernels) {
    EXPECT_EQ(run(changed(roce(true), 13, 6)), uint32_t{XDP_PASS}) << "ARP";
    EXPECT_EQ(run(changed(roce(true), kIp + 9, 6)), uint32_t{XDP_PASS}) << "TCP";
    EXPECT_EQ(run(changed(roce(false), kIp + 6, 58)), uint32_t{XDP_PASS}) << "ICMPv6";
    EXPECT_EQ(run(changed(roce(true), kIp + 20 + 3, 0)), uint32_t{XDP_PASS}) << "another port";
    EXPECT_EQ(run(changed(roce(false), kIp + 40 + 2, 0)), uint32_t{XDP_PASS}) << "another port";
}

TEST_F(XdpProgramTest, WhatWeDoNotParseIsTheKernels) {
    EXPECT_EQ(run(roce(true, 5)), uint32_t{XDP_PASS}) << "a VLAN";
    EXPECT_EQ(run(roce(false, 0x6FFF)), uint32_t{XDP_PASS}) << "a VLAN";
    EXPECT_EQ(run(changed(roce(true), kIp, 0x46)), uint32_t{XDP_PASS}) << "IPv4 options";
    EXPECT_EQ(run(changed(roce(true), kIp + 6, 0x20)), uint32_t{XDP_PASS}) << "the first fragment";
    EXPECT_EQ(run(changed(roce(true), kIp + 7, 1)), uint32_t{XDP_PASS}) << "a later fragment";
    for (const uint8_t extension : {0, 43, 44, 60})
        EXPECT_EQ(run(changed(roce(false), kIp + 6, extension)), uint32_t{XDP_PASS}) << int{extension};
}

TEST_F(XdpProgramTest, AFrameMayEndAnywhere) {
    for (const bool ipv4 : {true, false})
        for (const bool tagged : {true, false}) {
            const Frame whole = roce(ipv4, tagged ? std::optional<uint16_t>(0) : std::nullopt);
            const size_t headers = kIp + (tagged ? 4 : 0) + (ipv4 ? 20 : 40) + 8;
            for (size_t bytes = kIp; bytes < headers; ++bytes)  // the kernel's test run accepts no shorter frames
                EXPECT_EQ(run({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)}), uint32_t{XDP_PASS})
                    << bytes;
        }
}

TEST_F(XdpProgramTest, WhatIsForOthersIsTheKernels) {
    EXPECT_EQ(run(changed(roce(true), kIp + 19, 2)), uint32_t{XDP_PASS});
    EXPECT_EQ(run(changed(roce(false), kIp + 39, 2)), uint32_t{XDP_PASS});
    program_->leave(address(true));
    EXPECT_EQ(run(roce(true)), uint32_t{XDP_PASS});
}

TEST_F(XdpProgramTest, WithoutASocketItIsTheKernels) {
    std::string error;
    program_ = XdpProgram::load(1, &error);
    ASSERT_NE(program_, nullptr) << error;
    EXPECT_EQ(run(roce(true)), uint32_t{XDP_PASS});
}

}  // namespace
}  // namespace rove::datapath
