// SPDX-License-Identifier: Apache-2.0
// etcd, by the JSON gateway of its v3 API (etcd.io/docs/v3.4/dev-guide/api_grpc_gateway): HTTP POSTs, keys and values
// in base64. A key is attached to a lease of ours, and taken in a transaction. ETCDCTL_USER, "NAME:PASSWORD", is read
// from the environment, as etcdctl does: a password is not for a configuration file.
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tent/control/frame.h"
#include "tent/metadata/http.h"
#include "tent/metadata/store.h"

namespace rove::tent {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

class EtcdStore : public MetadataStore {
  public:
    EtcdStore(std::vector<std::string> servers, const StoreConfig& config)
        : servers_(std::move(servers)), config_(config) {}

    Status get(const std::string& key, std::optional<std::string>* value) override {
        Json answer;
        Status status = call("kv/range", {{"key", base64_encode(key)}}, &answer);
        value->reset();
        const Json* found = get_array(answer, "kvs", 1);
        if (!status.ok() || found == nullptr || found->empty()) return status;
        std::string text;
        if ((*found)[0].is_object() && tent::get((*found)[0], "value", &text)) *value = base64_decode(text);
        return status;
    }

    Status take(const std::string& key, const std::string& value, const std::optional<std::string>& instead,
                bool* taken) override {
        *taken = false;
        const std::lock_guard lock(mutex_);
        Status status = grant();
        if (!status.ok()) return status;
        Json condition{{"key", base64_encode(key)}, {"result", "EQUAL"}};
        condition["target"] = instead ? "VALUE" : "CREATE";
        if (instead) {
            condition["value"] = base64_encode(*instead);
        } else {
            condition["create_revision"] = "0";  // it was never created
        }
        const Json put{{"key", base64_encode(key)}, {"value", base64_encode(value)}, {"lease", lease_}};
        Json answer;
        const Json success{{"requestPut", put}};
        status = call("kv/txn", {{"compare", Json::array({condition})}, {"success", Json::array({success})}}, &answer);
        if (status.ok()) tent::get(answer, "succeeded", taken);
        return status;
    }

    Status keep(const std::string& key, const std::string& value, bool* kept) override {
        *kept = false;
        const std::lock_guard lock(mutex_);
        Json answer;
        Status status = call("lease/keepalive", {{"ID", lease_}}, &answer);
        if (!status.ok()) return status;
        std::string seconds;
        const auto result = answer.find("result");
        if (result == answer.end() || !result->is_object() || !tent::get(*result, "TTL", &seconds) || seconds == "0") {
            lease_.clear();  // etcd was away for longer than it lasts
            return status;
        }
        std::optional<std::string> found;
        status = get(key, &found);
        *kept = found == value;
        return status;
    }

    // What is attached to the lease goes with it; what another has put there is not.
    Status give_back(const std::string&, const std::string&) override {
        const std::lock_guard lock(mutex_);
        Json answer;
        return lease_.empty() ? Status{} : call("lease/revoke", {{"ID", std::exchange(lease_, "")}}, &answer);
    }

  private:
    // With mutex_.
    Status grant() {
        if (!lease_.empty()) return {};
        Json answer;
        Status status = call("lease/grant", {{"TTL", std::to_string(config_.ttl_s)}}, &answer);
        if (status.ok() && !tent::get(answer, "ID", &lease_))
            return {Code::kMetadataError, "etcd: a lease without an ID"};
        return status;
    }

    Status call(const char* operation, const Json& body, Json* out) {
        *out = Json::object();
        std::string error;
        for (const std::string& server : servers_) {
            const std::string base = (server.find("://") == std::string::npos ? "http://" : "") + server + "/v3/";
            std::string token, why;
            const bool done = authenticate(base, &token, &why) && post(base + operation, token, body, out, &why);
            if (done) return {};
            error = "etcd " + server + ": " + why;
        }
        return {Code::kMetadataError, error};
    }

    // A token for the next request: they are few, and tokens end.
    bool authenticate(const std::string& base, std::string* token, std::string* why) {
        const char* user = std::getenv("ETCDCTL_USER");
        if (user == nullptr || *user == 0) return true;
        const std::string text = user;
        const size_t colon = text.find(':');
        const std::string password = colon == std::string::npos ? "" : text.substr(colon + 1);
        Json answer;
        return post(base + "auth/authenticate", "", {{"name", text.substr(0, colon)}, {"password", password}}, &answer,
                    why) &&
               tent::get(answer, "token", token);
    }

    bool post(const std::string& url, const std::string& token, const Json& body, Json* out, std::string* why) {
        std::vector<std::string> headers;
        if (!token.empty()) headers.push_back("Authorization: " + token);
        HttpAnswer answer;
        if (!http_request("POST", url, body.dump(), headers, config_, kCallMs, &answer, why)) return false;
        auto object = parse_object(answer.text);
        if (answer.status == 200 && object) {
            *out = std::move(*object);
            return true;
        }
        *why = "HTTP status " + std::to_string(answer.status) + ", " + answer.text.substr(0, 200);
        return false;
    }

    const std::vector<std::string> servers_;
    const StoreConfig config_;
    std::mutex mutex_;
    std::string lease_;  // "": none
};

}  // namespace

std::string base64_encode(std::string_view bytes) {
    std::string text;
    for (size_t at = 0; at < bytes.size(); at += 3) {
        uint32_t bits = 0;
        for (size_t i = 0; i < 3; ++i)
            bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0u);
        for (size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 63];
    }
    return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string bytes;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const size_t digit = kDigits.find(text[i]);
        if (digit == kDigits.npos) return std::nullopt;
        bits = bits << 6 | static_cast<uint32_t>(digit);
        if (i % 4 != 0) bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)));
    }
    return bytes;
}

std::unique_ptr<MetadataStore> open_etcd(std::vector<std::string> servers, const StoreConfig& config) {
    return std::make_unique<EtcdStore>(std::move(servers), config);
}

}  // namespace rove::tent
