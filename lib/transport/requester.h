// SPDX-License-Identifier: Apache-2.0
// The requester of RC, and of XRC (P): turns work requests into packets, handles ACKs and responses, and recovers
// losses. Units: nanoseconds, bytes, packets.
//
// DESIGN NOTES
// 1. Go-back-N always resumes at `una`: everything before it is done, everything after it is sent again. So there is no
//    list of packets; a packet is made from its work request each time. A READ that has partly arrived is requested
//    again from there (IBTA 9.4.4.2 allows a READ request that starts inside an earlier one's PSN range).
// 2. A large READ is sent as several READ requests of a quarter of the window each. Their PSNs on the wire equal the
//    PSNs of a single request, and the responder cannot run further ahead than our window. It sends that at once, since
//    no ACK holds it back; so with the largest MTU the window is smaller in bytes than a WRITE's: 1 MiB in the ring and
//    the rest of it does not fit into a core's L2, and with distant cores READs fell from 40 to 25 Gb/s at times.
// 3. The loss of a last packet, of its ACK, or of a NAK leaves nothing that provokes another NAK. Waiting for the
//    verbs' timeout (67 ms and more) would be correct but slow, so the packet at `una` is sent once more after the
//    round trip and its deviation (the tail loss probe of RFC 8985, section 7). If it had arrived, it is a duplicate,
//    and every responder acknowledges all that it has; if not, its own ACK shows that the packets behind it are lost
//    too, unless that ACK comes too soon to be an answer to the probe. Probes do not count as retries. For a READ, the
//    probe requests all its data again.
// 4. A slow peer is not dead (RetryTimer). Each timeout repeats one packet rather than the window, and so does a loss
//    that is inferred from a probe. If an answer shows that the rest has arrived as well, or comes too soon to be for
//    the repeated packet, sending resumes where it was; otherwise the window grows with each acknowledged packet, and
//    so doubles in each round trip. A packet lost while the window is small often has nothing behind it that would
//    cause a NAK, so probes continue: nothing else moves a sender with a full window that has more to repeat.
// 5. The window is BX-12's, also towards NICs. The round trip is that of one packet at a time
// (RcRequester::sample_psn).
//    It measures queues only if the sampled packet met none of ours, so the first packet of a connection asks for an
//    ACK.
#pragma once

#include "transport/burst.h"
#include "transport/core.h"
#include "transport/outcome.h"
#include "transport/rnr_timer.h"
#include "transport/send_op.h"

namespace rove::transport {

template <class S, class P>
class RcRequesterLogic {
  public:
    RcRequesterLogic(Core<S>& core, QueuePair& qp, P& rc)
        : core_(core),
          qp_(qp),
          rc_(rc),
          r_(rc.requester),
          p_(qp.position),
          retry_(rc.requester.retry),
          congestion_(rc.congestion.rate) {}

    uint32_t transmit(uint32_t budget);
    // Returns true if transmit() would find a request that only a fence can hold back.
    bool can_send() const {
        return qp_.state == IBV_QPS_RTS && p_.next_wqe != limit() && retry_.rnr_until <= core_.now_ns && window_open();
    }
    // Returns true if there is anything to send, whether or not it may be sent now.
    bool has_work() const { return p_.next_wqe != limit() || p_.failed; }
    void receive_ack(const wire::Headers& headers);
    // Receives READ data of the path MTU.
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame);
    void receive_read_response(const wire::ParsedFrame& frame);
    void receive_atomic_response(const wire::Headers& headers);
    void expire();
    // Asks for an ACK when the program waits for all sent packets (SQD), since the last one may not have asked.
    void ask_for_ack() {
        if (!r_.outstanding() || r_.next_psn != r_.max_psn || r_.since_ack_req == 0) return;
        r_.probe_deadline = core_.now_ns;
        core_.deadlines.schedule(qp_, r_.probe_deadline);
    }
    // Repairs the state after a fault (recover-inl.h); `packets` of a burst were sent.
    void recover(uint32_t packets);
    uint64_t next_deadline() const {
        uint64_t deadline = std::min(core_.ack_deadline(retry_), r_.probe_deadline);
        if (retry_.rnr_until != 0) deadline = std::min(deadline, retry_.rnr_until);
        return deadline;
    }

  private:
    static constexpr bool kIsXrc = P::kService == wire::Service::kXrc;
    enum class Begin : uint8_t { kSend, kWait, kDone };

