// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender. It decides how many packets of a stream may be in flight, which packet goes next, and on which
// virtual path. A virtual path is a UDP source port; a different port suffices for the network to choose another route.
// The sender knows packets by their PSN only.
//
// Usage for a stream of a QP:
// - next() returns a packet that may leave now; build it, and call sent(). Repeat until next() returns false.
// - For a run of new packets, at most room() of them, depart() may be called instead.
// - Pass every entry of an acknowledgement to acknowledge(), then its AACK to advance(); then call next() again.
// - When the time of next_timer() has come, call expire(), then next().
//
// DESIGN NOTES
// 1. There is no state per path (MP-3): a path is known because its ACK came back, and the packet that the ACK lets out
//    takes it. A path that loses or delays everything gets no ACKs, and so no packets.
// 2. Unlike a NIC, software has room for a record per packet in flight. So `inflate` counts packets, not ACKs (MP-2): a
//    lost ACK does not narrow the window for ever, and a duplicate does not widen it. (With PathsConfig::count_acks
//    both happen, for figures of MP-RDMA's paper.) And a loss is detected when a later packet of the same path is
//    acknowledged (BX-1), or any packet that was sent two round trips later.
// 3. Use it or lose it (MP-7): a NIC finds posted requests when an ACK arrives, while here the program posts because
//    the ACK arrived. ACKs that find no packet to send are therefore kept, and requests that are posted within three
//    round trips of the last ACK leave on those ACKs' paths. Only ACKs that are lost, because nothing was posted or
//    because too many were kept, narrow the window, down to the initial one; below it, a program that waits for each
//    message would be worse off than after a long pause (MP-8). In return, a window above the initial one does not grow
//    while it is not full. Shrinking by every ACK that had to wait kept the window at 64 packets where 96 were needed,
//    and cost a tenth of the rate of 8 B WRITEs and a quarter of that of SENDs.
// 4. In MP-RDMA, the packet by which a window grows takes the path of the ACK. Busy paths thus get busier, and a path
//    that is empty by chance is found again only by a probe, one in a hundred round trips. With BX-4 this packet takes
//    a random path. Over 8 paths of 0.5 Gb/s the rate is 3.5 instead of 1.2 Gb/s.
// 5. The end of a message has no successor whose ACK would reveal its loss, so MP-10 repeats it by time, like RACK-TLP
//    (RFC 8985). If a later packet was acknowledged, a packet is overdue after srtt and four deviations, or a quarter
//    of the srtt if that is more; if no ACK has arrived, after srtt and four deviations, or twice the srtt (the tail
//    timer). A packet whose repetition is overdue too is sent twice if the window has room: otherwise each further loss
//    costs such a wait, and 64 packets with one loss in twenty took more than ten round trips in one message of a
//    thousand.
//  All these waits, and BX-1, assume that packets of a path stay in order and that paths have similar delays. Where the
// network sprays packets itself, rehashes, or a receiver pauses, they repeat packets that are only late. The receiver's
// echo of ReTx shows this: an ACK without it, for a packet that was repeated, belongs to the first transmission, so the
// repetition was a false alarm. At most once in a round trip a false alarm doubles the stream's waits (`patience`) and
// lets BX-1 wait for a part of a round trip; at kMaxPatience BX-1 is off. kRealLosses consecutive repetitions that were
// needed halve the waits. No wait exceeds MP-11's timer: a packet that left so long before one that has arrived is
// lost. Otherwise each packet of a burst of losses would cost that timer where such packets fill the window and no
// later ones are sent: with UEC's slow links and random paths the last flow took 1757 us.
// 6. Without ACK clocking (BX-5) a packet leaves when the window has room, and its path is chosen then. take_signals()
//    interprets acknowledgements in that case. It is out of line: the comparison that MP-4 makes for every ACK leads
//    there.
// 7. An acknowledgement from a peer costs a bounded time: BX-1 follows the packets of one path (at most kMaxSteps,
//    through PacketRecord::before), lost packets are kept in a bit set, and a search for overdue packets that has read
//    more than kMaxSteps records is not repeated for an eighth of a round trip.
// 8. The default (PathsConfig::Control::kAdaptive: BX-12, BX-13, BX-14) shares the clocks, records and recovery with
//    MP-RDMA's own sender, which remains as published. It differs in the window (AdaptiveWindow), in what streams to
//    one peer share (Destination), and in that it obeys the receiver (limit()).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/paths/congestion_control.h"
#include "transport/paths/send_stream.h"
#include "wire/headers.h"

