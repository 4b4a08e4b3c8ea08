// SPDX-License-Identifier: Apache-2.0
// Tests the order of events: near and far, scheduled once and again.
#include "fabric/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "support/random.h"

namespace rove::fabric {
namespace {

struct Ticker {
    Ticker(std::vector<int>& log, int name) : log(log), name(name) {}
    void tick() { log.push_back(name); }
    std::vector<int>& log;
    int name;
    Event event = Event::of<&Ticker::tick>(*this);
};

struct Order : ::testing::Test {
    Scheduler events;
    std::vector<int> log;
    Ticker a{log, 1}, b{log, 2}, c{log, 3};
};

TEST_F(Order, equal_times_in_the_order_of_scheduling) {
    events.schedule(b.event, 500);
    events.schedule(a.event, 500);
    events.schedule(c.event, 499);
    events.run_until(500);
    EXPECT_EQ(log, (std::vector{3, 2, 1}));
    EXPECT_EQ(events.now(), 500u);
}

TEST_F(Order, equal_times_near_and_far) {
    const Time far = 50 * kMicrosecond;
    events.schedule(b.event, far);  // beyond the wheel
    events.run_until(far - kNanosecond);
    events.schedule(a.event, far);
    events.schedule(c.event, far);
    events.run_until(far);
    EXPECT_EQ(log, (std::vector{2, 1, 3}));
}

TEST_F(Order, at_the_edge_of_the_wheel) {
    constexpr Time kLap = 8192 * 1024;
    for (const Time start : {Time{0}, Time{1023}, Time{5000}}) {
        for (const Time edge : {kLap - 1024, kLap - 1, kLap, kLap + 1, kLap + 1023, kLap + 1024}) {
            Scheduler scheduler;
            scheduler.run_until(start);
            log.clear();
            Ticker first(log, 1), second(log, 2);
            scheduler.schedule(second.event, start + edge);
            scheduler.schedule(first.event, start + kLap / 2);
            scheduler.run_until(kSecond);
            EXPECT_EQ(log, (std::vector{1, 2})) << start << " + " << edge;
        }
    }
}

TEST_F(Order, an_event_happens_once_and_at_its_last_time) {
    events.schedule(a.event, 100);
    events.schedule(a.event, kSecond);
    events.schedule(b.event, kSecond);
    events.schedule(b.event, 200);
    events.schedule(c.event, 300);
    events.schedule(c.event, 150);
    events.run_until(400);
    EXPECT_EQ(log, (std::vector{3, 2}));
    events.run_until(2 * kSecond);
    EXPECT_EQ(log, (std::vector{3, 2, 1}));
}

TEST_F(Order, the_end_is_included_and_the_clock_stands_at_it) {
    events.schedule(a.event, 100);
    events.schedule(b.event, 101);
    events.run_until(100);
    EXPECT_EQ(log, (std::vector{1}));
    events.run_until(100);
    events.schedule(c.event, 5);  // in the past, so it happens now
    events.run_until(100);
    EXPECT_EQ(log, (std::vector{1, 3}));
    EXPECT_EQ(events.now(), 100u);
}

// Compares the scheduler with a sorted map. Times range from picoseconds to seconds ahead, and many are equal. Events
// schedule themselves and others.
struct Model {
    struct Actor {
        explicit Actor(Model& model) : model(model) {}
        void act() { model.happened(*this); }
        Model& model;
        Event event = Event::of<&Actor::act>(*this);
        std::pair<Time, uint64_t> key{};
        bool scheduled = false;
    };

    explicit Model(uint64_t seed) : random(seed) {
        for (int i = 0; i < 300; ++i) actors.emplace_back(*this);
    }
    void schedule(Actor& actor) {
        const Time ahead = random.pick<Time>(0, 1, 1000, 1024, 80'000, kMicrosecond, 9 * kMicrosecond, kMillisecond) *
                           random.pick<Time>(1, 1, 2, random.below(10));
        if (actor.scheduled) expected.erase(actor.key);
        actor.key = {events.now() + ahead, order++};
        actor.scheduled = true;
        expected.emplace(actor.key, &actor);
        events.schedule(actor.event, events.now() + ahead);
    }
    void happened(Actor& actor) {
        ASSERT_FALSE(expected.empty());
        ASSERT_EQ(expected.begin()->second, &actor) << "after " << count << " events";
        ASSERT_EQ(expected.begin()->first.first, events.now());
        expected.erase(expected.begin());
        actor.scheduled = false;
        if (++count > 20'000) return;
        if (count == change_at) events.expect(1e15);
        if (random.chance(0.9)) schedule(actor);
        if (random.chance(0.3)) schedule(actors[random.below(actors.size())]);
    }

    test::Random random;
    Scheduler events;
    std::deque<Actor> actors;
    std::map<std::pair<Time, uint64_t>, Actor*> expected;
    uint64_t order = 0, count = 0, change_at = 0;
};

TEST(SchedulerModel, behaves_as_a_sorted_map) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        Model model(seed);
        // Uses buckets of 1024, 64 and 8 picoseconds, and also a size that changes in the middle of the run.
        if (seed % 4 != 0) model.events.expect(seed % 4 == 1 ? 1e15 : 1e18);
        if (seed % 4 == 3) model.change_at = 5'000;
        for (auto& actor : model.actors) model.schedule(actor);
        model.events.run_until(1000 * kSecond);
        EXPECT_TRUE(model.expected.empty());
        EXPECT_GT(model.count, 300u);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace rove::fabric
