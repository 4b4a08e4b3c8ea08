// SPDX-License-Identifier: Apache-2.0
// The connection manager of IBTA vol. 1, chapter 12, without any I/O: its driver gives it received MADs, calls and the
// time, and is given MADs to send, events and the next deadline. One thread at a time; nothing here waits, or reads a
// clock. Units: nanoseconds (`_ns`) of the driver's clock, which never goes back; exponents t of 4.096 us * 2^t
// (`_timeout`).
//
// What a driver does:
//   listen(), then kConnectRequest; accept() or reject(); then kEstablished, kRejected or kUnreachable.
//   connect(), then kConnectResponse, kRejected or kUnreachable; after kConnectResponse confirm() or reject().
//   disconnect() by either, or by the peer: kDisconnected, and later kTimeWaitExit.
//   sidr_request(), then kSidrResponse or kUnreachable; a listener gets kSidrRequest: sidr_reply().
//   destroy() at any time. No event of an id follows its destroy().
// After each call and each receive(), next_deadline() may be another.
//
// docs/protocol/cm.md has the table of states, the differences from Linux's ib_cm, and the defence against forged MADs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/secret.h"
#include "cm/counters.h"
#include "cm/messages.h"

namespace rove::cm {

// Names a listener, connection or address resolution until it is destroyed; never given twice.
enum class Id : uint64_t { kNone = 0 };

// The way from one of our addresses to a peer's GSI. The Cm compares src and dst of `flow` only, and keeps the rest for
// what it sends: a driver may leave the MACs to be found when the MAD goes out.
struct Path {
    uint32_t interface = 0;  // the driver's number of the port
    wire::Flow flow;         // src: ours
    uint32_t remote_qpn = kGsiQpn;
    uint16_t pkey = wire::kDefaultPkey;
};

enum class State : uint8_t {
    kListen,
    kReqSent,      // also when the peer has asked for time by an MRA
    kReqReceived,  // the program has to accept or reject
    kRepSent,      // also when the peer has asked for time
    kRepReceived,  // the program has to confirm or reject
    kEstablished,
    kDreqSent,
    kTimeWait,
    kClosed,  // rejected, timed out, answered or after TIMEWAIT: only destroy() is left
    kSidrReqSent,
    kSidrReqReceived,
};
const char* to_string(State state);

enum class EventKind : uint8_t {
    kConnectRequest,   // a new id, `listener`, `req`, `addresses`, `private_data`, `path`
    kConnectResponse,  // `rep` (its QP in `qpn` also of XRC), `private_data`; the QP goes to RTS, then confirm()
    kEstablished,      // passive side: RTU came (`private_data`), or establish() was called
    kRejected,         // `rej`, `reason`, `private_data`: by the peer, of a REQ or REP; without `rej`: the REP named a
                       // QP that is connected already (kStaleConnection)
    kUnreachable,      // no answer to a REQ, REP or SIDR_REQ in time (ETIMEDOUT)
    kDisconnected,     // DREQ came (`private_data`, `reason` kNone), DREP came, or none (kTimeout); or a REJ of an
                       // established connection (its reason)
    kTimeWaitExit,     // the QP may be connected again
    kSidrRequest,      // a new id, `listener`, `sidr_req`, `addresses`, `private_data`, `path`
    kSidrResponse,     // `sidr_rep`, `private_data`
};
const char* to_string(EventKind kind);

// Pointers and spans are valid during Sink::deliver() only. A pointer is null where `kind` does not name it.
struct Event {
    EventKind kind;
    Id id = Id::kNone;
    void* context = nullptr;  // of `id`; null for a new one, see set_context()
    Id listener = Id::kNone;
    void* listener_context = nullptr;
    RejReason reason = RejReason::kNone;
    const Path* path = nullptr;  // to the peer
    const Req* req = nullptr;
    const Rep* rep = nullptr;
    const Rej* rej = nullptr;
    const SidrReq* sidr_req = nullptr;
    const SidrRep* sidr_rep = nullptr;
    const CmaHeader* addresses = nullptr;  // of a listener with Listen::cma_header; otherwise null
    // The program's, as long as the message has room: zeros behind what was sent.
    std::span<const uint8_t> private_data;
};

// What the driver does with what the Cm gives out. Neither may call the Cm.
class Sink {
  public:
    // To QPN path.remote_qpn, Q_Key kGsiQkey. A MAD that cannot be sent may be dropped: it is sent again.
    virtual void send(const Path& path, const Mad& mad) = 0;
    virtual void deliver(const Event& event) = 0;

