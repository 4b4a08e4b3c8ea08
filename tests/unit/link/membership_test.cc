// SPDX-License-Identifier: Apache-2.0
// Tests reports of multicast groups: their bytes as the RFCs define them, and the times at which they are sent. Time is
// virtual.
#include "link/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "link/address.h"
#include "link/link_frames.h"

namespace rove::datapath {
namespace {

using namespace link;

constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs;
const wire::MacAddress kMac = *parse_mac("02:00:00:00:00:0a");
const ProxyAddress kIpv4{kMac, *parse_address("10.0.0.1"), {}}, kIpv6{kMac, link_local_gid(kMac), {}};

class MembershipTest : public testing::TestWithParam<bool> {
  protected:
    bool ipv6() const { return GetParam(); }
    wire::Gid group(uint8_t number = 3) const {
        return *parse_address((ipv6() ? "ff0e::1:" : "239.1.2.") + std::to_string(number));
    }
    struct Report {
        uint64_t ns;
        std::vector<uint8_t> frame;
    };
    std::vector<Report> run_until(uint64_t end) {
        std::vector<Report> reports;
        while (memberships_.due_ns() <= end) {
            now_ = std::max(now_, memberships_.due_ns());
            std::vector<uint8_t> frame(kMaxReportBytes);
            frame.resize(memberships_.next_report(frame.data(), now_));
            if (!frame.empty()) reports.push_back({now_, frame});
        }
        now_ = std::max(now_, end);
        return reports;
    }
    // Returns the message behind the IP header of a frame, after checking all headers below it.
    std::span<const uint8_t> message(const std::vector<uint8_t>& frame, const wire::Gid& to) const {
        const wire::MacAddress mac = multicast_mac(to);
        EXPECT_TRUE(std::equal(mac.begin(), mac.end(), frame.begin()));
        EXPECT_TRUE(std::equal(kMac.begin(), kMac.end(), frame.begin() + 6));
        const uint8_t* ip = frame.data() + kEthernetBytes;
        if (ipv6()) {
            EXPECT_EQ(load_be16(&frame[12]), kEtherTypeIpv6);
            EXPECT_EQ(ip[6], kHopByHop);
            EXPECT_EQ(ip[7], 1) << "hop limit";
            EXPECT_EQ(gid_at(ip + 8), kIpv6.address);
            EXPECT_EQ(gid_at(ip + 24), to);
            const std::vector<uint8_t> alert{58, 0, 5, 2, 0, 0, 1, 0};
            EXPECT_TRUE(std::equal(alert.begin(), alert.end(), ip + 40));
            const size_t bytes = frame.size() - 14 - 48;
            EXPECT_EQ(load_be16(ip + 4), bytes + 8);
            EXPECT_EQ(sum_icmpv6(ip, ip + 48, bytes), 0xFFFF);
            return {ip + 48, bytes};
        }
        EXPECT_EQ(load_be16(&frame[12]), kEtherTypeIpv4);
        EXPECT_EQ(ip[0], 0x46);
        EXPECT_EQ(load_be16(ip + 2), frame.size() - 14);
        EXPECT_EQ(ip[8], 1) << "TTL";
        EXPECT_EQ(ip[9], 2) << "IGMP";
        EXPECT_EQ(mapped(ip + 12), kIpv4.address);
        EXPECT_EQ(mapped(ip + 16), to);
        const std::vector<uint8_t> alert{0x94, 4, 0, 0};
        EXPECT_TRUE(std::equal(alert.begin(), alert.end(), ip + 20));
        EXPECT_EQ(fold(sum_words(ip, 24)), 0xFFFF);
        EXPECT_EQ(fold(sum_words(ip + 24, frame.size() - 38)), 0xFFFF);
        return {ip + 24, frame.size() - 38};
    }
    // Returns the records of a report of the newer version (IGMPv3, MLDv2).
    std::vector<MembershipRecord> records(const Report& report) const {
        const auto bytes = message(report.frame, *parse_address(ipv6() ? "ff02::16" : "224.0.0.22"));
        EXPECT_EQ(bytes[0], ipv6() ? 143 : 0x22);
        const size_t size = ipv6() ? 20 : 8, count = load_be16(&bytes[6]);
        EXPECT_EQ(bytes.size(), 8 + count * size);
        std::vector<MembershipRecord> found;
        for (size_t i = 0; i < count; ++i) {
            const uint8_t* at = &bytes[8 + i * size];
            EXPECT_EQ(load_be16(at + 1), 0) << "no auxiliary data, no sources";
            found.push_back({ipv6() ? gid_at(at + 4) : mapped(at + 4), static_cast<Membership>(at[0])});
        }
        return found;
    }
    // Returns a query as a router sends it, a general one if `about` is empty. `code` is the maximum response time, in
    // the units of the version.
    std::vector<uint8_t> query(std::optional<wire::Gid> about, uint16_t code, bool older = false) const {
        const wire::Gid to = about.value_or(*parse_address(ipv6() ? "ff02::1" : "224.0.0.1"));
        const wire::MacAddress router = *parse_mac("02:00:00:00:00:fe");
        std::vector<uint8_t> frame(14);
        put_ethernet(frame.data(), multicast_mac(to), router, {}, ipv6() ? kEtherTypeIpv6 : kEtherTypeIpv4);
        if (ipv6()) {
            const size_t bytes = older ? 24 : 28;
            frame.resize(14 + 48 + bytes);
            uint8_t* ip = &frame[14];
            ip[0] = 0x60;
            store_be16(ip + 4, static_cast<uint16_t>(8 + bytes));
            ip[6] = 0;
            ip[7] = 1;
            const wire::Gid from = link_local_gid(router);
            std::copy(from.begin(), from.end(), ip + 8);
            std::copy(to.begin(), to.end(), ip + 24);
            const std::vector<uint8_t> alert{58, 0, 5, 2, 0, 0, 1, 0};
            std::copy(alert.begin(), alert.end(), ip + 40);
            ip[48] = 130;
            store_be16(ip + 52, code);
            if (about) std::copy(about->begin(), about->end(), ip + 56);
            store_be16(ip + 50, static_cast<uint16_t>(~sum_icmpv6(ip, ip + 48, bytes)));
            return frame;
        }
        const size_t bytes = older ? 8 : 12;
        frame.resize(14 + 24 + bytes);
        uint8_t* ip = &frame[14];
        const std::vector<uint8_t> header{0x46, 0xC0, 0,  static_cast<uint8_t>(24 + bytes), 0, 0, 0, 0, 1, 2, 0, 0, 10,
                                          0,    0,    254};
        std::copy(header.begin(), header.end(), ip);
        std::copy(to.begin() + 12, to.end(), ip + 16);
        ip[20] = 0x94;
        ip[21] = 4;
        store_be16(ip + 10, static_cast<uint16_t>(~fold(sum_words(ip, 24))));
        ip[24] = 0x11;
        ip[25] = static_cast<uint8_t>(code);
        if (about) std::copy(about->begin() + 12, about->end(), ip + 28);
        store_be16(ip + 26, static_cast<uint16_t>(~fold(sum_words(ip + 24, bytes))));
        return frame;
    }
    // Returns the code for one second.
    uint16_t second() const { return ipv6() ? 1000 : 10; }
    void joined(uint8_t groups = 1) {
        for (uint8_t i = 0; i < groups; ++i) memberships_.join(group(static_cast<uint8_t>(3 + i)), now_);
        run_until(now_ + 10 * kSecond);
    }

