// SPDX-License-Identifier: Apache-2.0
// See ports.h.
#include "rdmacm/ports.h"

#include <algorithm>
#include <cerrno>

namespace rove::verbs::ucma {

namespace {

// Returns true if a wildcard covers another address. An IPv6 wildcard covers IPv4 addresses too, unless it is
// IPv6-only.
bool covers(const Ports::Binding& wildcard, const Ports::Binding& other) {
    if (!wildcard.address.is_any()) return false;
    return wildcard.address.family == other.address.family ||
           (wildcard.address.family == AF_INET6 && !wildcard.ipv6_only);
}

bool overlap(const Ports::Binding& a, const Ports::Binding& b) {
    return covers(a, b) || covers(b, a) || a.address.gid() == b.address.gid();
}

}  // namespace

bool Ports::is_free(const Key& key, const Binding& binding, const void* owner) const {
    const auto [first, last] = bound_.equal_range(key);
    return std::none_of(first, last, [&](const auto& entry) {
        const Bound& other = entry.second;
        const bool share = binding.reuse && other.binding.reuse && !binding.listens && !other.binding.listens;
        return other.owner != owner && !share && overlap(binding, other.binding);
    });
}

int Ports::bind(uint16_t port_space, Binding& binding, const void* owner) {
    uint16_t port = binding.address.port();
    if (port == 0) {
        constexpr uint32_t kCount = kLastEphemeral - kFirstEphemeral + 1;
        const auto start = static_cast<uint32_t>(random_() % kCount);
        uint32_t tried = 0;
        do {
            if (tried == kCount) return EADDRNOTAVAIL;
            port = static_cast<uint16_t>(kFirstEphemeral + (start + tried++) % kCount);
        } while (bound_.contains({port_space, port}));
        binding.address.set_port(port);
    } else if (!is_free({port_space, port}, binding, owner)) {
        return EADDRINUSE;
    }
    bound_.insert({{port_space, port}, {owner, binding}});
    return 0;
}

int Ports::listen(uint16_t port_space, uint16_t port, const void* owner) {
    const auto [first, last] = bound_.equal_range({port_space, port});
    const auto own = std::find_if(first, last, [&](const auto& entry) { return entry.second.owner == owner; });
    if (own == last) return EINVAL;
    Binding binding = own->second.binding;
    binding.listens = true;
    if (!is_free({port_space, port}, binding, owner)) return EADDRINUSE;
    own->second.binding = binding;
    return 0;
}

void Ports::release(uint16_t port_space, uint16_t port, const void* owner) {
    const auto [first, last] = bound_.equal_range({port_space, port});
    const auto own = std::find_if(first, last, [&](const auto& entry) { return entry.second.owner == owner; });
    if (own != last) bound_.erase(own);
}

}  // namespace rove::verbs::ucma