namespace rove::transport {

// Free-running counters over all streams of a worker.
struct PathsCounters {
    uint64_t new_packets = 0;
    uint64_t resent_nack = 0, resent_rnr = 0, resent_early = 0, resent_timeout = 0,
             resent_inferred = 0;  // retransmissions, one counter for each cause
    uint64_t tail_probes = 0;      // MP-10: expirations of tail timers
    uint64_t false_alarms = 0;     // note 5: packets that were repeated although their first transmission had arrived
    uint64_t acknowledged = 0;     // packets, in order or not
    uint64_t abandoned = 0;        // packets that were not acknowledged when their stream was stopped
    uint64_t marked_acks = 0;      // MP-1; other answers with a mark as well
    uint64_t slow_acks = 0;        // MP-4
    uint64_t probes = 0;           // MP-5
    uint64_t explored = 0;         // BX-4
    uint64_t bursts = 0;           // MP-6: expirations of burst timers
    uint64_t unused = 0;           // MP-7: ACKs that were lost because there was nothing to send
    uint64_t recycled = 0;         // BX-7: packets on a path that an ACK came from
    uint64_t freezes = 0;          // BX-8
    uint64_t paced = 0;            // BX-6, BX-11, BX-12: how often a packet waited for its time
    uint64_t surplus = 0;          // MP-7: ACKs that were lost because too many others were kept
    uint64_t restarts = 0;         // MP-8
    uint64_t stale_acks = 0;       // ACKs for packets that are no longer, or never were, in flight, or on others' paths
};

// The timers of a stream. Each of them lets packets leave without an acknowledgement.
enum class Timer : uint8_t {
    kNone,
    // MP-11: runs while packets are in flight. Repeats the oldest packet, and the next time all.
    kTimeout,
    // MP-10: runs beside kTimeout if no packet is known to be lost, and the round trip is known. Repeats as many
    // packets as the window has room for.
    kTail,
    // MP-10: runs if there is no new data, and a later packet than one in flight was acknowledged. Repeats the packets
    // that are overdue.
    kOverdue,
    // MP-6: runs if there are data and a window, and no ACK lets a packet out. Lets the window out on random paths.
    kBurst,
    // BX-6, BX-11, BX-12: runs if packets are spaced in time. Lets the next one out.
    kPace,
};
// Returns a timer's name in telemetry.
const char* name(Timer timer);

struct NextTimer {
    uint64_t at_ns = UINT64_MAX;  // UINT64_MAX: none runs
    Timer timer = Timer::kNone;
};

struct Departure {
    Psn psn;
    uint16_t vp = 0;
    bool again = false;  // true for a packet that was sent before
};

// Schedules the packets of all streams of one worker.
class Paths {
  public:
    static constexpr uint32_t kFirstRing = 256;  // the records of a ring that has not grown

    Paths(const PathsConfig& config, uint64_t seed, const DcqcnConfig& dcqcn = {})
        : config_(config),
          control_(make_control(config, dcqcn)),
          is_adaptive_(config.control == PathsConfig::Control::kAdaptive),
          is_clocked_(control_->is_clocked() && config.choice == PathsConfig::Choice::kEcho),
          buckets_(std::min(config.max_window, kFirstRing)),
          random_(seed) {
        // Only BX-12's windows grow beyond the first ring.
        uint32_t records = is_adaptive_ ? std::min(config_.max_window, kFirstRing) : config_.max_window;
        for (; records <= config_.max_window; records *= 2) pools_.push_back({records});
    }

    // Starts a stream whose first PSN is `first`. `own_port` is the connection's UDP source port. Streams with the same
    // `peer`, any number that tells peers apart, share their knowledge of paths. May allocate.
    void start(SendStream& stream, Psn first, uint16_t own_port = kFirstVp, uint64_t peer = 0);
    void stop(SendStream& stream) {
        if (!stream.started) return;
        counters_.abandoned += in_flight(stream);
        release(stream);
        stream.destination->busy -= stream.busy;
        --std::exchange(stream.destination, nullptr)->users;
        --streams_;
        stream.started = false;
    }

