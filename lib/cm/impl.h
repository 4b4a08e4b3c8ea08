// SPDX-License-Identifier: Apache-2.0
// The implementation of Cm: tables and timers (tables.cc), calls (cm.cc), received MADs (receive.cc).
#pragma once

#include <list>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cm/connection.h"

namespace rove::cm {

// The maximum number of MRAs that may prolong a wait. Together with kLongestService, which limits the service timeout,
// it bounds the wait.
inline constexpr uint8_t kMaxExtensions = 16;
inline constexpr uint8_t kLongestService = 24;  // 69 s, the value that Linux asks for
// The number of unsolicited retransmissions of an answer (a REJ or an RTU) to a peer that an MRA told to wait. Such a
// peer does not repeat its request for a long time, so a lost answer would not be noticed.
inline constexpr uint8_t kUnsolicitedRetransmits = 4;
// The time for which a request without a listener is held, and the maximum number of such requests. Some servers reopen
// their listener while a client is connecting: perftest's with -R closes one listener of a port and opens another,
// possibly in another port space. A request is therefore held if another service listens on the same port or did so
// within this time.
inline constexpr uint64_t kReopensWithinNs = 500'000'000;
inline constexpr size_t kMaxHeldRequests = 64;
// The minimum time between two probes that ask a peer whether it still knows a connection.
inline constexpr uint64_t kProbeGapNs = 1'000'000'000;

class Cm::Impl {
  public:
    Impl(const Config& config, const Secret& secret, Sink& sink);

    // Calls: cm.cc.
    int listen(const Listen& listen, void* context, Id& id);
    int connect(uint64_t now_ns, const Connect& connect, void* context, Id& id);
    int accept(uint64_t now_ns, Connection& c, const Accept& accept);
    int confirm(uint64_t now_ns, Connection& c, std::span<const uint8_t> private_data);
    int reject(uint64_t now_ns, Connection& c, const Reject& reject);
    int delay(Connection& c, uint8_t service_timeout, std::span<const uint8_t> private_data);
    int establish(Connection& c);
    int disconnect(uint64_t now_ns, Connection& c, std::span<const uint8_t> private_data);
    int sidr_request(uint64_t now_ns, const SidrRequest& request, void* context, Id& id);
    int sidr_reply(uint64_t now_ns, Connection& c, const SidrReply& reply);
    int destroy(uint64_t now_ns, Id id);

    // Received MADs: receive.cc.
    void receive(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad);

    // Timers: tables.cc.
    void expire(uint64_t now_ns);
    uint64_t next_deadline() const;

    void leave_waiting(Connection& c);  // the program has received the request
    Connection* find(Id id);
    Listener* find_listener(Id id);
    uint64_t random() { return secret_.hash(drawn_++); }
    const Counters& counters() const { return counters_; }
    Usage usage() const {
        return {.listeners = listeners_.size(),
                .connections = connections_.size() - lingering_.size(),
                .lingering = lingering_.size(),
                .names = by_comm_id_.size() + by_remote_name_.size() + by_remote_qp_.size()};
    }

  private:
    struct Received {
        uint64_t now_ns;
        const Path& from;
        uint8_t max_mtu;
        std::span<const uint8_t> mad;
        bool may_defer;  // the request may be held for a listener
        uint64_t transaction_id;
    };
    // A port number, across all port spaces.
    struct Port {
        uint32_t services = 0;   // services with listeners
        uint64_t closed_ns = 0;  // time when the last listener closed; valid if `services` is 0
    };
    // A REQ or SIDR_REQ that waits for a listener.
    struct DeferredRequest {
        Path from;
        uint8_t max_mtu;
        Mad mad;
        uint64_t service_id;
        uint64_t until_ns;  // time when it is processed again; 0 if its listener is open now
    };

    // tables.cc
    Connection* open(State state, const Path& path, void* context);  // returns null if there are too many
    void erase(Connection& c);
    void forget_names(Connection& c);  // no received MAD finds it afterwards
    void forget_remote_qp(Connection& c);
    void set_deadline(Connection& c, uint64_t deadline_ns);
    void on_deadline(uint64_t now_ns, Connection& c);
    void end_held_requests(uint64_t now_ns);
    void repeat_unasked(uint64_t now_ns, Connection& c);
    void give_up(uint64_t now_ns, Connection& c);
    void leave_backlog(Connection& c);  // it is established or has ended
    void detach(Connection& c);         // the program has destroyed it, and it lingers
    Listener* listener_for(uint64_t service_id, const wire::Gid& local);
    bool has_room(const Listener& listener, const wire::Gid& source) const;
    void enter_backlog(Listener& listener, Connection& c);

