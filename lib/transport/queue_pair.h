// SPDX-License-Identifier: Apache-2.0
// A queue pair: its identity, attributes, queues, place in the worker's lists, and protocol state. It belongs to one
// worker; control calls change it only while they hold that worker. Units: times in nanoseconds of the worker's clock
// (0 = not set), sizes in bytes, packets where named.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "transport/completion_queue.h"
#include "transport/mp/state.h"
#include "transport/owner.h"
#include "transport/psn.h"
#include "transport/queue_state.h"
#include "transport/quiescence.h"
#include "transport/rc_state.h"
#include "transport/window_list.h"
#include "transport/work_queue.h"
#include "wire/frame.h"

namespace rove::transport {

inline constexpr uint32_t kMaxMessageBytes = 1u << 31;    // IBTA 9.4.1
inline constexpr uint32_t kMaxMessagePackets = 1u << 22;  // half of the PSNs that Psn can order
inline constexpr uint32_t kMaxRdAtomic = 128;             // requests in each direction; the value of ConnectX devices

// The MAC that frames to a neighbour are sent to. It may change at any time, so it is written into each frame, and
// senders need no notice. (An ICRC does not cover MACs.) Paths share it with the table of neighbours, which changes it.
class NextHop {
  public:
    explicit NextHop(const wire::MacAddress& mac) { set(mac); }
    // Relaxed, as is reading: no other data belongs to it.
    void set(const wire::MacAddress& mac) {
        uint64_t bytes = 0;
        std::memcpy(&bytes, mac.data(), mac.size());
        mac_.store(bytes, std::memory_order_relaxed);
    }
    wire::MacAddress mac() const {
        wire::MacAddress mac;
        write(mac.data());
        return mac;
    }
    // Writes the MAC to the first six bytes of a frame.
    void write(uint8_t* frame) const {
        const uint64_t bytes = mac_.load(std::memory_order_relaxed);
        const auto low = static_cast<uint32_t>(bytes);
        const auto high = static_cast<uint16_t>(bytes >> 32);
        std::memcpy(frame, &low, sizeof low);
        std::memcpy(frame + sizeof low, &high, sizeof high);
    }

  private:
    std::atomic<uint64_t> mac_;
};

// The destination of a QP's or an address handle's packets. The datapath fills it in when the address is resolved.
struct Path {
    wire::Flow flow;
    wire::FlowTemplate headers;
    std::shared_ptr<const NextHop> next_hop;  // its MAC is written into frames; null: the MAC in `headers`
    uint16_t port = 0;                        // the device's port, as in QueuePair::port
    uint16_t outlet = 0;                      // the driver's queue for it: the port's, or a neighbour's
    bool loopback = false;                    // the destination is the device itself
    bool multicast = false;                   // the destination is a group, which QPs of the device may have joined too

    // Returns a number that tells the peers of a worker apart, by address and by the queue that leads to them.
    uint64_t peer_number() const {
        uint64_t half[2];
        std::memcpy(half, flow.dst.data(), sizeof half);
        return (half[0] ^ (half[1] + outlet) * 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93;
    }
};

class PeerCapabilityCache;

// The exchange with the peer about mp before RTR (mp/hello.h).
struct HelloState {
    enum class Answer : uint8_t { kNone, kYes, kNo };
    enum class Decision : uint8_t { kUndecided, kRc, kMp };
    struct RemoteQp {
        uint32_t qpn = 0;
        wire::Gid gid{};
        bool operator==(const RemoteQp&) const = default;
    };
    // The maximum of parties that can get a yes before the QP knows its peer. Others get no answer: the offer to one
    // must not be displaced by the messages of others. One more place is for a party whose host is known to speak mp,
    // so that strangers who have taken the four do not make it a peer of rc.
    static constexpr size_t kPromises = 4, kPlaces = kPromises + 1;

    uint32_t nonce = 0;                          // the nonce of our question; 0: no question
    std::atomic<Answer> answer = Answer::kNone;  // to our question; read by the thread that waits
    Decision decision = Decision::kUndecided;    // our own decision
    PeerCapabilityCache* peers = nullptr;        // the device's cache of peers that speak mp; null: no peer is known
    bool has_peer = false;                       // set while the QP is being connected and asks, and from then on
    RemoteQp peer;                               // valid with has_peer
    uint64_t answered_ns = 0;                    // time of the last answered question
    uint64_t asked_back_ns = 0;                  // time at which a late question was last answered by a question
    // What an answer told about the peer. A connection through rove's CM has no HELLO and so knows nothing of this.
    struct PeerCapacity {
        wire::ReceiveLimits limits;  // what the peer can take as a receiver; 0: unknown
        uint32_t round_trip_ns = 0;  // from question to answer; 0: not measured
    };
    PeerCapacity peer_capacity;  // valid from the answer on, until the next attempt to connect or RESET
    uint64_t asked_ns = 0;       // time of the first question of this attempt; 0: nothing was asked
    // A party to which we have offered mp. Anyone who can write a frame can ask in another's name, so an offer counts
    // only when its party has answered a question in return.
    struct PendingOffer {
        RemoteQp party;
        uint32_t nonce = 0;  // the nonce of that question; 0: none was asked
        bool confirmed = false;
        uint64_t asked_ns = 0;  // time of the first such question
        PeerCapacity capacity;  // valid when confirmed
    };
    std::array<PendingOffer, kPlaces> promises{};
    size_t promise_count = 0;

