// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/paths.h"

#include <algorithm>
#include <bit>
#include <bitset>

namespace rove::transport {

const char* invalid(const PathsConfig& config) {
    if (!std::has_single_bit(config.max_window) || config.max_window < 16 || config.max_window > 4096)
        return "max_window: a power of two from 16 to 4096 packets";
    if (config.first_vp < kFirstVp || config.vps < 1 || config.first_vp - kFirstVp + config.vps > kVps)
        return "first_vp, vps: UDP source ports from 0xC000 to 0xFFFF";
    if (config.initial_window < 1 || config.initial_window > config.max_window)
        return "initial_window: from 1 to max_window packets";
    if (config.delta < 1 || config.delta > config.max_window) return "delta: from 1 to max_window packets";
    if (config.probe_permille > 1000) return "probe_permille: from 0 to 1000";
    if (config.sync_alpha < 0 || config.sync_alpha > 100) return "sync_alpha: from 0 to 100";
    return nullptr;
}

uint64_t Paths::draw() {  // splitmix64
    uint64_t x = random_ += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

void Paths::start(SendStream& stream, Psn first) {
    release(stream);
    stream = {};
    stream.una = stream.oldest = stream.nxt = stream.recorded = stream.ooh = stream.retx = stream.recovery = first;
    restart(stream);
}

// MP-3: the initial window leaves on as many random paths.
void Paths::restart(SendStream& stream) {
    stream.cwnd_fixed = floor_fixed();
    stream.credits = config_.initial_window;
    stream.clock_count = 0;
    stream.satisfied = false;
}

void Paths::acquire(SendStream& stream) {
    if (free_rings_.empty()) {
        rings_.push_back(std::make_unique<PacketRecord[]>(config_.max_window));
        free_rings_.push_back({rings_.back().get(), nullptr});
    }
    stream.records = free_rings_.back().records;
    if (free_rings_.back().user != &stream) stream.recorded = stream.nxt;
    free_rings_.pop_back();
}

void Paths::release(SendStream& stream) {
    if (stream.records != nullptr) free_rings_.push_back({stream.records, &stream});
    stream.records = nullptr;
}

// ACKs that may let nothing out. Without a window they are spent; without data they are kept (note 3).
void Paths::pass_clocks(SendStream& stream, bool more, uint64_t now_ns) {
    const bool window = stream.awnd() > 0;
    stream.satisfied = window && !more;
    if (window && more) return;
    if (window) {
        stream.burst_ns = 0;
        if (!is_silent(stream, now_ns)) return;
        lose_clocks(stream, stream.clock_count);
    }
    stream.clock_count = 0;
}

// MP-7
void Paths::lose_clocks(SendStream& stream, uint32_t count) {
    counters_.unused += count;
    shrink(stream, count * kOne, floor_fixed());
}

void Paths::shrink(SendStream& stream, uint32_t by_fixed, uint32_t floor_fixed) {
    if (stream.cwnd_fixed > floor_fixed && !config_.fixed_window)
        stream.cwnd_fixed = std::max(stream.cwnd_fixed - std::min(by_fixed, stream.cwnd_fixed), floor_fixed);
}

// MP-9. The packet was not taken: it goes again.
void Paths::refuse(SendStream& stream, const wire::MpAckEntry& entry, bool recorded, uint64_t age_ns) {
    const Psn psn(entry.psn);
    const PacketRecord& packet = record(stream, psn);
    // What the network repeated is refused again, and each time it would be sent again.
    const bool repeated = entry.kind == wire::MpAck::kNack && entry.retx && age_ns < stream.srtt_ns / 2;
    // A packet that was held and could not be taken in its turn is no longer acknowledged.
    if ((!recorded || repeated) && !packet.acked) return;
    if (entry.kind == wire::MpAck::kErr) stream.backoff = 0;  // it is no loss that it waits for
    ++(entry.kind == wire::MpAck::kErr ? counters_.resent_rnr : counters_.resent_nack);
    if (entry.kind == wire::MpAck::kNack && !config_.infer_losses &&
        (!stream.recovering || is_repeated_in_vain(stream, packet)))
        recover(stream);
    retract(stream, psn);
}

// MP-1: each ACK by 1/cwnd. A window's worth of them in one step.
void Paths::grow(SendStream& stream, uint32_t acks) {
    if (stream.satisfied && stream.cwnd_fixed >= floor_fixed()) return;
    const uint32_t most = config_.max_window << 16;
    while (acks != 0 && stream.cwnd_fixed < most && !config_.fixed_window) {
        const uint32_t before = stream.cwnd(), step = std::min(acks, before);
        const auto by = static_cast<uint32_t>((uint64_t{step} << 32) / stream.cwnd_fixed);
        stream.cwnd_fixed = std::min(stream.cwnd_fixed + by, most);
        stream.grown |= config_.explore && stream.cwnd() > before && before < config_.max_window / kExploreShare;
        acks -= step;
    }
}

bool Paths::acknowledge(SendStream& stream, const wire::MpAckEntry& entry, uint64_t now_ns) {
    const Psn psn(entry.psn);
    if (psn >= stream.nxt || stream.nxt - psn > static_cast<int32_t>(2 * config_.max_window)) [[unlikely]] {
        ++counters_.stale_acks;
        return false;
    }
    stream.heard_ns = now_ns;
    counters_.marked_acks += entry.ece;
    const bool nack = entry.kind >= wire::MpAck::kNack;
    if (psn >= stream.una) [[likely]] {
        PacketRecord& packet = record(stream, psn);
        // An echo of ReTx belongs to the latest transmission, which the record describes; without it to the first.
        const bool recorded = entry.retx == packet.retransmitted && entry.vp == packet.vp;
        const uint32_t age = ticks(now_ns) - packet.sent;
        if (recorded && !packet.retransmitted && !packet.acked)
            measure(stream.srtt_ns, age);
        if (nack) [[unlikely]] {
            refuse(stream, entry, recorded, uint64_t{age} << 6);
        } else if (packet.acked) [[unlikely]] {
            stream.inflate += config_.count_acks;
        } else {
            packet.acked = true;
            ++counters_.acknowledged;
            ++stream.inflate;  // MP-2
            if (psn == stream.oldest) {
                do {
                    ++stream.oldest;
                } while (stream.oldest < stream.nxt && record(stream, stream.oldest).acked);
            }
            if (packet.lost) [[unlikely]] {
                packet.lost = false;
                packet.lost_vp = 0;
                --stream.lost;
            }
        }
        if (recorded) {  // it has arrived, taken or not
            packet.marked = entry.ece;
            arrived(stream, packet);
            if (config_.infer_losses && (stream.oldest < psn || packet.retransmitted)) infer(stream, psn, packet);
        }
    }
    if (psn < stream.una && !nack) stream.inflate += config_.count_acks;
    if (entry.kind == wire::MpAck::kErr) return true;  // the requester's to handle
    if (!nack && psn >= stream.ooh) stream.ooh = psn + 1;
    // MP-4: PSNs below snd_ool = snd_ooh - delta came by a slow path, but for retransmissions.
    if (!entry.retx && stream.ooh.previous() - psn > static_cast<int32_t>(config_.delta)) {
        ++counters_.slow_acks;
        shrink(stream, kOne, kOne);
        return true;
    }
    // MP-1
    if (entry.ece) {
        shrink(stream, kOne / 2, kOne);
    } else if (!nack) {
        grow(stream, 1);
    }
    add_clock(stream, entry.vp);
    return true;
}

bool Paths::depart_by_rules(SendStream& stream, uint64_t now_ns, uint16_t& vp) {
    Departure departure;
    if (!next(stream, true, now_ns, departure)) return false;
    sent(stream, departure, now_ns);
    vp = departure.vp;
    return true;
}

void Paths::recover(SendStream& stream) {
    stream.recovering = true;
    stream.recovery = stream.nxt;
    stream.retx = stream.una;
    stream.recovery_order = stream.order;
}

// Whether the receiver still misses the oldest packet when it refuses one that left a round trip after its repetition.
bool Paths::is_repeated_in_vain(const SendStream& stream, const PacketRecord& refused) const {
    const PacketRecord& oldest = record(stream, stream.una);
    return oldest.retransmitted && !oldest.lost &&
           static_cast<int32_t>(refused.sent - oldest.sent) > static_cast<int32_t>(ticks(stream.srtt_ns));
}

// BX-1: what left by the same path before a packet that has arrived has not been overtaken: it is gone.
void Paths::infer(SendStream& stream, Psn psn, const PacketRecord& arrived) {
    const Psn end = arrived.retransmitted ? stream.nxt : psn;
    for (Psn at = stream.oldest; at < end; ++at) {
        PacketRecord& packet = record(stream, at);
        if (packet.vp == arrived.vp && !packet.acked && !packet.lost &&
            static_cast<int32_t>(packet.order - arrived.order) < 0)
            mark_lost(stream, packet, counters_.resent_inferred);
    }
}

// The oldest packets, when something that left two round trips later has arrived: a path without any ACK tells nothing.
void Paths::mark_overdue(SendStream& stream) {
    const auto patience = static_cast<int32_t>(ticks(2 * stream.srtt_ns) + 1);
    for (Psn at = stream.oldest; at < stream.nxt; ++at) {
        PacketRecord& packet = record(stream, at);
        if (packet.acked || packet.lost) continue;
        if (static_cast<int32_t>(stream.latest_sent - packet.sent) <= patience) return;
        mark_lost(stream, packet, counters_.resent_inferred);
    }
}

void Paths::mark_lost(SendStream& stream, PacketRecord& packet, uint64_t& cause) {
    if (packet.lost) return;
    packet.lost = true;
    packet.lost_vp = packet.vp;
    ++stream.lost;
    ++cause;
}

bool Paths::advance(SendStream& stream, Psn aack, uint64_t now_ns) {
    if (aack <= stream.una || aack > stream.nxt) {
        if (config_.infer_losses && aack == stream.una && stream.outstanding()) mark_overdue(stream);
        return false;
    }
    const auto packets = static_cast<uint32_t>(aack - stream.una);
    uint32_t acked = packets, lost = 0;
    for (Psn at = stream.oldest; at < aack; ++at) {
        const PacketRecord& packet = record(stream, at);
        acked -= !packet.acked;
        lost += packet.lost;
    }
    stream.una = aack;
    stream.inflate -= config_.count_acks ? packets : acked;  // MP-2
    stream.lost -= lost;
    counters_.acknowledged += packets - acked;
    if (stream.oldest < stream.una) stream.oldest = stream.una;
    if (stream.ooh < stream.una) stream.ooh = stream.una;
    if (stream.retx < stream.una) stream.retx = stream.una;
    if (stream.una >= stream.recovery) stream.recovering = false;  // MP-9
    stream.backoff = 0;
    stream.heard_ns = now_ns;
    if (stream.outstanding()) {
        restart_timer(stream, now_ns);
        if (config_.infer_losses) mark_overdue(stream);
    } else {
        stream.timer_ns = 0;
        release(stream);
    }
    return true;
}

// It is to be sent again, whatever was said of it.
void Paths::retract(SendStream& stream, Psn psn) {
    PacketRecord& packet = record(stream, psn);
    if (packet.acked) {
        packet.acked = false;
        --counters_.acknowledged;
        --stream.inflate;
        if (psn < stream.oldest) stream.oldest = psn;
    }
    if (!packet.lost) {
        packet.lost = true;
        ++stream.lost;
    }
}

// The lowest first: what was refused for being too far ahead is refused again until that has arrived.
bool Paths::find_again(SendStream& stream, Psn& psn) const {
    const bool recovery = find_recovery(stream, psn);
    if (stream.lost == 0) return recovery;
    for (Psn at = stream.oldest; !recovery || at < psn; ++at) {
        if (!record(stream, at).lost) continue;
        psn = at;
        break;
    }
    return true;
}

// MP-9: in recovery everything from snd_retx on goes again; selective repeat skips what has arrived.
bool Paths::find_recovery(SendStream& stream, Psn& psn) const {
    if (!stream.recovering) return false;
    for (; stream.retx < stream.recovery; ++stream.retx) {
        const PacketRecord& packet = record(stream, stream.retx);
        const bool skip = packet.acked && config_.recovery == PathsConfig::Recovery::kSelectiveRepeat;
        if (!skip && static_cast<int32_t>(packet.order - stream.recovery_order) < 0) break;  // not sent again yet
    }
    psn = stream.retx;
    return stream.retx < stream.recovery;
}

// MP-10: window, and nothing new to fill it with. Only what is older than a round trip and came back from nobody.
bool Paths::find_early(const SendStream& stream, Psn& psn) const {
    for (psn = stream.oldest; psn < stream.nxt; ++psn) {
        const PacketRecord& packet = record(stream, psn);
        if (packet.acked) continue;
        return static_cast<int32_t>(stream.latest_sent - packet.sent) > static_cast<int32_t>(ticks(stream.srtt_ns));
    }
    return false;
}

// MP-11
uint64_t Paths::rto_ns(const SendStream& stream) const {
    return std::max(4 * stream.srtt_ns, config_.min_rto_ns) << std::min(stream.backoff, kMaxBackoff);
}

void Paths::restart_timer(SendStream& stream, uint64_t now_ns) {
    stream.timer_ns = now_ns + rto_ns(stream);
}

uint64_t Paths::deadline(const SendStream& stream) const {
    uint64_t deadline = UINT64_MAX;
    if (stream.timer_ns != 0) deadline = stream.timer_ns;
    if (stream.burst_ns != 0) deadline = std::min(deadline, stream.burst_ns);
    return deadline;
}

void Paths::expire(SendStream& stream, uint64_t now_ns) {
    if (stream.burst_ns != 0 && stream.burst_ns <= now_ns) {  // MP-6
        stream.burst_ns = 0;
        if (stream.starved) {
            ++counters_.bursts;
            stream.credits = std::max(stream.credits, static_cast<uint32_t>(std::max(stream.awnd(), 0)) + stream.lost);
            stream.credits = std::max(stream.credits, 1u);
        }
    }
    if (stream.timer_ns == 0 || stream.timer_ns > now_ns) return;
    if (stream.backoff < 255) ++stream.backoff;
    // MP-10: the first time the oldest alone: most often only the tail of a message is missing, or its ACK. The
    // receiver expects it, so if it was acknowledged, that was withdrawn, and the message about it was lost.
    ++(stream.backoff == 1 ? counters_.resent_early : counters_.resent_timeout);
    retract(stream, stream.una);
    record(stream, stream.una).lost_vp = record(stream, stream.una).vp;
    if (stream.backoff > 1) {  // MP-11
        for (Psn at = stream.una; at < stream.nxt; ++at) {
            PacketRecord& packet = record(stream, at);
            if (!packet.acked) mark_lost(stream, packet, counters_.resent_timeout);
        }
        shrink(stream, stream.cwnd_fixed / 2, kOne);
    }
    // As at the start (MP-3), however small the window: that nothing came back may mean that most paths are dead, and
    // one that is not must be found.
    stream.credits = std::max(stream.credits, std::min(stream.lost, config_.initial_window));
    if (is_silent(stream, now_ns)) stream.clock_count = 0;
    stream.recovering = false;
    restart_timer(stream, now_ns);
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
