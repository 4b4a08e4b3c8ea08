// SPDX-License-Identifier: Apache-2.0
// What a QP has that speaks mp, and what such QPs share within a worker.
// Units: packets, bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "transport/paths/paths.h"
#include "transport/queue_state.h"
#include "transport/reorder/reorder.h"
#include "wire/ack_entry.h"
#include "wire/frame.h"

namespace rove::transport {

// A request that came before its turn and may not take effect yet (EU-7).
struct EarlyPacket {
    uint16_t next_free;
    wire::Headers headers;
    uint32_t payload_bytes;
    std::array<uint8_t, kMaxMtu> payload;
};

// Those of a QP, by PSN: no two that the reorder window lets in have the same place.
struct EarlyPackets {
    static constexpr uint16_t kNone = UINT16_MAX;

    std::unique_ptr<uint16_t[]> at;  // index of the packet in the worker's pool; kNone: none
    uint32_t mask = 0;
    uint32_t count = 0;
    uint8_t peer = 0;  // MultipathShared::peer_of()

    // For a window of `packets` ahead of the expected one.
    void make_room(uint32_t packets) {
        mask = std::bit_ceil(packets + 1) - 1;
        at = std::make_unique<uint16_t[]>(mask + 1);
        std::fill_n(at.get(), mask + 1, kNone);
    }
    uint16_t& of(Psn psn) { return at[psn.value() & mask]; }
};

// What a packet earned, to be sent to its sender (EU-4).
struct QueuedAck {
    wire::MpAckEntry entry;
    uint8_t syndrome;
};

struct MpJob : Job {
    Psn request;  // PSN of the READ or atomic that it answers
};

// Where a WRITE goes on if the packet that comes next is its next one: what that packet's headers must say then.
struct NextWritePacket {
    bool known = false;
    uint32_t offset = 0;  // in the message
    uint64_t va = 0;
    uint32_t rkey = 0;
    uint32_t left = 0;  // bytes of the message from here on
};

struct Mp {
    static constexpr uint32_t kMaxAcks = 32;  // an RX burst
    // Expirations without an answer after which responses are not sent again before a request comes, new or not. Eight
    // seconds with the least RTO: a requester with the usual timeouts has given up, one with longer ones asks again.
    static constexpr uint8_t kSilence = 255;

    // Both halves: each sends one stream and receives the other's.
    SendStream requests, responses;                            // what we send
    ReorderStream requests_in, responses_in;                   // what we receive
    uint32_t requests_in_degree = 0, responses_in_degree = 0;  // the most that a packet of them was ahead

    // Requester.
    RetryTimer retry;
    uint8_t probes = 0;             // since something was acknowledged
    bool probing = false;           // the last request goes once more, to see whether the peer is there
    bool delayed = false;           // the next packet has waited for what is before it
    uint32_t msn_out = 0;           // messages begun that take a receive request at the peer
    uint64_t ended_ns = 0;          // when the last packet of a request left; MP-12 counts from there
    uint64_t sync_ns = UINT64_MAX;  // when the next one may, if it waits for that (MP-12)
    Psn next_response;              // of the next READ or atomic
    Ring<uint32_t> reads;           // SQ indices of the READs and atomics whose answers are not complete

    // Responder.
    uint32_t msn_in = 0;  // messages that took a receive request, to their end
    Psn response_end;     // one past the last that the jobs have
    NextWritePacket next_write;
    EarlyPackets held;
    Ring<MpJob> jobs;  // in the order of their responses
    DelayedAck delay;
    uint32_t ack_count = 0;
    std::array<QueuedAck, kMaxAcks> acks;
};

// Free-running, of all QPs of a worker.
struct MultipathCounters {
    // Packets by how far ahead of the expected one they came: 0, 1, 2 to 3, 4 to 7, ... 4096 and more.
    std::array<uint64_t, 14> degrees{};
    std::array<uint64_t, 4> acks_sent{}, acks_received{};  // entries, by wire::MpAck
};

// Of one worker; made with its first QP in mp mode.
class MultipathShared {
  public:
    // 2 MiB: two full windows of single-packet messages. A place is first touched when a packet comes into it: of the
    // thousand hosts of a modelled network few ever hold many.
    static constexpr uint16_t kHeldPackets = 512;

