// SPDX-License-Identifier: Apache-2.0
// The public C++ class: it checks that there is an engine, and translates.
#include <pthread.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "rove/tent.hpp"
#include "tent/engine/engine.h"
#include "tent/engine/environment.h"
#include "tent/engine/own_sockets.h"
#include "tent/transports/rdma/rdma_ports.h"

namespace mooncake::tent {

using namespace ::rove::tent;

namespace {

TransferStatus translate(const TaskStatus& status) {
    return {status.state, status.transferred, text(status.reason)};
}

MemorySettings translate(const MemoryOptions& options) {
    return {.location = options.location, .permission = options.perm};
}

Status submit(Engine& engine, BatchID batch, std::span<const Request> requests, const Notification* notification) {
    std::optional<NotificationText> text;
    if (notification != nullptr) text = NotificationText{notification->name, notification->msg};
    return engine.submit(batch, requests, text ? &*text : nullptr);
}

// A child of fork() has a copy of the engine without its threads. The sockets, queue pairs and memory of the copy are
// the parent's, and the child must not touch them. So the child's object loses its engine, and its calls return an
// error with the reason. Its sockets are closed, which does not end the parent's connections.
class Forks {
  public:
    static Forks& instance() {
        static Forks* forks = new Forks;  // never destroyed, for objects that end with the process
        return *forks;
    }
    void add(std::unique_ptr<Engine>* engine, Status* status) {
        const std::lock_guard lock(mutex_);
        engines_.emplace(engine, status);
    }
    void remove(std::unique_ptr<Engine>* engine) {
        const std::lock_guard lock(mutex_);
        engines_.erase(engine);
    }

  private:
    Forks() {
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().leave_to_parent(); });
    }
    void leave_to_parent() {
        for (const auto& [engine, status] : engines_) {
            parents_.push_back(engine->release());
            *status = {Code::kInternalError,
                       "the engine belongs to the process that called fork(); create an engine in this process"};
        }
        engines_.clear();
        close_noted_sockets();
        mutex_.unlock();
    }

    std::mutex mutex_;  // held across fork()
    std::map<std::unique_ptr<Engine>*, Status*> engines_;
    std::vector<Engine*> parents_;  // unused copies, kept so that they do not leak
};

}  // namespace

const char* transportTypeName(TransportType type) {
    return type >= 0 && type < kNumTransportTypes ? ::rove::tent::name(type) : "unknown";
}

TransportType parseTransportType(const std::string& name) {
    return parse_transport(name).value_or(UNSPEC);
}

TransferEngine::TransferEngine() : TransferEngine(Settings{}) {}

TransferEngine::TransferEngine(const std::string& config_path) : TransferEngine(Settings{config_path, {}}) {}

TransferEngine::TransferEngine(const Settings& settings) {
    std::string file = settings.file;
    const char* named = secure_getenv("MC_TENT_CONF");
    if (file.empty() && named != nullptr) file = named;
    std::vector<Override> overrides;
    for (const auto& [key, value] : settings.values) overrides.push_back({key, value});
    std::string variables;
    for (Override& one : environment_overrides(&variables)) overrides.push_back(std::move(one));
    ::rove::tent::Config config;
    start_ = ::rove::tent::Config::load(file, overrides, &config);
    if (!start_.ok() && !variables.empty())
        start_ = {start_.code(), start_.message() + "; keys were set by" + variables};
    if (start_.ok()) start_ = Engine::start(config, &engine_);
    if (start_.ok()) Forks::instance().add(&engine_, &start_);
}

TransferEngine::~TransferEngine() {
    Forks::instance().remove(&engine_);
}

std::string TransferEngine::getSegmentName() const {
    return engine_ == nullptr ? std::string() : engine_->segment_name();
}

std::string TransferEngine::getRpcServerAddress() const {
    return engine_ == nullptr ? std::string() : engine_->rpc_address();
}

uint16_t TransferEngine::getRpcServerPort() const {
    return engine_ == nullptr ? 0 : engine_->rpc_port();
}

std::string TransferEngine::getLocalTopologyString() const {
    Json nics = Json::array();
    if (engine_ != nullptr && engine_->ports() != nullptr) {
        DeviceSelector& selector = engine_->ports()->selector();
        for (size_t i = 0; i < selector.devices().size(); ++i) {
            const Device& device = selector.devices()[i];
            nics.push_back({{"name", device.name},
                            {"numa_node", device.numa_node},
                            {"bandwidth_gbps", device.bandwidth_bytes_per_s * 8 / 1e9},
                            {"up", (selector.up_mask() >> i & 1) != 0}});
        }
    }
    return Json{{"nics", std::move(nics)}}.dump();
}

Status TransferEngine::openSegment(SegmentID& handle, const std::string& name) {
    return engine_ == nullptr ? start_ : engine_->open_segment(name, &handle);
}

Status TransferEngine::exportLocalSegment(std::string& shared_handle) {
    if (engine_ != nullptr) shared_handle = engine_->segment_name();
    return start_;
}

Status TransferEngine::closeSegment(SegmentID handle) {
    return engine_ == nullptr ? start_ : engine_->close_segment(handle);
}

Status TransferEngine::getSegmentInfo(SegmentID handle, SegmentInfo& info) {
    if (engine_ == nullptr) return start_;
    std::shared_ptr<const SegmentDesc> segment;
    Status status = engine_->segment_info(handle, &segment);
    if (!status.ok()) return status;
    info.type = segment->kind == SegmentKind::kFile ? SegmentInfo::File : SegmentInfo::Memory;
    info.buffers.clear();
    for (const BufferDesc& buffer : segment->buffers)
        info.buffers.push_back({buffer.address, buffer.length, buffer.location});
    return {};
}

