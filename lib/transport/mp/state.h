// SPDX-License-Identifier: Apache-2.0
// Holds the state of a QP in mp mode, and the state that such QPs share within a worker. Units are packets and bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "transport/mp/held_pool.h"
#include "transport/paths/paths.h"
#include "transport/queue_state.h"
#include "transport/reorder/reorder.h"
#include "wire/ack_entry.h"
#include "wire/frame.h"

namespace rove::transport {

// The early packets of a QP, indexed by PSN. No two PSNs inside the reorder window share a place.
struct EarlyPackets {
    static constexpr uint32_t kNone = HeldPool::kNone;

    std::unique_ptr<uint32_t[]> at;  // the packet's place in the worker's pool, or kNone
    uint32_t places = 0;             // a power of two; 0: no packet has come early
    uint32_t count = 0;
    uint32_t granules = 0;     // memory of the pool for all of them
    uint32_t of_a_packet = 1;  // granules of the latest one
    uint8_t peer = 0;          // from MultipathShared::peer_of()

    // Makes places for the packets up to the one `ahead` of the expected one. Returns false without memory.
    bool make_room(uint32_t ahead, const HeldPool& pool) {
        if (ahead < places) return true;
        const uint32_t more = std::max(std::bit_ceil(ahead + 1), kFew);
        std::unique_ptr<uint32_t[]> room(new (std::nothrow) uint32_t[more]);
        if (room == nullptr) return false;
        std::fill_n(room.get(), more, kNone);
        for (uint32_t i = 0; i < places; ++i)
            if (at[i] != kNone) room[pool.at(at[i]).headers.bth.psn & (more - 1)] = at[i];
        at = std::move(room);
        places = more;
        return true;
    }
    // Frees the places if there are many and none is used.
    void trim() {
        if (count != 0 || places <= kFew) return;
        at.reset();
        places = 0;
    }
    // Returns the place of a packet, which there must be.
    uint32_t& of(Psn psn) { return at[psn.value() & (places - 1)]; }

  private:
    static constexpr uint32_t kFew = 128;
};

// The entry that a packet's sender receives (EU-4).
struct QueuedAck {
    wire::MpAckEntry entry;
    uint8_t syndrome;
};

// The entries that wait for their packet. A QP has one while it has such entries, mostly for the length of an RX burst.
struct QueuedAcks {
    static constexpr uint32_t kMost = 32;  // an RX burst

    uint32_t count = 0;
    std::array<QueuedAck, kMost> entries;
};

struct MpJob : Job {
    Psn request;  // PSN of the READ or atomic that it answers
};

// Describes the headers with which the next packet must arrive to continue the current WRITE.
struct NextWritePacket {
    bool known = false;
    uint32_t offset = 0;  // within the message
    uint64_t va = 0;
    uint32_t rkey = 0;
    uint32_t left = 0;  // bytes of the message from here on
};

struct Mp {
    // The number of expirations without an answer after which responses are not sent again until a request arrives, new
    // or repeated. With the smallest RTO this takes eight seconds: a requester with usual timeouts gives up earlier,
    // and one with longer timeouts asks again.
    static constexpr uint8_t kSilence = 255;

    // Each half sends one stream and receives the other's.
    SendStream requests, responses;           // streams that we send
    ReorderStream requests_in, responses_in;  // streams that we receive
    // The largest distance of a packet ahead of the expected one.
    uint32_t requests_in_degree = 0, responses_in_degree = 0;

    // The requester's state.
    RetryTimer retry;
    uint8_t probes = 0;             // since the last acknowledgement
    bool probing = false;           // the last request is sent again, to see whether the peer is alive
    bool delayed = false;           // the next packet waited for the packets before it
    uint32_t msn_out = 0;           // messages begun that take a receive request at the peer
    uint64_t ended_ns = 0;          // the time when the last packet of a request left, for MP-12
    uint64_t sync_ns = UINT64_MAX;  // the time when the next one may leave, if it waits (MP-12)
    Psn next_response;              // the first response PSN of the next READ or atomic
    Ring<uint32_t> reads;           // SQ indices of the READs and atomics with incomplete responses

    // The responder's state.
    uint32_t msn_in = 0;  // completed messages that took a receive request
    Psn response_end;     // one past the last response PSN of the jobs
    NextWritePacket next_write;
    EarlyPackets held;
    Ring<MpJob> jobs;  // in the order of their responses
    DelayedAck delay;
    std::unique_ptr<QueuedAcks> acks;  // null: none
};

// Free-running counters over all QPs of a worker.
struct MultipathCounters {
    // Packets by their distance ahead of the expected one: 0, 1, 2 to 3, 4 to 7, ... 4096 and more.
    std::array<uint64_t, 14> degrees{};
    std::array<uint64_t, 4> acks_sent{}, acks_received{};  // entries, indexed by wire::MpAck
};

// State of one worker, which is created with its first QP in mp mode.
class MultipathShared {
  public:
    MultipathShared(const PathsConfig& paths_config, const DcqcnConfig& dcqcn_config,
                    const ReorderConfig& reorder_config, uint32_t held_bytes, uint64_t seed)
        : paths(paths_config, seed, dcqcn_config), reorder(reorder_config), pool_(held_bytes) {
        spare_acks_.reserve(kSpareAcks);
    }

