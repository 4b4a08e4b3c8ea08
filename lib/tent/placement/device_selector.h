// SPDX-License-Identifier: Apache-2.0
// Chooses a device for every slice (T-2 to T-9). Units: bytes, bytes per second, nanoseconds of CLOCK_MONOTONIC.
//
// 1. Charge. A slice charges its true length to its device from the choice until complete() or release(). In every mode
//    inflight is 0 when nothing is in flight (T-4).
// 2. Smart scheduling. The score of a device is (inflight + slice) / learned bandwidth x penalty of its rank. A single
//    slice goes to the device with the least score. If there are many slices, each device gets a share in proportion to
//    1 / score. Every 100th call is a probe, whether it has one slice or many: its slices go round all devices, so that
//    each is tried again from time to time (T-7).
// 3. Learning. The documented rule, length / (completion - post) with a weight of 0.99, is right for one large slice at
//    a time. Three refinements make the result the rate of a device under any load. The loops of selector_loop_test.cc
//    show each of them.
// - If k slices are posted together, the last one sees a k-th of the rate. A device that gets many slices then looks
//   slow and gets few the next time, and the load swings forever. So the rate over (post, completion) is what the
//   device completed in that time, this slice and all others: PostMark records its count of bytes at the post. BBR
//   samples its delivery rate in this way (draft-cheng-iccrg-delivery-rate-estimation). For a slice that is alone this
//   equals the documented rule.
// - A short observation may include one slice of other requests more or less. An observation of 1 ms or longer has the
//   documented weight, and a shorter one has proportionally less.
// - The time of a slice shorter than a block shows latency. If it were used as bandwidth, a device that carries only
//   such slices would look slow and would get nothing else. These slices are charged, and they count in the rates that
//   other slices observe.
// 4. No locks. Every atomic operation is relaxed: the numbers are estimates for the choice, and they publish no other
//    data. Three races are tolerated. Two simultaneous completions may lose one observation, the slices of two
//    concurrent calls do not see each other's charge, and set_bandwidth() during a completion may keep a bit of the old
//    estimate.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rove/tent_status.h"
#include "tent/config/types.h"
#include "tent/placement/ranks.h"

namespace rove::tent {

// The key batch_allocation_policy: how the slices of a large request are distributed to devices.
enum class BatchPolicy : uint8_t {
    kInverseScore,  // shares in proportion to 1 / score, for all slices at once, as documented
    kPerSlice,      // each slice by the scores of the devices when it can be posted
};

// The keys of [transports.rdma], with their documented defaults.
struct SelectorConfig {
    bool enable_smart_scheduling = true;  // false: round-robin over the best rank
    std::array<double, kRanks> numa_penalties{1, 5, 10};
    double bandwidth_learning_rate = 0.01;  // weight of the OLD value, 0 to 1 (T-2)
    // This and the next: bounds of the estimate, in multiples of the link's bandwidth.
    double ewma_min_bandwidth_multiplier = 0.1;
    double ewma_max_bandwidth_multiplier = 10;
    double score_jitter_range = 1e-9;     // seconds; 0 to 9 times this value is added to a score
    double score_epsilon = 1e-12;         // seconds; added to a score before 1 / score
    double default_bandwidth_gbps = 400;  // for devices that report no value within [min, max] (T-5)
    double min_bandwidth_gbps = 10;
    double max_bandwidth_gbps = 800;
    uint64_t block_size = 65'536;  // workers.block_size; a shorter slice teaches nothing
    BatchPolicy batch_policy = BatchPolicy::kInverseScore;
    bool enable_priority_filtering = true;          // T-9
    uint64_t local_rotation_interval_ns = 200'000;  // local_rotation_interval_us

    void read_keys(auto& table) {
        constexpr double kMaxGbps = 1e6;
        table.boolean("enable_smart_scheduling", enable_smart_scheduling);
        table.numbers("numa_penalties", numa_penalties, 1e-3, 1e9);
        table.number("bandwidth_learning_rate", bandwidth_learning_rate, 0, 1);
        table.number("ewma_min_bandwidth_multiplier", ewma_min_bandwidth_multiplier, 1e-6, 1e6);
        table.number("ewma_max_bandwidth_multiplier", ewma_max_bandwidth_multiplier, 1e-6, 1e6);
        table.number("score_jitter_range", score_jitter_range, 0, 1);
        table.number("score_epsilon", score_epsilon, 0, 1);
        table.number("default_bandwidth_gbps", default_bandwidth_gbps, 1e-3, kMaxGbps);
        table.number("min_bandwidth_gbps", min_bandwidth_gbps, 1e-3, kMaxGbps);
        table.number("max_bandwidth_gbps", max_bandwidth_gbps, 1e-3, kMaxGbps);
        table.boolean("enable_priority_filtering", enable_priority_filtering);
        table.microseconds("local_rotation_interval_us", local_rotation_interval_ns, 1, 1'000'000);
        table.choice("batch_allocation_policy", batch_policy,
                     {{"inverse_score", BatchPolicy::kInverseScore}, {"per_slice", BatchPolicy::kPerSlice}});
    }
};

// Records the state of a device when a slice is posted. It is passed to complete() when the slice has completed.
struct PostMark {
    uint64_t post_ns = 0;
    uint64_t completed_bytes = 0;  // bytes that the device had completed before the post
};

struct DeviceLoad {
    std::string name;
    uint64_t inflight_bytes = 0;
    double ewma_bandwidth = 0;  // bytes/s
};

class DeviceSelector {
  public:
    static constexpr size_t kMaxDevices = 64;  // the number of bits in a mask
    static constexpr uint64_t kAllDevices = ~uint64_t{0};
    static constexpr uint64_t kProbeInterval = 100;  // calls, as documented

