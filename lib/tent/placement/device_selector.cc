// SPDX-License-Identifier: Apache-2.0
// Choosing a device, charging it, and learning its bandwidth. The notes in device_selector.h explain why.
#include "tent/placement/device_selector.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdio>
#include <limits>
#include <ostream>

#include "base/relaxed.h"
#include "tent/qos/priority_filter.h"

namespace rove::tent {

namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;
// An observation of at least this duration has the documented weight. Any value from 0.2 to 2 ms serves the loops of
// selector_loop_test.cc equally well.
constexpr double kFullSampleNs = 1e6;
constexpr uint64_t kJitterSteps = 10;  // jitter is 0 to 9 times score_jitter_range, as documented

// The mixing function of SplitMix64: a bijection in which every output bit depends on every input bit.
uint64_t mix(uint64_t x) {
    x = (x + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

}  // namespace

// Draws 0 to 9 times the range, once for each candidate of a call, so that the order of scores is consistent (T-6).
class DeviceSelector::Jitter {
  public:
    Jitter(uint64_t call, double range) : random_(mix(call)), range_(range) {}
    double next() {
        random_ = std::rotr(random_, 7);  // odd, so that each of 64 candidates gets other leading bits
        return static_cast<double>(static_cast<int64_t>((random_ >> 32) * kJitterSteps >> 32)) * range_;
    }

  private:
    uint64_t random_;
    double range_;
};

// The eligible devices of a call with their scores in seconds, sorted with the best first.
struct DeviceSelector::Candidates {
    void insert(uint8_t id, double of_id) {
        unsigned at = count++;
        for (; at > 0 && of_id < score[at - 1]; --at) {  // a tie goes to the lower id, which came first
            score[at] = score[at - 1];
            device[at] = device[at - 1];
        }
        score[at] = of_id;
        device[at] = id;
    }

    unsigned count = 0;
    uint8_t device[kMaxDevices];
    double score[kMaxDevices];
};

DeviceSelector::DeviceSelector(std::vector<Device> devices, const SelectorConfig& config, Ranks ranks)
    : devices_(std::move(devices)),
      config_(config),
      ranks_(std::move(ranks)),
      any_node_(devices_.size(), 0),
      states_(std::make_unique<State[]>(devices_.size())) {
    assert(devices_.size() <= kMaxDevices);
    const auto count = static_cast<uint8_t>(devices_.size());
    for (uint8_t id = 0; id < count; ++id) {
        set_bandwidth(id, devices_[id].bandwidth_bytes_per_s);
        set_up(id, true);
    }
}

// Always inlined, since the call would cost as much as the function itself.
[[gnu::always_inline]] inline double DeviceSelector::score(uint8_t device, const uint8_t* ranks, uint64_t slice_bytes,
                                                           Jitter& jitter) const {
    const State& state = states_[device];
    const auto bytes = static_cast<int64_t>(state.inflight.value.load(kRelaxed) + slice_bytes);
    return static_cast<double>(bytes) * state.s_per_byte.load(kRelaxed) * config_.numa_penalties[ranks[device]] +
           jitter.next();
}

uint8_t DeviceSelector::choose_best(uint64_t eligible, const uint8_t* ranks, uint64_t slice_bytes,
                                    Jitter& jitter) const {
    uint8_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (; eligible != 0; eligible &= eligible - 1) {
        const auto device = static_cast<uint8_t>(std::countr_zero(eligible));
        const double of_device = score(device, ranks, slice_bytes, jitter);
        // A tie goes to the lower id, which came first. Both lines are written without a branch, since the outcome of
        // the comparison cannot be predicted.
        best = of_device < least ? device : best;
        least = std::min(least, of_device);
    }
    return best;
}

Status DeviceSelector::allocate(std::span<const uint64_t> slice_bytes, int numa_node, uint64_t device_mask,
                                Priority priority, uint64_t now_ns, std::span<uint8_t> devices_out, uint64_t among,
                                const uint8_t* ranks_there) {
    assert(!slice_bytes.empty() && slice_bytes.size() == devices_out.size());
    const uint64_t eligible = this->eligible(device_mask, priority, now_ns) & among;
    if (eligible == 0) [[unlikely]]
        return none_eligible(device_mask);
    if (numa_node >= static_cast<int>(ranks_.size()) && !ranks_.empty()) [[unlikely]]
        return no_such_node(numa_node);
    if (std::has_single_bit(eligible)) {  // no choice
        std::fill(devices_out.begin(), devices_out.end(), static_cast<uint8_t>(std::countr_zero(eligible)));
        charge_all(slice_bytes, devices_out);
        return {};
    }
    const uint8_t* ranks = ranks_of(numa_node) != nullptr ? ranks_of(numa_node) : any_node_.data();
    uint8_t further[kMaxDevices];
    if (ranks_there != nullptr) [[unlikely]] {
        for (size_t id = 0; id < devices_.size(); ++id) further[id] = std::max(ranks[id], ranks_there[id]);
        ranks = further;
    }

    if (!config_.enable_smart_scheduling) {
        choose_round_robin(best_rank(eligible, ranks), count_calls(slice_bytes.size()), devices_out);
    } else {
        const uint64_t call = count_calls(1) + 1;
        if (call % kProbeInterval == 0) {
            choose_round_robin(eligible, call / kProbeInterval, devices_out);
        } else if (Jitter jitter(call, config_.score_jitter_range); slice_bytes.size() == 1) {
            devices_out[0] = choose_best(eligible, ranks, slice_bytes[0], jitter);
        } else {
            choose_by_share(eligible, ranks, slice_bytes[0], jitter, devices_out);
        }
    }
    charge_all(slice_bytes, devices_out);
    return {};
}

const uint8_t* DeviceSelector::ranks_of(int numa_node) const {
    return numa_node < 0 || static_cast<size_t>(numa_node) >= ranks_.size()
               ? nullptr
               : ranks_[static_cast<size_t>(numa_node)].data();
}

uint64_t DeviceSelector::eligible(uint64_t devices, Priority priority, uint64_t now_ns) const {
    devices &= up_.load(kRelaxed);
    if (!config_.enable_priority_filtering) return devices;
    return filter_devices(devices, priority, now_ns, config_.local_rotation_interval_ns);
}

Status DeviceSelector::none_eligible(uint64_t device_mask) const {
    std::string allowed;
    for (size_t id = 0; id < devices_.size(); ++id)
        if (device_mask >> id & 1) allowed += (allowed.empty() ? "" : ", ") + devices_[id].name;
    return {Code::kDeviceNotFound,
            allowed.empty() ? "the device mask excludes every device" : "no device has a link: " + allowed};
}

Status DeviceSelector::no_such_node(int numa_node) const {
    return {Code::kInvalidArgument, "NUMA node " + std::to_string(numa_node) + ", allowed 0.." +
                                        std::to_string(ranks_.size() - 1) + " or -1 for any"};
}

uint64_t DeviceSelector::best_rank(uint64_t eligible, const uint8_t* ranks) const {
    std::array<uint64_t, kRanks> by_rank{};
    for (uint64_t rest = eligible; rest != 0; rest &= rest - 1) by_rank[ranks[std::countr_zero(rest)]] |= rest & -rest;
    for (const uint64_t devices : by_rank)
        if (devices != 0) return devices;
    return eligible;
}

void DeviceSelector::choose_round_robin(uint64_t devices, uint64_t start, std::span<uint8_t> devices_out) {
    uint8_t ids[kMaxDevices];
    unsigned count = 0;
    for (; devices != 0; devices &= devices - 1) ids[count++] = static_cast<uint8_t>(std::countr_zero(devices));
    auto next = static_cast<unsigned>(start % count);
    for (uint8_t& device : devices_out) {
        device = ids[next];
        if (++next == count) next = 0;
    }
}

void DeviceSelector::choose_by_share(uint64_t eligible, const uint8_t* ranks, uint64_t slice_bytes, Jitter& jitter,
                                     std::span<uint8_t> devices_out) const {
    Candidates sorted;
    for (; eligible != 0; eligible &= eligible - 1) {
        const auto device = static_cast<uint8_t>(std::countr_zero(eligible));
        sorted.insert(device, score(device, ranks, slice_bytes, jitter));
    }
    double weights[kMaxDevices];
    double sum = 0;
    for (unsigned i = 0; i < sorted.count; ++i) {
        weights[i] = 1 / (sorted.score[i] + config_.score_epsilon);
        sum += weights[i];
    }
    const double slices_per_weight = static_cast<double>(devices_out.size()) / sum;
    size_t at = devices_out.size();
    // Assigns the shares from the last device to the second. The best device gets its own share and the remainder of
    // rounding.
    for (unsigned i = sorted.count; --i > 0;)
        for (auto share = static_cast<size_t>(weights[i] * slices_per_weight); share > 0 && at > 0; --share)
            devices_out[--at] = sorted.device[i];
    while (at > 0) devices_out[--at] = sorted.device[0];
}

uint64_t DeviceSelector::count_calls(uint64_t by) {
    // Two concurrent calls may get the same number, which costs or adds one probe. The plain load and store save a
    // fifth of the time of a call with one slice.
    const uint64_t before = calls_.load(kRelaxed);
    calls_.store(before + by, kRelaxed);
    return before;
}

void DeviceSelector::charge_all(std::span<const uint64_t> slice_bytes, std::span<const uint8_t> devices) {
    // Makes one addition for each run of slices on a device, not one for each slice.
    for (size_t i = 0; i < devices.size();) {
        const uint8_t device = devices[i];
        uint64_t bytes = 0;
        for (; i < devices.size() && devices[i] == device; ++i) bytes += slice_bytes[i];
        charge(device, bytes);
    }
}

PostMark DeviceSelector::post(uint8_t device, uint64_t now_ns) const {
    return {.post_ns = now_ns, .completed_bytes = completed_bytes(device)};
}

void DeviceSelector::complete(uint8_t device, uint64_t bytes, const PostMark& mark, uint64_t now_ns) {
    release(device, bytes);
    State& state = states_[device];
    const uint64_t completed = state.completed.value.fetch_add(bytes, kRelaxed) + bytes;
    if (!config_.enable_smart_scheduling || bytes < config_.block_size || now_ns <= mark.post_ns) return;
    const auto span_ns = static_cast<double>(now_ns - mark.post_ns);
    const double observed = static_cast<double>(completed - mark.completed_bytes) * 1e9 / span_ns;
    const double weight = (1 - config_.bandwidth_learning_rate) * std::min(1.0, span_ns / kFullSampleNs);
    const double old = state.ewma.load(kRelaxed);
    const double learned = old + weight * (observed - old);
    const double nominal = state.nominal.load(kRelaxed);
    state.set_ewma(std::clamp(learned, config_.ewma_min_bandwidth_multiplier * state.slowest.load(kRelaxed),
                              config_.ewma_max_bandwidth_multiplier * nominal));
}

void DeviceSelector::release(uint8_t device, uint64_t bytes) {
    [[maybe_unused]] const uint64_t before = states_[device].inflight.value.fetch_sub(bytes, kRelaxed);
    assert(before >= bytes);  // a failure means that it was never charged, or was released twice
}

void DeviceSelector::charge(uint8_t device, uint64_t bytes) {
    states_[device].inflight.value.fetch_add(bytes, kRelaxed);
}

void DeviceSelector::State::set_ewma(double bytes_per_s) {
    ewma.store(bytes_per_s, kRelaxed);
    s_per_byte.store(1 / bytes_per_s, kRelaxed);
}

void DeviceSelector::set_up(uint8_t device, bool up) {
    const uint64_t bit = uint64_t{1} << device;
    if (!up) {
        up_.fetch_and(~bit, kRelaxed);
        return;
    }
    states_[device].set_ewma(states_[device].nominal.load(kRelaxed));
    up_.fetch_or(bit, kRelaxed);
}

void DeviceSelector::set_bandwidth(uint8_t device, double bytes_per_s) {
    const double gbps = bytes_per_s / kBytesPerGigabit;
    const bool valid = gbps >= config_.min_bandwidth_gbps && gbps <= config_.max_bandwidth_gbps;
    const double nominal = valid ? bytes_per_s : config_.default_bandwidth_gbps * kBytesPerGigabit;
    states_[device].nominal.store(nominal, kRelaxed);
    // A port that is slower than the configured minimum starts from the default bandwidth. The estimate may fall to 0.1
    // times its reported speed.
    states_[device].slowest.store(valid || bytes_per_s <= 0 ? nominal : std::min(nominal, bytes_per_s), kRelaxed);
    states_[device].set_ewma(nominal);
}

std::vector<DeviceLoad> DeviceSelector::load() const {
    std::vector<DeviceLoad> loads;
    for (size_t id = 0; id < devices_.size(); ++id)
        loads.push_back({.name = devices_[id].name,
                         .inflight_bytes = states_[id].inflight.value.load(kRelaxed),
                         .ewma_bandwidth = states_[id].ewma.load(kRelaxed)});
    return loads;
}

uint64_t DeviceSelector::completed_bytes(uint8_t device) const {
    return states_[device].completed.value.load(kRelaxed);
}

void DeviceSelector::print_traffic_stats(std::ostream& out) const {
    out << "=== Device Traffic Statistics ===\n";
    const auto count = static_cast<uint8_t>(devices_.size());
    for (uint8_t id = 0; id < count; ++id) {
        const State& state = states_[id];
        char line[128];
        std::snprintf(line, sizeof(line), "Dev %u: Total=%.1f GB, EWMA BW=%.2f Gbps, Inflight=%llu bytes\n", id,
                      static_cast<double>(completed_bytes(id)) / 1e9, state.ewma.load(kRelaxed) / kBytesPerGigabit,
                      static_cast<unsigned long long>(state.inflight.value.load(kRelaxed)));
        out << line;
    }
}

}  // namespace rove::tent
