// SPDX-License-Identifier: Apache-2.0
// Runs the device selector in a closed loop, in virtual time: the estimates change the choices, and the choices change
// the estimates. Rails serve their slices one after the other, or the slices of a few QPs at the same time, at rates
// that change.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "short_names.h"
#include "tent/placement/device_selector.h"
#include "tent/placement/slicing.h"

namespace rove::tent {
namespace {

constexpr uint64_t kStepNs = 5'000;
constexpr double kGBps = 1e9;

enum class Rule { kDocumented, kDeliveryRate };

// The parameters of a run.
struct Load {
    uint64_t request_bytes = 64 << 20;
    uint32_t requests = 1;             // in flight at the same time
    bool one_by_one = false;           // every slice is allocated alone, like small requests
    uint64_t posted_per_rail = ~0ull;  // in bytes; the rest waits in the engine for its rail
    uint32_t qps = 1;                  // per rail, served in turn
    uint64_t small_bytes = 0;          // size of small requests, of which one at a time also runs
    bool steal = false;                // slices that wait for a rail move to another rail that would finish them sooner
    bool single = false;               // each request is one slice, of any length
    Rule rule = Rule::kDeliveryRate;
};

class World {
  public:
    World(std::vector<double> rates, const Load& load, SelectorConfig config = {})
        : load_(load), rails_(rates.size()), selector_(devices(rates), wide(config)) {
        for (size_t i = 0; i < rates.size(); ++i) rails_[i].rate = rates[i];
    }
    void set_rate(size_t rail, double bytes_per_s) { rails_[rail].rate = bytes_per_s; }

    // Runs until `end_ns`, and returns the bytes that each rail completed in that time.
    std::vector<double> run_until(uint64_t end_ns) {
        std::vector<double> before;
        for (const Rail& rail : rails_) before.push_back(rail.completed);
        for (; now_ < end_ns; now_ += kStepNs) {
            while (large_under_way_ < load_.requests) submit(load_.request_bytes, false);
            if (load_.small_bytes > 0 && small_under_way_ == 0) submit(load_.small_bytes, true);
            for (uint8_t i = 0; i < rails_.size(); ++i) {
                post(i);
                serve(i);
            }
        }
        for (size_t i = 0; i < rails_.size(); ++i) before[i] = rails_[i].completed - before[i];
        return before;
    }
    double throughput(uint64_t duration_ns) {
        const uint64_t start = now_;
        double sum = 0;
        for (const double bytes : run_until(start + duration_ns)) sum += bytes;
        return sum * 1e9 / static_cast<double>(now_ - start);
    }
    const DeviceSelector& selector() const { return selector_; }

  private:
    struct Slice {
        uint64_t bytes;
        double left;
        PostMark mark;
        size_t request;
    };
    struct Rail {
        double rate = 0;
        double completed = 0;
        uint64_t posted_bytes = 0;
        std::deque<Slice> waiting;
        std::deque<Slice> posted;
    };
    struct Request {
        uint32_t slices_left = 0;
        bool small = false;
    };

    static std::vector<Device> devices(const std::vector<double>& rates) {
        std::vector<Device> made;
        for (const double rate : rates)
            made.push_back({.name = std::to_string(made.size()), .bandwidth_bytes_per_s = rate});
        return made;
    }
    static SelectorConfig wide(SelectorConfig config) {
        config.min_bandwidth_gbps = 0.1;
        return config;
    }

