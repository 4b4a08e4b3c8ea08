// SPDX-License-Identifier: Apache-2.0
// Channels, and the table of commands. See server.h.
#include "rdmacm/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/libc.h"
#include "rdmacm/commands.h"
#include "rdmacm/state.h"
#include "verbs/process_provider.h"

namespace rove::verbs::ucma {

namespace {

// A bit for each descriptor that is a channel. A page of it exists once a bit in it was set.
constinit std::array<std::atomic<uint64_t>, kMaxFds / 64> channel_bits{};
constinit std::atomic<bool> stopped{false};
constinit std::atomic<pid_t> owner{0};  // 0 until a channel is opened

// Relaxed, because a program that passes a descriptor to another thread synchronises with it.
void mark(int fd, bool channel) {
    const uint64_t bit = uint64_t{1} << (fd % 64);
    std::atomic<uint64_t>& word = channel_bits[static_cast<size_t>(fd / 64)];
    channel ? word.fetch_or(bit, std::memory_order_relaxed) : word.fetch_and(~bit, std::memory_order_relaxed);
}

constexpr size_t kLongestCommand = sizeof(rdma_ucm_accept);

// The limit for getting the mutex, which an exit() in a signal handler may find held.
constexpr auto kStopsWithin = std::chrono::milliseconds(100);

}  // namespace

// The commands by number. One without a function is refused as by a kernel without it: GET_OPTION never had an
// implementation, and RESOLVE_IB_SERVICE (23) asks the subnet manager, which RoCE does not have. A librdmacm from
// before ECE does not send the end of two commands.
const std::array<RdmaCmServer::Command, kWriteCmEvent + 1> RdmaCmServer::kCommands = {{
    {&RdmaCmServer::create_id, sizeof(rdma_ucm_create_id)},
    {&RdmaCmServer::destroy_id, sizeof(rdma_ucm_destroy_id)},
    {&RdmaCmServer::bind_ip, sizeof(rdma_ucm_bind_ip), offsetof(rdma_ucm_bind_ip, id)},
    {&RdmaCmServer::resolve_ip, sizeof(rdma_ucm_resolve_ip), offsetof(rdma_ucm_resolve_ip, id)},
    {&RdmaCmServer::resolve_route, sizeof(rdma_ucm_resolve_route), offsetof(rdma_ucm_resolve_route, id)},
    {&RdmaCmServer::query_route, sizeof(rdma_ucm_query), offsetof(rdma_ucm_query, id)},
    {&RdmaCmServer::connect, offsetof(rdma_ucm_connect, ece), offsetof(rdma_ucm_connect, id)},
    {&RdmaCmServer::listen, sizeof(rdma_ucm_listen), offsetof(rdma_ucm_listen, id)},
    {&RdmaCmServer::accept, offsetof(rdma_ucm_accept, ece), offsetof(rdma_ucm_accept, id)},
    {&RdmaCmServer::reject, sizeof(rdma_ucm_reject), offsetof(rdma_ucm_reject, id)},
    {&RdmaCmServer::disconnect, sizeof(rdma_ucm_disconnect), offsetof(rdma_ucm_disconnect, id)},
    {&RdmaCmServer::init_qp_attr, sizeof(rdma_ucm_init_qp_attr), offsetof(rdma_ucm_init_qp_attr, id)},
    {&RdmaCmServer::get_event, sizeof(rdma_ucm_get_event)},
    {},
    {&RdmaCmServer::set_option, sizeof(rdma_ucm_set_option), offsetof(rdma_ucm_set_option, id)},
    {&RdmaCmServer::notify, sizeof(rdma_ucm_notify), offsetof(rdma_ucm_notify, id)},
    {&RdmaCmServer::join_ip_mcast, sizeof(rdma_ucm_join_ip_mcast), offsetof(rdma_ucm_join_ip_mcast, id)},
    {&RdmaCmServer::leave_mcast, sizeof(rdma_ucm_destroy_id)},
    {&RdmaCmServer::migrate_id, sizeof(rdma_ucm_migrate_id)},
    {&RdmaCmServer::query, sizeof(rdma_ucm_query), offsetof(rdma_ucm_query, id)},
    {&RdmaCmServer::bind, sizeof(rdma_ucm_bind), offsetof(rdma_ucm_bind, id)},
    {&RdmaCmServer::resolve_addr, sizeof(rdma_ucm_resolve_addr), offsetof(rdma_ucm_resolve_addr, id)},
    {&RdmaCmServer::join_mcast, sizeof(rdma_ucm_join_mcast), offsetof(rdma_ucm_join_mcast, id)},
    {},
    {&RdmaCmServer::write_cm_event, sizeof(WriteCmEvent), offsetof(WriteCmEvent, id)},
}};

RdmaCmServer::RdmaCmServer() : ports_(std::random_device{}()) {}

RdmaCmServer& RdmaCmServer::instance() {
    static auto& ucma = *new RdmaCmServer;
    return ucma;
}

int RdmaCmServer::open_channel(int flags) {
    const std::lock_guard guard(channels_mutex_);
    if (kernel_fd_ < 0) kernel_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (kernel_fd_ < 0) return -1;
    auto channel = std::make_shared<Channel>(kernel_fd_);
    const int fd = channel->events.fd();
    if (fd < 0) return -1;
    if ((flags & O_NONBLOCK) != 0) fcntl(fd, F_SETFL, O_NONBLOCK);
    if (fd >= kMaxFds) {
        errno = EMFILE;
        return -1;
    }
    channels_[fd] = std::move(channel);
    owner.store(getpid());
    mark(fd, true);
    return fd;
}

std::shared_ptr<Channel> RdmaCmServer::channel_of(int fd) {
    const std::lock_guard guard(channels_mutex_);
    const auto found = channels_.find(fd);
    return found != channels_.end() ? found->second : nullptr;
}

ssize_t RdmaCmServer::command(int fd, const void* data, size_t bytes) {
    struct {
        rdma_ucm_cmd_hdr header;
        std::array<uint8_t, kLongestCommand> in;  // a newer librdmacm may send longer commands
    } copy;
    const rdma_ucm_cmd_hdr& header = copy.header;
    const auto fail = [](int error) {
        errno = error;
        return -1;
    };
    if (provider().is_forked_child()) return fail(ENODEV);
    if (bytes < sizeof(header)) return fail(EINVAL);
    const size_t copied =
        copy_some_in(&copy, reinterpret_cast<uintptr_t>(data), std::min(bytes, sizeof(header) + copy.in.size()));
    if (copied < sizeof(header)) return fail(EFAULT);
    if (header.in + sizeof(header) > bytes || header.cmd >= kCommands.size()) return fail(EINVAL);
    const Command& wanted = kCommands[header.cmd];
    if (wanted.run == nullptr) return fail(ENOSYS);
    if (header.in < wanted.bytes) return fail(EINVAL);
    const std::span<const uint8_t> in(copy.in.data(), std::min<size_t>(header.in, copy.in.size()));
    if (copied < sizeof(header) + in.size()) return fail(EFAULT);
    // A thread that has begun a command keeps the channel alive, as in the kernel. Closing the channel does not end a
    // wait for events.
    const std::shared_ptr<Channel> channel = channel_of(fd);
    if (channel == nullptr) {
        end_with_process(data, bytes);
        return fail(EBADF);
    }
    int error;
    if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
        error = get_event(channel, header, in);
    } else {
        const libc::NoCancellation uncancelled;
        const std::lock_guard guard(mutex_);
        error = channel->is_closed                  ? EBADF
                : is_forwarded(channel, wanted, in) ? forward(channel, header, in, *wanted.id_at)
                                                    : (this->*wanted.run)(channel, header, in);
        finish_calls();
    }
    return error == 0 ? static_cast<ssize_t>(bytes) : fail(error);
}

