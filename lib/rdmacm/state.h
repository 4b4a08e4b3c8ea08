// SPDX-License-Identifier: Apache-2.0
// Internal state of rdma_cm's kernel half (server.h): channels and ids.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cm/cm.h"
#include "rdmacm/address.h"
#include "rdmacm/kernel.h"
#include "rdmacm/ports.h"
#include "verbs/event_queue.h"
#include "verbs/gsi.h"
#include "verbs/objects.h"

struct rte_tel_data;

namespace rove::verbs::ucma {

// librdmacm's enum rdma_cm_event_type, with the kernel's numbers.
enum class EventType : uint32_t {
    kAddressResolved,
    kAddressError,
    kRouteResolved,
    kRouteError,
    kConnectRequest,
    kConnectResponse,
    kConnectError,
    kUnreachable,
    kRejected,
    kEstablished,
    kDisconnected,
    kDeviceRemoval,
    kMulticastJoin,
    kMulticastError,
    kAddressChange,
    kTimeWaitExit,
    kUser = 18,  // from here on in newer headers only
    kInternal,
};

// RDMA_USER_CM_CMD_WRITE_CM_EVENT and struct rdma_ucm_write_cm_event. Only the argument of its last member is used.
inline constexpr uint32_t kWriteCmEvent = 24;
struct WriteCmEvent {
    uint32_t id, reserved, event, status;
    uint64_t argument;
};

inline constexpr uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY, for UD ids and multicast groups

// Exponents of the packet lifetime and of a QP's ACK timeout, which covers both directions. rove's QPs wait up to four
// times the timeout, as IBTA 9.9.2.1.1 permits. The last of 8 tries then fails after 4.3 s, as with Linux's 17 on a
// device that waits once. With 14, programs lost their connection if the peer had no core for two seconds.
inline constexpr uint8_t kPacketLifetime = 14, kDefaultAckTimeout = kPacketLifetime + 1;

// Marks the handles of multicast memberships that the kernel assigned, because the kernel and rove both count from 0.
inline constexpr uint32_t kKernelsMulticast = 1U << 31;

struct Id;

struct Multicast {
    uint32_t handle = 0;
    uint64_t uid = 0;
    uint32_t events_reported = 0;  // under the lock of the event queue of its id's channel
};

struct Event {
    bool belongs_to_kernel = false;  // the kernel's rdma_cm has an event to fetch; the other members are unused
    Id* id = nullptr;                // the id for which librdmacm acknowledges the event
    Multicast* multicast = nullptr;  // the group for which it does so, or null
    Id* request = nullptr;           // the new id of a CONNECT_REQUEST
    rdma_ucm_event_resp response{};
};

struct Channel {
    explicit Channel(int watcher) : kernel(watcher) {}

    EventQueue<Event> events;
    const KernelCm kernel;
    // The next two members are under RdmaCmServer's mutex.
    std::unordered_set<Id*> ids;  // the ids whose events this channel gets
    bool is_closed = false;       // refuses commands that began before the channel was closed
    uint32_t descriptors = 1;     // descriptors of the channel; under the channels' mutex
};

// The states of Linux's rdma_cm.
enum class IdState : uint8_t {
    kIdle,
    kBound,
    kResolving,
    kAddressResolved,
    kRouteResolved,
    kConnect,
    kDisconnected,
    kListen
};

struct Id {
    uint32_t handle = 0;
    std::shared_ptr<Channel> channel;
    uint64_t uid = 0;  // librdmacm's; 0 for a request that is not accepted yet, which gets no events
    uint16_t port_space = 0;
    ibv_qp_type qp_type = IBV_QPT_RC;
    IdState state = IdState::kIdle;
    uint32_t events_reported = 0;  // under the lock of the channel's event queue
    // Events in the queue. A thread that takes one decrements this with release order, after its last access to the id.
    std::atomic<uint32_t> events_waiting{0};
    // False for a request until its event has been delivered, so that a program cannot use its handle before.
    std::atomic<bool> is_known{true};

    std::optional<uint32_t> twin;    // the handle of the kernel's id, if the kernel has an rdma_cm
    bool belongs_to_kernel = false;  // only the kernel's id counts, because the address is not on a rove device

    SocketAddress source, destination;
    bool reuse_address = false, ipv6_only = false;
    bool has_port = false;      // the port of `source` is in Ports
    uint8_t traffic_class = 0;  // RDMA_OPTION_ID_TOS
    std::optional<uint8_t> ack_timeout;
    std::optional<Local> local;  // empty until the id has a device
    wire::Gid remote_gid{};
    uint64_t resolves_until_ns = 0;  // in state kResolving
    bool was_unbound = false;        // bound to no address before RESOLVE_ADDR; restored if that fails

