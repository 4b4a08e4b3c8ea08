// SPDX-License-Identifier: Apache-2.0
// Ids whose device belongs to the kernel (server.h, design note 6).
#include "rdmacm/kernel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "rdmacm/commands.h"
#include "rdmacm/state.h"

namespace rove::verbs::ucma {

namespace {

// Opens the kernel's device without open(), whose hook would return one of rove's channels.
int open_node() {
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

KernelCm::KernelCm(int watcher) : watcher_(watcher), fd_(open_node()) {
    if (fd_ < 0) return;
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = fd_}};
    epoll_ctl(watcher_, EPOLL_CTL_ADD, fd_, &event);
}

KernelCm::~KernelCm() {
    if (fd_ >= 0) ::close(fd_);
}

void KernelCm::watch() const {
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = fd_}};
    epoll_ctl(watcher_, EPOLL_CTL_MOD, fd_, &event);
}

int KernelCm::run(uint32_t number, std::span<const uint8_t> body, size_t room) const {
    if (!is_there()) return ENODEV;
    const rdma_ucm_cmd_hdr header{
        .cmd = number, .in = static_cast<uint16_t>(body.size()), .out = static_cast<uint16_t>(room)};
    std::array<uint8_t, sizeof(header) + sizeof(rdma_ucm_accept)> command;
    std::memcpy(command.data(), &header, sizeof(header));
    std::memcpy(command.data() + sizeof(header), body.data(), body.size());
    return ::write(fd_, command.data(), sizeof(header) + body.size()) < 0 ? errno : 0;
}

void RdmaCmServer::make_twin(Id& id) {
    const rdma_ucm_create_id command{
        .uid = id.uid, .response = 0, .ps = id.port_space, .qp_type = static_cast<uint8_t>(id.qp_type), .reserved = {}};
    rdma_ucm_create_id_resp answer{};
    if (id.channel->kernel.run(RDMA_USER_CM_CMD_CREATE_ID, command, answer) != 0) return;
    id.twin = answer.id;
    twins_[answer.id] = &id;
}

uint32_t RdmaCmServer::destroy_twin(Id& id) {
    if (!id.twin) return 0;
    rdma_ucm_destroy_id_resp answer{};
    id.channel->kernel.run(RDMA_USER_CM_CMD_DESTROY_ID,
                           rdma_ucm_destroy_id{.response = 0, .id = *id.twin, .reserved = 0}, answer);
    twins_.erase(*id.twin);
    id.twin.reset();
    return answer.events_reported;
}

int RdmaCmServer::bind_twin(Id& id, const SocketAddress& address) {
    rdma_ucm_bind command{
        .id = *id.twin, .addr_size = static_cast<uint16_t>(address.size()), .reserved = 0, .addr = {}};
    std::memcpy(&command.addr, &address, address.size());
    return id.channel->kernel.run(RDMA_USER_CM_CMD_BIND, command);
}

int RdmaCmServer::resolve_twin(Id& id, const SocketAddress& destination, uint32_t timeout_ms) {
    rdma_ucm_resolve_addr command{.id = *id.twin,
                                  .timeout_ms = timeout_ms,
                                  .src_size = 0,
                                  .dst_size = static_cast<uint16_t>(destination.size()),
                                  .reserved = 0,
                                  .src_addr = {},
                                  .dst_addr = {}};
    std::memcpy(&command.dst_addr, &destination, destination.size());
    return id.channel->kernel.run(RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
}

int RdmaCmServer::listen_twin(Id& id, uint32_t backlog) {
    return id.channel->kernel.run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = *id.twin, .backlog = backlog});
}

int RdmaCmServer::migrate_twin(Id& id, const Channel& to, uint32_t* reported) {
    rdma_ucm_migrate_resp answer{};
    const rdma_ucm_migrate_id command{
        .response = 0, .id = *id.twin, .fd = static_cast<uint32_t>(id.channel->kernel.fd())};
    const int error = to.kernel.run(RDMA_USER_CM_CMD_MIGRATE_ID, command, answer);
    *reported = answer.events_reported;
    return error;
}

