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
// 1. No state per path (MP-3): a path is known because its ACK came back, and the packet that the ACK lets out takes
//    it. A path that loses or delays everything gets no ACKs, and so no packets.
// 2. Unlike a NIC, software has room for a record per packet on its way. So `inflate` counts packets, not ACKs (MP-2):
//    an ACK that is lost does not narrow the window for ever, and a duplicate does not widen it (both do with
//    PathsConfig::count_acks, for figures of MP-RDMA's paper). And a loss is known when a later packet of the same path
//    is acknowledged (BX-1), or any that was sent two round trips later.
// 3. Use it or lose it (MP-7): a NIC finds what is posted when an ACK comes; here the program posts because it came. So
//    the ACKs that found nothing to send are kept, and what is posted within three round trips of the last one goes out
//    where they came from. Only those that are lost, because nothing was posted or they were too many to keep, narrow
//    the window, down to the initial one: with less a program that waits for each message would be worse off than after
//    a long pause (MP-8). In return a window above that which is not full does not grow. To shrink by each ACK that had
//    to wait kept the window at 64 packets where 96 were needed, and cost a tenth of the rate of 8 B WRITEs and a
//    quarter of SENDs'.
// 4. MP-RDMA sends the packet by which a window has grown where the ACK came from. So busy paths get busier, and one
//    that has run empty by chance is found again only by a probe, one in a hundred round trips. BX-4: it takes a random
//    path. Over 8 paths of 0.5 Gb/s that is 3.5 instead of 1.2 Gb/s.
// 5. The end of a message has nothing behind it whose ACK would tell of its loss, so MP-10 repeats it by time, as
//    RACK-TLP (RFC 8985) does: a packet behind which a later one was acknowledged is overdue after srtt and four
//    deviations, or a quarter of it; one of which nothing is known when no ACK has come for srtt and four deviations,
//    or twice the srtt (the tail timer). One whose repetition is overdue too goes twice, if the window has room: else
//    each further loss costs such a wait, and 64 packets of which one in twenty is lost took more than ten round trips
//    in a message of a thousand. Every such wait, and BX-1, trusts that packets of one path keep their order
//    and that paths are about equally long. Where the network sprays packets itself, rehashes, or a receiver stands
//    still for a while, they repeat what was only late. The receiver's echo of ReTx tells: an ACK without it, of a
//    packet that was repeated, belongs to the first transmission, so the repetition was a false alarm. Each one, once
//    in a round trip, doubles the waits of the stream (`patience`) and lets BX-1 wait for part of a round trip; at
//    kMaxPatience BX-1 is off. kRealLosses repetitions in a row that were needed halve the waits. None is longer than
//    MP-11's timer: what left so long before a packet that has arrived is lost. Else each of the packets that were lost
//    together costs that timer, where a window is full of them and nothing is sent behind them: with UEC's slow links
//    and random paths the last flow took 1757 us.
// 6. Where control and choice are not MP-RDMA's own (BX-5), there are no clocks: a packet leaves when the window has
//    room, and its path is chosen then. What an acknowledgement means to them is said by take_signals(), out of the way
//    of the usual ones: those get there by the comparison that MP-4 makes of every ACK.
// 7. What a peer can provoke with an acknowledgement costs a bounded time: BX-1 follows the packets of one path
//    (kMaxSteps at most, through PacketRecord::before), lost packets stand in a bit set, and a search for overdue
//    packets that has looked at more than kMaxSteps records is not repeated for an eighth of a round trip.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transport/congestion/dcqcn.h"
#include "transport/paths/send_stream.h"
#include "wire/headers.h"

namespace rove::transport {

// Free-running, of all streams of a worker.
struct PathsCounters {
    uint64_t new_packets = 0;
    uint64_t resent_nack = 0, resent_rnr = 0, resent_early = 0, resent_timeout = 0, resent_inferred = 0;  // by cause
    uint64_t tail_probes = 0;   // MP-10: tail timers that fired
    uint64_t false_alarms = 0;  // note 5: packets that were sent again, and whose first transmission had arrived
    uint64_t acknowledged = 0;  // packets, in order or not
    uint64_t abandoned = 0;     // ... not acknowledged when their stream was stopped
    uint64_t marked_acks = 0;   // MP-1
    uint64_t slow_acks = 0;     // MP-4
    uint64_t probes = 0;        // MP-5
    uint64_t explored = 0;      // BX-4
    uint64_t bursts = 0;        // MP-6: burst timers that fired
    uint64_t unused = 0;        // MP-7: ACKs that were lost, for nothing was there to send
    uint64_t recycled = 0;      // BX-7: packets that took a path that an ACK came from
    uint64_t freezes = 0;       // BX-8
    uint64_t paced = 0;         // BX-6, BX-11: times that a packet waited for its time
    uint64_t surplus = 0;       // ... and ACKs that were lost because too many others were kept already
    uint64_t no_records = 0;    // times that a stream had to wait, for too many others were busy
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
    Paths(const PathsConfig& config, uint64_t seed, const DcqcnConfig& dcqcn = {})
        : config_(config),
          dcqcn_(dcqcn),
          is_clocked_(config.control == PathsConfig::Control::kMpRdma && config.choice == PathsConfig::Choice::kEcho),
          most_behind_(is_clocked_ ? static_cast<int32_t>(config.delta) : INT32_MIN),
          random_(seed) {}

