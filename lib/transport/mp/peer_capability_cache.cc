// SPDX-License-Identifier: Apache-2.0
// Implements peer_capability_cache.h.
#include "transport/mp/peer_capability_cache.h"

#include <algorithm>
#include <limits>

namespace rove::transport {

std::optional<bool> PeerCapabilityCache::speaks_mp(const wire::Gid& peer, uint64_t now_ns) const {
    const std::lock_guard lock(mutex_);
    const auto found = beliefs_.find(peer);
    if (found == beliefs_.end() || now_ns >= found->second.until_ns) return std::nullopt;
    return found->second.mp;
}

void PeerCapabilityCache::record_answer(const wire::Gid& peer, bool mp) {
    const std::lock_guard lock(mutex_);
    if (mp) {
        learn(peer, {true, std::numeric_limits<uint64_t>::max()});
    } else {
        beliefs_.erase(peer);
    }
}

void PeerCapabilityCache::record_timeout(const wire::Gid& peer, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    const auto found = beliefs_.find(peer);
    if (found != beliefs_.end() && found->second.mp && now_ns < found->second.until_ns) {
        found->second.until_ns = std::min(found->second.until_ns, now_ns + kForgetNs);
    } else {
        learn(peer, {false, now_ns + kRcNs});
    }
}

void PeerCapabilityCache::learn(const wire::Gid& peer, CapabilityEntry belief) {
    if (beliefs_.size() >= kMaxPeers && !beliefs_.contains(peer))
        beliefs_.erase(std::min_element(beliefs_.begin(), beliefs_.end(), [](const auto& a, const auto& b) {
            return a.second.until_ns < b.second.until_ns;
        }));
    beliefs_[peer] = belief;
}

}  // namespace rove::transport
