// SPDX-License-Identifier: Apache-2.0
#include "fabric/scheduler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace rove::fabric {

namespace {

// Prefetches an event and the memory behind it in its object. With this a hop among 320 hosts takes four fifths of the
// time.
void prefetch(const Event& event) {
    const auto* const at = reinterpret_cast<const char*>(&event);
    for (int line = 0; line < 3; ++line) __builtin_prefetch(at + line * 64);
}

}  // namespace

void Scheduler::schedule(Event& event, Time time) {
    if (event.place_ != Event::kNowhere) remove(event);
    event.time_ = std::max(time, now_);
    event.order_ = sequence_++;
    insert(event);
}

inline void Scheduler::insert(Event& event) {
    const uint64_t bucket = event.time_ >> bits_;
    if (bucket - (now_ >> bits_) <= mask_) {
        insert_in_wheel(event, static_cast<uint32_t>(bucket) & mask_);
    } else {
        heap_.push_back(&event);
        sift_up(event, static_cast<uint32_t>(heap_.size() - 1));
    }
}

void Scheduler::expect(double bits_per_s) {
    foresees_ = bits_per_s > kForeseenBits;
    uint32_t bits = kMaxBits;
    while (bits > kMinBits && std::ldexp(bits_per_s * 1e-12, static_cast<int>(bits)) > kBitsPerBucket) --bits;
    if (bits == bits_) return;
    std::vector<Event*> events;  // in their order
    while (in_wheel_ != 0) {
        events.push_back(earliest_in_wheel());
        remove_from_wheel(*events.back());
    }
    bits_ = bits;
    mask_ = (1u << (kWheelBits - bits)) - 1;
    occupied_.assign((mask_ + 1) / 64, 0);
    buckets_.assign(mask_ + 1, Bucket{});
    for (Event* event : events) insert(*event);
}

void Scheduler::run_until(Time end) {
    stopped_ = false;
    for (Event* event; (event = earliest()) != nullptr && event->time_ <= end;) {
        if ((event->place_ & Event::kWheel) != 0) {
            if (foresees_) prefetch(*event);
            take_first(*event);
        } else {
            remove(*event);
        }
        if (!foresees_ && event->next_ != nullptr) prefetch(*event->next_);
        now_ = event->time_;
        event->kind_->call(event->object());
        if (stopped_) return;
    }
    now_ = std::max(now_, end);
}

void Scheduler::prefetch(const Event& event) const {
    std::array<const Event*, Event::kForeseen> events;
    uint32_t count = 0;
    for (const Event* next = &event; count < Event::kForeseen && (next = after(*next)) != nullptr; ++count)
        events[count] = next;
    for (uint32_t i = 0; i < count; ++i) {
        const Event& coming = *events[i];
        if (i + 1 == Event::kForeseen) {
            __builtin_prefetch(&coming);
        } else if (coming.kind_->prefetch != nullptr) {
            coming.kind_->prefetch(coming.object(), i + 1);
        }
    }
}

inline const Event* Scheduler::after(const Event& event) const {
    if (event.next_ != nullptr) return event.next_;
    constexpr uint32_t kNear = 4;  // words of 64 buckets
    const uint32_t number = (event.place_ & ~Event::kWheel) + 1, last = mask_ / 64;
    uint32_t word = number / 64 & last;
    uint64_t bits = occupied_[word] & ~uint64_t{0} << number % 64;
    for (uint32_t tried = 1; bits == 0; ++tried) {
        if (tried == kNear) return nullptr;
        word = (word + 1) & last;
        bits = occupied_[word];
    }
    return buckets_[word * 64 + static_cast<size_t>(std::countr_zero(bits))].first;
}

Event* Scheduler::earliest() const {
    if (in_wheel_ == 0) return heap_.empty() ? nullptr : heap_.front();
    Event* const near = earliest_in_wheel();
    return !heap_.empty() && heap_.front()->before(*near) ? heap_.front() : near;
}