    // `own_port`: the connection's UDP source port. May allocate: the records of a stream more that can be busy.
    void start(SendStream& stream, Psn first, uint16_t own_port = kFirstVp);
    void stop(SendStream& stream) {
        counters_.abandoned += in_flight(stream);
        release(stream);
        streams_ -= stream.started;
        stream.started = false;
    }

    // What may leave now, in `departure`; `more`: there is a new packet. False: nothing. The packet counts only once it
    // was sent(). Looking is also what applies the rules of time and of unused ACKs (MP-5 to MP-8).
    bool next(SendStream& stream, bool more, uint64_t now_ns, Departure& departure);
    // next() and sent() of the stream's next new packet, for those of a run: of room(), and no more. `vp`: its path.
    // Does at once what applies to most of them: that an ACK clocks it out, and no rule of time or chance has a say.
    bool depart(SendStream& stream, uint32_t bytes, uint64_t now_ns, uint16_t& vp);
    // New packets for which next() is asked in a row before it may name one that was sent before. 0: also without a
    // window.
    uint32_t room(const SendStream& stream) const {
        if (stream.lost != 0 || stream.recovering || stream.awnd() <= 0) return 0;
        return config_.max_window - static_cast<uint32_t>(stream.nxt - stream.una);
    }
    // It left, and has `bytes` on the wire.
    void sent(SendStream& stream, const Departure& departure, uint64_t now_ns, uint32_t bytes = 0);

    // One entry of an acknowledgement. False: it is of no packet that was sent. A NACK or error of a packet that was
    // acknowledged before takes that back: it was held, and could not be taken in its turn.
    bool acknowledge(SendStream& stream, const wire::MpAckEntry& entry, uint64_t now_ns);
    // As acknowledge() for each of `count` entries as on the wire, as long as they say what most do: that the next
    // packet has arrived, and nothing else. Returns how many it took.
    uint32_t acknowledge_next(SendStream& stream, const uint8_t* entries, uint32_t count, bool response,
                              uint64_t now_ns);
    // All before `aack` are in order at the receiver. False: it is not ahead, or of packets never sent.
    bool advance(SendStream& stream, Psn aack, uint64_t now_ns);

    uint64_t deadline(const SendStream& stream) const;  // UINT64_MAX: none
    void expire(SendStream& stream, uint64_t now_ns);

    uint16_t random_vp(const SendStream& stream) {
        return static_cast<uint16_t>(kFirstVp | (stream.first_vp + draw() % config_.vps));
    }
    // MP-12: how long an operation with the synchronise flag waits after the one before it.
    uint64_t sync_delay_ns(const SendStream& stream) const;
    // Distinct paths of the packets on their way. Slow: for telemetry.
    uint32_t paths_in_use(const SendStream& stream) const;
    // Packets that are not acknowledged. Slow.
    uint32_t in_flight(const SendStream& stream) const;
    // Calls `visit(Psn, const PacketRecord&)` for the latest packets of a stream that is not idle, oldest first; those
    // before `una` are done. max_window at most, fewer after a pause in which another stream used the records. For
    // telemetry.
    void for_each(const SendStream& stream, auto&& visit) const {
        if (stream.records == nullptr) return;
        for (Psn psn = stream.recorded; psn < stream.nxt; ++psn) visit(psn, record(stream, psn));
    }

    const PathsConfig& config() const { return config_; }
    const PathsCounters& counters() const { return counters_; }
    size_t record_bytes() const { return rings_.size() * ring_bytes(); }
    // Of one stream while it is busy: its records, and what is beside them.
    size_t ring_bytes() const { return ring_records() * sizeof(PacketRecord); }

