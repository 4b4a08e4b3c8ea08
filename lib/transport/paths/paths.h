// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender: how many packets of a stream may be on their way, which goes next, and over which virtual path (the
// UDP source port, which is all that the network needs to take another way). It knows packets by their PSN only.
//
// Use, for a stream of a QP:
//   next() says what may leave now; build it, and tell sent(). Until there is nothing.
//   New packets in a row, room() of them at most, may be asked of depart() instead.
//   Every entry of an acknowledgement goes to acknowledge(), then its AACK to advance(); then next() again.
//   expire() when deadline() has passed; then next() again.
//
// DESIGN NOTES
// 1. No state per path (MP-3): a path is known because its ACK came back, and the packet that the ACK lets out takes it.
//    A path that loses or delays everything gets no ACKs, and so no packets.
// 2. Unlike a NIC, software has room for a record per packet on its way. So `inflate` counts packets, not ACKs (MP-2): an
//    ACK that is lost does not narrow the window for ever, and a duplicate does not widen it (both do with
//    PathsConfig::count_acks, for figures of MP-RDMA's paper). And a loss is known when a
//    later packet of the same path is acknowledged (BX-1), or any that was sent two round trips later.
// 3. Use it or lose it (MP-7): a NIC finds what is posted when an ACK comes; here the program posts because it came. So the
//    ACKs that found nothing to send are kept, and what is posted within three round trips of the last one goes out where
//    they came from. Only those that are lost, because nothing was posted or they were too many to keep, narrow the
//    window, down to the initial one: with less a program that waits for each message would be worse off than after a
//    long pause (MP-8). In return a window above that which is not full does not grow. To shrink by each ACK that had to
//    wait kept the window at 64 packets where 96 were needed, and cost a tenth of the rate of 8 B WRITEs and a quarter of
//    SENDs'.
// 4. MP-RDMA sends the packet by which a window has grown where the ACK came from. So busy paths get busier, and one that
//    has run empty by chance is found again only by a probe, one in a hundred round trips. BX-4: it takes a random path.
//    Over 8 paths of 0.5 Gb/s that is 3.5 instead of 1.2 Gb/s.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "transport/paths/send_stream.h"
#include "wire/headers.h"

namespace rove::transport {

// Free-running, of all streams of a worker.
struct PathsCounters {
    uint64_t new_packets = 0;
    uint64_t resent_nack = 0, resent_rnr = 0, resent_early = 0, resent_timeout = 0, resent_inferred = 0;  // by cause
    uint64_t acknowledged = 0;  // packets, in order or not
    uint64_t abandoned = 0;     // ... not acknowledged when their stream was stopped
    uint64_t marked_acks = 0;   // MP-1
    uint64_t slow_acks = 0;     // MP-4
    uint64_t probes = 0;        // MP-5
    uint64_t explored = 0;      // BX-4
    uint64_t bursts = 0;        // MP-6: burst timers that fired
    uint64_t unused = 0;        // MP-7: ACKs that were lost, for nothing was there to send
    uint64_t restarts = 0;      // MP-8
    uint64_t stale_acks = 0;    // of packets that are no longer or were never on their way
};

struct Departure {
    Psn psn;
    uint16_t vp = 0;
    bool again = false;  // a packet that was sent before
};

// All streams of one worker.
class Paths {
  public:
    Paths(const PathsConfig& config, uint64_t seed) : config_(config), random_(seed) {}

    void start(SendStream& stream, Psn first);
    void stop(SendStream& stream) {
        counters_.abandoned += in_flight(stream);
        release(stream);
    }

    // What may leave now, in `departure`; `more`: there is a new packet. False: nothing. The packet counts only once it was
    // sent(). Looking is also what applies the rules of time and of unused ACKs (MP-5 to MP-8).
    bool next(SendStream& stream, bool more, uint64_t now_ns, Departure& departure);
    // next() and sent() of the stream's next new packet, for those of a run: of room(), and no more. `vp`: its path. Does
    // at once what applies to most of them: that an ACK clocks it out, and no rule of time or chance has a say.
    bool depart(SendStream& stream, uint64_t now_ns, uint16_t& vp);
    // New packets for which next() is asked in a row before it may name one that was sent before. 0: also without a window.
    uint32_t room(const SendStream& stream) const {
        if (stream.lost != 0 || stream.recovering || stream.awnd() <= 0) return 0;
        return config_.max_window - static_cast<uint32_t>(stream.nxt - stream.una);
    }
    // It left.
    void sent(SendStream& stream, const Departure& departure, uint64_t now_ns);

    // One entry of an acknowledgement. False: it is of no packet that was sent. A NACK or error of a packet that was
    // acknowledged before takes that back: it was held, and could not be taken in its turn.
    bool acknowledge(SendStream& stream, const wire::MpAckEntry& entry, uint64_t now_ns);
    // As acknowledge() for each of `count` entries as on the wire, as long as they say what most do: that the next packet
    // has arrived, and nothing else. Returns how many it took.
    uint32_t acknowledge_next(SendStream& stream, const uint8_t* entries, uint32_t count, bool response, uint64_t now_ns);
    // All before `aack` are in order at the receiver. False: it is not ahead, or of packets never sent.
    bool advance(SendStream& stream, Psn aack, uint64_t now_ns);