    // Sets `departure` to a packet that may leave now; `more` tells whether there is a new packet. Returns false if no
    // packet may leave. The packet counts only after sent(). This call also applies the rules of time and of unused
    // ACKs (MP-5 to MP-8).
    bool next(SendStream& stream, bool more, uint64_t now_ns, Departure& departure);
    // Does next() and sent() for the stream's next new packet, as part of a run of at most room() packets. Sets `vp` to
    // its path. Handles the most frequent case at once: an ACK lets the packet out, and no rule of time or chance
    // applies.
    bool depart(SendStream& stream, uint32_t bytes, uint64_t now_ns, uint16_t& vp);
    // Returns how many new packets may leave in a row before next() might return one that was sent before. Also 0
    // without a window.
    uint32_t room(const SendStream& stream) const {
        if (stream.lost != 0 || stream.recovering || stream.awnd() <= 0) return 0;
        const auto sent = static_cast<uint32_t>(stream.nxt - stream.una);
        return stream.reach - std::min(sent, stream.reach);
    }
    // Records that the packet left with `bytes` on the wire.
    void sent(SendStream& stream, const Departure& departure, uint64_t now_ns, uint32_t bytes = 0);

    // Applies an entry of an acknowledgement. Returns false if it concerns no packet or path of the stream. A NACK or
    // error for a packet that was acknowledged before withdraws that: the packet was held, and could not be taken when
    // it was due.
    bool acknowledge(SendStream& stream, const wire::MpAckEntry& entry, uint64_t now_ns);
    // Applies up to `count` entries in wire format like acknowledge(), as long as each of them states only that the
    // next packet arrived. Returns how many were applied.
    uint32_t acknowledge_next(SendStream& stream, const uint8_t* entries, uint32_t count, bool response,
                              uint64_t now_ns);
    // Applies an AACK: all packets before it are in order at the receiver. Returns false if it is not ahead, or
    // concerns packets never sent.
    bool advance(SendStream& stream, Psn aack, uint64_t now_ns);
    // Applies the receiver's statement of how many packets it takes, counted from `aack` on (BX-14).
    void limit(SendStream& stream, Psn aack, uint32_t packets) const {
        if (is_adaptive_ && aack >= stream.una) stream.reach = std::clamp(packets, 1u, stream.ring);
    }
    // Applies knowledge from before the stream started: the packets that the receiver takes, and a round trip; 0
    // means unknown.
    void prepare(SendStream& stream, uint32_t packets, uint64_t rtt_ns) const;

    // Returns the stream's timer that fires first.
    NextTimer next_timer(const SendStream& stream) const;
    // Fires the timers that are due.
    void expire(SendStream& stream, uint64_t now_ns);

    uint16_t random_vp(const SendStream& stream) {
        return static_cast<uint16_t>(kFirstVp | (stream.first_vp + draw() % config_.vps));
    }
    // Returns how long an operation with the synchronise flag waits after its predecessor (MP-12).
    uint64_t sync_delay_ns(const SendStream& stream) const;
    // Returns the number of distinct paths of the packets in flight. Slow; for telemetry.
    uint32_t paths_in_use(const SendStream& stream) const;
    // Returns the number of packets that are not acknowledged. Slow.
    uint32_t in_flight(const SendStream& stream) const;
    // Lets the timer expire now, unless an answer to the latest packet may still be on its way.
    void hasten(SendStream& stream, uint64_t now_ns) const {
        if (stream.timer_ns != 0 && now_ns - stream.sent_ns > stream.srtt_ns + 4 * stream.rttvar_ns)
            stream.timer_ns = now_ns;
    }
    // Calls `visit(Psn, const PacketRecord&)` for the latest packets of a stream that is not idle, oldest first;
    // packets before `una` are done. There are at most SendStream::ring, and fewer after a pause in which another
    // stream used the records. For telemetry.
    void for_each(const SendStream& stream, auto&& visit) const {
        if (stream.records == nullptr) return;
        for (Psn psn = stream.recorded; psn < stream.nxt; ++psn) visit(psn, record(stream, psn));
    }

