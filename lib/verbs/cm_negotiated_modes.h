// SPDX-License-Identifier: Apache-2.0
// What connection managers have agreed on with peers about mp (ECE, in REQ and REP), for the QPs that are connected to
// them: no HELLO is needed then. A QP finds its peer by address, number and first PSN; whoever forged a REQ in a peer's
// name would have to know the PSN that another QP expects. Any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "wire/frame.h"

namespace rove::verbs {

class CmNegotiatedModes {
  public:
    struct Peer {
        wire::Gid gid{};
        uint32_t qpn = 0, starting_psn = 0;
        auto operator<=>(const Peer&) const = default;
    };
    // As many as there are connections with the connection manager.
    void insert(const Peer& peer, bool multipath) {
        const std::lock_guard guard(mutex_);
        peers_.insert_or_assign(peer, multipath);
    }
    void erase(const Peer& peer) {
        const std::lock_guard guard(mutex_);
        peers_.erase(peer);
    }
    // Whether `peer` offers mp. Nothing: no connection manager has spoken to it.
    std::optional<bool> find(const Peer& peer) const {
        const std::lock_guard guard(mutex_);
        const auto found = peers_.find(peer);
        return found != peers_.end() ? std::optional(found->second) : std::nullopt;
    }

  private:
    mutable std::mutex mutex_;
    std::map<Peer, bool> peers_;
};

}  // namespace rove::verbs