    bool window_open() const { return r_.next_psn - r_.una < static_cast<int32_t>(r_.window_packets); }
    uint32_t limit() const { return qp_.state == IBV_QPS_SQD ? p_.drain_wqe : qp_.sq.available_until(); }
    // Returns true if packet `psn` must ask for an ACK to keep the window moving.
    bool ack_req_for_window(Psn psn) const {
        return r_.since_ack_req + 1u >= core_.config.ack_interval_packets ||
               psn - r_.una + 1 >= static_cast<int32_t>(r_.window_packets) ||
               (psn == r_.una && r_.srtt_ns == 0);  // it finds no queue of ours, and so measures the base round trip
    }
    uint64_t next_ack_deadline() const { return retry_.next(core_.retry_policy(qp_), core_.silence_ns()); }
    uint64_t probe_ns() const {
        // RFC 8985, section 7.2: the peer may delay an ACK.
        const uint64_t wait_ns =
            r_.srtt_ns + std::max(4 * r_.rttvar_ns, r_.srtt_ns) + (r_.srtt_ns != 0 ? kAckWaitNs : 0);
        return std::max(core_.config.min_probe_ns, wait_ns) << std::min<uint8_t>(r_.probes, 10);
    }
    // Return the PSNs that READs may have in flight, and the PSNs of one READ request (design note 2). With one request
    // at a time the pieces would only wait for each other.
    uint32_t read_window() const {
        return std::max(qp_.mtu == 4096 ? core_.config.window_packets / 2 : core_.config.window_packets, 1u);
    }
    uint32_t read_chunk() const { return qp_.max_rd_atomic < 2 ? UINT32_MAX : std::max(read_window() / 4, 1u); }
    // Returns true if the next part of `wqe`, a READ, must wait for answers to others.
    bool read_waits(const SendWqe& wqe) const {
        if (r_.reads_outstanding == 0) return false;
        if (r_.reads_outstanding >= qp_.max_rd_atomic) return true;
        const uint32_t psns =
            wqe.length <= qp_.mtu ? 1 : std::min((wqe.length + qp_.mtu - 1) / qp_.mtu - p_.next_packet, read_chunk());
        return static_cast<uint32_t>(r_.next_psn - r_.una) + psns > read_window();
    }

    [[gnu::always_inline]] inline Begin begin(SendWqe& wqe);
    [[gnu::noinline]] uint32_t emit_middle_packets(SendWqe& wqe, uint32_t budget);
    [[gnu::noinline]] uint32_t emit_burst(uint32_t end, uint32_t budget);
    [[gnu::always_inline]] inline bool emit(SendWqe& wqe, uint32_t packet, Psn psn, bool ack_req);
    void emit_read(const SendWqe& wqe);
    void emit_atomic(const SendWqe& wqe);
    [[gnu::noinline]] bool emit_empty_answered(SendWqe& wqe);
    [[gnu::always_inline]] inline bool needs_ack_req(const SendWqe& wqe, bool last);
    [[gnu::always_inline]] inline void sent(Psn first, uint32_t psns, uint32_t packets = 1);
    void count_again(Counter cause, uint32_t psns, uint32_t packets);
    void execute_local(SendWqe& wqe);
    bool acknowledge(Psn end);
    // Handles an advance of `una`. In a burst, the first call most often does all the work.
    void progress(uint32_t acknowledged) {
        if (r_.window_packets != core_.config.window_packets || (r_.sample_ns != 0 && r_.una > r_.sample_psn))
            [[unlikely]] {
            adapt_window(acknowledged);
        }
        if (r_.alive_ns != core_.now_ns || retry_.ack_deadline != next_ack_deadline() || r_.rewound || p_.failed ||
            r_.una == r_.max_psn || retry_.retries_left != qp_.retry_cnt || retry_.rnr_retries_left != qp_.rnr_retry) {
            note_progress();
        }
    }
    void note_progress();
    [[gnu::noinline]] void adapt_window(uint32_t acknowledged);
    void reduce_window();
    AdaptiveWindow::Round round_of(uint64_t rtt_ns) const { return {rtt_ns, r_.least.get(), r_.rttvar_ns}; }
    // Returns true if an answer that comes now may belong to a packet that was sent at `sent_ns`.
    bool may_answer(uint64_t sent_ns) const {
        const uint64_t least_ns = r_.least.get();
        return least_ns == UINT64_MAX || core_.now_ns - sent_ns >= least_ns / 2;
    }
    void measure(uint64_t rtt_ns) {
        measure_round_trip(r_.srtt_ns, r_.rttvar_ns, std::max<uint64_t>(rtt_ns, 1));
        r_.sampled_ns = core_.now_ns;
    }
    // Returns a number that differs from packet to packet.
    uint64_t random_of(Psn psn) const { return ((uint64_t{qp_.qpn} << 24 | psn.value()) * 0x9E3779B97F4A7C15) >> 24; }
    void go_on();
    void on_progress();
    void on_valid_response();
    void restart_timers();
    void resume_at_una();
    void rewind(Counter cause);
    void rewind_carefully(Counter cause);
    void fail(ibv_wc_status status);
    void fail_if_oldest();
    void probe();
    template <bool (SendWqe::*kind)() const>
    SendWqe* answered_by(Psn psn);
    template <bool (SendWqe::*kind)() const>
    bool is_answered_by(Psn psn) {
        return psn == r_.una && psn < r_.max_psn && any_begun() && (oldest().*kind)();
    }
    void drop_response(Psn psn);
    // The operations that a packet of READ data may have at its place among the requested ones.
    struct Part {
        bool begins, may_begin, ends;  // only First or Only; also these two; Last or Only
        bool is(wire::Op op) const {
            using enum wire::Op;
            const bool first = op == kReadResponseFirst || op == kReadResponseOnly;
            const bool last = op == kReadResponseLast || op == kReadResponseOnly;
            return last == ends && (first ? may_begin : !begins);
        }
    };
    [[gnu::always_inline]] inline Part part_at(const SendWqe& wqe, uint32_t packet, Psn psn) const;
    void take_response(bool last);
    SendWqe& oldest() { return qp_.sq.at(qp_.sq.consumed()); }
    bool rewound_here() const { return r_.rewound && r_.rewound_to == r_.una; }
    bool any_begun() const { return qp_.sq.consumed() != p_.begun_wqe; }

