// SPDX-License-Identifier: Apache-2.0
// Registering and allocating memory.
#include <algorithm>
#include <charconv>

#include "tent/engine.h"

namespace rove::tent {

namespace {

constexpr size_t kMaxLocation = 63;  // bytes, as documented

// "*", "cpu" or "cpu:N", N a node that there is.
Status parse_location(const std::string& location, const PriorityMatrix& matrix, int* node) {
    *node = -1;
    if (location == "*" || location == "cpu") return {};
    const std::string what = "location '" + location.substr(0, kMaxLocation) + "': ";
    int number = -1;
    const char* end = location.data() + location.size();
    const bool numbered = location.starts_with("cpu:") &&
                          std::from_chars(location.data() + 4, end, number).ptr == end && location.size() > 4;
    if (!numbered || number < 0) return {Code::kInvalidArgument, what + "\"*\" and \"cpu:N\" are allowed"};
    const std::vector<int> nodes = numa_nodes(matrix);
    if (std::find(nodes.begin(), nodes.end(), number) == nodes.end()) {
        std::string there;
        for (const int one : nodes) there += (there.empty() ? "" : ", ") + std::to_string(one);
        return {Code::kInvalidArgument, what + "no such NUMA node: this host, and topology.priority_matrix, have " + there};
    }
    *node = number;
    return {};
}

std::string place(void* address, uint64_t length) {
    char text[64];
    std::snprintf(text, sizeof(text), "%p, %llu bytes", address, static_cast<unsigned long long>(length));
    return text;
}

}  // namespace

Status Engine::add_memory(std::shared_ptr<LocalBuffer> buffer) {
    for (size_t i = 0; i < kTransports; ++i) {
        Backend* backend = core_.backends()[i].get();
        Status status = backend == nullptr ? Status{} : backend->add_memory(*buffer);
        if (status.ok()) continue;
        while (i-- != 0)
            if (core_.backends()[i] != nullptr) core_.backends()[i]->remove_memory(*buffer);
        return status;
    }
    memory_.add(std::move(buffer));
    return {};
}

Status Engine::register_memory(void* address, uint64_t length, const MemorySettings& settings) {
    const auto start = reinterpret_cast<uint64_t>(address);
    if (address == nullptr || length == 0 || start + length < start)
        return {Code::kInvalidArgument, "memory " + place(address, length) + ": not a range of addresses"};
    auto buffer = std::make_shared<LocalBuffer>();
    buffer->address = start;
    buffer->length = length;
    buffer->location = settings.location;
    buffer->permission = settings.permission;
    Status status = parse_location(settings.location, core_.config().priority_matrix, &buffer->numa_node);
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

Status Engine::unregister_memory(void* address, uint64_t length) {
    const std::lock_guard lock(registering_);
    auto buffer = memory_.exact(reinterpret_cast<uint64_t>(address), length);
    if (buffer == nullptr)
        return {Code::kAddressNotRegistered, "memory " + place(address, length) + " is not registered"};
    if (buffer->registrations == 1 && buffer->is_used())
        return {Code::kInvalidArgument, "memory " + place(address, length) + " is used by requests under way"};
    if (--buffer->registrations != 0) return {};
    memory_.remove(*buffer);
    for (const auto& backend : core_.backends())
        if (backend != nullptr) backend->remove_memory(*buffer);
    return {};
}

Status Engine::allocate_memory(uint64_t length, const MemorySettings& settings, void** address) {
    if (length == 0) return {Code::kInvalidArgument, "0 bytes cannot be allocated"};
    auto buffer = std::make_shared<LocalBuffer>();
    buffer->location = settings.location;
    buffer->permission = settings.permission;
    Status status = parse_location(settings.location, core_.config().priority_matrix, &buffer->numa_node);
    SharedMemory memory;
    if (status.ok()) status = SharedMemory::create(length, &memory);
    if (!status.ok()) return status;
    buffer->address = reinterpret_cast<uint64_t>(memory.address);
    buffer->length = length;
    buffer->shm = memory.name;
    const std::lock_guard lock(registering_);
    status = add_memory(std::move(buffer));
    if (!status.ok()) {
        memory.destroy();
        return status;
    }
    *address = memory.address;
    allocated_.emplace(memory.address, std::move(memory));
    return {};
}

Status Engine::free_memory(void* address) {
    uint64_t length = 0;
    {
        const std::lock_guard lock(registering_);
        const auto at = allocated_.find(address);
        if (at == allocated_.end())
            return {Code::kAddressNotRegistered, "memory " + place(address, 0) + " was not allocated by this engine"};
        length = at->second.length;
    }
    Status status = unregister_memory(address, length);
    if (!status.ok()) return status;
    const std::lock_guard lock(registering_);
    const auto at = allocated_.find(address);
    at->second.destroy();
    allocated_.erase(at);
    return {};
}

}  // namespace rove::tent