void RdmaCmServer::close_channel(int fd) {
    const libc::NoCancellation uncancelled;
    std::shared_ptr<Channel> channel;
    {
        const std::lock_guard guard(channels_mutex_);
        const auto found = channels_.find(fd);
        if (found == channels_.end()) return;
        channel = std::move(found->second);
        channels_.erase(found);
        mark(fd, false);
        if (--channel->descriptors != 0) {
            const auto other = std::find_if(channels_.begin(), channels_.end(),
                                            [&](const auto& entry) { return entry.second == channel; });
            channel->events.use(other->first);
            ::close(fd);
            return;
        }
    }
    const std::lock_guard guard(mutex_);
    channel->is_closed = true;
    // The events are removed first, so that no event refers to a destroyed id.
    channel->events.drop([](const Event&) { return true; });
    while (!channel->ids.empty()) destroy(**channel->ids.begin());
    finish_calls();
    channel->events.close();
}

void RdmaCmServer::duplicated(int fd, int copy) {
    const std::lock_guard guard(channels_mutex_);
    const auto found = channels_.find(fd);
    if (found == channels_.end() || copy >= kMaxFds) return;
    channels_[copy] = found->second;
    ++found->second->descriptors;
    mark(copy, true);
}

int RdmaCmServer::get_event(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_get_event>(in);
    // A librdmacm from before ECE has no room for the end of the response.
    if (header.out < offsetof(rdma_ucm_event_resp, reserved)) return ENOSPC;
    // A thread that is about to sleep hands the datapath over to other threads.
    datapath::Runtime* const runtime = runtime_.load(std::memory_order_acquire);
    if (runtime != nullptr && (fcntl(channel->events.fd(), F_GETFL) & O_NONBLOCK) == 0) runtime->hand_over();
    Event event;
    cm::Id request = cm::Id::kNone;
    const auto deliver = [&](const Event& delivered) {
        if (delivered.belongs_to_kernel) return 0;
        const int failed =
            copy_out(command.response, &delivered.response, std::min<size_t>(header.out, sizeof(delivered.response)));
        if (failed != 0) return failed;
        if (delivered.request != nullptr) {
            request = delivered.request->connection;
            delivered.request->is_known.store(true, std::memory_order_release);
        }
        if (delivered.multicast != nullptr) ++delivered.multicast->events_reported;
        ++delivered.id->events_reported;
        delivered.id->events_waiting.fetch_sub(1, std::memory_order_release);
        return 0;
    };
    do {
        if (const int error = channel->events.pop(&event, deliver); error != 0) return error;
        if (!event.belongs_to_kernel) break;
        const int error = take_kernel_event(channel, command.response, header.out);
        if (error != EAGAIN) return error;
    } while (true);
    if (request != cm::Id::kNone) {
        const std::lock_guard guard(mutex_);
        cm_->taken(request);  // the backlog has room for another request
    }
    return 0;
}

