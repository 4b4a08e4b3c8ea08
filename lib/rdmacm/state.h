// SPDX-License-Identifier: Apache-2.0
// The inside of rdma_cm's kernel half (ucma.h): channels, ids, and what is known of them.
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

// enum rdma_cm_event_type of librdmacm, whose numbers are the kernel's.
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
    kUser = 18,  // of newer headers, as is what follows
    kInternal,
};

// RDMA_USER_CM_CMD_WRITE_CM_EVENT and struct rdma_ucm_write_cm_event, of whose last member the argument counts.
inline constexpr uint32_t kWriteCmEvent = 24;
struct WriteCmEvent {
    uint32_t id, reserved, event, status;
    uint64_t argument;
};

inline constexpr uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY: of UD ids and multicast groups

// Exponents: how long a packet lives, and how long a QP waits for its ACK, there and back. Ours wait four times that
// (IBTA 9.9.2.1.1 allows it): 4.3 s until the last of 8 tries has failed, as with Linux's 17 on a device that waits
// once. Programs whose peer has no core for two seconds lost their connection with 14.
inline constexpr uint8_t kPacketLifetime = 14, kDefaultAckTimeout = kPacketLifetime + 1;

// Of the handles of memberships, those that the kernel gave: it counts from 0 on, as we do.
inline constexpr uint32_t kKernelsMulticast = 1U << 31;

struct Id;

struct Multicast {
    uint32_t handle = 0;
    uint64_t uid = 0;
    uint32_t events_reported = 0;  // under the lock of its id's channel's queue
};

struct Event {
    bool belongs_to_kernel = false;  // nothing but this: the kernel's rdma_cm has one to be asked for
    Id* id = nullptr;                // whom librdmacm acknowledges it to
    Multicast* multicast = nullptr;  // ... and to this one, if it is of a group
    Id* request = nullptr;           // of CONNECT_REQUEST: the new id
    rdma_ucm_event_resp response{};
};

struct Channel {
    explicit Channel(int watcher) : kernel(watcher) {}

    EventQueue<Event> events;
    const KernelCm kernel;
    // Under RdmaCmServer's mutex.
    std::unordered_set<Id*> ids;  // whose events come here
    bool is_closed = false;       // a command that had begun before comes too late
    uint32_t descriptors = 1;     // that are it; under the mutex of the channels
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
    uint64_t uid = 0;  // librdmacm's; 0: of a request that was not accepted yet, whose events nobody gets
    uint16_t port_space = 0;
    ibv_qp_type qp_type = IBV_QPT_RC;
    IdState state = IdState::kIdle;
    uint32_t events_reported = 0;  // under the lock of the channel's queue
    // In the queue. Taking one out ends, with release order, what its thread does with the id.
    std::atomic<uint32_t> events_waiting{0};
    // A request's is false until its event has told of it: who guesses its handle has no such id.
    std::atomic<bool> is_known{true};

    std::optional<uint32_t> twin;    // the kernel's handle of it, where the kernel has an rdma_cm
    bool belongs_to_kernel = false;  // that one alone counts: its address is no device of ours'

    SocketAddress source, destination;
    bool reuse_address = false, ipv6_only = false;
    bool has_port = false;      // `source`'s port is in Ports
    uint8_t traffic_class = 0;  // RDMA_OPTION_ID_TOS
    std::optional<uint8_t> ack_timeout;
    std::optional<Local> local;  // nothing: no device yet
    wire::Gid remote_gid{};
    uint64_t resolves_until_ns = 0;  // in kResolving
    bool was_unbound = false;        // before RESOLVE_ADDR, to no address: and again if that fails

    cm::Id connection = cm::Id::kNone;
    uint32_t local_psn = 0;  // of our REQ or REP: where the peer begins to send
    // What INIT_QP_ATTR says; known when a REQ or REP has come.
    struct Remote {
        uint32_t qpn = 0, psn = 0;
        uint8_t path_mtu = 0;  // code
        uint8_t retry_count = 0, rnr_retry_count = 0;
        uint8_t ack_timeout = 0;
        uint8_t traffic_class = 0;
        uint32_t flow_label = 0;
    };
    std::optional<Remote> remote;
    uint8_t responder_resources = 0, initiator_depth = 0;  // ours
    uint8_t retry_count = 7, rnr_retry_count = 7;          // of our own REQ
    uint32_t qpn = 0;                                      // ours, after CONNECT or ACCEPT
    cm::Ece peer_ece;                                      // of a REQ that came
    bool offered_multipath = false;                        // by our REQ
    std::vector<std::unique_ptr<Multicast>> multicasts;

    bool is_datagram() const { return qp_type == IBV_QPT_UD; }
};

// A neighbour that has not answered yet. Ten thousand ids may wait for it, for which it is asked once.
struct Resolution {
    uint64_t due_ns = 0;                          // when something is to be done: as in RdmaCmServer::due_
    uint64_t look_ns = 0;                         // when the table is looked at next
    uint64_t wait_ns = 0;                         // ... and how long after that
    uint64_t ask_ns = 0;                          // when the neighbour is asked again
    std::set<std::pair<uint64_t, uint32_t>> ids;  // by the time at which they give up; handles
};

class RdmaCmServer final : private cm::Sink {
  public:
    static RdmaCmServer& instance();  // never destroyed: programs end while their threads wait for events

    int open_channel(int flags);
    ssize_t command(int fd, const void* data, size_t bytes);
    void close_channel(int fd);
    void duplicated(int fd, int copy);
    void communication_established(uint32_t qpn);
    void stop();
    void terminate_by_signal(int signal);

