// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: messages of the connection manager from any bytes, once unchanged and once with a valid header. An
// accepted message is built to a MAD with the same content. Run by tests/fuzz/run.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "cm/messages.h"

namespace {

using namespace rove::cm;

void require(bool holds) {
    if (!holds) std::abort();
}

void check(std::span<const uint8_t> input) {
    Message message;
    if (parse(input, message) != ParseError::kNone) return;
    const Mad built = build(message);
    Message again;
    require(parse(built, again) == ParseError::kNone);
    require(again == message);
    require(build(again) == built);
    const auto check_addresses = [](std::span<const uint8_t> data) {
        const auto addresses = parse_cma_header(data);
        if (!addresses) return;
        std::array<uint8_t, CmaHeader::kBytes> bytes;
        build_cma_header(*addresses, bytes);
        // An IPv6 header may hold two IPv4-mapped addresses, or one address of each family. These are written in their
        // own families.
        const auto rebuilt = parse_cma_header(bytes);
        require(rebuilt && rebuilt->src_port == addresses->src_port && rebuilt->src == addresses->src);
    };
    if (const Req* const req = std::get_if<Req>(&message.body)) check_addresses(req->private_data);
    if (const SidrReq* const req = std::get_if<SidrReq>(&message.body)) check_addresses(req->private_data);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    check({data, size});
    // The first byte chooses the message, the other bytes are its fields.
    Mad mad{1, 7, 2, 3};
    if (size == 0) return 0;
    mad[17] = static_cast<uint8_t>(0x10 + data[0] % 11);
    std::copy_n(data + 1, std::min(size - 1, kMadBytes - 20), mad.begin() + 20);
    check(mad);
    return 0;
}
