// SPDX-License-Identifier: Apache-2.0
// The waiting requests, which all transports handle alike; see backend.h.
#include "tent/engine/backend.h"

#include <algorithm>

#include "tent/engine/peer.h"
#include "tent/engine/task.h"

namespace rove::tent {

Reason Channel::why_nothing_moves() const {
    return Reason::kNoProgress;
}

void Backend::put(Waiting& request) {
    for (Waiting *one = intake_.empty() ? nullptr : intake_.take(), *next; one != nullptr; one = next) {
        next = one->next;
        take_in(*one);  // requests that were submitted earlier stay in front
    }
    take_in(request);
}

void Backend::take_in(Waiting& request) {
    Channel& channel = *static_cast<Task&>(request).peer->channel(transport_);
    channel.queues.put(request);
    activate(channel);
}

bool Backend::carry_at_once(Waiting& request, uint64_t now_ns) {
    auto& task = static_cast<Task&>(request);
    return task.peer->channel(transport_)->carry_at_once(task, now_ns);
}

void Backend::put_back(Waiting& request, Queued& slice, uint64_t now_ns) {
    Channel& channel = *static_cast<Task&>(request).peer->channel(transport_);
    channel.queues.put_back(request, slice, now_ns);
    activate(channel);
}

void Backend::activate(Channel& channel) {
    if (channel.active_) return;
    channel.active_ = true;
    active_.push_back(&channel);
}

void Backend::remove(Channel& channel) {
    std::erase(channels_, &channel);
    std::erase(active_, &channel);
}

Waiting* Backend::stuck(uint64_t before_ns) const {
    for (const Channel* channel : active_)
        if (Waiting* one = channel->queues.stuck(before_ns); one != nullptr) return one;
    return nullptr;
}

uint8_t Backend::collect(uint64_t now_ns) {
    for (Waiting *one = intake_.empty() ? nullptr : intake_.take(), *next; one != nullptr; one = next) {
        next = one->next;
        take_in(*one);
    }
    const bool promotes = now_ns - promoted_ns_ >= config_.promotion_interval_ns;
    if (promotes) promoted_ns_ = now_ns;
    uint8_t levels = 0;
    for (size_t i = 0; i < active_.size();) {
        Channel& channel = *active_[i];
        if (promotes) channel.queues.promote(now_ns);
        const uint8_t here = channel.levels();
        levels |= here;
        if (here != 0) {
            ++i;
            continue;
        }
        channel.active_ = false;
        active_[i] = active_.back();
        active_.pop_back();
    }
    return levels;
}

Channel::Dispatched Backend::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    Channel::Dispatched all;
    const size_t count = active_.size();
    if (++turn_ >= count) turn_ = 0;
    for (size_t i = 0, at = turn_; i < count; ++i) {
        const Channel::Dispatched one = active_[at]->dispatch(level, allowed, now_ns);
        all.moved |= one.moved;
        all.more |= one.more;
        if (++at == count) at = 0;
    }
    return all;
}

}  // namespace rove::tent
