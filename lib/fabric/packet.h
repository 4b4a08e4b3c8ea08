// SPDX-License-Identifier: Apache-2.0
// A packet in the modelled network, the lists in which packets wait, and the pool from which they come. Units: bytes,
// picoseconds.
#pragma once

#include <deque>
#include <set>
#include <vector>

#include "fabric/units.h"
#include "wire/frame.h"

namespace rove::fabric {

inline constexpr uint32_t kFcsBytes = 4;        // the Ethernet frame check sequence
inline constexpr uint32_t kMinFrameBytes = 64;  // IEEE 802.3, 3.2.8
inline constexpr uint32_t kGapBytes = 20;       // preamble 8, interpacket gap 12: on the wire, not in buffers

// The content of packets. kHeaders: a host's headers are passed on parsed, and the payload is zeros that take no
// memory. Figures use this. kBytes: frames are built, carried, damaged and parsed, so that every byte that arrives can
// be verified. The network between two hosts is the same in both cases: switches and links read `frame`.
enum class Carry : uint8_t { kHeaders, kBytes };

// The CONGA state that a packet carries between two leaves (conga.h).
struct CongaTag {
    static constexpr uint16_t kNone = UINT16_MAX;
    uint32_t leaf = 0;                 // the leaf that the packet comes from
    uint16_t uplink = 0;               // the uplink by which it left that leaf
    uint16_t feedback_uplink = kNone;  // an uplink of the leaf that the packet goes to
    uint8_t congestion = 0;            // the congestion of the fullest link on the packet's path
    uint8_t feedback = 0;              // the congestion of the path that begins with `feedback_uplink`
};

// The ConWeave state of a packet (conweave.h), and the messages between leaves.
struct ConWeaveTag {
    enum class Kind : uint8_t { kData, kReply, kClear, kBusy };
    Time sent;       // sending time at the first leaf
    Time tail_sent;  // rerouted packets: the time at which the last packet of the previous path left
    uint32_t host;   // the host that sends the flow
    uint16_t way;
    uint8_t epoch;  // the number of paths that the flow used before
    Kind kind : 2;
    bool asks : 1;      // the packet asks for a reply
    bool rerouted : 1;  // the packet may overtake packets of the previous path
    bool tail : 1;      // the last packet of its path
};

struct alignas(64) Packet {
    enum class Kind : uint8_t { kFrame, kPause, kResume };  // kPause and kResume are PFC frames between neighbours

    Packet* next = nullptr;    // in the list that holds the packet
    Time next_arrival = 0;     // on a wire: the arrival time of the next packet
    uint64_t flow_hash = 0;    // hash of the 5-tuple
    uint32_t bytes = 0;        // size in buffers: the frame with its FCS
    uint32_t destination = 0;  // node
    uint32_t ingress = 0;      // the port by which it entered the switch that holds it
    uint32_t egress = 0;       // the port by which it will leave
    Kind kind = Kind::kFrame;
    bool damaged = false;     // Carry::kHeaders: a bit was flipped, so the ICRC does not match
    bool control = false;     // an ACK, NACK or CNP: its path is its flow's, however switches spread data
    bool urgent = false;      // in the upper traffic class
    bool trimmed = false;     // a switch removed the payload; `frame` still has the payload's length
    bool tagged = false;      // `conga` or `conweave` is set
    uint8_t deflections = 0;  // the number of times that a full switch sent it to a neighbour
    uint32_t route = 0;       // the position on a path that the source chose (Switch::set_paths), or 0
    uint32_t remaining = 0;   // bytes of its message that are left to send, its own included
    wire::ParsedFrame frame;
    std::vector<uint8_t> content;  // Carry::kBytes: the frame, without FCS
    std::vector<uint8_t> entries;  // Carry::kHeaders: the payload of an acknowledgement
    union {                        // chosen by the balancer of the switches
        CongaTag conga{};
        ConWeaveTag conweave;
    };

    // Makes the packet a new frame. Packets come from a pool, so this resets all that links and switches read.
    void begin(uint32_t frame_bytes, uint32_t to, uint64_t hash) {
        flow_hash = hash;
        bytes = frame_bytes;
        destination = to;
        kind = Kind::kFrame;
        damaged = control = urgent = trimmed = tagged = false;
        deflections = 0;
        route = remaining = 0;
    }
};

// Sets Congestion Experienced.
void mark_ce(Packet& packet);
inline bool is_ect(const Packet& packet) {
    return (packet.frame.flow.traffic_class & 3) != wire::kEcnNotEct;
}
// Flips one bit, chosen by `random`, in the IP header or behind it. The Ethernet header is new on every link.
void damage(Packet& packet, uint64_t random);

// Returns a hash of the 5-tuple. Protocol and destination port are constants in RoCEv2.
uint64_t flow_hash(const wire::Flow& flow);

// The order in which a queue serves packets by the remaining bytes of their message (Packet::remaining).
enum class ShortestFirst : uint8_t {
    kOfFlow,  // pFabric: the earliest packet of the flow that has the packet with the fewest bytes left
    kPacket,  // the packet with the fewest bytes left, which reverses the order within a flow that waits
};

class PacketList {
  public:
    bool empty() const { return first_ == nullptr; }
    Packet& back() { return *last_; }  // the list must not be empty
    const Packet* first() const { return first_; }
    void push(Packet& packet) {
        packet.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &packet;
        last_ = &packet;
    }
    Packet& pop() {
        Packet& packet = *first_;
        first_ = packet.next;
        __builtin_prefetch(first_);  // it is used next, and has left the caches
        return packet;
    }

  private:
    Packet* first_ = nullptr;
    Packet* last_ = nullptr;
};

// A queue whose packets do not leave in their order of arrival.
class ShortestFirstQueue {
  public:
    explicit ShortestFirstQueue(ShortestFirst order) : order_(order) {}
    void push(Packet& packet);
    Packet& pop();  // the queue must not be empty
    // Removes and returns the packet with the most bytes left, if these are more than `remaining`. Returns null
    // otherwise.
    Packet* pop_longest(uint32_t remaining);

  private:
    struct Place {
        uint64_t key;      // the bytes left, or the flow
        uint64_t arrival;  // sequence number
        Packet* packet;
        bool operator<(const Place& other) const {
            return key != other.key ? key < other.key : arrival < other.arrival;
        }
    };
    const ShortestFirst order_;
    uint64_t arrivals_ = 0;
    std::set<Place> by_remaining_;
    std::set<Place> by_flow_;  // for kOfFlow only
};

class PacketPool {
  public:
    Packet& take() {
        if (free_ == nullptr) return storage_.emplace_back();
        Packet& packet = *free_;
        free_ = packet.next;
        return packet;
    }
    void give_back(Packet& packet) {
        packet.next = free_;
        free_ = &packet;
    }
    size_t size() const { return storage_.size(); }  // all packets ever made
    size_t in_use() const {
        size_t free = 0;
        for (const Packet* packet = free_; packet != nullptr; packet = packet->next) ++free;
        return storage_.size() - free;
    }

  private:
    Packet* free_ = nullptr;
    std::deque<Packet> storage_;
};

}  // namespace rove::fabric
