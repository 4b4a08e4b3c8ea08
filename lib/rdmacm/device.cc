// SPDX-License-Identifier: Apache-2.0
// The devices below rdma_cm, and the thread that serves them.
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>

#include "base/file_descriptor.h"
#include "port/port_name.h"
#include "rdmacm/server.h"
#include "rdmacm/state.h"
#include "verbs/process_provider.h"

namespace rove::verbs::ucma {

namespace {

// The first and the longest wait for a neighbour's reply. It doubles each time.
constexpr uint64_t kFirstLookNs = 500'000, kLongestLookNs = 20'000'000;
constexpr uint64_t kAskAgainNs = 50'000'000;
constexpr uint64_t kMilli = 1'000'000, kSecond = 1000 * kMilli;

Interface describe(const datapath::RdmaInterface& device, const datapath::DeviceConfig& config) {
    const std::string kernel = datapath::kernel_interface(config);
    return {.own = device.subnets(),
            .has_gateway_ipv4 = device.has_gateway(true),
            .has_gateway_ipv6 = device.has_gateway(false),
            .kernel_index = kernel.empty() ? 0 : if_nametoindex(kernel.c_str())};
}

}  // namespace

int RdmaCmServer::need_devices() {
    if (started_) {
        for (size_t i = 0; i < interfaces_.size(); ++i)
            interfaces_[i].own = gsis_[i]->device().interface->subnets();  // the kernel's addresses come and go
        return 0;
    }
    Provider& provider = verbs::provider();
    if (!provider.start()) return ENODEV;
    // A failure leaves nothing behind, so that the next command starts from the same state.
    FileDescriptor wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    FileDescriptor timer_fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!wake_fd.is_open() || !timer_fd.is_open()) return EMFILE;
    std::vector<std::unique_ptr<Gsi>> gsis;
    std::vector<Interface> interfaces;
    for (const auto& device : provider.devices()) {
        auto gsi = Gsi::open(*device);
        if (gsi == nullptr) return errno;
        interfaces.push_back(describe(*device->interface, device->runtime->config().devices[gsis.size()]));
        gsis.push_back(std::move(gsi));
    }
    if (gsis.empty()) return ENODEV;
    wake_fd_ = wake_fd.get();
    timer_fd_ = timer_fd.get();
    gsis_ = std::move(gsis);
    interfaces_ = std::move(interfaces);
    runtime_.store(gsis_.front()->device().runtime, std::memory_order_release);
    cm_.emplace(cm::Config{}, Secret::random(), static_cast<cm::Sink&>(*this));
    sigset_t all, before;
    sigfillset(&all);
    for (const int signal : {SIGSEGV, SIGBUS, SIGSYS}) sigdelset(&all, signal);  // the thread's own faults
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([this] { run(); }).detach();  // it waits for the mutex, which this thread holds
        started_ = true;
    } catch (const std::system_error&) {
        cm_.reset();
        interfaces_.clear();
        gsis_.clear();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started_) return EAGAIN;
    wake_fd.release();
    timer_fd.release();
    provider.communication_established.store(ucma::communication_established);
    start_telemetry();
    watch_signals();
    return 0;
}

Device& RdmaCmServer::device(const Id& id) const {
    return gsis_[id.local->device]->device();
}

const wire::Gid& RdmaCmServer::local_gid(const Id& id) const {
    return id.local->address;
}

uint8_t RdmaCmServer::mtu_code(const Id& id) const {
    return static_cast<uint8_t>(std::countr_zero(device(id).interface->active_mtu()) - 7);
}

uint64_t RdmaCmServer::now_ns() const {
    return runtime_.load(std::memory_order_relaxed)->now_ns();
}

void RdmaCmServer::wake() {
    eventfd_write(wake_fd_, 1);
}

// Makes the thread wake up at this time at the latest. A thread that wakes too early sets the timer again. Nearly all
// deadlines are cancelled before they expire, and leaving the timer unchanged costs nothing.
void RdmaCmServer::wake_at(uint64_t deadline_ns) {
    if (deadline_ns >= timer_ns_) return;
    timer_ns_ = deadline_ns;
    const uint64_t now = now_ns();
    const uint64_t wait = deadline_ns > now ? deadline_ns - now : 1;  // 0 would stop the timer
    const itimerspec timer{
        .it_interval = {},
        .it_value = {.tv_sec = static_cast<time_t>(wait / kSecond), .tv_nsec = static_cast<long>(wait % kSecond)}};
    timerfd_settime(timer_fd_, 0, &timer, nullptr);
}

