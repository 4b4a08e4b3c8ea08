// SPDX-License-Identifier: Apache-2.0
// A packet in the modelled network, the lists that packets wait in, and the pool that they come from. Units: bytes,
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
inline constexpr uint32_t kGapBytes = 20;       // preamble 8, interpacket gap 12: on the wire, in no buffer

// What packets are made of. Headers: what a host sends is handed over parsed, its payload is zeros and takes no memory.
// For figures. Bytes: frames are built, carried, damaged and parsed for real, so that every byte that arrives can be
// verified. All between the two hosts is the same: switches and links look at `frame`.
enum class Carry : uint8_t { kHeaders, kBytes };

// What a packet between two leaves has with it (conga.h).
struct CongaTag {
    static constexpr uint16_t kNone = UINT16_MAX;
    uint32_t leaf = 0;                 // that it comes from
    uint16_t uplink = 0;               // by which it left that
    uint16_t feedback_uplink = kNone;  // of the leaf that it goes to
    uint8_t congestion = 0;            // of the fullest link on its way
    uint8_t feedback = 0;              // the same of what came by feedback_uplink
};

// What it has with it under ConWeave (conweave.h), and what leaves tell each other there.
struct ConWeaveTag {
    enum class Kind : uint8_t { kData, kReply, kClear, kBusy };
    Time sent;       // by its first leaf
    Time tail_sent;  // rerouted: when the last packet of the way before left
    uint32_t host;   // that sends the flow
    uint16_t way;
    uint8_t epoch;  // by how many ways the flow went before
    Kind kind : 2;
    bool asks : 1;      // for a reply
    bool rerouted : 1;  // it may overtake those of the way before
    bool tail : 1;      // the last one of its way
};

struct alignas(64) Packet {
    enum class Kind : uint8_t { kFrame, kPause, kResume };  // the last two are PFC's, between neighbours

    Packet* next = nullptr;    // in the list that holds it
    Time next_arrival = 0;     // on a wire: when the next one arrives
    uint64_t flow_hash = 0;    // of the 5-tuple
    uint32_t bytes = 0;        // in buffers: the frame with its FCS
    uint32_t destination = 0;  // node
    uint32_t ingress = 0;      // port by which it came into the switch that holds it
    uint32_t egress = 0;       // and by which it will leave
    Kind kind = Kind::kFrame;
    bool damaged = false;     // Carry::kHeaders: a bit of it has been flipped, and its ICRC says so
    bool control = false;     // an ACK, NACK or CNP: its way is its flow's, however switches spread data
    bool urgent = false;      // of the upper traffic class
    bool trimmed = false;     // a switch has cut its payload off; `frame` still says how long that was
    bool tagged = false;      // `conga` or `conweave` is set
    uint8_t deflections = 0;  // times that a full switch sent it elsewhere
    uint32_t route = 0;       // on a path of the source's choice: where it continues (Switch::set_paths); else 0
    uint32_t remaining = 0;   // bytes of its message that are left to send, its own included
    wire::ParsedFrame frame;
    std::vector<uint8_t> content;  // Carry::kBytes: the frame, without FCS
    std::vector<uint8_t> entries;  // Carry::kHeaders: the payload of an acknowledgement
    union {                        // as the switches' balancer is
        CongaTag conga{};
        ConWeaveTag conweave;
    };

    // A new frame. Packets come from a pool: this resets all that links and switches look at.
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
// Flips one bit, drawn from `random`, at the IP header or behind it. (The Ethernet header is new on every link.)
void damage(Packet& packet, uint64_t random);

// A hash of the 5-tuple. (The protocol and the destination port of RoCEv2 are constants.)
uint64_t flow_hash(const wire::Flow& flow);

// Which packet of a queue goes first, by what is left of its flow (Packet::remaining).
enum class ShortestFirst : uint8_t {
    kOfFlow,  // pFabric: of the flow that has the packet with the least left, the packet that came first
    kPacket,  // that packet itself, so that a flow that waits is turned round
};

class PacketList {
  public:
    bool empty() const { return first_ == nullptr; }
    Packet& back() { return *last_; }  // when not empty
    const Packet* first() const { return first_; }
    void push(Packet& packet) {
        packet.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &packet;
        last_ = &packet;
    }
    Packet& pop() {
        Packet& packet = *first_;
        first_ = packet.next;
        __builtin_prefetch(first_);  // its turn comes next, and it has been lying for long
        return packet;
    }

  private:
    Packet* first_ = nullptr;
    Packet* last_ = nullptr;
};

// The same for packets that do not leave in the order in which they came.
class ShortestFirstQueue {
  public:
    explicit ShortestFirstQueue(ShortestFirst order) : order_(order) {}
    void push(Packet& packet);
    Packet& pop();  // when not empty
    // Takes out what has the most left, if that is more than `remaining`; null: nothing has.
    Packet* pop_longest(uint32_t remaining);

  private:
    struct Place {
        uint64_t key;      // what is left, or the flow
        uint64_t arrival;  // its number
        Packet* packet;
        bool operator<(const Place& other) const {
            return key != other.key ? key < other.key : arrival < other.arrival;
        }
    };
    const ShortestFirst order_;
    uint64_t arrivals_ = 0;
    std::set<Place> by_remaining_;
    std::set<Place> by_flow_;  // kOfFlow
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
    size_t size() const { return storage_.size(); }  // all that there ever were
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
