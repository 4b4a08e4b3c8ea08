// SPDX-License-Identifier: Apache-2.0
// A node without a transport: sends what a test says, and remembers what arrives.
#pragma once

#include <gtest/gtest.h>

#include "fabric/network.h"

namespace rove::fabric {

class Probe final : public Node {
  public:
    struct Arrival {
        Time time;
        uint64_t id;  // the packet's flow_hash
        bool ce;
        bool damaged;
        bool operator==(const Arrival&) const = default;
    };
    using Node::Node;

    bool is_destination() const override { return true; }
    void departs(Packet&, Link&) override {}
    void receive(Packet& packet, uint32_t) override {
        arrivals.push_back({world_.events.now(), packet.flow_hash,
                            (packet.frame.flow.traffic_class & 3) == wire::kEcnCe, packet.damaged});
        world_.packets.give_back(packet);
    }
    void send(const Node& to, uint32_t bytes, uint64_t id = 0, uint8_t ecn = wire::kEcnEct0) {
        Packet& packet = world_.packets.take();
        packet.kind = Packet::Kind::kFrame;
        packet.damaged = false;
        packet.bytes = bytes;
        packet.flow_hash = id;
        packet.destination = to.index();
        packet.frame.flow.traffic_class = ecn;
        links().front()->enqueue(packet);
    }

    std::vector<Arrival> arrivals;
};

// What a frame of `bytes` takes at `bits_per_s`, said in another way than Link does.
constexpr Time wire_time(uint64_t bytes, uint64_t bits_per_s) {
    return static_cast<Time>(static_cast<__uint128_t>(bytes + 8 + 12) * 8 * kSecond / bits_per_s);
}

}  // namespace rove::fabric
