// SPDX-License-Identifier: Apache-2.0
// Virtual time and the events in it. Units: picoseconds.
//
// DESIGN NOTES
// 1. An event is a member of the object that it concerns, on the cache line that the object's handler touches first,
//    and finds the object by its own offset in it. A link has two events for all its packets (link.h), a host has one.
//    The number of scheduled events is therefore the number of busy parts, however many packets are in flight.
// 2. Events at the same time happen in the order in which they were scheduled.
// 3. Packets cause events within microseconds. These are in a wheel of buckets of one nanosecond, each a list in order
//    (a new event mostly goes to the end), and a bitmap finds the next bucket that is not empty. Events beyond the
//    wheel (timers, slow or long links) are in a heap and stay there; the next event is the earlier of the two. With
//    only a 4-ary heap, a hop in a network of 320 hosts took 1.5 times as long.
// 4. In a large network every object has left the near caches before its next event, and an event is a chain of misses:
//    link, packet, route, port, next link. The next five events are therefore prefetched meanwhile, each one step
//    further than the one behind it. Among 1024 hosts a hop then takes half the time. Among 128 hosts it takes longer,
//    so in a small network only the next event is prefetched.
// 5. In a larger network more events fall into a nanosecond, and the lists would become long. The buckets become
//    narrower and more numerous, so that the wheel spans the same time. Many events may still have the same picosecond,
//    where identical hosts start together; so the lists are doubly linked and nothing walks through them. (The search
//    for rescheduled timers took three fifths of the time among 8192 hosts.)
#pragma once

#include <vector>

#include "fabric/units.h"

namespace rove::fabric {

class Event {
  public:
    static constexpr uint32_t kForeseen = 5;

    // Makes an event that calls `Method` of `object`.
    template <auto Method, class T>
    static Event of(T& object) {
        return {kind<Method, T>, &object};
    }
    // Makes an event that calls `Method`, and before that `Foresee` with the event's distance from the present:
    // kForeseen - 1, ..., 1. `Foresee` prefetches the memory that the event will touch, one pointer further at each
    // call. It is a hint: some events get no such call or not all of them, and an event that was foreseen may not
    // happen.
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
    Event* next_ = nullptr;    // in the bucket of the wheel
    Event* before_ = nullptr;  // meaningless in the first event of a bucket
    // Index in the heap, or kWheel and the bucket, or kNowhere if the event is not scheduled.
    uint32_t place_ = kNowhere;
    const uint32_t offset_;  // within its object
};

class Scheduler {
  public:
    Time now() const { return now_; }

    // Schedules the event at `time` and cancels its earlier time, if it had one. A time in the past means now.
    void schedule(Event& event, Time time);

    // Sets the total capacity of all links. The width of the buckets and the depth of prefetching follow from it.
    void expect(double bits_per_s);

    // Runs events until `end` has passed or an event calls stop(). Afterwards the time is `end`, or that of the event
    // which stopped the run.
    void run_until(Time end);
    void stop() { stopped_ = true; }
    bool stopped() const { return stopped_; }

  private:
    // 1024 ps: about four events in each bucket where 320 hosts at 40 Gb/s are busy.
    static constexpr uint32_t kMaxBits = 10;
    static constexpr uint32_t kMinBits = 3;
    static constexpr double kBitsPerBucket = 51.2e12 * 1.024e-9;  // the capacity of all links of such a network
    static constexpr double kForeseenBits = 150e12;               // per second: 1500 links of 100 Gb/s
    static constexpr uint32_t kWheelBits = 23;  // 8.4 us: a large frame at 10 Gb/s, and every cable of a data centre

    struct Bucket {
        Event* first = nullptr;
        Event* last = nullptr;  // meaningless, with last_time, if `first` is null
        Time last_time = 0;
    };

    Event* earliest() const;
    // Returns the event behind `event` in the wheel, or null if none is near.
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
    uint32_t bits_ = kMaxBits;                                                  // a bucket spans 2^bits_ picoseconds
    uint32_t mask_ = (1u << (kWheelBits - kMaxBits)) - 1;                       // the number of buckets less one
    std::vector<uint64_t> occupied_ = std::vector<uint64_t>((mask_ + 1) / 64);  // a bit per bucket
    std::vector<Bucket> buckets_ = std::vector<Bucket>(mask_ + 1);
    std::vector<Event*> heap_;  // 4-ary
};

}  // namespace rove::fabric
