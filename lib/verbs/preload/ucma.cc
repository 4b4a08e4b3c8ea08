// SPDX-License-Identifier: Apache-2.0
// Channels, and which command is which. See ucma.h.
#include "verbs/preload/ucma.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "verbs/preload/provider.h"
#include "verbs/preload/ucma_state.h"

namespace rove::verbs::ucma {

namespace {

constexpr int kMaxFds = 1 << 20;  // Linux's default for a process (fs.nr_open)

// Which descriptors are channels. A page of it is there when a bit in it was set.
constinit std::array<std::atomic<uint64_t>, kMaxFds / 64> channel_bits{};
constinit std::atomic<bool> stopped{false};

// Relaxed: a program that uses a descriptor in another thread has told that thread of it.
void mark(int fd, bool channel) {
    const uint64_t bit = uint64_t{1} << (fd % 64);
    std::atomic<uint64_t>& word = channel_bits[static_cast<size_t>(fd / 64)];
    channel ? word.fetch_or(bit, std::memory_order_relaxed) : word.fetch_and(~bit, std::memory_order_relaxed);
}

constexpr auto kStopsWithin =
    std::chrono::milliseconds(100);  // an exit() in a signal's handler may find the mutex held

}  // namespace

// By number; null: refused as a kernel does that has not got it (GET_OPTION never had an implementation).
const std::array<Ucma::Command, 23> Ucma::kCommands = {
    &Ucma::create_id,   &Ucma::destroy_id,    &Ucma::bind_ip,     &Ucma::resolve_ip, &Ucma::resolve_route,
    &Ucma::query_route, &Ucma::connect,       &Ucma::listen,      &Ucma::accept,     &Ucma::reject,
    &Ucma::disconnect,  &Ucma::init_qp_attr,  &Ucma::get_event,   nullptr,           &Ucma::set_option,
    &Ucma::notify,      &Ucma::join_ip_mcast, &Ucma::leave_mcast, &Ucma::migrate_id, &Ucma::query,
    &Ucma::bind,        &Ucma::resolve_addr,  &Ucma::join_mcast,
};

Ucma::Ucma() : ports_(std::random_device{}()) {}

Ucma& Ucma::instance() {
    static auto& ucma = *new Ucma;
    return ucma;
}

int Ucma::open_channel() {
    auto channel = std::make_shared<Channel>();
    const int fd = channel->events.fd();
    if (fd < 0) return -1;
    if (fd >= kMaxFds) {
        errno = EMFILE;
        return -1;
    }
    const std::lock_guard guard(channels_mutex_);
    channels_[fd] = std::move(channel);
    mark(fd, true);
    return fd;
}

std::shared_ptr<Channel> Ucma::channel_of(int fd) {
    const std::lock_guard guard(channels_mutex_);
    const auto found = channels_.find(fd);
    return found != channels_.end() ? found->second : nullptr;
}

ssize_t Ucma::command(int fd, const void* data, size_t bytes) {
    rdma_ucm_cmd_hdr header;
    const auto fail = [](int error) {
        errno = error;
        return -1;
    };
    if (provider().is_forked_child()) return fail(ENODEV);
    if (bytes < sizeof(header)) return fail(EINVAL);
    std::memcpy(&header, data, sizeof(header));
    if (header.in + sizeof(header) > bytes || header.cmd >= kCommands.size()) return fail(EINVAL);
    const Command run = kCommands[header.cmd];
    if (run == nullptr) return fail(ENOSYS);
    const In in(static_cast<const uint8_t*>(data) + sizeof(header), header.in);
    // As in the kernel, whoever has begun a command keeps the channel; closing it does not end a wait for events.
    const std::shared_ptr<Channel> channel = channel_of(fd);
    if (channel == nullptr) {
        end_with_process(data, bytes);
        return fail(EBADF);
    }
    int error;
    if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
        error = get_event(channel, header, in);
    } else {
        const std::lock_guard guard(mutex_);
        error = (this->*run)(channel, header, in);
        finish_calls();
    }
    return error == 0 ? static_cast<ssize_t>(bytes) : fail(error);
}

