// SPDX-License-Identifier: Apache-2.0
// Chooses a transport and the devices for a request, by policies in the order of the configuration (T-14 ... T-18).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rove/tent_status.h"
#include "tent/config/types.h"

namespace rove::tent {

// One [[policy]]. What is not given matches everything.
struct Policy {
    std::string name;
    SegmentType segment_type = SegmentType::kMemory;
    std::optional<bool> same_machine;
    std::optional<MemoryKind> local_memory, remote_memory;
    uint64_t min_size = 0, max_size = std::numeric_limits<uint64_t>::max();  // bytes, both inclusive
    std::optional<Priority> priority;                                        // exact
    std::vector<std::string> devices;                                        // names; empty: all
    std::vector<Transport> transports;      // in the order of preference; empty: the default order of the segment type
    std::string where_name, where_devices;  // "FILE:LINE: key 'policy[0].devices'", for messages
};

// What is known of a request when its transport is chosen. Travels with it on every path (T-14).
struct SelectionContext {
    SegmentType segment_type = SegmentType::kMemory;
    bool same_machine = false;
    MemoryKind local_memory = MemoryKind::kCpu, remote_memory = MemoryKind::kCpu;
    uint64_t bytes = 0;
    Priority priority = Priority::kHigh;
    Transport hint = Transport::UNSPEC;  // Request::transport_hint
    std::string_view policy_name;        // takes this policy, whatever else it asks for but the segment type
    uint32_t available = 0;              // transports (1 << id) that are there, enabled, and able to carry it
};

struct Selection {
    Transport transport = Transport::UNSPEC;
    uint64_t device_mask = ~uint64_t{0};
    const Policy* policy = nullptr;  // lives as long as the selector; null: none matched, the default order
};

// Where no policy gives an order: files GDS, io_uring, RDMA; memory MNNVL, NVLink, RDMA, shm, TCP.
std::span<const Transport> default_order(SegmentType type);

class TransportSelector {
  public:
    // `device_names[i]` has bit i of masks. `strict`: a request that no policy matches is an error.
    // kInvalidArgument: a policy names an unknown device (or one beyond the 64th), or two of a type have one name.
    static Status create(std::vector<Policy> policies, std::span<const std::string> device_names, bool strict,
                         std::optional<TransportSelector>* out);

    // `transport_index` counts the available candidates: 0 is the first attempt, n the n-th failover. A hint is
    // candidate 0 and is left out of the others (T-17). kInvalidArgument: the hint is not available, `policy_name` does
    // not exist, or strict and no policy matches; kDeviceNotFound: fewer candidates are available.
    Status select(const SelectionContext& context, uint32_t transport_index, Selection* out) const;

  private:
    TransportSelector() = default;
    const Policy* find_policy(const SelectionContext& context) const;
    static Status no_policy(const SelectionContext& context);

    std::vector<Policy> policies_;
    std::vector<uint64_t> masks_;  // of policies_
    bool strict_ = false;
};

}  // namespace rove::tent
