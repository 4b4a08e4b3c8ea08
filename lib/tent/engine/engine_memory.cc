// SPDX-License-Identifier: Apache-2.0
// Registering and allocating memory.
#include <numa.h>
#include <numaif.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>

#include "tent/engine/engine.h"
#include "tent/placement/ranks.h"
#include "tent/transports/rdma/rdma_ports.h"

namespace rove::tent {

namespace {

constexpr size_t kMaxLocation = 63;  // bytes, as documented

// "*", "cpu" or "cpu:N", N a node that there is.
Status parse_location(const std::string& location, const ::rove::tent::Config& config, int* node) {
    *node = -1;
    if (location == "*" || location == "cpu") return {};
    const std::string what = "location '" + location.substr(0, kMaxLocation) + "': ";
    int number = -1;
    const char* end = location.data() + location.size();
    const bool numbered = location.starts_with("cpu:") &&
                          std::from_chars(location.data() + 4, end, number).ptr == end && location.size() > 4;
    if (!numbered || number < 0) return {Code::kInvalidArgument, what + "\"*\" and \"cpu:N\" are allowed"};
    const std::vector<int> nodes = numa_nodes(config.priority_matrix, config.topology);
    if (std::find(nodes.begin(), nodes.end(), number) == nodes.end()) {
        std::string there;
        for (const int one : nodes) there += (there.empty() ? "" : ", ") + std::to_string(one);
        return {Code::kInvalidArgument, what + "no such NUMA node; this host and [topology] have " + there};
    }
    *node = number;
    return {};
}

// The NUMA node of the pages that are there, or of most of them; -1: none is there, or they are of many nodes.
int node_of_pages(uint64_t address, uint64_t length) {
    if (numa_available() < 0) return -1;
    if (numa_num_configured_nodes() == 1) return numa_max_node();
    constexpr size_t kSamples = 64;
    constexpr uint64_t kPage = 4096;
    void* pages[kSamples];
    int nodes[kSamples];
    const uint64_t step = std::max(kPage, length / kSamples / kPage * kPage);
    size_t count = 0;
    for (uint64_t at = address & ~(kPage - 1); at < address + length && count < kSamples; at += step)
        pages[count++] = reinterpret_cast<void*>(at);
    if (numa_move_pages(0, count, pages, nullptr, nodes, 0) != 0) return -1;
    std::map<int, size_t> votes;
    for (size_t i = 0; i < count; ++i)
        if (nodes[i] >= 0) ++votes[nodes[i]];  // else an error: not there
    const auto most =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most != votes.end() && 2 * most->second > count ? most->first : -1;
}

// While it is there, this thread's new memory comes from a node, if it has any left and the machine has that node.
class OnNode {
  public:
    explicit OnNode(int node) {
        if (node < 0 || numa_available() < 0) return;
        if (numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(node)) == 0) return;
        set_ = get_mempolicy(&mode_, mask_, kBits, nullptr, 0) == 0;
        if (set_) numa_set_preferred(node);
    }
    ~OnNode() {
        if (set_) set_mempolicy(mode_, mask_, kBits);
    }
    OnNode(const OnNode&) = delete;
    OnNode& operator=(const OnNode&) = delete;

  private:
    static constexpr unsigned long kBits = 1024;

    bool set_ = false;
    int mode_ = 0;
    unsigned long mask_[kBits / (8 * sizeof(unsigned long))] = {};
};

// Whether all mappings of the range, as far as there are any, may be written to (proc_pid_maps(5)).
bool is_writable(uint64_t address, uint64_t length) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long long from = 0, to = 0;
        char access[5] = "";
        if (std::sscanf(line.c_str(), "%llx-%llx %4s", &from, &to, access) != 3) continue;
        if (from < address + length && to > address && access[1] != 'w') return false;
    }
    return true;
}

std::string place(void* address, uint64_t length) {
    char text[64];
    std::snprintf(text, sizeof(text), "%p, %llu bytes", address, static_cast<unsigned long long>(length));
    return text;
}

}  // namespace

Status Engine::add_memory(std::shared_ptr<LocalBuffer> buffer) {
    if (buffer->numa_node < 0) buffer->numa_node = node_of_pages(buffer->address, buffer->length);
    Status status = ports_ == nullptr ? Status{} : ports_->add_memory(*buffer);
    if (status.ok()) memory_.add(std::move(buffer));
    return status;
}

