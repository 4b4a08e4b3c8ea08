// SPDX-License-Identifier: Apache-2.0
#include "datapath/ports/link_port.h"

#include <fcntl.h>
#include <rte_common.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rove::datapath {

namespace {

// 512 frames: 2 MiB of large ones, half a MiB of 1 KiB. A buffer that comes round again while it is still in the peer's
// second cache costs a way to the peer a line; one that has fallen out of it is had from the third. 1 MiB WRITEs near,
// in Gb/s, with 64, 256, 512, 1024 slots: at MTU 4096 55, 145, 166, 177; at MTU 1024 38, 47, 84, 90.
constexpr uint8_t kLog2Slots = 9;

constexpr std::ptrdiff_t kMostHandshakes = 64;  // at once, of those that others have begun

FileDescriptor take_spare() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void add(PortStatistics& sum, const RingSender* sender, const RingReceiver* receiver) {
    if (sender == nullptr) return;
    sum.rx_frames += receiver->frames();
    sum.rx_bytes += receiver->bytes();
    sum.rx_errors += receiver->errors();
    sum.rx_no_mbuf += receiver->no_mbuf();
    sum.tx_frames += sender->frames();
    sum.tx_bytes += sender->bytes();
}

}  // namespace

LinkPort::LinkPort(uint16_t id, const Environment& environment)
    : Port(id), environment_(environment), spare_(take_spare()) {}

MemifConnection::Settings LinkPort::settings(MemifConnection::Role role) const {
    MemifConnection::Settings settings{.role = role};
    settings.log2_slots = kLog2Slots;
    settings.buffer_bytes = RTE_CACHE_LINE_ROUNDUP(environment_.frame_bytes);
    return settings;
}

LinkPort::Link& LinkPort::begin(int socket, const MemifConnection::Settings& settings) {
    Link& link = links_.emplace_back(socket, settings);
    environment_.poller.add(link.file, [this, &link] { advance(link); });
    return link;
}

void LinkPort::accept(int listener, const MemifConnection::Settings& settings) {
    const auto take = [&] {
        return FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    };
    FileDescriptor socket = take();
    if (!socket.is_open()) {
        if (errno != EMFILE && errno != ENFILE) return;
        // Who is left waiting there would wake us over and over: he is turned away, and may try again.
        spare_ = {};
        take();
        spare_ = take_spare();
        return;
    }
    const auto is_silent = [](const Link& link) {
        return link.role == MemifConnection::Role::kServer && link.sender == nullptr;
    };
    if (std::count_if(links_.begin(), links_.end(), is_silent) >= kMostHandshakes)
        end(*std::find_if(links_.begin(), links_.end(), is_silent));
    begin(socket.release(), settings);
}

void LinkPort::advance(Link& link) {
    const Lock lock(mutex_);
    const MemifConnection::State state = link.connection.advance();
    if (state == MemifConnection::State::kClosed) return end(link);
    if (state != MemifConnection::State::kConnected || link.sender != nullptr) return;
    if (!has_place()) return end(link);
    link.sender = std::make_unique<RingSender>(link.connection, link.role);
    link.receiver = std::make_unique<RingReceiver>(link.connection, link.role, environment_.pool);
    connected(link);
    environment_.user.attach(*this, link.outlet, link.peer, *link.sender, *link.receiver);
    environment_.poller.add_doorbell(link.receiver->doorbell(), Poller::Doorbell::kEventfd);
    environment_.user.ports_changed();
}

void LinkPort::end(Link& link) {
    environment_.poller.remove(link.file);
    if (link.sender != nullptr) {
        environment_.poller.remove_doorbell(link.receiver->doorbell());
        environment_.user.detach(*this, link.outlet, *link.receiver);
        add(gone_, link.sender.get(), link.receiver.get());
    }
    disconnected(link);
    links_.remove_if([&](const Link& one) { return &one == &link; });
    environment_.user.ports_changed();
}

// The memory stays: application threads may be inside of any call until the process has ended.
void LinkPort::close_all() {
    for (Link& link : links_) {
        environment_.poller.remove(link.file);
        link.connection.disconnect("the process ends");
    }
}

PortStatistics LinkPort::statistics() const {
    const Lock lock(mutex_);
    PortStatistics sum = gone_;
    for (const Link& link : links_) add(sum, link.sender.get(), link.receiver.get());
    return sum;
}

void LinkPort::after_fork_in_child() {
    if (!mutex_.try_lock()) return;
    for (const Link& link : links_) ::close(link.file);
    mutex_.unlock();
}

}  // namespace rove::datapath
