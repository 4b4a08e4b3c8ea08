// SPDX-License-Identifier: Apache-2.0
// The connection manager of IBTA vol. 1, chapter 12, without any I/O. A driver passes in received MADs, the program's
// calls and the time. The connection manager returns MADs to send, events, and the next deadline. Only one thread may
// call it at a time. It never blocks and never reads a clock. Times that end in `_ns` are nanoseconds of the driver's
// clock, which must never run backwards. Values that end in `_timeout` are exponents t of 4.096 us * 2^t.
//
// The calls of a driver, in order:
// - Passive side: listen(), then kConnectRequest; accept() or reject(); then kEstablished, kRejected or kUnreachable.
// - Active side: connect(), then kConnectResponse, kRejected or kUnreachable; after kConnectResponse confirm() or
//   reject().
// - Either side: disconnect(). If this side or the peer disconnects, kDisconnected follows and later kTimeWaitExit.
// - Address resolution: sidr_request(), then kSidrResponse or kUnreachable. A listener gets kSidrRequest and calls
//   sidr_reply().
// - destroy() at any time. No event for an id follows its destroy().
// - Each call and each receive() may change next_deadline().
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

// Names a listener, connection or address resolution until it is destroyed. An id is never used twice.
enum class Id : uint64_t { kNone = 0 };

// The path from one of our addresses to a peer's GSI. The Cm compares only src and dst of `flow` and stores the rest
// for the MADs it sends. A driver may therefore resolve the MAC addresses when it sends the MAD.
struct Path {
    uint32_t interface = 0;  // the driver's number for the port
    wire::Flow flow;         // src is our address
    uint32_t remote_qpn = kGsiQpn;
    uint16_t pkey = wire::kDefaultPkey;
};

enum class State : uint8_t {
    kListen,
    kReqSent,      // also after the peer has asked for more time with an MRA
    kReqReceived,  // the program must accept or reject
    kRepSent,      // also after the peer has asked for more time with an MRA
    kRepReceived,  // the program must confirm or reject
    kEstablished,
    kDreqSent,
    kTimeWait,
    kClosed,  // rejected, timed out, answered or after TIMEWAIT; only destroy() remains
    kSidrReqSent,
    kSidrReqReceived,
};
const char* to_string(State state);

enum class EventKind : uint8_t {
    kConnectRequest,   // a new id, `listener`, `req`, `addresses`, `private_data`, `path`
    kConnectResponse,  // `rep` (`qpn` holds the QP also for XRC), `private_data`; the QP goes to RTS, then confirm()
    kEstablished,      // passive side: the RTU arrived (`private_data`) or establish() was called
    // The peer rejected a REQ or REP: `rej`, `reason`, `private_data`. If `rej` is null, the REP named a QP that is
    // already connected (kStaleConnection).
    kRejected,
    kUnreachable,  // no answer to a REQ, REP or SIDR_REQ in time (ETIMEDOUT)
    // A DREQ arrived (`private_data`, `reason` kNone), a DREP arrived, no DREP arrived (kTimeout), or the peer sent a
    // REJ for an established connection (its reason).
    kDisconnected,
    kTimeWaitExit,  // the QP may be connected again
    kSidrRequest,   // a new id, `listener`, `sidr_req`, `addresses`, `private_data`, `path`
    kSidrResponse,  // `sidr_rep`, `private_data`
};
const char* to_string(EventKind kind);

// An event. Pointers and spans are valid only during Sink::deliver(). A pointer is null if the comment on `kind` does
// not list it.
struct Event {
    EventKind kind;
    Id id = Id::kNone;
    void* context = nullptr;  // context for `id`; null for a new id, see set_context()
    Id listener = Id::kNone;
    void* listener_context = nullptr;
    RejReason reason = RejReason::kNone;
    const Path* path = nullptr;  // path to the peer
    const Req* req = nullptr;
    const Rep* rep = nullptr;
    const Rej* rej = nullptr;
    const SidrReq* sidr_req = nullptr;
    const SidrRep* sidr_rep = nullptr;
    const CmaHeader* addresses = nullptr;  // set for a listener with Listen::cma_header, else null
    // The program's private data, as long as the message has room. Zeros follow the bytes that were sent.
    std::span<const uint8_t> private_data;
};

// The driver's side of the interface: the Cm calls it with MADs and events. Neither function may call the Cm.
class Sink {
  public:
    // Sends `mad` to QPN path.remote_qpn with Q_Key kGsiQkey. The driver may drop a MAD that cannot be sent, because
    // the Cm retransmits it.
    virtual void send(const Path& path, const Mad& mad) = 0;
    virtual void deliver(const Event& event) = 0;

  protected:
    ~Sink() = default;
};

struct Config {
    // The first wait before an unanswered MAD is retransmitted: 16.8 ms. Each further wait is twice as long, up to 4.3
    // s. See note 1 of cm.cc.
    uint8_t first_timeout = 12;
    uint8_t response_timeout = 20;  // Linux's value; REQs also promise and demand it
    uint8_t max_retries = 15;       // Linux's value, 4 bits
    // Retransmissions of a DREQ; after 4.3 s in all the connection counts as disconnected.
    uint8_t disconnect_retries = 7;
    uint8_t service_timeout = 22;  // 17 s; an MRA asks for this while the program has not answered
    uint8_t time_wait = 17;        // 0.54 s; Linux's value for RoCE, twice a packet's lifetime
    // The maximum number of connections and address resolutions that the program holds. Records that linger after
    // destroy() have a limit of their own.
    uint32_t max_connections = 65536;
    uint32_t max_listeners = 65536;
    uint32_t max_backlog = 1024;     // Linux's limit (max_backlog of ucma)
    uint32_t max_half_open = 1024;   // limit per listener on requests, accepted or not, that are not yet established
    uint32_t max_lingering = 16384;  // limit on records of destroyed ids that still answer duplicates
    bool operator==(const Config&) const = default;
};

