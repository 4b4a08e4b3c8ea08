// SPDX-License-Identifier: Apache-2.0
// Decides which packets of a stream are lost and when they are sent again: those that the receiver refused (MP-9),
// those that order and time on the paths reveal (BX-1, MP-10), and those that the timer repeats when nothing else does
// (MP-11).
#include <algorithm>
#include <bit>
#include <utility>

#include "transport/paths/paths.h"

namespace rove::transport {

// Handles a refused packet (MP-9), which is sent again.
void Paths::refuse(SendStream& stream, const wire::MpAckEntry& entry, bool recorded, uint64_t age_ns) {
    const Psn psn(entry.psn);
    const PacketRecord& packet = record(stream, psn);
    // A duplicate that the network made is refused as well, and each refusal would cause a retransmission. The answer
    // to a trimmed header (BX-10), which overtakes queues of any length, can be equally early.
    const uint64_t base_ns = control_->base_rtt_ns(stream.control);
    const uint64_t least_ns = base_ns != 0 ? base_ns : stream.srtt_ns;
    const bool repeated = entry.kind == wire::MpAck::kNack && entry.retx && age_ns < least_ns / 2;
    // A packet that was held and could not be accepted when it was due is no longer acknowledged.
    if ((!recorded || repeated) && !packet.acked) return;
    if (entry.kind == wire::MpAck::kErr) stream.backoff = 0;  // an RNR error is no loss
    ++(entry.kind == wire::MpAck::kErr ? counters_.resent_rnr : counters_.resent_nack);
    // A trimmed packet (BX-10) reveals nothing about the others.
    if (entry.kind == wire::MpAck::kNack && !entry.trimmed && !config_.infer_losses &&
        (!stream.recovering || is_repeated_in_vain(stream, packet)))
        recover(stream);
    retract(stream, psn);
}

void Paths::recover(SendStream& stream) {
    stream.recovering = true;
    stream.recovery = stream.nxt;
    stream.retx = stream.una;
    stream.recovery_order = stream.order;
}

// Returns true if the receiver still misses the oldest packet when it refuses one that left a round trip after its
// repetition.
bool Paths::is_repeated_in_vain(const SendStream& stream, const PacketRecord& refused) const {
    const PacketRecord& oldest = record(stream, stream.una);
    return oldest.retransmitted && !oldest.lost &&
           static_cast<int32_t>(refused.sent - oldest.sent) > static_cast<int32_t>(ticks(stream.srtt_ns));
}

// Marks a packet for retransmission, even if it was acknowledged.
void Paths::retract(SendStream& stream, Psn psn) {
    PacketRecord& packet = record(stream, psn);
    if (packet.acked) {
        packet.acked = false;
        packet.withdrawn = true;
        --counters_.acknowledged;
        --stream.inflate;
        if (psn < stream.oldest) stream.oldest = psn;
    }
    if (!packet.lost) set_lost(stream, psn, packet, true);
}

// Finds the lowest packet to send again. A packet that was refused for being too far ahead is refused again until lower
// ones have arrived.
bool Paths::find_again(SendStream& stream, Psn& psn) const {
    const bool recovery = find_recovery(stream, psn);
    if (stream.lost == 0) return recovery;
    const Psn lost = first_lost(stream);
    if (!recovery || lost < psn) psn = lost;
    return true;
}

// Finds the next packet of recovery (MP-9), which repeats everything from snd_retx on; selective repeat skips packets
// that have arrived.
bool Paths::find_recovery(SendStream& stream, Psn& psn) const {
    if (!stream.recovering) return false;
    for (; stream.retx < stream.recovery; ++stream.retx) {
        const PacketRecord& packet = record(stream, stream.retx);
        const bool skip = packet.acked && config_.recovery != PathsConfig::Recovery::kGoBackN;
        if (!skip && static_cast<int32_t>(packet.order - stream.recovery_order) < 0) break;  // not sent again yet
    }
    psn = stream.retx;
    return stream.retx < stream.recovery;
}

// Detects losses on one path (BX-1): packets that left on the path before one that has arrived are lost, because none
// of them was overtaken. Packets before an earlier arrival were found at that time, unless a wait applied (note 5).
void Paths::infer(SendStream& stream, const PacketRecord& arrived) {
    if (stream.patience == kMaxPatience) return;
    const uint32_t mask = stream.ring - 1;
    const uint32_t wait = stream.patience == 0 ? 0 : ticks(stream.srtt_ns / 4) << (stream.patience - 1);
    uint32_t order = arrived.order;
    uint16_t at = arrived.before;
    for (uint32_t step = 0; step < kMaxSteps; ++step) {
        const Psn psn = stream.recorded + ((at - stream.recorded.value()) & mask);
        PacketRecord& packet = stream.records[at];
        // The record may describe a different transmission now.
        if (psn >= stream.nxt || static_cast<int32_t>(packet.order - order) >= 0) return;
        order = packet.order;
        at = packet.before;
        if (packet.vp != arrived.vp) continue;
        if (psn < stream.una || packet.acked) {
            if (wait == 0) return;
        } else if (arrived.sent - packet.sent >= wait) {
            mark_lost(stream, psn, packet, counters_.resent_inferred);
        }
    }
}

// Marks the oldest packets as lost when one that left two round trips later has arrived: a path without any ACK reveals
// nothing itself.
void Paths::mark_overdue(SendStream& stream, uint64_t now_ns) {
    if (now_ns < stream.scan_ns) return;
    const auto wait = static_cast<int32_t>(ticks(patient_ns(stream, 2 * stream.srtt_ns)) + 1);
    uint32_t steps = 0;
    for (Psn at = stream.oldest; at < stream.nxt; ++at, ++steps) {
        PacketRecord& packet = record(stream, at);
        if (packet.acked || packet.lost) continue;
        if (static_cast<int32_t>(stream.latest_sent - packet.sent) > wait) {
            mark_lost(stream, at, packet, counters_.resent_inferred);
            if (is_adaptive_) stream.destination->remove_path(packet.vp);
            note_failure(stream, now_ns);
        } else if (!packet.retransmitted)
            break;  // packets after it left later
    }
    if (steps > kMaxSteps) stream.scan_ns = now_ns + stream.srtt_ns / 8;
}

// Repeats overdue packets (MP-10, note 5), as many as the window has room for, when there is a window and no new data
// for it. Returns false if no packet is overdue.
bool Paths::mark_early(SendStream& stream, uint64_t now_ns) {
    stream.early_ns = 0;
    if (stream.srtt_ns == 0 || stream.latest_sent == 0 || !config_.repeat_early) return false;
    if (now_ns < stream.scan_ns) {
        if (stream.oldest != stream.ooh) stream.early_ns = stream.scan_ns;
        return false;
    }
    const auto wait = static_cast<int32_t>(ticks(early_wait_ns(stream)) + 1);
    const uint32_t now = ticks(now_ns), before = stream.lost;
    int32_t room = stream.awnd();
    uint32_t steps = 0, copies = 0;
    for (Psn at = stream.oldest; at < stream.nxt && room > 0; ++at, ++steps) {
        PacketRecord& packet = record(stream, at);
        if (packet.acked || packet.lost) continue;
        const bool passed = static_cast<int32_t>(stream.latest_sent - packet.sent) >= 0;
        const int32_t left = wait - static_cast<int32_t>(now - packet.sent);
        if (passed && left <= 0) {
            copies += repeat(stream, at, packet, room > 1);
            --room;
            continue;
        }
        const uint64_t due_ns = now_ns + (static_cast<uint64_t>(std::max(left, 1)) << 6);
        if (passed && (stream.early_ns == 0 || due_ns < stream.early_ns)) stream.early_ns = due_ns;
        if (!packet.retransmitted) break;  // packets after it left later
    }
    if (steps > kMaxSteps) stream.scan_ns = now_ns + stream.srtt_ns / 8;
    lend_credits(stream, copies);
    return stream.lost != before;
}

// Repeats packets when no answer arrives at all (MP-10). The first time it sends as many as the window has room for,
// which covers the end of a short message; later fewer, since the receiver may be busy. It always sends one, because a
// full window may have been lost.
void Paths::probe_tail(SendStream& stream) {
    const auto room = static_cast<uint32_t>(std::max(stream.awnd(), 1));
    uint32_t most = std::max(room >> 2 * stream.tail_probes, 1u);
    ++counters_.tail_probes;
    if (++stream.tail_probes > 1) stream.acks.clear();  // their paths may have failed
    uint32_t steps = 0, copies = 0;
    for (Psn at = stream.oldest; at < stream.nxt && most != 0 && steps < kMaxSteps; ++at, ++steps) {
        PacketRecord& packet = record(stream, at);
        if (packet.acked) continue;
        copies += repeat(stream, at, packet, room > 1);
        --most;
    }
    lend_credits(stream, copies);
}

// Repeats a packet that is lost by time. If its repetition was lost as well and `may_double` is true, it goes twice, so
// that one more loss does not cost another wait (like RFC 9002 section 6.2.4 when its timer fires). Returns the number
// of additional copies.
uint32_t Paths::repeat(SendStream& stream, Psn psn, PacketRecord& packet, bool may_double) {
    packet.twice = packet.retransmitted && may_double;
    mark_lost(stream, psn, packet, counters_.resent_early);
    return packet.twice;
}

// Lets lost packets leave without ACKs. There are no more credits than lost packets, because the remainder would send
// new packets on random paths, including bad ones.
void Paths::lend_credits(SendStream& stream, uint32_t copies) {
    const uint32_t leave = stream.lost + copies;
    if (leave > stream.acks.count()) stream.credits = std::max(stream.credits, leave - stream.acks.count());
}

void Paths::mark_lost(SendStream& stream, Psn psn, PacketRecord& packet, uint64_t& cause) {
    if (packet.lost) return;
    set_lost(stream, psn, packet, true);
    packet.lost_vp = packet.vp;
    note_loss(stream, packet);
    ++cause;
}

// Tells the congestion control about a loss, unless the packet left before the last reduction.
void Paths::note_loss(SendStream& stream, const PacketRecord& packet) {
    if (static_cast<int32_t>(packet.order - stream.reduced_order) < 0) return;
    const uint32_t least = std::min(stream.round_least, stream.round_before), before = stream.cwnd_fixed;
    stream.cwnd_fixed = control_->on_loss(stream.control, before, round_of(stream, least), stream.last_ack_ns);
    if (stream.cwnd_fixed != before) stream.reduced_order = stream.order;
}

void Paths::set_lost(SendStream& stream, Psn psn, PacketRecord& packet, bool lost) {
    packet.lost = lost;
    packet.twice &= lost;
    stream.lost += lost ? 1 : -1;
    flip_lost_bit(stream, psn);
}

// Returns the first lost packet. There must be one.
Psn Paths::first_lost(const SendStream& stream) const {
    const uint32_t mask = stream.ring - 1, from = stream.una.value() & mask,
                   words = static_cast<uint32_t>(lost_words(stream.ring));
    const uint64_t* const bits = lost_bits(stream);
    uint32_t word = from / 64;
    uint64_t found = bits[word] & ~uint64_t{0} << from % 64;
    while (found == 0) {
        word = word + 1 == words ? 0 : word + 1;
        found = bits[word];
    }
    const uint32_t index = word * 64 + static_cast<uint32_t>(std::countr_zero(found));
    return stream.una + ((index - from) & mask);
}

void Paths::note_false_alarm(SendStream& stream, PacketRecord& packet, uint64_t now_ns) {
    if (packet.false_alarm) return;
    packet.false_alarm = true;
    ++counters_.false_alarms;
    stream.real_losses = 0;
    control_->on_false_alarm(stream.control);
    stream.cwnd_fixed = std::max(stream.cwnd_fixed, std::exchange(stream.undo_fixed, 0));
    if (!config_.learn_patience) return;
    if (now_ns - stream.false_alarm_ns <= stream.srtt_ns) return;
    stream.false_alarm_ns = now_ns;
    if (stream.patience != kMaxPatience) ++stream.patience;
}

void Paths::note_real_loss(SendStream& stream) {
    if (stream.patience == 0 || ++stream.real_losses < kRealLosses) return;
    stream.real_losses = 0;
    --stream.patience;
}

// Records losses that no later packet of their path reveals; the path may be dead (BX-8, BX-9).
void Paths::note_failure(SendStream& stream, uint64_t now_ns) {
    stream.destination->record_failure(now_ns);
    if (is_clocked_) return;
    control_->on_failure(stream.control);
    if (config_.choice == PathsConfig::Choice::kReps && stream.entropies->freeze(now_ns, config_.initial_window))
        ++counters_.freezes;
}

// Returns the time of the timeout, which is earlier than the timer's for a few packets.
uint64_t Paths::timeout_at(const SendStream& stream) const {
    if (config_.low_rto_ns == 0 || stream.nxt - stream.una > kFew || stream.timer_ns == 0) return stream.timer_ns;
    const uint64_t low_ns = std::max(config_.low_rto_ns, 4 * stream.srtt_ns) << std::min(stream.backoff, kMaxBackoff);
    return stream.timer_ns - (rto_ns(stream) - std::min(low_ns, rto_ns(stream)));
}

const char* name(Timer timer) {
    switch (timer) {
        case Timer::kNone:
            return "none";
        case Timer::kTimeout:
            return "timeout";
        case Timer::kTail:
            return "tail";
        case Timer::kOverdue:
            return "overdue";
        case Timer::kBurst:
            return "burst";
        case Timer::kPace:
            return "pace";
    }
    return "";
}

NextTimer Paths::next_timer(const SendStream& stream) const {
    NextTimer first;
    const auto consider = [&first](uint64_t at_ns, Timer timer) {
        if (at_ns != 0 && at_ns < first.at_ns) first = {at_ns, timer};
    };
    if (stream.timer_ns != 0) {
        consider(timeout_at(stream), Timer::kTimeout);
        consider(stream.early_ns, Timer::kOverdue);
        consider(tail_deadline(stream), Timer::kTail);
    }
    consider(stream.burst_ns, Timer::kBurst);
    consider(stream.pace_ns, Timer::kPace);
    return first;
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
    if (stream.early_ns <= now_ns) stream.early_ns = 0;  // next() checks again
    if (stream.pace_ns <= now_ns) stream.pace_ns = 0;
    if (tail_deadline(stream) <= now_ns) probe_tail(stream);
    if (stream.timer_ns == 0 || timeout_at(stream) > now_ns) return;
    if (is_spaced_out(stream)) {  // BX-11: the only packet has just left, or waits for its time
        stream.timer_ns = std::max(stream.sent_ns, stream.pace_ns) + rto_ns(stream);
        if (stream.timer_ns > now_ns) return;
    }
    if (config_.recovery == PathsConfig::Recovery::kOfDisorder) {
        ++counters_.resent_timeout;
        recover(stream);
        stream.credits = std::max(stream.credits, 1u);
        return restart_timer(stream, now_ns);
    }
    if (stream.backoff < 255) ++stream.backoff;
    note_failure(stream, now_ns);
    // MP-10: the first expiration repeats the oldest packet alone, because most often only the tail of a message is
    // missing, or its ACK. The receiver expects that packet, so an acknowledgement of it was withdrawn, and the message
    // about that was lost.
    ++(stream.backoff == 1 && config_.repeat_early ? counters_.resent_early : counters_.resent_timeout);
    retract(stream, stream.una);
    PacketRecord& oldest = record(stream, stream.una);
    oldest.lost_vp = oldest.vp;
    if (is_adaptive_) {
        stream.destination->remove_path(oldest.vp);
        oldest.twice = stream.backoff > 1;  // two paths are tried at once
    }
    // Without a measured round trip no answer may be due yet, so the other packets wait.
    if (stream.backoff > 1 && (stream.srtt_ns != 0 || !is_adaptive_)) {  // MP-11
        uint32_t packets = 0;
        for (Psn at = stream.una; at < stream.nxt; ++at) {
            PacketRecord& packet = record(stream, at);
            if (packet.acked) continue;
            mark_lost(stream, at, packet, counters_.resent_timeout);
            if (is_adaptive_) stream.destination->remove_path(packet.vp);
            ++packets;
        }
        if (is_adaptive_) stream.undo_fixed = std::max(stream.undo_fixed, stream.cwnd_fixed);
        stream.cwnd_fixed = control_->on_timeout(stream.control, stream.cwnd_fixed, packets, now_ns);
        space_out(stream);
    }
    // Like at the start (MP-3), however small the window: if no answer arrives, most paths may be dead, and a working
    // one must be found.
    const uint32_t copies = oldest.twice;
    stream.credits = std::max(stream.credits, is_clocked_ ? std::min(stream.lost + copies, config_.initial_window) : 1);
    if (is_silent(stream, now_ns)) stream.acks.clear();
    stream.recovering = false;
    restart_timer(stream, now_ns);
}

}  // namespace rove::transport
