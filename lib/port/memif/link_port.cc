// SPDX-License-Identifier: Apache-2.0
#include "port/memif/link_port.h"

#include <fcntl.h>
#include <rte_common.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/dpdk_files.h"

namespace rove::datapath {

namespace {

// A ring has 512 slots: 2 MiB of large frames, half a MiB of 1 KiB frames. If a buffer is used again while it is in the
// peer's second-level cache, each line costs a round trip to the peer. Once it has left that cache, the line comes from
// the third level. 1 MiB WRITEs between near cores, in Gb/s, with 64, 256, 512, 1024 slots: at MTU 4096 55, 145, 166,
// 177; at MTU 1024 38, 47, 84, 90.
constexpr uint8_t kLog2Slots = 9;

constexpr size_t kMaxHandshakes = 64;  // at once, for those begun by other processes

FileDescriptor take_spare() {
    return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void add(PortStatistics& sum, const RingSender* sender, const RingReceiver* receiver) {
    if (receiver != nullptr) {
        sum.rx_frames += receiver->frames();
        sum.rx_bytes += receiver->bytes();
        sum.rx_errors += receiver->errors();
        sum.rx_no_mbuf += receiver->no_mbuf();
    }
    if (sender != nullptr) {
        sum.tx_frames += sender->frames();
        sum.tx_bytes += sender->bytes();
    }
}

}  // namespace

ucred peer_of(int socket) {
    ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
    socklen_t bytes = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    return peer;
}

bool make_room_for_files(int file) {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
    if (file >= 0 && static_cast<rlim_t>(file) < limit.rlim_cur - limit.rlim_cur / 4) return true;
    if (limit.rlim_cur >= limit.rlim_max) return false;
    // The limit is not raised to the hard limit at once, because programs close all descriptors up to the soft limit
    // when they start others.
    limit.rlim_cur = std::min(limit.rlim_max, 2 * limit.rlim_cur);
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Records the socket so that a forked child closes it. The peer has to see the end of this process, not that of the
// child.
LinkPort::Link::Link(LinkId number, int socket, const MemifConnection::Settings& settings)
    : id(number),
      connection(libc::record_file(socket), settings),
      file(socket),
      role(settings.role),
      mesh(settings.mesh),
      user(peer_of(socket)),
      bell(settings.bell) {}

LinkPort::LinkPort(uint16_t id, const PortEnvironment& environment)
    : Port(id), environment_(environment), spare_(take_spare()) {}

MemifConnection::Settings LinkPort::settings(MemifConnection::Role role) const {
    MemifConnection::Settings settings{.role = role};
    settings.log2_slots = kLog2Slots;
    settings.buffer_bytes = RTE_CACHE_LINE_ROUNDUP(environment_.frame_bytes);
    return settings;
}

LinkPort::Link& LinkPort::begin(int socket, const MemifConnection::Settings& settings) {
    const LinkId id = next_id_++;
    Link& link = links_.try_emplace(id, id, socket, settings).first->second;
    environment_.poller.add(link.file, [this, id] { advance(id); });
    return link;
}

FileDescriptor LinkPort::take_connection(int listener) {
    const auto take = [&] { return FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); };
    FileDescriptor socket = take();
    if (!socket.is_open() && (errno == EMFILE || errno == ENFILE)) {
        if (make_room_for_files(-1)) {
            socket = take();
        } else {
            // A process that is left waiting in the queue would wake us over and over. So it is turned away, and may
            // try again.
            spare_ = {};
            take();
            spare_ = take_spare();
        }
    }
    if (!socket.is_open()) return socket;
    make_room_for_files(socket.get());
    std::map<pid_t, size_t> handshakes;
    size_t all = 0;
    const auto is_unfinished = [](const Link& link) {
        return link.role == MemifConnection::Role::kServer && !link.is_connected();
    };
    for (const auto& [id, link] : links_)
        if (is_unfinished(link)) ++handshakes[link.user.pid], ++all;
    if (all >= kMaxHandshakes) {
        const pid_t busiest =
            std::ranges::max_element(handshakes, {}, [](const auto& one) { return one.second; })->first;
        end(std::ranges::find_if(links_, [&](const auto& one) {
                return is_unfinished(one.second) && one.second.user.pid == busiest;
            })->second);
    }
    return socket;
}

void LinkPort::advance(LinkId id) {
    const Lock lock(mutex_);
    const auto found = links_.find(id);
    if (found == links_.end()) return;  // it was ended while the event loop was about to call
    Link& link = found->second;
    const MemifConnection::State state = link.connection.advance();
    if (state == MemifConnection::State::kClosed) return end(link);
    if (state != MemifConnection::State::kConnected || link.is_connected()) return;
    const bool is_client = link.role == MemifConnection::Role::kClient;
    if (is_client || !link.mesh) link.sender = std::make_unique<RingSender>(link.connection, link.role);
    if (!is_client || !link.mesh)
        link.receiver = std::make_unique<RingReceiver>(link.connection, link.role, environment_.pool);
    if (link.mesh && !is_client) environment_.poller.await_end_only(link.file);
    if (!connected(link)) end(link);
}

void LinkPort::attach(Link& link) {
    link.attached = true;
    environment_.user.attach(*this, link.rings());
    if (link.receiver != nullptr) {
        environment_.poller.add_doorbell(link.mesh ? link.file : link.receiver->doorbell(),
                                         link.mesh ? EventLoop::Doorbell::kMessage : EventLoop::Doorbell::kEventfd);
        environment_.poller.ring();  // a thread that sleeps does not know this ring yet
    }
    environment_.user.ports_changed();
}

void LinkPort::end(Link& link) {
    environment_.poller.remove(link.file);
    if (link.attached) {
        if (link.receiver != nullptr)
            environment_.poller.remove_doorbell(link.mesh ? link.file : link.receiver->doorbell());
        environment_.user.detach(*this, link.rings());
        add(gone_, link.sender.get(), link.receiver.get());
    }
    disconnected(link);
    links_.erase(link.id);
    environment_.user.ports_changed();
}

void LinkPort::end_all() {
    while (!links_.empty()) end(links_.begin()->second);
}

// Disconnects the links but keeps their memory, because application threads may be inside any call until the process
// has ended.
void LinkPort::close_all() {
    for (auto& [id, link] : links_) {
        environment_.poller.remove(link.file);
        link.connection.disconnect("the process ends");
    }
}

PortStatistics LinkPort::statistics() const {
    const Lock lock(mutex_);
    PortStatistics sum = gone_;
    for (const auto& [id, link] : links_) add(sum, link.sender.get(), link.receiver.get());
    return sum;
}

}  // namespace rove::datapath