void Scheduler::remove(Event& event) {
    if ((event.place_ & Event::kWheel) != 0) {
        remove_from_wheel(event);
    } else {
        Event& last = *heap_.back();
        heap_.pop_back();
        if (&last != &event) {
            if (last.before(event)) {
                sift_up(last, event.place_);
            } else {
                sift_down(last, event.place_);
            }
        }
    }
    event.place_ = Event::kNowhere;
}

// Returns the first event. All events of the wheel are within one lap from the present bucket.
Event* Scheduler::earliest_in_wheel() const {
    const uint32_t bucket = static_cast<uint32_t>(now_ >> bits_) & mask_;
    const uint64_t* const occupied = occupied_.data();
    const uint32_t last = mask_ / 64;
    uint32_t word = bucket / 64;
    uint64_t bits = occupied[word] & ~uint64_t{0} << bucket % 64;
    while (bits == 0) {
        word = (word + 1) & last;
        bits = occupied[word];
    }
    return buckets_[word * 64 + static_cast<size_t>(std::countr_zero(bits))].first;
}

void Scheduler::insert_in_wheel(Event& event, uint32_t number) {
    Bucket& bucket = buckets_[number];
    occupied_[number / 64] |= uint64_t{1} << number % 64;
    event.place_ = Event::kWheel | number;
    ++in_wheel_;
    if (bucket.first != nullptr && bucket.last_time > event.time_) {
        Event* behind = bucket.last;
        while (behind != bucket.first && behind->before_->time_ > event.time_) behind = behind->before_;
        event.next_ = behind;
        event.before_ = behind->before_;
        (behind == bucket.first ? bucket.first : behind->before_->next_) = &event;
        behind->before_ = &event;
        return;
    }
    // The usual case touches no other event. Events of other links are in no near cache.
    (bucket.first == nullptr ? bucket.first : bucket.last->next_) = &event;
    event.before_ = bucket.last;
    bucket.last = &event;
    bucket.last_time = event.time_;
    event.next_ = nullptr;
}

void Scheduler::remove_from_wheel(Event& event) {
    const uint32_t number = event.place_ & ~Event::kWheel;
    Bucket& bucket = buckets_[number];
    Event* const before = &event == bucket.first ? nullptr : event.before_;
    (before == nullptr ? bucket.first : before->next_) = event.next_;
    if (event.next_ != nullptr) {
        event.next_->before_ = before;
    } else if (before != nullptr) {
        bucket.last = before;
        bucket.last_time = before->time_;
    }
    if (bucket.first == nullptr) occupied_[number / 64] &= ~(uint64_t{1} << number % 64);
    --in_wheel_;
}

// Does the same as remove_from_wheel() for the first event of a bucket.
inline void Scheduler::take_first(Event& event) {
    const uint32_t number = event.place_ & ~Event::kWheel;
    buckets_[number].first = event.next_;
    if (event.next_ == nullptr) occupied_[number / 64] &= ~(uint64_t{1} << number % 64);
    --in_wheel_;
    event.place_ = Event::kNowhere;
}

void Scheduler::sift_up(Event& event, uint32_t at) {
    while (at != 0) {
        const uint32_t parent = (at - 1) / 4;
        if (!event.before(*heap_[parent])) break;
        put(*heap_[parent], at);
        at = parent;
    }
    put(event, at);
}

void Scheduler::sift_down(Event& event, uint32_t at) {
    const auto size = static_cast<uint32_t>(heap_.size());
    for (uint32_t first; (first = 4 * at + 1) < size;) {
        const uint32_t end = std::min(first + 4, size);
        uint32_t least = first;
        for (uint32_t child = first + 1; child < end; ++child) {
            if (heap_[child]->before(*heap_[least])) least = child;
        }
        if (!heap_[least]->before(event)) break;
        put(*heap_[least], at);
        at = least;
    }
    put(event, at);
}

}  // namespace rove::fabric