    // All of it, for a fork.
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
    using Neighbour = std::pair<size_t, wire::Gid>;  // of a device
    struct Command {
        int (RdmaCmServer::*run)(const std::shared_ptr<Channel>& channel, const Header& header, In in) = nullptr;
        size_t bytes = 0;  // behind the header, at least
        // Where among them stands the handle of the id, of those that the kernel's twin of it takes in its place.
        std::optional<size_t> id_at;
    };

    static const std::array<Command, kWriteCmEvent + 1> kCommands;

    RdmaCmServer();

    // Commands: 0 or errno. With the mutex held, but get_event().
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

    // Ids: ucma_ids.cc.
    // Null and ENOENT (no such id) or EINVAL (one of another channel).
    Id* find(const std::shared_ptr<Channel>& channel, uint32_t handle, int* error);
    Id& make_id(std::shared_ptr<Channel> channel);
    // Takes its events out of the queue and ends what it is part of. Returns the events that were reported of it.
    uint32_t destroy(Id& id);
    std::shared_ptr<Channel> channel_of(int fd);
    int bind(Id& id, const SocketAddress& address);
    int resolve(Id& id, const SocketAddress& source, const SocketAddress& destination, uint32_t timeout_ms);
    int join(Id& id, const SocketAddress& group, uint64_t uid, uint32_t* handle);
    uint32_t leave(uint32_t handle);  // of a group that there is; returns the events that were reported of it

    // Hardware beside ours: ucma_kernel.cc. 0 or errno.
    void make_twin(Id& id);
    uint32_t destroy_twin(Id& id);  // returns the events that the kernel reported of it
    int bind_twin(Id& id, const SocketAddress& address);
    int resolve_twin(Id& id, const SocketAddress& destination, uint32_t timeout_ms);
    int listen_twin(Id& id, uint32_t backlog);
    int migrate_twin(Id& id, const Channel& to, uint32_t* reported);
    bool is_forwarded(const std::shared_ptr<Channel>& channel, const Command& wanted, In in);
    int forward(const std::shared_ptr<Channel>& channel, const Header& header, In in, size_t id_at);
    int take_kernel_event(const std::shared_ptr<Channel>& channel, uint64_t response, size_t room);
    void look_at_kernel();

    // Devices: ucma_device.cc.
    // Starts the datapath, the GSIs and the thread. 0 or ENODEV.
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

    // Signals: ucma_signals.cc.
    void watch_signals();
    void disconnect_all();

    // Telemetry: ucma_telemetry.cc.
    void start_telemetry();  // with the connection manager there
    void report(rte_tel_data* data);

    // Events: ucma_events.cc.
    void push(Id& id, EventType type, int status);
    void push(Id& id, Event event, EventType type, int status);
    void push_request(const cm::Event& event, Id& listener);
    void send(const cm::Path& path, const cm::Mad& mad) override;
    void deliver(const cm::Event& event) override;
    cm::Path path_of(const Id& id) const;
    // What a REQ or REP says of our end.
    cm::Endpoint endpoint_of(const Id& id, const rdma_ucm_conn_param& given, const cm::Ece& ece) const;
    ib_uverbs_ah_attr address_of(const Id& id, const wire::Gid& destination) const;
    // After each call of the connection manager: what deliver() could not do, and the thread's deadline.
    void finish_calls();
    void set_channel(Id& id, std::shared_ptr<Channel> channel);
    void set_qpn(Id& id, uint32_t qpn);
    void forget_peer(Id& id);
    void remember_peer(Id& id, bool multipath);
    cm::Ece ece_of_reply(const Id& id, uint32_t qpn, const cm::Ece& given);

    std::mutex channels_mutex_;                         // guards what follows; may be taken with the other held
    std::map<int, std::shared_ptr<Channel>> channels_;  // by descriptor

    std::mutex mutex_;                      // guards all that follows, unless it says otherwise
    std::vector<std::unique_ptr<Id>> ids_;  // by handle
    std::set<uint32_t> free_handles_;
    std::unordered_map<uint64_t, Id*> connections_;  // by cm::Id
    std::unordered_map<uint32_t, Id*> by_qpn_;       // the last that was connected with that QP
    std::unordered_map<uint32_t, std::pair<Id*, Multicast*>> multicasts_;
    std::unordered_map<uint32_t, Id*> twins_;  // by the kernel's handle
    uint32_t next_multicast_ = 0;
    Ports ports_;
    std::map<Neighbour, Resolution> resolutions_;
    std::set<std::pair<uint64_t, Neighbour>> due_;  // of all of them
    std::vector<cm::Id> rejected_requests_;         // requests that deliver() had no use for

    bool started_ = false;
    std::atomic<datapath::Runtime*> runtime_{nullptr};  // changed with the mutex held, once
    std::vector<Interface> interfaces_;
    std::vector<std::unique_ptr<Gsi>> gsis_;  // as interfaces_
    std::optional<cm::Cm> cm_;
    int wake_fd_ = -1, timer_fd_ = -1;  // what the thread waits for beside MADs
    int kernel_fd_ = -1;                // ... and beside these: an epoll of all channels' KernelCm
    uint64_t timer_ns_ = UINT64_MAX;    // when the timer runs out
    std::atomic<int> ends_with_{0};     // the signal that ends the process; 0: none

    SpinLock established_lock_;          // guards what follows
    std::vector<uint32_t> established_;  // QPNs of COMM_EST
};

}  // namespace rove::verbs::ucma
