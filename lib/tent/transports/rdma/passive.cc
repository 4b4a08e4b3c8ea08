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

Json ConnectionName::to_json() const {
    return {{"instance", instance}, {"rail", rail}, {"number", number}};
}

bool ConnectionName::parse(const Json& object) {
    constexpr size_t kMaxName = 256;
    return get(object, "instance", &instance) && get(object, "rail", &rail) && get(object, "number", &number) &&
           rail.size() <= kMaxName && number != UINT64_MAX;
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
    std::unique_ptr<Connection> connection =
        Connection::create(**device, config_, static_cast<uint32_t>(endpoint->qpns.size() / kPriorities));
    if (connection == nullptr) return refusal("no room for QPs");
    const int error = connection->connect(*endpoint, false);
    if (error != 0) return refusal(std::strerror(error));
    const Endpoint local = connection->local();

    const std::lock_guard lock(mutex_);
    const auto key = std::pair(name.instance, name.rail);
    if (!entries_.contains(key) && entries_.size() >= kMaxRails) return refusal("too many rails");
    Entry& entry = entries_[key];
    // Connecting took its time: the peer may have given up, and may have begun again.
    if (name.number < entry.closed || (entry.connection != nullptr && name.number < entry.number))
        return refusal("closed meanwhile");
    entry.number = name.number;
    entry.connection = std::move(connection);
    return {{"ok", true}, {"endpoint", to_json(local)}};
}

Json PassiveConnections::close(const Json& request) {
    ConnectionName name;
    if (!name.parse(request)) return refusal("a field is missing or out of range");
    const std::lock_guard lock(mutex_);
    const auto key = std::pair(name.instance, name.rail);
    if (!entries_.contains(key) && entries_.size() >= kMaxRails) return refusal("too many rails");
    Entry& entry = entries_[key];
    entry.closed = std::max(entry.closed, name.number + 1);
    if (entry.connection != nullptr && entry.number < entry.closed) entry.connection.reset();
    return {{"ok", true}};
}

void PassiveConnections::forget(uint64_t instance) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const auto& entry) { return entry.first.first == instance; });
}

size_t PassiveConnections::count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                             [](const auto& entry) { return entry.second.connection != nullptr; }));
}

}  // namespace rove::tent
