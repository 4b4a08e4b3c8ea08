// SPDX-License-Identifier: Apache-2.0
// Multicast groups: which UD QPs have joined which group, by port. A lookup costs the same however many groups there
// are, and whoever receives a datagram visits the members of its own worker only.
//
// Control calls change the table while workers look groups up. A group is never changed: another one takes its place in
// its bucket's list by a store with release order, and it is freed after a grace period. So is a whole table, when
// there are more groups than buckets.
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
    MulticastGroup(uint16_t port, const wire::Gid& address) : port_(port), address_(address) {}
    MulticastGroup(const MulticastGroup& other)
        : port_(other.port_), address_(other.address_), by_worker_(other.by_worker_), count_(other.count_) {}

    const uint16_t port_;
    const wire::Gid address_;
    std::vector<std::vector<QueuePair*>> by_worker_;
    size_t count_ = 0;                            // of all workers
    std::atomic<MulticastGroup*> next_{nullptr};  // in the bucket's list
};

class MulticastGroups {
  public:
    explicit MulticastGroups(GracePeriod& grace = NoReaders::instance());
    ~MulticastGroups();

    // Control calls. They wait for a grace period: what they took out of sight is used by no worker any more.
    // False: the QP is a member already.
    bool attach(const wire::Gid& group, QueuePair& qp);
    // False: the QP is no member.
    bool detach(const wire::Gid& group, QueuePair& qp);

    // Any thread that the grace periods wait for, until its round ends. Null: nobody has joined.
    const MulticastGroup* find(uint16_t port, const wire::Gid& group) const {
        return find(*buckets_.load(std::memory_order_acquire), port, group);  // pairs with grow()
    }
    // Of control calls.
    size_t size() const { return size_; }

  private:
    using Buckets = std::vector<std::atomic<MulticastGroup*>>;
    static constexpr size_t kFirstBuckets = 64;  // a power of two, as all later ones

    static size_t bucket_of(const Buckets& buckets, uint16_t port, const wire::Gid& group);
    static MulticastGroup* find(const Buckets& buckets, uint16_t port, const wire::Gid& group);
    static void free_all(const Buckets* buckets);
    void replace(uint16_t port, const wire::Gid& group, MulticastGroup* by);
    void grow();

    GracePeriod& grace_;
    std::atomic<Buckets*> buckets_;
    std::mutex mutex_;  // among control calls, for what they change
    size_t size_ = 0;
};

}  // namespace rove::transport