struct Listen {
    uint64_t service_id = 0;
    std::optional<wire::Gid> address;  // one of our addresses; if unset, any address of these families:
    bool ipv4 = true, ipv6 = true;
    uint32_t backlog = 0;    // requests that wait for the program; 0 or a larger value means Config's limit
    bool cma_header = true;  // private data of a REQ begins with this header
};

// The fields that a REQ and a REP have in common.
struct Endpoint {
    uint32_t qpn = 0;
    // The first PSN that the other end sends (IBTA 12.7.31), and so the RQ PSN of the end that names it. 24 bits.
    // random_psn() returns a good one.
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
    std::optional<CmaHeader> addresses;  // leaves 56 bytes of private data; without it there are 92
    Endpoint local;
    TransportService service = TransportService::kRc;
    uint8_t path_mtu = 3;            // 1 .. 5 for 256 .. 4096 bytes
    uint8_t retry_count = 7;         // 3 bits
    uint8_t local_ack_timeout = 14;  // 5 bits; 67 ms, the time for which the peer's QP waits for our ACKs
    std::span<const uint8_t> private_data;
};

struct Accept {
    Endpoint local;
    uint8_t target_ack_delay = 0;           // 5 bits
    std::span<const uint8_t> private_data;  // up to 196 bytes
};

struct Reject {
    RejReason reason = RejReason::kConsumerDefined;
    std::span<const uint8_t> ari;           // up to 72 bytes
    std::span<const uint8_t> private_data;  // up to 148 bytes
};

struct SidrRequest {
    Path path;
    uint64_t service_id = 0;
    std::optional<CmaHeader> addresses;  // leaves 180 bytes of private data; without it there are 216
    std::span<const uint8_t> private_data;
};

struct SidrReply {
    SidrStatus status = SidrStatus::kValid;
    uint32_t qpn = 0, qkey = 0;
    Ece ece;
    std::span<const uint8_t> private_data;  // up to 136 bytes
};

// The connection manager. All calls return 0 or an errno. Every call may return EINVAL: the id is unknown or in another
// state, the private data is too long, or a value does not fit its field. Other errors are listed at each call. A call
// that fails changes nothing.
class Cm {
  public:
    // `sink` must outlive the Cm.
    Cm(const Config& config, const Secret& secret, Sink& sink);
    ~Cm();

    // Returns EADDRINUSE if a listener for that service id has the same address or, without an address, serves one of
    // the same families. Returns ENOMEM if there are too many listeners.
    int listen(const Listen& listen, void* context, Id& id);
    // Returns ENOMEM if there are too many connections. No event is delivered before the call returns; this holds for
    // every call that opens an id.
    int connect(uint64_t now_ns, const Connect& connect, void* context, Id& id);
    // Reports that the program has received the request of kConnectRequest or kSidrRequest, which frees its slot in the
    // backlog. As in Linux, a request that a program forgets to answer must not close its listener.
    int taken(Id id);
    // Sends the REP. Valid in kReqReceived.
    int accept(uint64_t now_ns, Id id, const Accept& accept);
    // Sends the RTU with up to 224 bytes of private data. Valid in kRepReceived. The connection is then established,
    // and no event reports it.
    int confirm(uint64_t now_ns, Id id, std::span<const uint8_t> private_data);
    // Sends a REJ. Valid in kReqReceived, kRepSent and kRepReceived.
    int reject(uint64_t now_ns, Id id, const Reject& reject);
    // Tells the peer that the answer takes up to `service_timeout` (0 means Config's). Valid in kReqReceived and
    // kRepReceived. A peer that repeats its request gets such an MRA without this call.
    int delay(uint64_t now_ns, Id id, uint8_t service_timeout, std::span<const uint8_t> private_data);
    // Reports that the QP has received a packet (IBV_EVENT_COMM_EST), so the RTU is no longer needed. In kRepSent it
    // delivers kEstablished. It does nothing if the connection is already established.
    int establish(uint64_t now_ns, Id id);
    // Sends the DREQ with up to 220 bytes of private data. Valid in kEstablished. It does nothing if the connection is
    // already disconnected.
    int disconnect(uint64_t now_ns, Id id, std::span<const uint8_t> private_data);

    int sidr_request(uint64_t now_ns, const SidrRequest& request, void* context, Id& id);
    // Sends the SIDR_REP. Valid in kSidrReqReceived.
    int sidr_reply(uint64_t now_ns, Id id, const SidrReply& reply);

    // Ends the id in any state: rejects a request and disconnects an established connection. If a listener is
    // destroyed, the requests that its program has not answered remain.
    int destroy(uint64_t now_ns, Id id);

    int set_context(Id id, void* context);
    std::optional<State> state(Id id) const;  // empty for an unknown id

    // Processes a received MAD. `from` is the path back to the sender; its src is the address to which the MAD was
    // sent. `max_mtu` is the code of the interface's largest path MTU, 1 .. 5. `mad` is the payload after the GRH and
    // may be hostile.
    void receive(uint64_t now_ns, const Path& from, uint8_t max_mtu, std::span<const uint8_t> mad);
    // Processes all timers that are due.
    void expire(uint64_t now_ns);
    uint64_t next_deadline() const;  // UINT64_MAX if no timer runs

    uint32_t random_psn();
    const Counters& counters() const;
    // The current use of the resources that Config limits. `names` counts the keys by which received MADs find
    // connections, up to three for each connection.
    struct Usage {
        size_t listeners, connections, lingering, names;
    };
    Usage usage() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rove::cm
