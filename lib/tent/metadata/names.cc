// SPDX-License-Identifier: Apache-2.0
// See names.h.
#include "tent/metadata/names.h"

#include <nlohmann/json.hpp>

#include "tent/control/client.h"
#include "tent/segment.h"

namespace rove::tent {

namespace {

constexpr uint64_t kAskNs = 1'000'000'000;
constexpr const char* kAddress = "rpc_server_addr";

std::string key(const std::string& name) {
    return "rove/tent/" + name;
}

}  // namespace

Names::~Names() {
    std::string address;
    if (!name_.empty() && find(name_, &address).ok() && address == address_) (void)store_->remove(key(name_));
}

Status Names::publish(const std::string& name, const std::string& address) {
    std::string other;
    Status status = find(name, &other);
    if (status.ok() && other != address) {
        const auto answer = ControlClient(other, secret_).call(MessageType::kDescribe, Json::object(), kAskNs);
        const auto segment = answer ? parse_segment(*answer) : std::nullopt;
        if (segment && segment->name == name)
            return {Code::kInvalidArgument,
                    "key 'local_segment_name': '" + name + "' is the name of a process that lives at " + other};
    }
    if (status.code() == Code::kMetadataError) return status;
    status = store_->put(key(name), Json{{kAddress, address}}.dump());
    if (!status.ok()) return status;
    name_ = name;
    address_ = address;
    return {};
}

Status Names::find(const std::string& name, std::string* address) {
    std::optional<std::string> text;
    Status status = store_->get(key(name), &text);
    if (!status.ok()) return status;
    const auto entry = text ? parse_object(*text) : std::nullopt;
    if (entry && get(*entry, kAddress, address)) return {};
    return {Code::kInvalidArgument, "segment '" + name + "': the metadata store has none of this name"};
}

}  // namespace rove::tent
