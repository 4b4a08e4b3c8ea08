// SPDX-License-Identifier: Apache-2.0
// etcd, by the JSON gateway of its v3 API (etcd.io/docs/v3.4/dev-guide/api_grpc_gateway): HTTP POSTs, keys and values
// in base64.
#include <curl/curl.h>

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tent/control/frame.h"
#include "tent/metadata/store.h"

namespace rove::tent {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr size_t kMaxAnswer = 1 << 20;  // bytes

size_t collect(const char* data, size_t size, size_t count, void* text) {
    auto& answer = *static_cast<std::string*>(text);
    if (answer.size() + size * count > kMaxAnswer) return 0;  // ends the call with an error
    answer.append(data, size * count);
    return size * count;
}

class EtcdStore : public MetadataStore {
  public:
    explicit EtcdStore(std::vector<std::string> servers) : servers_(std::move(servers)) {
        static std::once_flag once;
        std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    }

    Status put(const std::string& key, const std::string& value) override {
        Json answer;
        return call("put", {{"key", base64_encode(key)}, {"value", base64_encode(value)}}, &answer);
    }

    Status get(const std::string& key, std::optional<std::string>* value) override {
        Json answer;
        Status status = call("range", {{"key", base64_encode(key)}}, &answer);
        value->reset();
        const Json* found = get_array(answer, "kvs", 1);
        if (!status.ok() || found == nullptr || found->empty()) return status;
        std::string text;
        if ((*found)[0].is_object() && tent::get((*found)[0], "value", &text)) *value = base64_decode(text);
        return status;
    }

    Status remove(const std::string& key) override {
        Json answer;
        return call("deleterange", {{"key", base64_encode(key)}}, &answer);
    }

  private:
    Status call(const char* operation, const Json& body, Json* out) {
        *out = Json::object();
        std::string error;
        for (const std::string& server : servers_) {
            error = "etcd " + server + ": ";
            std::string text;
            const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
            const std::string url = "http://" + server + "/v3/kv/" + operation, request = body.dump();
            curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
            curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, request.c_str());
            curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, collect);
            curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &text);
            curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kCallMs);
            curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
            curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
            const CURLcode code = curl_easy_perform(curl.get());
            if (code != CURLE_OK) {
                error += curl_easy_strerror(code);
                continue;
            }
            long http = 0;
            curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &http);
            const auto answer = parse_object(text);
            if (http == 200 && answer) {
                *out = *answer;
                return {};
            }
            error += "HTTP status " + std::to_string(http) + ", " + text.substr(0, 200);
        }
        return {Code::kMetadataError, error};
    }

    const std::vector<std::string> servers_;
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

std::unique_ptr<MetadataStore> open_etcd(std::vector<std::string> servers) {
    return std::make_unique<EtcdStore>(std::move(servers));
}

}  // namespace rove::tent
