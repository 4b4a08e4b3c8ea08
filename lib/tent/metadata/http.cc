// SPDX-License-Identifier: Apache-2.0
// See http.h.
#include "tent/metadata/http.h"

#include <curl/curl.h>

#include <memory>
#include <mutex>

#include "tent/metadata/no_sigpipe.h"

namespace rove::tent {

namespace {

constexpr size_t kMaxAnswer = 1 << 20;  // bytes

size_t collect(const char* data, size_t size, size_t count, void* text) {
    auto& answer = *static_cast<std::string*>(text);
    if (answer.size() + size * count > kMaxAnswer) return 0;  // ends the call with an error
    answer.append(data, size * count);
    return size * count;
}

}  // namespace

bool http_request(const char* method, const std::string& url, const std::string& body,
                  const std::vector<std::string>& headers, const StoreConfig& config, long timeout_ms,
                  HttpAnswer* answer, std::string* error) {
    const NoSigpipe guard;
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
    curl_slist* list = nullptr;
    for (const std::string& header : headers) list = curl_slist_append(list, header.c_str());
    const std::unique_ptr<curl_slist, void (*)(curl_slist*)> owned(list, curl_slist_free_all);
    answer->text.clear();
    curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method);
    if (!body.empty()) curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body.c_str());
    if (list != nullptr) curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer->text);
    curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, timeout_ms);
    curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
    const auto set_file = [&](CURLoption option, const std::string& file) {
        if (!file.empty()) curl_easy_setopt(curl.get(), option, file.c_str());
    };
    set_file(CURLOPT_CAINFO, config.ca_file);
    set_file(CURLOPT_SSLCERT, config.cert_file);
    set_file(CURLOPT_SSLKEY, config.key_file);
    const CURLcode code = curl_easy_perform(curl.get());
    if (code != CURLE_OK) {
        *error = curl_easy_strerror(code);
        return false;
    }
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer->status);
    return true;
}

std::string percent_encode(std::string_view text) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    constexpr std::string_view kPlain = "-._~";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              kPlain.find(c) != kPlain.npos;
        if (is_plain) {
            out += c;
        } else {
            out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
        }
    }
    return out;
}

}  // namespace rove::tent
