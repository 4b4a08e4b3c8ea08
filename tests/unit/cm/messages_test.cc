// SPDX-License-Identifier: Apache-2.0
// Tests the codec. Messages captured from Linux parse to the right values and are built again to the same bytes. Every
// message survives encoding and decoding. Other bytes are refused with the right error.
#include "cm/messages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "network.h"
#include "support/pcap.h"
#include "wire/frame.h"

namespace rove::cm {
namespace {

using namespace test;

struct Captured {
    wire::Flow flow;
    Mad mad;
};

std::vector<Captured> captured(const std::string& name) {
    std::vector<Captured> mads;
    for (const rove::test::Frame& frame : rove::test::read_pcap(std::string(ROVE_TEST_DATA) + "/" + name + ".pcap")) {
        wire::ParsedFrame parsed;
        EXPECT_EQ(wire::parse_frame(frame, parsed), wire::ParseError::kNone);
        if (parsed.headers.bth.dest_qpn != kGsiQpn) continue;
        EXPECT_EQ(parsed.headers.deth.src_qpn, kGsiQpn);
        EXPECT_EQ(parsed.headers.deth.qkey, kGsiQkey);
        EXPECT_EQ(parsed.payload_bytes, kMadBytes);
        mads.push_back({.flow = parsed.flow, .mad{}});
        std::copy_n(parsed.payload, kMadBytes, mads.back().mad.begin());
    }
    return mads;
}

template <class M>
M message(const Mad& mad, uint64_t transaction_id) {
    Message parsed;
    EXPECT_EQ(parse(mad, parsed), ParseError::kNone);
    EXPECT_EQ(parsed.transaction_id, transaction_id);
    EXPECT_EQ(build(parsed), mad);
    return std::get<M>(parsed.body);
}

constexpr wire::Gid kClient{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 7, 0, 1};
constexpr wire::Gid kServer{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 7, 0, 2};

TEST(CmGolden, Rping) {
    std::vector<Mad> mads;
    for (const Captured& one : captured("cm_rping_ipv4")) mads.push_back(one.mad);
    ASSERT_EQ(mads.size(), 5u);
    constexpr uint32_t kClientId = 0xBFC2AD10, kServerId = 0xBCC2AD10;
    constexpr uint64_t kConnect = 0x0000000210ADC2BF;

    const Req req = message<Req>(mads[0], kConnect);
    EXPECT_EQ(req.local_comm_id, kClientId);
    EXPECT_EQ(req.service_id, service_id_of(0x0106, 7174));
    EXPECT_EQ(req.ca_guid, 0x000000FFFE000701u);
    EXPECT_EQ(req.qpn, 0x25u);
    EXPECT_EQ(req.responder_resources, 1);
    EXPECT_EQ(req.initiator_depth, 1);
    EXPECT_EQ(req.remote_response_timeout, 20);
    EXPECT_EQ(req.local_response_timeout, 20);
    EXPECT_EQ(req.service, TransportService::kRc);
    EXPECT_EQ(req.starting_psn, 0xDCE492u);
    EXPECT_EQ(req.retry_count, 7);
    EXPECT_EQ(req.pkey, 0xFFFF);
    EXPECT_EQ(req.path_mtu, 5);
    EXPECT_EQ(req.rnr_retry_count, 7);
    EXPECT_EQ(req.max_cm_retries, 15);
    EXPECT_FALSE(req.srq);
    EXPECT_EQ(req.primary, (ReqPath{.local_gid = kClient,
                                    .remote_gid = kServer,
                                    .flow_label = 0x6312A,
                                    .hop_limit = 64,
                                    .local_ack_timeout = 19}));
    EXPECT_EQ(req.ece, Ece{});
    const auto addresses = parse_cma_header(req.private_data);
    ASSERT_TRUE(addresses);
    EXPECT_EQ(*addresses, (CmaHeader{.src_port = 0xB65C, .src = kClient, .dst = kServer}));
    std::array<uint8_t, CmaHeader::kBytes> rebuilt;
    build_cma_header(*addresses, rebuilt);
    EXPECT_TRUE(std::equal(rebuilt.begin(), rebuilt.end(), req.private_data.begin()));

    const Rep rep = message<Rep>(mads[1], kConnect);
    EXPECT_EQ(rep.local_comm_id, kServerId);
    EXPECT_EQ(rep.remote_comm_id, kClientId);
    EXPECT_EQ(rep.qpn, 0x25u);
    EXPECT_EQ(rep.starting_psn, 0x44965Eu);
    EXPECT_EQ(rep.responder_resources, 1);
    EXPECT_EQ(rep.initiator_depth, 1);
    EXPECT_EQ(rep.target_ack_delay, 15);
    EXPECT_EQ(rep.rnr_retry_count, 7);
    EXPECT_EQ(rep.ca_guid, 0x000000FFFE000702u);

    const Rtu rtu = message<Rtu>(mads[2], kConnect);
    EXPECT_EQ(rtu.local_comm_id, kClientId);
    EXPECT_EQ(rtu.remote_comm_id, kServerId);
    const Dreq dreq = message<Dreq>(mads[3], kConnect);
    EXPECT_EQ(dreq.local_comm_id, kClientId);
    EXPECT_EQ(dreq.remote_comm_id, kServerId);
    EXPECT_EQ(dreq.remote_qpn, 0x25u);
    const Drep drep = message<Drep>(mads[4], kConnect);
    EXPECT_EQ(drep.local_comm_id, kServerId);
    EXPECT_EQ(drep.remote_comm_id, kClientId);
}

// Checks on captures of Linux what the Cm relies on to tell genuine answers from forged ones: an answer repeats the
// transaction id of its request, and a message contains the addresses of its packet.
class CmCaptures : public testing::TestWithParam<std::pair<const char*, std::vector<size_t>>> {};

TEST_P(CmCaptures, LinuxDoesWhatTheCmReliesOn) {
    std::vector<size_t> kinds;
    uint64_t transaction_id = 0;
    for (const Captured& one : captured(GetParam().first)) {
        Message parsed;
        ASSERT_EQ(parse(one.mad, parsed), ParseError::kNone);
        EXPECT_EQ(build(parsed), one.mad);
        kinds.push_back(parsed.body.index());
        std::optional<CmaHeader> addresses;
        const bool asks = std::holds_alternative<Req>(parsed.body) || std::holds_alternative<SidrReq>(parsed.body) ||
                          std::holds_alternative<Dreq>(parsed.body);
        if (const Req* const req = std::get_if<Req>(&parsed.body)) {
            EXPECT_EQ(req->primary.local_gid, one.flow.src);
            EXPECT_EQ(req->primary.remote_gid, one.flow.dst);
            addresses = parse_cma_header(req->private_data);
            ASSERT_TRUE(addresses);
        } else if (const SidrReq* const sidr = std::get_if<SidrReq>(&parsed.body)) {
            addresses = parse_cma_header(sidr->private_data);
            ASSERT_TRUE(addresses);
        }
        if (addresses) {
            EXPECT_EQ(addresses->src, one.flow.src);
            EXPECT_EQ(addresses->dst, one.flow.dst);
        }
        if (asks) {
            transaction_id = parsed.transaction_id;
        } else {
            EXPECT_EQ(parsed.transaction_id, transaction_id);
        }
        if (const Rej* const rej = std::get_if<Rej>(&parsed.body)) {
            EXPECT_EQ(rej->reason, RejReason::kInvalidServiceId);
            EXPECT_EQ(rej->local_comm_id, 0u);
            EXPECT_EQ(rej->answered, Answered::kReq);
        }
    }
    EXPECT_EQ(kinds, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(Golden, CmCaptures,
                         testing::Values(std::pair("cm_rping_ipv4", std::vector{kReq, kRep, kRtu, kDreq, kDrep}),
                                         std::pair("cm_rping_ipv6", std::vector{kReq, kRep, kRtu, kDreq, kDrep}),
                                         std::pair("cm_ucmatose_ipv6", std::vector{kReq, kRep, kRtu, kDreq, kDrep}),
                                         std::pair("cm_reject", std::vector{kReq, kRej}),
                                         std::pair("cm_udaddy_ipv4", std::vector{kSidrReq, kSidrRep}),
                                         std::pair("cm_udaddy_ipv6", std::vector{kSidrReq, kSidrRep})),
                         [](const auto& info) { return std::string(info.param.first); });

// No capture contains ECE. The test expects it where Linux's include/rdma/ibta_vol1_c12.h has it.
TEST(CmCodec, EceStandsWhereLinuxHasIt) {
    constexpr size_t kHeader = 24;
    const Ece ece{.vendor_id = 0x123456, .options = 0x789ABCDE};
    const auto has_options = [](const Mad& mad) {
        return mad[20] == 0x78 && mad[21] == 0x9A && mad[22] == 0xBC && mad[23] == 0xDE;
    };
    const Mad req = build({1, Req{.ece = ece}}), rep = build({1, Rep{.ece = ece}}),
              sidr = build({1, SidrRep{.ece = ece}});
    EXPECT_TRUE(has_options(req) && has_options(rep) && has_options(sidr));
    const auto vendor = [](const Mad& mad, size_t high, size_t middle, size_t low) {
        return uint32_t{mad[kHeader + high]} << 16 | mad[kHeader + middle] << 8 | mad[kHeader + low];
    };
    EXPECT_EQ(vendor(req, 5, 6, 7), ece.vendor_id);
    EXPECT_EQ(vendor(rep, 15, 19, 23), ece.vendor_id);
    EXPECT_EQ(vendor(sidr, 6, 7, 11), ece.vendor_id);
}

// Covers all bits of the body that are not reserved: random bytes are parsed, built and parsed again.
TEST(CmCodec, RoundTrip) {
    Random random(1);
    for (int i = 0; i < 20'000; ++i) {
        Mad mad;
        for (uint8_t& byte : mad) byte = static_cast<uint8_t>(random.next());
        mad[0] = 1, mad[1] = 7, mad[2] = 2, mad[3] = 3, mad[16] = 0;
        mad[17] = static_cast<uint8_t>(0x10 + random.below(11));
        Message first, second;
        ASSERT_EQ(parse(mad, first), ParseError::kNone);
        const Mad built = build(first);
        ASSERT_EQ(parse(built, second), ParseError::kNone);
        ASSERT_EQ(first, second);
        ASSERT_EQ(build(second), built);
    }
}

// Each field has its own place: in each message, every bit on the wire is either reserved or part of one field, and two
// fields share no bit. The test counts the bits that a message keeps.
TEST(CmCodec, EveryBitOfAFieldIsKept) {
    struct Kept {
        Attribute attribute;
        size_t bits;
    };
    // The bits of tables 106 to 120 that are not reserved, and the bits of ECE. For LAP and APR, the bits that the
    // codec reads.
    const size_t path = 16 + 16 + 128 + 128 + 20 + 6 + 8 + 8 + 4 + 1 + 5;
    const Kept all[] = {
        {Attribute::kReq, 32 + 24 + 64 + 64 + 32 + 24 + 8 + 24 + 8 + 24 + 5 + 2 + 1 + 24 + 5 + 3 + 16 + 4 + 1 + 3 + 4 +
                              1 + 3 + 2 * path + 1 + 736 + 32},
        {Attribute::kMra, 32 + 32 + 2 + 5 + 1776},
        {Attribute::kRej, 32 + 32 + 2 + 7 + 16 + 576 + 1184},
        {Attribute::kRep, 32 + 32 + 32 + 24 + 24 + 24 + 24 + 8 + 8 + 5 + 2 + 1 + 3 + 1 + 64 + 1568 + 32},
        {Attribute::kRtu, 32 + 32 + 1792},
        {Attribute::kDreq, 32 + 32 + 24 + 1760},
        {Attribute::kDrep, 32 + 32 + 1792},
        {Attribute::kSidrReq, 32 + 16 + 64 + 1728},
        {Attribute::kSidrRep, 32 + 8 + 8 + 24 + 24 + 64 + 32 + 576 + 1088 + 32},
        {Attribute::kLap, 64},
        {Attribute::kApr, 72},
    };
    for (const Kept& kept : all) {
        Mad empty{1, 7, 2, 3};
        empty[17] = static_cast<uint8_t>(kept.attribute);
        size_t bits = 0;
        for (size_t bit = 20 * 8; bit < kMadBytes * 8; ++bit) {
            Mad mad = empty;
            mad[bit / 8] = static_cast<uint8_t>(0x80 >> bit % 8);
            Message message;
            ASSERT_EQ(parse(mad, message), ParseError::kNone);
            const Mad built = build(message);
            const bool is_cut =
                kept.attribute == Attribute::kSidrRep && bit == 29 * 8;  // a length of more than the 72 bytes available
            ASSERT_TRUE(built == mad || built == empty || is_cut)
                << "attribute " << int(kept.attribute) << ", bit " << bit;
            bits += built == mad;
        }
        EXPECT_EQ(bits, kept.bits - (kept.attribute == Attribute::kSidrRep)) << int(kept.attribute);
    }
}

TEST(CmCodec, ALengthIsNoLongerThanItsField) {
    Message message;
    ASSERT_EQ(parse(build({1, Rej{.ari_bytes = 127}}), message), ParseError::kNone);
    EXPECT_EQ(std::get<Rej>(message.body).ari_bytes, Rej::kAriBytes);
    ASSERT_EQ(parse(build({1, SidrRep{.info_bytes = 255}}), message), ParseError::kNone);
    EXPECT_EQ(std::get<SidrRep>(message.body).info_bytes, SidrRep::kInfoBytes);
}

TEST(CmCodec, Refusals) {
    const Mad good = build({1, Rtu{}});
    Message message;
    ASSERT_EQ(parse(good, message), ParseError::kNone);
    for (const size_t bytes : {0, 1, 23, 24, 255})
        EXPECT_EQ(parse(std::span(good).first(bytes), message), ParseError::kLength) << bytes;
    std::vector<uint8_t> longer(good.begin(), good.end());
    longer.push_back(0);
    EXPECT_EQ(parse(longer, message), ParseError::kLength);
    const auto changed = [&](size_t at, uint8_t value) {
        Mad mad = good;
        mad[at] = value;
        return parse(mad, message);
    };
    EXPECT_EQ(changed(0, 0x80), ParseError::kVersion);  // OPA's base version
    EXPECT_EQ(changed(1, 0x03), ParseError::kClass);    // subnet administration
    EXPECT_EQ(changed(1, 0x04), ParseError::kClass);    // performance management
    EXPECT_EQ(changed(2, 1), ParseError::kVersion);
    EXPECT_EQ(changed(3, 0x02), ParseError::kMethod);  // the method SET
    EXPECT_EQ(changed(3, 0x83), ParseError::kMethod);
    EXPECT_EQ(changed(3, 0x01), ParseError::kAttribute);  // a message with the method GET
    EXPECT_EQ(changed(17, 0x0F), ParseError::kAttribute);
    EXPECT_EQ(changed(17, 0x1B), ParseError::kAttribute);
    EXPECT_EQ(changed(16, 0x01), ParseError::kAttribute);
    EXPECT_EQ(changed(17, 0x01), ParseError::kAttribute);  // ClassPortInfo with the method SEND
}

TEST(CmCodec, ClassPortInfo) {
    const Mad query = build({7, ClassPortInfo{}}), answer = build({7, ClassPortInfo{.response = true}});
    EXPECT_EQ(query[3], 0x01);
    EXPECT_EQ(answer[3], 0x81);
    EXPECT_EQ(answer[24], 1);
    EXPECT_EQ(answer[25], 2);
    Message message;
    ASSERT_EQ(parse(answer, message), ParseError::kNone);
    EXPECT_EQ(message, (Message{7, ClassPortInfo{.response = true}}));
}

TEST(CmaHeaderCodec, BothFamilies) {
    std::array<uint8_t, CmaHeader::kBytes> bytes;
    const wire::Gid a{0xFE, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
        b{0xFD, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    for (const CmaHeader& header : {CmaHeader{.src_port = 1, .src = kClient, .dst = kServer},
                                    CmaHeader{.src_port = 0xFFFF, .src = a, .dst = b}}) {
        build_cma_header(header, bytes);
        EXPECT_EQ(parse_cma_header(bytes), header);
    }
    EXPECT_FALSE(parse_cma_header(std::span(bytes).first(35)));
    bytes[0] = 1;
    EXPECT_FALSE(parse_cma_header(bytes));
    bytes[0] = 0;
    bytes[1] = 0x50;
    EXPECT_FALSE(parse_cma_header(bytes));
}

}  // namespace
}  // namespace rove::cm
