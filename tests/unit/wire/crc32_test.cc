// SPDX-License-Identifier: Apache-2.0
// Compares every CRC kernel that this machine can run with the definition of the CRC, bit by bit.
#include "wire/crc32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "reference.h"

namespace rove::wire {
namespace {

struct Named {
    const char* name;
    const Crc32Kernel* kernel;
};

class Kernels : public testing::TestWithParam<Named> {
  protected:
    void SetUp() override {
        // On a CPU that lacks its instructions, a kernel ends the process. rove itself selects a kernel at start that
        // the CPU supports. The portable kernel always runs. In CI, only the kernels with AVX-512 may be skipped.
        if (!supported(kernel_)) GTEST_SKIP() << "this machine lacks the instructions";
    }
    // Returns `bytes` random bytes. A sanitizer detects any read behind them.
    std::vector<uint8_t> random(size_t bytes) {
        std::vector<uint8_t> made(bytes);
        std::ranges::generate(made, [this] { return static_cast<uint8_t>(random_()); });
        return made;
    }
    // Checks the copy at an offset between guards, its CRC, and the CRC without a copy.
    void check(const std::vector<uint8_t>& data, size_t misalign, uint32_t crc) {
        constexpr uint8_t kGuard = 0xA5;
        const uint32_t expected = reference::crc32(crc, data);
        EXPECT_EQ(kernel_.crc32(crc, data.data(), data.size()), expected);
        std::vector<uint8_t> room(data.size() + 128, kGuard);
        uint8_t* const to = room.data() + misalign;
        EXPECT_EQ(kernel_.crc32_copy(crc, to, data.data(), data.size()), expected);
        EXPECT_TRUE(std::equal(data.begin(), data.end(), to));
        std::fill_n(to, data.size(), kGuard);
        EXPECT_EQ(std::ranges::count(room, kGuard), static_cast<std::ptrdiff_t>(room.size()));
    }

    const Crc32Kernel& kernel_ = *GetParam().kernel;
    std::mt19937 random_{1};
};

TEST_P(Kernels, CheckValue) {
    EXPECT_EQ(kernel_.crc32(0, "123456789", 9), 0xCBF43926u);
}

TEST_P(Kernels, EveryLengthTo600) {
    for (size_t bytes = 0; bytes <= 600; ++bytes) {
        SCOPED_TRACE(bytes);
        check(random(bytes), bytes % 64, random_());
    }
}

TEST_P(Kernels, LongAndMisaligned) {
    for (int i = 0; i < 200; ++i) {
        auto data = random(600 + random_() % 20000);
        SCOPED_TRACE(data.size());
        check(data, random_() % 64, random_());
        const size_t skip = random_() % 64;
        EXPECT_EQ(kernel_.crc32(7, data.data() + skip, data.size() - skip),
                  reference::crc32(7, std::span(data).subspan(skip)));
    }
}

TEST_P(Kernels, Continues) {
    const auto data = random(1000);
    const uint32_t whole = reference::crc32(0, data);
    for (size_t cut = 0; cut <= data.size(); ++cut) {
        const uint32_t front = kernel_.crc32(0, data.data(), cut);
        EXPECT_EQ(kernel_.crc32(front, data.data() + cut, data.size() - cut), whole) << cut;
    }
}

TEST_P(Kernels, Icrc) {
    constexpr size_t kBefore = 14;
    for (size_t bytes = 40; bytes <= 900; bytes += 4) {
        auto packet = random(kBefore + bytes);
        packet[kBefore] = 0x45;
        const std::span covered = std::span(packet).subspan(kBefore);
        EXPECT_EQ(kernel_.icrc(covered.data(), bytes), reference::icrc(covered)) << bytes;
        if (bytes < 60) continue;
        packet[kBefore] = static_cast<uint8_t>(0x60 | (packet[kBefore + 1] & 0xF));
        EXPECT_EQ(kernel_.icrc(covered.data(), bytes), reference::icrc(covered)) << bytes;
    }
}

TEST_P(Kernels, IcrcOfFour) {
    constexpr size_t kBefore = 14;
    for (const uint8_t version : {0x45, 0x60}) {
        for (size_t bytes = version == 0x45 ? 40 : 60; bytes <= 400; bytes += 4) {
            std::vector<uint8_t> packets[4];
            const uint8_t* l3[4];
            for (int i = 0; i < 4; ++i) {
                packets[i] = random(kBefore + bytes);
                packets[i][kBefore] = version;
                l3[i] = packets[i].data() + kBefore;
            }
            uint32_t sums[4];
            kernel_.icrc_four(l3, bytes, sums);
            for (int i = 0; i < 4; ++i)
                EXPECT_EQ(sums[i], reference::icrc(std::span(packets[i]).subspan(kBefore))) << bytes;
        }
    }
}

TEST_P(Kernels, IcrcContinuesInACopy) {
    constexpr size_t kBefore = 14;
    for (const size_t headers : {40, 44, 56, 60, 64, 68, 88, 104, 140}) {
        for (size_t bytes = 0; bytes <= 5000; bytes += bytes < 700 ? 1 : 127) {
            auto packet = random(kBefore + headers + bytes);
            packet[kBefore] = 0x45;
            const std::span covered = std::span(packet).subspan(kBefore);
            const uint8_t* const payload = covered.data() + headers;
            std::vector<uint8_t> copy(bytes + 2, 0xEE);
            EXPECT_EQ(kernel_.icrc_copy(covered.data(), headers, &copy[1], payload, bytes), reference::icrc(covered))
                << headers << " and " << bytes;
            EXPECT_TRUE(std::equal(payload, payload + bytes, &copy[1]));
            EXPECT_TRUE(copy.front() == 0xEE && copy.back() == 0xEE);
        }
    }
}

TEST_P(Kernels, IcrcIgnoresVariantFields) {
    auto v4 = random(100), v6 = random(100);
    v4[14] = 0x45, v6[14] = 0x60;
    const uint32_t before4 = kernel_.icrc(&v4[14], 84), before6 = kernel_.icrc(&v6[14], 84);
    for (const size_t at : {1, 8, 10, 11, 26, 27, 32}) v4[14 + at] ^= 0xFF;  // TOS, TTL, checksums, FECN and BECN
    // Traffic class, flow label, hop limit, and the rest as above.
    for (const size_t at : {1, 2, 3, 7, 46, 47, 52}) v6[14 + at] ^= 0xFF;
    v6[14] ^= 0x0F;
    EXPECT_EQ(kernel_.icrc(&v4[14], 84), before4);
    EXPECT_EQ(kernel_.icrc(&v6[14], 84), before6);
}

INSTANTIATE_TEST_SUITE_P(All, Kernels,
                         testing::Values(Named{"portable", &kCrc32Portable}, Named{"sse", &kCrc32Sse},
                                         Named{"avx2", &kCrc32Avx2}, Named{"avx512", &kCrc32Avx512},
                                         Named{"gfni", &kCrc32Gfni},
                                         Named{"avx512_emulated", &reference::kCrc32Emulated512},
                                         Named{"gfni_emulated", &reference::kCrc32EmulatedGfni},
                                         Named{"chosen", &crc32_kernel}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rove::wire
