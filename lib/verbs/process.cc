// SPDX-License-Identifier: Apache-2.0
// See process.h.
#include "verbs/process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace rove::verbs {

namespace {

// The EUI-64 of a MAC with the universal/local bit turned over (RFC 4291, appendix A), as RoCE devices' GUIDs are made.
__be64 guid_of(const wire::MacAddress& mac) {
    const uint8_t bytes[8] = {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
    __be64 guid;
    std::memcpy(&guid, bytes, sizeof(guid));
    return guid;
}

std::unique_ptr<Device> make_device(datapath::Device& port, datapath::Runtime& runtime) {
    auto device = std::make_unique<Device>();
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    std::snprintf(device->name, sizeof(device->name), "%s", port.name().c_str());
    // UCX passes over a device without a character device at /dev/infiniband/<dev_name>; there is none, but it only looks.
    std::snprintf(device->dev_name, sizeof(device->dev_name), "../null");
    // Nothing lies there: programs that read attributes from sysfs find none, as with a device that lacks them.
    std::snprintf(device->dev_path, sizeof(device->dev_path), "/sys/class/infiniband_verbs/%s", port.name().c_str());
    std::snprintf(device->ibdev_path, sizeof(device->ibdev_path), "/sys/class/infiniband/%s", port.name().c_str());
    device->port = &port;
    device->runtime = &runtime;
    device->guid = guid_of(port.mac());
    return device;
}

void push(Context& context, const ibv_async_event& event) {
    context.async_events.push(event);
}

}  // namespace

Process& Process::instance() {
    // Never destroyed: programs may call verbs from their last destructors. stop() ends what must end.
    static Process& process = *new Process;
    return process;
}

std::span<const std::unique_ptr<Device>> Process::devices() {
    std::call_once(once_, [this] {
        if (std::getenv("ROVE_CONFIG") == nullptr) return;
        const std::string error = start();
        if (!error.empty()) std::fprintf(stderr, "rove: %s\n", error.c_str());
    });
    return devices_;
}

std::string Process::start() {
    std::string error;
    std::optional<datapath::Config> config = datapath::Config::load(std::getenv("ROVE_CONFIG"), &error);
    if (!config) return error;
    if (const char* extra = std::getenv("ROVE_EAL")) {
        std::istringstream words(extra);
        for (std::string word; words >> word;) config->eal_args.push_back(word);
    }
    runtime_ = datapath::Runtime::start(*config, *this, &error);
    if (runtime_ == nullptr) return error;
    pid_ = getpid();
    for (const auto& port : runtime_->devices()) devices_.push_back(make_device(*port, *runtime_));
    return {};
}

bool Process::owns(const ibv_device* device) {
    return std::any_of(devices_.begin(), devices_.end(), [&](const auto& ours) { return ours.get() == device; });
}

void Process::opened(Context& context) {
    std::lock_guard guard(contexts_mutex_);
    contexts_.push_back(&context);
}

void Process::closed(Context& context) {
    std::lock_guard guard(contexts_mutex_);
    std::erase(contexts_, &context);
}

void Process::stop() {
    if (pid_ == getpid()) runtime_->stop();
}

void Process::notify(transport::CompletionQueue& queue) {
    Cq& cq = *static_cast<Cq*>(queue.owner);
    if (cq.channel != nullptr) from(cq.channel).events.push(&cq);
}

void Process::event(ibv_event_type type, transport::QueuePair& queue_pair) {
    Qp& qp = *static_cast<Qp*>(queue_pair.owner);
    if (type == IBV_EVENT_SQ_DRAINED && !qp.notify_drained.exchange(false)) return;
    push(*qp.owner, {.element = {.qp = &qp.qp_base}, .event_type = type});
}

void Process::event(ibv_event_type type, transport::CompletionQueue& queue) {
    Cq& cq = *static_cast<Cq*>(queue.owner);
    push(from(cq.context), {.element = {.cq = as_ibv(cq)}, .event_type = type});
}

void Process::event(ibv_event_type type, transport::SharedRecvQueue& queue) {
    Srq& srq = *static_cast<Srq*>(queue.owner);
    push(from(srq.context), {.element = {.srq = &srq}, .event_type = type});
}

void Process::port_event(ibv_event_type type, const datapath::Device& device) {
    std::lock_guard guard(contexts_mutex_);
    for (Context* context : contexts_) {
        if (context->owner->port == &device) push(*context, {.element = {.port_num = 1}, .event_type = type});
    }
}

namespace {

// A destructor of the library, and not an atexit handler: it runs after the static destructors of the program, which
// may still destroy verbs objects.
__attribute__((destructor)) void stop_at_exit() {
    Process::instance().stop();
}

}  // namespace

}  // namespace rove::verbs