Status Engine::register_memory(void* address, uint64_t length, const MemorySettings& settings) {
    const auto start = reinterpret_cast<uint64_t>(address);
    if (address == nullptr || length == 0 || start + length < start)
        return {Code::kInvalidArgument, "memory " + place(address, length) + ": not a valid range of addresses"};
    auto buffer = std::make_shared<LocalBuffer>();
    buffer->address = start;
    buffer->length = length;
    buffer->location = settings.location;
    buffer->permission = settings.permission;
    // Others may only read it, so that it may be a read-only mapping.
    buffer->writable = settings.permission != Permission::kGlobalReadOnly || is_writable(start, length);
    Status status = parse_location(settings.location, core_.config(), &buffer->numa_node);
    if (!status.ok()) return status;
    const std::lock_guard lock(registering_);
    if (const auto known = memory_.exact(start, length)) {
        if (known->permission != settings.permission)
            return {Code::kInvalidArgument,
                    "memory " + place(address, length) + " is registered with another permission"};
        ++known->registrations;
        return {};
    }
    return add_memory(std::move(buffer));
}

// With registering_ held, for the last registration.
Status Engine::remove_memory(LocalBuffer& buffer) {
    if (!memory_.remove_unused(buffer)) {
        return {Code::kInvalidArgument, "memory " + place(reinterpret_cast<void*>(buffer.address), buffer.length) +
                                            " is in use by requests in progress"};
    }
    if (buffer.shared) shm_server_.withdraw(*buffer.shared);
    if (ports_ != nullptr) ports_->remove_memory(buffer);
    return {};
}

Status Engine::unregister_memory(void* address, uint64_t length) {
    const std::lock_guard lock(registering_);
    const auto buffer = memory_.exact(reinterpret_cast<uint64_t>(address), length);
    if (buffer == nullptr)
        return {Code::kAddressNotRegistered, "memory " + place(address, length) + " is not registered"};
    if (buffer->registrations > 1) {
        --buffer->registrations;
        return {};
    }
    return remove_memory(*buffer);
}

Status Engine::allocate_memory(uint64_t length, const MemorySettings& settings, void** address) {
    if (length == 0) return {Code::kInvalidArgument, "0 bytes cannot be allocated"};
    auto buffer = std::make_shared<LocalBuffer>();
    buffer->location = settings.location;
    buffer->permission = settings.permission;
    Status status = parse_location(settings.location, core_.config(), &buffer->numa_node);
    std::unique_ptr<SharedMemory> made;
    const OnNode node(buffer->numa_node);
    const bool is_writable = settings.permission == Permission::kGlobalReadWrite;
    if (status.ok()) status = SharedMemory::create(length, is_writable, core_.config().huge_pages, &made);
    if (!status.ok()) return status;
    const std::shared_ptr<SharedMemory> memory = std::move(made);
    buffer->address = reinterpret_cast<uint64_t>(memory->address());
    buffer->length = length;
    const std::lock_guard lock(registering_);
    if (settings.permission != Permission::kLocalReadWrite) {
        buffer->shared = memory->id();
        shm_server_.offer(memory);
    }
    status = add_memory(std::move(buffer));
    if (!status.ok()) {
        shm_server_.withdraw(memory->id());
        return status;
    }
    *address = memory->address();
    allocated_.emplace(memory->address(), memory);
    return {};
}

Status Engine::free_memory(void* address) {
    const std::lock_guard lock(registering_);
    const auto at = allocated_.find(address);
    if (at == allocated_.end())
        return {Code::kAddressNotRegistered, "memory " + place(address, 0) + " was not allocated by this engine"};
    const auto start = reinterpret_cast<uint64_t>(address);
    const uint64_t length = at->second->length();
    // Its own registration goes with it. Another one would remain for memory that is not there any more.
    const auto buffer = memory_.exact(start, length);
    if (memory_.count_overlapping(start, length) > (buffer != nullptr ? 1u : 0u) ||
        (buffer != nullptr && buffer->registrations > 1)) {
        return {Code::kInvalidArgument, "memory " + place(address, length) +
                                            " has another registration, of all or a part of it: unregister that first"};
    }
    const Status status = buffer == nullptr ? Status{} : remove_memory(*buffer);
    if (status.ok()) allocated_.erase(at);
    return status;
}

}  // namespace rove::tent