    Core<S>& core_;
    QueuePair& qp_;
    Rc& rc_;
    RcRequester& r_;
    SendPosition& p_;
    RetryTimer& retry_;
    Dcqcn& congestion_;
};

// Acknowledges all packets before `end` and completes the requests that end there. Stops at a READ or atomic without
// its response. Returns true if anything moved.
template <class S, class P>
bool RcRequesterLogic<S, P>::acknowledge(Psn end) {
    const Psn before = r_.una;
    Psn done = before;
    uint32_t index = qp_.sq.consumed();
    const uint32_t first = index;
    while (index != p_.begun_wqe) {
        SendWqe& wqe = qp_.sq.at(index);
        const int32_t acknowledged = end - Psn(wqe.first_psn);
        if (acknowledged > 0 && wqe.awaits_response()) break;
        if (acknowledged < static_cast<int32_t>(wqe.packets)) {
            r_.una = std::max(r_.una, end);
            break;
        }
        done = Psn(wqe.first_psn) + wqe.packets;
        if (wqe.is_signaled()) core_.complete_send(qp_, index, IBV_WC_SUCCESS);
        ++index;
    }
    r_.una = std::max(r_.una, done);
    if (r_.una == before && index == first) return false;
    qp_.sq.consume_to(index);
    const auto acknowledged = static_cast<uint32_t>(r_.una - before);
    core_.counters[Counter::kPsnsAcknowledged] += acknowledged;
    // An answer that comes too soon for the packet that was just sent again belongs to its first transmission.
    const bool undone = r_.undo.valid && r_.una == r_.next_psn && !may_answer(r_.resumed_ns);
    if (r_.una > r_.next_psn || static_cast<int32_t>(index - p_.next_wqe) > 0 || undone) go_on();
    progress(acknowledged);
    return true;
}

template <class S, class P>
void RcRequesterLogic<S, P>::note_progress() {
    retry_.retries_left = qp_.retry_cnt;
    retry_.rnr_retries_left = qp_.rnr_retry;
    r_.rewound = false;
    retry_.progress_ns = core_.silence_ns();
    on_progress();
    restart_timers();
    if (p_.failed) fail_if_oldest();
    core_.check_drained(qp_);
}

