// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/paths.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdlib>
#include <new>
#include <utility>

namespace rove::transport {

const char* invalid(const PathsConfig& config) {
    if (!std::has_single_bit(config.max_window) || config.max_window < 16 || config.max_window > 8192)
        return "max_window: a power of two from 16 to 8192 packets";
    if (config.vps < 1 || config.vps > kVps) return "vps: from 1 to 16384 paths";
    if (config.first_vp != 0 && (config.first_vp < kFirstVp || config.first_vp - kFirstVp + config.vps > kVps))
        return "first_vp, vps: UDP source ports from 0xC000 to 0xFFFF";
    if (config.initial_window < 1 || config.initial_window > config.max_window)
        return "initial_window: from 1 to max_window packets";
    if (config.delta < 1 || config.delta > config.max_window) return "delta: from 1 to max_window packets";
    if (config.probe_permille > 1000) return "probe_permille: from 0 to 1000";
    if (config.sync_alpha < 0 || config.sync_alpha > 100) return "sync_alpha: from 0 to 100";
    return nullptr;
}

uint64_t Paths::draw() {  // one step of splitmix64
    uint64_t x = random_ += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

Destination* Paths::find_destination(uint64_t peer) {
    if (destinations_.size() >= kMaxDestinations && !destinations_.contains(peer))
        std::erase_if(destinations_, [](const auto& item) { return item.second.users == 0; });
    return &destinations_[peer];
}

void Paths::start(SendStream& stream, Psn first, uint16_t own_port, uint64_t peer) {
    stop(stream);
    stream = {};
    stream.started = true;
    ++streams_;
    stream.destination = find_destination(peer);
    ++stream.destination->users;
    stream.round_end = first;
    set_ring(stream, pools_[0].records);
    stream.reach = stream.ring;
    if (is_adaptive_ && stream.destination->srtt_ns != 0) {
        stream.srtt_ns = stream.destination->srtt_ns;
        stream.rttvar_ns = stream.srtt_ns / 2;
    }
    stream.first_vp = config_.first_vp != 0 ? config_.first_vp : own_port;
    if (pools_[0].rings < streams_ && !add_rings(0, kRingsOfAChunk)) throw std::bad_alloc();
    stream.una = stream.oldest = stream.nxt = stream.recorded = stream.ooh = stream.retx = stream.recovery = first;
    control_->start(stream.control);
    if (!is_clocked_ && config_.choice != PathsConfig::Choice::kRandom)
        stream.entropies = std::make_unique<Entropies>();
    restart(stream);
}

void Paths::prepare(SendStream& stream, uint32_t packets, uint64_t rtt_ns) const {
    if (!is_adaptive_) return;
    limit(stream, stream.una, packets != 0 ? packets : kTakenByAll);
    if (rtt_ns == 0 || stream.srtt_ns != 0) return;
    stream.srtt_ns = rtt_ns;
    stream.rttvar_ns = rtt_ns / 2;
}

// Lets the initial window leave on random paths (MP-3).
void Paths::restart(SendStream& stream) {
    if (stream.cwnd_fixed != 0) control_->on_pause(stream.control, stream.cwnd_fixed);
    stream.cwnd_fixed = floor_fixed();
    stream.credits = is_clocked_ ? config_.initial_window : 0;
    stream.acks.clear();
    stream.satisfied = false;
}

bool Paths::RingPool::add(size_t count, size_t each, size_t before) {
    // Zeroed pages cost no memory until they are written.
    std::unique_ptr<PacketRecord, Free> chunk(
        static_cast<PacketRecord*>(std::calloc(count * each, sizeof(PacketRecord))));
    if (chunk == nullptr) return false;
    try {
        free.reserve(rings + count);
        chunks.push_back(std::move(chunk));
    } catch (const std::bad_alloc&) {
        return false;
    }
    rings += count;
    for (size_t i = count; i != 0; --i) free.push_back({chunks.back().get() + (i - 1) * each + before, nullptr, {}});
    return true;
}

Paths::FreeRing Paths::RingPool::take() {
    const FreeRing ring = free.back();
    free.pop_back();
    return ring;
}

// Gives the stream a ring for its window: the one that was used last, whose memory is most likely in a cache.
void Paths::acquire(SendStream& stream) {
    while (stream.ring > std::max(pools_[0].records, 2 * stream.cwnd())) set_ring(stream, stream.ring / 2);
    if (!has_ring(stream.ring)) set_ring(stream, pools_[0].records);
    stream.reach = std::min(stream.reach, stream.ring);
    const FreeRing ring = pool_of(stream.ring).take();
    stream.records = ring.records;
    if (ring.user != &stream || ring.end != stream.nxt) stream.recorded = stream.nxt;
    stream.destination->busy += !std::exchange(stream.busy, true);
    clear_lost_bits(stream);
}

// Sets the size of the ring, and what depends on it. A window of thousands of packets lasts for so long that packets of
// good paths are further apart than MP-4's delta.
void Paths::set_ring(SendStream& stream, uint32_t records) const {
    stream.ring = records;
    const uint32_t delta = is_adaptive_ ? std::max(config_.delta, records / kOverDelta) : config_.delta;
    stream.most_behind = is_clocked_ ? static_cast<int32_t>(delta) : INT32_MIN;
}

// Gives the stream a ring of twice the size, if there is memory for it.
void Paths::grow_ring(SendStream& stream) {
    if (!has_ring(2 * stream.ring)) return;
    const uint32_t old_mask = stream.ring - 1;
    PacketRecord* const old = stream.records;
    const auto moved = [&](uint16_t index) {
        const Psn psn = stream.recorded + ((index - stream.recorded.value()) & old_mask);
        return static_cast<uint16_t>(psn.value() & (stream.ring - 1));
    };
    set_ring(stream, 2 * stream.ring);
    stream.records = pool_of(stream.ring).take().records;
    clear_lost_bits(stream);
    std::transform(latest_of_buckets(old), latest_of_buckets(old) + buckets_, latest_of_buckets(stream.records), moved);
    for (Psn psn = stream.recorded; psn < stream.nxt; ++psn) {
        PacketRecord& packet = record(stream, psn);
        packet = old[psn.value() & old_mask];
        packet.before = moved(packet.before);
        if (packet.lost) flip_lost_bit(stream, psn);
    }
    pool_of(old_mask + 1).free.push_back({old, nullptr, {}});
}

void Paths::release(SendStream& stream) {
    if (stream.records == nullptr) return;
    pool_of(stream.ring).free.push_back({stream.records, &stream, stream.nxt});
    stream.records = nullptr;
    if (!is_below_packet(stream)) stream.destination->busy -= std::exchange(stream.busy, false);
}

// Handles ACKs that may let no packet out. Without a window they are used up, and without data they are kept (note 3).
void Paths::pass_acks(SendStream& stream, bool more, uint64_t now_ns) {
    const bool window = stream.awnd() > 0;
    stream.satisfied = window && !more;
    if (window && more) return;
    if (window) {
        stream.burst_ns = 0;
        if (!is_silent(stream, now_ns)) return;
        lose_acks(stream, stream.acks.count());
    }
    stream.acks.clear();
}

// Loses unused ACKs (MP-7).
void Paths::lose_acks(SendStream& stream, uint32_t count) {
    counters_.unused += count;
    stream.cwnd_fixed = control_->on_unused_acks(stream.control, stream.cwnd_fixed, count);
}

// Adapts the window to an answer (MP-1). If it grows by a packet, that packet takes a random path (BX-4).
void Paths::react(SendStream& stream, const CongestionControl::Answer& answer) {
    counters_.marked_acks += answer.marked;
    const uint32_t before = stream.cwnd();
    stream.cwnd_fixed = control_->on_answer(stream.control, stream.cwnd_fixed, answer);
    stream.grown |= config_.explore && stream.cwnd() > before && before < explored_window();
}

// Ends a round trip.
void Paths::end_round(SendStream& stream, uint64_t now_ns) {
    Destination& destination = *stream.destination;
    if (stream.round_least != UINT32_MAX) destination.least.add(uint64_t{stream.round_least} << 6, now_ns);
    destination.srtt_ns = stream.srtt_ns;
    stream.cwnd_fixed = control_->on_round(stream.control, stream.cwnd_fixed, destination.busy,
                                           round_of(stream, stream.round_least), now_ns);
    stream.round_end = stream.nxt;
    stream.round_before = std::exchange(stream.round_least, UINT32_MAX);
    stream.undo_fixed = 0;
    if (stream.records != nullptr && stream.ring < std::min(2 * stream.cwnd(), config_.max_window)) grow_ring(stream);
}

// Returns true if the ACK of a packet shows a slow path (BX-13): packets that left no earlier came a round trip sooner.
// A receiver that pauses delays all paths alike, and is no reason to leave one.
bool Paths::came_late(SendStream& stream, const PacketRecord& packet, uint32_t age) const {
    return static_cast<int32_t>(stream.latest_sent - packet.sent) >= 0 &&
           age > stream.front_rtt + ticks(stream.srtt_ns) + 1;
}

// Returns a path for a packet that no ACK lets out (BX-13). It is a random one if other packets are in flight and no
// path to the peer has failed recently, because a few known paths load the links unevenly.
uint16_t Paths::path_without_ack(SendStream& stream, uint64_t now_ns) {
    if (stream.outstanding() && (!stream.destination->failed_recently(now_ns) || draw() % 8 == 0))
        return random_vp(stream);
    return known_vp(stream);
}

// Returns a path that worked recently, if there is one.
uint16_t Paths::known_vp(SendStream& stream) {
    return stream.destination->knows_paths() ? stream.destination->next_path() : random_vp(stream);
}

bool Paths::acknowledge(SendStream& stream, const wire::MpAckEntry& entry, uint64_t now_ns) {
    const Psn psn(entry.psn);
    // Otherwise the peer would choose the paths.
    if (psn >= stream.nxt || stream.nxt - psn > static_cast<int32_t>(2 * config_.max_window) || !owns(stream, entry.vp))
        [[unlikely]] {
        ++counters_.stale_acks;
        return false;
    }
    stream.last_ack_ns = now_ns;
    stream.tail_probes = 0;
    if (config_.recovery == PathsConfig::Recovery::kOfDisorder && psn > stream.una && !stream.recovering) [[unlikely]]
        recover(stream);
    const bool nack = entry.kind >= wire::MpAck::kNack;
    uint64_t rtt_ns = 0;  // 0: no measurement
    bool late = false;
    if (!nack && !entry.retx && stream.records != nullptr && psn >= stream.recorded &&
        record(stream, psn).retransmitted) [[unlikely]] {
        note_false_alarm(stream, record(stream, psn), now_ns);
    }
    if (psn >= stream.una) [[likely]] {
        PacketRecord& packet = record(stream, psn);
        // An echo of ReTx belongs to the latest transmission, which the record describes. Without the echo it belongs
        // to the first one.
        const bool recorded = entry.retx == packet.retransmitted && entry.vp == packet.vp;
        const uint32_t age = ticks(now_ns) - packet.sent;
        if (recorded && !packet.acked) {
            if (!packet.retransmitted && !entry.trimmed) {
                measure(stream.srtt_ns, stream.rttvar_ns, age);
                stream.round_least = std::min(stream.round_least, age);
                late = is_adaptive_ && came_late(stream, packet, age);
            }
            // BX-9 measures repetitions as well, because a window that only repeats would not grow otherwise. With a
            // single path the answer may concern an earlier repetition.
            rtt_ns = uint64_t{age} << 6;
            if (packet.retransmitted && config_.vps == 1) [[unlikely]]
                rtt_ns = std::max(rtt_ns, control_->base_rtt_ns(stream.control));
        }
        // The first packets were repeated before any answer could come, and this is the answer to a first transmission.
        if (stream.srtt_ns == 0 && !entry.retx && !entry.trimmed && is_adaptive_)
            measure(stream.srtt_ns, stream.rttvar_ns, ticks(now_ns - stream.busy_ns));
        bool fresh = nack;  // true if the entry brings news
        if (nack) [[unlikely]] {
            refuse(stream, entry, recorded, uint64_t{age} << 6);
        } else if (packet.acked || packet.withdrawn) [[unlikely]] {
            stream.inflate += config_.count_acks;
        } else {
            fresh = packet.acked = true;
            ++counters_.acknowledged;
            ++stream.inflate;  // MP-2
            if (psn == stream.oldest) {
                do {
                    ++stream.oldest;
                } while (stream.oldest < stream.nxt && record(stream, stream.oldest).acked);
            }
            if (packet.lost) [[unlikely]] {
                set_lost(stream, psn, packet, false);
                packet.lost_vp = 0;
            }
            if (recorded && entry.retx) [[unlikely]]
                note_real_loss(stream);
        }
        if (recorded) {  // the packet has arrived, accepted or not
            packet.marked = entry.ece;
            // A trimmed header overtakes the packets in queues, so it shows neither their delay nor losses.
            if (!entry.trimmed) arrived(stream, packet, age);
            if (fresh && !entry.trimmed && config_.infer_losses && (stream.oldest < psn || packet.retransmitted))
                infer(stream, packet);
        }
    }
    if (psn < stream.una && !nack) stream.inflate += config_.count_acks;
    if (entry.kind == wire::MpAck::kErr) return true;  // the requester handles it
    if (!nack && psn >= stream.ooh) stream.ooh = psn + 1;
    if (stream.ooh.previous() - psn > stream.most_behind) [[unlikely]] {
        if (!is_clocked_) {
            take_signals(stream, entry, rtt_ns, now_ns);
            return true;
        }
        // PSNs below snd_ool = snd_ooh - delta came on a slow path, unless they were retransmitted (MP-4).
        if (!entry.retx) {
            ++counters_.slow_acks;
            counters_.marked_acks += entry.ece;
            stream.cwnd_fixed = control_->on_slow_ack(stream.control, stream.cwnd_fixed, entry.ece);
            if (is_adaptive_) {
                const bool moves = draw() % kMoveShare == 0;
                const bool failed = stream.destination->failed_recently(now_ns);
                keep_ack(stream, !moves ? entry.vp : failed ? known_vp(stream) : random_vp(stream));
            }
            return true;
        }
    }
    react(stream, {.marked = entry.ece, .refused = nack, .may_grow = may_grow(stream)});
    uint16_t vp = entry.vp;
    if (is_adaptive_) {
        Destination& destination = *stream.destination;
        if (late && now_ns - stream.moved_ns > stream.srtt_ns) [[unlikely]] {
            stream.moved_ns = now_ns;
            ++counters_.slow_acks;
            destination.remove_path(vp);
            vp = known_vp(stream);
        } else if (entry.ece && stream.cwnd_fixed < 2 * kOne) {
            vp = known_vp(stream);
        } else if (!nack && now_ns - destination.noted_ns > stream.srtt_ns / 16) {
            destination.noted_ns = now_ns;
            destination.add_path(vp);
        }
    }
    keep_ack(stream, vp);
    return true;
}

bool Paths::depart_by_rules(SendStream& stream, uint32_t bytes, uint64_t now_ns, uint16_t& vp) {
    Departure departure;
    if (!next(stream, true, now_ns, departure)) return false;
    sent(stream, departure, now_ns, bytes);
    vp = departure.vp;
    return true;
}

bool Paths::choose_path(SendStream& stream, uint64_t now_ns, Departure& departure) {
    if (const uint64_t due_ns = control_->not_before_ns(stream.control); due_ns > now_ns) {  // BX-6
        ++counters_.paced;
        stream.pace_ns = due_ns;
        return false;
    }
    if (is_spaced_out(stream) && stream.pace_ns > now_ns) {
        ++counters_.paced;
        return false;
    }
    stream.pace_ns = 0;
    if (stream.entropies != nullptr && stream.entropies->take(now_ns, departure.vp)) {
        ++counters_.recycled;
        return true;
    }
    departure.vp = random_vp(stream);
    return true;
}

// Spaces packets by half to one and a half of the interval (BX-11). The random part keeps senders that were refused
// together from returning together.
void Paths::space_out(SendStream& stream) {
    const uint64_t apart_ns = control_->interval_ns(stream.control, stream.cwnd_fixed);
    if (apart_ns != 0) stream.pace_ns = stream.sent_ns + apart_ns / 2 + draw() % apart_ns;
}

void Paths::take_signals(SendStream& stream, const wire::MpAckEntry& entry, uint64_t rtt_ns, uint64_t now_ns) {
    const bool nack = entry.kind >= wire::MpAck::kNack;
    react(stream, {.marked = entry.ece,
                   .refused = nack,
                   .out_of_order = Psn(entry.psn) > stream.una,
                   .may_grow = may_grow(stream),
                   .rtt_ns = rtt_ns,
                   .now_ns = now_ns});
    space_out(stream);
    const bool is_good = !entry.ece && !nack;  // BX-7
    if (stream.entropies != nullptr && (is_good || config_.choice == PathsConfig::Choice::kEcho))
        stream.entropies->recycle(entry.vp);
}

bool Paths::advance(SendStream& stream, Psn aack, uint64_t now_ns) {
    if (aack <= stream.una || aack > stream.nxt) {
        if (config_.infer_losses && aack == stream.una && stream.outstanding()) mark_overdue(stream, now_ns);
        return false;
    }
    // The timer has repeated the oldest packet, and that was necessary (MP-11).
    const bool timed_out = stream.backoff == 1 && !record(stream, stream.una).false_alarm;
    const auto packets = static_cast<uint32_t>(aack - stream.una);
    uint32_t acked = packets;
    for (Psn at = stream.oldest; at < aack; ++at) {
        PacketRecord& packet = record(stream, at);
        acked -= !packet.acked;
        if (packet.lost) [[unlikely]]
            set_lost(stream, at, packet, false);
    }
    stream.una = aack;
    stream.inflate -= config_.count_acks ? packets : acked;  // MP-2
    counters_.acknowledged += packets - acked;
    if (stream.oldest < stream.una) stream.oldest = stream.una;
    if (stream.ooh < stream.una) stream.ooh = stream.una;
    if (stream.retx < stream.una) stream.retx = stream.una;
    if (stream.una >= stream.recovery) stream.recovering = false;  // MP-9
    if (config_.recovery == PathsConfig::Recovery::kOfDisorder && stream.una >= stream.ooh) stream.recovering = false;
    if (stream.una >= stream.round_end) end_round(stream, now_ns);
    // Without a measured round trip, which repetitions cannot provide, one longer than the timer would make the timer
    // fire for every packet (RFC 6298 section 5: the backed-off timer stays until there is a sample).
    stream.backoff = stream.srtt_ns != 0 ? 0 : std::min(stream.backoff, kMaxBackoff);
    stream.last_ack_ns = now_ns;
    if (stream.outstanding()) {
        restart_timer(stream, now_ns);
        // Without BX-1 and MP-10, each lost packet of a tail would otherwise wait for a timeout of its own, because
        // progress restarts the timer.
        if (config_.infer_losses || timed_out) mark_overdue(stream, now_ns);
    } else {
        stream.timer_ns = stream.early_ns = 0;
        release(stream);
    }
    return true;
}

uint64_t Paths::sync_delay_ns(const SendStream& stream) const {
    const double window = stream.cwnd_fixed / static_cast<double>(kOne);
    return static_cast<uint64_t>(config_.sync_alpha * config_.delta * static_cast<double>(stream.srtt_ns) / window);
}

uint32_t Paths::in_flight(const SendStream& stream) const {
    uint32_t packets = 0;
    for (Psn at = stream.una; at < stream.nxt; ++at) packets += !record(stream, at).acked;
    return packets;
}

uint32_t Paths::paths_in_use(const SendStream& stream) const {
    std::bitset<1 << 16> seen;
    for (Psn at = stream.una; at < stream.nxt; ++at)
        if (const PacketRecord& packet = record(stream, at); !packet.acked) seen.set(packet.vp);
    return static_cast<uint32_t>(seen.count());
}

}  // namespace rove::transport