  protected:
    ~Sink() = default;
};

struct Config {
    // At first an unanswered MAD is sent again after 16.8 ms, then after twice as long each time, up to 4.3 s: note 1
    // of cm.cc.
    uint8_t first_timeout = 12;
    uint8_t response_timeout = 20;   // Linux's; also what REQs promise and demand
    uint8_t max_retries = 15;        // Linux's, 4 bits
    uint8_t disconnect_retries = 7;  // of DREQ: 4.3 s in all, then the connection is taken for disconnected
    uint8_t service_timeout = 22;    // 17 s: for what an MRA asks when the program has not answered yet
    uint8_t time_wait = 17;          // 0.54 s: Linux's for RoCE, twice a packet's lifetime
    // Ids of connections and address resolutions that the program has. What lingers after destroy() is counted apart.
    uint32_t max_connections = 65536;
    uint32_t max_listeners = 65536;
    uint32_t max_backlog = 1024;     // Linux's limit (ucma's max_backlog)
    uint32_t max_half_open = 1024;   // of a listener: requests, accepted or not, that are not established yet
    uint32_t max_lingering = 16384;  // records of destroyed ids that still answer duplicates
    bool operator==(const Config&) const = default;
};

struct Listen {
    uint64_t service_id = 0;
    std::optional<wire::Gid> address;  // one of ours, or any of these:
    bool ipv4 = true, ipv6 = true;
    uint32_t backlog = 0;    // requests that wait for the program; 0, or more than Config's: Config's
    bool cma_header = true;  // REQs begin their private data with it
};

// Of a REQ or REP, what the two ends have in common.
struct Endpoint {
    uint32_t qpn = 0;
    // 24 bits; random_psn() for a good one. Where the other end begins to send (IBTA 12.7.31), so it is the RQ PSN of
    // the end that says it.
    uint32_t starting_psn = 0;
    uint32_t qkey = 0;
    uint64_t ca_guid = 0;  // node GUID of the device, host order
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint8_t rnr_retry_count = 7;  // 3 bits
    bool flow_control = false, srq = false;
    Ece ece;
};

struct Connect {
    Path path;
    uint64_t service_id = 0;
    std::optional<CmaHeader> addresses;  // leaves 56 bytes of private data, and else there are 92
    Endpoint local;
    TransportService service = TransportService::kRc;
    uint8_t path_mtu = 3;            // 1 .. 5 for 256 .. 4096 bytes
    uint8_t retry_count = 7;         // 3 bits
    uint8_t local_ack_timeout = 14;  // 5 bits: 67 ms, which the peer's QP waits for our ACKs
    std::span<const uint8_t> private_data;
};

struct Accept {
    Endpoint local;
    uint8_t target_ack_delay = 0;           // 5 bits
    std::span<const uint8_t> private_data;  // up to 196
};

struct Reject {
    RejReason reason = RejReason::kConsumerDefined;
    std::span<const uint8_t> ari;           // up to 72
    std::span<const uint8_t> private_data;  // up to 148
};

struct SidrRequest {
    Path path;
    uint64_t service_id = 0;
    std::optional<CmaHeader> addresses;  // leaves 180 bytes of private data, and else there are 216
    std::span<const uint8_t> private_data;
};

struct SidrReply {
    SidrStatus status = SidrStatus::kValid;
    uint32_t qpn = 0, qkey = 0;
    Ece ece;
    std::span<const uint8_t> private_data;  // up to 136
};

// All calls return 0 or an errno: EINVAL (unknown id, not in this state, private data too long, a value beyond its
// field) and those that they name. A call that fails changes nothing.
class Cm {
  public:
    // `sink` outlives it.
    Cm(const Config& config, const Secret& secret, Sink& sink);
    ~Cm();

    // EADDRINUSE: there is a listener for that service id with the same address, or with the same family if it has
    // none; ENOMEM: too many listeners.
    int listen(const Listen& listen, void* context, Id& id);
    // ENOMEM: too many connections. As for all that opens one, nothing is delivered before it returns.
    int connect(uint64_t now_ns, const Connect& connect, void* context, Id& id);
    // The program has been given the request of kConnectRequest or kSidrRequest, so that it makes room in the backlog
    // (as in Linux: what a program forgets to answer shall not close its listener).
    int taken(Id id);
    // In kReqReceived: sends the REP.
    int accept(uint64_t now_ns, Id id, const Accept& accept);
    // In kRepReceived: sends the RTU, up to 224 bytes with it. The connection is established, without an event.
    int confirm(uint64_t now_ns, Id id, std::span<const uint8_t> private_data);
    // In kReqReceived, kRepSent and kRepReceived.
    int reject(uint64_t now_ns, Id id, const Reject& reject);
    // In kReqReceived, kRepReceived: tells the peer that the answer takes up to `service_timeout` (0: Config's). Peers
    // that ask again are told so anyhow.
    int delay(uint64_t now_ns, Id id, uint8_t service_timeout, std::span<const uint8_t> private_data);
    // The QP received something (IBV_EVENT_COMM_EST), so that the RTU need not be waited for. In kRepSent: delivers
    // kEstablished. Does nothing when it is established already.
    int establish(uint64_t now_ns, Id id);
    // In kEstablished: sends the DREQ, up to 220 bytes with it. Does nothing if it is disconnected already.
    int disconnect(uint64_t now_ns, Id id, std::span<const uint8_t> private_data);

    int sidr_request(uint64_t now_ns, const SidrRequest& request, void* context, Id& id);
    // In kSidrReqReceived.
    int sidr_reply(uint64_t now_ns, Id id, const SidrReply& reply);

    // Ends whatever there is: rejects what was asked, disconnects what is established. Requests that a destroyed
    // listener's program has not answered stay.
    int destroy(uint64_t now_ns, Id id);

    int set_context(Id id, void* context);
    std::optional<State> state(Id id) const;  // nothing: no such id

    // `from` is the way back to the sender: src is the address that the MAD was sent to. `max_mtu`: code of the
    // interface's largest path MTU, 1 .. 5. `mad` is what follows the GRH, hostile or not.
    void receive(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad);
    // Does what is due.
    void expire(uint64_t now_ns);
    uint64_t next_deadline() const;  // UINT64_MAX: none

    uint32_t random_psn();
    const Counters& counters() const;
    // Now in use: what Config bounds, and the names that received MADs find connections by, up to three for each.
    struct Usage {
        size_t listeners, connections, lingering, names;
    };
    Usage usage() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rove::cm
