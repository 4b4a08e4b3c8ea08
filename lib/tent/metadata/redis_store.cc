// SPDX-License-Identifier: Apache-2.0
// redis, by its protocol (redis.io/docs/reference/protocol-spec, RESP2); a connection for each call, as calls are rare,
// with TLS to servers that are named rediss://. A key has a time to live; what depends on its value is a script, which
// redis runs in one step. MC_REDIS_PASSWORD, MC_REDIS_USERNAME and MC_REDIS_DB_INDEX are read from the environment,
// where the original has them: a password is not for a configuration file.
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "tent/clock.h"
#include "tent/metadata/no_sigpipe.h"
#include "tent/metadata/store.h"
#include "tent/metadata/stream.h"

namespace rove::tent {

namespace {

// KEYS[1], the value that it must have, and what else there is.
constexpr std::string_view kReplace =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end redis.call('SET',KEYS[1],ARGV[2],'PX',ARGV[3]) return 1";
constexpr std::string_view kKeep =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end return redis.call('PEXPIRE',KEYS[1],ARGV[2])";
constexpr std::string_view kGiveBack =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end return redis.call('DEL',KEYS[1])";

struct Reply {
    enum class Kind : uint8_t { kText, kNumber, kNothing, kError };
    Kind kind = Kind::kError;
    std::string text;  // a number's digits too
};

// One connection: commands and their replies.
class Session {
  public:
    static constexpr size_t kMaxReply = 1 << 20;  // bytes

    Session(Stream& stream, uint64_t deadline_ns) : stream_(stream), deadline_ns_(deadline_ns) {}

    Reply ask(std::initializer_list<std::string_view> words) {
        std::string command;
        const auto line_of = [&](char kind, size_t count) {
            (command += kind).append(std::to_string(count)) += "\r\n";
        };
        line_of('*', words.size());
        for (const std::string_view word : words) {
            line_of('$', word.size());
            command.append(word) += "\r\n";
        }
        std::string line;
        if (!stream_.write(command, deadline_ns_) || !read_line(&line) || line.empty())
            return {Reply::Kind::kError, "no answer"};
        const std::string rest = line.substr(1);
        switch (line[0]) {
            case '+':
                return {Reply::Kind::kText, rest};
            case ':':
                return {Reply::Kind::kNumber, rest};
            case '$':
                return read_text(rest);
            case '-':
                return {Reply::Kind::kError, rest};
            default:
                return {Reply::Kind::kError, "an answer that is not understood"};
        }
    }

  private:
    Reply read_text(const std::string& length) {
        long size = 0;
        const char* const end = length.data() + length.size();
        if (std::from_chars(length.data(), end, size).ptr != end || size > static_cast<long>(kMaxReply))
            return {Reply::Kind::kError, "an answer that is not understood"};
        if (size < 0) return {Reply::Kind::kNothing, ""};
        const auto bytes = static_cast<size_t>(size);
        if (!fill(bytes + 2)) return {Reply::Kind::kError, "no answer"};
        Reply reply{Reply::Kind::kText, in_.substr(0, bytes)};
        in_.erase(0, bytes + 2);
        return reply;
    }
    bool read_line(std::string* line) {
        size_t end;
        while ((end = in_.find("\r\n")) == std::string::npos)
            if (!fill(in_.size() + 1)) return false;
        *line = in_.substr(0, end);
        in_.erase(0, end + 2);
        return true;
    }
    bool fill(size_t size) {
        while (in_.size() < size) {
            const std::string more = stream_.read(4096, deadline_ns_);
            in_ += more;
            if (more.empty() || in_.size() > kMaxReply + 4096) return false;
        }
        return true;
    }

    Stream& stream_;
    const uint64_t deadline_ns_;
    std::string in_;
};

class RedisStore : public MetadataStore {
  public:
    RedisStore(std::vector<std::string> servers, const StoreConfig& config)
        : servers_(std::move(servers)), config_(config), ttl_ms_(std::to_string(config.ttl_s * 1000)) {}

    Status get(const std::string& key, std::optional<std::string>* value) override {
        Reply reply;
        Status status = call({"GET", key}, &reply);
        value->reset();
        if (status.ok() && reply.kind == Reply::Kind::kText) *value = std::move(reply.text);
        return status;
    }

    Status take(const std::string& key, const std::string& value, const std::optional<std::string>& instead,
                bool* taken) override {
        Reply reply;
        Status status = instead ? call({"EVAL", kReplace, "1", key, *instead, value, ttl_ms_}, &reply)
                                : call({"SET", key, value, "NX", "PX", ttl_ms_}, &reply);
        *taken = status.ok() && (reply.text == "OK" || reply.text == "1");
        return status;
    }

    Status keep(const std::string& key, const std::string& value, bool* kept) override {
        Reply reply;
        Status status = call({"EVAL", kKeep, "1", key, value, ttl_ms_}, &reply);
        *kept = status.ok() && reply.text == "1";
        return status;
    }

    Status give_back(const std::string& key, const std::string& value) override {
        Reply reply;
        return call({"EVAL", kGiveBack, "1", key, value}, &reply);
    }

  private:
    Status call(std::initializer_list<std::string_view> words, Reply* out) {
        std::string error;
        for (const std::string& server : servers_) {
            error = "redis " + server + ": ";
            const size_t scheme = server.find("://");
            const bool with_tls = server.starts_with("rediss://");
            std::string address = scheme == std::string::npos ? server : server.substr(scheme + 3), why;
            if (address.rfind(':') == std::string::npos) address += ":6379";
            const uint64_t deadline_ns = monotonic_ns() + kCallMs * 1'000'000;
            const NoSigpipe guard;
            Stream stream;
            if (!stream.open(address, with_tls, config_, deadline_ns, &why)) {
                error += why;
                continue;
            }
            Session session(stream, deadline_ns);
            const auto ask = [&](std::initializer_list<std::string_view> command) {
                *out = session.ask(command);
                if (out->kind == Reply::Kind::kError) error += out->text;
                return out->kind != Reply::Kind::kError;
            };
            const char* password = std::getenv("MC_REDIS_PASSWORD");
            const char* user = std::getenv("MC_REDIS_USERNAME");
            const char* database = std::getenv("MC_REDIS_DB_INDEX");
            if (password != nullptr && !(user == nullptr ? ask({"AUTH", password}) : ask({"AUTH", user, password})))
                continue;
            if (database != nullptr && !ask({"SELECT", database})) continue;
            if (ask(words)) return {};
        }
        return {Code::kMetadataError, error};
    }

    const std::vector<std::string> servers_;
    const StoreConfig config_;
    const std::string ttl_ms_;
};

}  // namespace

std::unique_ptr<MetadataStore> open_redis(std::vector<std::string> servers, const StoreConfig& config) {
    return std::make_unique<RedisStore>(std::move(servers), config);
}

}  // namespace rove::tent