    uint64_t deadline(const SendStream& stream) const;  // UINT64_MAX: none
    void expire(SendStream& stream, uint64_t now_ns);

    // MP-12: how long an operation with the synchronise flag waits after the one before it.
    uint64_t sync_delay_ns(const SendStream& stream) const;
    // Distinct paths of the packets on their way. Slow: for telemetry.
    uint32_t paths_in_use(const SendStream& stream) const;
    // Packets that are not acknowledged. Slow.
    uint32_t in_flight(const SendStream& stream) const;
    // Calls `visit(Psn, const PacketRecord&)` for the latest packets of a stream that is not idle, oldest first; those before
    // `una` are done. max_window at most, fewer after a pause in which another stream used the records. For telemetry.
    void for_each(const SendStream& stream, auto&& visit) const {
        if (stream.records == nullptr) return;
        for (Psn psn = stream.recorded; psn < stream.nxt; ++psn) visit(psn, record(stream, psn));
    }

    const PathsConfig& config() const { return config_; }
    const PathsCounters& counters() const { return counters_; }
    size_t record_bytes() const { return rings_.size() * config_.max_window * sizeof(PacketRecord); }

  private:
    static constexpr uint32_t kOne = 1u << 16;      // a packet, fixed
    static constexpr uint8_t kUsesPerAck = 2;       // MP-6
    static constexpr uint8_t kMaxBackoff = 5;       // 32 ms with the default floor: less than the verbs' usual timeout
    static constexpr uint32_t kIdleRoundTrips = 3;  // MP-8
    // BX-4: of max_window, the window below which it is done. What is lost on a dead path is known after some two round
    // trips; so long the rest must be able to go on.
    static constexpr uint32_t kExploreShare = 4;

    static uint32_t ticks(uint64_t ns) { return static_cast<uint32_t>(ns >> 6); }
    PacketRecord& record(const SendStream& stream, Psn psn) const {
        return stream.records[psn.value() & (config_.max_window - 1)];
    }
    uint32_t floor_fixed() const { return config_.initial_window << 16; }
    uint16_t random_vp() { return static_cast<uint16_t>(config_.first_vp + draw() % config_.vps); }
    uint64_t draw();
    void restart(SendStream& stream);
    static bool is_silent(const SendStream& stream, uint64_t now_ns) {
        return now_ns - stream.heard_ns > kIdleRoundTrips * stream.srtt_ns;
    }
    // Of a packet that was sent once: how long ago, in ticks, when its ACK comes.
    static void measure(uint64_t& srtt_ns, uint32_t age) {
        const uint64_t age_ns = uint64_t{age} << 6;
        srtt_ns = srtt_ns == 0 ? std::max<uint64_t>(age_ns, 64) : (7 * srtt_ns + age_ns) / 8;
    }
    static void arrived(SendStream& stream, const PacketRecord& packet) {
        if (static_cast<int32_t>(packet.sent - stream.latest_sent) > 0 || stream.latest_sent == 0)
            stream.latest_sent = packet.sent;
    }
    void add_clock(SendStream& stream, uint16_t vp) {
        if (stream.clock_count < SendStream::kClocks)
            stream.clocks[(stream.clock_head + stream.clock_count++) % SendStream::kClocks] = {vp, 0};
        else if (stream.satisfied && stream.cwnd() > kUsesPerAck * SendStream::kClocks)
            lose_clocks(stream, 1);
    }
    void grow(SendStream& stream, uint32_t acks);
    void shrink(SendStream& stream, uint32_t by_fixed, uint32_t floor_fixed);
    void mark_lost(SendStream& stream, PacketRecord& packet, uint64_t& cause);
    void recover(SendStream& stream);
    bool is_repeated_in_vain(const SendStream& stream, const PacketRecord& refused) const;
    void retract(SendStream& stream, Psn psn);
    void infer(SendStream& stream, Psn psn, const PacketRecord& arrived);
    void mark_overdue(SendStream& stream);
    bool choose(SendStream& stream, bool more, Departure& departure) const;
    bool depart_by_rules(SendStream& stream, uint64_t now_ns, uint16_t& vp);
    void refuse(SendStream& stream, const wire::MpAckEntry& entry, bool recorded, uint64_t age_ns);
    bool find_again(SendStream& stream, Psn& psn) const;
    bool find_recovery(SendStream& stream, Psn& psn) const;
    bool find_early(const SendStream& stream, Psn& psn) const;
    void pass_clocks(SendStream& stream, bool more, uint64_t now_ns);
    void lose_clocks(SendStream& stream, uint32_t count);
    void restart_timer(SendStream& stream, uint64_t now_ns);
    uint64_t rto_ns(const SendStream& stream) const;
    void acquire(SendStream& stream);
    void release(SendStream& stream);

    const PathsConfig config_;
    uint64_t random_;
    PathsCounters counters_;
    struct FreeRing {
        PacketRecord* records;
        const SendStream* user;  // the last one: what it finds is still its own
    };
    std::vector<std::unique_ptr<PacketRecord[]>> rings_;  // as many as streams were ever busy at once
    std::vector<FreeRing> free_rings_;
};

}  // namespace rove::transport

#include "transport/paths/per_packet.h"
