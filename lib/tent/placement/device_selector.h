// SPDX-License-Identifier: Apache-2.0
// Chooses a device for every slice (T-2 ... T-9). Units: bytes, bytes per second, nanoseconds of CLOCK_MONOTONIC.
//
// 1. A slice is charged to its device when it is chosen and until complete() or release(), by its true length. Inflight
//    is 0 when nothing is under way, in every mode (T-4).
// 2. Smart: the score of a device is (inflight + slice) / learned bandwidth x penalty of its rank. One slice goes to
//    the least score. Of many, a device has a share in proportion to 1 / score. Every 100th call, of either kind, is a
//    probe: slices go round all devices, so that none is forgotten (T-7).
// 3. What is learned. The documented rule, length / (completion - post) with a weight of 0.99, is right for one large
//    slice at a time. Three things make it the rate of a device under any load (the loops of selector_loop_test.cc show
//    each of them):
//    - Of k slices posted together the last one sees a k-th of the rate. A device that gets many slices then looks
//    slow,
//      gets few the next time, and the load swings for ever. So the rate over (post, completion) is what the device has
//      completed in that time, this slice and all others: PostMark remembers where its count of bytes was. BBR samples
//      its delivery rate so (draft-cheng-iccrg-delivery-rate-estimation). A slice that is alone is the documented rule.
//    - A short observation sees one slice of others more or less. One of 1 ms or longer has the documented weight, a
//      shorter one as much less as it is shorter.
//    - Slices shorter than a block are about latency. Taken for bandwidth, they make a device look slow that does
//      nothing else, so that it gets nothing else. They are charged, and are counted in the rate that others see.
// 4. No locks. Every atomic is relaxed: the numbers are estimates for choosing, nothing else is published by them.
//    Tolerated races: two completions at once may lose one observation; slices of two concurrent calls do not see each
//    other's charge. set_bandwidth() beside a completion may keep a bit of the old estimate.
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

// batch_allocation_policy: how a request of many slices comes to its devices.
enum class BatchPolicy : uint8_t {
    kInverseScore,  // shares by 1 / score, of all slices at once, as documented
    kPerSlice,      // each slice by the score that devices have when it can be posted
};

// Keys of [transports.rdma], with their documented defaults.
struct SelectorConfig {
    bool enable_smart_scheduling = true;  // false: round-robin over the best rank
    std::array<double, kRanks> numa_penalties{1, 5, 10};
    double bandwidth_learning_rate = 0.01;       // weight of the OLD value, 0..1 (T-2)
    double ewma_min_bandwidth_multiplier = 0.1;  // of the link's bandwidth: bounds of what is learned
    double ewma_max_bandwidth_multiplier = 10;
    double score_jitter_range = 1e-9;     // s; 0 to 9 times this is added to a score
    double score_epsilon = 1e-12;         // s; added to a score before 1 / score
    double default_bandwidth_gbps = 400;  // of devices that report none within [min, max] (T-5)
    double min_bandwidth_gbps = 10;
    double max_bandwidth_gbps = 800;
    uint64_t block_size = 65'536;  // workers.block_size: shorter slices teach nothing
    BatchPolicy batch_policy = BatchPolicy::kInverseScore;
    bool enable_priority_filtering = true;          // T-9
    uint64_t local_rotation_interval_ns = 200'000;  // local_rotation_interval_us
};

// Taken when a slice is posted, given back when it is complete.
struct PostMark {
    uint64_t post_ns = 0;
    uint64_t completed_bytes = 0;  // of the device until then
};

struct DeviceLoad {
    std::string name;
    uint64_t inflight_bytes = 0;
    double ewma_bandwidth = 0;  // bytes/s
};

class DeviceSelector {
  public:
    static constexpr size_t kMaxDevices = 64;  // as many as a mask has bits
    static constexpr uint64_t kAllDevices = ~uint64_t{0};
    static constexpr uint64_t kProbeInterval = 100;  // calls; as documented

    // At most kMaxDevices devices, all of them up. Ranks: numa_ranks(), perhaps overridden; without, all have rank 0.
    DeviceSelector(std::vector<Device> devices, const SelectorConfig& config, Ranks ranks = {});

