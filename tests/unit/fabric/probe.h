// SPDX-License-Identifier: Apache-2.0
// A node without a transport. It sends the packets of the test, and records the packets that arrive.
#pragma once

#include <gtest/gtest.h>

#include "fabric/network.h"

namespace rove::fabric {

inline constexpr uint32_t kFrameBytes = 1000;
inline constexpr uint64_t kRate = 10 * kGbps;

class Probe final : public Node {
  public:
    struct Arrival {
        Time time;
        uint64_t id;  // the flow_hash of the packet
        bool ce;
        bool damaged;
        bool trimmed;
        bool operator==(const Arrival&) const = default;
    };
    using Node::Node;

    bool is_destination() const override { return true; }
    void on_transmit(Packet&, Link&) override {}
    void receive(Packet& packet, uint32_t) override {
        arrivals.push_back({world_.events.now(), packet.flow_hash,
                            (packet.frame.flow.traffic_class & 3) == wire::kEcnCe, packet.damaged, packet.trimmed});
        world_.packets.give_back(packet);
    }
    void send(const Node& to, uint32_t bytes, uint64_t id = 0, uint8_t ecn = wire::kEcnEct0) {
        links().front()->enqueue(make(to, bytes, id, ecn));
    }
    // Sends an acknowledgement, in the upper class if `urgent`.
    void send_control(const Node& to, uint64_t id = 0, bool urgent = true) {
        Packet& packet = make(to, kMinFrameBytes, id, wire::kEcnEct0);
        packet.control = true;
        packet.urgent = urgent;
        links().front()->enqueue(packet);
    }
    void send_remaining(const Node& to, uint32_t bytes, uint64_t id, uint32_t remaining) {
        Packet& packet = make(to, bytes, id, wire::kEcnEct0);
        packet.remaining = remaining;
        links().front()->enqueue(packet);
    }

    std::vector<Arrival> arrivals;

  private:
    Packet& make(const Node& to, uint32_t bytes, uint64_t id, uint8_t ecn) {
        Packet& packet = world_.packets.take();
        packet.begin(bytes, to.index(), id);
        packet.frame.flow.traffic_class = ecn;
        return packet;
    }
};

// Returns the time of a frame of `bytes` bytes at `bits_per_s`, with another formula than Link's.
constexpr Time wire_time(uint64_t bytes, uint64_t bits_per_s) {
    return static_cast<Time>(static_cast<__uint128_t>(bytes + 8 + 12) * 8 * kSecond / bits_per_s);
}

}  // namespace rove::fabric
