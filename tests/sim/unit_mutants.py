# SPDX-License-Identifier: Apache-2.0
"""Bugs that unit tests must find in the code that sends over many paths, that keeps order, in the connection manager,
and in the parts of the datapath without devices.

For each program and description, the table has the file, the code in it, and the code with the bug.
"""
PATHS, RECOVERY, PER_PACKET, PATHS_H = (f"lib/transport/paths/{name}"
                                        for name in ("paths.cc", "recovery.cc", "per_packet-inl.h", "paths.h"))
ROUND_TRIP = "lib/transport/round_trip.h"
CONTROL = "lib/transport/paths/congestion_control.cc"
NSCC = "lib/transport/congestion/nscc.cc"
WINDOW = "lib/transport/congestion/adaptive_window.cc"
SLOW_PATH = "        if (!entry.retx) {\n            ++counters_.slow_acks"
HYBRID, HYBRID_H, ARENA, STATIC, SLOTS = (f"lib/transport/reorder/{name}" for name in (
    "hybrid_bitmap.cc", "hybrid_bitmap.h", "arena.cc", "static_bitmap.h", "slots.h"))
ADDRESS, NEIGHBOUR, CONFIG = "lib/link/address.cc", "lib/link/neighbour.cc", "lib/runtime/config.cc"
GENERATOR, PATH, IMPAIRMENT, SETTINGS = (f"lib/port/fault_injection/{name}.cc"
                                    for name in ("fault_generator", "path", "impairment", "settings"))
CM, CM_RECEIVE, CM_TABLES, CM_MESSAGES = (f"lib/cm/{name}.cc" for name in ("cm", "receive", "tables", "messages"))

