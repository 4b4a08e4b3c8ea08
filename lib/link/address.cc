// SPDX-License-Identifier: Apache-2.0
#include "link/address.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstring>

namespace rove::datapath {

namespace {
constexpr uint8_t kIpv4Prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};  // ::ffff:0:0/96, RFC 4291 2.5.5.2
}

bool Subnet::contains(const wire::Gid& other) const {
    const size_t whole = prefix_bits / 8, rest = prefix_bits % 8;
    if (std::memcmp(address.data(), other.data(), whole) != 0) return false;
    return rest == 0 || ((address[whole] ^ other[whole]) >> (8 - rest)) == 0;
}

std::optional<wire::Gid> parse_address(std::string_view text) {
    const std::string copy(text);
    wire::Gid gid{};
    std::memcpy(gid.data(), kIpv4Prefix, sizeof kIpv4Prefix);
    if (inet_pton(AF_INET, copy.c_str(), gid.data() + 12) == 1) return gid;
    if (inet_pton(AF_INET6, copy.c_str(), gid.data()) == 1) return gid;
    return std::nullopt;
}

std::optional<Subnet> parse_subnet(std::string_view text) {
    const size_t slash = text.find('/');
    const auto address = parse_address(text.substr(0, slash));
    if (!address) return std::nullopt;
    Subnet subnet{*address, 128};
    if (slash == std::string_view::npos) return subnet;
    const std::string_view digits = text.substr(slash + 1);
    unsigned bits = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    const unsigned skipped = wire::is_ipv4_mapped(*address) ? 96 : 0;
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || bits > 128 - skipped)
        return std::nullopt;
    subnet.prefix_bits = static_cast<uint8_t>(bits + skipped);
    return subnet;
}

std::optional<wire::MacAddress> parse_mac(std::string_view text) {
    if (text.size() != 17) return std::nullopt;
    wire::MacAddress mac{};
    for (size_t i = 0; i < mac.size(); ++i) {
        const char* byte = text.data() + 3 * i;
        const auto [end, error] = std::from_chars(byte, byte + 2, mac[i], 16);
        if (error != std::errc() || end != byte + 2 || (i < 5 && byte[2] != ':')) return std::nullopt;
    }
    if (is_multicast(mac) || mac == wire::MacAddress{}) return std::nullopt;
    return mac;
}

std::string to_string(const wire::Gid& address) {
    char text[INET6_ADDRSTRLEN];
    if (wire::is_ipv4_mapped(address)) return inet_ntop(AF_INET, address.data() + 12, text, sizeof text);
    return inet_ntop(AF_INET6, address.data(), text, sizeof text);
}

std::string to_string(const wire::MacAddress& mac) {
    char text[18];
    std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    return text;
}

bool is_multicast(const wire::Gid& address) {
    return wire::is_ipv4_mapped(address) ? (address[12] & 0xF0) == 0xE0 : address[0] == 0xFF;
}

bool is_link_local(const wire::Gid& address) {
    return address[0] == 0xFE && (address[1] & 0xC0) == 0x80;
}

bool is_multicast(const wire::MacAddress& mac) {
    return (mac[0] & 1) != 0;
}

wire::Gid link_local_gid(const wire::MacAddress& mac) {
    wire::Gid gid{};
    gid[0] = 0xFE;
    gid[1] = 0x80;
    gid[8] = mac[0] ^ 2;
    gid[9] = mac[1];
    gid[10] = mac[2];
    gid[11] = 0xFF;
    gid[12] = 0xFE;
    gid[13] = mac[3];
    gid[14] = mac[4];
    gid[15] = mac[5];
    return gid;
}

wire::MacAddress multicast_mac(const wire::Gid& group) {
    if (wire::is_ipv4_mapped(group))
        return {0x01, 0x00, 0x5E, static_cast<uint8_t>(group[13] & 0x7F), group[14], group[15]};
    return {0x33, 0x33, group[12], group[13], group[14], group[15]};
}

wire::Gid solicited_node_group(const wire::Gid& address) {
    return {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, address[13], address[14], address[15]};
}

wire::MacAddress derived_mac(const wire::Gid& address) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint8_t byte : address) hash = (hash ^ byte) * 0x100000001b3;
    wire::MacAddress mac{};
    for (size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(hash >> (8 * i));
    mac[0] = 0x02;  // locally administered, unicast
    return mac;
}

}  // namespace rove::datapath