    // Maps a peer to its share of the pool and of the memory for order, from 1 on. Several peers may have the same one.
    static uint8_t peer_of(const wire::Gid& peer) {
        uint32_t hash = 0;
        for (const uint8_t byte : peer) hash = hash * 31 + byte;
        return static_cast<uint8_t>(1 + hash % (kPeers - 1));
    }

    // Stores a verified packet of a QP, `ahead` packets after the expected one. Returns false without room. No QP and
    // no peer may hold more of the pool than is left free, so that a newcomer always finds room: half of the pool for
    // one alone, and a quarter next to one that holds its maximum.
    bool hold(EarlyPackets& held, const wire::ParsedFrame& frame, uint32_t ahead) {
        if (frame.payload_bytes > kMaxMtu) return false;
        const uint32_t granules = HeldPool::granules_for(frame.payload_bytes);
        held.of_a_packet = granules;
        if (granules > left_for(held)) return false;
        const Psn psn(frame.headers.bth.psn);
        release(held, psn);  // an entry that remains after a refusal
        if (!held.make_room(ahead, pool_)) return false;
        const uint32_t place = pool_.put(frame.headers, {frame.payload, frame.payload_bytes});
        if (place == HeldPool::kNone) return false;
        held.of(psn) = place;
        holders_ += held.count++ == 0;
        held.granules += granules;
        by_peer_[held.peer] += granules;
        granules_now_ += granules;
        held_peak_ = std::max(held_peak_, ++held_now_);
        return true;
    }
    // Returns the packet with this PSN, or null. It is valid until release().
    const EarlyPacket* find(EarlyPackets& held, Psn psn) const {
        if (held.places == 0) return nullptr;
        const uint32_t place = held.of(psn);
        if (place == EarlyPackets::kNone || Psn(pool_.at(place).headers.bth.psn) != psn) return nullptr;
        return &pool_.at(place);
    }
    void release(EarlyPackets& held, Psn psn) {
        if (held.places == 0) return;
        uint32_t& place = held.of(psn);
        if (place == EarlyPackets::kNone) return;
        const uint32_t granules = pool_.free(std::exchange(place, EarlyPackets::kNone));
        holders_ -= --held.count == 0;
        held.granules -= granules;
        by_peer_[held.peer] -= granules;
        granules_now_ -= granules;
        --held_now_;
        held.trim();
    }
    void release_all(EarlyPackets& held) {
        for (uint32_t i = 0; held.count != 0 && i < held.places; ++i) release(held, Psn(i));
    }
    // Returns how many packets from the expected one on a QP may send now (BX-14): those that it holds, and its part of
    // the room that its peer has left.
    uint32_t room_of(const EarlyPackets& held) const {
        // A packet takes its granules twice, because they are no longer left, and they are taken; so does one of
        // another QP of the same peer.
        return 1 + held.count + left_for(held) / (2 * (holders_ + (held.count == 0)) * held.of_a_packet);
    }
    // Returns room for a QP's acknowledgements, or null without memory.
    std::unique_ptr<QueuedAcks> take_acks() {
        if (spare_acks_.empty()) [[unlikely]]
            return std::unique_ptr<QueuedAcks>(new (std::nothrow) QueuedAcks);
        std::unique_ptr<QueuedAcks> acks = std::move(spare_acks_.back());
        spare_acks_.pop_back();
        return acks;
    }
    void give_back(std::unique_ptr<QueuedAcks> acks) {
        acks->count = 0;
        if (spare_acks_.size() < kSpareAcks) spare_acks_.push_back(std::move(acks));
    }
    uint32_t early_count() const { return held_now_; }
    uint32_t held_peak() const { return held_peak_; }

    // Counts a packet that arrived early and was accepted.
    void record_reorder_distance(uint32_t ahead, uint32_t& most) {
        ++counters.degrees[std::min<size_t>(std::bit_width(ahead), counters.degrees.size() - 1)];
        most = std::max(most, ahead);
    }

    Paths paths;
    Reorder reorder;
    MultipathCounters counters;

  private:
    static constexpr uint32_t kPeers = ReorderStream::kPeers;
    static constexpr size_t kSpareAcks = 64;
    // Returns the granules that the QP may still take.
    uint32_t left_for(const EarlyPackets& held) const {
        const uint32_t left = pool_.granules() - granules_now_, taken = std::max(held.granules, by_peer_[held.peer]);
        return left > taken ? left - taken : 0;
    }

    std::vector<std::unique_ptr<QueuedAcks>> spare_acks_;
    HeldPool pool_;
    std::array<uint32_t, kPeers> by_peer_{};   // granules, indexed by peer_of()
    uint32_t granules_now_ = 0, holders_ = 0;  // granules in use; QPs that hold a packet
    uint32_t held_now_ = 0, held_peak_ = 0;
};

}  // namespace rove::transport