    cm::Id connection = cm::Id::kNone;
    uint32_t local_psn = 0;  // from the own REQ or REP: the peer's first PSN
    // The peer's values for INIT_QP_ATTR, set when a REQ or REP has arrived.
    struct Remote {
        uint32_t qpn = 0, psn = 0;
        uint8_t path_mtu = 0;  // an MTU code
        uint8_t retry_count = 0, rnr_retry_count = 0;
        uint8_t ack_timeout = 0;
        uint8_t traffic_class = 0;
        uint32_t flow_label = 0;
    };
    std::optional<Remote> remote;
    uint8_t responder_resources = 0, initiator_depth = 0;  // the own values
    uint8_t retry_count = 7, rnr_retry_count = 7;          // from the own REQ
    uint32_t qpn = 0;                                      // the own QP, after CONNECT or ACCEPT
    cm::Ece peer_ece;                                      // from a received REQ
    bool offered_multipath = false;                        // in the own REQ
    std::vector<std::unique_ptr<Multicast>> multicasts;

    bool is_datagram() const { return qp_type == IBV_QPT_UD; }
};

// A neighbour that has not answered yet. Ten thousand ids may wait for it, and it is solicited once for all of them.
struct Resolution {
    uint64_t due_ns = 0;                          // the next action, as in RdmaCmServer::due_
    uint64_t look_ns = 0;                         // the next lookup in the neighbour table
    uint64_t wait_ns = 0;                         // the wait from there to the lookup after it
    uint64_t ask_ns = 0;                          // the next solicitation
    std::set<std::pair<uint64_t, uint32_t>> ids;  // give-up time and handle of each id
};

class RdmaCmServer final : private cm::Sink {
  public:
    // Returns the server. It is never destroyed, because programs end while their threads wait for events.
    static RdmaCmServer& instance();

    int open_channel(int flags);
    ssize_t command(int fd, const void* data, size_t bytes);
    void close_channel(int fd);
    void duplicated(int fd, int copy);
    void communication_established(uint32_t qpn);
    void stop();
    void terminate_by_signal(int signal);

    // Locks everything for a fork.
    void lock() {
        mutex_.lock();
        channels_mutex_.lock();
    }
    void unlock() {
        channels_mutex_.unlock();
        mutex_.unlock();
    }

  private:
    using In = std::span<const uint8_t>;
    using Header = rdma_ucm_cmd_hdr;
    using Neighbour = std::pair<size_t, wire::Gid>;  // device and next hop
    struct Command {
        int (RdmaCmServer::*run)(const std::shared_ptr<Channel>& channel, const Header& header, In in) = nullptr;
        size_t bytes = 0;  // minimum length after the header
        // The offset of the id's handle after the header, for commands that can be forwarded with the handle of the
        // kernel's id.
        std::optional<size_t> id_at;
    };

    static const std::array<Command, kWriteCmEvent + 1> kCommands;

    RdmaCmServer();

