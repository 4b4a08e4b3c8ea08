// SPDX-License-Identifier: Apache-2.0
// redis, by hiredis; a connection for each call, as calls are rare. MC_REDIS_PASSWORD, MC_REDIS_USERNAME and
// MC_REDIS_DB_INDEX are read from the environment, where the original has them: a password is not for a configuration
// file.
#include <hiredis/hiredis.h>

#include <cstdlib>
#include <initializer_list>

#include "tent/metadata/store.h"

namespace rove::tent {

namespace {

using Reply = std::unique_ptr<redisReply, void (*)(void*)>;
using Connection = std::unique_ptr<redisContext, void (*)(redisContext*)>;

Reply send(const Connection& connection, std::initializer_list<std::string_view> words) {
    std::vector<const char*> texts;
    std::vector<size_t> lengths;
    for (const std::string_view word : words) {
        texts.push_back(word.data());
        lengths.push_back(word.size());
    }
    return {static_cast<redisReply*>(
                redisCommandArgv(connection.get(), static_cast<int>(texts.size()), texts.data(), lengths.data())),
            freeReplyObject};
}

class RedisStore : public MetadataStore {
  public:
    explicit RedisStore(std::vector<std::string> servers) : servers_(std::move(servers)) {}

    Status put(const std::string& key, const std::string& value) override {
        std::optional<std::string> answer;
        return call({"SET", key, value}, &answer);
    }
    Status get(const std::string& key, std::optional<std::string>* value) override { return call({"GET", key}, value); }
    Status remove(const std::string& key) override {
        std::optional<std::string> answer;
        return call({"DEL", key}, &answer);
    }

  private:
    // `*out`: the answer, if it is text.
    Status call(std::initializer_list<std::string_view> words, std::optional<std::string>* out) {
        out->reset();
        std::string error;
        for (const std::string& server : servers_) {
            const size_t colon = server.rfind(':');
            const int port = colon == std::string::npos ? 6379 : std::atoi(server.c_str() + colon + 1);
            const timeval patience{.tv_sec = kCallMs / 1000, .tv_usec = 0};
            const Connection connection(redisConnectWithTimeout(server.substr(0, colon).c_str(), port, patience),
                                        redisFree);
            error = "redis " + server + ": ";
            if (connection == nullptr || connection->err != 0) {
                error += connection == nullptr ? "no memory" : connection->errstr;
                continue;
            }
            redisSetTimeout(connection.get(), patience);
            const auto ask = [&](std::initializer_list<std::string_view> command) {
                Reply reply = send(connection, command);
                if (reply == nullptr) error += connection->errstr;
                if (reply != nullptr && reply->type == REDIS_REPLY_ERROR) error += reply->str;
                return reply == nullptr || reply->type == REDIS_REPLY_ERROR ? Reply(nullptr, freeReplyObject)
                                                                            : std::move(reply);
            };
            const char* password = std::getenv("MC_REDIS_PASSWORD");
            const char* user = std::getenv("MC_REDIS_USERNAME");
            const char* database = std::getenv("MC_REDIS_DB_INDEX");
            if (password != nullptr &&
                (user == nullptr ? ask({"AUTH", password}) : ask({"AUTH", user, password})) == nullptr)
                continue;
            if (database != nullptr && ask({"SELECT", database}) == nullptr) continue;
            const Reply reply = ask(words);
            if (reply == nullptr) continue;
            if (reply->type == REDIS_REPLY_STRING) out->emplace(reply->str, reply->len);
            return {};
        }
        return {Code::kMetadataError, error};
    }

    const std::vector<std::string> servers_;
};

}  // namespace

std::unique_ptr<MetadataStore> open_redis(std::vector<std::string> servers) {
    return std::make_unique<RedisStore>(std::move(servers));
}

}  // namespace rove::tent
