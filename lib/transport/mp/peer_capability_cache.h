// SPDX-License-Identifier: Apache-2.0
// What a device's peers said by HELLO, and who said nothing: what to make of the next silence (hello.h, note 5). Any
// thread. Units: nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "wire/frame.h"

namespace rove::transport {

class PeerCapabilityCache {
  public:
    // When it is full, what would be forgotten soonest goes: who was silent, then who has become silent, then anybody.
    static constexpr size_t kMaxPeers = 4096;               // about 400 KiB
    static constexpr uint64_t kRcNs = 60'000'000'000;       // who was silent is not asked
    static constexpr uint64_t kForgetNs = 600'000'000'000;  // silence of one who spoke mp, from the first question on

    // Nothing: it is not known.
    std::optional<bool> speaks_mp(const wire::Gid& peer, uint64_t now_ns) const;
    void record_answer(const wire::Gid& peer, bool mp);
    void record_timeout(const wire::Gid& peer, uint64_t now_ns);

  private:
    struct CapabilityEntry {
        bool mp = false;
        uint64_t until_ns = 0;
    };
    void learn(const wire::Gid& peer, CapabilityEntry belief);

    mutable std::mutex mutex_;
    std::map<wire::Gid, CapabilityEntry> beliefs_;
};

}  // namespace rove::transport
