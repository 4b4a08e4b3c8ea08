// SPDX-License-Identifier: Apache-2.0
// The tables that find connections, the timers, and the limits on both.
#include <algorithm>

#include "cm/impl.h"

namespace rove::cm {

Cm::Impl::Impl(const Config& config, const Secret& secret, Sink& sink)
    : config_(config),
      secret_(secret),
      sink_(sink),
      by_remote_name_(0, KeyHash(secret_)),
      by_remote_qp_(0, KeyHash(secret_)) {}

Connection* Cm::Impl::find(Id id) {
    const auto found = connections_.find(static_cast<uint64_t>(id));
    return found != connections_.end() && found->second.owned ? &found->second : nullptr;
}

Listener* Cm::Impl::find_listener(Id id) {
    const auto found = listeners_.find(id);
    return found != listeners_.end() ? &found->second : nullptr;
}

Connection* Cm::Impl::find_by_comm_id(uint32_t local_comm_id) {
    const auto found = by_comm_id_.find(local_comm_id);
    return found != by_comm_id_.end() ? found->second : nullptr;
}

Connection* Cm::Impl::open(State state, const Path& path, void* context) {
    if (usage().connections >= config_.max_connections) return nullptr;
    const Id id{next_id_++};
    Connection& c = connections_[static_cast<uint64_t>(id)];
    c.id = id;
    c.context = context;
    c.state = state;
    c.path = path;
    do c.local_comm_id = static_cast<uint32_t>(random());
    while (c.local_comm_id == 0 || by_comm_id_.contains(c.local_comm_id));
    by_comm_id_.emplace(c.local_comm_id, &c);
    c.transaction_id = random();
    return &c;
}

void Cm::Impl::forget_remote_qp(Connection& c) {
    if (c.remote_qp) by_remote_qp_.erase(*c.remote_qp);
    c.remote_qp.reset();
}

void Cm::Impl::forget_names(Connection& c) {
    if (c.local_comm_id != 0) by_comm_id_.erase(c.local_comm_id);
    c.local_comm_id = 0;
    if (c.remote_name) by_remote_name_.erase(*c.remote_name);
    c.remote_name.reset();
    forget_remote_qp(c);
}

void Cm::Impl::erase(Connection& c) {
    forget_names(c);
    set_deadline(c, Connection::kNever);
    leave_backlog(c);
    if (!c.owned) lingering_.erase(c.lingering);
    connections_.erase(static_cast<uint64_t>(c.id));
}

void Cm::Impl::detach(Connection& c) {
    c.owned = false;
    c.context = nullptr;
    c.lingering = lingering_.insert(lingering_.end(), c.id);
    if (lingering_.size() <= config_.max_lingering) return;
    ++counters_[Counter::kTimeWaitCut];
    erase(connections_.at(static_cast<uint64_t>(lingering_.front())));
}

Listener* Cm::Impl::listener_for(uint64_t service_id, const wire::Gid& local) {
    const auto found = services_.find(service_id);
    if (found == services_.end()) return nullptr;
    const bool ipv4 = wire::is_ipv4_mapped(local);
    Listener* any = nullptr;
    for (Listener* const listener : found->second) {
        const Listen& listen = listener->listen;
        if (listen.address && *listen.address == local) return listener;
        if (!listen.address && (ipv4 ? listen.ipv4 : listen.ipv6)) any = listener;
    }
    return any;
}

// Returns true if the listener has room for a request from `source`. One source may use three quarters of each limit,
// so that a source with a genuine address cannot lock out all others.
bool Cm::Impl::has_room(const Listener& listener, const wire::Gid& source) const {
    const auto found = listener.of_source.find(source);
    const Listener::Counts& all = listener.counts;
    const Listener::Counts of_source = found != listener.of_source.end() ? found->second : Listener::Counts{};
    const auto fits = [](uint32_t taken, uint32_t of_source, uint32_t most) {
        return taken < most && of_source < most - most / 4;
    };
    return fits(all.waiting, of_source.waiting, listener.listen.backlog) &&
           fits(all.half_open, of_source.half_open, config_.max_half_open);
}

void Cm::Impl::enter_backlog(Listener& listener, Connection& c) {
    c.listener = listener.id;
    c.waiting = true;
    for (Listener::Counts* const counts : {&listener.counts, &listener.of_source[c.path.flow.dst]}) {
        ++counts->waiting;
        ++counts->half_open;
    }
}

void Cm::Impl::leave_waiting(Connection& c) {
    Listener* const listener = find_listener(c.listener);
    if (!std::exchange(c.waiting, false) || listener == nullptr) return;
    --listener->counts.waiting;
    --listener->of_source.at(c.path.flow.dst).waiting;
}

void Cm::Impl::leave_backlog(Connection& c) {
    leave_waiting(c);
    Listener* const listener = find_listener(std::exchange(c.listener, Id::kNone));
    if (listener == nullptr) return;
    --listener->counts.half_open;
    const auto of_source = listener->of_source.find(c.path.flow.dst);
    if (--of_source->second.half_open == 0) listener->of_source.erase(of_source);
}

void Cm::Impl::set_deadline(Connection& c, uint64_t deadline_ns) {
    if (c.deadline_ns != Connection::kNever) timers_.erase({c.deadline_ns, c.id});
    c.deadline_ns = deadline_ns;
    if (deadline_ns != Connection::kNever) timers_.emplace(deadline_ns, c.id);
}

uint64_t Cm::Impl::next_deadline() const {
    uint64_t deadline_ns = timers_.empty() ? Connection::kNever : timers_.begin()->first;
    for (const DeferredRequest& held : held_requests_) deadline_ns = std::min(deadline_ns, held.until_ns);
    return deadline_ns;
}

void Cm::Impl::expire(uint64_t now_ns) {
    end_held_requests(now_ns);
    while (!timers_.empty() && timers_.begin()->first <= now_ns)
        on_deadline(now_ns, connections_.at(static_cast<uint64_t>(timers_.begin()->second)));
}

// Processes held requests once more, because their listener is open now or because they have waited long enough.
void Cm::Impl::end_held_requests(uint64_t now_ns) {
    const auto due = std::stable_partition(held_requests_.begin(), held_requests_.end(),
                                           [&](const DeferredRequest& held) { return held.until_ns > now_ns; });
    const std::vector<DeferredRequest> ended(due, held_requests_.end());
    held_requests_.erase(due, held_requests_.end());
    for (const DeferredRequest& held : ended) take(now_ns, held.from, held.max_mtu, held.mad, false);
}

void Cm::Impl::on_deadline(uint64_t now_ns, Connection& c) {
    set_deadline(c, Connection::kNever);
    switch (c.state) {
        case State::kReqSent:
        case State::kRepSent:
        case State::kDreqSent:
        case State::kSidrReqSent:
            if (c.retries == 0) return give_up(now_ns, c);
            --c.retries;
            c.timeout = std::min<uint8_t>(c.timeout + 1, c.longest);
            ++counters_[Counter::kRetransmitted];
            send(c.path, *c.mad);
            return set_deadline(c, now_ns + timeout_ns(c.timeout));
        case State::kEstablished:
            return repeat_unasked(now_ns, c);
        case State::kClosed:
            if (c.retries > 0) {
                repeat_unasked(now_ns, c);
                if (c.retries == 0) set_deadline(c, now_ns + linger_ns(c));
                return;
            }
            [[fallthrough]];
        case State::kTimeWait: {
            const bool was_connected = c.state == State::kTimeWait;
            close_for_good(c);
            if (!c.owned) return erase(c);
            if (was_connected) deliver(c, EventKind::kTimeWaitExit);
            return;
        }
        case State::kReqReceived:
        case State::kSidrReqReceived:
            // The peer no longer repeats its request. A program that never answers must not block the listener for
            // others.
            return leave_backlog(c);
        case State::kListen:
        case State::kRepReceived:
            return;  // no timer
    }
}

void Cm::Impl::repeat_unasked(uint64_t now_ns, Connection& c) {
    --c.retries;
    ++counters_[Counter::kRetransmitted];
    send(c.path, *c.mad);
    if (c.retries > 0) set_deadline(c, now_ns + timeout_ns(++c.timeout));
}

void Cm::Impl::give_up(uint64_t now_ns, Connection& c) {
    ++counters_[Counter::kTimedOut];
    switch (c.state) {
        case State::kDreqSent:
            enter_time_wait(now_ns, c, {});
            return deliver(c, EventKind::kDisconnected, RejReason::kTimeout);
        case State::kRepSent: {
            const Mad rej = make_rej(c, RejReason::kTimeout);
            send(c.path, rej);
            close(now_ns, c, rej);
            break;
        }
        default:
            if (!c.sidr) send(c.path, make_rej(c, RejReason::kTimeout));
            close_for_good(c);
    }
    deliver(c, EventKind::kUnreachable, RejReason::kTimeout);
}

}  // namespace rove::cm
