// SPDX-License-Identifier: Apache-2.0
// The part of class Paths that runs for every packet and every acknowledgement. It is inline because calls were a fifth
// of the additional cost of mp over rc (8 B WRITEs). Part of paths.h.
#pragma once

#include <algorithm>

#include "transport/paths/paths.h"
#include "wire/ack_entry.h"

namespace rove::transport {

// Chooses the packet that would leave if a path were available.
inline bool Paths::choose(SendStream& stream, bool more, uint64_t now_ns, Departure& departure) {
    departure.again = true;
    const auto reach = static_cast<int32_t>(stream.reach);
    if ((stream.lost != 0 || stream.recovering) && may_repeat(stream) && find_again(stream, departure.psn) &&
        departure.psn - stream.una < reach) {
        return true;
    }
    if (stream.awnd() <= 0 && !may_leave_alone(stream)) return false;
    if (!more || stream.nxt - stream.una >= reach) {
        if (!stream.outstanding() || !mark_early(stream, now_ns)) return false;
        departure.psn = first_lost(stream);
        return departure.psn - stream.una < reach;
    }
    departure.again = false;
    departure.psn = stream.nxt;
    return true;
}

inline bool Paths::next(SendStream& stream, bool more, uint64_t now_ns, Departure& departure) {
    // MP-8
    if (!stream.outstanding() && more && stream.last_ack_ns != 0 && is_silent(stream, now_ns)) {
        restart(stream);
        stream.last_ack_ns = 0;
        ++counters_.restarts;
    }
    stream.starved = false;
    if (is_below_packet(stream) && stream.pace_ns > now_ns) [[unlikely]] {
        ++counters_.paced;
        return false;
    }
    if (!choose(stream, more, now_ns, departure)) {
        pass_acks(stream, more, now_ns);
        return false;
    }
    if (stream.records == nullptr) [[unlikely]]
        acquire(stream);
    if (stream.acks.count() != 0) {
        departure.vp = stream.acks.first();
        // BX-13: never the only packet on an unknown path. A small window would otherwise never leave a busy path.
        if (is_below_packet(stream) && stream.destination->knows_paths())
            departure.vp = stream.destination->next_path();
        if (is_adaptive_ && !stream.outstanding()) return true;
        if (stream.grown && stream.acks.is_first_used() && !departure.again) {  // BX-4
            departure.vp = random_vp(stream);
            stream.grown = false;
            ++counters_.explored;
        }
        if (now_ns >= stream.probe_ns) {  // MP-5
            const bool often = is_adaptive_ && stream.destination->failed_recently(now_ns);
            stream.probe_ns = now_ns + (often ? stream.srtt_ns / 4 : stream.srtt_ns);
            const bool due = often && stream.order - stream.probe_order >= kExploreRate;
            if (due || draw() % 1000 < config_.probe_permille) {
                stream.probe_order = stream.order;
                departure.vp = random_vp(stream);
                ++counters_.probes;
            }
        }
        return true;
    }
    if (!is_clocked_) return choose_path(stream, now_ns, departure);
    if (stream.credits != 0 || is_below_packet(stream)) {
        departure.vp = is_adaptive_ ? path_without_ack(stream, now_ns) : random_vp(stream);
        return true;
    }
    // Starts the burst timer (MP-6), except while no answer arrives at all, when the retransmission timer applies.
    stream.starved = true;
    if (stream.burst_ns == 0 && stream.backoff == 0)
        stream.burst_ns = now_ns + (stream.srtt_ns != 0 ? stream.srtt_ns / 2 : config_.min_rto_ns);
    return false;
}

inline void Paths::sent(SendStream& stream, const Departure& departure, uint64_t now_ns, uint32_t bytes) {
    PacketRecord& packet = record(stream, departure.psn);
    if (!departure.again) {
        packet = {};
        if (++stream.nxt - stream.recorded > static_cast<int32_t>(stream.ring)) ++stream.recorded;
        ++counters_.new_packets;
    } else {
        if (packet.twice)
            packet.twice = false;
        else if (packet.lost)
            set_lost(stream, departure.psn, packet, false);
        else
            ++counters_.resent_nack;
        if (departure.psn == stream.retx) ++stream.retx;
        packet.retransmitted = true;
        packet.marked = packet.withdrawn = false;
    }
    packet.before = link(stream, departure.psn, departure.vp);
    packet.order = stream.order++;
    packet.sent = ticks(now_ns);
    packet.vp = departure.vp;
    stream.sent_ns = now_ns;
    if (stream.timer_ns == 0) {
        stream.busy_ns = now_ns;
        restart_timer(stream, now_ns);
    }
    stream.burst_ns = 0;
    if (is_below_packet(stream)) [[unlikely]]
        stream.pace_ns = now_ns + AdaptiveWindow::spacing_ns(stream.cwnd_fixed, latest_rtt_ns(stream), draw());
    if (stream.acks.count() != 0) return use_ack(stream, stream.awnd());
    if (stream.credits != 0) --stream.credits;
    if (!is_clocked_) control_->on_sent(stream.control, bytes, now_ns);
}

inline bool Paths::depart(SendStream& stream, uint32_t bytes, uint64_t now_ns, uint16_t& vp) {
    const int32_t window = stream.awnd();
    if (stream.acks.count() == 0 || window <= 0 || stream.grown || now_ns >= stream.probe_ns || stream.timer_ns == 0)
        [[unlikely]] {
        return depart_by_rules(stream, bytes, now_ns, vp);
    }
    vp = stream.acks.first();
    record(stream, stream.nxt) = {.order = stream.order++,
                                  .sent = ticks(now_ns),
                                  .vp = vp,
                                  .lost_vp = 0,
                                  .before = link(stream, stream.nxt, vp),
                                  .acked = false,
                                  .marked = false,
                                  .lost = false,
                                  .retransmitted = false,
                                  .withdrawn = false,
                                  .false_alarm = false,
                                  .twice = false};
    if (++stream.nxt - stream.recorded > static_cast<int32_t>(stream.ring)) ++stream.recorded;
    ++counters_.new_packets;
    stream.starved = false;
    stream.burst_ns = 0;
    stream.sent_ns = now_ns;
    use_ack(stream, window - 1);
    return true;
}

inline uint32_t Paths::acknowledge_next(SendStream& stream, const uint8_t* entries, uint32_t count, bool response,
                                        uint64_t now_ns) {
    if (stream.oldest != stream.ooh || stream.lost != 0 || !is_clocked_) return 0;
    const uint32_t most = std::min(count, static_cast<uint32_t>(stream.nxt - stream.oldest)), now = ticks(now_ns);
    const PacketRecord* packet = nullptr;
    uint32_t taken = 0;
    uint64_t srtt_ns = stream.srtt_ns, rttvar_ns = stream.rttvar_ns;
    uint32_t least = stream.round_least;
    for (; taken != most; ++taken) {
        const uint8_t* const at = entries + taken * wire::kMpAckEntryBytes;
        const Psn psn = stream.oldest + taken;
        const wire::MpAckEntry expected{
            .kind = wire::MpAck::kAck, .ece = false, .retx = false, .response = response, .psn = psn.value(), .vp = 0};
        const uint16_t vp = wire::load_be16(at + 4);
        PacketRecord& next = record(stream, psn);
        if (wire::load_be32(at) != wire::ack_entry_word(expected) || next.vp != vp || next.retransmitted) break;
        next.acked = true;
        measure(srtt_ns, rttvar_ns, now - next.sent);
        least = std::min(least, now - next.sent);
        keep_ack(stream, vp);
        packet = &next;
    }
    if (taken == 0) return 0;
    counters_.acknowledged += taken;
    stream.srtt_ns = srtt_ns;
    stream.rttvar_ns = rttvar_ns;
    stream.round_least = least;
    stream.last_ack_ns = now_ns;
    stream.tail_probes = 0;
    stream.oldest = stream.ooh = stream.oldest + taken;
    stream.inflate += taken;  // MP-2
    arrived(stream, *packet, now - packet->sent);
    if (may_grow(stream)) react(stream, {.packets = taken});
    return taken;
}

}  // namespace rove::transport
