// SPDX-License-Identifier: Apache-2.0
// One direction of a cable: a queue for each of two traffic classes, a transmitter, a wire. Units: picoseconds, bytes,
// bits per second.
//
// DESIGN NOTES
// 1. Packets on the wire arrive in the order in which they were sent, so they stand in a list, and only the first has
//    an event. Likewise the transmitter has an event only while something waits for it. A hop over an idle link is one
//    event.
// 2. Whether a packet may be queued is for the node to decide: a switch has its shared buffer, a host the ring of its
//    NIC.
// 3. A packet that is being sent is no longer in the queue.
// 4. What happens to a packet on its way is decided when it arrives. A link that goes down loses what is on it at once,
//    and what is sent until it is up again; the transmitter goes on, so a queue before a dead link drains and does not
//    block others.
// 5. The upper class (Packet::urgent) has strict priority, and PFC, which works by class, does not pause it. Where no
//    packet is urgent, there is one class and one queue.
// 6. The time that packets wait is the sum of the times at which they left the queue less the sum of those at which
//    they came: one addition each, and no time is kept in a packet.
#pragma once

#include <memory>

#include "fabric/world.h"

namespace rove::fabric {

class Node;

struct LinkConfig {
    uint64_t bits_per_s = 40 * kGbps;
    Time delay = kMicrosecond;  // propagation, and what else is constant
    uint32_t gap_bytes = kGapBytes;
    double loss = 0;        // probability that a packet vanishes
    double corruption = 0;  // that one of its bits is flipped
};

// Free-running; readers take differences.
struct LinkStats {
    // Those of every packet first: what one event touches lies together.
    uint64_t enqueued_packets = 0;
    Time waits = 0;                             // note 6, modulo 2^64; Link::waited() has the sum
    uint64_t sent_packets = 0, sent_bytes = 0;  // onto the wire, whatever became of them; PFC frames are not counted
    uint64_t delivered_packets = 0;
    uint64_t max_queued_bytes = 0;
    uint64_t marked_packets = 0;   // by RED, when they left the queue
    uint64_t dropped_packets = 0;  // not enqueued: the switch had no room
    uint64_t trimmed_packets = 0;  // enqueued without their payload, for which the switch had no room
    uint64_t drained_packets = 0;  // enqueued and never sent: the queue was emptied, for the link was down
    uint64_t evicted_packets = 0;  // enqueued and never sent: shortest first, and one came that had less left
    uint64_t lost_packets = 0;     // by chance
    uint64_t damaged_packets = 0;  // by chance; they were delivered
    uint64_t cut_packets = 0;      // they were sent, and the link was down
    uint64_t pauses = 0;           // times that PFC stopped it
    Time ended_pauses_time = 0;    // of the pauses that have ended; Link::paused_time() has all
};

class alignas(64) Link {
  public:
    // From a port of one node to a port of another. The link of the other direction is set with set_reverse().
    Link(World& world, Node& from, Node& to, uint32_t to_port, const LinkConfig& config);
    void set_reverse(Link& reverse) { reverse_ = &reverse; }

    Node& from() const { return from_; }
    Node& to() const { return to_; }
    const LinkConfig& config() const { return config_; }
    bool up() const { return up_; }
    const LinkStats& stats() const { return stats_; }
    LinkStats& stats() { return stats_; }

    // Of the lower class, which is where data waits.
    uint64_t queued_bytes() const { return queued_bytes_; }
    uint32_t queued_packets() const { return queued_packets_; }
    uint64_t urgent_bytes() const { return urgent_bytes_; }
    uint32_t urgent_packets() const { return urgent_packets_; }
    // Both count: frames on the wire, and all packets in the queues and there, PFC's too.
    uint32_t frames_on_wire() const;
    uint32_t packets() const;
    void enqueue(Packet& packet);
    // Empties the queues, as a switch does that sees a port go down. The packets leave the node, and come nowhere.
    void drain();
    // From now on the packet that `order` says is sent first, instead of the one that came first.
    void set_shortest_first(ShortestFirst order) {
        shortest_first_ = std::make_unique<ShortestFirstQueue>(order);
        special_ = true;
    }

    // Takes a packet out of a queue that serves the shortest first: what has the most left, if that is more than
    // `remaining`; null: nothing has.
    Packet* evict(uint32_t remaining);

    // How long PFC has stopped it, until now.
    Time paused_time() const;
    // How long it has been stopped now; 0: it is not.
    Time present_pause() const { return is_paused() ? world_.events.now() - paused_since_ : 0; }
    // How long packets have waited in the queue, until now, all of them together.
    Time waited() const;
    // Sends a PFC frame before all that is queued. When it arrives, the link in the other direction stops or goes on.
    void send_pfc(bool pause);
    // A pause that this link's frames bring ends by itself after `time`, unless one more comes. kForever: it does not.
    static constexpr Time kForever = UINT64_MAX;
    void set_pause_time(Time time) { pause_time_ = time; }

    // Changes, at any time. A new rate holds from the next packet on.
    void set_rate(uint64_t bits_per_s) { config_.bits_per_s = bits_per_s; }
    void set_loss(double probability) { config_.loss = probability; }
    void set_corruption(double probability) { config_.corruption = probability; }
    void set_up(bool up);

    // How long a frame of `bytes` takes to be sent.
    Time duration(uint32_t bytes) const { return (bytes + config_.gap_bytes) * (8 * kSecond) / config_.bits_per_s; }

    Link& reverse() const { return *reverse_; }

    // A packet will be enqueued soon: fetches what that touches.
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
    void cut(Packet& packet);
    void set_paused(bool paused, Time lasts = kForever);
    bool is_paused() const { return paused_ && world_.events.now() < paused_until_; }
    bool holds_back();
    void end_pause(Time at);

    // In the order of their use on a packet's way: what one event touches lies together.
    PacketList wire_;
    Event arrival_event_;  // scheduled whenever the wire is not empty
    PacketList queue_;
    Event sent_event_;  // scheduled whenever a queue is not empty and the link not paused for ever
    World& world_;
    Node& from_;
    Node& to_;
    Time busy_until_ = 0;  // the transmitter
    uint64_t queued_bytes_ = 0;
    uint32_t queued_packets_ = 0;
    uint32_t to_port_;
    PacketList urgent_;
    LinkConfig config_;
    bool up_ = true;
    bool paused_ = false;
    bool special_ = false;                                // an urgent packet waits, or the shortest goes first
    std::unique_ptr<ShortestFirstQueue> shortest_first_;  // in the place of queue_
    LinkStats stats_;
    Link* reverse_ = nullptr;
    Time paused_since_ = 0, paused_until_ = 0;
    Time pause_time_ = kForever;
    uint64_t urgent_bytes_ = 0;
    uint32_t urgent_packets_ = 0;
    Random random_;
};

// Both directions.
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
