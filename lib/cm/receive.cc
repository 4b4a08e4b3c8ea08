// SPDX-License-Identifier: Apache-2.0
// Handles received MADs. They may be forged, so a sender is identified by its address and by numbers that were
// disclosed only to the peer. A MAD that does not match is counted and has no other effect. See notes 3 and 4 of cm.cc.
#include <algorithm>

#include "cm/impl.h"

namespace rove::cm {

namespace {

Counter drop_reason(ParseError error) {
    switch (error) {
        case ParseError::kLength:
            return Counter::kDropLength;
        case ParseError::kVersion:
            return Counter::kDropVersion;
        case ParseError::kClass:
            return Counter::kDropClass;
        case ParseError::kMethod:
            return Counter::kDropMethod;
        default:
            return Counter::kDropAttribute;
    }
}

// Returns true if the program's addresses equal the packet's. They may differ only within a host, for example with
// 127.0.0.1.
bool agrees(const CmaHeader& addresses, const wire::Flow& back) {
    return back.src == back.dst || (addresses.src == back.dst && addresses.dst == back.src);
}

bool is_same_way(const Path& a, const Path& b) {
    return a.flow.src == b.flow.src && a.flow.dst == b.flow.dst;
}

}  // namespace

void Cm::Impl::receive(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad) {
    ++counters_[Counter::kReceived];
    take(now_ns, from, max_mtu, mad, true);
}

void Cm::Impl::take(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad, bool may_defer) {
    Message message;
    if (const ParseError error = parse(mad, message); error != ParseError::kNone) return drop(drop_reason(error));
    const Received in{now_ns, from, max_mtu, mad, may_defer, message.transaction_id};
    std::visit([&](const auto& body) { on(in, body); }, message.body);
}

bool Cm::Impl::is_peer(const Received& in, const Connection& c) const {
    return in.from.flow.dst == c.path.flow.dst && in.from.flow.src == c.path.flow.src;
}

Connection* Cm::Impl::match(const Received& in, uint32_t local_comm_id, uint32_t remote_comm_id) {
    Connection* const c = find_by_comm_id(local_comm_id);
    if (c == nullptr || c->sidr || c->remote_comm_id != remote_comm_id) {
        drop(Counter::kDropUnknownId);
        return nullptr;
    }
    if (!is_peer(in, *c)) {
        drop(Counter::kDropSource);
        return nullptr;
    }
    return c;
}

// ---- Requests.

void Cm::Impl::reject_request(const Received& in, const Req& req, RejReason reason) {
    ++counters_[Counter::kRejectedByUs];
    answer(in, Rej{.remote_comm_id = req.local_comm_id, .answered = Answered::kReq, .reason = reason});
}

void Cm::Impl::on_duplicate(const Received& in, Connection& c, const Req& req) {
    ++counters_[Counter::kDuplicates];
    switch (c.state) {
        case State::kReqReceived:
            send(c.path, make_mra(c, config_.service_timeout, {}));
            if (c.listener != Id::kNone) set_deadline(c, in.now_ns + linger_ns(c));
            return;
        case State::kRepSent:
            return send(c.path, *c.mad);
        case State::kTimeWait:
            return reject_request(in, req, RejReason::kStaleConnection);
        case State::kClosed:
            if (c.mad) send(c.path, *c.mad);
            return;
        default:
            return;  // an old duplicate: the peer already has the REP
    }
}

RejReason Cm::Impl::check(const Received& in, const Req& req, const Listener& listener,
                          const std::optional<CmaHeader>& addresses) const {
    const wire::Flow& back = in.from.flow;
    const bool is_xrc = req.service == TransportService::kExtended && req.extended_service == kXrc;
    if (req.service != TransportService::kRc && req.service != TransportService::kUc && !is_xrc)
        return RejReason::kInvalidTransportType;
    if (req.primary.remote_gid != back.src || req.primary.local_gid != back.dst) return RejReason::kInvalidGid;
    // IBTA 12.6.7.2: reason 26 rejects a path MTU that the recipient does not support. Linux accepts such a request,
    // and its program fails when it moves the QP to RTR.
    if (req.path_mtu < 1 || req.path_mtu > in.max_mtu) return RejReason::kInvalidMtu;
    if (!listener.listen.cma_header) return RejReason::kNone;
    if (!addresses) return RejReason::kConsumerDefined;  // Linux does the same
    return agrees(*addresses, back) ? RejReason::kNone : RejReason::kInvalidGid;
}

bool Cm::Impl::hold(const Received& in, uint64_t service_id) {
    if (!in.may_defer || services_.contains(service_id)) return false;
    const auto port = ports_.find(static_cast<uint16_t>(service_id));
    if (port == ports_.end()) return false;
    if (port->second.services == 0 && in.now_ns - port->second.closed_ns >= kReopensWithinNs) {
        ports_.erase(port);
        return false;
    }
    const auto is_same = [&](const DeferredRequest& held) {
        return is_same_way(held.from, in.from) && std::equal(in.mad.begin(), in.mad.end(), held.mad.begin());
    };
    if (std::any_of(held_requests_.begin(), held_requests_.end(), is_same)) {
        ++counters_[Counter::kDuplicates];
        return true;
    }
    if (held_requests_.size() == kMaxHeldRequests) return false;
    DeferredRequest& held =
        held_requests_.emplace_back(DeferredRequest{in.from, in.max_mtu, {}, service_id, in.now_ns + kReopensWithinNs});
    std::copy(in.mad.begin(), in.mad.end(), held.mad.begin());
    return true;
}

void Cm::Impl::on(const Received& in, const Req& req) {
    const wire::Gid& source = in.from.flow.dst;
    const RemoteName name{source, req.ca_guid, req.local_comm_id, false};
    if (const auto found = by_remote_name_.find(name); found != by_remote_name_.end())
        return on_duplicate(in, *found->second, req);
    Listener* const listener = listener_for(req.service_id, in.from.flow.src);
    if (listener == nullptr && hold(in, req.service_id)) return;
    if (listener == nullptr) return reject_request(in, req, RejReason::kInvalidServiceId);
    std::optional<CmaHeader> addresses;
    if (listener->listen.cma_header) addresses = parse_cma_header(req.private_data);
    if (const RejReason reason = check(in, req, *listener, addresses); reason != RejReason::kNone)
        return reject_request(in, req, reason);
    const RemoteQp qp{source, req.qpn};
    if (const auto found = by_remote_qp_.find(qp); found != by_remote_qp_.end()) {
        probe(in.now_ns, *found->second);
        return reject_request(in, req, RejReason::kStaleConnection);
    }
    if (!has_room(*listener, source)) return drop(Counter::kDropBacklog);  // the peer repeats its REQ
    Connection* const c = open(State::kReqReceived, in.from, nullptr);
    if (c == nullptr) return drop(Counter::kDropTable);
    enter_backlog(*listener, *c);
    c->transaction_id = in.transaction_id;
    c->service_id = req.service_id;
    c->xrc = req.service == TransportService::kExtended;
    c->remote_comm_id = req.local_comm_id;
    c->remote_name = name;
    by_remote_name_.emplace(name, c);
    c->remote_qp = qp;
    by_remote_qp_.emplace(qp, c);
    // The waits and retries of the REP follow the peer's request, within our own limits.
    c->longest = std::min(std::max(req.local_response_timeout, config_.first_timeout), config_.response_timeout);
    c->retries = std::min(req.max_cm_retries, config_.max_retries);
    set_deadline(*c, in.now_ns + linger_ns(*c));
    ++counters_[Counter::kConnectionsReceived];
    deliver(*c, {.kind = EventKind::kConnectRequest,
                 .listener = listener->id,
                 .listener_context = listener->context,
                 .req = &req,
                 .addresses = addresses ? &*addresses : nullptr,
                 .private_data = std::span(req.private_data).subspan(addresses ? CmaHeader::kBytes : 0)});
}

void Cm::Impl::on(const Received& in, const SidrReq& req) {
    const wire::Gid& source = in.from.flow.dst;
    const RemoteName name{source, 0, req.request_id, true};
    if (const auto found = by_remote_name_.find(name); found != by_remote_name_.end()) {
        ++counters_[Counter::kDuplicates];
        const Connection& c = *found->second;
        if (c.mad) send(c.path, *c.mad);
        return;
    }
    Listener* const listener = listener_for(req.service_id, in.from.flow.src);
    if (listener == nullptr && hold(in, req.service_id)) return;
    std::optional<CmaHeader> addresses;
    if (listener != nullptr && listener->listen.cma_header) addresses = parse_cma_header(req.private_data);
    const bool valid =
        listener != nullptr && (!listener->listen.cma_header || (addresses && agrees(*addresses, in.from.flow)));
    if (!valid)
        return answer(in, SidrRep{.request_id = req.request_id,
                                  .status = listener == nullptr ? SidrStatus::kUnsupported : SidrStatus::kReject,
                                  .service_id = req.service_id});
    if (!has_room(*listener, source)) return drop(Counter::kDropBacklog);
    Connection* const c = open(State::kSidrReqReceived, in.from, nullptr);
    if (c == nullptr) return drop(Counter::kDropTable);
    enter_backlog(*listener, *c);
    c->sidr = true;
    c->transaction_id = in.transaction_id;
    c->service_id = req.service_id;
    c->remote_comm_id = req.request_id;
    c->remote_name = name;
    by_remote_name_.emplace(name, c);
    set_deadline(*c, in.now_ns + linger_ns(*c));
    deliver(*c, {.kind = EventKind::kSidrRequest,
                 .listener = listener->id,
                 .listener_context = listener->context,
                 .sidr_req = &req,
                 .addresses = addresses ? &*addresses : nullptr,
                 .private_data = std::span(req.private_data).subspan(addresses ? CmaHeader::kBytes : 0)});
}

// ---- Answers.

void Cm::Impl::on(const Received& in, const Rep& rep) {
    Connection* const c = find_by_comm_id(rep.remote_comm_id);
    const bool is_known =
        c != nullptr && !c->sidr && is_peer(in, *c) &&
        (c->state == State::kReqSent ? in.transaction_id == c->transaction_id : c->remote_comm_id == rep.local_comm_id);
    if (!is_known) {
        // The request was abandoned, or this host has restarted, so the peer need not repeat the REP. An existing id
        // gets the same answer as an unknown one, so that a sender cannot find out which ids exist.
        drop(Counter::kDropUnknownId);
        return answer(in, Rej{.local_comm_id = rep.remote_comm_id,
                              .remote_comm_id = rep.local_comm_id,
                              .answered = Answered::kRep,
                              .reason = RejReason::kInvalidCommId});
    }
    if (c->state != State::kReqSent) {
        ++counters_[Counter::kDuplicates];
        if (c->state == State::kRepReceived) return send(c->path, make_mra(*c, config_.service_timeout, {}));
        if ((c->state == State::kEstablished || c->state == State::kClosed) && c->mad) send(c->path, *c->mad);
        return;
    }
    c->remote_comm_id = rep.local_comm_id;
    Rep answer = rep;
    if (c->xrc) answer.qpn = rep.eecn;
    const RemoteQp qp{in.from.flow.dst, answer.qpn};
    if (const auto found = by_remote_qp_.find(qp); found != by_remote_qp_.end()) {
        probe(in.now_ns, *found->second);
        c->state = State::kRepReceived;
        reject(in.now_ns, *c, {.reason = RejReason::kStaleConnection});
        return deliver(*c, EventKind::kRejected, RejReason::kStaleConnection);
    }
    c->remote_qp = qp;
    by_remote_qp_.emplace(qp, c);
    c->state = State::kRepReceived;
    c->mad.reset();
    set_deadline(*c, Connection::kNever);
    deliver(*c, {.kind = EventKind::kConnectResponse, .rep = &answer, .private_data = rep.private_data});
}

void Cm::Impl::on(const Received& in, const Rtu& rtu) {
    Connection* const c = match(in, rtu.remote_comm_id, rtu.local_comm_id);
    if (c == nullptr) return;
    if (c->state == State::kRepSent) {
        c->state = State::kEstablished;
        c->mad.reset();
        leave_backlog(*c);
        set_deadline(*c, Connection::kNever);
        ++counters_[Counter::kEstablished];
        return deliver(*c, {.kind = EventKind::kEstablished, .private_data = rtu.private_data});
    }
    ++counters_[Counter::kDuplicates];
    // The peer believes that the connection is established, but we have given up.
    if (c->state == State::kClosed && c->mad) send(c->path, *c->mad);
}

void Cm::Impl::on(const Received& in, const Rej& rej) {
    Connection* c = nullptr;
    if (rej.remote_comm_id == 0 && rej.reason == RejReason::kTimeout && rej.ari_bytes >= sizeof(uint64_t)) {
        // The peer has abandoned a REQ and never received our id.
        const auto found =
            by_remote_name_.find({in.from.flow.dst, wire::load_be64(rej.ari.data()), rej.local_comm_id, false});
        if (found != by_remote_name_.end() && is_peer(in, *found->second)) c = found->second;
        if (c == nullptr) return drop(Counter::kDropUnknownId);
    } else if (c = find_by_comm_id(rej.remote_comm_id); c != nullptr && c->state == State::kReqSent) {
        if (!is_peer(in, *c)) return drop(Counter::kDropSource);
        if (in.transaction_id != c->transaction_id) return drop(Counter::kDropUnknownId);
    } else if (c = match(in, rej.remote_comm_id, rej.local_comm_id); c == nullptr) {
        return;
    }
    Event event{.kind = EventKind::kRejected, .reason = rej.reason, .rej = &rej, .private_data = rej.private_data};
    switch (c->state) {
        case State::kReqSent:
            close_for_good(*c);
            break;
        case State::kReqReceived:
        case State::kRepSent:
        case State::kRepReceived:
            close(in.now_ns, *c, {});
            break;  // keeps the record for late duplicates
        case State::kEstablished:
        case State::kDreqSent:
            event.kind = EventKind::kDisconnected;
            enter_time_wait(in.now_ns, *c, {});
            break;
        default:
            return drop(Counter::kDropState);
    }
    ++counters_[Counter::kRejectedByPeer];
    deliver(*c, event);
}

void Cm::Impl::on(const Received& in, const Mra& mra) {
    Connection* const c = find_by_comm_id(mra.remote_comm_id);
    if (c == nullptr) return drop(Counter::kDropUnknownId);
    if (!is_peer(in, *c)) return drop(Counter::kDropSource);
    if (c->state == State::kReqSent ? in.transaction_id != c->transaction_id : c->remote_comm_id != mra.local_comm_id)
        return drop(Counter::kDropUnknownId);
    const bool waits = (c->state == State::kReqSent && mra.answered == Answered::kReq) ||
                       (c->state == State::kRepSent && mra.answered == Answered::kRep);
    if (!waits || c->extensions == kMaxExtensions) return drop(Counter::kDropState);
    ++c->extensions;
    c->timeout = c->longest;
    set_deadline(*c, in.now_ns + timeout_ns(std::min(mra.service_timeout, kLongestService)) + timeout_ns(c->longest));
}

void Cm::Impl::on(const Received& in, const Dreq& dreq) {
    Connection* const c = find_by_comm_id(dreq.remote_comm_id);
    // The peer should not wait for a connection that no longer exists. Here too an existing id gets the same answer as
    // an unknown one.
    if (c == nullptr || c->sidr || c->remote_comm_id != dreq.local_comm_id) {
        drop(Counter::kDropUnknownId);
        return answer(in, Drep{.local_comm_id = dreq.remote_comm_id, .remote_comm_id = dreq.local_comm_id});
    }
    if (!is_peer(in, *c)) return drop(Counter::kDropSource);
    if (dreq.remote_qpn != c->local_qpn) return drop(Counter::kDropQpn);  // also drops a probe: note 3 of cm.cc
    switch (c->state) {
        case State::kRepSent:
        case State::kRepReceived:
        case State::kEstablished:
        case State::kDreqSent:
            break;
        case State::kTimeWait:
            ++counters_[Counter::kDuplicates];
            return send(c->path, make_drep(*c, in.transaction_id));
        case State::kClosed:
            return send(c->path, make_drep(*c, in.transaction_id));
        default:
            return drop(Counter::kDropState);
    }
    send(c->path, make_drep(*c, in.transaction_id));
    enter_time_wait(in.now_ns, *c, {});
    deliver(*c, {.kind = EventKind::kDisconnected, .private_data = dreq.private_data});
}

void Cm::Impl::on(const Received& in, const Drep& drep) {
    Connection* const c = match(in, drep.remote_comm_id, drep.local_comm_id);
    if (c == nullptr) return;
    // The peer does not know the connection: note 3 of cm.cc.
    const bool lost = c->state == State::kEstablished && c->probed_ns;
    if (c->state != State::kDreqSent && !lost) return drop(Counter::kDropState);
    enter_time_wait(in.now_ns, *c, {});
    deliver(*c, {.kind = EventKind::kDisconnected,
                 .reason = lost ? RejReason::kStaleConnection : RejReason::kNone,
                 .private_data = drep.private_data});
}

void Cm::Impl::on(const Received& in, const SidrRep& rep) {
    Connection* const c = find_by_comm_id(rep.request_id);
    if (c == nullptr || c->state != State::kSidrReqSent || in.transaction_id != c->transaction_id)
        return drop(Counter::kDropUnknownId);
    if (!is_peer(in, *c)) return drop(Counter::kDropSource);
    close_for_good(*c);
    deliver(*c, {.kind = EventKind::kSidrResponse, .sidr_rep = &rep, .private_data = rep.private_data});
}

// ---- Refused requests.

// Refuses alternate paths: status 2 says that they are not supported.
void Cm::Impl::on(const Received& in, const Lap& lap) {
    const Connection* const c = match(in, lap.remote_comm_id, lap.local_comm_id);
    if (c == nullptr) return;
    send(c->path, build({in.transaction_id,
                         Apr{.local_comm_id = c->local_comm_id, .remote_comm_id = *c->remote_comm_id, .status = 2}}));
}

void Cm::Impl::on(const Received&, const Apr&) {
    drop(Counter::kDropAttribute);
}

void Cm::Impl::on(const Received& in, const ClassPortInfo& info) {
    if (info.response) return drop(Counter::kDropAttribute);
    answer(in, ClassPortInfo{.response = true});
}

}  // namespace rove::cm