Status TransferEngine::probePeerAliveByID(SegmentID handle) {
    return engine_ == nullptr ? start_ : engine_->probe(handle);
}

Status TransferEngine::allocateLocalMemory(void** addr, size_t size, const Location& location) {
    return allocateLocalMemory(addr, size, MemoryOptions{.location = location});
}

Status TransferEngine::allocateLocalMemory(void** addr, size_t size, const MemoryOptions& options) {
    return engine_ == nullptr ? start_ : engine_->allocate_memory(size, translate(options), addr);
}

Status TransferEngine::freeLocalMemory(void* addr) {
    return engine_ == nullptr ? start_ : engine_->free_memory(addr);
}

Status TransferEngine::registerLocalMemory(void* addr, size_t size, Permission permission) {
    return registerLocalMemory(addr, size, MemoryOptions{.perm = permission});
}

Status TransferEngine::registerLocalMemory(void* addr, size_t size, const MemoryOptions& options) {
    return engine_ == nullptr ? start_ : engine_->register_memory(addr, size, translate(options));
}

Status TransferEngine::registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                                           Permission permission) {
    return registerLocalMemory(addrs, sizes, MemoryOptions{.perm = permission});
}

Status TransferEngine::registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                                           const MemoryOptions& options) {
    if (addrs.size() != sizes.size()) {
        return {Code::kInvalidArgument, std::to_string(addrs.size()) + " addresses and " +
                                            std::to_string(sizes.size()) + " sizes: the numbers must be equal"};
    }
    for (size_t i = 0; i < addrs.size(); ++i) {
        Status status = registerLocalMemory(addrs[i], sizes[i], options);
        if (status.ok()) continue;
        while (i-- != 0) (void)unregisterLocalMemory(addrs[i], sizes[i]);
        return status;
    }
    return {};
}

Status TransferEngine::unregisterLocalMemory(void* addr, size_t size) {
    return engine_ == nullptr ? start_ : engine_->unregister_memory(addr, size);
}

Status TransferEngine::unregisterLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes) {
    if (!sizes.empty() && addrs.size() != sizes.size())
        return {Code::kInvalidArgument, std::to_string(addrs.size()) + " addresses and " +
                                            std::to_string(sizes.size()) +
                                            " sizes: the numbers must be equal, or sizes empty"};
    Status first;
    for (size_t i = 0; i < addrs.size(); ++i) {
        Status status = unregisterLocalMemory(addrs[i], sizes.empty() ? 0 : sizes[i]);
        if (first.ok()) first = std::move(status);
    }
    return first;
}

BatchID TransferEngine::allocateBatch(size_t size) {
    return engine_ == nullptr ? 0 : engine_->allocate_batch(size);
}

Status TransferEngine::freeBatch(BatchID batch) {
    return engine_ == nullptr ? start_ : engine_->free_batch(batch);
}

Status TransferEngine::submitTransfer(BatchID batch, std::span<const Request> requests) {
    return engine_ == nullptr ? start_ : submit(*engine_, batch, requests, nullptr);
}

Status TransferEngine::submitTransfer(BatchID batch, std::span<const Request> requests,
                                      const Notification& notification) {
    return engine_ == nullptr ? start_ : submit(*engine_, batch, requests, &notification);
}

Status TransferEngine::cancelTransfer(BatchID batch, size_t task) {
    return engine_ == nullptr ? start_ : engine_->cancel(batch, task);
}

Status TransferEngine::getTransferStatus(BatchID batch, size_t task, TransferStatus& status) {
    if (engine_ == nullptr) return start_;
    TaskStatus found;
    Status result = engine_->task_status(batch, task, &found);
    if (result.ok()) status = translate(found);
    return result;
}

Status TransferEngine::getTransferStatus(BatchID batch, std::vector<TransferStatus>& list) {
    if (engine_ == nullptr) return start_;
    std::vector<TaskStatus> found;
    Status result = engine_->task_statuses(batch, &found);
    if (!result.ok()) return result;
    list.resize(found.size());
    for (size_t i = 0; i < list.size(); ++i) list[i] = translate(found[i]);
    return result;
}

Status TransferEngine::getTransferStatus(BatchID batch, TransferStatus& overall) {
    if (engine_ == nullptr) return start_;
    TaskStatus found;
    Status result = engine_->overall_status(batch, &found);
    if (result.ok()) overall = translate(found);
    return result;
}

Status TransferEngine::sendNotification(SegmentID target, const Notification& notification) {
    return engine_ == nullptr ? start_ : engine_->notify(target, {notification.name, notification.msg});
}

Status TransferEngine::receiveNotification(std::vector<Notification>& list) {
    list.clear();
    if (engine_ == nullptr) return start_;
    for (NotificationText& text : engine_->take_notifications())
        list.push_back({std::move(text.name), std::move(text.message)});
    return {};
}

Status TransferEngine::getNicLoadStats(std::vector<NicLoadStats>& list) const {
    list.clear();
    if (engine_ == nullptr) return start_;
    if (engine_->ports() == nullptr) return {};
    for (const DeviceLoad& load : engine_->ports()->selector().load())
        list.push_back({load.name, load.inflight_bytes, load.ewma_bandwidth});
    return {};
}

void TransferEngine::printTrafficStats() const {
    if (engine_ != nullptr && engine_->ports() != nullptr) engine_->ports()->selector().print_traffic_stats(std::cout);
}

}  // namespace mooncake::tent
