// SPDX-License-Identifier: Apache-2.0
#include "fabric/network.h"

#include <stdexcept>

namespace rove::fabric {
Network::Network(uint64_t seed, Carry carry)
    : world_(seed, carry),
      action_event_(Event::of<&Network::act>(*this)),
      scratch_memory_(kScratchBytes),
      scratch_(register_memory(scratch_memory_)) {}

Host& Network::add_host(const HostConfig& config) {
    return add<Host>(tables_, config);
}

Switch& Network::add_switch(const SwitchConfig& config) {
    return add<Switch>(config);
}

Cable Network::connect(Node& a, Node& b, const LinkConfig& both_ways) {
    const auto port_a = static_cast<uint32_t>(a.links().size()), port_b = static_cast<uint32_t>(b.links().size());
    Link& forward = links_.emplace_back(world_, a, b, port_b, both_ways);
    Link& backward = links_.emplace_back(world_, b, a, port_a, both_ways);
    forward.set_reverse(backward);
    backward.set_reverse(forward);
    a.attach(forward);
    b.attach(backward);
    return {forward, backward};
}

void Network::at(Time time, std::function<void()> action) {
    actions_.emplace(std::max(time, now()), std::move(action));
    world_.events.schedule(action_event_, actions_.begin()->first);
}

void Network::act() {
    while (!actions_.empty() && actions_.begin()->first <= now()) {
        auto action = std::move(actions_.extract(actions_.begin()).mapped());
        action();
    }
    if (!actions_.empty()) world_.events.schedule(action_event_, actions_.begin()->first);
}

bool Network::run_until(Time time) {
    world_.events.run_until(time);
    return world_.events.stopped();
}

uint64_t Network::packet_hops() const {
    return total(&LinkStats::delivered_packets);
}

uint64_t Network::total(uint64_t LinkStats::*counter) const {
    uint64_t sum = 0;
    for (const Link& link : links_) sum += link.stats().*counter;
    return sum;
}

uint16_t Network::source_port_via(const Link& link, const Host& from, const Host& to) const {
    const auto& chooser = dynamic_cast<const Switch&>(link.from());
    for (uint32_t port = 0xC000; port <= 0xFFFF; ++port) {
        const auto udp_src = static_cast<uint16_t>(port);
        const uint32_t hop = chooser.next_hop(flow_hash(from.flow_to(to, udp_src)), to.index());
        if (chooser.links()[hop] == &link) return udp_src;
    }
    throw std::invalid_argument("fabric: the link is on no shortest way between the hosts");
}

transport::Region& Network::register_memory(std::span<uint8_t> memory) {
    transport::Region& region = regions_.emplace_back();
    region.host = memory.data();
    region.iova = reinterpret_cast<uint64_t>(memory.data());
    region.length = memory.size();
    region.access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    region.pd = &tables_;
    if (!tables_.memory.insert(region)) throw std::runtime_error("fabric: no key for one more memory region");
    return region;
}

}  // namespace rove::fabric
