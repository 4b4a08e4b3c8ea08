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
constexpr long kConnectMs = 2000;       // limit for connecting, if the answer has no limit

size_t collect(const char* data, size_t size, size_t count, void* text) {
    auto& answer = *static_cast<std::string*>(text);
    if (answer.size() + size * count > kMaxAnswer) return 0;  // ends the call with an error
    answer.append(data, size * count);
    return size * count;
}

size_t hand_on(const char* data, size_t size, size_t count, void* take) {
    return (*static_cast<std::function<bool(std::string_view)>*>(take))({data, size * count}) ? size * count : 0;
}

// A libcurl request, except for the receiver of the answer. `request` must outlive it.
class Prepared {
  public:
    Prepared(const HttpRequest& request, const StoreConfig& config)
        : curl_(curl_easy_init(), curl_easy_cleanup), headers_(nullptr, curl_slist_free_all) {
        curl_slist* list = nullptr;
        for (const std::string& header : request.headers) list = curl_slist_append(list, header.c_str());
        headers_.reset(list);
        set(CURLOPT_URL, request.url.c_str());
        set(CURLOPT_CUSTOMREQUEST, request.method);
        if (!request.body.empty()) set(CURLOPT_POSTFIELDS, request.body.c_str());
        if (list != nullptr) set(CURLOPT_HTTPHEADER, list);
        set(CURLOPT_NOSIGNAL, 1L);
        set(CURLOPT_NOPROXY, "*");
        const auto set_file = [&](CURLoption option, const std::string& file) {
            if (!file.empty()) set(option, file.c_str());
        };
        set_file(CURLOPT_CAINFO, config.tls.ca_file);
        set_file(CURLOPT_SSLCERT, config.tls.cert_file);
        set_file(CURLOPT_SSLKEY, config.tls.key_file);
    }
    CURL* get() const { return curl_.get(); }
    template <typename T>
    void set(CURLoption option, T value) {
        curl_easy_setopt(curl_.get(), option, value);
    }

  private:
    std::unique_ptr<CURL, void (*)(CURL*)> curl_;
    std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers_;
};

void start_curl() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

}  // namespace

bool http_request(const HttpRequest& request, const StoreConfig& config, long timeout_ms, HttpAnswer* answer,
                  std::string* error) {
    const NoSigpipe guard;
    start_curl();
    Prepared prepared(request, config);
    answer->text.clear();
    prepared.set(CURLOPT_WRITEFUNCTION, collect);
    prepared.set(CURLOPT_WRITEDATA, &answer->text);
    prepared.set(CURLOPT_TIMEOUT_MS, timeout_ms);
    const CURLcode code = curl_easy_perform(prepared.get());
    if (code != CURLE_OK) {
        *error = curl_easy_strerror(code);
        return false;
    }
    curl_easy_getinfo(prepared.get(), CURLINFO_RESPONSE_CODE, &answer->status);
    return true;
}

HttpStream::HttpStream() : multi_((start_curl(), curl_multi_init())) {}

HttpStream::~HttpStream() {
    curl_multi_cleanup(multi_);
}

void HttpStream::run(const HttpRequest& request, const StoreConfig& config,
                     std::function<bool(std::string_view)> take) {
    Prepared prepared(request, config);
    prepared.set(CURLOPT_WRITEFUNCTION, hand_on);
    prepared.set(CURLOPT_WRITEDATA, &take);
    prepared.set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    // A server that has lost its power is silent, too. Keepalive finds that out.
    prepared.set(CURLOPT_TCP_KEEPALIVE, 1L);
    prepared.set(CURLOPT_TCP_KEEPIDLE, 5L);
    prepared.set(CURLOPT_TCP_KEEPINTVL, 5L);
    curl_multi_add_handle(multi_, prepared.get());
    for (int running = 1; !interrupted_.load();) {
        if (curl_multi_perform(multi_, &running) != CURLM_OK || running == 0) break;
        constexpr int kLongMs = 60'000;  // curl_multi_wakeup() ends it sooner
        if (curl_multi_poll(multi_, nullptr, 0, kLongMs, nullptr) != CURLM_OK) break;
    }
    curl_multi_remove_handle(multi_, prepared.get());
}

void HttpStream::interrupt() {
    interrupted_.store(true);
    curl_multi_wakeup(multi_);
}

std::string percent_encode(std::string_view text) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    constexpr std::string_view kPlain = "-._~";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        const bool is_plain =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kPlain.find(c) != kPlain.npos;
        if (is_plain) {
            out += c;
        } else {
            out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
        }
    }
    return out;
}

}  // namespace rove::tent
