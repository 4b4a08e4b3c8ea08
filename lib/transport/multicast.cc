// SPDX-License-Identifier: Apache-2.0
// Joining and leaving multicast groups.
#include "transport/multicast.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/queue_pair.h"

namespace rove::transport {

MulticastGroups::MulticastGroups(GracePeriod& grace) : grace_(grace), buckets_(new Buckets(kFirstBuckets)) {}

MulticastGroups::~MulticastGroups() {
    free_all(buckets_.load(std::memory_order_relaxed));
}

// Only our own program adds groups, so the hash need not be unpredictable.
size_t MulticastGroups::bucket_of(const Buckets& buckets, uint16_t port, const wire::Gid& group) {
    uint64_t words[2];
    std::memcpy(words, group.data(), sizeof words);
    const uint64_t mixed = (words[0] ^ (words[1] + port)) * 0x9E3779B97F4A7C15ULL;
    return static_cast<size_t>(mixed >> 32) & (buckets.size() - 1);
}

MulticastGroup* MulticastGroups::find(const Buckets& buckets, uint16_t port, const wire::Gid& group) {
    // Acquire, here and below, pairs with replace().
    MulticastGroup* at = buckets[bucket_of(buckets, port, group)].load(std::memory_order_acquire);
    while (at != nullptr && (at->port_ != port || at->address_ != group))
        at = at->next_.load(std::memory_order_acquire);
    return at;
}

void MulticastGroups::free_all(const Buckets* buckets) {
    for (const auto& bucket : *buckets) {
        for (MulticastGroup* group = bucket.load(std::memory_order_relaxed); group != nullptr;)
            delete std::exchange(group, group->next_.load(std::memory_order_relaxed));
    }
    delete buckets;
}

// Replaces the group by `by`, or removes it if that is null. A new group is appended to the list.
void MulticastGroups::replace(uint16_t port, const wire::Gid& group, MulticastGroup* by) {
    Buckets& buckets = *buckets_.load(std::memory_order_relaxed);
    std::atomic<MulticastGroup*>* link = &buckets[bucket_of(buckets, port, group)];
    MulticastGroup* before = link->load(std::memory_order_relaxed);
    while (before != nullptr && (before->port_ != port || before->address_ != group)) {
        link = &before->next_;
        before = link->load(std::memory_order_relaxed);
    }
    MulticastGroup* const after = before != nullptr ? before->next_.load(std::memory_order_relaxed) : nullptr;
    if (by != nullptr) by->next_.store(after, std::memory_order_relaxed);
    link->store(by != nullptr ? by : after, std::memory_order_release);
    if (before == nullptr) return;
    grace_.wait();
    delete before;
}

void MulticastGroups::grow() {
    Buckets* const before = buckets_.load(std::memory_order_relaxed);
    auto* const after = new Buckets(before->size() * 2);
    for (const auto& bucket : *before) {
        for (const MulticastGroup* group = bucket.load(std::memory_order_relaxed); group != nullptr;
             group = group->next_.load(std::memory_order_relaxed)) {
            auto* const copy = new MulticastGroup(*group);
            std::atomic<MulticastGroup*>& first = (*after)[bucket_of(*after, copy->port_, copy->address_)];
            copy->next_.store(first.load(std::memory_order_relaxed), std::memory_order_relaxed);
            first.store(copy, std::memory_order_relaxed);
        }
    }
    buckets_.store(after, std::memory_order_release);
    grace_.wait();
    free_all(before);
}

bool MulticastGroups::attach(const wire::Gid& group, QueuePair& qp) {
    const std::lock_guard lock(mutex_);
    const MulticastGroup* const before = find(qp.port, group);
    if (before != nullptr) {
        const std::vector<QueuePair*>& members = before->members(qp.worker);
        if (std::find(members.begin(), members.end(), &qp) != members.end()) return false;
    }
    auto* const joined = before != nullptr ? new MulticastGroup(*before) : new MulticastGroup(qp.port, group);
    if (joined->by_worker_.size() <= qp.worker) joined->by_worker_.resize(qp.worker + size_t{1});
    joined->by_worker_[qp.worker].push_back(&qp);
    ++joined->count_;
    replace(qp.port, group, joined);
    if (before == nullptr && ++size_ > buckets_.load(std::memory_order_relaxed)->size()) grow();
    return true;
}

bool MulticastGroups::detach(const wire::Gid& group, QueuePair& qp) {
    const std::lock_guard lock(mutex_);
    const MulticastGroup* const before = find(qp.port, group);
    if (before == nullptr) return false;
    const std::vector<QueuePair*>& members = before->members(qp.worker);
    if (std::find(members.begin(), members.end(), &qp) == members.end()) return false;
    if (before->count_ == 1) {
        replace(qp.port, group, nullptr);
        --size_;
        return true;
    }
    auto* const left = new MulticastGroup(*before);
    std::erase(left->by_worker_[qp.worker], &qp);
    --left->count_;
    replace(qp.port, group, left);
    return true;
}

}  // namespace rove::transport
