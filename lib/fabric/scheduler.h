// SPDX-License-Identifier: Apache-2.0
// Virtual time, and what happens when. Units: picoseconds.
//
// DESIGN NOTES
// 1. An event is a member of the object that it concerns, on the same cache line as what it touches first, and knows it
//    by its place in it. A link has two for all its packets (link.h), a host one. So as many are scheduled as the
//    network has busy parts, whatever is on its way.
// 2. Events at one time happen in the order in which they were scheduled.
// 3. What packets do happens within microseconds: such events stand in a wheel of buckets of a nanosecond, each a list
//    in order (new ones mostly go to its end), and a bitmap finds the next that is not empty. What lies beyond the
//    wheel (timers, slow or long links) stands in a heap and stays there; the next event is the earlier of both. With a
//    4-ary heap alone a hop in a network of 320 hosts took 1.5 times as long.
// 4. In a large network everything has left the near caches by its next turn, and an event is a chain of misses: link,
//    packet, route, port, next link. So the next five events are looked at in the meantime, each a step further: among
//    1024 hosts a hop takes half of the time. (Among 128 it takes longer, so a small network only has the next event
//    fetched.)
// 5. In a larger network more happens in a nanosecond, and lists would become long: the buckets become narrower, and
//    there are more of them, so that the wheel is as wide as before. Much happens at the same picosecond all the same,
//    where hosts that are alike begin together: so lists are linked both ways, and nobody walks through them. (To find
//    timers that were set anew took three fifths of the time among 8192 hosts.)
#pragma once

#include <vector>

#include "fabric/units.h"

namespace rove::fabric {

class Event {
  public:
    static constexpr uint32_t kForeseen = 5;

    // A call of `Method` of `object`.
    template <auto Method, class T>
    static Event of(T& object) {
        return {kind<Method, T>, &object};
    }
    // The same, and before it calls of `Foresee` with its place among the events to come: kForeseen - 1, ... 1. There
    // what it will touch is fetched, each piece where the one before has told its place. A hint: not every event is
    // foreseen, nor always by all calls, and what was foreseen may not happen.
    template <auto Method, auto Foresee, class T>
    static Event of(T& object) {
        return {foreseen_kind<Method, Foresee, T>, &object};
    }
    Event(const Event&) = delete;

  private:
    friend class Scheduler;
    static constexpr uint32_t kNowhere = UINT32_MAX, kWheel = 1u << 31;

    struct Kind {
        void (*call)(void*);
        void (*prefetch)(void*, uint32_t ahead);  // may be null
    };
    template <auto Method, class T>
    static void happen(void* self) {
        (static_cast<T*>(self)->*Method)();
    }
    template <auto Foresee, class T>
    static void prefetch(void* self, uint32_t ahead) {
        (static_cast<T*>(self)->*Foresee)(ahead);
    }
    template <auto Method, class T>
    static constexpr Kind kind{happen<Method, T>, nullptr};
    template <auto Method, auto Foresee, class T>
    static constexpr Kind foreseen_kind{happen<Method, T>, prefetch<Foresee, T>};

    Event(const Kind& kind, void* object)
        : kind_(&kind), offset_(static_cast<uint32_t>(reinterpret_cast<char*>(this) - static_cast<char*>(object))) {}
    void* object() const { return const_cast<char*>(reinterpret_cast<const char*>(this)) - offset_; }
    bool before(const Event& other) const { return time_ != other.time_ ? time_ < other.time_ : order_ < other.order_; }

    const Kind* kind_;
    Time time_ = 0;
    uint64_t order_ = 0;
    Event* next_ = nullptr;      // in the wheel's bucket
    Event* before_ = nullptr;    // ... meaningless in the first
    uint32_t place_ = kNowhere;  // index in the heap, or kWheel and the bucket, or nowhere: it is not scheduled
    const uint32_t offset_;      // in its object
};

class Scheduler {
  public:
    Time now() const { return now_; }

    // The event happens at `time`, and not when it was scheduled for before. A time that has passed is now.
    void schedule(Event& event, Time time);

    // How many bits a second all links together carry at most: the width of the buckets follows from it, and whether
    // events are foreseen.
    void expect(double bits_per_s);

    // Lets events happen until `end` has passed, or one of them has called stop(). Then it is `end`, or the time of
    // that one.
    void run_until(Time end);
    void stop() { stopped_ = true; }
    bool stopped() const { return stopped_; }

  private:
    static constexpr uint32_t kMaxBits = 10;  // 1024 ps: some four events in each where 320 hosts at 40 Gb/s are busy
    static constexpr uint32_t kMinBits = 3;
    static constexpr double kBitsPerBucket = 51.2e12 * 1.024e-9;  // of all links of such a network
    static constexpr double kForeseenBits = 150e12;               // a second: 1500 links of 100 Gb/s
    static constexpr uint32_t kWheelBits = 23;  // 8.4 us: a large frame at 10 Gb/s, and all cables of a data centre

    struct Bucket {
        Event* first = nullptr;
        Event* last = nullptr;  // meaningless, as is its time, when there is no first
        Time last_time = 0;
    };

    Event* earliest() const;
    // What comes after an event of the wheel, there; null where nothing is near.
    const Event* after(const Event& event) const;
    void prefetch(const Event& event) const;
    Event* earliest_in_wheel() const;
    void insert(Event& event);
    void insert_in_wheel(Event& event, uint32_t number);
    void remove_from_wheel(Event& event);
    void take_first(Event& event);
    void remove(Event& event);
    void put(Event& event, uint32_t at) {
        heap_[at] = &event;
        event.place_ = at;
    }
    void sift_up(Event& event, uint32_t at);
    void sift_down(Event& event, uint32_t at);

    Time now_ = 0;
    uint64_t sequence_ = 0;
    bool stopped_ = false;
    bool foresees_ = false;
    uint32_t in_wheel_ = 0;
    uint32_t bits_ = kMaxBits;                                                  // a bucket has 2^bits_ picoseconds
    uint32_t mask_ = (1u << (kWheelBits - kMaxBits)) - 1;                       // buckets less one
    std::vector<uint64_t> occupied_ = std::vector<uint64_t>((mask_ + 1) / 64);  // a bit for each bucket
    std::vector<Bucket> buckets_ = std::vector<Bucket>(mask_ + 1);
    std::vector<Event*> heap_;  // 4-ary
};

}  // namespace rove::fabric
