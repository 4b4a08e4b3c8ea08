// SPDX-License-Identifier: Apache-2.0
// The headers that each opcode carries (IBTA vol. 1, table 38; CNP: annex A17.9.3; XRC: annex A14).
#include "wire/headers.h"

namespace rove::wire {
namespace {

constexpr uint8_t kBthBytes = 12;
constexpr uint8_t kHelloBytes = 24;

constexpr uint8_t extension_bytes(uint16_t extensions) {
    uint8_t bytes = 0;
    if (extensions & kHasDeth) bytes += 8;
    if (extensions & kHasReth) bytes += 16;
    if (extensions & kHasAtomicEth) bytes += 28;
    if (extensions & kHasAeth) bytes += 4;
    if (extensions & kHasAtomicAckEth) bytes += 8;
    if (extensions & kHasImmediate) bytes += 4;
    if (extensions & kHasIeth) bytes += 4;
    if (extensions & kHasMpeth) bytes += 8;
    if (extensions & kHasMpaeth) bytes += 12;
    if (extensions & kHasHello) bytes += kHelloBytes;
    if (extensions & kHasReserved) bytes += 16;
    if (extensions & kHasFeth) bytes += 4;
    if (extensions & kHasXrceth) bytes += 4;
    return bytes;
}

constexpr std::array<OpcodeInfo, 256> make_table() {
    std::array<OpcodeInfo, 256> table{};
    const auto add_opcode = [&](uint8_t opcode, int extensions) {
        const auto bits = static_cast<uint16_t>(extensions);
        const auto bytes = static_cast<uint8_t>(kBthBytes + extension_bytes(bits));
        table[opcode] = {.extensions = bits, .known = true, .header_bytes = bytes};
    };
    const auto add = [&](Service service, Op op, int extensions) { add_opcode(opcode(service, op), extensions); };
    for (const Service service : {Service::kRc, Service::kUc}) {
        add(service, Op::kSendFirst, kHasPayload);
        add(service, Op::kSendMiddle, kHasPayload);
        add(service, Op::kSendLast, kHasPayload);
        add(service, Op::kSendLastImm, kHasImmediate | kHasPayload);
        add(service, Op::kSendOnly, kHasPayload);
        add(service, Op::kSendOnlyImm, kHasImmediate | kHasPayload);
        add(service, Op::kWriteFirst, kHasReth | kHasPayload);
        add(service, Op::kWriteMiddle, kHasPayload);
        add(service, Op::kWriteLast, kHasPayload);
        add(service, Op::kWriteLastImm, kHasImmediate | kHasPayload);
        add(service, Op::kWriteOnly, kHasReth | kHasPayload);
        add(service, Op::kWriteOnlyImm, kHasReth | kHasImmediate | kHasPayload);
    }
    add(Service::kRc, Op::kReadRequest, kHasReth);
    add(Service::kRc, Op::kReadResponseFirst, kHasAeth | kHasPayload);
    add(Service::kRc, Op::kReadResponseMiddle, kHasPayload);
    add(Service::kRc, Op::kReadResponseLast, kHasAeth | kHasPayload);
    add(Service::kRc, Op::kReadResponseOnly, kHasAeth | kHasPayload);
    add(Service::kRc, Op::kAck, kHasAeth);
    add(Service::kRc, Op::kAtomicAck, kHasAeth | kHasAtomicAckEth);
    add(Service::kRc, Op::kCompareSwap, kHasAtomicEth);
    add(Service::kRc, Op::kFetchAdd, kHasAtomicEth);
    add(Service::kRc, Op::kFlush, kHasFeth | kHasReth);
    add(Service::kRc, Op::kAtomicWrite, kHasReth | kHasPayload);
    add(Service::kRc, Op::kSendLastInv, kHasIeth | kHasPayload);
    add(Service::kRc, Op::kSendOnlyInv, kHasIeth | kHasPayload);
    add(Service::kUd, Op::kSendOnly, kHasDeth | kHasPayload);
    add(Service::kUd, Op::kSendOnlyImm, kHasDeth | kHasImmediate | kHasPayload);
    add_opcode(kOpcodeCnp, kHasReserved);
    // XRC: RC's opcodes with XRCETH in every packet of a request.
    for (uint8_t op = 0; op < 0x20; ++op) {
        const OpcodeInfo& rc = table[opcode(Service::kRc, static_cast<Op>(op))];
        if (!rc.known) continue;
        add(Service::kXrc, static_cast<Op>(op), rc.extensions | (is_response(static_cast<Op>(op)) ? 0 : kHasXrceth));
    }
    // Multi-path: RC's opcodes with MPETH, and with RETH in every packet of a WRITE. The acknowledgement has a format
    // of its own.
    for (uint8_t op = 0; op < 0x20; ++op) {
        const OpcodeInfo& rc = table[opcode(Service::kRc, static_cast<Op>(op))];
        const auto is = [op](Op other) { return static_cast<Op>(op) == other; };
        if (!rc.known || is(Op::kAck)) continue;
        const bool write = is(Op::kWriteMiddle) || is(Op::kWriteLast) || is(Op::kWriteLastImm);
        add(Service::kMp, static_cast<Op>(op), rc.extensions | kHasMpeth | (write ? kHasReth : 0));
    }
    add(Service::kMp, Op::kAck, kHasMpaeth | kHasPayload);
    // Later versions of HELLO may have more fields, which are ignored.
    add_opcode(kOpcodeHello, kHasHello | kHasPayload);
    return table;
}

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodeTable = make_table();

}  // namespace rove::wire