// Applies what an acknowledgement tells about the network (BX-12).
template <class S, class P>
void RcRequesterLogic<S, P>::adapt_window(uint32_t acknowledged) {
    const uint32_t marked = std::min(acknowledged, r_.marked);
    r_.marked -= marked;
    r_.cwnd_fixed = r_.window.on_ack(r_.cwnd_fixed, acknowledged - marked, core_.config.window_packets);
    if (r_.sample_ns != 0 && r_.una > r_.sample_psn) {
        const uint64_t rtt_ns = r_.latest_rtt_ns = core_.now_ns - std::exchange(r_.sample_ns, 0);
        if (r_.is_guess) r_.srtt_ns = 0;
        r_.is_guess = r_.srtt_ns == 0 && r_.probed;
        measure(rtt_ns);
        if (!r_.is_guess) r_.least.add(rtt_ns, core_.now_ns);
        r_.probes = 0;
        if (core_.config.adapts_window) {
            r_.cwnd_fixed =
                r_.window.end_round(r_.cwnd_fixed, core_.window_share_fixed(qp_), round_of(rtt_ns), core_.now_ns);
        }
    }
    r_.window_packets = std::min(r_.window_packets + acknowledged, r_.cwnd());
}

// Reduces the window after a loss, if the loss shows congestion.
template <class S, class P>
void RcRequesterLogic<S, P>::reduce_window() {
    // Behind a rewind the whole window is new, so a loss a round trip later is another sign.
    const bool is_same = r_.una < r_.reduced_until && core_.now_ns - r_.reduced_ns < r_.srtt_ns;
    if (is_same || !core_.config.adapts_window) return;
    const uint32_t before = r_.cwnd_fixed;
    const bool is_recent = core_.now_ns - r_.sampled_ns < 2 * r_.srtt_ns;
    r_.cwnd_fixed = r_.window.on_loss(before, round_of(is_recent ? r_.srtt_ns : 0), core_.now_ns);
    if (r_.cwnd_fixed == before) return;
    r_.reduced_until = r_.max_psn;
    r_.reduced_ns = core_.now_ns;
    // The packets in flight, which will be sent again, still fill the queue.
    r_.window_packets = std::min(r_.window_packets, std::max(r_.cwnd() / 4, 1u));
}

template <class S, class P>
void RcRequesterLogic<S, P>::on_progress() {
    r_.alive_ns = core_.now_ns;
}

// Handles any valid answer, even one that acknowledges nothing new.
template <class S, class P>
void RcRequesterLogic<S, P>::on_valid_response() {
    on_progress();
    if (r_.outstanding() && retry_.on_valid_response(core_.retry_policy(qp_), core_.silence_ns()))
        core_.deadlines.schedule(qp_, next_deadline());
}

template <class S, class P>
void RcRequesterLogic<S, P>::restart_timers() {
    r_.alive_ns = core_.now_ns;
    if (!r_.outstanding()) {
        retry_.ack_deadline = r_.probe_deadline = kNever;
        if (retry_.rnr_until == 0 && !rc_.responder.has_answers()) core_.deadlines.remove(qp_);
        return;
    }
    retry_.ack_deadline = next_ack_deadline();
    r_.probe_deadline = core_.now_ns + probe_ns();
    core_.deadlines.schedule(qp_, next_deadline());
}

// Makes the packet at `una` the next one to send.
template <class S, class P>
void RcRequesterLogic<S, P>::resume_at_una() {
    p_.next_wqe = qp_.sq.consumed();
    p_.next_packet = 0;
    r_.next_psn = r_.resumed_at = r_.una;
    r_.reads_outstanding = 0;
    // A begun request is at some packet; one that never began starts at `una` by itself.
    if (any_begun()) p_.next_packet = static_cast<uint32_t>(r_.una - Psn(oldest().first_psn));
}

// Resumes behind `una`, which has passed the next packet to send: more has arrived than was repeated. After a timeout
// the packets in flight were thus not lost, but the peer was slow (F-RTO, RFC 5682), so they are not sent again.
template <class S, class P>
void RcRequesterLogic<S, P>::go_on() {
    if (r_.undo.valid && r_.una <= r_.undo.next_psn) {
        r_.cwnd_fixed = std::max(r_.cwnd_fixed, r_.undo.cwnd_fixed);
        p_.next_wqe = r_.undo.next_wqe;
        p_.next_packet = r_.undo.next_packet;
        r_.next_psn = r_.undo.next_psn;
        p_.failed = false;
    } else {
        resume_at_una();
    }
    r_.undo.valid = false;
    r_.window_packets = r_.cwnd();
}