    Memberships memberships_{kIpv4, kIpv6, 1};
    uint64_t now_ = 1000 * kSecond;
};

INSTANTIATE_TEST_SUITE_P(Families, MembershipTest, testing::Bool(),
                         [](const auto& f) { return f.param ? "Mld" : "Igmp"; });

TEST_P(MembershipTest, AChangeIsReportedAtOnceAndOnceMore) {
    for (const Membership says : {Membership::kJoins, Membership::kLeaves}) {
        const uint64_t begun = now_;
        says == Membership::kJoins ? memberships_.join(group(), now_) : memberships_.leave(group(), now_);
        const auto reports = run_until(now_ + 100 * kSecond);
        ASSERT_EQ(reports.size(), 2u);
        EXPECT_EQ(reports[0].ns, begun);
        EXPECT_LE(reports[1].ns, begun + kSecond);
        for (const Report& report : reports) {
            ASSERT_EQ(records(report).size(), 1u);
            EXPECT_EQ(records(report)[0].group, group());
            EXPECT_EQ(records(report)[0].says, says);
        }
        EXPECT_EQ(memberships_.due_ns(), Memberships::kNever);
    }
}

TEST_P(MembershipTest, AGroupOfManyQpsIsReportedOnce) {
    for (int i = 0; i < 100; ++i) memberships_.join(group(), now_);
    EXPECT_EQ(run_until(now_ + 10 * kSecond).size(), 2u);
    for (int i = 0; i < 99; ++i) memberships_.leave(group(), now_);
    EXPECT_TRUE(run_until(now_ + 10 * kSecond).empty());
    memberships_.leave(group(), now_);
    EXPECT_EQ(run_until(now_ + 10 * kSecond).size(), 2u);
}

TEST_P(MembershipTest, WhatEverybodyHasJoinedIsNotReported) {
    for (const char* address : {"224.0.0.1", "ff02::1", "ff01::7"}) memberships_.join(*parse_address(address), now_);
    EXPECT_EQ(memberships_.due_ns(), Memberships::kNever);
}

TEST_P(MembershipTest, WhenTheLinkComesUpAllIsReportedAgain) {
    joined(25);
    memberships_.report_all(now_);
    size_t found = 0;
    const auto reports = run_until(now_);
    for (const Report& report : reports) found += records(report).size();
    EXPECT_EQ(found, 25u);
    EXPECT_EQ(reports.size(), 3u) << "ten in each";
}

TEST_P(MembershipTest, QueriesAreAnsweredInTime) {
    joined(3);
    std::vector<uint64_t> delays;
    for (int i = 0; i < 50; ++i) {
        const uint64_t begun = now_;
        const bool all = i % 2 == 0;
        ASSERT_TRUE(memberships_.take(query(all ? std::nullopt : std::optional(group(4)), second()), now_));
        const auto reports = run_until(now_ + 5 * kSecond);
        ASSERT_EQ(reports.size(), 1u);
        EXPECT_LT(reports[0].ns, begun + kSecond);
        delays.push_back(reports[0].ns - begun);
        const auto found = records(reports[0]);
        ASSERT_EQ(found.size(), all ? 3u : 1u);
        for (const MembershipRecord& record : found) EXPECT_EQ(record.says, Membership::kIsMember);
        EXPECT_EQ(found[0].group, all ? group(3) : group(4));
    }
    EXPECT_GT(*std::max_element(delays.begin(), delays.end()), 700 * kMs) << "at random";
    EXPECT_LT(*std::min_element(delays.begin(), delays.end()), 300 * kMs);
}

TEST_P(MembershipTest, QueriesForOtherGroupsAreNot) {
    joined();
    EXPECT_TRUE(memberships_.take(query(group(99), second()), now_));
    EXPECT_EQ(memberships_.due_ns(), Memberships::kNever);
    memberships_.leave(group(), now_);
    run_until(now_ + 10 * kSecond);
    EXPECT_TRUE(memberships_.take(query(group(), second()), now_));
    EXPECT_TRUE(memberships_.take(query({}, second()), now_));
    EXPECT_TRUE(run_until(now_ + 10 * kSecond).empty());
}

TEST_P(MembershipTest, AnOlderRouterGetsOlderReports) {
    joined(2);
    ASSERT_TRUE(memberships_.take(query({}, second(), true), now_));
    const uint64_t begun = now_;
    const auto reports = run_until(now_ + 5 * kSecond);
    ASSERT_EQ(reports.size(), 2u) << "one for each group, at times of their own";
    EXPECT_NE(reports[0].ns, reports[1].ns);
    for (const Report& report : reports) {
        EXPECT_LT(report.ns, begun + kSecond);
        const bool first = std::equal(report.frame.end() - 4, report.frame.end(), group(3).end() - 4);
        const auto bytes = message(report.frame, group(first ? 3 : 4));
        EXPECT_EQ(bytes.size(), ipv6() ? 24u : 8u);
        EXPECT_EQ(bytes[0], ipv6() ? 131 : 0x16);
    }
    memberships_.leave(group(), now_);
    const auto left = run_until(now_);
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(message(left[0].frame, *parse_address(ipv6() ? "ff02::2" : "224.0.0.2"))[0], ipv6() ? 132 : 0x17);
    // When the older router has disappeared, the host uses the newer version again.
    run_until(now_ + Memberships::kOlderRouterNs);
    memberships_.join(group(), now_);
    EXPECT_EQ(records(run_until(now_).at(0)).size(), 1u);
}

// Codes that contain an exponent: RFC 3376 4.1.1, RFC 3810 5.1.3.
TEST_P(MembershipTest, LongResponseTimes) {
    const auto parsed = parse_membership_query(query({}, ipv6() ? 0x8000 | 2 << 12 | 5 : 0x80 | 2 << 4 | 5));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->max_response_ns, ipv6() ? 0x1005 * 32 * kMs : 0x15 * 32 * 100 * kMs);
}

TEST_P(MembershipTest, AFloodOfQueriesIsAnsweredAtABoundedRate) {
    joined(3);
    size_t reports = 0;
    for (int i = 0; i < 100'000; ++i) {  // one second, in steps of ten microseconds
        memberships_.take(query(i % 2 == 0 ? std::nullopt : std::optional(group(3)), 0), now_);
        reports += run_until(now_ + 10'000).size();
    }
    EXPECT_LE(reports, 25u);
}

TEST_P(MembershipTest, HostileBytes) {
    joined();
    std::mt19937 random(1);
    for (const bool older : {false, true}) {
        const std::vector<uint8_t> whole = query({}, second(), older);
        ASSERT_TRUE(parse_membership_query(whole));
        for (size_t size = 0; size < whole.size(); ++size)
            EXPECT_FALSE(parse_membership_query(
                std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size))));
        for (int i = 0; i < 50'000; ++i) {
            std::vector<uint8_t> noise = whole;
            for (uint32_t changes = 1 + random() % 8; changes != 0; --changes)
                noise[random() % noise.size()] = static_cast<uint8_t>(random());
            noise.resize(random() % (noise.size() + 1));
            memberships_.take(noise, now_);
        }
    }
}

}  // namespace
}  // namespace rove::datapath
