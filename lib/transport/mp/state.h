// SPDX-License-Identifier: Apache-2.0
// Holds the state of a QP in mp mode, and the state that such QPs share within a worker. Units are packets and bytes.
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

// A request packet that arrived early and may not take effect yet (EU-7).
struct EarlyPacket {
    uint16_t next_free;
    wire::Headers headers;
    uint32_t payload_bytes;
    std::array<uint8_t, kMaxMtu> payload;
};

// The early packets of a QP, indexed by PSN. No two PSNs inside the reorder window share a place.
struct EarlyPackets {
    static constexpr uint16_t kNone = UINT16_MAX;

    std::unique_ptr<uint16_t[]> at;  // index of the packet in the worker's pool, or kNone
    uint32_t mask = 0;
    uint32_t count = 0;
    uint8_t peer = 0;  // from MultipathShared::peer_of()

    // Allocates places for a window of `packets` ahead of the expected one.
    void make_room(uint32_t packets) {
        mask = std::bit_ceil(packets + 1) - 1;
        at = std::make_unique<uint16_t[]>(mask + 1);
        std::fill_n(at.get(), mask + 1, kNone);
    }
    uint16_t& of(Psn psn) { return at[psn.value() & mask]; }
};

// The entry that a packet's sender receives (EU-4).
struct QueuedAck {
    wire::MpAckEntry entry;
    uint8_t syndrome;
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
    static constexpr uint32_t kMaxAcks = 32;  // an RX burst
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
    uint32_t ack_count = 0;
    std::array<QueuedAck, kMaxAcks> acks;
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
    // The pool takes 2 MiB: two full windows of single-packet messages. A place is first touched when a packet occupies
    // it, because few of the thousand hosts of a modelled network ever hold many.
    static constexpr uint16_t kHeldPackets = 512;

    MultipathShared(const PathsConfig& paths_config, const DcqcnConfig& dcqcn_config,
                    const ReorderConfig& reorder_config, uint64_t seed)
        : paths(paths_config, seed, dcqcn_config),
          reorder(reorder_config),
          held_(static_cast<EarlyPacket*>(::operator new(kHeldPackets * sizeof(EarlyPacket)))) {}

    // Maps a peer to its share of the pool; several peers may map to the same share.
    static uint8_t peer_of(const wire::Gid& peer) {
        uint32_t hash = 0;
        for (const uint8_t byte : peer) hash = hash * 31 + byte;
        return static_cast<uint8_t>(hash % kPeers);
    }

    // Stores a verified packet of a QP. Returns false without room. No QP and no peer may hold more of the pool than is
    // left free, so that a newcomer always finds room: half of the pool for one alone, and a quarter next to one that
    // holds its maximum.
    bool hold(EarlyPackets& held, const wire::ParsedFrame& frame) {
        const uint32_t left = kHeldPackets - held_now_;
        if (held.count >= left || by_peer_[held.peer] >= left || frame.payload_bytes > kMaxMtu) return false;
        const Psn psn(frame.headers.bth.psn);
        release(held, psn);  // an entry that remains after a refusal
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
    // Returns the packet with this PSN, or null. It is valid until release().
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

    // Counts a packet that arrived early and was accepted.
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
    uint16_t used_ = 0;                          // places that were ever in use
    uint16_t free_ = EarlyPackets::kNone;        // head of the list of free places among them
    std::array<uint16_t, kPeers> by_peer_{};     // packets held, indexed by peer_of()
    uint32_t held_now_ = 0, held_peak_ = 0;
};

}  // namespace rove::transport
