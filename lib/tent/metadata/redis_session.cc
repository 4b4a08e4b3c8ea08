// SPDX-License-Identifier: Apache-2.0
// See redis_session.h.
#include "tent/metadata/redis_session.h"

#include <charconv>
#include <cstdlib>

#include "tent/control/address.h"

namespace rove::tent {

namespace {

using Kind = RedisReply::Kind;

RedisReply not_understood() {
    return {Kind::kError, "an invalid answer", {}};
}

bool parse_size(const std::string& digits, long most, long* size) {
    const char* const end = digits.data() + digits.size();
    return std::from_chars(digits.data(), end, *size).ptr == end && *size <= most;
}

}  // namespace

bool RedisSession::open(const std::string& server, const StoreConfig& config, uint64_t deadline_ns,
                        std::string* error) {
    const size_t scheme = server.find("://");
    std::string address = scheme == std::string::npos ? server : server.substr(scheme + 3);
    if (address.rfind(':') == std::string::npos) address += ":6379";
    const auto parts = split_address(address);
    *error = "HOST:PORT is allowed";
    if (!parts) return false;
    stream_ = Stream(connect_to(address, deadline_ns));
    *error = "no connection";
    if (!stream_.is_open()) return false;
    if (server.starts_with("rediss://")) {
        std::shared_ptr<const TlsContext> context;
        const Status loaded = TlsContext::load(config.tls, "metadata_", &context);
        *error = loaded.message();
        if (!loaded.ok() || !stream_.start_tls(*context, parts->host, deadline_ns, error)) return false;
    }
    const auto asked = [&](std::initializer_list<std::string_view> words) {
        const RedisReply reply = ask(words, deadline_ns);
        *error = reply.text;
        return reply.kind != Kind::kError;
    };
    const char* password = secure_getenv("MC_REDIS_PASSWORD");
    const char* user = secure_getenv("MC_REDIS_USERNAME");
    if (password != nullptr && !(user == nullptr ? asked({"AUTH", password}) : asked({"AUTH", user, password})))
        return false;
    return database() == "0" || asked({"SELECT", database()});
}

std::string RedisSession::database() {
    const char* database = secure_getenv("MC_REDIS_DB_INDEX");
    return database != nullptr ? database : "0";
}

RedisReply RedisSession::ask(std::initializer_list<std::string_view> words, uint64_t deadline_ns) {
    std::string command;
    const auto line_of = [&](char kind, size_t count) { (command += kind).append(std::to_string(count)) += "\r\n"; };
    line_of('*', words.size());
    for (const std::string_view word : words) {
        line_of('$', word.size());
        command.append(word) += "\r\n";
    }
    if (!stream_.send(command.data(), command.size(), deadline_ns)) return {Kind::kError, "no answer", {}};
    return next(deadline_ns);
}

RedisReply RedisSession::next(uint64_t deadline_ns) {
    std::string line;
    if (!read_line(&line, deadline_ns) || line.empty()) return {Kind::kError, "no answer", {}};
    const std::string rest = line.substr(1);
    switch (line[0]) {
        case '+':
            return {Kind::kText, rest, {}};
        case ':':
            return {Kind::kNumber, rest, {}};
        case '$':
            return read_text(rest, deadline_ns);
        case '*':
            return read_list(rest, deadline_ns);
        case '-':
            return {Kind::kError, rest, {}};
        default:
            return not_understood();
    }
}

RedisReply RedisSession::read_list(const std::string& length, uint64_t deadline_ns) {
    long count = 0;
    if (!parse_size(length, kMaxList, &count) || count < 0) return not_understood();
    RedisReply reply{Kind::kList, "", {}};
    for (std::string line; count != 0; --count) {
        if (!read_line(&line, deadline_ns) || line.empty()) return {Kind::kError, "no answer", {}};
        // No command that is used here returns a list within a list.
        if (line[0] != ':' && line[0] != '$') return not_understood();
        RedisReply one =
            line[0] == ':' ? RedisReply{Kind::kNumber, line.substr(1), {}} : read_text(line.substr(1), deadline_ns);
        if (one.kind == Kind::kError) return one;
        reply.list.push_back(std::move(one.text));
    }
    return reply;
}

RedisReply RedisSession::read_text(const std::string& length, uint64_t deadline_ns) {
    long size = 0;
    if (!parse_size(length, kMaxReply, &size)) return not_understood();
    if (size < 0) return {Kind::kNothing, "", {}};
    const auto bytes = static_cast<size_t>(size);
    if (!fill(bytes + 2, deadline_ns)) return {Kind::kError, "no answer", {}};
    RedisReply reply{Kind::kText, in_.substr(0, bytes), {}};
    in_.erase(0, bytes + 2);
    return reply;
}

bool RedisSession::read_line(std::string* line, uint64_t deadline_ns) {
    size_t end;
    while ((end = in_.find("\r\n")) == std::string::npos)
        if (!fill(in_.size() + 1, deadline_ns)) return false;
    *line = in_.substr(0, end);
    in_.erase(0, end + 2);
    return true;
}

bool RedisSession::fill(size_t size, uint64_t deadline_ns) {
    while (in_.size() < size) {
        char more[4096];
        const ssize_t got = stream_.receive_some(more, sizeof(more));
        if (got < 0 || (got == 0 && !stream_.wait(deadline_ns))) return false;
        in_.append(more, static_cast<size_t>(got));
        if (in_.size() > kMaxReply + sizeof(more)) return false;
    }
    return true;
}

}  // namespace rove::tent