    const PathsConfig& config() const { return config_; }
    const PathsCounters& counters() const { return counters_; }
    // The memory that is reserved for records. Only what busy streams have used of it is resident.
    size_t record_bytes() const {
        size_t bytes = 0;
        for (const RingPool& pool : pools_) bytes += pool.rings * ring_bytes(pool.records);
        return bytes;
    }
    // The memory of a busy stream whose ring has `records` records, with the tables behind them.
    size_t ring_bytes(uint32_t records) const { return (records + table_records(records)) * sizeof(PacketRecord); }

  private:
    static constexpr uint32_t kOne = 1u << 16;                  // one packet in fixed point
    static constexpr uint8_t kUsesPerAck = 2;                   // MP-6
    static constexpr int32_t kFewAcks = UnusedAcks::kMost / 2;  // MP-6
    // 32 ms with the default floor, which is less than the usual timeout of verbs.
    static constexpr uint8_t kMaxBackoff = 5;
    static constexpr uint32_t kIdleRoundTrips = 3;    // MP-8
    static constexpr uint8_t kTailProbes = 4;         // MP-10: MP-11's timer follows
    static constexpr uint8_t kMaxPatience = 5;        // note 5
    static constexpr uint8_t kRealLosses = 16;        // note 5: like the number of recoveries in RFC 8985 section 6.2.4
    static constexpr uint32_t kMaxSteps = 64;         // note 7
    static constexpr int32_t kFew = 3;                // packets; see PathsConfig::low_rto_ns
    static constexpr size_t kRingsOfAChunk = 64;      // 300 KB by default, so the C library maps it and touches nothing
    static constexpr uint32_t kTakenByAll = 120;      // packets ahead that every receiver tracks, with Eunomia's sizes
    static constexpr size_t kMaxDestinations = 4096;  // more are kept only for streams
    // BX-4 applies while the window is below this fraction of the first ring. A loss on a dead path is detected after
    // about two round trips, and the other paths must be able to continue for that long.
    static constexpr uint32_t kExploreShare = 4;
    static constexpr uint32_t kOverDelta = 8;     // BX-13: MP-4's delta is at least this fraction of the ring
    static constexpr uint64_t kMoveShare = 4;     // BX-13: one in this many packets leaves a slow path
    static constexpr uint32_t kExploreRate = 64;  // BX-13: one in this many packets tries a path after a failure