  private:
    static constexpr uint32_t kOne = 1u << 16;      // a packet, fixed
    static constexpr uint8_t kUsesPerAck = 2;       // MP-6
    static constexpr uint8_t kMaxBackoff = 5;       // 32 ms with the default floor: less than the verbs' usual timeout
    static constexpr uint32_t kIdleRoundTrips = 3;  // MP-8
    static constexpr uint8_t kTailProbes = 4;       // MP-10: then it is MP-11's timer
    static constexpr uint8_t kMaxPatience = 5;      // note 5
    static constexpr uint8_t kRealLosses = 16;      // ... RFC 8985 section 6.2.4 takes as many recoveries
    static constexpr uint32_t kMaxSteps = 64;       // note 7
    static constexpr int32_t kFew = 3;              // packets; PathsConfig::low_rto_ns
    static constexpr size_t kMaxRings = 4096;       // streams of a worker that can be busy at once: 19 MB
    static constexpr uint64_t kRecordsWaitNs = 100'000;
    // BX-4: of max_window, the window below which it is done. What is lost on a dead path is known after some two round
    // trips; so long the rest must be able to go on.
    static constexpr uint32_t kExploreShare = 4;

    static uint32_t ticks(uint64_t ns) { return static_cast<uint32_t>(ns >> 6); }
    PacketRecord& record(const SendStream& stream, Psn psn) const {
        return stream.records[psn.value() & (config_.max_window - 1)];
    }
    uint32_t floor_fixed() const { return config_.initial_window << 16; }
    bool is_mp_rdma() const { return config_.control == PathsConfig::Control::kMpRdma; }
    uint64_t draw();
    void restart(SendStream& stream);
    // BX-9: the largest window, of one and a half bandwidth-delay products. What is on its way may reach further, from
    // a packet on, that comes by a slow path.
    uint32_t nscc_most() const { return std::min(config_.initial_window * 3 / 2, config_.max_window); }
    // BX-9: what goes again waits for the window as well, in which there is room for what is known to be lost. What a
    // timer repeats does not wait.
    bool may_repeat(const SendStream& stream) const {
        return config_.control != PathsConfig::Control::kNscc || stream.credits != 0 ||
               stream.awnd() + static_cast<int32_t>(stream.lost) > 0;
    }
    static bool is_silent(const SendStream& stream, uint64_t now_ns) {
        return now_ns - stream.last_ack_ns > kIdleRoundTrips * stream.srtt_ns;
    }
    // Of a packet that was sent once: how long ago, in ticks, when its ACK comes. The weights are RFC 6298's.
    static void measure(uint64_t& srtt_ns, uint64_t& rttvar_ns, uint32_t age) {
        const uint64_t age_ns = std::max<uint64_t>(uint64_t{age} << 6, 64);
        if (srtt_ns == 0) [[unlikely]] {
            srtt_ns = age_ns;
            rttvar_ns = age_ns / 2;
            return;
        }
        rttvar_ns = (3 * rttvar_ns + (age_ns > srtt_ns ? age_ns - srtt_ns : srtt_ns - age_ns)) / 4;
        srtt_ns = (7 * srtt_ns + age_ns) / 8;
    }
    static void arrived(SendStream& stream, const PacketRecord& packet) {
        if (static_cast<int32_t>(packet.sent - stream.latest_sent) > 0 || stream.latest_sent == 0)
            stream.latest_sent = packet.sent;
    }
    void add_clock(SendStream& stream, uint16_t vp) {
        if (stream.clock_count < SendStream::kClocks) [[likely]]
            stream.clocks[(stream.clock_head + stream.clock_count++) % SendStream::kClocks] = {vp, 0};
        else if (stream.satisfied && stream.cwnd() > kUsesPerAck * SendStream::kClocks)
            lose_clocks(stream, 1);
        else
            ++counters_.surplus;
    }
    // The first ACK to use has let a packet out, `window` being what was left before. MP-6: it lets out a second one
    // only where there is more window than ACKs.
    static void use_clock(SendStream& stream, SendStream::Clock& clock, int32_t window) {
        if (++clock.uses != kUsesPerAck && window >= static_cast<int32_t>(stream.clock_count)) return;
        ++stream.clock_head;
        --stream.clock_count;
    }
    // Beside the records in their ring: for each bucket of paths the record of its latest packet (BX-1); and a bit for
    // each record, whether it is lost.
    size_t ring_records() const {
        return config_.max_window + (config_.max_window * sizeof(uint16_t) + config_.max_window / 8 + 15) / 16;
    }
    uint16_t* latest_of_buckets(const SendStream& stream) const {
        return reinterpret_cast<uint16_t*>(stream.records + config_.max_window);
    }
    uint64_t* lost_bits(const SendStream& stream) const {
        return reinterpret_cast<uint64_t*>(latest_of_buckets(stream) + config_.max_window);
    }
    // The record of `psn` says that it was sent by `vp`. Returns the one before it on a path of its bucket.
    uint16_t link(const SendStream& stream, Psn psn, uint16_t vp) const {
        const uint32_t mask = config_.max_window - 1;
        return std::exchange(latest_of_buckets(stream)[vp & mask], static_cast<uint16_t>(psn.value() & mask));
    }
    void grow(SendStream& stream, uint32_t acks);
    void adapt(SendStream& stream, const wire::MpAckEntry& entry);
    void shrink(SendStream& stream, uint32_t by_fixed, uint32_t floor_fixed);
    uint64_t rto_ns(const SendStream& stream) const {  // MP-11
        return std::max(4 * stream.srtt_ns, config_.min_rto_ns) << std::min(stream.backoff, kMaxBackoff);
    }
    void restart_timer(SendStream& stream, uint64_t now_ns) { stream.timer_ns = now_ns + rto_ns(stream); }
    // How long is waited, as note 5 says.
    uint64_t patient_ns(const SendStream& stream, uint64_t wait_ns) const {
        // A little less than the timer, for what was sent just after it was set.
        return std::min(wait_ns << stream.patience, std::max(wait_ns, rto_ns(stream) / 8 * 7));
    }
    uint64_t early_wait_ns(const SendStream& stream) const {
        return patient_ns(stream, stream.srtt_ns + std::max(4 * stream.rttvar_ns, stream.srtt_ns / 4));
    }
    static uint64_t tail_wait_ns(const SendStream& stream) {
        const uint32_t backoff = stream.tail_probes > 1 ? stream.tail_probes - 1u : 0;
        return std::max(2 * stream.srtt_ns, stream.srtt_ns + 4 * stream.rttvar_ns) << (stream.patience + backoff);
    }
    // When the tail timer fires; UINT64_MAX: it does not run.
    uint64_t tail_deadline(const SendStream& stream) const {
        if (stream.timer_ns == 0 || stream.srtt_ns == 0 || stream.lost != 0 || stream.tail_probes == kTailProbes ||
            !config_.repeat_early) {
            return UINT64_MAX;
        }
        return std::max(stream.sent_ns, stream.last_ack_ns) + tail_wait_ns(stream);
    }
    // recovery.cc
    void refuse(SendStream& stream, const wire::MpAckEntry& entry, bool recorded, uint64_t age_ns);
    void recover(SendStream& stream);
    bool is_repeated_in_vain(const SendStream& stream, const PacketRecord& refused) const;
    void retract(SendStream& stream, Psn psn);
    bool find_again(SendStream& stream, Psn& psn) const;
    bool find_recovery(SendStream& stream, Psn& psn) const;
    void infer(SendStream& stream, const PacketRecord& arrived);
    void mark_overdue(SendStream& stream, uint64_t now_ns);
    bool mark_early(SendStream& stream, uint64_t now_ns);
    void probe_tail(SendStream& stream);
    uint32_t repeat(SendStream& stream, Psn psn, PacketRecord& packet, bool may_double);
    static void lend_credits(SendStream& stream, uint32_t copies);
    void mark_lost(SendStream& stream, Psn psn, PacketRecord& packet, uint64_t& cause);
    void set_lost(SendStream& stream, Psn psn, PacketRecord& packet, bool lost);
    Psn first_lost(const SendStream& stream) const;
    void note_false_alarm(SendStream& stream, PacketRecord& packet, uint64_t now_ns);
    static void note_real_loss(SendStream& stream);
    void note_failure(SendStream& stream, uint64_t now_ns);
    uint64_t timeout_at(const SendStream& stream) const;