    MultipathShared(const PathsConfig& paths_config, const DcqcnConfig& dcqcn_config,
                    const ReorderConfig& reorder_config, uint64_t seed)
        : paths(paths_config, seed, dcqcn_config),
          reorder(reorder_config),
          held_(static_cast<EarlyPacket*>(::operator new(kHeldPackets * sizeof(EarlyPacket)))) {}

    // QPs of one peer share a share.
    static uint8_t peer_of(const wire::Gid& peer) {
        uint32_t hash = 0;
        for (const uint8_t byte : peer) hash = hash * 31 + byte;
        return static_cast<uint8_t>(hash % kPeers);
    }

    // Keeps a verified packet of a QP. False: there is no room for it. Neither a QP nor a peer has more of the pool
    // than it leaves free, so that whoever comes next always finds some: alone, half of the pool; beside one that holds
    // all that it may, a quarter.
    bool hold(EarlyPackets& held, const wire::ParsedFrame& frame) {
        const uint32_t left = kHeldPackets - held_now_;
        if (held.count >= left || by_peer_[held.peer] >= left || frame.payload_bytes > kMaxMtu) return false;
        const Psn psn(frame.headers.bth.psn);
        release(held, psn);  // one that was refused with its QP
        uint16_t& place = held.of(psn);
        place = take_place();
        EarlyPacket& packet = held_.get()[place];
        ++held.count;
        ++by_peer_[held.peer];
        held_peak_ = std::max(held_peak_, ++held_now_);
        packet.headers = frame.headers;
        packet.payload_bytes = frame.payload_bytes;
        std::memcpy(packet.payload.data(), frame.payload, frame.payload_bytes);
        return true;
    }
    // The packet with this PSN; null: it is not held. It goes with release().
    const EarlyPacket* find(EarlyPackets& held, Psn psn) const {
        const uint16_t index = held.of(psn);
        if (index == EarlyPackets::kNone || Psn(held_.get()[index].headers.bth.psn) != psn) return nullptr;
        return &held_.get()[index];
    }
    void release(EarlyPackets& held, Psn psn) {
        uint16_t& place = held.of(psn);
        if (place == EarlyPackets::kNone) return;
        held_.get()[place].next_free = free_;
        free_ = std::exchange(place, EarlyPackets::kNone);
        --held.count;
        --by_peer_[held.peer];
        --held_now_;
    }
    void release_all(EarlyPackets& held) {
        for (uint32_t i = 0; held.count != 0 && i <= held.mask; ++i) release(held, Psn(i));
    }
    uint32_t early_count() const { return held_now_; }
    uint32_t held_peak() const { return held_peak_; }

    // A packet came before its turn, and was taken.
    void record_reorder_distance(int32_t ahead, uint32_t& most) {
        const auto degree = static_cast<uint32_t>(ahead);
        ++counters.degrees[std::min<size_t>(std::bit_width(degree), counters.degrees.size() - 1)];
        most = std::max(most, degree);
    }

    Paths paths;
    Reorder reorder;
    MultipathCounters counters;

  private:
    static constexpr uint32_t kPeers = 64;
    struct Delete {
        static_assert(std::is_trivially_destructible_v<EarlyPacket>);
        void operator()(EarlyPacket* held) const { ::operator delete(held); }
    };

    uint16_t take_place() {
        if (free_ == EarlyPackets::kNone) {
            std::construct_at(held_.get() + used_);
            return used_++;
        }
        return std::exchange(free_, held_.get()[free_].next_free);
    }

    std::unique_ptr<EarlyPacket, Delete> held_;  // kHeldPackets of them
    uint16_t used_ = 0;                          // those that ever were
    uint16_t free_ = EarlyPackets::kNone;        // of these
    std::array<uint16_t, kPeers> by_peer_{};     // packets held, by peer_of()
    uint32_t held_now_ = 0, held_peak_ = 0;
};

}  // namespace rove::transport
