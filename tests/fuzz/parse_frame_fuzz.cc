// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: parse_frame on any bytes, once unchanged and once with valid checksum and ICRC, so that the code
// behind these checks is also reached. An accepted frame must be built again to the same bytes where the wire format
// allows only one form. Run by tests/fuzz/run.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "wire/byte_order.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"

namespace {

using namespace rove::wire;

void require(bool holds) {
    if (!holds) std::abort();
}

void parse(std::span<const uint8_t> input) {
    ParsedFrame parsed;
    if (parse_frame(input, parsed) != ParseError::kNone) return;
    const uint8_t* const end = input.data() + input.size();
    require(parsed.l3 > input.data() && parsed.payload > parsed.l3);
    require(parsed.payload + parsed.payload_bytes + kIcrcBytes <= end);

    // Reserved bits, pad bytes and a UDP checksum are not kept. The frame built from the other fields must parse to the
    // same result.
    const FlowTemplate flow = make_template(parsed.flow);
    const uint8_t opcode = parsed.headers.bth.opcode;
    std::vector<uint8_t> built(frame_bytes(flow, opcode, parsed.payload_bytes));
    const Segment payload{parsed.payload, parsed.payload_bytes};
    require(build_frame(built.data(), flow, parsed.headers, {&payload, 1}) == built.size());
    require(built.size() <= input.size());
    ParsedFrame again;
    require(parse_frame(built, again) == ParseError::kNone);
    require(again.payload_bytes == parsed.payload_bytes && again.headers.bth.psn == parsed.headers.bth.psn);
    require(std::memcmp(again.payload, parsed.payload, parsed.payload_bytes) == 0);
    require(again.flow.src == parsed.flow.src && again.flow.dst == parsed.flow.dst);
    require(again.flow.vlan == parsed.flow.vlan && again.flow.udp_src == parsed.flow.udp_src);
}

// Makes the IPv4 checksum, the UDP checksum (0) and the ICRC valid, if the lengths leave room for them.
void seal(std::vector<uint8_t>& frame) {
    if (frame.size() <= kEthernetBytes + kVlanTagBytes) return;
    const bool vlan = load_be16(&frame[ethernet::kType]) == kEtherTypeVlan;
    const size_t l3 = kEthernetBytes + (vlan ? kVlanTagBytes : 0);
    const bool v4 = frame[l3] >> 4 == 4;
    const size_t ip = v4 ? kIpv4Bytes : kIpv6Bytes, headers = ip + kUdpBytes + kBthBytes;
    if (frame.size() < l3 + headers + kIcrcBytes) return;
    const size_t length =
        v4 ? load_be16(&frame[l3 + ipv4::kLength]) : kIpv6Bytes + load_be16(&frame[l3 + ipv6::kLength]);
    if (length < headers + kIcrcBytes || l3 + length > frame.size()) return;
    store<uint16_t>(&frame[l3 + ip + udp::kChecksum], 0);
    if (v4) {
        store<uint16_t>(&frame[l3 + ipv4::kChecksum], 0);
        store(&frame[l3 + ipv4::kChecksum], static_cast<uint16_t>(~fold_checksum(sum_ipv4_header(&frame[l3]))));
    }
    store(&frame[l3 + length - kIcrcBytes], icrc(&frame[l3], length - kIcrcBytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    parse({data, size});
    std::vector<uint8_t> sealed(data, data + size);
    seal(sealed);
    parse(sealed);
    return 0;
}
