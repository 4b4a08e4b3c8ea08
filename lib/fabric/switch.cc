// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <algorithm>
#include <map>

#include "fabric/forwarding.h"

namespace rove::fabric {

Switch::Switch(World& world, uint32_t index, const SwitchConfig& config)
    : Node(world, index), config_(config), random_(world.new_stream()), salt_(random_.next()) {}

void Switch::attach(Link& link) {
    Node::attach(link);
    ports_.push_back({&link, config_.red});
}

void Switch::set_routes(const std::vector<std::vector<uint32_t>>& ports) {
    groups_.clear();
    hops_.clear();
    std::map<std::vector<uint32_t>, uint32_t> known;
    for (const std::vector<uint32_t>& equal : ports) {
        const auto count = static_cast<uint32_t>(equal.size());
        if (count == 1) {
            groups_.push_back({equal.front(), 1});
            continue;
        }
        const auto [at, is_new] = known.emplace(equal, static_cast<uint32_t>(hops_.size()));
        if (is_new) hops_.insert(hops_.end(), equal.begin(), equal.end());
        groups_.push_back({at->second, count});
    }
}

uint32_t Switch::next_hop(uint64_t flow_hash, uint32_t destination) const {
    const Group group = groups_[destination];
    return group.count == 1 ? group.first : hops_[group.first + ecmp(flow_hash, salt_, group.count)];
}

void Switch::set_red(const Link& link, const Red& red) {
    for (Port& port : ports_) {
        if (port.link == &link) port.red = red;
    }
}

bool Switch::admits(uint32_t bytes, uint64_t queued_bytes) const {
    const uint64_t free = config_.buffer_bytes - used_bytes_;
    if (bytes > free) return false;
    if (config_.pfc) return true;
    const uint64_t length = queued_bytes + bytes;
    return length <= config_.queue_bytes && static_cast<double>(length) <= config_.alpha * static_cast<double>(free);
}

void Switch::receive(Packet& packet, uint32_t port) {
    packet.egress = next_hop(packet.flow_hash, packet.destination);
    Link& link = *ports_[packet.egress].link;
    if (!admits(packet.bytes, link.queued_bytes())) {
        ++link.stats().dropped_packets;
        world_.tell(Happening::kDropped, link, packet);
        world_.packets.give_back(packet);
        return;
    }
    used_bytes_ += packet.bytes;
    max_used_bytes_ = std::max(max_used_bytes_, used_bytes_);
    Port& in = ports_[port];
    packet.ingress = port;
    in.ingress_bytes += packet.bytes;
    if (config_.pfc && !in.pausing && in.ingress_bytes > config_.pfc->x_off) {
        in.pausing = true;
        in.link->send_pfc(true);
    }
    link.enqueue(packet);
}

void Switch::departs(Packet& packet, Link& link) {
    if (ports_[packet.egress].red.marks(link.queued_bytes(), random_) && is_ect(packet)) {
        ++link.stats().marked_packets;
        mark_ce(packet);
        world_.tell(Happening::kMarked, link, packet);
    }
    used_bytes_ -= packet.bytes;
    Port& in = ports_[packet.ingress];
    in.ingress_bytes -= packet.bytes;
    if (in.pausing && in.ingress_bytes <= config_.pfc->x_on) {
        in.pausing = false;
        in.link->send_pfc(false);
    }
}

}  // namespace rove::fabric
