// SPDX-License-Identifier: Apache-2.0
// See names.h.
#include "tent/metadata/names.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/no_signals.h"
#include "tent/control/client.h"
#include "tent/engine/segment.h"

namespace rove::tent {

namespace {

constexpr uint64_t kAskNs = 1'000'000'000;
constexpr int kAttempts = 3;  // attempts to take a name that other processes want too
constexpr const char* kAddress = "rpc_server_addr";

constexpr std::string_view kPrefix = "rove/tent/";

std::string key(const std::string& name) {
    return std::string(kPrefix) + name;
}

bool parse_value(const std::optional<std::string>& text, std::string* address) {
    const auto entry = text ? parse_object(*text) : std::nullopt;
    return entry && get(*entry, kAddress, address);
}

}  // namespace

Names::~Names() {
    watch_.reset();
    if (name_.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    end_.notify_one();
    keeper_.join();
    (void)store_->give_back(key(name_), value_);
}

Status Names::publish(const std::string& name, const std::string& address) {
    const std::string value = Json{{kAddress, address}}.dump();
    Status status = take(name, value);
    if (!status.ok()) return status;
    name_ = name;
    value_ = value;
    const NoSignals guard;
    keeper_ = std::thread([this] { keep(); });
    return {};
}

// Takes the name unless a living process has it. The name of a process that was killed, or that ended a moment ago, is
// free.
Status Names::take(const std::string& name, const std::string& value) {
    std::string other;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        std::optional<std::string> found;
        Status status = store_->get(key(name), &found);
        if (!status.ok()) return status;
        if (found != value && parse_value(found, &other)) {
            const auto answer = ControlClient(other, credentials_).call(MessageType::kDescribe, Json::object(), kAskNs);
            const auto segment = answer ? parse_segment(*answer) : std::nullopt;
            if (segment && segment->name == name) break;
        }
        bool taken = false;
        status = store_->take(key(name), value, found, &taken);
        if (!status.ok() || taken) return status;
    }
    return {Code::kInvalidArgument,
            "key 'local_segment_name': '" + name + "' is in use by a running process at " + other};
}

void Names::keep() {
    std::unique_lock lock(mutex_);
    while (!end_.wait_for(lock, std::chrono::milliseconds(ttl_s_ * 1000 / 3), [this] { return ends_; })) {
        lock.unlock();
        bool kept = false, taken = false;
        // A store that was unreachable for too long has forgotten the name. If another process has taken it meanwhile,
        // that process has it.
        if (store_->keep(key(name_), value_, &kept).ok() && !kept)
            (void)store_->take(key(name_), value_, std::nullopt, &taken);
        lock.lock();
    }
}

void Names::watch(std::function<void(const std::string& name)> changed) {
    watch_ = store_->watch(std::string(kPrefix), [changed = std::move(changed)](const std::string& key) {
        changed(key.empty() ? "" : key.substr(kPrefix.size()));
    });
}

Status Names::find(const std::string& name, std::string* address) {
    std::optional<std::string> text;
    Status status = store_->get(key(name), &text);
    if (!status.ok()) return status;
    if (parse_value(text, address)) return {};
    return {Code::kInvalidArgument, "segment '" + name + "': the metadata store has no segment of this name"};
}

}  // namespace rove::tent