    bool choose(SendStream& stream, bool more, uint64_t now_ns, Departure& departure);
    bool depart_by_rules(SendStream& stream, uint32_t bytes, uint64_t now_ns, uint16_t& vp);
    // BX-5: without clocks.
    bool choose_path(SendStream& stream, uint64_t now_ns, Departure& departure);
    // BX-11
    bool is_spaced_out(const SendStream& stream) const {
        return stream.nscc.round_trips_apart() != 1 && stream.cwnd_fixed <= kOne;
    }
    void space_out(SendStream& stream);
    void take_signals(SendStream& stream, const wire::MpAckEntry& entry, uint64_t rtt_ns, uint64_t now_ns);
    void pass_clocks(SendStream& stream, bool more, uint64_t now_ns);
    void lose_clocks(SendStream& stream, uint32_t count);
    // False: there are no records for it now.
    bool acquire(SendStream& stream);
    void add_ring();
    void release(SendStream& stream);

    const PathsConfig config_;
    const DcqcnConfig dcqcn_;
    const bool is_clocked_;      // MP-3, MP-6: packets leave because ACKs come
    const int32_t most_behind_;  // MP-4: an ACK of a packet so far behind the latest is as most are
    uint64_t random_;
    PathsCounters counters_;
    struct FreeRing {
        PacketRecord* records;
        const SendStream* user;  // the last one: what it finds is still its own
    };
    size_t streams_ = 0;  // started
    // as many as streams were ever started at once, but kMaxRings
    std::vector<std::unique_ptr<PacketRecord[]>> rings_;
    std::vector<FreeRing> free_rings_;
};

}  // namespace rove::transport

#include "transport/paths/per_packet-inl.h"
