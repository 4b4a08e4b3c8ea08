// SPDX-License-Identifier: Apache-2.0
// One direction of a cable: a queue for each of two traffic classes, a transmitter and a wire. Units: picoseconds,
// bytes, bits per second.
//
// DESIGN NOTES
// 1. Packets arrive in the order in which they were sent. They are in a list, and only the first has an event. The
//    transmitter likewise has an event only while a packet waits for it. A hop over an idle link is one event.
// 2. The node decides whether a packet may be queued: a switch has its shared buffer, a host the ring of its NIC.
// 3. A packet that is being transmitted is no longer in the queue.
// 4. The fate of a packet is decided when it arrives. A link that goes down loses the packets on it at once, and all
//    packets that are sent until it is up again. The transmitter continues, so that a queue in front of a dead link
//    drains and blocks no other.
// 5. The upper class (Packet::urgent) has strict priority, and PFC, which works by class, does not pause it. Without
//    urgent packets there is one class and one queue.
// 6. The total waiting time of packets is the sum of the times at which they left the queue less the sum of those at
//    which they entered it. That takes one addition each, and no time in the packet.
#pragma once

#include <memory>

#include "fabric/world.h"

namespace rove::fabric {

class Node;

struct LinkConfig {
    uint64_t bits_per_s = 40 * kGbps;
    Time delay = kMicrosecond;  // propagation and any other constant delay
    uint32_t gap_bytes = kGapBytes;
    double loss = 0;        // the probability that a packet is lost
    double loss_burst = 1;  // the mean number of consecutive packets that are lost; above 1, Gilbert's model
    double corruption = 0;  // the probability that one of its bits is flipped
};

// Counters that never decrease; readers take differences.
struct LinkStats {
    // The fields that every packet changes come first, so that one event touches few cache lines.
    uint64_t enqueued_packets = 0;
    Time waits = 0;                             // note 6, modulo 2^64; Link::waited() has the sum
    uint64_t sent_packets = 0, sent_bytes = 0;  // put on the wire, whatever happened then; without PFC frames
    uint64_t delivered_packets = 0;
    uint64_t max_queued_bytes = 0;
    uint64_t marked_packets = 0;   // marked by RED when they left the queue
    uint64_t dropped_packets = 0;  // not enqueued: the switch had no room
    uint64_t trimmed_packets = 0;  // enqueued without their payload, for which the switch had no room
    uint64_t drained_packets = 0;  // enqueued and removed unsent, because the link was down
    uint64_t evicted_packets = 0;  // enqueued and removed unsent in favour of a packet with fewer bytes left
    uint64_t lost_packets = 0;     // lost by chance
    uint64_t damaged_packets = 0;  // damaged by chance; these were delivered
    uint64_t cut_packets = 0;      // sent while the link was down
    uint64_t pauses = 0;           // the number of times that PFC stopped the link
    Time ended_pauses_time = 0;    // total duration of finished pauses; Link::paused_time() adds the present one
};

class alignas(64) Link {
  public:
    // Joins a port of `from` to port `to_port` of `to`. set_reverse() sets the link of the other direction.
    Link(World& world, Node& from, Node& to, uint32_t to_port, const LinkConfig& config);
    void set_reverse(Link& reverse) { reverse_ = &reverse; }

    Node& from() const { return from_; }
    Node& to() const { return to_; }
    const LinkConfig& config() const { return config_; }
    bool up() const { return up_; }
    const LinkStats& stats() const { return stats_; }
    LinkStats& stats() { return stats_; }

    // The queue of the lower class, in which data waits.
    uint64_t queued_bytes() const { return queued_bytes_; }
    uint32_t queued_packets() const { return queued_packets_; }
    uint64_t urgent_bytes() const { return urgent_bytes_; }
    uint32_t urgent_packets() const { return urgent_packets_; }
    // Return the number of frames on the wire, and of all packets in the queues and on the wire, PFC frames included.
    uint32_t frames_on_wire() const;
    uint32_t packets() const;
    void enqueue(Packet& packet);
    // Empties the queues, as a switch does when a port goes down. The packets leave the node and arrive nowhere.
    void drain();
    // Makes the queue serve packets in `order` from now on, rather than first in, first out.
    void set_shortest_first(ShortestFirst order) {
        shortest_first_ = std::make_unique<ShortestFirstQueue>(order);
        special_ = true;
    }

