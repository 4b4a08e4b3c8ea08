// SPDX-License-Identifier: Apache-2.0
// Remembers which of a device's peers answered HELLO, and which were silent, to decide about the next silence (hello.h,
// note 5). Any thread may call it. Units are nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "wire/frame.h"

namespace rove::transport {

class PeerCapabilityCache {
  public:
    // When the cache is full, it drops the entry that would expire first: a silent peer's, then that of a peer that
    // fell silent, then any.
    static constexpr size_t kMaxPeers = 4096;  // about 400 KiB
    // How long a silent peer is not asked again: the first time, and at most. Each further silence doubles the time,
    // and an answer ends the series. A peer that was only busy, or behind a path that lost every question, is thus
    // asked again soon, and a standard endpoint seldom.
    static constexpr uint64_t kFirstRcNs = 1'000'000'000, kLongestRcNs = 60'000'000'000;
    // How long a peer that used mp may be silent, from the first unanswered question.
    static constexpr uint64_t kForgetNs = 600'000'000'000;

    // Returns nothing if the peer is unknown.
    std::optional<bool> speaks_mp(const wire::Gid& peer, uint64_t now_ns) const;
    void record_answer(const wire::Gid& peer, bool mp);
    // Records that the peer did not answer. Of several QPs that ask at once, the first one to give up counts.
    // Returns how long the peer now counts as a standard endpoint, or 0 if it still counts as one that speaks mp.
    uint64_t record_timeout(const wire::Gid& peer, uint64_t now_ns);

  private:
    struct CapabilityEntry {
        bool mp = false;
        uint64_t until_ns = 0;
        uint64_t rc_ns = 0;  // for a silent peer: the time that ends at until_ns
    };
    void learn(const wire::Gid& peer, CapabilityEntry belief);

    mutable std::mutex mutex_;
    std::map<wire::Gid, CapabilityEntry> beliefs_;
};

}  // namespace rove::transport
