// SPDX-License-Identifier: Apache-2.0
// What class Paths does for every packet and for its acknowledgement, inline: as calls, it was a fifth of what mp costs
// more than rc (8 B WRITEs). Part of paths.h.
#pragma once

#include <algorithm>

#include "transport/paths/paths.h"
#include "wire/ack_entry.h"

namespace rove::transport {

// Which packet, if a path were there.
inline bool Paths::choose(SendStream& stream, bool more, Departure& departure) const {
    departure.again = true;
    if ((stream.lost != 0 || stream.recovering) && find_again(stream, departure.psn)) return true;
    if (stream.awnd() <= 0) return false;
    if (!more || stream.nxt - stream.una == static_cast<int32_t>(config_.max_window))
        return find_early(stream, departure.psn);
    departure.again = false;
    departure.psn = stream.nxt;
    return true;
}

inline bool Paths::next(SendStream& stream, bool more, uint64_t now_ns, Departure& departure) {
    // MP-8
    if (!stream.outstanding() && more && stream.heard_ns != 0 && is_silent(stream, now_ns)) {
        restart(stream);
        stream.heard_ns = 0;
        ++counters_.restarts;
    }
    stream.starved = false;
    if (!choose(stream, more, departure)) {
        pass_clocks(stream, more, now_ns);
        return false;
    }
    if (stream.clock_count != 0) {
        const SendStream::Clock& clock = stream.clocks[stream.clock_head % SendStream::kClocks];
        departure.vp = clock.vp;
        if (stream.grown && clock.uses != 0 && !departure.again) {  // BX-4
            departure.vp = random_vp();
            stream.grown = false;
            ++counters_.explored;
        }
        if (now_ns >= stream.probe_ns) {  // MP-5
            stream.probe_ns = now_ns + stream.srtt_ns;
            if (draw() % 1000 < config_.probe_permille) {
                departure.vp = random_vp();
                ++counters_.probes;
            }
        }
        return true;
    }
    if (stream.credits != 0) {
        departure.vp = random_vp();
        return true;
    }
    // MP-6: the burst timer's. Not while nothing comes back at all: then it is the other timer's.
    stream.starved = true;
    if (stream.burst_ns == 0 && stream.backoff == 0)
        stream.burst_ns = now_ns + (stream.srtt_ns != 0 ? stream.srtt_ns / 2 : config_.min_rto_ns);
    return false;
}

inline void Paths::sent(SendStream& stream, const Departure& departure, uint64_t now_ns) {
    if (stream.records == nullptr) acquire(stream);
    PacketRecord& packet = record(stream, departure.psn);
    if (!departure.again) {
        packet = {};
        if (++stream.nxt - stream.recorded > static_cast<int32_t>(config_.max_window)) ++stream.recorded;
        ++counters_.new_packets;
    } else {
        if (packet.lost) {
            packet.lost = false;
            --stream.lost;
        } else if (stream.recovering && departure.psn == stream.retx) {
            ++counters_.resent_nack;
        } else {
            ++counters_.resent_early;
        }
        if (departure.psn == stream.retx) ++stream.retx;
        packet.retransmitted = true;
        packet.marked = false;
    }
    packet.order = stream.order++;
    packet.sent = ticks(now_ns);
    packet.vp = departure.vp;
    if (stream.timer_ns == 0) restart_timer(stream, now_ns);
    stream.burst_ns = 0;
    if (stream.clock_count == 0) {
        --stream.credits;
        return;
    }
    // MP-6: a second packet only where there is more window than ACKs to clock it out.
    SendStream::Clock& clock = stream.clocks[stream.clock_head % SendStream::kClocks];
    if (++clock.uses == kUsesPerAck || stream.awnd() < static_cast<int32_t>(stream.clock_count)) {
        ++stream.clock_head;
        --stream.clock_count;
    }
}

inline bool Paths::depart(SendStream& stream, uint64_t now_ns, uint16_t& vp) {
    const int32_t window = stream.awnd();
    if (stream.clock_count == 0 || window <= 0 || stream.grown || now_ns >= stream.probe_ns || stream.timer_ns == 0)
        [[unlikely]] {
        return depart_by_rules(stream, now_ns, vp);
    }
    SendStream::Clock& clock = stream.clocks[stream.clock_head % SendStream::kClocks];
    vp = clock.vp;
    record(stream, stream.nxt) = {.order = stream.order++,
                                  .sent = ticks(now_ns),
                                  .vp = vp,
                                  .lost_vp = 0,
                                  .acked = false,
                                  .marked = false,
                                  .lost = false,
                                  .retransmitted = false};
    if (++stream.nxt - stream.recorded > static_cast<int32_t>(config_.max_window)) ++stream.recorded;
    ++counters_.new_packets;
    stream.starved = false;
    stream.burst_ns = 0;
    if (++clock.uses == kUsesPerAck || window - 1 < static_cast<int32_t>(stream.clock_count)) {  // MP-6
        ++stream.clock_head;
        --stream.clock_count;
    }
    return true;
}

inline uint32_t Paths::acknowledge_next(SendStream& stream, const uint8_t* entries, uint32_t count, bool response,
                                        uint64_t now_ns) {
    if (stream.oldest != stream.ooh || stream.lost != 0) return 0;
    const uint32_t most = std::min(count, static_cast<uint32_t>(stream.nxt - stream.oldest)), now = ticks(now_ns);
    const PacketRecord* packet = nullptr;
    uint32_t taken = 0;
    uint64_t srtt_ns = stream.srtt_ns;
    for (; taken != most; ++taken) {
        const uint8_t* const at = entries + taken * wire::kMpAckEntryBytes;
        const Psn psn = stream.oldest + taken;
        const wire::MpAckEntry expected{
            .kind = wire::MpAck::kAck, .ece = false, .retx = false, .response = response, .psn = psn.value(), .vp = 0};
        const uint16_t vp = wire::load_be16(at + 4);
        PacketRecord& next = record(stream, psn);
        if (wire::load_be32(at) != wire::ack_entry_word(expected) || next.vp != vp || next.retransmitted) break;
        next.acked = true;
        measure(srtt_ns, now - next.sent);
        add_clock(stream, vp);
        packet = &next;
    }
    if (taken == 0) return 0;
    counters_.acknowledged += taken;
    stream.srtt_ns = srtt_ns;
    stream.heard_ns = now_ns;
    stream.oldest = stream.ooh = stream.oldest + taken;
    stream.inflate += taken;  // MP-2
    arrived(stream, *packet);
    grow(stream, taken);
    return taken;
}

}  // namespace rove::transport