    // Removes from a shortest-first queue the packet with the most bytes left, if these are more than `remaining`.
    // Returns null otherwise.
    Packet* evict(uint32_t remaining);

    // Returns the total time for which PFC has stopped the link.
    Time paused_time() const;
    // Returns the duration of the present pause, or 0.
    Time present_pause() const { return is_paused() ? world_.events.now() - paused_since_ : 0; }
    // Returns the total time that all packets have waited in the queue.
    Time waited() const;
    // Sends a PFC frame ahead of all queued packets. When it arrives, the link in the other direction stops or
    // continues.
    void send_pfc(bool pause);
    // Sets the duration of a pause that this link's frames cause. A further frame extends it; kForever never ends.
    static constexpr Time kForever = UINT64_MAX;
    void set_pause_time(Time time) { pause_time_ = time; }

    // Change the link at any time. A new rate applies from the next packet on.
    void set_rate(uint64_t bits_per_s) { config_.bits_per_s = bits_per_s; }
    void set_loss(double probability) { config_.loss = probability; }
    void set_loss_burst(double packets) { config_.loss_burst = packets; }
    void set_corruption(double probability) { config_.corruption = probability; }
    void set_up(bool up);

    // Returns the time that the transmission of a frame of `bytes` takes.
    Time duration(uint32_t bytes) const { return (bytes + config_.gap_bytes) * (8 * kSecond) / config_.bits_per_s; }

    Link& reverse() const { return *reverse_; }

    // Prefetches the fields that enqueue() touches.
    void prefetch() const {
        for (int line = 0; line < 5; ++line) __builtin_prefetch(reinterpret_cast<const char*>(this) + line * 64);
    }

  private:
    void enqueue_urgent(Packet& packet);
    Packet& pop_urgent();
    Packet& pop() {
        Packet& packet = special_ && shortest_first_ != nullptr ? shortest_first_->pop() : queue_.pop();
        --queued_packets_;
        queued_bytes_ -= packet.bytes;
        return packet;
    }
    void send_next();
    void send_special();
    void send(Packet& packet, Time now);
    void put_on_wire(Packet& packet, Time arrival);
    void arrive();
    void foresee_arrival(uint32_t ahead);
    void foresee_sending(uint32_t ahead);
    bool loses_packet();
    void cut(Packet& packet);
    void set_paused(bool paused, Time lasts = kForever);
    bool is_paused() const { return paused_ && world_.events.now() < paused_until_; }
    bool holds_back();
    void end_pause(Time at);

    // Members are in the order of their use on a packet's way, so that one event touches few cache lines.
    PacketList wire_;
    Event arrival_event_;  // scheduled whenever the wire is not empty
    PacketList queue_;
    Event sent_event_;  // scheduled whenever a queue is not empty, unless the link is paused for ever
    World& world_;
    Node& from_;
    Node& to_;
    Time busy_until_ = 0;  // end of the present transmission
    uint64_t queued_bytes_ = 0;
    uint32_t queued_packets_ = 0;
    uint32_t to_port_;
    PacketList urgent_;
    LinkConfig config_;
    bool up_ = true;
    bool paused_ = false;
    bool in_burst_ = false;                               // LinkConfig::loss_burst: the last packet was lost
    bool special_ = false;                                // an urgent packet waits, or shortest-first is on
    std::unique_ptr<ShortestFirstQueue> shortest_first_;  // replaces queue_
    LinkStats stats_;
    Link* reverse_ = nullptr;
    Time paused_since_ = 0, paused_until_ = 0;
    Time pause_time_ = kForever;
    uint64_t urgent_bytes_ = 0;
    uint32_t urgent_packets_ = 0;
    Random random_;
};

// Both directions of a cable.
struct Cable {
    Link& forward;
    Link& backward;
    void set_up(bool up) const {
        forward.set_up(up);
        backward.set_up(up);
    }
    void set_rate(uint64_t bits_per_s) const {
        forward.set_rate(bits_per_s);
        backward.set_rate(bits_per_s);
    }
};

}  // namespace rove::fabric
