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
    static constexpr size_t kMaxPeers = 4096;          // about 400 KiB
    static constexpr uint64_t kRcNs = 60'000'000'000;  // how long a silent peer is not asked again
    // How long a peer that used mp may be silent, from the first unanswered question.
    static constexpr uint64_t kForgetNs = 600'000'000'000;

    // Returns nothing if the peer is unknown.
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
