// SPDX-License-Identifier: Apache-2.0
// Implements the program's calls and their effect on connections.
//
// DESIGN NOTES
// 1. Retransmission. Linux waits 4.3 s for each answer, since a peer's program may be slow and a switched fabric loses
//    nothing. A software network loses packets, and its round trip takes microseconds. The first retransmission
//    therefore comes after 17 ms, and each further wait is twice as long, up to Linux's 4.3 s. That makes eight waits
//    in the first 4.3 s and then eight more of 4.3 s, so a dead peer is detected after 39 s (Linux: 69 s). If only the
//    peer's program is slow, the peer answers the second REQ with an MRA, which is cheap and ends the retransmissions.
//    17 ms is longer than a time slice, so a process that waits to be scheduled on a busy core does not get the REQ
//    twice.
// 2. Duplicates are answered with the MAD that was sent before. A record keeps its last MAD and lingers after the
//    connection has ended or the program has destroyed it, for as long as the peer may repeat its request. The number
//    of such records is limited: the oldest is removed first.
// 3. Stale connections. A REQ from a peer's QP that is already connected is rejected. Linux then ends the old
//    connection, but anyone can send such a REQ with a forged source address. The peer is therefore first asked whether
//    it knows the old connection, by a DREQ whose QPN is 0. A peer that knows the connection drops this DREQ, because
//    its own QPN is not 0. A peer that has restarted answers as it answers any DREQ with unknown ids. Its DREP carries
//    both ids, which were disclosed only to the old peer's host. (Linux's ib_cm does both as well.) The peer's next REQ
//    then finds the old connection ended.
// 4. Forged answers. The transaction id of a REQ is 64 random bits, and answers repeat it. A forger who cannot see the
//    REQ must therefore guess 96 bits. A later DREQ, RTU or REJ is protected by the address and the 64 bits of both
//    communication ids.
#include "cm/cm.h"

#include <algorithm>
#include <cerrno>

#include "cm/impl.h"