void RdmaCmServer::communication_established(uint32_t qpn) {
    {
        const std::lock_guard guard(established_lock_);
        established_.push_back(qpn);
    }
    wake();
}

void RdmaCmServer::stop() {
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
    if (copy_in(&header, reinterpret_cast<uintptr_t>(data), sizeof(header)) != 0) return;
    while (header.cmd == RDMA_USER_CM_CMD_GET_EVENT && header.in == sizeof(rdma_ucm_get_event)) pause();
}

int open_channel(int flags) {
    return RdmaCmServer::instance().open_channel(flags);
}

ssize_t command(int fd, const void* data, size_t bytes) {
    return RdmaCmServer::instance().command(fd, data, bytes);
}

void close_channel(int fd) {
    RdmaCmServer::instance().close_channel(fd);
}

void duplicated(int fd, int copy) {
    RdmaCmServer::instance().duplicated(fd, copy);
}

bool is_owner() {
    return getpid() == owner.load();
}

void communication_established(uint32_t qpn) {
    RdmaCmServer::instance().communication_established(qpn);
}

void terminate_by_signal(int signal) {
    RdmaCmServer::instance().terminate_by_signal(signal);
}

void before_fork() {
    RdmaCmServer::instance().lock();
}

void after_fork_in_parent() {
    RdmaCmServer::instance().unlock();
}

void after_fork_in_child() {
    RdmaCmServer::instance().unlock();
    if (owner.load() != 0) owner.store(getpid());
}

void stop() {
    RdmaCmServer::instance().stop();
}

}  // namespace rove::verbs::ucma