    // Returns null if nothing was offered.
    PendingOffer* promised(const RemoteQp& party) {
        for (size_t i = 0; i < promise_count; ++i)
            if (promises[i].party == party) return &promises[i];
        return nullptr;
    }
    // Returns true if a party relies on this QP's speaking mp.
    bool has_confirmed() const {
        for (size_t i = 0; i < promise_count; ++i)
            if (promises[i].confirmed) return true;
        return false;
    }
    // Returns null if there is no room. For the peer there is always room. A party whose host is known to speak mp
    // takes the last place, also from an earlier one, unless that has confirmed its offer.
    PendingOffer* promise(const RemoteQp& party, uint64_t now_ns);
    // Prepares for the connection to `party`. `known` replaces `peers` unless it is null.
    void begin(const RemoteQp& party, PeerCapabilityCache* known, uint32_t question) {
        nonce = question;
        answer = Answer::kNone;  // an earlier attempt may have asked another party
        if (known != nullptr) peers = known;
        peer = party;
        has_peer = true;
        asked_ns = 0;
        const PendingOffer* const earlier = promised(party);
        peer_capacity = earlier != nullptr && earlier->confirmed ? earlier->capacity : PeerCapacity{};
    }
    void reset() {
        nonce = 0;
        answer = Answer::kNone;
        decision = Decision::kUndecided;
        has_peer = false;
        answered_ns = asked_back_ns = asked_ns = 0;
        promise_count = 0;
        peer_capacity = {};
    }
};

struct QueuePair {
    // Identity, fixed at creation.
    uint32_t qpn = 0;
    ibv_qp_type type = IBV_QPT_RC;
    bool sq_sig_all = false;
    uint16_t port = 0;
    wire::MacAddress mac{};             // MAC of its device
    bool blocks_own_multicast = false;  // IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
    uint32_t port_mtu = kMaxMtu;        // largest payload of a packet on that port, bytes
    uint16_t worker = 0;
    uint8_t priority = 1;  // doorbell ring and transmit order: 0 HIGH, 1 MEDIUM, 2 LOW
    const void* pd = nullptr;
    const void* recv_pd = nullptr;  // domain of the receive requests: the SRQ's, or `pd`
    // XRC TGT: its domain. `pd`, `recv_pd`, `recv_cq` and `srq` then belong to the SRQ that the last request named, or
    // are null.
    const void* xrcd = nullptr;
    Owner* owner = nullptr;
    QueuePair *next_member = nullptr, *previous_member = nullptr;  // XRC TGT: in the list of `srq`
    CompletionQueue* send_cq = nullptr;                            // null for an XRC TGT QP
    CompletionQueue* recv_cq = nullptr;                            // null for an XRC INI QP
    SharedRecvQueue* srq = nullptr;
    uint32_t max_recv_sge = 0;
    WindowList windows;  // type 2 windows that are bound to it
    SendQueue sq;
    RecvQueue rq;

    // Set by modify, and also read by posting threads. Written with sequential consistency: after ERR is set, either
    // flushing sees the posted requests, or the posting thread sees ERR and asks for another flush.
    std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
    uint32_t access = 0;  // rights of the peer: IBV_ACCESS_REMOTE_*
    uint32_t mtu = 1024;  // path MTU, bytes
    uint32_t remote_qpn = 0;
    uint32_t qkey = 0;
    uint16_t pkey = wire::kDefaultPkey;
    uint8_t max_rd_atomic = 0;           // limit as requester
    uint8_t max_dest_rd_atomic = 0;      // limit as responder
    uint64_t port_rate_bytes_per_s = 0;  // the rate of its port; 0: unknown
    uint8_t timeout = 0;                 // 4.096 us * 2^timeout; 0 = never
    uint8_t retry_cnt = 0;
    uint8_t rnr_retry = 0;      // 7 = for ever
    uint8_t min_rnr_timer = 0;  // code, IBTA table 45
    Path path;                  // connected types

