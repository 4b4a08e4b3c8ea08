// SPDX-License-Identifier: Apache-2.0
// Multicast groups: the UD QPs that have joined each group, by port. A look-up costs the same for any number of groups,
// and a worker that receives a datagram visits its own members only.
//
// Control calls change the table while workers look groups up. A group never changes: a store with release order
// replaces it by another in its bucket's list, and it is freed after a grace period. A whole table is replaced likewise
// when there are more groups than buckets.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/quiescence.h"
#include "wire/frame.h"

namespace rove::transport {

struct QueuePair;

// A group of a port.
class MulticastGroup {
  public:
    // Returns the members that belong to `worker`, in the order in which they joined.
    const std::vector<QueuePair*>& members(uint16_t worker) const {
        static const std::vector<QueuePair*> kNone;
        return worker < by_worker_.size() ? by_worker_[worker] : kNone;
    }

  private:
    friend class MulticastGroups;
    MulticastGroup(uint16_t port, const wire::Gid& address) : port_(port), address_(address) {}
    MulticastGroup(const MulticastGroup& other)
        : port_(other.port_), address_(other.address_), by_worker_(other.by_worker_), count_(other.count_) {}

    const uint16_t port_;
    const wire::Gid address_;
    std::vector<std::vector<QueuePair*>> by_worker_;
    size_t count_ = 0;                            // members of all workers
    std::atomic<MulticastGroup*> next_{nullptr};  // in the bucket's list
};

class MulticastGroups {
  public:
    explicit MulticastGroups(GracePeriod& grace = NoReaders::instance());
    ~MulticastGroups();

    // Control calls. They wait for a grace period, after which no worker uses the removed memory. Returns false if the
    // QP is a member already.
    bool attach(const wire::Gid& group, QueuePair& qp);
    // Returns false if the QP is not a member.
    bool detach(const wire::Gid& group, QueuePair& qp);

    // Returns the group, or null without members. Called by any thread that the grace periods wait for; valid until its
    // round ends.
    const MulticastGroup* find(uint16_t port, const wire::Gid& group) const {
        return find(*buckets_.load(std::memory_order_acquire), port, group);  // pairs with grow()
    }
    // For control calls.
    size_t size() const { return size_; }

  private:
    using Buckets = std::vector<std::atomic<MulticastGroup*>>;
    static constexpr size_t kFirstBuckets = 64;  // a power of two, like all later sizes

    static size_t bucket_of(const Buckets& buckets, uint16_t port, const wire::Gid& group);
    static MulticastGroup* find(const Buckets& buckets, uint16_t port, const wire::Gid& group);
    static void free_all(const Buckets* buckets);
    void replace(uint16_t port, const wire::Gid& group, MulticastGroup* by);
    void grow();

    GracePeriod& grace_;
    std::atomic<Buckets*> buckets_;
    std::mutex mutex_;  // among control calls, for their changes
    size_t size_ = 0;
};

}  // namespace rove::transport