    // States
    void send(const Path& path, const Mad& mad);
    void send_reliably(uint64_t now_ns, Connection& c, State state, const Mad& mad, uint8_t longest, uint8_t retries);
    void close(uint64_t now_ns, Connection& c, const std::optional<Mad>& answer);  // it lingers and repeats `answer`
    uint64_t linger_ns(const Connection& c) const;
    void close_for_good(Connection& c);
    void enter_time_wait(uint64_t now_ns, Connection& c, const std::optional<Mad>& answer);
    void send_dreq(uint64_t now_ns, Connection& c, std::span<const uint8_t> private_data);
    void probe(uint64_t now_ns, Connection& c);
    Mad make_rej(const Connection& c, RejReason reason) const;
    Mad make_drep(const Connection& c, uint64_t transaction_id) const;
    Mad make_mra(Connection& c, uint8_t service_timeout, std::span<const uint8_t> private_data) const;
    void deliver(const Connection& c, Event event);
    void deliver(const Connection& c, EventKind kind, RejReason reason = RejReason::kNone);

    // receive.cc
    void take(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad, bool may_defer);
    bool hold(const Received& in, uint64_t service_id);  // returns false if the request must be answered at once
    void on(const Received& in, const Req& req);
    void on(const Received& in, const Mra& mra);
    void on(const Received& in, const Rej& rej);
    void on(const Received& in, const Rep& rep);
    void on(const Received& in, const Rtu& rtu);
    void on(const Received& in, const Dreq& dreq);
    void on(const Received& in, const Drep& drep);
    void on(const Received& in, const SidrReq& req);
    void on(const Received& in, const SidrRep& rep);
    void on(const Received& in, const Lap& lap);
    void on(const Received& in, const Apr& apr);
    void on(const Received& in, const ClassPortInfo& info);
    void on_duplicate(const Received& in, Connection& c, const Req& req);
    RejReason check(const Received& in, const Req& req, const Listener& listener,
                    const std::optional<CmaHeader>& addresses) const;
    // Returns the connection that both ids name if the sender is its peer. Otherwise it counts the drop and returns
    // null.
    Connection* match(const Received& in, uint32_t local_comm_id, uint32_t remote_comm_id);
    bool is_peer(const Received& in, const Connection& c) const;
    Connection* find_by_comm_id(uint32_t local_comm_id);
    void answer(const Received& in, auto&& body) {
        send(in.from, build({in.transaction_id, std::forward<decltype(body)>(body)}));
    }
    void reject_request(const Received& in, const Req& req, RejReason reason);
    void drop(Counter reason) { ++counters_[reason]; }

    const Config config_;
    const Secret secret_;
    Sink& sink_;
    Counters counters_;
    uint64_t drawn_ = uint64_t{1} << 62;  // counter for random()
    uint64_t next_id_ = 1;
    std::map<Id, Listener> listeners_;
    std::map<uint64_t, std::vector<Listener*>> services_;  // indexed by service id; no vector is empty
    std::map<uint16_t, Port> ports_;                       // indexed by the low 16 bits of service ids
    std::vector<DeferredRequest> held_requests_;
    std::unordered_map<uint64_t, Connection> connections_;  // indexed by id
    std::list<Id> lingering_;                               // connections that are not owned, the oldest first
    std::unordered_map<uint32_t, Connection*> by_comm_id_;  // indexed by our comm ids, which are random
    std::unordered_map<RemoteName, Connection*, KeyHash> by_remote_name_;
    std::unordered_map<RemoteQp, Connection*, KeyHash> by_remote_qp_;
    std::set<std::pair<uint64_t, Id>> timers_;  // ordered by deadline
};

// Copies `data` to `to` from `offset`. Returns false, without copying, if it does not fit.
template <size_t N>
bool copy_private_data(std::span<const uint8_t> data, std::array<uint8_t, N>& to, size_t offset = 0) {
    if (data.size() > N - offset) return false;
    std::copy(data.begin(), data.end(), to.begin() + static_cast<std::ptrdiff_t>(offset));
    return true;
}

}  // namespace rove::cm