template <class S, class P>
void RcRequesterLogic<S, P>::rewind(Counter cause) {
    r_.undo.valid = false;
    r_.rewound = true;
    r_.cause = cause;
    r_.rewound_to = r_.una;
    r_.sample_ns = 0;   // Karn: a packet that is sent twice measures nothing
    p_.failed = false;  // found again in its turn
    resume_at_una();
    core_.activate(qp_);
}

// The packets may only be unread, so one is sent first (design note 4).
template <class S, class P>
void RcRequesterLogic<S, P>::rewind_carefully(Counter cause) {
    RcRequester::Undo undo = r_.undo;
    if (!undo.valid) undo = {p_.next_wqe, p_.next_packet, r_.next_psn, r_.reads_outstanding == 0, r_.cwnd_fixed};
    if (cause == Counter::kResentTimeout && core_.config.adapts_window)
        r_.cwnd_fixed = r_.window.on_timeout(r_.cwnd_fixed);
    r_.window_packets = 1;
    rewind(cause);
    r_.undo = undo;
    r_.resumed_ns = core_.now_ns;
}

// Completes the oldest request with `status` and ends the QP.
template <class S, class P>
void RcRequesterLogic<S, P>::fail(ibv_wc_status status) {
    core_.complete_send(qp_, qp_.sq.consumed(), status);
    core_.enter_error(qp_);
}

template <class S, class P>
void RcRequesterLogic<S, P>::fail_if_oldest() {
    if (p_.failed && qp_.sq.consumed() == p_.failed_wqe) fail(p_.failure);
}

template <class S, class P>
void RcRequesterLogic<S, P>::expire() {
    const uint64_t now = core_.now_ns;
    if (retry_.rnr_until != 0 && retry_.rnr_until <= now) {
        retry_.rnr_until = 0;
        // A sequence NAK from here on means that the first packet of this attempt was lost.
        r_.rewound = false;
    }
    if (retry_.ack_deadline <= core_.silence_ns()) {
        ++core_.counters[Counter::kTimeouts];
        core_.sink.suspect(qp_.path);
        if (retry_.retries_left == 0) {
            fail(IBV_WC_RETRY_EXC_ERR);
            return;
        }
        --retry_.retries_left;
        r_.pace_ns = 0;  // each timeout repeats a packet, whatever the pause of a small window
        rewind_carefully(Counter::kResentTimeout);
        restart_timers();
    } else if (r_.probe_deadline <= now) {
        probe();
    }
    core_.deadlines.schedule(qp_, next_deadline());
}

// Design note 3.
template <class S, class P>
void RcRequesterLogic<S, P>::probe() {
    const uint64_t late_ns = core_.now_ns - r_.probe_deadline;
    if (late_ns > core_.config.min_probe_ns / 2) {  // we were away: packets that came meanwhile have yet to be read
        r_.probe_deadline = core_.now_ns + core_.config.min_probe_ns / 2;
        return;
    }
    if (r_.probes < 255) ++r_.probes;
    if (r_.probes >= kSuspectProbes) core_.sink.suspect(qp_.path);
    r_.probe_deadline = core_.now_ns + probe_ns();
    if (r_.next_psn == r_.una || !any_begun()) return;  // about to be sent again
    ++core_.counters[Counter::kTailProbes];
    SendWqe& wqe = oldest();
    // The answer to a READ or atomic is missing: request it again.
    if (wqe.awaits_response() || wqe.packets == 0) {
        rewind(Counter::kResentEarly);
        return;
    }
    if (!core_.ready(qp_.path)) {
        r_.probe_deadline = core_.now_ns + core_.config.min_probe_ns / 16;
        return;
    }
    if (!emit(wqe, static_cast<uint32_t>(r_.una - Psn(wqe.first_psn)), r_.una, true)) {
        rewind(Counter::kResentEarly);  // its memory has vanished: the request fails in its turn
        return;
    }
    r_.probed = true;
    r_.probe_psn = r_.una;
    r_.probed_ns = core_.now_ns;
    if (r_.srtt_ns != 0 && r_.sample_psn == r_.una) r_.sample_ns = 0;
    count_again(Counter::kResentEarly, 1, 1);
}

}  // namespace rove::transport

// The remaining parts of RcRequesterLogic.
#include "transport/requester_receive-inl.h"
#include "transport/requester_transmit-inl.h"