void Ucma::close_channel(int fd) {
    std::shared_ptr<Channel> channel;
    {
        const std::lock_guard guard(channels_mutex_);
        const auto found = channels_.find(fd);
        if (found == channels_.end()) return;
        channel = std::move(found->second);
        channels_.erase(found);
        mark(fd, false);
    }
    const std::lock_guard guard(mutex_);
    // No event refers to an id any more when the ids go.
    channel->events.drop([](const Event&) { return true; });
    for (const auto& id : ids_)
        if (id != nullptr && id->channel == channel) destroy(*id);
    finish_calls();
    channel->events.close();
}

int Ucma::get_event(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    rdma_ucm_get_event command{};
    std::memcpy(&command, in.data(), std::min(in.size(), sizeof(command)));
    // A librdmacm from before ECE has no room for that.
    if (header.out < offsetof(rdma_ucm_event_resp, reserved)) return ENOSPC;
    // Whoever is about to sleep leaves the datapath to others.
    datapath::Runtime* const runtime = runtime_.load(std::memory_order_acquire);
    if (runtime != nullptr && (fcntl(channel->events.fd(), F_GETFL) & O_NONBLOCK) == 0) runtime->hand_over();
    Event event;
    cm::Id request = cm::Id::kNone;
    const int error = channel->events.pop(&event, [&](const Event& delivered) {
        if (delivered.request != nullptr) request = delivered.request->connection;
        ++delivered.id->events_reported;
        if (delivered.multicast != nullptr) ++delivered.multicast->events_reported;
    });
    if (error != 0) return error;
    if (request != cm::Id::kNone) {
        const std::lock_guard guard(mutex_);
        cm_->taken(request);    // there is room for another in the backlog
    }
    std::memcpy(reinterpret_cast<void*>(command.response), &event.response,
                std::min<size_t>(header.out, sizeof(event.response)));
    return 0;
}

void Ucma::communication_established(uint32_t qpn) {
    {
        const std::lock_guard guard(established_lock_);
        established_.push_back(qpn);
    }
    wake();
}

void Ucma::stop() {
    const auto until = std::chrono::steady_clock::now() + kStopsWithin;
    std::unique_lock lock(mutex_, std::defer_lock);
    while (!lock.try_lock()) {
        if (std::chrono::steady_clock::now() > until) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stopped.store(true);
    if (!started_) return;
    for (const auto& id : ids_)
        if (id != nullptr) id->channel->events.drop([](const Event&) { return true; });
    for (const auto& id : ids_)
        if (id != nullptr) destroy(*id);
    finish_calls();
}

bool is_channel(int fd) {
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMaxFds)) return false;
    return (channel_bits[static_cast<size_t>(fd / 64)].load(std::memory_order_relaxed) >> (fd % 64) & 1) != 0;
}

void end_with_process(const void* data, size_t bytes) {
    rdma_ucm_cmd_hdr header;
    if (!stopped.load() || bytes != sizeof(header) + sizeof(rdma_ucm_get_event)) return;
    std::memcpy(&header, data, sizeof(header));
    while (header.cmd == RDMA_USER_CM_CMD_GET_EVENT && header.in == sizeof(rdma_ucm_get_event)) pause();
}

int open_channel() {
    return Ucma::instance().open_channel();
}

ssize_t command(int fd, const void* data, size_t bytes) {
    return Ucma::instance().command(fd, data, bytes);
}

void close_channel(int fd) {
    Ucma::instance().close_channel(fd);
}

void communication_established(uint32_t qpn) {
    Ucma::instance().communication_established(qpn);
}

void before_fork() {
    Ucma::instance().lock();
}

void after_fork() {
    Ucma::instance().unlock();
}

void stop() {
    Ucma::instance().stop();
}

}  // namespace rove::verbs::ucma
