// SPDX-License-Identifier: Apache-2.0
// Multicast groups: which UD QPs have joined which group, by port. A lookup costs the same however many groups there
// are, and whoever receives a datagram visits the members of its own worker only.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "wire/frame.h"

namespace rove::transport {

struct QueuePair;

// Of a port.
class MulticastGroup {
  public:
    // The members that belong to `worker`, in the order in which they joined.
    const std::vector<QueuePair*>& members(uint16_t worker) const {
        static const std::vector<QueuePair*> kNone;
        return worker < by_worker_.size() ? by_worker_[worker] : kNone;
    }

  private:
    friend class MulticastGroups;
    std::vector<std::vector<QueuePair*>> by_worker_;
    size_t count_ = 0;
};

// Written by control calls while no worker runs (QueuePairTable::groups()).
class MulticastGroups {
  public:
    // False: the QP is a member already.
    bool attach(const wire::Gid& group, QueuePair& qp);
    // False: the QP is no member.
    bool detach(const wire::Gid& group, QueuePair& qp);
    // Null: nobody has joined.
    const MulticastGroup* find(uint16_t port, const wire::Gid& group) const {
        const auto found = groups_.find(Key{group, port});
        return found == groups_.end() ? nullptr : &found->second;
    }
    size_t size() const { return groups_.size(); }

  private:
    struct Key {
        wire::Gid group;
        uint16_t port;
        bool operator==(const Key&) const = default;
    };
    // Only our own program adds groups, so that the hash need not be unpredictable.
    struct Hash {
        size_t operator()(const Key& key) const {
            uint64_t words[2];
            std::memcpy(words, key.group.data(), sizeof words);
            return static_cast<size_t>((words[0] ^ (words[1] + key.port)) * 0x9E3779B97F4A7C15ULL >> 16);
        }
    };
    std::unordered_map<Key, MulticastGroup, Hash> groups_;
};

}  // namespace rove::transport
