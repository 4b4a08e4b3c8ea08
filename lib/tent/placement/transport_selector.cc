// SPDX-License-Identifier: Apache-2.0
// Matching policies, and counting the available candidates.
#include "tent/placement/transport_selector.h"

#include <algorithm>
#include <array>

namespace rove::tent {

namespace {

constexpr size_t kMaskBits = 64;
constexpr std::array kFileOrder{Transport::GDS, Transport::IOURING, Transport::RDMA};
// The original's order, reduced to the transports that rove knows. RDMA precedes shared memory on one machine too.
constexpr std::array kMemoryOrder{Transport::MNNVL, Transport::NVLINK, Transport::RDMA, Transport::SHM, Transport::TCP};

bool matches(const Policy& policy, const SelectionContext& request) {
    if (policy.segment_type != request.segment_type) return false;
    if (!request.policy_name.empty()) return policy.name == request.policy_name;
    return (!policy.same_machine || *policy.same_machine == request.same_machine) &&
           (!policy.local_memory || *policy.local_memory == request.local_memory) &&
           (!policy.remote_memory || *policy.remote_memory == request.remote_memory) &&
           (!policy.priority || *policy.priority == request.priority) && policy.min_size <= request.bytes &&
           request.bytes <= policy.max_size;
}

bool is_available(const SelectionContext& request, Transport transport) {
    return (request.available >> static_cast<unsigned>(transport) & 1) != 0;
}

// Lists the names of the candidates for a message.
std::string list(std::span<const Transport> transports) {
    std::string names;
    for (const Transport transport : transports) names += (names.empty() ? "" : ", ") + std::string(name(transport));
    return names;
}

}  // namespace

std::span<const Transport> default_order(SegmentType type) {
    if (type == SegmentType::kFile) return kFileOrder;
    return kMemoryOrder;
}

Status TransportSelector::create(std::vector<Policy> policies, std::span<const std::string> device_names, bool strict,
                                 std::optional<TransportSelector>* out) {
    TransportSelector selector;
    const size_t nameable = std::min(device_names.size(), kMaskBits);
    std::string allowed;
    for (size_t i = 0; i < nameable; ++i) allowed += (i > 0 ? ", " : "") + device_names[i];
    for (size_t i = 0; i < policies.size(); ++i) {
        const Policy& policy = policies[i];
        for (size_t before = 0; before < i; ++before)
            if (policies[before].name == policy.name && policies[before].segment_type == policy.segment_type)
                return {Code::kInvalidArgument,
                        policy.where_name + ": got \"" + policy.name +
                            "\" again, allowed a name that no other policy of this segment_type has"};
        uint64_t mask = policy.devices.empty() ? ~uint64_t{0} : 0;
        for (const std::string& device : policy.devices) {
            const auto found =
                std::find(device_names.begin(), device_names.begin() + static_cast<ptrdiff_t>(nameable), device);
            const auto bit = static_cast<size_t>(found - device_names.begin());
            if (bit == nameable)
                return {Code::kInvalidArgument, policy.where_devices + ": got \"" + device + "\", allowed " + allowed};
            mask |= uint64_t{1} << bit;
        }
        selector.masks_.push_back(mask);
    }
    selector.policies_ = std::move(policies);
    selector.strict_ = strict;
    *out = std::move(selector);
    return {};
}

const Policy* TransportSelector::find_policy(const SelectionContext& request) const {
    for (const Policy& policy : policies_)
        if (matches(policy, request)) return &policy;
    return nullptr;
}

Status TransportSelector::no_policy(const SelectionContext& request) {
    if (request.policy_name.empty())
        return {Code::kInvalidArgument, "no policy matches the request, and strict = true"};
    return {Code::kInvalidArgument,
            "no policy of the segment's type is called \"" + std::string(request.policy_name) + "\""};
}

Status TransportSelector::select(const SelectionContext& request, uint32_t transport_index, Selection* out) const {
    const Policy* const policy = find_policy(request);
    if (policy == nullptr && (!request.policy_name.empty() || (strict_ && request.hint == Transport::UNSPEC)))
        [[unlikely]]
        return no_policy(request);
    Selection selection{.transport = request.hint, .device_mask = ~uint64_t{0}, .policy = policy};
    if (policy != nullptr) selection.device_mask = masks_[static_cast<size_t>(policy - policies_.data())];

    uint32_t skip = transport_index;
    if (request.hint != Transport::UNSPEC) {
        if (transport_index == 0) {
            if (!is_available(request, request.hint))
                return {Code::kInvalidArgument,
                        std::string("transport_hint: ") + name(request.hint) + " is not available for this request"};
            *out = selection;
            return {};
        }
        --skip;
    }
    const bool named = policy != nullptr && !policy->transports.empty();
    const std::span<const Transport> order =
        named ? std::span<const Transport>(policy->transports) : default_order(request.segment_type);
    for (const Transport candidate : order) {
        if (candidate == request.hint || !is_available(request, candidate) || skip-- > 0) continue;
        selection.transport = candidate;
        *out = selection;
        return {};
    }
    return {Code::kDeviceNotFound, (policy == nullptr ? "default order" : "policy \"" + policy->name + "\"") +
                                       std::string(": attempt ") + std::to_string(transport_index + 1) +
                                       ": no transport is available in " + list(order)};
}

}  // namespace rove::tent