    SendPosition position;     // in `sq`
    ReceiveSlot slot;          // for the message in progress
    bool established = false;  // IBV_EVENT_COMM_EST was raised
    HelloState hello;
    // Empty before RTR. Made by Engine::start_receiving(), unmade by RESET.
    std::variant<std::monostate, Rc, std::unique_ptr<Mp>, Uc, Ud, Xrc> protocol;

    // The engine's scheduling state.
    bool active = false;          // in an active list
    bool requests_first = false;  // in its next turn, because they found no room in the last one
    QueuePair* next_active = nullptr;
    uint32_t heap_index = UINT32_MAX;   // among the deadlines; UINT32_MAX = not in the heap
    std::atomic<bool> doorbell{false};  // rung and not yet consumed by the worker
    QueuePair* next_rung = nullptr;     // in the driver's list of rung QPs

    // Return the state of a protocol, or null if the QP speaks another one or none yet.
    Rc* rc() { return std::get_if<Rc>(&protocol); }
    const Rc* rc() const { return std::get_if<Rc>(&protocol); }
    Mp* mp() {
        auto* mp = std::get_if<std::unique_ptr<Mp>>(&protocol);
        return mp != nullptr ? mp->get() : nullptr;
    }
    const Mp* mp() const {
        const auto* mp = std::get_if<std::unique_ptr<Mp>>(&protocol);
        return mp != nullptr ? mp->get() : nullptr;
    }
    Uc* uc() { return std::get_if<Uc>(&protocol); }
    Ud* ud() { return std::get_if<Ud>(&protocol); }
    Xrc* xrc() { return std::get_if<Xrc>(&protocol); }
    // Returns the common part of RC and XRC.
    const Rc* rc_or_xrc() const {
        const Rc* rc = this->rc();
        return rc != nullptr ? rc : std::get_if<Xrc>(&protocol);
    }
    Rc* rc_or_xrc() { return const_cast<Rc*>(std::as_const(*this).rc_or_xrc()); }
    // Returns DCQCN's state, or null for a protocol with another congestion control or none.
    Congestion* congestion() {
        if (Rc* rc = this->rc_or_xrc()) return &rc->congestion;
        Uc* uc = this->uc();
        return uc != nullptr ? &uc->congestion : nullptr;
    }
    // Calls `with` with its Rc, Mp, Uc, Ud or Xrc, if any.
    [[gnu::always_inline]] void visit(auto&& with) {
        if (Rc* const rc = this->rc(); rc != nullptr) [[likely]]
            return with(*rc);
        if (Mp* const mp = this->mp(); mp != nullptr) return with(*mp);
        if (Uc* const uc = this->uc(); uc != nullptr) return with(*uc);
        if (Ud* const ud = this->ud(); ud != nullptr) return with(*ud);
        if (Xrc* const xrc = this->xrc(); xrc != nullptr) return with(*xrc);
    }
    // Returns the service of the packets that it understands. Before RTR there is no such service.
    wire::Service service() const {
        static constexpr wire::Service kServices[] = {wire::Service::kCnp, wire::Service::kRc, wire::Service::kMp,
                                                      wire::Service::kUc,  wire::Service::kUd, wire::Service::kXrc};
        return kServices[protocol.index()];
    }
    // Return the PSN of the next request to send, and of the next one expected (ibv_query_qp).
    uint32_t next_psn() const;
    uint32_t expected_psn() const;
    // Makes room for the number of READs and atomics in max_rd_atomic and max_dest_rd_atomic.
    void make_room();
    bool is_connected() const { return type != IBV_QPT_UD; }
    bool has_overrun_cq() const {
        return (send_cq != nullptr && send_cq->is_overrun()) || (recv_cq != nullptr && recv_cq->is_overrun());
    }
    // XRC TGT, on its worker: makes it act as `next` from now on, with that SRQ's protection domain, receives and CQ.
    void join_xrc_srq(SharedRecvQueue& next);
    // Called when the SRQ or the QP goes away. A receive that the QP had taken is lost with it.
    void leave_xrc_srq();
    void unlink_from_xrc_srq();
    bool may_receive() const {
        const ibv_qp_state now = state.load(std::memory_order_relaxed);
        return now >= IBV_QPS_RTR && now <= IBV_QPS_SQE;  // RTR, RTS, SQD, SQE
    }
};

// Returns the worker of one of the XRC TGT QPs that act as `srq`, or nothing without such a QP. Any thread may call it.
std::optional<uint16_t> worker_of_members(SharedRecvQueue& srq);
// Makes the QPs of `worker`, which is quiesced, leave `srq`.
void dismiss_members(const WorkerQuiesced& held, SharedRecvQueue& srq, uint16_t worker);

}  // namespace rove::transport