    uint32_t explored_window() const { return buckets_ / kExploreShare; }
    static uint32_t ticks(uint64_t ns) { return static_cast<uint32_t>(ns >> 6); }
    PacketRecord& record(const SendStream& stream, Psn psn) const {
        return stream.records[psn.value() & (stream.ring - 1)];
    }
    uint32_t floor_fixed() const { return config_.initial_window << 16; }
    // BX-12: with a window below a packet, one packet leaves after the other, at its time.
    static bool is_below_packet(const SendStream& stream) { return stream.cwnd_fixed < kOne; }
    // Returns the latest round trip. With one packet in each of many round trips, the smoothed one is out of date.
    static uint64_t latest_rtt_ns(const SendStream& stream) {
        return stream.front_rtt != 0 ? uint64_t{stream.front_rtt} << 6 : stream.srtt_ns;
    }
    static bool may_leave_alone(const SendStream& stream) {
        return is_below_packet(stream) && stream.nxt - stream.una == static_cast<int32_t>(stream.inflate);
    }
    uint64_t draw();
    void restart(SendStream& stream);
    // BX-9: repetitions may have to wait for the window, in which the room of packets known to be lost is available.
    // Packets that a timer repeats do not wait.
    bool may_repeat(const SendStream& stream) const {
        return !control_->repeats_within_window() || stream.credits != 0 ||
               stream.awnd() + static_cast<int32_t>(stream.lost) > 0;
    }
    static bool is_silent(const SendStream& stream, uint64_t now_ns) {
        uint64_t wait_ns = kIdleRoundTrips * stream.srtt_ns;
        if (is_below_packet(stream)) [[unlikely]]
            wait_ns = (wait_ns << 16) / stream.cwnd_fixed;
        return now_ns - stream.last_ack_ns > wait_ns;
    }
    // Takes a sample of the round trip from the ACK of a packet that was sent once. `age` is in ticks.
    static void measure(uint64_t& srtt_ns, uint64_t& rttvar_ns, uint32_t age) {
        measure_round_trip(srtt_ns, rttvar_ns, std::max<uint64_t>(uint64_t{age} << 6, 64));
    }
    static void arrived(SendStream& stream, const PacketRecord& packet, uint32_t age) {
        if (static_cast<int32_t>(packet.sent - stream.latest_sent) > 0 || stream.latest_sent == 0) {
            stream.latest_sent = packet.sent;
            stream.front_rtt = age;
        }
    }
    void keep_ack(SendStream& stream, uint16_t vp) {
        if (stream.acks.add(vp)) [[likely]]
            return;
        if (is_adaptive_)
            stream.credits = std::min(stream.credits + 1, stream.cwnd());
        else if (stream.satisfied && stream.cwnd() > kUsesPerAck * UnusedAcks::kMost)
            lose_acks(stream, 1);
        else
            ++counters_.surplus;
    }
    // Counts a use of the first ACK, which let a packet out; `window` is the window before that. An ACK lets out a
    // second packet only if the window exceeds the number of ACKs (MP-6), and not while further ACKs might find no
    // place: paths that by chance had more of the ACKs would get ever more packets.
    static void use_ack(SendStream& stream, int32_t window) {
        const auto count = static_cast<int32_t>(stream.acks.count());
        if (stream.acks.use_first() == kUsesPerAck || window < count || count > kFewAcks) stream.acks.remove_first();
    }
    // The tables of a ring: before its records, for each bucket of paths the record of its latest packet (BX-1); and
    // behind them a bit for each record, which tells whether it is lost.
    size_t bucket_records() const {
        return (buckets_ * sizeof(uint16_t) + sizeof(PacketRecord) - 1) / sizeof(PacketRecord);
    }
    static size_t lost_words(uint32_t records) { return (records + 63) / 64; }
    size_t table_records(uint32_t records) const {
        const size_t lost = lost_words(records) * sizeof(uint64_t);
        return bucket_records() + (lost + sizeof(PacketRecord) - 1) / sizeof(PacketRecord);
    }
    uint16_t* latest_of_buckets(PacketRecord* records) const { return reinterpret_cast<uint16_t*>(records) - buckets_; }
    static uint64_t* lost_bits(const SendStream& stream) {
        return reinterpret_cast<uint64_t*>(stream.records + stream.ring);
    }
    static void clear_lost_bits(const SendStream& stream) {
        std::fill_n(lost_bits(stream), lost_words(stream.ring), uint64_t{0});
    }
    static void flip_lost_bit(const SendStream& stream, Psn psn) {
        const uint32_t index = psn.value() & (stream.ring - 1);
        lost_bits(stream)[index / 64] ^= uint64_t{1} << index % 64;
    }
    // Links the record of `psn`, which was sent on `vp`. Returns the record before it on a path of its bucket.
    uint16_t link(const SendStream& stream, Psn psn, uint16_t vp) const {
        return std::exchange(latest_of_buckets(stream.records)[vp & (buckets_ - 1)],
                             static_cast<uint16_t>(psn.value() & (stream.ring - 1)));
    }
    // Returns false if a window that is wide enough is not used (note 3).
    bool may_grow(const SendStream& stream) const { return !stream.satisfied || stream.cwnd_fixed < floor_fixed(); }
    void react(SendStream& stream, const CongestionControl::Answer& answer);
    // These belong to BX-12 and BX-13.
    void end_round(SendStream& stream, uint64_t now_ns);
    void set_ring(SendStream& stream, uint32_t records) const;
    void grow_ring(SendStream& stream);
    void note_loss(SendStream& stream, const PacketRecord& packet);
    static AdaptiveWindow::Round round_of(const SendStream& stream, uint32_t least) {
        return {least == UINT32_MAX ? 0 : uint64_t{least} << 6, stream.destination->least.get(), stream.rttvar_ns};
    }
    bool came_late(SendStream& stream, const PacketRecord& packet, uint32_t age) const;
    uint16_t path_without_ack(SendStream& stream, uint64_t now_ns);
    uint16_t known_vp(SendStream& stream);
    Destination* find_destination(uint64_t peer);
    uint64_t rto_ns(const SendStream& stream) const {  // MP-11
        return std::max(4 * stream.srtt_ns, config_.min_rto_ns) << std::min(stream.backoff, kMaxBackoff);
    }
    void restart_timer(SendStream& stream, uint64_t now_ns) { stream.timer_ns = now_ns + rto_ns(stream); }
    // Returns the length of a wait (note 5).
    uint64_t patient_ns(const SendStream& stream, uint64_t wait_ns) const {
        // A little less than the timer, so that packets sent just after it was set are covered.
        return std::min(wait_ns << stream.patience, std::max(wait_ns, rto_ns(stream) / 8 * 7));
    }
    uint64_t early_wait_ns(const SendStream& stream) const {
        return patient_ns(stream, stream.srtt_ns + std::max(4 * stream.rttvar_ns, stream.srtt_ns / 4));
    }
    static uint64_t tail_wait_ns(const SendStream& stream) {
        const uint32_t backoff = stream.tail_probes > 1 ? stream.tail_probes - 1u : 0;
        return std::max(2 * stream.srtt_ns, stream.srtt_ns + 4 * stream.rttvar_ns) << (stream.patience + backoff);
    }
    // Returns the time when the tail timer fires, or UINT64_MAX if it does not run.
    uint64_t tail_deadline(const SendStream& stream) const {
        if (stream.timer_ns == 0 || stream.srtt_ns == 0 || stream.lost != 0 || stream.tail_probes == kTailProbes ||
            !config_.repeat_early) {
            return UINT64_MAX;
        }
        return std::max(stream.sent_ns, stream.last_ack_ns) + tail_wait_ns(stream);
    }
    // These functions are in recovery.cc.
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
    // Chooses a path without clocks (BX-5).
    bool choose_path(SendStream& stream, uint64_t now_ns, Departure& departure);
    // Returns true if packets are spaced in time (BX-11, BX-12).
    bool is_spaced_out(const SendStream& stream) const {
        return is_below_packet(stream) || control_->interval_ns(stream.control, stream.cwnd_fixed) != 0;
    }
    bool owns(const SendStream& stream, uint16_t vp) const {
        return vp >= kFirstVp && static_cast<uint32_t>((vp - stream.first_vp) & (kVps - 1)) < config_.vps;
    }
    void space_out(SendStream& stream);
    void take_signals(SendStream& stream, const wire::MpAckEntry& entry, uint64_t rtt_ns, uint64_t now_ns);
    void pass_acks(SendStream& stream, bool more, uint64_t now_ns);
    void lose_acks(SendStream& stream, uint32_t count);
    // Rings of one size. The smallest suffice for all streams at once; larger ones are allocated when a window has
    // grown, and serve the next stream whose window is as large.
    struct Free {
        void operator()(PacketRecord* records) const { std::free(records); }
    };
    struct FreeRing {
        PacketRecord* records;
        // The last user and its next packet then. It finds its own values in the ring if it has sent nothing since.
        const SendStream* user;
        Psn end;
    };
    struct RingPool {
        uint32_t records;  // in each ring
        size_t rings = 0;  // free or not
        std::vector<std::unique_ptr<PacketRecord, Free>> chunks{};
        std::vector<FreeRing> free{};

