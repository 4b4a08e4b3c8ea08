// SPDX-License-Identifier: Apache-2.0
// etcd by the JSON gateway of its v3 API (etcd.io/docs/v3.4/dev-guide/api_grpc_gateway): HTTP POSTs with keys and
// values in base64. A key is attached to a lease of this process, and is taken in a transaction. A watch reports
// changes of other processes: an HTTP answer that does not end, with a line of JSON for each change. ETCDCTL_USER,
// "NAME:PASSWORD", comes from the environment, as with etcdctl: a password does not belong in a configuration file.
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tent/control/frame.h"
#include "tent/metadata/http.h"
#include "tent/metadata/store.h"
#include "tent/metadata/watch_thread.h"

namespace rove::tent {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

class EtcdServer {
  public:
    // `config` must outlive the object.
    EtcdServer(const std::string& server, const StoreConfig& config)
        : base_((server.find("://") == std::string::npos ? "http://" : "") + server + "/v3/"), config_(config) {}

    // Gets a token for the next request. Requests are few, and tokens expire.
    bool authenticate(std::string* token, std::string* why) const {
        const char* user = secure_getenv("ETCDCTL_USER");
        if (user == nullptr || *user == 0) return true;
        const std::string text = user;
        const size_t colon = text.find(':');
        const std::string password = colon == std::string::npos ? "" : text.substr(colon + 1);
        Json answer;
        return post("auth/authenticate", "", {{"name", text.substr(0, colon)}, {"password", password}}, &answer, why) &&
               get(answer, "token", token);
    }

    bool post(const char* operation, const std::string& token, const Json& body, Json* out, std::string* why) const {
        HttpAnswer answer;
        if (!http_request(request(operation, token, body), config_, MetadataStore::kCallMs, &answer, why)) return false;
        auto object = parse_object(answer.text);
        if (answer.status == 200 && object) {
            *out = std::move(*object);
            return true;
        }
        *why = "HTTP status " + std::to_string(answer.status) + ", " + answer.text.substr(0, 200);
        return false;
    }

    HttpRequest request(const char* operation, const std::string& token, const Json& body) const {
        HttpRequest request{"POST", base_ + operation, body.dump(), {}};
        if (!token.empty()) request.headers.push_back("Authorization: " + token);
        return request;
    }

  private:
    const std::string base_;
    const StoreConfig& config_;
};

// Watches keys at the first server that answers.
class EtcdListener {
  public:
    EtcdListener(std::vector<std::string> servers, StoreConfig config, std::string prefix,
                 MetadataStore::Changed changed)
        : servers_(std::move(servers)),
          config_(std::move(config)),
          prefix_(std::move(prefix)),
          changed_(std::move(changed)) {}

    void listen() {
        // The range has all keys with the prefix: its end is the prefix with the last byte incremented.
        std::string end = prefix_;
        ++end.back();
        const Json range{{"key", base64_encode(prefix_)}, {"range_end", base64_encode(end)}};
        for (const std::string& server : servers_) {
            if (stream_.is_interrupted()) return;
            const EtcdServer etcd(server, config_);
            std::string token, why;
            if (!etcd.authenticate(&token, &why)) continue;
            in_.clear();
            is_watching_ = false;
            stream_.run(etcd.request("watch", token, {{"create_request", range}}), config_,
                        [this](std::string_view piece) { return take(piece); });
            if (is_watching_) return;
        }
    }
    void interrupt() { stream_.interrupt(); }

  private:
    static constexpr size_t kMaxLine = 1 << 20, kMaxEvents = 1 << 16;

    bool take(std::string_view piece) {
        in_ += piece;
        for (size_t end; (end = in_.find('\n')) != std::string::npos; in_.erase(0, end + 1)) {
            const auto line = parse_object(in_.substr(0, end));
            const auto result = line ? line->find("result") : Json::const_iterator();
            if (!line || result == line->end() || !result->is_object()) return false;
            bool is_canceled = false;
            if (get(*result, "canceled", &is_canceled) && is_canceled) return false;
            // Changes before the watch began are not reported.
            if (!std::exchange(is_watching_, true)) changed_("");
            const Json* events = get_array(*result, "events", kMaxEvents);
            if (events == nullptr) continue;
            for (const Json& event : *events) take_event(event);
        }
        return in_.size() <= kMaxLine;
    }
    void take_event(const Json& event) {
        if (!event.is_object()) return;
        const auto pair = event.find("kv");
        std::string text;
        if (pair == event.end() || !pair->is_object() || !get(*pair, "key", &text)) return;
        const auto key = base64_decode(text);
        if (key && key->starts_with(prefix_)) changed_(*key);
    }

    const std::vector<std::string> servers_;
    const StoreConfig config_;
    const std::string prefix_;
    const MetadataStore::Changed changed_;
    HttpStream stream_;
    std::string in_;
    bool is_watching_ = false;
};

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
            condition["create_revision"] = "0";  // the key was never created
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
            lease_.clear();  // etcd was unreachable for longer than the lease lasts
            return status;
        }
        std::optional<std::string> found;
        status = get(key, &found);
        *kept = found == value;
        return status;
    }

    // Revoking the lease removes the keys that are attached to it, but not a key that another process has put there.
    Status give_back(const std::string&, const std::string&) override {
        const std::lock_guard lock(mutex_);
        Json answer;
        return lease_.empty() ? Status{} : call("lease/revoke", {{"ID", std::exchange(lease_, "")}}, &answer);
    }

    std::unique_ptr<StoreWatch> watch(const std::string& prefix, Changed changed) override {
        const auto listener = std::make_shared<EtcdListener>(servers_, config_, prefix, std::move(changed));
        return std::make_unique<WatchThread>([listener] { listener->listen(); }, [listener] { listener->interrupt(); });
    }

  private:
    // The caller holds mutex_.
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
            const EtcdServer etcd(server, config_);
            std::string token, why;
            if (etcd.authenticate(&token, &why) && etcd.post(operation, token, body, out, &why)) return {};
            error = "etcd " + server + ": " + why;
        }
        return {Code::kMetadataError, error};
    }

    const std::vector<std::string> servers_;
    const StoreConfig config_;
    std::mutex mutex_;
    std::string lease_;  // "" if there is no lease
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
