// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/paths.h"

#include <algorithm>
#include <bit>
#include <bitset>

namespace rove::transport {

const char* invalid(const PathsConfig& config) {
    if (!std::has_single_bit(config.max_window) || config.max_window < 16 || config.max_window > 4096)
        return "max_window: a power of two from 16 to 4096 packets";
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

uint64_t Paths::draw() {  // splitmix64
    uint64_t x = random_ += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

void Paths::start(SendStream& stream, Psn first, uint16_t own_port) {
    release(stream);
    streams_ += !stream.started;
    stream = {};
    stream.started = true;
    stream.first_vp = config_.first_vp != 0 ? config_.first_vp : own_port;
    if (rings_.size() < std::min(streams_, kMostRings)) add_ring();
    stream.una = stream.oldest = stream.nxt = stream.recorded = stream.ooh = stream.retx = stream.recovery = first;
    restart(stream);
}

// MP-3: the initial window leaves on as many random paths.
void Paths::restart(SendStream& stream) {
    stream.cwnd_fixed = floor_fixed();
    stream.credits = is_clocked_ ? config_.initial_window : 0;
    stream.clock_count = 0;
    stream.satisfied = false;
}

void Paths::add_ring() {
    rings_.push_back(std::make_unique<PacketRecord[]>(ring_records()));
    free_rings_.reserve(rings_.size());
    free_rings_.push_back({rings_.back().get(), nullptr});
}

bool Paths::acquire(SendStream& stream) {
    if (free_rings_.empty()) {
        ++counters_.no_records;
        return false;
    }
    stream.records = free_rings_.back().records;
    if (free_rings_.back().user != &stream) stream.recorded = stream.nxt;
    free_rings_.pop_back();
    std::fill_n(lost_bits(stream), (config_.max_window + 63) / 64, uint64_t{0});
    return true;
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
    if (stream.cwnd_fixed > floor_fixed && is_mp_rdma())
        stream.cwnd_fixed = std::max(stream.cwnd_fixed - std::min(by_fixed, stream.cwnd_fixed), floor_fixed);
}

// MP-9. The packet was not taken: it goes again.
void Paths::refuse(SendStream& stream, const wire::MpAckEntry& entry, bool recorded, uint64_t age_ns) {
    const Psn psn(entry.psn);
    const PacketRecord& packet = record(stream, psn);
    // What the network repeated is refused again, and each time it would be sent again. A trimmed header (BX-10) passes
    // by queues of any length, so its answer can be that early too.
    const uint64_t least_ns = stream.nscc.base_rtt_ns() != 0 ? stream.nscc.base_rtt_ns() : stream.srtt_ns;
    const bool repeated = entry.kind == wire::MpAck::kNack && entry.retx && age_ns < least_ns / 2;
    // A packet that was held and could not be taken in its turn is no longer acknowledged.
    if ((!recorded || repeated) && !packet.acked) return;
    if (entry.kind == wire::MpAck::kErr) stream.backoff = 0;  // it is no loss that it waits for
    ++(entry.kind == wire::MpAck::kErr ? counters_.resent_rnr : counters_.resent_nack);
    // A packet that was trimmed (BX-10) says nothing of the others.
    if (entry.kind == wire::MpAck::kNack && !entry.trimmed && !config_.infer_losses &&
        (!stream.recovering || is_repeated_in_vain(stream, packet)))
        recover(stream);
    retract(stream, psn);
}

// MP-1: each ACK by 1/cwnd. A window's worth of them in one step.
void Paths::grow(SendStream& stream, uint32_t acks) {
    if (stream.satisfied && stream.cwnd_fixed >= floor_fixed()) return;
    const uint32_t most = config_.max_window << 16;
    while (acks != 0 && stream.cwnd_fixed < most && is_mp_rdma()) {
        const uint32_t before = stream.cwnd(), step = std::min(acks, before);
        const auto by = static_cast<uint32_t>((uint64_t{step} << 32) / stream.cwnd_fixed);
        stream.cwnd_fixed = std::min(stream.cwnd_fixed + by, most);
        stream.grown |= config_.explore && stream.cwnd() > before && before < config_.max_window / kExploreShare;
        acks -= step;
    }
}

// MP-1
inline void Paths::adapt(SendStream& stream, const wire::MpAckEntry& entry) {
    if (entry.ece) {
        shrink(stream, kOne / 2, kOne);
        ++counters_.marked_acks;
    } else if (entry.kind < wire::MpAck::kNack) {
        grow(stream, 1);
    }
}

bool Paths::acknowledge(SendStream& stream, const wire::MpAckEntry& entry, uint64_t now_ns) {
    const Psn psn(entry.psn);
    if (psn >= stream.nxt || stream.nxt - psn > static_cast<int32_t>(2 * config_.max_window)) [[unlikely]] {
        ++counters_.stale_acks;
        return false;
    }
    stream.last_ack_ns = now_ns;
    stream.tail_probes = 0;
    if (config_.recovery == PathsConfig::Recovery::kOfDisorder && psn > stream.una && !stream.recovering) [[unlikely]]
        recover(stream);
    const bool nack = entry.kind >= wire::MpAck::kNack;
    uint64_t rtt_ns = 0;  // 0: it says nothing of that
    if (!nack && !entry.retx && stream.records != nullptr && psn >= stream.recorded &&
        record(stream, psn).retransmitted) [[unlikely]] {
        note_false_alarm(stream, record(stream, psn), now_ns);
    }
    if (psn >= stream.una) [[likely]] {
        PacketRecord& packet = record(stream, psn);
        // An echo of ReTx belongs to the latest transmission, which the record describes; without it to the first.
        const bool recorded = entry.retx == packet.retransmitted && entry.vp == packet.vp;
        const uint32_t age = ticks(now_ns) - packet.sent;
        if (recorded && !packet.acked) {
            const uint64_t age_ns = uint64_t{age} << 6, least_ns = stream.nscc.base_rtt_ns();
            if (!packet.retransmitted && !entry.trimmed) measure(stream.srtt_ns, stream.rttvar_ns, age);
            // BX-9: repetitions tell too, or a window that only repeats would not grow. With one path the answer may be
            // to an earlier repetition.
            rtt_ns = packet.retransmitted && config_.vps == 1 && age_ns < least_ns ? least_ns : age_ns;
        }
        bool fresh = nack;  // it says something new
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
        if (recorded) {  // it has arrived, taken or not
            packet.marked = entry.ece;
            // A trimmed header has overtaken what waits in queues: it tells neither how long that takes nor what is
            // gone.
            if (!entry.trimmed) arrived(stream, packet);
            if (fresh && !entry.trimmed && config_.infer_losses && (stream.oldest < psn || packet.retransmitted))
                infer(stream, packet);
        }
    }
    if (psn < stream.una && !nack) stream.inflate += config_.count_acks;
    if (entry.kind == wire::MpAck::kErr) return true;  // the requester's to handle
    if (!nack && psn >= stream.ooh) stream.ooh = psn + 1;
    if (stream.ooh.previous() - psn > most_behind_) [[unlikely]] {
        if (!is_clocked_) {
            take_signals(stream, entry, rtt_ns, now_ns);
            return true;
        }
        // MP-4: PSNs below snd_ool = snd_ooh - delta came by a slow path, but for retransmissions.
        if (!entry.retx) {
            ++counters_.slow_acks;
            shrink(stream, kOne, kOne);
            return true;
        }
    }
    adapt(stream, entry);
    add_clock(stream, entry.vp);
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
    if (stream.rate.limited() && stream.rate.next_send_ns() > now_ns) {  // BX-6
        ++counters_.paced;
        stream.pace_ns = stream.rate.next_send_ns();
        return false;
    }
    stream.pace_ns = 0;
    if (config_.choice != PathsConfig::Choice::kRandom && stream.entropies.take(now_ns, departure.vp)) {
        ++counters_.recycled;
        return true;
    }
    departure.vp = random_vp(stream);
    return true;
}

void Paths::take_signals(SendStream& stream, const wire::MpAckEntry& entry, uint64_t rtt_ns, uint64_t now_ns) {
    using Control = PathsConfig::Control;
    using Choice = PathsConfig::Choice;
    const bool nack = entry.kind >= wire::MpAck::kNack;
    switch (config_.control) {
        case Control::kMpRdma:
            adapt(stream, entry);
            break;
        case Control::kDcqcn:  // BX-6
            counters_.marked_acks += entry.ece;
            if (!entry.ece && !(dcqcn_.disorder_is_cnp && Psn(entry.psn) > stream.una)) break;
            if (stream.notified_ns != 0 && now_ns - stream.notified_ns < dcqcn_.cnp_interval_ns) break;
            stream.notified_ns = now_ns;
            stream.rate.on_cnp(dcqcn_, now_ns);
            break;
        case Control::kNscc:  // BX-9
            counters_.marked_acks += entry.ece;
            if (nack)
                stream.cwnd_fixed = stream.nscc.on_nack(stream.cwnd_fixed, nscc_most(), rtt_ns, now_ns);
            else
                stream.cwnd_fixed = stream.nscc.on_ack(stream.cwnd_fixed, config_.initial_window, nscc_most(), rtt_ns,
                                                       entry.ece, now_ns);
            break;
        case Control::kFixed:
            break;
    }
    const bool is_good = !entry.ece && !nack;  // BX-7
    if (config_.choice == Choice::kEcho || (config_.choice == Choice::kReps && is_good))
        stream.entropies.recycle(entry.vp);
}

// BX-8, BX-9: packets are gone of which nothing that came behind them on their path tells: it may be dead.
void Paths::note_failure(SendStream& stream, uint64_t now_ns) {
    if (is_clocked_) return;
    stream.nscc.on_loss();
    using Choice = PathsConfig::Choice;
    if (config_.choice == Choice::kReps && stream.entropies.freeze(now_ns, config_.initial_window))
        ++counters_.freezes;
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

// BX-1: what left by the same path before a packet that has arrived has not been overtaken: it is gone. What left
// before a packet that had arrived was found then, unless it was to be waited for (note 5).
void Paths::infer(SendStream& stream, const PacketRecord& arrived) {
    if (stream.patience == kMostPatience) return;
    const uint32_t mask = config_.max_window - 1;
    const uint32_t wait = stream.patience == 0 ? 0 : ticks(stream.srtt_ns / 4) << (stream.patience - 1);
    uint32_t order = arrived.order;
    uint16_t at = arrived.before;
    for (uint32_t step = 0; step < kMostSteps; ++step) {
        const Psn psn = stream.recorded + ((at - stream.recorded.value()) & mask);
        PacketRecord& packet = stream.records[at];
        // The record may describe another transmission by now.
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

// The oldest packets, when something that left two round trips later has arrived: a path without any ACK tells nothing.
void Paths::mark_overdue(SendStream& stream, uint64_t now_ns) {
    if (now_ns < stream.scan_ns) return;
    const auto wait = static_cast<int32_t>(ticks(patient_ns(stream, 2 * stream.srtt_ns)) + 1);
    uint32_t steps = 0;
    for (Psn at = stream.oldest; at < stream.nxt; ++at, ++steps) {
        PacketRecord& packet = record(stream, at);
        if (packet.acked || packet.lost) continue;
        if (static_cast<int32_t>(stream.latest_sent - packet.sent) > wait) {
            mark_lost(stream, at, packet, counters_.resent_inferred);
            note_failure(stream, now_ns);
        } else if (!packet.retransmitted)
            break;  // those behind it left later
    }
    if (steps > kMostSteps) stream.scan_ns = now_ns + stream.srtt_ns / 8;
}

// MP-10: window, and nothing new to fill it with. The packets are sent again that are overdue (note 5), as many as the
// window has room for. False: none is.
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
        if (!packet.retransmitted) break;  // those behind it left later
    }
    if (steps > kMostSteps) stream.scan_ns = now_ns + stream.srtt_ns / 8;
    lend_credits(stream, copies);
    return stream.lost != before;
}

// MP-10: nothing comes back at all. At first as much again as the window has room for, which is all of a short
// message's end; then less, for the receiver may be busy with other things. One packet always: a full window may have
// been lost.
void Paths::probe_tail(SendStream& stream) {
    const auto room = static_cast<uint32_t>(std::max(stream.awnd(), 1));
    uint32_t most = std::max(room >> 2 * stream.tail_probes, 1u);
    ++counters_.tail_probes;
    if (++stream.tail_probes > 1) stream.clock_count = 0;  // their paths may be what has failed
    uint32_t steps = 0, copies = 0;
    for (Psn at = stream.oldest; at < stream.nxt && most != 0 && steps < kMostSteps; ++at, ++steps) {
        PacketRecord& packet = record(stream, at);
        if (packet.acked) continue;
        copies += repeat(stream, at, packet, room > 1);
        --most;
    }
    lend_credits(stream, copies);
}

// A packet that is lost by time. Its repetition was lost as well: with `may_double` it goes twice, so that one loss
// more does not cost another wait (as RFC 9002 section 6.2.4 does when its timer fires). Returns how often more than
// once.
uint32_t Paths::repeat(SendStream& stream, Psn psn, PacketRecord& packet, bool may_double) {
    packet.twice = packet.retransmitted && may_double;
    mark_lost(stream, psn, packet, counters_.resent_early);
    return packet.twice;
}

// What is lost need not wait for an ACK to clock it out. Not more: what is left of it would take new packets to random
// paths, bad ones too.
void Paths::lend_credits(SendStream& stream, uint32_t copies) {
    const uint32_t leave = stream.lost + copies;
    if (leave > stream.clock_count) stream.credits = std::max(stream.credits, leave - stream.clock_count);
}

void Paths::note_false_alarm(SendStream& stream, PacketRecord& packet, uint64_t now_ns) {
    if (packet.false_alarm) return;
    packet.false_alarm = true;
    ++counters_.false_alarms;
    stream.real_losses = 0;
    if (!config_.learn_patience) return;
    if (now_ns - stream.false_alarm_ns <= stream.srtt_ns) return;
    stream.false_alarm_ns = now_ns;
    if (stream.patience != kMostPatience) ++stream.patience;
}

void Paths::note_real_loss(SendStream& stream) {
    if (stream.patience == 0 || ++stream.real_losses < kRealLosses) return;
    stream.real_losses = 0;
    --stream.patience;
}

void Paths::set_lost(SendStream& stream, Psn psn, PacketRecord& packet, bool lost) {
    packet.lost = lost;
    packet.twice &= lost;
    stream.lost += lost ? 1 : -1;
    const uint32_t index = psn.value() & (config_.max_window - 1);
    lost_bits(stream)[index / 64] ^= uint64_t{1} << index % 64;
}

// There is one.
Psn Paths::first_lost(const SendStream& stream) const {
    const uint32_t mask = config_.max_window - 1, from = stream.una.value() & mask,
                   words = (config_.max_window + 63) / 64;
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

void Paths::mark_lost(SendStream& stream, Psn psn, PacketRecord& packet, uint64_t& cause) {
    if (packet.lost) return;
    set_lost(stream, psn, packet, true);
    packet.lost_vp = packet.vp;
    ++cause;
}

bool Paths::advance(SendStream& stream, Psn aack, uint64_t now_ns) {
    if (aack <= stream.una || aack > stream.nxt) {
        if (config_.infer_losses && aack == stream.una && stream.outstanding()) mark_overdue(stream, now_ns);
        return false;
    }
    // MP-11: the timer has repeated the oldest packet, and that was needed.
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
    // Until a round trip is known, which repetitions do not tell, one longer than the timer would let it fire for every
    // packet (RFC 6298 section 5: the backed-off timer holds until there is a sample).
    stream.backoff = stream.srtt_ns != 0 ? 0 : std::min(stream.backoff, kMaxBackoff);
    stream.last_ack_ns = now_ns;
    if (stream.outstanding()) {
        restart_timer(stream, now_ns);
        // Else, without BX-1 and MP-10, each packet of a tail that was lost would wait for a timeout of its own: with
        // progress the timer begins anew.
        if (config_.infer_losses || timed_out) mark_overdue(stream, now_ns);
    } else {
        stream.timer_ns = stream.early_ns = 0;
        release(stream);
    }
    return true;
}

// It is to be sent again, whatever was said of it.
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

// The lowest first: what was refused for being too far ahead is refused again until that has arrived.
bool Paths::find_again(SendStream& stream, Psn& psn) const {
    const bool recovery = find_recovery(stream, psn);
    if (stream.lost == 0) return recovery;
    const Psn lost = first_lost(stream);
    if (!recovery || lost < psn) psn = lost;
    return true;
}

// MP-9: in recovery everything from snd_retx on goes again; selective repeat skips what has arrived.
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

// MP-11
uint64_t Paths::rto_ns(const SendStream& stream) const {
    return std::max(4 * stream.srtt_ns, config_.min_rto_ns) << std::min(stream.backoff, kMaxBackoff);
}

// Earlier than the timer says, for a few packets.
uint64_t Paths::timeout_at(const SendStream& stream) const {
    if (config_.low_rto_ns == 0 || stream.nxt - stream.una > kFew || stream.timer_ns == 0) return stream.timer_ns;
    const uint64_t low_ns = std::max(config_.low_rto_ns, 4 * stream.srtt_ns) << std::min(stream.backoff, kMaxBackoff);
    return stream.timer_ns - (rto_ns(stream) - std::min(low_ns, rto_ns(stream)));
}

void Paths::restart_timer(SendStream& stream, uint64_t now_ns) {
    stream.timer_ns = now_ns + rto_ns(stream);
}

uint64_t Paths::deadline(const SendStream& stream) const {
    uint64_t deadline = UINT64_MAX;
    if (stream.timer_ns != 0) deadline = timeout_at(stream);
    if (stream.burst_ns != 0) deadline = std::min(deadline, stream.burst_ns);
    if (stream.pace_ns != 0) deadline = std::min(deadline, stream.pace_ns);
    if (stream.early_ns != 0 && stream.timer_ns != 0) deadline = std::min(deadline, stream.early_ns);
    return std::min(deadline, tail_deadline(stream));
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
    if (stream.early_ns <= now_ns) stream.early_ns = 0;  // next() looks
    if (stream.pace_ns <= now_ns) stream.pace_ns = 0;
    if (tail_deadline(stream) <= now_ns) probe_tail(stream);
    if (stream.timer_ns == 0 || timeout_at(stream) > now_ns) return;
    if (config_.recovery == PathsConfig::Recovery::kOfDisorder) {
        ++counters_.resent_timeout;
        recover(stream);
        stream.credits = std::max(stream.credits, 1u);
        return restart_timer(stream, now_ns);
    }
    if (stream.backoff < 255) ++stream.backoff;
    note_failure(stream, now_ns);
    // MP-10: the first time the oldest alone: most often only the tail of a message is missing, or its ACK. The
    // receiver expects it, so if it was acknowledged, that was withdrawn, and the message about it was lost.
    ++(stream.backoff == 1 && config_.repeat_early ? counters_.resent_early : counters_.resent_timeout);
    retract(stream, stream.una);
    record(stream, stream.una).lost_vp = record(stream, stream.una).vp;
    if (stream.backoff > 1) {  // MP-11
        for (Psn at = stream.una; at < stream.nxt; ++at) {
            PacketRecord& packet = record(stream, at);
            if (!packet.acked) mark_lost(stream, at, packet, counters_.resent_timeout);
        }
        shrink(stream, stream.cwnd_fixed / 2, kOne);
    }
    // As at the start (MP-3), however small the window: that nothing came back may mean that most paths are dead, and
    // one that is not must be found.
    stream.credits = std::max(stream.credits, is_clocked_ ? std::min(stream.lost, config_.initial_window) : 1);
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
