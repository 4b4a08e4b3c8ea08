// SPDX-License-Identifier: Apache-2.0
// See passive.h.
#include "tent/transports/rdma/passive.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace rove::tent {

namespace {

Json refusal(const std::string& error) {
    return {{"ok", false}, {"error", error}};
}

}  // namespace

void PassiveConnections::admit(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    owners_.try_emplace(owner);
}

void PassiveConnections::forget(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    owners_.erase(owner);
}

PassiveConnections::Entry* PassiveConnections::entry(const ConnectionName& name) {
    const auto owner = owners_.find(name.owner);
    if (owner == owners_.end()) return nullptr;
    Rails& rails = owner->second;
    if (rails.size() >= kMaxRails && !rails.contains(name.rail)) return nullptr;
    return &rails[name.rail];
}

Json PassiveConnections::connect(const Json& request) {
    ConnectionName name;
    std::string device_name;
    const Json empty = Json::object();
    const auto endpoint =
        parse_endpoint(request.contains("endpoint") && request["endpoint"].is_object() ? request["endpoint"] : empty);
    if (!name.parse(request) || !get(request, "device", &device_name) || !endpoint)
        return refusal("a field is missing or out of range");
    const auto device =
        std::find_if(devices_.begin(), devices_.end(), [&](const auto& one) { return one->name() == device_name; });
    if (device == devices_.end()) return refusal("no device '" + device_name + "'");
    {
        const std::lock_guard lock(mutex_);
        if (entry(name) == nullptr) return refusal("no lease, or too many rails");
    }
    std::unique_ptr<Connection> connection =
        Connection::create(**device, config_, static_cast<uint32_t>(endpoint->qpns.size() / kPriorities));
    if (connection == nullptr) return refusal("no room for QPs");
    const int error = connection->connect(*endpoint, false);
    if (error != 0) return refusal(std::strerror(error));
    const Endpoint local = connection->local();

    const std::lock_guard lock(mutex_);
    Entry* const at = entry(name);
    if (at == nullptr) return refusal("no lease, or too many rails");
    // Connecting took time. Meanwhile the peer may have abandoned the attempt and begun another.
    if (name.number < at->closed || (at->connection != nullptr && name.number < at->number))
        return refusal("closed meanwhile");
    at->number = name.number;
    at->connection = std::move(connection);
    return {{"ok", true}, {"endpoint", to_json(local)}};
}

Json PassiveConnections::close(const Json& request) {
    ConnectionName name;
    if (!name.parse(request)) return refusal("a field is missing or out of range");
    const std::lock_guard lock(mutex_);
    if (!owners_.contains(name.owner)) return {{"ok", true}};
    Entry* const at = entry(name);
    if (at == nullptr) return refusal("too many rails");
    at->closed = std::max(at->closed, name.number + 1);
    if (at->connection != nullptr && at->number < at->closed) at->connection.reset();
    return {{"ok", true}};
}

size_t PassiveConnections::count() const {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& [owner, rails] : owners_)
        for (const auto& [rail, one] : rails) count += one.connection != nullptr ? 1 : 0;
    return count;
}

}  // namespace rove::tent
