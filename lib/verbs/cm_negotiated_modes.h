// SPDX-License-Identifier: Apache-2.0
// The modes (rc or mp) that connection managers have negotiated with their peers by ECE in REQ and REP. The QPs that
// they connect need no HELLO. A QP finds its peer by address, QP number and first PSN, so a forged REQ would also have
// to name the PSN that another QP expects. Any thread may call any function.
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
    // Records the mode of `peer`. The map has one entry for each of the connection manager's connections.
    void insert(const Peer& peer, bool multipath) {
        const std::lock_guard guard(mutex_);
        peers_.insert_or_assign(peer, multipath);
    }
    void erase(const Peer& peer) {
        const std::lock_guard guard(mutex_);
        peers_.erase(peer);
    }
    // Returns true if `peer` offers mp, false if it does not, or nothing if no connection manager has negotiated with
    // it.
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