void RdmaCmServer::run() {
    pthread_setname_np(pthread_self(), "rove-cm");
    std::vector<pollfd> files;
    {
        const std::lock_guard guard(mutex_);
        for (const int fd : {wake_fd_, timer_fd_, kernel_fd_})
            files.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        for (const auto& gsi : gsis_) {
            gsi->arm();
            files.push_back({.fd = gsi->fd(), .events = POLLIN, .revents = 0});
        }
    }
    for (;;) {
        {
            const std::lock_guard guard(mutex_);
            eventfd_t count;  // a timer is read like an eventfd
            if (files[0].revents != 0) eventfd_read(wake_fd_, &count);
            if (files[1].revents != 0 && eventfd_read(timer_fd_, &count) == 0) timer_ns_ = UINT64_MAX;
            if (files[2].revents != 0) look_at_kernel();
            // The queue is armed first, so that a MAD that arrives during the work below wakes the thread again.
            for (size_t i = 0; i < gsis_.size(); ++i)
                if (files[i + 3].revents != 0) gsis_[i]->arm();
            work();
        }
        ppoll(files.data(), files.size(), nullptr, nullptr);  // librspreload has its own poll()
        if (ends_with_.load() != 0) return disconnect_all();
    }
}

void RdmaCmServer::work() {
    for (size_t i = 0; i < gsis_.size(); ++i) {
        Gsi& gsi = *gsis_[i];
        const auto max_mtu = static_cast<uint8_t>(std::countr_zero(gsi.device().interface->max_mtu()) - 7);
        while (const auto received = gsi.receive()) {
            cm::Path from;
            from.interface = static_cast<uint32_t>(i);
            from.flow = received->back;
            from.remote_qpn = received->src_qpn;
            cm_->receive(now_ns(), from, max_mtu, received->mad);
        }
    }
    std::vector<uint32_t> established;
    {
        const std::lock_guard guard(established_lock_);
        established.swap(established_);
    }
    for (const uint32_t qpn : established)
        if (const auto found = by_qpn_.find(qpn); found != by_qpn_.end())
            cm_->establish(now_ns(), found->second->connection);
    look_at_resolutions();
    cm_->expire(now_ns());
    finish_calls();
}

// --- addresses

bool RdmaCmServer::is_resolved(const Id& id) {
    return device(id).interface->reaches(id.remote_gid);
}

RdmaCmServer::Neighbour RdmaCmServer::neighbour_of(const Id& id) const {
    return {id.local->device, device(id).interface->next_hop(id.remote_gid)};
}

void RdmaCmServer::start_resolution(Id& id, uint32_t timeout_ms) {
    const uint64_t now = now_ns();
    id.resolves_until_ns = now + timeout_ms * kMilli;
    const auto [found, is_new] = resolutions_.try_emplace(neighbour_of(id));
    auto& [neighbour, resolution] = *found;
    if (is_new) resolution = {.due_ns = now, .look_ns = now, .wait_ns = kFirstLookNs, .ask_ns = now, .ids = {}};
    resolution.ids.insert({id.resolves_until_ns, id.handle});
    due_.erase({resolution.due_ns, neighbour});
    resolution.due_ns = std::min(resolution.due_ns, id.resolves_until_ns);
    due_.insert({resolution.due_ns, neighbour});
}

void RdmaCmServer::stop_resolution(const Id& id) {
    const auto found = resolutions_.find(neighbour_of(id));
    Resolution& resolution = found->second;
    resolution.ids.erase({id.resolves_until_ns, id.handle});
    if (!resolution.ids.empty()) return;
    due_.erase({resolution.due_ns, found->first});
    resolutions_.erase(found);
}

void RdmaCmServer::look_at_resolutions() {
    const uint64_t now = now_ns();
    while (!due_.empty() && due_.begin()->first <= now) {
        const auto found = resolutions_.find(due_.extract(due_.begin()).value().second);
        const auto& [device_number, next_hop] = found->first;
        Resolution& resolution = found->second;
        const bool resolved = is_resolved(*ids_[resolution.ids.begin()->second]);
        while (!resolution.ids.empty() && (resolved || resolution.ids.begin()->first <= now)) {
            Id& id = *ids_[resolution.ids.extract(resolution.ids.begin()).value().second];
            id.state = resolved ? IdState::kAddressResolved : IdState::kBound;
            if (!resolved && id.was_unbound) {  // another destination may be reached from another address
                const uint16_t port = id.source.port();
                id.source = any_address(id.source.family);
                id.source.set_port(port);
                id.local.reset();
            }
            push(id, resolved ? EventType::kAddressResolved : EventType::kAddressError, resolved ? 0 : -ETIMEDOUT);
        }
        if (resolution.ids.empty()) {
            resolutions_.erase(found);
            continue;
        }
        if (now >= resolution.ask_ns) {
            Device& device = gsis_[device_number]->device();
            device.runtime->solicit(*device.interface, next_hop);
            resolution.ask_ns = now + kAskAgainNs;
        }
        if (now >= resolution.look_ns) {
            resolution.look_ns = now + resolution.wait_ns;
            resolution.wait_ns = std::min(2 * resolution.wait_ns, kLongestLookNs);
        }
        resolution.due_ns = std::min(resolution.look_ns, resolution.ids.begin()->first);
        due_.insert({resolution.due_ns, found->first});
    }
}

}  // namespace rove::verbs::ucma