UNIT_MUTANTS = {
    "tests/unit/transport/transport_paths_test": {
        "MP-1: the window does not grow": (
            CONTROL, "std::min(cwnd_fixed + by, most_fixed_);", "std::min(cwnd_fixed + 0 * by, most_fixed_);"),
        "MP-1: marks are ignored": (
            CONTROL, "if (answer.marked) return reduced(", "if (false) return reduced("),
        "MP-1: a mark costs a packet": (
            CONTROL, "reduced(cwnd_fixed, kOne / 2, kOne);", "reduced(cwnd_fixed, kOne, kOne);"),
        "MP-1: marks can close the window": (
            CONTROL, "reduced(cwnd_fixed, kOne / 2, kOne);", "reduced(cwnd_fixed, kOne / 2, 0);"),
        "MP-2: what arrived early does not open the window": (
            PATHS, "            ++stream.inflate;  // MP-2\n            if (psn", "            if (psn"),
        "MP-3: packets take random paths": (
            PER_PACKET, "departure.vp = stream.acks.first();", "departure.vp = random_vp(stream);"),
        "MP-3: packets of a run take random paths": (
            PER_PACKET, "    vp = stream.acks.first();\n    record", "    vp = random_vp(stream);\n    record"),
        "MP-3: few ACKs are kept": ("lib/transport/paths/unused_acks.h", "kMost = 256", "kMost = 64"),
        "MP-3: kept ACKs change places when their memory grows": (
            "lib/transport/paths/unused_acks.cc", "room[i] = (*this)[i];", "room[i] = vps_[i];"),
        "MP-3: ACKs are lost without being counted": (PATHS_H, "        else\n            ++counters_.surplus;\n", ""),
        "MP-4: no path is slow": (PATHS, SLOW_PATH, SLOW_PATH.replace("!entry.retx", "false")),
        "MP-4: a packet delta behind is slow": (
            PATHS, "stream.ooh.previous() - psn > stream.most_behind", "stream.ooh.previous() - psn >= stream.most_behind"),
        "MP-4: repetitions are slow": (PATHS, SLOW_PATH, SLOW_PATH.replace("!entry.retx", "true")),
        "BX-6: marks do not cut the rate": (CONTROL, "own.rate.on_cnp(config_, answer.now_ns);", ""),
        "BX-7: paths with marks are taken again": (PATHS, "= !entry.ece && !nack;  // BX-7", "= true;"),
        "BX-8: no fault freezes": (
            RECOVERY, "if (config_.choice == PathsConfig::Choice::kReps && stream", "if (false && stream"),
        "MP-5: no probes": (PER_PACKET, "if (due || draw() % 1000 < config_.probe_permille) {", "if (due) {"),
        "MP-5: ten times as many probes": (PER_PACKET, "draw() % 1000 <", "draw() % 100 <"),
        "MP-5: a probe may be drawn for each packet": (
            PER_PACKET, "(often ? stream.srtt_ns / 4 : stream.srtt_ns);", "0;"),
        "MP-6: an ACK lets out three packets": (PATHS_H, "kUsesPerAck = 2;", "kUsesPerAck = 3;"),
        "MP-6: two packets for each ACK of a full ring": (PATHS_H, " || count > kFewAcks)", ")"),
        "MP-6: there is no burst timer": (PER_PACKET, "if (stream.burst_ns == 0 && stream.backoff == 0)", "if (false)"),
        "MP-7: unused ACKs do not narrow the window": (
            CONTROL, "return reduced(cwnd_fixed, acks * kOne, initial_ * kOne);", "return cwnd_fixed;"),
        "MP-8: a restart after one round trip": (PATHS_H, "kIdleRoundTrips = 3;", "kIdleRoundTrips = 1;"),
        "MP-8: no restart": (
            PER_PACKET, "        restart(stream);\n        stream.last_ack_ns = 0;", "        stream.last_ack_ns = 0;"),
        "MP-9: selective repeat repeats all": (
            RECOVERY, "packet.acked && config_.recovery != PathsConfig::Recovery::kGoBackN",
            "false && packet.acked"),
        "MP-9: go-back-N skips what arrived": (
            RECOVERY, "packet.acked && config_.recovery != PathsConfig::Recovery::kGoBackN", "packet.acked"),
        "MP-10: there is no tail timer": (
            RECOVERY, "        consider(tail_deadline(stream), Timer::kTail);\n", ""),
        "MP-10: a lost tail goes one by one": (
            RECOVERY, "uint32_t most = std::max(room >> 2 * stream.tail_probes, 1u);", "uint32_t most = 1 + 0 * room;"),
        "MP-10: behind a repeated packet nothing is looked at": (
            RECOVERY, "stream.early_ns = due_ns;\n        if (!packet.retransmitted) break;",
            "stream.early_ns = due_ns;\n        break;"),
        "MP-10: what is passed is repeated at once": (RECOVERY, "if (passed && left <= 0) {", "if (passed) {"),
        "MP-10: the tail timer does not back off": (
            PATHS_H, "stream.tail_probes > 1 ? stream.tail_probes - 1u : 0", "0u"),
        "MP-10: the tail timer does not end": (PATHS_H, "kTailProbes = 4;", "kTailProbes = 5;"),
        "MP-10: ACKs do not restart the tail timer": (
            PATHS_H, "std::max(stream.sent_ns, stream.last_ack_ns) + tail", "stream.sent_ns + tail"),
        "MP-11: it backs off twice more": (PATHS_H, "kMaxBackoff = 5;", "kMaxBackoff = 7;"),
        "MP-11: all goes again the first time": (
            RECOVERY, "if (stream.backoff > 1 && (stream.srtt_ns != 0 || !is_adaptive_)) {  // MP-11",
            "if (true) {  // MP-11"),
        "MP-11: the timer is two round trips": (
            PATHS_H, "std::max(4 * stream.srtt_ns,", "std::max(2 * stream.srtt_ns,"),
        "the round trip follows too fast": (
            ROUND_TRIP, "(7 * smoothed_ns + sample_ns) / 8", "(3 * smoothed_ns + sample_ns) / 4"),
        "its deviation follows too fast": (ROUND_TRIP, "(3 * deviation_ns +", "(1 * deviation_ns +"),
        "repetitions are measured": (
            PATHS, "            if (!packet.retransmitted && !entry.trimmed) {\n", "            {\n"),
        "MP-12: the delay is that of a window": (
            PATHS, "config_.sync_alpha * config_.delta", "config_.sync_alpha * config_.max_window"),
        "BX-1: other paths tell of losses": (RECOVERY, "        if (packet.vp != arrived.vp) continue;\n", ""),
        "BX-1: nothing is inferred": (
            RECOVERY, "    if (stream.patience == kMaxPatience) return;\n    const uint32_t mask",
            "    return;\n    const uint32_t mask"),
        "BX-1: a dead path is never noticed": (
            RECOVERY, "if (now_ns < stream.scan_ns) return;", "return;"),
        "BX-1: false alarms change nothing": (
            RECOVERY, "    if (stream.patience != kMaxPatience) ++stream.patience;\n", ""),
        "BX-1: each false alarm counts": (
            RECOVERY, "    if (now_ns - stream.false_alarm_ns <= stream.srtt_ns) return;\n", ""),
        "BX-1: it is never turned on again": (
            RECOVERY, "    stream.real_losses = 0;\n    --stream.patience;", "    stream.real_losses = 0;"),
        "BX-4: growth takes known paths": (PATHS, "stream.grown |= config_.explore &&", "stream.grown |= false &&"),
        "BX-13: known paths take all packets without an ACK": (PATHS, "!stream.destination->failed_recently(now_ns) || ", ""),
        "BX-13: slow paths keep all packets": (PATHS, "!moves ? entry.vp", "true ? entry.vp"),
        "a larger ring mixes up the packets of a path": (
            PATHS, "        packet.before = moved(packet.before);\n", ""),
        "a larger ring is not the stream's after a pause": (
            PATHS, "    if (!has_ring(stream.ring)) set_ring(stream, p", "    set_ring(stream, p"),
        "BX-9: what the timer repeats stays in the window": (
            CONTROL, "return of(state).on_timeout(cwnd_fixed, packets, now_ns);",
            "return of(state).on_timeout(cwnd_fixed, packets, now_ns), cwnd_fixed;"),
        "BX-11: packets do not wait for their time": (
            PATHS, "if (is_spaced_out(stream) && stream.pace_ns > now_ns) {", "if (false) {"),
        "BX-11: after a pause as well": (
            CONTROL, "if (nscc.round_trips_apart() == 1 || cwnd_fixed != kOne)", "if (nscc.round_trips_apart() == 1)"),
        "BX-11: the wait is taken for a timeout": (RECOVERY, "    if (is_spaced_out(stream)) {", "    if (false) {"),
        "BX-11: answers to the window before count": (NSCC, " && now_ns - shrunk_ns_ >= base_rtt_ns_ << apart_", ""),
        "BX-11: marks halve the time, too": (NSCC, "        if (!marked) apart_ =", "        apart_ ="),
        "BX-12: a part of a packet is a packet": (
            PER_PACKET, "    if (is_below_packet(stream) && stream.pace_ns > now_ns) [[unlikely]] {", "    if (false) {"),
        "BX-12: nothing leaves with a part of a packet": (PER_PACKET, " && !may_leave_alone(stream)) return", ") return"),
        "the peer chooses paths": (PATHS, " || !owns(stream, entry.vp))", ")"),
        "EU-4: a SACK that was taken back is believed": (PATHS, "packet.acked || packet.withdrawn", "packet.acked"),
        "records are not there in time": (
            PATHS, "    if (pools_[0].rings < streams_ && !add_rings(0, kRingsOfAChunk)) throw std::bad_alloc();\n",
            "    if (pools_[0].rings == 0 && !add_rings(0, kRingsOfAChunk)) throw std::bad_alloc();\n"),
    },
    "tests/unit/transport/transport_reorder_test": {
        "EU-1: more than the cap": (HYBRID, "if (needed > cap_blocks_) return", "if (needed > cap_blocks_ + 1) return"),
        "EU-1: rings do not join": (HYBRID_H, "            m.circular = m.blocks;  // EU-1: merge\n", ""),
        "EU-3: blocks are kept after Last": (
            HYBRID_H, "if (!stream.out_of_order && stream.last_seen) release(stream);", ""),
        "EU-3: blocks go before Last": (
            HYBRID_H, "if (!stream.out_of_order && stream.last_seen) release(stream);",
            "if (!stream.out_of_order) release(stream);"),
        "EU-3: an early Last is forgotten": (
            HYBRID, "    m.highest = std::max(m.highest, psn);\n    stream.last_seen = stream.last_seen || last;",
            "    m.highest = std::max(m.highest, psn);"),
        "EU-3: a peer may use the whole arena": (HYBRID_H, "if (stream.peer == 0) return free;", "return free;"),
        "EU-3: what a peer has freed stays its own": (
            HYBRID, "    by_peer_[stream.peer] -= arena_.metadata_blocks() + m.blocks;\n", ""),
        "EU-3: metadata is lost": (HYBRID, "    arena_.free_metadata(stream.memory);\n", ""),
        "EU-3: refusals are not counted": (HYBRID, "    arena_.count_refusal();\n", ""),
        "EU-3: blocks are as they were left": (ARENA, "    std::memset(at(block), 0, block_bytes());\n", ""),
        "EU-3: the peak is what is used now": (
            ARENA, "usage_.peak_blocks = std::max(usage_.peak_blocks, usage_.blocks);",
            "usage_.peak_blocks = usage_.blocks;"),
        "EU-5: one slot too many": (
            STATIC, "if (static_cast<uint32_t>(psn - stream.expected) >= slots_) return Arrival",
            "if (static_cast<uint32_t>(psn - stream.expected) > slots_) return Arrival"),
        "EU-5: out of order when nothing is missing": (
            STATIC, "stream.out_of_order = highest(stream) > stream.expected;",
            "stream.out_of_order = highest(stream) >= stream.expected.previous();"),
        "EU-6: a refused packet stays": (SLOTS, "emptied = index + 1;", "emptied = index;"),
    },
    "tests/unit/transport/transport_parts_test": {
        "BX-12: a mark takes all of a part of a packet": (WINDOW, "std::max(cwnd_fixed / 2, least_)", "least_"),
        "BX-12: delay alone leaves nothing": (
            WINDOW, "is_large ? kLarge << 16 : share_fixed;", "is_large ? kLarge << 16 : 0;"),
        "BX-12: delay alone leaves a large window less than 256 packets": (
            WINDOW, "is_large ? kLarge << 16 : share_fixed;", "share_fixed;"),
        "BX-12: an unknown round trip shows no queue": (WINDOW, "is_queue = !is_known || ", "is_queue = is_known && "),
        "DCQCN begins at the same rate at every port": (
            "lib/transport/congestion/dcqcn.cc", "rate_ = line_rate(config);", "rate_ = kUnknownPortRate;"),
    },
    "tests/unit/transport/transport_test": {
        "a request that cannot be sent again fails as another": (
            "lib/transport/mp/requester.h", "fresh ? p_.next_wqe : index_of(departure.psn);\n            p_.fail(",
            "fresh ? p_.next_wqe : qp_.sq.consumed();\n            p_.fail("),
        "rc's timeouts wait for a small window": (
            "lib/transport/requester.h", "        r_.pace_ns = 0;  // each", "        // each"),
        "mp's timeouts wait for a small window": (
            "lib/transport/mp/requester.h", "            mp_.requests.pace_ns = 0;  // each", "            // each"),
        "BX-14: a QP is promised twice what it may hold": (
            "lib/transport/mp/state.h", "left_for(held) / (2 *", "left_for(held) / (1 *"),
        "BX-15: marked packets widen the window": (
            "lib/transport/requester.h", "r_.cwnd_fixed, acknowledged - marked,", "r_.cwnd_fixed, acknowledged,"),
        "BX-15: a CNP closes the window": (
            "lib/transport/rc_state.h", "left = std::min(marks, cwnd());", "left = std::min(marks, 4 * cwnd());"),
        "BX-15: marks of READ data count as those of requests": (
            "lib/transport/engine_receive-inl.h", "++(is_request ?", "++(true ?"),
        "BX-15: marked requests hide marked READ data": (
            "lib/transport/engine_receive-inl.h", "if (by_window && frame.headers.cnp_responses == 0) return;",
            "if (by_window) return;"),
        "BX-15: marks of long ago are counted": (
            "lib/transport/engine_receive-inl.h", "if (core_.now_ns - last > 2 * interval_ns) congestion", "if (false) congestion"),
    },
    "tests/unit/link/link_test": {
        "a prefix is one bit shorter": (ADDRESS, ">> (8 - rest)) == 0", ">> (9 - rest)) == 0"),
        "an IPv4 prefix of 100 bits": (ADDRESS, "bits > 128 - skipped", "bits > 128"),
        "class E is multicast": (ADDRESS, "(address[12] & 0xF0) == 0xE0", "(address[12] & 0xE0) == 0xE0"),
        "a multicast MAC is a host's": (ADDRESS, "if (is_multicast(mac) || mac == ", "if (mac == "),
        "an answer that nobody asked for is kept": (
            NEIGHBOUR, "learn(frame.target, *frame.mac, false, answer", "learn(frame.target, *frame.mac, true, answer"),
        "another VLAN's frames are ours": (NEIGHBOUR, "if (!our_vlan || frame.kind", "if (frame.kind"),
        "a neighbour that no path uses stays": (
            NEIGHBOUR, "if (known.next_hop != nullptr && !known.is_used())", "if (false)"),
    },
    "tests/unit/port/port_test": {
        "frames are held for less": (GENERATOR, "random_() % kMaxHoldFrames", "random_() % (kMaxHoldFrames - 1)"),
        "a held frame is also doubled": (GENERATOR, "    else\n        fate.duplicate", "    fate.duplicate"),
        "the device's faults are a path's": (
            IMPAIRMENT, "transit->udp_src % (paths_.size() - 1)", "transit->udp_src % paths_.size()"),
        "a round gives all that is due": (
            IMPAIRMENT, "next_->due_ns() <= now_ns && out_.size() < kBurst", "next_->due_ns() <= now_ns"),
        "a change of one path is one of all": (IMPAIRMENT, "        if (path && *path != index) continue;\n", ""),
        "a queue is one frame longer": (
            PATH, "queue_.size() >= settings_.queue_packets", "queue_.size() > settings_.queue_packets"),
        "marks begin one frame later": (
            PATH, "queue_.size() >= settings_.ecn_threshold_packets) mark",
            "queue_.size() > settings_.ecn_threshold_packets) mark"),
        "a rate's remainders are lost": (PATH, "unsent_millibits_ %= settings_.rate_mbps;", "unsent_millibits_ = 0;"),
        "a path goes down with frames on it": (PATH, "    if (settings.down) cut();\n", ""),
        "half a change": (SETTINGS, "if (reader.error.empty()) settings = changed;", "settings = changed;"),
        "unknown settings are ignored": (SETTINGS, "if (reader.error.empty() && !reader.values.empty())", "if (false)"),
    },
    "tests/unit/runtime/runtime_test": {
        "a path is configured twice": (CONFIG, "if (given[index]) path.refuse", "if (false) path.refuse"),
        "a device has a group's address": (CONFIG, "if (!subnet || is_multicast(subnet->address) ||", "if (!subnet ||"),
        "service level 8": (CONFIG, "level >= kServiceLevels", "level > kServiceLevels"),
        "an MTU of 1000": (CONFIG, "if (!std::has_single_bit(device.mtu)) table", "if (false) table"),
    },
    "tests/unit/runtime/grace_period_test": {
        "a ring of completions is replaced at once": (
            "lib/transport/completion_queue.cc", "        grace.wait();\n", ""),
    },
    "tests/unit/cm/cm_test": {
        "CM: a repeated REQ makes a second request": (
            CM_RECEIVE, "        return on_duplicate(in, *found->second, req);\n",
            "        on_duplicate(in, *found->second, req);\n"),
        "CM: a REP is believed whatever its transaction": (
            CM_RECEIVE, "c->state == State::kReqSent ? in.transaction_id == c->transaction_id",
            "c->state == State::kReqSent ? true"),
        "CM: a REJ is believed whatever its transaction": (
            CM_RECEIVE,
            "        if (in.transaction_id != c->transaction_id) return drop(Counter::kDropUnknownId);\n    } else",
            "    } else"),
        "CM: an MRA is believed whatever its transaction": (
            CM_RECEIVE, "c->state == State::kReqSent ? in.transaction_id != c->transaction_id",
            "c->state == State::kReqSent ? false"),
        "CM: an answer to another id": (
            CM_RECEIVE, "c->sidr || c->remote_comm_id != remote_comm_id", "c->sidr"),
        "CM: an answer from anywhere": (
            CM_RECEIVE, "return in.from.flow.dst == c.path.flow.dst && in.from.flow.src == c.path.flow.src;",
            "return true;"),
        "CM: a DREQ for another QP": (
            CM_RECEIVE, "if (dreq.remote_qpn != c->local_qpn) return drop(Counter::kDropQpn);", ""),
        "CM: a forged REQ ends a connection": (
            CM_RECEIVE, "        probe(in.now_ns, *found->second);\n        return reject_request",
            "        enter_time_wait(in.now_ns, *found->second, {});\n        return reject_request"),
        "CM: a stale connection is not asked for": (
            CM_RECEIVE, "        probe(in.now_ns, *found->second);\n        return reject_request",
            "        return reject_request"),
        "CM: a question for each forged REQ": (CM, "(c.probed_ns && now_ns - *c.probed_ns < kProbeGapNs)", "false"),
        "CM: a DREP that answers nothing": (CM_RECEIVE, "State::kEstablished && c->probed_ns;", "State::kEstablished;"),
        "CM: addresses that lie": (
            CM_RECEIVE, "return back.src == back.dst || (addresses.src == back.dst && addresses.dst == back.src);",
            "return back.src == back.dst || addresses.src == back.dst;"),
        "CM: GIDs that lie": (
            CM_RECEIVE, "req.primary.remote_gid != back.src || req.primary.local_gid != back.dst",
            "req.primary.remote_gid != back.src"),
        "CM: a larger MTU": (CM_RECEIVE, "req.path_mtu > in.max_mtu", "req.path_mtu > 5"),
        "CM: a REP that comes again is not answered": (
            CM_RECEIVE, "(c->state == State::kEstablished || c->state == State::kClosed) && c->mad",
            "c->state == State::kClosed && c->mad"),
        "CM: an MRA waits for ever": (
            CM_RECEIVE, "std::min(mra.service_timeout, kLongestService)", "mra.service_timeout"),
        "CM: MRAs without end": (CM_RECEIVE, "!waits || c->extensions == kMaxExtensions", "!waits"),
        "CM: a peer's timeouts are taken": (
            CM_RECEIVE,
            "std::min(std::max(req.local_response_timeout, config_.first_timeout), config_.response_timeout)",
            "std::max(req.local_response_timeout, config_.first_timeout)"),
        "CM: one source fills the backlog": (
            CM_TABLES, "of_source < most - most / 4;", "of_source < most;"),
        "CM: the backlog has no end": (
            CM_TABLES, "taken < most && of_source < most", "of_source < most"),
        "CM: half-open connections have no end": (
            CM_TABLES, "fits(all.half_open, of_source.half_open, config_.max_half_open)", "true"),
        "CM: what is established counts as half-open": (
            CM_RECEIVE, "        leave_backlog(*c);\n", ""),
        "CM: who leaves the backlog makes no room": (
            CM, "    leave_waiting(c);\n    c.local_guid = local.ca_guid;", "    c.local_guid = local.ca_guid;"),
        "CM: lingering records have no end": (
            CM_TABLES, "if (lingering_.size() <= config_.max_lingering) return;", "return;"),
        "CM: connections have no end": (
            CM_TABLES, "if (usage().connections >= config_.max_connections) return nullptr;", ""),
        "CM: a wildcard goes before an address": (
            CM_TABLES, "if (listen.address && *listen.address == local) return listener;",
            "if (listen.address && *listen.address == local && any == nullptr) return listener;"),
        "CM: the wait does not grow": (CM_TABLES, "std::min<uint8_t>(c.timeout + 1, c.longest)", "c.timeout"),
        "CM: once more than it should": (
            CM_TABLES, "if (c.retries == 0) return give_up", "if (c.retries == 255) return give_up"),
        "CM: a REQ that is given up stays": (
            CM_TABLES, "if (!c.sidr) send(c.path, make_rej(c, RejReason::kTimeout));", ""),
        "CM: a late RTU is believed by its sender": (
            CM_RECEIVE, "    if (c->state == State::kClosed && c->mad) send(c->path, *c->mad);\n}", "}"),
        "CM: a REJ behind an MRA is said once": (CM, "answer && c.promised ? kUnsolicitedRetransmits : 0;", "0;"),
        "CM: a rejected request is soon forgotten": (
            CM, "(config_.max_retries + 1) * timeout_ns(config_.response_timeout)",
            "timeout_ns(config_.first_timeout)"),
        "CM: TIMEWAIT keeps the QP": (
            CM, "    forget_remote_qp(c);\n    set_deadline(c, now_ns + timeout_ns(config_.time_wait));",
            "    set_deadline(c, now_ns + timeout_ns(config_.time_wait));"),
        "CM: events of destroyed ids": (CM, "    if (!c.owned) return;\n    event.id", "    event.id"),
        "CM: an id is found after its end": (
            CM_TABLES, "    if (c.local_comm_id != 0) by_comm_id_.erase(c.local_comm_id);\n", ""),
        "CM: a field one bit lower": (
            CM_MESSAGES, "c.bits(51, 4, 4, m.max_cm_retries);", "c.bits(51, 3, 4, m.max_cm_retries);"),
        "CM: ECE's vendor one byte off": (
            CM_MESSAGES, "c.vendor({15, 19, 23}, m.ece.vendor_id);", "c.vendor({11, 19, 23}, m.ece.vendor_id);"),
        "CM: a length beyond its field": (
            CM_MESSAGES, "std::min<uint8_t>(std::get<Rej>(out.body).ari_bytes, Rej::kAriBytes);",
            "std::get<Rej>(out.body).ari_bytes;"),
    },
}