    // `devices` has at most kMaxDevices devices, all of which are up at first. `ranks` is the result of numa_ranks(),
    // possibly overridden. If it is empty, all devices have rank 0.
    DeviceSelector(std::vector<Device> devices, const SelectorConfig& config, Ranks ranks = {});

    // Chooses a device for each slice and charges it: devices_out[i] for slice_bytes[i]. Both have the same length,
    // which is not 0. `numa_node` is the node of the local memory; -1 means any node. Bit i of `device_mask` allows
    // device i. `ranks_there` has the rank of each device for the memory at the other end; the larger of the two ranks
    // decides. `among` restricts the choice further to these devices, such as those with room. Any thread may call it.
    // Returns kDeviceNotFound if the mask names no device or no device that is up, or if `among` excludes the rest, and
    // kInvalidArgument if there is no such NUMA node. Nothing is charged in these cases.
    Status allocate(std::span<const uint64_t> slice_bytes, int numa_node, uint64_t device_mask, Priority priority,
                    uint64_t now_ns, std::span<uint8_t> devices_out, uint64_t among = kAllDevices,
                    const uint8_t* ranks_there = nullptr);
    // Returns the ranks of the devices for memory of a node, or null if all devices are near to it.
    const uint8_t* ranks_of(int numa_node) const;
    // Returns the subset of `devices` that is up and that the priority may use now (T-9).
    uint64_t eligible(uint64_t devices, Priority priority, uint64_t now_ns) const;

    // Call it when the slice is posted.
    PostMark post(uint8_t device, uint64_t now_ns) const;
    // Call it when the slice has completed: ends the charge and learns the rate.
    void complete(uint8_t device, uint64_t bytes, const PostMark& mark, uint64_t now_ns);
    // Call it when the slice failed, timed out or was cancelled: ends the charge and learns nothing (T-3).
    void release(uint8_t device, uint64_t bytes);
    // Charges a slice to a device that allocate() did not choose for it: on a retry after release(), or on another
    // device.
    void charge(uint8_t device, uint64_t bytes);

    // Link changes. A device that is down is not chosen. When it comes up again it starts from its link's bandwidth.
    void set_up(uint8_t device, bool up);
    void set_bandwidth(uint8_t device, double bytes_per_s);
    uint64_t up_mask() const { return up_.load(std::memory_order_relaxed); }

    std::vector<DeviceLoad> load() const;
    uint64_t completed_bytes(uint8_t device) const;
    // Prints the documented lines: "Dev 0: Total=10.5 GB, EWMA BW=45.23 Gbps, Inflight=0 bytes".
    void print_traffic_stats(std::ostream& out) const;
    const std::vector<Device>& devices() const { return devices_; }

  private:
    // Different threads write these counters at different times, so each has its own cache line.
    struct alignas(64) Line {
        std::atomic<uint64_t> value{0};
    };
    struct State {
        Line inflight, completed;
        alignas(64) std::atomic<double> ewma{0};
        std::atomic<double> s_per_byte{0};  // 1 / ewma, a factor of the score of every slice and device
        void set_ewma(double bytes_per_s);
        std::atomic<double> nominal{0};  // changes only with the link
        std::atomic<double> slowest{0};  // equal to nominal, or the speed that the port reported if that is less
    };
    struct Candidates;
    class Jitter;

    Status none_eligible(uint64_t device_mask) const;
    Status no_such_node(int numa_node) const;
    uint64_t best_rank(uint64_t eligible, const uint8_t* ranks) const;
    // Assigns slice after slice to the next of `devices`, beginning with device number `start` modulo their count.
    static void choose_round_robin(uint64_t devices, uint64_t start, std::span<uint8_t> devices_out);
    double score(uint8_t device, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter) const;
    uint8_t choose_best(uint64_t eligible, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter) const;
    void choose_by_share(uint64_t eligible, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter,
                         std::span<uint8_t> devices_out) const;
    uint64_t count_calls(uint64_t by);  // returns the count before
    void charge_all(std::span<const uint64_t> slice_bytes, std::span<const uint8_t> devices);

    std::vector<Device> devices_;
    SelectorConfig config_;
    Ranks ranks_;
    std::vector<uint8_t> any_node_;  // rank 0 for all devices
    std::unique_ptr<State[]> states_;
    alignas(64) std::atomic<uint64_t> up_{0};
    alignas(64) std::atomic<uint64_t> calls_{0};  // calls of allocate(); slices in round-robin mode
};

}  // namespace rove::tent
