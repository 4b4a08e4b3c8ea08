// SPDX-License-Identifier: Apache-2.0
// Chooses a transport and the devices for a request, by policies in the order of the configuration (T-14 to T-18).
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

// One [[policy]] section. A criterion that is not given matches everything.
struct Policy {
    std::string name;
    SegmentType segment_type = SegmentType::kMemory;
    std::optional<bool> same_machine;
    std::optional<MemoryKind> local_memory, remote_memory;
    uint64_t min_size = 0, max_size = std::numeric_limits<uint64_t>::max();  // bytes, both inclusive
    std::optional<Priority> priority;                                        // exact match
    std::vector<std::string> devices;                                        // names; empty: all devices
    std::vector<Transport> transports;      // in the order of preference; empty: the default order of the segment type
    std::string where_name, where_devices;  // "FILE:LINE: key 'policy[0].devices'", for messages
};

// The properties of a request by which its transport is chosen. They travel with it on every path (T-14).
struct SelectionContext {
    SegmentType segment_type = SegmentType::kMemory;
    bool same_machine = false;
    MemoryKind local_memory = MemoryKind::kCpu, remote_memory = MemoryKind::kCpu;
    uint64_t bytes = 0;
    Priority priority = Priority::kHigh;
    Transport hint = Transport::UNSPEC;  // Request::transport_hint
    std::string_view policy_name;        // selects this policy, whose only other criterion is then the segment type
    uint32_t available = 0;  // mask (1 << id) of transports that exist, are enabled, and can carry the request
};

struct Selection {
    Transport transport = Transport::UNSPEC;
    uint64_t device_mask = ~uint64_t{0};
    const Policy* policy =
        nullptr;  // valid as long as the selector; null: no policy matched, the default order applies
};

// Returns the order where no policy gives one: for files GDS, io_uring, RDMA; for memory MNNVL, NVLink, RDMA, shm, TCP.
std::span<const Transport> default_order(SegmentType type);

class TransportSelector {
  public:
    // Creates a selector. `device_names[i]` has bit i of the masks. If `strict` is true, a request that no policy
    // matches is an error. Returns kInvalidArgument if a policy names an unknown device (or one beyond the 64th), or if
    // two policies of a segment type have the same name.
    static Status create(std::vector<Policy> policies, std::span<const std::string> device_names, bool strict,
                         std::optional<TransportSelector>* out);

    // Selects a transport. `transport_index` counts the available candidates: 0 is the first attempt, n the n-th
    // failover. A hint is candidate 0 and is left out of the others (T-17). Returns kInvalidArgument if the hint is not
    // available, if `policy_name` does not exist, or if `strict` is set and no policy matches. Returns kDeviceNotFound
    // if fewer candidates are available.
    Status select(const SelectionContext& context, uint32_t transport_index, Selection* out) const;

  private:
    TransportSelector() = default;
    const Policy* find_policy(const SelectionContext& context) const;
    static Status no_policy(const SelectionContext& context);

    std::vector<Policy> policies_;
    std::vector<uint64_t> masks_;  // parallel to policies_
    bool strict_ = false;
};

}  // namespace rove::tent