namespace rove::cm {

namespace {

constexpr uint32_t kMax24 = 0xFFFFFF;

bool is_valid(const Endpoint& local) {
    return local.qpn <= kMax24 && local.starting_psn <= kMax24 && local.rnr_retry_count <= 7 &&
           local.ece.vendor_id <= kMax24;
}

// Writes addresses and private data to their places in a request. Returns false if the private data does not fit.
template <size_t N>
bool fill(std::array<uint8_t, N>& to, const std::optional<CmaHeader>& addresses,
          std::span<const uint8_t> private_data) {
    if (!copy_private_data(private_data, to, addresses ? CmaHeader::kBytes : 0)) return false;
    if (addresses) build_cma_header(*addresses, to);
    return true;
}

}  // namespace

// ---- Sending.

void Cm::Impl::send(const Path& path, const Mad& mad) {
    ++counters_[Counter::kSent];
    sink_.send(path, mad);
}

void Cm::Impl::send_reliably(uint64_t now_ns, Connection& c, State state, const Mad& mad, uint8_t longest,
                             uint8_t retries) {
    c.state = state;
    c.mad = mad;
    c.longest = longest;
    c.timeout = std::min(config_.first_timeout, longest);
    c.retries = retries;
    c.extensions = 0;
    send(c.path, mad);
    set_deadline(c, now_ns + timeout_ns(c.timeout));
}

Mad Cm::Impl::make_rej(const Connection& c, RejReason reason) const {
    Rej rej{.local_comm_id = c.local_comm_id,
            .remote_comm_id = c.remote_comm_id.value_or(0),
            .answered = Answered::kOther,
            .reason = reason};
    switch (c.state) {
        case State::kReqReceived:
            rej.answered = Answered::kReq;
            if (!c.promised) rej.local_comm_id = 0;  // the peer does not know our id yet
            break;
        case State::kRepReceived:
            rej.answered = Answered::kRep;
            break;
        case State::kReqSent:
            // The peer may have received the REQ, but we do not know its id. It finds the request by our GUID.
            wire::store_be64(rej.ari.data(), c.local_guid);
            rej.ari_bytes = 8;
            break;
        default:
            break;
    }
    return build({c.transaction_id, rej});
}

Mad Cm::Impl::make_drep(const Connection& c, uint64_t transaction_id) const {
    return build({transaction_id, Drep{.local_comm_id = c.local_comm_id, .remote_comm_id = *c.remote_comm_id}});
}

Mad Cm::Impl::make_mra(Connection& c, uint8_t service_timeout, std::span<const uint8_t> private_data) const {
    Mra mra{.local_comm_id = c.local_comm_id,
            .remote_comm_id = *c.remote_comm_id,
            .answered = c.state == State::kReqReceived ? Answered::kReq : Answered::kRep,
            .service_timeout = service_timeout};
    copy_private_data(private_data, mra.private_data);
    c.promised = std::max(c.promised.value_or(0), std::min(service_timeout, kLongestService));
    return build({c.transaction_id, mra});
}

void Cm::Impl::send_dreq(uint64_t now_ns, Connection& c, std::span<const uint8_t> private_data) {
    Dreq dreq{.local_comm_id = c.local_comm_id,
              .remote_comm_id = *c.remote_comm_id,
              .remote_qpn = c.remote_qp ? c.remote_qp->qpn : 0};
    copy_private_data(private_data, dreq.private_data);
    c.transaction_id = random();
    send_reliably(now_ns, c, State::kDreqSent, build({c.transaction_id, dreq}), config_.response_timeout,
                  config_.disconnect_retries);
}

// Asks the peer whether it still knows the connection: note 3.
void Cm::Impl::probe(uint64_t now_ns, Connection& c) {
    if (c.state != State::kEstablished || (c.probed_ns && now_ns - *c.probed_ns < kProbeGapNs)) return;
    c.probed_ns = now_ns;
    ++counters_[Counter::kStaleProbes];
    send(c.path, build({random(), Dreq{.local_comm_id = c.local_comm_id, .remote_comm_id = *c.remote_comm_id}}));
}

// ---- Ends of connections.

void Cm::Impl::close_for_good(Connection& c) {
    c.state = State::kClosed;
    c.mad.reset();
    set_deadline(c, Connection::kNever);
    leave_backlog(c);
    forget_names(c);
}

// Returns how long a peer with our timers, or Linux's, may repeat its messages. A record lingers for this time, so that
// a REQ makes only one request whichever packets are lost.
uint64_t Cm::Impl::linger_ns(const Connection& c) const {
    return (config_.max_retries + 1) * timeout_ns(config_.response_timeout) +
           (c.promised ? timeout_ns(*c.promised) : 0);
}

void Cm::Impl::close(uint64_t now_ns, Connection& c, const std::optional<Mad>& answer) {
    c.state = State::kClosed;
    c.mad = answer;
    leave_backlog(c);
    forget_remote_qp(c);
    c.retries = answer && c.promised ? kUnsolicitedRetransmits : 0;
    c.timeout = config_.first_timeout;
    set_deadline(c, now_ns + (c.retries > 0 ? timeout_ns(c.timeout) : linger_ns(c)));
}

void Cm::Impl::enter_time_wait(uint64_t now_ns, Connection& c, const std::optional<Mad>& answer) {
    c.state = State::kTimeWait;
    c.mad = answer;
    leave_backlog(c);
    forget_remote_qp(c);
    set_deadline(c, now_ns + timeout_ns(config_.time_wait));
}

void Cm::Impl::deliver(const Connection& c, Event event) {
    if (!c.owned) return;
    event.id = c.id;
    event.context = c.context;
    event.path = &c.path;
    sink_.deliver(event);
}

void Cm::Impl::deliver(const Connection& c, EventKind kind, RejReason reason) {
    deliver(c, {.kind = kind, .reason = reason});
}

// ---- Calls.

int Cm::Impl::listen(const Listen& listen, void* context, Id& id) {
    if (!listen.address && !listen.ipv4 && !listen.ipv6) return EINVAL;
    const auto conflicts = [&](const Listener* other) {
        const Listen& theirs = other->listen;
        if (listen.address || theirs.address) return listen.address == theirs.address;
        return (listen.ipv4 && theirs.ipv4) || (listen.ipv6 && theirs.ipv6);
    };
    if (const auto found = services_.find(listen.service_id);
        found != services_.end() && std::any_of(found->second.begin(), found->second.end(), conflicts))
        return EADDRINUSE;
    if (listeners_.size() >= config_.max_listeners) return ENOMEM;
    id = Id{next_id_++};
    Listener& listener = listeners_
                             .emplace(id, Listener{.id = id,
                                                   .context = context,
                                                   .listen = listen,
                                                   .of_source = decltype(Listener::of_source)(0, KeyHash(secret_))})
                             .first->second;
    const uint32_t most = config_.max_backlog;
    listener.listen.backlog = listen.backlog == 0 ? most : std::min(listen.backlog, most);
    auto& service = services_[listen.service_id];
    service.push_back(&listener);
    if (service.size() == 1) ++ports_[static_cast<uint16_t>(listen.service_id)].services;
    for (DeferredRequest& held : held_requests_)
        if (held.service_id == listen.service_id) held.until_ns = 0;
    return 0;
}

int Cm::Impl::connect(uint64_t now_ns, const Connect& connect, void* context, Id& id) {
    const Endpoint& local = connect.local;
    const bool valid = is_valid(local) && connect.path_mtu >= 1 && connect.path_mtu <= 5 && connect.retry_count <= 7 &&
                       connect.local_ack_timeout <= 31 && connect.service != TransportService::kRd;
    Req req;
    if (!valid || !fill(req.private_data, connect.addresses, connect.private_data)) return EINVAL;
    Connection* const c = open(State::kReqSent, connect.path, context);
    if (c == nullptr) return ENOMEM;
    c->service_id = connect.service_id;
    c->local_guid = local.ca_guid;
    c->local_qpn = local.qpn;
    c->xrc = connect.service == TransportService::kExtended;

    const wire::Flow& flow = connect.path.flow;
    req.local_comm_id = c->local_comm_id;
    req.ece = local.ece;
    req.service_id = connect.service_id;
    req.ca_guid = local.ca_guid;
    req.qkey = local.qkey;
    req.qpn = local.qpn;
    req.responder_resources = local.responder_resources;
    req.initiator_depth = local.initiator_depth;
    req.remote_response_timeout = req.local_response_timeout = config_.response_timeout;
    req.service = connect.service;
    if (c->xrc) req.extended_service = kXrc;
    req.flow_control = local.flow_control;
    req.starting_psn = local.starting_psn;
    req.retry_count = connect.retry_count;
    req.pkey = connect.path.pkey;
    req.path_mtu = connect.path_mtu;
    req.rnr_retry_count = local.rnr_retry_count;
    req.max_cm_retries = config_.max_retries;
    req.srq = local.srq;
    req.primary.local_gid = flow.src;
    req.primary.remote_gid = flow.dst;
    req.primary.flow_label = flow.flow_label;
    req.primary.traffic_class = flow.traffic_class;
    req.primary.hop_limit = flow.hop_limit;
    req.primary.local_ack_timeout = connect.local_ack_timeout;
    ++counters_[Counter::kConnectionsRequested];
    id = c->id;
    send_reliably(now_ns, *c, State::kReqSent, build({c->transaction_id, req}), config_.response_timeout,
                  config_.max_retries);
    return 0;
}

int Cm::Impl::accept(uint64_t now_ns, Connection& c, const Accept& accept) {
    const Endpoint& local = accept.local;
    Rep rep;
    if (c.state != State::kReqReceived || !is_valid(local) || accept.target_ack_delay > 31 ||
        !copy_private_data(accept.private_data, rep.private_data))
        return EINVAL;
    leave_waiting(c);
    c.local_guid = local.ca_guid;
    c.local_qpn = local.qpn;

    rep.local_comm_id = c.local_comm_id;
    rep.remote_comm_id = *c.remote_comm_id;
    rep.ece = local.ece;
    rep.qkey = local.qkey;
    (c.xrc ? rep.eecn : rep.qpn) = local.qpn;
    rep.starting_psn = local.starting_psn;
    rep.responder_resources = local.responder_resources;
    rep.initiator_depth = local.initiator_depth;
    rep.target_ack_delay = accept.target_ack_delay;
    rep.flow_control = local.flow_control;
    rep.rnr_retry_count = local.rnr_retry_count;
    rep.srq = local.srq || c.xrc;
    rep.ca_guid = local.ca_guid;
    send_reliably(now_ns, c, State::kRepSent, build({c.transaction_id, rep}), c.longest, c.retries);
    return 0;
}

int Cm::Impl::confirm(uint64_t now_ns, Connection& c, std::span<const uint8_t> private_data) {
    if (c.state != State::kRepReceived) return EINVAL;
    Rtu rtu{.local_comm_id = c.local_comm_id, .remote_comm_id = *c.remote_comm_id};
    if (!copy_private_data(private_data, rtu.private_data)) return EINVAL;
    c.state = State::kEstablished;
    c.mad = build({c.transaction_id, rtu});
    ++counters_[Counter::kEstablished];
    send(c.path, *c.mad);
    c.retries = c.promised ? kUnsolicitedRetransmits : 0;
    c.timeout = config_.first_timeout;
    if (c.retries > 0) set_deadline(c, now_ns + timeout_ns(c.timeout));
    return 0;
}

int Cm::Impl::reject(uint64_t now_ns, Connection& c, const Reject& reject) {
    if (c.state != State::kReqReceived && c.state != State::kRepSent && c.state != State::kRepReceived) return EINVAL;
    if (reject.ari.size() > Rej::kAriBytes || reject.private_data.size() > Rej::kPrivateBytes) return EINVAL;
    Message message;
    parse(make_rej(c, reject.reason), message);
    Rej& rej = std::get<Rej>(message.body);
    copy_private_data(reject.ari, rej.ari);
    rej.ari_bytes = static_cast<uint8_t>(reject.ari.size());
    copy_private_data(reject.private_data, rej.private_data);
    const Mad mad = build(message);
    ++counters_[Counter::kRejectedByUs];
    send(c.path, mad);
    close(now_ns, c, mad);
    return 0;
}

int Cm::Impl::delay(Connection& c, uint8_t service_timeout, std::span<const uint8_t> private_data) {
    if (c.state != State::kReqReceived && c.state != State::kRepReceived) return EINVAL;
    if (service_timeout > 31 || private_data.size() > Mra::kPrivateBytes) return EINVAL;
    send(c.path, make_mra(c, service_timeout == 0 ? config_.service_timeout : service_timeout, private_data));
    return 0;
}

int Cm::Impl::establish(Connection& c) {
    if (c.state == State::kEstablished) return 0;
    if (c.state != State::kRepSent) return EINVAL;
    c.state = State::kEstablished;
    c.mad.reset();
    leave_backlog(c);
    set_deadline(c, Connection::kNever);
    ++counters_[Counter::kEstablished];
    deliver(c, EventKind::kEstablished);
    return 0;
}

int Cm::Impl::disconnect(uint64_t now_ns, Connection& c, std::span<const uint8_t> private_data) {
    if (private_data.size() > Dreq::kPrivateBytes) return EINVAL;
    switch (c.state) {
        case State::kEstablished:
            send_dreq(now_ns, c, private_data);
            return 0;
        case State::kDreqSent:
        case State::kTimeWait:
        case State::kClosed:
            return c.sidr ? EINVAL : 0;
        default:
            return EINVAL;
    }
}

int Cm::Impl::sidr_request(uint64_t now_ns, const SidrRequest& request, void* context, Id& id) {
    SidrReq req;
    if (!fill(req.private_data, request.addresses, request.private_data)) return EINVAL;
    Connection* const c = open(State::kSidrReqSent, request.path, context);
    if (c == nullptr) return ENOMEM;
    c->sidr = true;
    c->service_id = request.service_id;
    req.request_id = c->local_comm_id;
    req.pkey = request.path.pkey;
    req.service_id = request.service_id;
    id = c->id;
    send_reliably(now_ns, *c, State::kSidrReqSent, build({c->transaction_id, req}), config_.response_timeout,
                  config_.max_retries);
    return 0;
}

int Cm::Impl::sidr_reply(uint64_t now_ns, Connection& c, const SidrReply& reply) {
    SidrRep rep;
    if (c.state != State::kSidrReqReceived || reply.qpn > kMax24 || reply.ece.vendor_id > kMax24 ||
        !copy_private_data(reply.private_data, rep.private_data))
        return EINVAL;
    rep.request_id = *c.remote_comm_id;
    rep.status = reply.status;
    rep.ece = reply.ece;
    rep.qpn = reply.qpn;
    rep.service_id = c.service_id;
    rep.qkey = reply.qkey;
    const Mad mad = build({c.transaction_id, rep});
    send(c.path, mad);
    close(now_ns, c, mad);
    return 0;
}

int Cm::Impl::destroy(uint64_t now_ns, Id id) {
    if (Listener* const listener = find_listener(id)) {
        const auto service = services_.find(listener->listen.service_id);
        std::erase(service->second, listener);
        if (service->second.empty()) {
            Port& port = ports_[static_cast<uint16_t>(service->first)];
            --port.services;
            port.closed_ns = now_ns;
            services_.erase(service);
        }
        listeners_.erase(id);
        return 0;
    }
    Connection* const c = find(id);
    if (c == nullptr) return EINVAL;
    switch (c->state) {
        case State::kReqReceived:
        case State::kRepSent:
        case State::kRepReceived:
            reject(now_ns, *c, {});
            break;
        case State::kEstablished:
            send_dreq(now_ns, *c, {});
            break;
        case State::kSidrReqReceived:
            sidr_reply(now_ns, *c, {.status = SidrStatus::kReject});
            break;
        case State::kReqSent:
            send(c->path, make_rej(*c, RejReason::kTimeout));
            [[fallthrough]];
        case State::kSidrReqSent:
            close_for_good(*c);
            break;
        default:
            break;
    }
    const bool done = c->deadline_ns == Connection::kNever;
    if (done) {
        erase(*c);
    } else {
        detach(*c);
    }
    return 0;
}

// ---- The interface.

const char* to_string(State state) {
    switch (state) {
        case State::kListen:
            return "LISTEN";
        case State::kReqSent:
            return "REQ_SENT";
        case State::kReqReceived:
            return "REQ_RECEIVED";
        case State::kRepSent:
            return "REP_SENT";
        case State::kRepReceived:
            return "REP_RECEIVED";
        case State::kEstablished:
            return "ESTABLISHED";
        case State::kDreqSent:
            return "DREQ_SENT";
        case State::kTimeWait:
            return "TIMEWAIT";
        case State::kClosed:
            return "CLOSED";
        case State::kSidrReqSent:
            return "SIDR_REQ_SENT";
        case State::kSidrReqReceived:
            return "SIDR_REQ_RECEIVED";
    }
    return "unknown";
}

const char* to_string(EventKind kind) {
    switch (kind) {
        case EventKind::kConnectRequest:
            return "connect request";
        case EventKind::kConnectResponse:
            return "connect response";
        case EventKind::kEstablished:
            return "established";
        case EventKind::kRejected:
            return "rejected";
        case EventKind::kUnreachable:
            return "unreachable";
        case EventKind::kDisconnected:
            return "disconnected";
        case EventKind::kTimeWaitExit:
            return "timewait exit";
        case EventKind::kSidrRequest:
            return "SIDR request";
        case EventKind::kSidrResponse:
            return "SIDR response";
    }
    return "unknown";
}

Cm::Cm(const Config& config, const Secret& secret, Sink& sink) : impl_(std::make_unique<Impl>(config, secret, sink)) {}
Cm::~Cm() = default;

int Cm::listen(const Listen& listen, void* context, Id& id) {
    return impl_->listen(listen, context, id);
}
int Cm::connect(uint64_t now_ns, const Connect& connect, void* context, Id& id) {
    return impl_->connect(now_ns, connect, context, id);
}
int Cm::taken(Id id) {
    Connection* const c = impl_->find(id);
    if (c == nullptr) return EINVAL;
    impl_->leave_waiting(*c);
    return 0;
}
int Cm::accept(uint64_t now_ns, Id id, const Accept& accept) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->accept(now_ns, *c, accept) : EINVAL;
}
int Cm::confirm(uint64_t now_ns, Id id, std::span<const uint8_t> private_data) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->confirm(now_ns, *c, private_data) : EINVAL;
}
int Cm::reject(uint64_t now_ns, Id id, const Reject& reject) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->reject(now_ns, *c, reject) : EINVAL;
}
int Cm::delay(uint64_t, Id id, uint8_t service_timeout, std::span<const uint8_t> private_data) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->delay(*c, service_timeout, private_data) : EINVAL;
}
int Cm::establish(uint64_t, Id id) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->establish(*c) : EINVAL;
}
int Cm::disconnect(uint64_t now_ns, Id id, std::span<const uint8_t> private_data) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->disconnect(now_ns, *c, private_data) : EINVAL;
}
int Cm::sidr_request(uint64_t now_ns, const SidrRequest& request, void* context, Id& id) {
    return impl_->sidr_request(now_ns, request, context, id);
}
int Cm::sidr_reply(uint64_t now_ns, Id id, const SidrReply& reply) {
    Connection* const c = impl_->find(id);
    return c != nullptr ? impl_->sidr_reply(now_ns, *c, reply) : EINVAL;
}
int Cm::destroy(uint64_t now_ns, Id id) {
    return impl_->destroy(now_ns, id);
}

int Cm::set_context(Id id, void* context) {
    if (Listener* const listener = impl_->find_listener(id)) {
        listener->context = context;
    } else if (Connection* const c = impl_->find(id)) {
        c->context = context;
    } else {
        return EINVAL;
    }
    return 0;
}

std::optional<State> Cm::state(Id id) const {
    if (impl_->find_listener(id) != nullptr) return State::kListen;
    const Connection* const c = impl_->find(id);
    return c != nullptr ? std::optional(c->state) : std::nullopt;
}

void Cm::receive(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad) {
    impl_->receive(now_ns, from, max_mtu, mad);
}
void Cm::expire(uint64_t now_ns) {
    impl_->expire(now_ns);
}
uint64_t Cm::next_deadline() const {
    return impl_->next_deadline();
}
uint32_t Cm::random_psn() {
    return static_cast<uint32_t>(impl_->random()) & kMax24;
}
const Counters& Cm::counters() const {
    return impl_->counters();
}
Cm::Usage Cm::usage() const {
    return impl_->usage();
}

}  // namespace rove::cm