    // Chooses a device for each slice and charges it: devices_out[i] for slice_bytes[i], both of the same length, which
    // is not 0. `numa_node` is that of the local memory, -1: any. Bit i of `device_mask` allows device i. Any thread.
    // `ranks_there`: how far what each device reaches is from the memory at the other end; the further end counts.
    // `among`: of those that are allowed and that the priority may use, only these, such as those that have room.
    // kDeviceNotFound: the mask names no device, or none that is up, or none of `among`; kInvalidArgument: no such NUMA
    // node. Then nothing is charged.
    Status allocate(std::span<const uint64_t> slice_bytes, int numa_node, uint64_t device_mask, Priority priority,
                    uint64_t now_ns, std::span<uint8_t> devices_out, uint64_t among = kAllDevices,
                    const uint8_t* ranks_there = nullptr);
    // Ranks of the devices for memory of a node; null: near to all.
    const uint8_t* ranks_of(int numa_node) const;
    // Which of `devices` the priority may use now (T-9): of those that are up.
    uint64_t eligible(uint64_t devices, Priority priority, uint64_t now_ns) const;

    // The slice goes to the wire now.
    PostMark post(uint8_t device, uint64_t now_ns) const;
    // It has arrived: the charge ends, and the rate is learned.
    void complete(uint8_t device, uint64_t bytes, const PostMark& mark, uint64_t now_ns);
    // It failed, timed out or was cancelled: the charge ends, nothing is learned (T-3).
    void release(uint8_t device, uint64_t bytes);
    // It is tried on a device that allocate() did not choose: again after release(), or elsewhere.
    void charge(uint8_t device, uint64_t bytes);

    // Link changes. A device that is down is not chosen; up again it starts from its link's bandwidth.
    void set_up(uint8_t device, bool up);
    void set_bandwidth(uint8_t device, double bytes_per_s);
    uint64_t up_mask() const { return up_.load(std::memory_order_relaxed); }

    std::vector<DeviceLoad> load() const;
    uint64_t completed_bytes(uint8_t device) const;
    // The documented lines: "Dev 0: Total=10.5 GB, EWMA BW=45.23 Gbps, Inflight=0 bytes"
    void print_traffic_stats(std::ostream& out) const;
    const std::vector<Device>& devices() const { return devices_; }

  private:
    // Written by different threads at different times: a cache line each.
    struct alignas(64) Line {
        std::atomic<uint64_t> value{0};
    };
    struct State {
        Line inflight, completed;
        alignas(64) std::atomic<double> ewma{0};
        std::atomic<double> s_per_byte{0};  // 1 / ewma: multiplied by for every slice and device
        void set_ewma(double bytes_per_s);
        std::atomic<double> nominal{0};  // changes with the link only
        std::atomic<double> slowest{0};  // the same, or what the port reported if that is less
    };
    struct Candidates;
    class Jitter;

    Status none_eligible(uint64_t device_mask) const;
    Status no_such_node(int numa_node) const;
    uint64_t best_rank(uint64_t eligible, const uint8_t* ranks) const;
    // Slice after slice to the next of `devices`, the first to number `start` of them.
    static void choose_round_robin(uint64_t devices, uint64_t start, std::span<uint8_t> devices_out);
    double score(uint8_t device, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter) const;
    uint8_t choose_best(uint64_t eligible, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter) const;
    void choose_by_share(uint64_t eligible, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter,
                         std::span<uint8_t> devices_out) const;
    uint64_t count_calls(uint64_t by);  // returns how many there were
    void charge_all(std::span<const uint64_t> slice_bytes, std::span<const uint8_t> devices);

    std::vector<Device> devices_;
    SelectorConfig config_;
    Ranks ranks_;
    std::vector<uint8_t> any_node_;  // rank 0 for all
    std::unique_ptr<State[]> states_;
    alignas(64) std::atomic<uint64_t> up_{0};
    alignas(64) std::atomic<uint64_t> calls_{0};  // of allocate(); in baseline mode: slices
};

}  // namespace rove::tent
