// SPDX-License-Identifier: Apache-2.0
// What a QP has that speaks mp, and what such QPs share within a worker.
// Units: packets, bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/paths/paths.h"
#include "transport/queue_state.h"
#include "transport/reorder/reorder.h"
#include "wire/ack_entry.h"
#include "wire/frame.h"

namespace rove::transport {

inline constexpr uint32_t kMaxMtu = 4096;

// A request that came before its turn and may not take effect yet (EU-7).
struct HeldPacket {
    HeldPacket* next;
    wire::Headers headers;
    uint32_t payload_bytes;
    std::array<uint8_t, kMaxMtu> payload;
};

// By PSN.
struct HeldList {
    HeldPacket* head = nullptr;
    HeldPacket* tail = nullptr;
};

// What a packet earned, to be sent to its sender (EU-4).
struct QueuedAck {
    wire::MpAckEntry entry;
    uint8_t syndrome;
};

struct MpJob : Job {
    Psn request;                              // PSN of the READ or atomic that it answers
};

// Where a WRITE goes on if the packet that comes next is its next one: what that packet's headers must say then.
struct NextWritePacket {
    bool known = false;
    uint32_t offset = 0;                      // in the message
    uint64_t va = 0;
    uint32_t rkey = 0;
    uint32_t left = 0;                        // bytes of the message from here on
};

struct Mp {
    static constexpr uint32_t kMaxAcks = 32;  // an RX burst
    // Expirations without an answer after which responses are not sent again before a request comes, new or not. Eight
    // seconds with the least RTO: a requester with the usual timeouts has given up, one with longer ones asks again.
    static constexpr uint8_t kSilence = 255;

    // Both halves: each sends one stream and receives the other's.
    SendStream requests, responses;           // what we send
    ReorderStream requests_in, responses_in;  // what we receive
    uint32_t requests_in_degree = 0, responses_in_degree = 0;  // the most that a packet of them was ahead

    // Requester.
    RetryTimer retry;
    uint8_t probes = 0;                       // since something was acknowledged
    bool probing = false;                     // the last request goes once more, to see whether the peer is there
    bool delayed = false;                     // the next packet has waited for what is before it
    uint32_t msn_out = 0;                     // messages begun that take a receive request at the peer
    uint64_t ended_ns = 0;                    // when the last packet of a request left; MP-12 counts from there
    uint64_t sync_ns = UINT64_MAX;            // when the next one may, if it waits for that (MP-12)
    Psn next_response;                        // of the next READ or atomic
    Ring<uint32_t> reads;                     // SQ indices of the READs and atomics whose answers are not complete

    // Responder.
    uint32_t msn_in = 0;                      // messages that took a receive request, to their end
    Psn response_end;                         // one past the last that the jobs have
    NextWritePacket next_write;
    HeldList held;
    Ring<MpJob> jobs;                         // in the order of their responses
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
    static constexpr uint32_t kHeldPackets = 512;  // 2 MiB: two full windows of single-packet messages

    MultipathShared(const PathsConfig& paths_config, const ReorderConfig& reorder_config, uint64_t seed)
        : paths(paths_config, seed), reorder(reorder_config), held_(std::make_unique<HeldPacket[]>(kHeldPackets)) {
        for (uint32_t i = 0; i < kHeldPackets; ++i) release(&held_[i]);
    }

    // Keeps a verified packet in `list`. False: there is no room.
    bool hold(HeldList& list, const wire::ParsedFrame& frame) {
        if (free_ == nullptr || frame.payload_bytes > kMaxMtu) return false;
        HeldPacket* packet = free_;
        free_ = packet->next;
        ++held_now_;
        held_peak_ = std::max(held_peak_, held_now_);
        packet->headers = frame.headers;
        packet->payload_bytes = frame.payload_bytes;
        std::memcpy(packet->payload.data(), frame.payload, frame.payload_bytes);
        const Psn psn(frame.headers.bth.psn);
        HeldPacket** at = &list.head;
        if (list.tail != nullptr && Psn(list.tail->headers.bth.psn) < psn) at = &list.tail->next;  // as most come
        while (*at != nullptr && Psn((*at)->headers.bth.psn) < psn) at = &(*at)->next;
        packet->next = *at;
        *at = packet;
        if (packet->next == nullptr) list.tail = packet;
        return true;
    }
    HeldPacket* take_first(HeldList& list) {
        HeldPacket* packet = list.head;
        list.head = packet->next;
        if (list.head == nullptr) list.tail = nullptr;
        return packet;
    }
    void release(HeldPacket* packet) {
        packet->next = free_;
        free_ = packet;
        if (held_now_ != 0) --held_now_;
    }
    void release_all(HeldList& list) {
        while (list.head != nullptr) release(take_first(list));
    }
    uint32_t held_now() const { return held_now_; }
    uint32_t held_peak() const { return held_peak_; }

    // A packet came before its turn, and was taken.
    void count_early(int32_t ahead, uint32_t& most) {
        const auto degree = static_cast<uint32_t>(ahead);
        ++counters.degrees[std::min<size_t>(std::bit_width(degree), counters.degrees.size() - 1)];
        most = std::max(most, degree);
    }

    Paths paths;
    Reorder reorder;
    MultipathCounters counters;

  private:
    std::unique_ptr<HeldPacket[]> held_;
    HeldPacket* free_ = nullptr;
    uint32_t held_now_ = 0, held_peak_ = 0;
};

}  // namespace rove::transport