        // Allocates `count` rings of `each` records with their tables, of which `before` lie before the ring. Returns
        // false without memory.
        bool add(size_t count, size_t each, size_t before);
        FreeRing take();
    };
    size_t pool_index(uint32_t records) const { return std::countr_zero(records / pools_[0].records); }
    RingPool& pool_of(uint32_t records) { return pools_[pool_index(records)]; }
    bool add_rings(size_t pool, size_t count) {
        const uint32_t records = pools_[pool].records;
        return pools_[pool].add(count, records + table_records(records), bucket_records());
    }
    bool has_ring(uint32_t records) { return !pool_of(records).free.empty() || add_rings(pool_index(records), 1); }
    void acquire(SendStream& stream);
    void release(SendStream& stream);

    const PathsConfig config_;
    const std::unique_ptr<CongestionControl> control_;
    const bool is_adaptive_;  // BX-12 to BX-14
    const bool is_clocked_;   // packets leave because ACKs arrive (MP-3, MP-6)
    const uint32_t buckets_;  // classes of paths by their low bits (BX-1)
    uint64_t random_;
    PathsCounters counters_;
    size_t streams_ = 0;  // number of started streams
    std::unordered_map<uint64_t, Destination> destinations_;
    std::vector<RingPool> pools_;  // each with rings of twice the size of the one before
};

}  // namespace rove::transport

#include "transport/paths/per_packet-inl.h"
