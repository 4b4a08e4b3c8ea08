// SPDX-License-Identifier: Apache-2.0
// redis. Each call has its own connection, as calls are rare, and one connection stays for the server's notifications
// (redis.io/docs/latest/develop/use/keyspace-notifications). A key has a time to live. Changes that depend on a key's
// value are scripts, which redis runs in one step.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tent/control/address.h"
#include "tent/engine/clock.h"
#include "tent/metadata/redis_session.h"
#include "tent/metadata/store.h"
#include "tent/metadata/watch_thread.h"
#include "tent/observability/log.h"

namespace rove::tent {

namespace {

using Kind = RedisReply::Kind;

// The scripts take KEYS[1], the value that it must have, and further arguments.
constexpr std::string_view kReplace =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end redis.call('SET',KEYS[1],ARGV[2],'PX',ARGV[3]) return 1";
constexpr std::string_view kKeep =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end return redis.call('PEXPIRE',KEYS[1],ARGV[2])";
constexpr std::string_view kGiveBack =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end return redis.call('DEL',KEYS[1])";

// Watches keys at the first server that answers.
class RedisListener {
  public:
    RedisListener(std::vector<std::string> servers, StoreConfig config, std::string prefix,
                  MetadataStore::Changed changed)
        : servers_(std::move(servers)),
          config_(std::move(config)),
          prefix_(std::move(prefix)),
          changed_(std::move(changed)) {}

    void listen() {
        for (const std::string& server : servers_) {
            if (!is_interruptible(-1)) return;
            RedisSession session;
            std::string error;
            const uint64_t deadline_ns = monotonic_ns() + MetadataStore::kCallMs * 1'000'000;
            if (!session.open(server, config_, deadline_ns, &error)) continue;
            keep_alive(session.fd());
            if (is_interruptible(session.fd()) && subscribe(session, server, deadline_ns)) take(session);
            is_interruptible(-1);
            return;
        }
    }
    void interrupt() {
        const std::lock_guard lock(mutex_);
        interrupted_ = true;
        if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
    }

  private:
    // Sets the socket whose wait interrupt() ends; -1 for no socket. Returns false if interrupt() was called.
    bool is_interruptible(int fd) {
        const std::lock_guard lock(mutex_);
        fd_ = fd;
        return !interrupted_;
    }
    bool subscribe(RedisSession& session, const std::string& server, uint64_t deadline_ns) {
        // A client that may not read this setting assumes that all events are on, and learns from the messages that
        // arrive.
        const RedisReply set = session.ask({"CONFIG", "GET", "notify-keyspace-events"}, deadline_ns);
        const std::string events = set.list.size() == 2 ? set.list[1] : "KA";
        const bool has_all = events.find('A') != std::string::npos;
        const auto has = [&](char event) { return events.find(event) != std::string::npos; };
        if (!has('K') || (!has_all && (!has('g') || !has('$') || !has('x')))) {
            static LogLimit limit;
            log(limit, LogLevel::kWarning,
                "redis %s: its notify-keyspace-events are '%s', not 'Kg$x', so the end or the return of a "
                "process is detected late",
                server.c_str(), events.c_str());
        }
        channel_ = "__keyspace@" + RedisSession::database() + "__:" + prefix_;
        const RedisReply subscribed = session.ask({"PSUBSCRIBE", channel_ + "*"}, deadline_ns);
        if (subscribed.kind == Kind::kList) changed_("");
        return subscribed.kind == Kind::kList;
    }
    void take(RedisSession& session) {
        while (true) {
            const RedisReply reply = session.next(UINT64_MAX);
            if (reply.kind != Kind::kList) return;
            // A message has "pmessage", the pattern, the channel and the event. Keeping a key is an event too, which is
            // ignored.
            const bool is_event = reply.list.size() == 4 && reply.list[2].starts_with(channel_);
            if (!is_event || (reply.list[3] != "set" && reply.list[3] != "del" && reply.list[3] != "expired")) continue;
            changed_(prefix_ + reply.list[2].substr(channel_.size()));
        }
    }

    const std::vector<std::string> servers_;
    const StoreConfig config_;
    const std::string prefix_;
    const MetadataStore::Changed changed_;
    std::string channel_;  // prefix of the channels' names
    std::mutex mutex_;
    bool interrupted_ = false;
    int fd_ = -1;
};

class RedisStore : public MetadataStore {
  public:
    RedisStore(std::vector<std::string> servers, const StoreConfig& config)
        : servers_(std::move(servers)), config_(config), ttl_ms_(std::to_string(config.ttl_s * 1000)) {}

    Status get(const std::string& key, std::optional<std::string>* value) override {
        RedisReply reply;
        Status status = call({"GET", key}, &reply);
        value->reset();
        if (status.ok() && reply.kind == Kind::kText) *value = std::move(reply.text);
        return status;
    }

    Status take(const std::string& key, const std::string& value, const std::optional<std::string>& instead,
                bool* taken) override {
        RedisReply reply;
        Status status = instead ? call({"EVAL", kReplace, "1", key, *instead, value, ttl_ms_}, &reply)
                                : call({"SET", key, value, "NX", "PX", ttl_ms_}, &reply);
        *taken = status.ok() && (reply.text == "OK" || reply.text == "1");
        return status;
    }

    Status keep(const std::string& key, const std::string& value, bool* kept) override {
        RedisReply reply;
        Status status = call({"EVAL", kKeep, "1", key, value, ttl_ms_}, &reply);
        *kept = status.ok() && reply.text == "1";
        return status;
    }

    Status give_back(const std::string& key, const std::string& value) override {
        RedisReply reply;
        return call({"EVAL", kGiveBack, "1", key, value}, &reply);
    }

    std::unique_ptr<StoreWatch> watch(const std::string& prefix, Changed changed) override {
        const auto listener = std::make_shared<RedisListener>(servers_, config_, prefix, std::move(changed));
        return std::make_unique<WatchThread>([listener] { listener->listen(); }, [listener] { listener->interrupt(); });
    }

  private:
    Status call(std::initializer_list<std::string_view> words, RedisReply* out) {
        std::string error;
        for (const std::string& server : servers_) {
            const uint64_t deadline_ns = monotonic_ns() + kCallMs * 1'000'000;
            RedisSession session;
            std::string why;
            if (session.open(server, config_, deadline_ns, &why)) {
                *out = session.ask(words, deadline_ns);
                if (out->kind != Kind::kError) return {};
                why = out->text;
            }
            error = "redis " + server + ": " + why;
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
