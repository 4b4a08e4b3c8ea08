// SPDX-License-Identifier: Apache-2.0
// An HTTP server like Mooncake's: GET, PUT and DELETE of URL?key=KEY, with 404 if there is no such key. It has neither
// conditions nor expiry. Two processes that take a name at the same moment may both believe that they have it, until
// keep() shows one of them the other's value. The name of a process that was killed stays until another process takes
// it.
#include "tent/metadata/http.h"
#include "tent/metadata/store.h"

namespace rove::tent {

namespace {

class HttpStore : public MetadataStore {
  public:
    HttpStore(std::vector<std::string> servers, const StoreConfig& config)
        : servers_(std::move(servers)), config_(config) {}

    Status get(const std::string& key, std::optional<std::string>* value) override {
        HttpAnswer answer;
        Status status = call("GET", key, "", &answer);
        value->reset();
        if (status.ok() && answer.status == 200) *value = std::move(answer.text);
        return status;
    }

    Status take(const std::string& key, const std::string& value, const std::optional<std::string>& instead,
                bool* taken) override {
        std::optional<std::string> found;
        Status status = get(key, &found);
        *taken = false;
        if (!status.ok() || found != instead) return status;
        HttpAnswer answer;
        status = call("PUT", key, value, &answer);
        if (status.ok()) status = get(key, &found);
        *taken = status.ok() && found == value;
        return status;
    }

    Status keep(const std::string& key, const std::string& value, bool* kept) override {
        std::optional<std::string> found;
        Status status = get(key, &found);
        *kept = found == value;
        return status;
    }

    Status give_back(const std::string& key, const std::string& value) override {
        bool is_ours = false;
        Status status = keep(key, value, &is_ours);
        HttpAnswer answer;
        return status.ok() && is_ours ? call("DELETE", key, "", &answer) : status;
    }

  private:
    // Valid answers are 200 and, if there is no such key, 404.
    Status call(const char* method, const std::string& key, const std::string& body, HttpAnswer* answer) {
        std::string error;
        for (const std::string& server : servers_) {
            const std::string url = (server.find("://") == std::string::npos ? "http://" : "") + server;
            std::string why;
            const HttpRequest request{
                method, url + "?key=" + percent_encode(key), body, {"Content-Type: application/json"}};
            const bool answered = http_request(request, config_, kCallMs, answer, &why);
            if (answered && (answer->status == 200 || (answer->status == 404 && body.empty()))) return {};
            if (answered) why = "HTTP status " + std::to_string(answer->status) + ", " + answer->text.substr(0, 200);
            error = "http " + server + ": " + why;
        }
        return {Code::kMetadataError, error};
    }

    const std::vector<std::string> servers_;
    const StoreConfig config_;
};

}  // namespace

std::unique_ptr<MetadataStore> open_http(std::vector<std::string> servers, const StoreConfig& config) {
    return std::make_unique<HttpStore>(std::move(servers), config);
}

}  // namespace rove::tent
