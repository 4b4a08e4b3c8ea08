// SPDX-License-Identifier: Apache-2.0
// See provider.h.
#include "verbs/provider.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "port/factory/port_claim.h"
#include "port/port_name.h"
#include "verbs/channel_files.h"
#include "verbs/fork_stubs.h"
#include "verbs/sysfs.h"
#include "verbs/xrc.h"

namespace rove::verbs {

namespace {

// Returns the GUID as RoCE devices form it: the EUI-64 of the MAC with the universal/local bit inverted (RFC 4291,
// appendix A).
__be64 guid_of(const wire::MacAddress& mac) {
    const uint8_t bytes[8] = {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
    __be64 guid;
    std::memcpy(&guid, bytes, sizeof(guid));
    return guid;
}

std::unique_ptr<Device> make_device(Provider& provider, const std::string& name, const datapath::DeviceConfig& config,
                                    uint32_t max_qps) {
    auto device = std::make_unique<Device>(max_qps);
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    std::snprintf(device->name, sizeof(device->name), "%s", name.c_str());
    // The files at these paths come from sysfs.h.
    std::snprintf(device->dev_name, sizeof(device->dev_name), "%s", uverbs_name(name).c_str());
    std::snprintf(device->dev_path, sizeof(device->dev_path), "/sys/class/infiniband_verbs/%s", device->dev_name);
    std::snprintf(device->ibdev_path, sizeof(device->ibdev_path), "/sys/class/infiniband/%s", name.c_str());
    device->config = &config;
    device->provider = &provider;
    if (const auto mac = datapath::mac_before_start(config)) device->guid = guid_of(*mac);
    return device;
}

// Returns a mark that the kernel clears in children, or null if the system cannot do that.
const std::atomic<bool>* make_starter_mark() {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    if (madvise(page, bytes, MADV_WIPEONFORK) == 0) return new (page) std::atomic<bool>(true);
    munmap(page, bytes);
    return nullptr;
}

void push(Context& context, const ibv_async_event& event) {
    context.async_events.push(event);
}

}  // namespace

Provider::Provider(std::optional<datapath::Config> config) : config_(std::move(config)) {
    if (!config_) return;
    const size_t count = config_->devices.size();
    for (size_t i = 0; i < count; ++i) {
        const auto max_qps = static_cast<uint32_t>(kMaxQps / count);
        const datapath::DeviceConfig& device = config_->devices[i];
        devices_.push_back(make_device(*this, datapath::RdmaInterface::name_of(device, i), device, max_qps));
    }
}

std::string Provider::taken() const {
    if (!config_ || state_.load(std::memory_order_relaxed) != State::kIdle) return {};
    for (const datapath::DeviceConfig& device : config_->devices)
        if (std::string why = datapath::PortClaim::taken_by_other(device); !why.empty()) return why;
    return {};
}

std::span<const std::unique_ptr<Device>> Provider::devices() const {
    if (const std::string why = taken(); !why.empty()) {
        if (!is_taken_said_.test_and_set()) std::fprintf(stderr, "rove: %s: %s\n", config_->file.c_str(), why.c_str());
        return {};
    }
    return described();
}

std::span<const std::unique_ptr<Device>> Provider::described() const {
    if (state_.load(std::memory_order_relaxed) == State::kFailed || is_forked_child()) return {};
    return devices_;
}

bool Provider::owns(const ibv_device* device) const {
    return std::any_of(devices_.begin(), devices_.end(), [&](const auto& ours) { return ours.get() == device; });
}

std::string Provider::run() {
    std::string error;
    runtime_ = datapath::Runtime::start(*config_, *this, &error);
    if (runtime_ == nullptr) return error;
    pid_ = getpid();
    is_starter_.store(make_starter_mark(), std::memory_order_release);
    for (size_t i = 0; i < devices_.size(); ++i) {
        devices_[i]->interface = runtime_->interfaces()[i].get();
        devices_[i]->runtime = runtime_;
        devices_[i]->guid = guid_of(devices_[i]->interface->mac());
    }
    return {};
}

bool Provider::start() {
    if (is_forked_child()) return false;
    State state = State::kIdle;
    if (state_.compare_exchange_strong(state, State::kStarting)) {
        const std::string error = run();
        if (!error.empty() && error != said_) std::fprintf(stderr, "rove: %s\n", error.c_str());
        said_ = error;
        state_.store(error.empty() ? State::kRunning : datapath::Runtime::may_start() ? State::kIdle : State::kFailed);
        state_.notify_all();
    }
    state_.wait(State::kStarting);
    return state_.load() == State::kRunning;
}

void Provider::after_fork_in_child() {
    if (state_.load() != State::kIdle) {
        state_.store(State::kForkedChild);
        for (Context* context : contexts_) disable(*context);
        if (runtime_ != nullptr) runtime_->after_fork_in_child();
    }
    contexts_mutex_.unlock();
}

void Provider::opened(Context& context) {
    std::lock_guard guard(contexts_mutex_);
    contexts_.push_back(&context);
}

void Provider::closed(Context& context) {
    std::lock_guard guard(contexts_mutex_);
    std::erase(contexts_, &context);
}

datapath::Runtime* Provider::watchable() const {
    if (state_.load(std::memory_order_relaxed) != State::kRunning || !runtime_->can_watch()) return nullptr;
    return pid_ == getpid() ? runtime_ : nullptr;
}

void Provider::stop() {
    if (state_.load() == State::kRunning && pid_ == getpid()) runtime_->stop();
}

void Provider::notify(transport::CompletionQueue& queue) {
    Cq& cq = *static_cast<Cq*>(queue.owner);
    if (cq.channel == nullptr) return;
    from(cq.channel).events.push(&cq);
    channel_files::count_event();
    if (datapath::Runtime::on_eal_thread() && !runtime_->watchers().has_threads())
        channel_files::not_seen(cq.channel->fd);
}

void Provider::event(ibv_event_type type, transport::QueuePair& queue_pair) {
    Qp& qp = *static_cast<Qp*>(queue_pair.owner);
    if (type == IBV_EVENT_SQ_DRAINED && !qp.notify_drained.exchange(false)) return;
    if (qp.xrc != nullptr) {
        // Each handle of an XRC TGT QP gets the event, as with ib_core.
        const std::lock_guard guard(qp.xrc->domain->mutex);
        for (Qp* handle : qp.xrc->handles)
            push(*handle->context, {.element = {.qp = &handle->qp_base}, .event_type = type});
    } else {
        push(*qp.context, {.element = {.qp = &qp.qp_base}, .event_type = type});
    }
    if (type != IBV_EVENT_COMM_EST) return;
    if (const auto established = communication_established.load()) established(queue_pair.qpn);
}

void Provider::event(ibv_event_type type, transport::CompletionQueue& queue) {
    Cq& cq = *static_cast<Cq*>(queue.owner);
    push(from(cq.context), {.element = {.cq = as_ibv(cq)}, .event_type = type});
}

void Provider::event(ibv_event_type type, transport::SharedRecvQueue& queue) {
    Srq& srq = *static_cast<Srq*>(queue.owner);
    push(from(srq.context), {.element = {.srq = &srq}, .event_type = type});
}

void Provider::port_event(ibv_event_type type, const datapath::RdmaInterface& interface) {
    std::lock_guard guard(contexts_mutex_);
    for (Context* context : contexts_) {
        if (context->interface != &interface) continue;
        // Only the last event of each kind is kept: a link that flaps while no thread reads must not fill the memory,
        // and the order of the remaining events still tells the current state.
        context->async_events.push_coalesced(
            {.element = {.port_num = 1}, .event_type = type},
            [type](const ibv_async_event& waiting) { return waiting.event_type == type; });
    }
}

}  // namespace rove::verbs