bool RdmaCmServer::is_forwarded(const std::shared_ptr<Channel>& channel, const Command& wanted, In in) {
    if (!wanted.id_at) return false;
    uint32_t handle;
    std::memcpy(&handle, in.data() + *wanted.id_at, sizeof(handle));
    int error;
    const Id* const id = find(channel, handle, &error);
    return id != nullptr && id->belongs_to_kernel;
}

int RdmaCmServer::forward(const std::shared_ptr<Channel>& channel, const Header& header, In in, size_t id_at) {
    std::array<uint8_t, sizeof(rdma_ucm_accept)> body;
    std::copy(in.begin(), in.end(), body.begin());
    uint32_t handle;
    std::memcpy(&handle, in.data() + id_at, sizeof(handle));
    std::memcpy(body.data() + id_at, &*ids_[handle]->twin, sizeof(handle));
    if (const int error = channel->kernel.run(header.cmd, {body.data(), in.size()}, header.out); error != 0)
        return error;
    if (header.cmd != RDMA_USER_CM_CMD_JOIN_MCAST && header.cmd != RDMA_USER_CM_CMD_JOIN_IP_MCAST) return 0;
    uint64_t response;  // the first member of both commands
    std::memcpy(&response, in.data(), sizeof(response));
    rdma_ucm_create_id_resp answer{};
    if (const int error = copy_in(&answer, response, sizeof(answer)); error != 0) return error;
    answer.id |= kKernelsMulticast;
    return copy_out(response, &answer, sizeof(answer));
}

// Tells channels that the kernel has an event for them. The thread `rove-cm` calls it. A thread that fetches the event
// calls watch() for the next one.
void RdmaCmServer::look_at_kernel() {
    std::array<epoll_event, 16> ready;
    const int count = epoll_wait(kernel_fd_, ready.data(), ready.size(), 0);
    const std::lock_guard guard(channels_mutex_);
    for (int i = 0; i < count; ++i) {
        const auto found = std::find_if(channels_.begin(), channels_.end(), [&](const auto& entry) {
            return entry.second->kernel.fd() == ready[static_cast<size_t>(i)].data.fd;
        });
        if (found != channels_.end()) found->second->events.push(Event{.belongs_to_kernel = true});
    }
}

int RdmaCmServer::take_kernel_event(const std::shared_ptr<Channel>& channel, uint64_t response, size_t room) {
    rdma_ucm_event_resp event{};
    room = std::min(room, sizeof(event));
    // An event that was fetched cannot be put back, so the program's buffer is tested first.
    if (const int error = copy_out(response, &event, room); error != 0) {
        channel->events.push(Event{.belongs_to_kernel = true});
        return error;
    }
    const int error = channel->kernel.run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{.response = 0}, event, room);
    channel->kernel.watch();
    if (error != 0) return error;
    const auto type = static_cast<EventType>(event.event);
    {
        const std::lock_guard guard(mutex_);
        const auto twin = twins_.find(event.id);
        if (type == EventType::kMulticastJoin || type == EventType::kMulticastError) {
            event.id |= kKernelsMulticast;
        } else if (type == EventType::kConnectRequest && !channel->is_closed) {
            Id& request = make_id(channel);
            request.belongs_to_kernel = true;
            request.twin = event.id;
            twins_[event.id] = &request;
            event.id = request.handle;
        } else if (twin != twins_.end()) {
            Id& id = *twin->second;
            event.id = id.handle;
            // Another destination may be reached by one of rove's devices.
            if (type == EventType::kAddressError && id.source.is_any()) id.belongs_to_kernel = false;
        }
    }
    return copy_out(response, &event, room);
}

}  // namespace rove::verbs::ucma