    uint32_t& under_way(bool small) { return small ? small_under_way_ : large_under_way_; }
    void submit(uint64_t bytes, bool small) {
        const SlicePlan plan = plan_slices(bytes, load_.single ? 1 : kMaxReadSlices, 65'536);
        std::vector<uint64_t> lengths;
        for (uint32_t i = 0; i < plan.count; ++i) lengths.push_back(plan.bytes(i));
        std::vector<uint8_t> chosen(plan.count);
        const size_t step = load_.one_by_one ? 1 : plan.count;
        for (size_t at = 0; at < plan.count; at += step)
            EXPECT_TRUE(selector_
                            .allocate(std::span(lengths).subspan(at, step), -1, DeviceSelector::kAllDevices,
                                      Priority::kHigh, now_, std::span(chosen).subspan(at, step))
                            .ok());
        size_t id = 0;
        while (id < requests_.size() && requests_[id].slices_left > 0) ++id;
        if (id == requests_.size()) requests_.emplace_back();
        requests_[id] = {.slices_left = plan.count, .small = small};
        for (size_t i = 0; i < plan.count; ++i) {
            Slice slice{.bytes = lengths[i], .left = static_cast<double>(lengths[i]), .mark = {}, .request = id};
            auto& waiting = rails_[chosen[i]].waiting;
            small ? waiting.push_front(slice) : waiting.push_back(slice);  // HIGH before LOW
        }
        ++under_way(small);
    }
    void post(uint8_t id) {
        Rail& rail = rails_[id];
        if (load_.steal) steal(id);
        while (!rail.waiting.empty() && (rail.posted.empty() || rail.posted_bytes < load_.posted_per_rail)) {
            Slice slice = rail.waiting.front();
            rail.waiting.pop_front();
            slice.mark = selector_.post(id, now_);
            rail.posted_bytes += slice.bytes;
            rail.posted.push_back(slice);
        }
    }
    double predicted_s(uint8_t id, uint64_t bytes) const {
        const DeviceLoad load = selector_.load()[id];
        return static_cast<double>(load.inflight_bytes + bytes) / load.ewma_bandwidth;
    }
    // A rail with room takes over slices that another rail would send later.
    void steal(uint8_t to) {
        while (rails_[to].waiting.empty() && rails_[to].posted_bytes < load_.posted_per_rail) {
            uint8_t from = to;
            for (uint8_t i = 0; i < rails_.size(); ++i)
                if (!rails_[i].waiting.empty() && (from == to || predicted_s(i, 0) > predicted_s(from, 0))) from = i;
            if (from == to) return;
            const Slice slice = rails_[from].waiting.back();
            if (predicted_s(to, slice.bytes) >= predicted_s(from, 0)) return;
            rails_[from].waiting.pop_back();
            rails_[to].waiting.push_back(slice);
            selector_.charge(to, slice.bytes);
            selector_.release(from, slice.bytes);
        }
    }
    // Runs one step of a rail. The first `qps` slices share its rate.
    void serve(uint8_t id) {
        Rail& rail = rails_[id];
        double left = rail.rate * static_cast<double>(kStepNs) / 1e9;
        const double all = left;
        while (left > 1e-6 && !rail.posted.empty()) {
            const size_t served = std::min<size_t>(load_.qps, rail.posted.size());
            double least = left / static_cast<double>(served);
            for (size_t i = 0; i < served; ++i) least = std::min(least, rail.posted[i].left);
            for (size_t i = 0; i < served; ++i) rail.posted[i].left -= least;
            left -= least * static_cast<double>(served);
            const uint64_t at = now_ + static_cast<uint64_t>((all - left) / rail.rate * 1e9);
            for (size_t i = served; i-- > 0;)
                if (rail.posted[i].left <= 1e-6) complete(id, i, at + kLatencyNs);
        }
    }
    void complete(uint8_t id, size_t index, uint64_t at_ns) {
        Rail& rail = rails_[id];
        Slice slice = rail.posted[index];
        rail.posted.erase(rail.posted.begin() + static_cast<ptrdiff_t>(index));
        rail.posted_bytes -= slice.bytes;
        rail.completed += static_cast<double>(slice.bytes);
        if (load_.rule == Rule::kDocumented) slice.mark.completed_bytes = selector_.completed_bytes(id);
        selector_.complete(id, slice.bytes, slice.mark, at_ns);
        Request& request = requests_[slice.request];
        if (--request.slices_left == 0) --under_way(request.small);
    }

    static constexpr uint64_t kLatencyNs = 10'000;  // from the last byte to the completion
    Load load_;
    std::vector<Rail> rails_;
    std::vector<Request> requests_;
    DeviceSelector selector_;
    uint64_t now_ = 0;
    uint32_t large_under_way_ = 0, small_under_way_ = 0;
};

constexpr double kFast = 4 * kGBps, kSlow = 1 * kGBps;

// Returns the steady throughput of a load, as a fraction of the sum of the rates.
double steady(const Load& load) {
    World world({kFast, kFast}, load);  // both links report the same rate; the real rates are 4 : 1
    world.set_rate(1, kSlow);
    world.throughput(300 * kMs);
    return world.throughput(1'000 * kMs) / (kFast + kSlow);
}

constexpr Load kSerial{};
constexpr Load kSerialSmall{.request_bytes = 4 << 20};
constexpr Load kFourRequests{.requests = 4};
constexpr Load kManyRequests{.request_bytes = 4 << 20, .requests = 16};
constexpr Load kFourQps{.qps = 4};
constexpr Load kOneByOne{.one_by_one = true};
constexpr Load kSingleSlices{.request_bytes = 65'536, .requests = 16, .one_by_one = true};

TEST(SelectorLoop, T3_DocumentedObservationSwingsWhereSlicesArePostedTogether) {
    for (Load load : {kSerial, kSerialSmall, kFourQps, kOneByOne}) {
        load.rule = Rule::kDocumented;
        EXPECT_LT(steady(load), 0.5);  // twice the slow rail would be 0.4
        load.rule = Rule::kDeliveryRate;
        EXPECT_GT(steady(load), 0.94);
    }
}

TEST(SelectorLoop, T7_RailsOfFourToOneGiveTheirSum) {
    for (const Load& load : {kSerial, kSerialSmall, kFourRequests, kManyRequests, kOneByOne, kSingleSlices})
        EXPECT_GE(steady(load), 0.95) << load.request_bytes << " bytes x " << load.requests;
}

TEST(SelectorLoop, BaselineGivesTwiceTheSlowRail) {
    SelectorConfig config;
    config.enable_smart_scheduling = false;
    World world({kFast, kSlow}, kSerial, config);
    EXPECT_NEAR(world.throughput(1'000 * kMs) / kSlow, 2, 0.05);
}

// Small slices go before large ones on several QPs, so an observation is sometimes a fraction and sometimes a multiple
// of the rate.
TEST(SelectorLoop, T3_SmallSlicesBesideLargeOnesDoNotSpoilTheEstimate) {
    for (const uint64_t small : {4'096, 16'384, 65'536}) {
        const Load load{.posted_per_rail = 4 << 20, .qps = 4, .small_bytes = small, .steal = true};
        EXPECT_GE(steady(load), 0.95) << small;
    }
    EXPECT_GE(steady({.posted_per_rail = 4 << 20, .qps = 4, .small_bytes = 4'096}), 0.95);
}

// In these loads, slices that a rail cannot send immediately wait in the engine, where another rail may take them over.
// Otherwise a request is bound to its rails when it is submitted, and lasts as long as its last slice on the slow rail.
constexpr Load kLate{.posted_per_rail = 2 << 20, .steal = true};
constexpr Load kLateSmall{.request_bytes = 4 << 20, .posted_per_rail = 1 << 20, .steal = true};
constexpr Load kLateFour{.requests = 4, .posted_per_rail = 2 << 20, .steal = true};
constexpr Load kLateMany{.request_bytes = 4 << 20, .requests = 16, .posted_per_rail = 1 << 20, .steal = true};

TEST(SelectorLoop, ARailThatDegradesToATenthIsNoticedWithin50Ms) {
    for (const Load& load : {kLate, kLateSmall, kLateFour, kLateMany, kSingleSlices}) {
        World world({kFast, kFast}, load);
        world.throughput(300 * kMs);
        world.set_rate(0, kFast / 10);
        world.throughput(50 * kMs);
        const double sum = kFast * 1.1;
        EXPECT_GE(world.throughput(50 * kMs), 0.9 * sum);
        EXPECT_LT(world.selector().load()[0].ewma_bandwidth, 0.2 * kFast);
        EXPECT_GE(world.throughput(500 * kMs), 0.94 * sum) << load.request_bytes << " bytes x " << load.requests;
    }
}

TEST(SelectorLoop, T7_ARailThatRecoversIsUsedAgainWithin50Ms) {
    for (const Load& load : {kLate, kLateSmall, kLateFour, kLateMany, kSingleSlices}) {
        World world({kFast, kFast}, load);
        world.set_rate(0, kFast / 10);
        world.throughput(500 * kMs);
        world.set_rate(0, kFast);
        world.throughput(50 * kMs);
        EXPECT_GE(world.throughput(50 * kMs), 0.9 * 2 * kFast) << load.request_bytes << " bytes x " << load.requests;
        EXPECT_GT(world.selector().load()[0].ewma_bandwidth, 0.8 * kFast);
    }
}

// A single slice always goes to the best rail. Only probes (T-7) detect that the other rail has recovered.
TEST(SelectorLoop, T7_ProbesAloneFindThatARailHasRecovered) {
    World world({kFast, kFast}, {.request_bytes = 1 << 20, .one_by_one = true, .single = true});
    world.set_rate(1, kFast / 20);
    world.throughput(2'000 * kMs);
    EXPECT_LT(world.selector().load()[1].ewma_bandwidth, 0.2 * kFast);
    world.set_rate(1, kFast);
    world.set_rate(0, kFast / 2);
    world.throughput(2'000 * kMs);
    EXPECT_GT(world.selector().load()[1].ewma_bandwidth, 0.8 * kFast);
    EXPECT_GE(world.throughput(1'000 * kMs), 0.9 * kFast);
}

}  // namespace
}  // namespace rove::tent