    // Commands return 0 or an errno value. All but get_event() are called with the mutex held.
    int create_id(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int destroy_id(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int bind_ip(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int bind(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int resolve_ip(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int resolve_addr(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int resolve_route(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int query_route(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int query(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int connect(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int listen(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int accept(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int reject(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int disconnect(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int init_qp_attr(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int set_option(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int notify(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int join_ip_mcast(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int join_mcast(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int leave_mcast(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int write_cm_event(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int migrate_id(const std::shared_ptr<Channel>& channel, const Header& header, In in);
    int get_event(const std::shared_ptr<Channel>& channel, const Header& header, In in);

    // Ids (ids.cc).
    //
    // Returns the id, or null with *error = ENOENT (no such id) or EINVAL (an id of another channel).
    Id* find(const std::shared_ptr<Channel>& channel, uint32_t handle, int* error);
    Id& make_id(std::shared_ptr<Channel> channel);
    // Removes an id with its events and connection. Returns the number of events reported for it.
    uint32_t destroy(Id& id);
    std::shared_ptr<Channel> channel_of(int fd);
    int bind(Id& id, const SocketAddress& address);
    int resolve(Id& id, const SocketAddress& source, const SocketAddress& destination, uint32_t timeout_ms);
    int join(Id& id, const SocketAddress& group, uint64_t uid, uint32_t* handle);
    // Leaves a group that must exist. Returns the number of events reported for it.
    uint32_t leave(uint32_t handle);

    // Ids of hardware devices (kernel.cc). Functions return 0 or an errno value unless noted.
    void make_twin(Id& id);
    // Returns the number of events that the kernel reported for the id.
    uint32_t destroy_twin(Id& id);
    int bind_twin(Id& id, const SocketAddress& address);
    int resolve_twin(Id& id, const SocketAddress& destination, uint32_t timeout_ms);
    int listen_twin(Id& id, uint32_t backlog);
    int migrate_twin(Id& id, const Channel& to, uint32_t* reported);
    bool is_forwarded(const std::shared_ptr<Channel>& channel, const Command& wanted, In in);
    int forward(const std::shared_ptr<Channel>& channel, const Header& header, In in, size_t id_at);
    int take_kernel_event(const std::shared_ptr<Channel>& channel, uint64_t response, size_t room);
    void look_at_kernel();

    // Devices (device.cc).
    //
    // Starts the datapath, the GSIs and the thread `rove-cm` unless they run. Returns 0, or an errno value such as
    // ENODEV.
    int need_devices();
    Device& device(const Id& id) const;
    const wire::Gid& local_gid(const Id& id) const;
    uint8_t mtu_code(const Id& id) const;
    uint64_t now_ns() const;
    void run();
    void wake();
    void work();
    void wake_at(uint64_t deadline_ns);
    bool is_resolved(const Id& id);
    Neighbour neighbour_of(const Id& id) const;
    void start_resolution(Id& id, uint32_t timeout_ms);
    void stop_resolution(const Id& id);
    void look_at_resolutions();

    // Signals (signals.cc).
    void watch_signals();
    void disconnect_all();

    // Telemetry (telemetry.cc).
    void start_telemetry();  // the connection manager must exist
    void report(rte_tel_data* data);

    // Events (events.cc).
    void push(Id& id, EventType type, int status);
    void push(Id& id, Event event, EventType type, int status);
    void push_request(const cm::Event& event, Id& listener);
    void send(const cm::Path& path, const cm::Mad& mad) override;
    void deliver(const cm::Event& event) override;
    cm::Path path_of(const Id& id) const;
    // Returns the own end for a REQ or REP.
    cm::Endpoint endpoint_of(const Id& id, const rdma_ucm_conn_param& given, const cm::Ece& ece) const;
    ib_uverbs_ah_attr address_of(const Id& id, const wire::Gid& destination) const;
    // Does what deliver() could not, and sets the thread's timer. Called after each call of the connection manager.
    void finish_calls();
    void set_channel(Id& id, std::shared_ptr<Channel> channel);
    void set_qpn(Id& id, uint32_t qpn);
    void forget_peer(Id& id);
    void remember_peer(Id& id, bool multipath);
    cm::Ece ece_of_reply(const Id& id, uint32_t qpn, const cm::Ece& given);

    std::mutex channels_mutex_;                         // guards the channels; may be locked while mutex_ is held
    std::map<int, std::shared_ptr<Channel>> channels_;  // the key is the descriptor

    std::mutex mutex_;                      // guards the members below unless they say otherwise
    std::vector<std::unique_ptr<Id>> ids_;  // the position is the handle
    std::set<uint32_t> free_handles_;
    std::unordered_map<uint64_t, Id*> connections_;  // the key is the cm::Id
    std::unordered_map<uint32_t, Id*> by_qpn_;       // the id that was last connected with each QP
    std::unordered_map<uint32_t, std::pair<Id*, Multicast*>> multicasts_;
    std::unordered_map<uint32_t, Id*> twins_;  // the key is the kernel's handle
    uint32_t next_multicast_ = 0;
    Ports ports_;
    std::map<Neighbour, Resolution> resolutions_;
    std::set<std::pair<uint64_t, Neighbour>> due_;  // the due times of all resolutions
    std::vector<cm::Id> rejected_requests_;         // requests that deliver() did not accept

    bool started_ = false;
    std::atomic<datapath::Runtime*> runtime_{nullptr};  // set once, with the mutex held
    std::vector<Interface> interfaces_;
    std::vector<std::unique_ptr<Gsi>> gsis_;  // in the order of interfaces_
    std::optional<cm::Cm> cm_;
    int wake_fd_ = -1, timer_fd_ = -1;  // descriptors that wake the thread, as MADs do
    int kernel_fd_ = -1;                // another one: an epoll set of all channels' KernelCm
    uint64_t timer_ns_ = UINT64_MAX;    // the time at which the timer expires
    std::atomic<int> ends_with_{0};     // the signal that ends the process, or 0

    SpinLock established_lock_;          // guards established_
    std::vector<uint32_t> established_;  // QPNs with a COMM_EST event
};

}  // namespace rove::verbs::ucma
