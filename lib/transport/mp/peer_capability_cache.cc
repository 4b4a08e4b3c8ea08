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
        learn(peer, {.mp = true, .until_ns = std::numeric_limits<uint64_t>::max()});
    } else {
        beliefs_.erase(peer);
    }
}

uint64_t PeerCapabilityCache::record_timeout(const wire::Gid& peer, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    const auto found = beliefs_.find(peer);
    const bool known = found != beliefs_.end(), valid = known && now_ns < found->second.until_ns;
    if (valid && found->second.mp) {
        found->second.until_ns = std::min(found->second.until_ns, now_ns + kForgetNs);
        return 0;
    }
    if (!valid) {
        const uint64_t before_ns = known ? found->second.rc_ns : 0;
        const uint64_t rc_ns = before_ns == 0 ? kFirstRcNs : std::min(2 * before_ns, kLongestRcNs);
        learn(peer, {.mp = false, .until_ns = now_ns + rc_ns, .rc_ns = rc_ns});
        return rc_ns;
    }
    return found->second.until_ns - now_ns;
}

void PeerCapabilityCache::learn(const wire::Gid& peer, CapabilityEntry belief) {
    if (beliefs_.size() >= kMaxPeers && !beliefs_.contains(peer))
        beliefs_.erase(std::min_element(beliefs_.begin(), beliefs_.end(), [](const auto& a, const auto& b) {
            return a.second.until_ns < b.second.until_ns;
        }));
    beliefs_[peer] = belief;
}

}  // namespace rove::transport
