// SPDX-License-Identifier: Apache-2.0
// Connection managers of two or more hosts, and a network between them, in virtual time. Units: nanoseconds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cm/cm.h"
#include "support/random.h"

namespace rove::cm::test {

using rove::test::Random;

inline constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;
inline constexpr uint64_t kService = service_id_of(0x0106, 7174);
// Indices of Message::body.
inline constexpr size_t kReq = 0, kMra = 1, kRej = 2, kRep = 3, kRtu = 4, kDreq = 5, kDrep = 6, kSidrReq = 7,
                        kSidrRep = 8, kApr = 10;

inline wire::Gid ipv4(uint8_t last) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, last};
}
inline wire::Gid ipv6(uint8_t last) {
    return {0xFD, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
}

// An event, with copies of the data that its pointers referred to.
struct Seen {
    EventKind kind;
    Id id, listener;
    void *context, *listener_context;
    RejReason reason;
    uint64_t at_ns;
    Path path;
    std::vector<uint8_t> private_data;
    std::optional<Req> req;
    std::optional<Rep> rep;
    std::optional<Rej> rej;
    std::optional<SidrReq> sidr_req;
    std::optional<SidrRep> sidr_rep;
    std::optional<CmaHeader> addresses;
};

template <class T>
std::optional<T> copy(const T* from) {
    return from != nullptr ? std::optional<T>(*from) : std::nullopt;
}

class Network;

struct Host final : Sink {
    Host(Network& network, const wire::Gid& gid, uint64_t seed, const Config& config)
        : network(network), gid(gid), cm(config, Secret::of(seed), *this) {}
    void send(const Path& path, const Mad& mad) override;
    void deliver(const Event& event) override;

    // Returns the path to another host.
    Path to(const Host& other) const {
        Path path;
        path.flow.src = gid;
        path.flow.dst = other.gid;
        path.flow.hop_limit = 64;
        return path;
    }
    size_t count(EventKind kind) const {
        size_t n = 0;
        for (const Seen& seen : events) n += seen.kind == kind;
        return n;
    }
    // Returns the last event of this kind, and throws if there was no such event.
    Seen last(EventKind kind) const {
        for (auto seen = events.rbegin(); seen != events.rend(); ++seen)
            if (seen->kind == kind) return *seen;
        throw std::runtime_error(std::string("no event: ") + to_string(kind));
    }
    uint64_t counter(Counter c) const { return cm.counters()[c]; }

    Network& network;
    wire::Gid gid;
    std::vector<Seen> events;
    std::function<void(const Event&)> on_event;  // also called; must not call `cm`
    std::vector<Message> sent;
    uint8_t max_mtu = 5;
    Cm cm;
};

struct Weather {
    double loss = 0, duplication = 0, corruption = 0;
    uint64_t delay_ns = 10'000, jitter_ns = 0;  // jitter reorders
    bool cut = false;                           // drops everything
};

class Network {
  public:
    explicit Network(uint64_t seed = 1) : random(seed) {}

    Host& add(const wire::Gid& gid, const Config& config = {}) {
        hosts.push_back(std::make_unique<Host>(*this, gid, random.next(), config));
        return *hosts.back();
    }

    void send(const Path& path, const Mad& mad) {
        if (filter && !filter(path, mad)) return;
        if (weather.cut || random.chance(weather.loss)) return;
        const int copies = random.chance(weather.duplication) ? 2 : 1;
        for (int i = 0; i < copies; ++i) {
            std::vector<uint8_t> bytes(mad.begin(), mad.end());
            // RoCE's ICRC would detect this, but the Cm must survive it too.
            if (random.chance(weather.corruption))
                bytes[random.below(bytes.size())] ^= static_cast<uint8_t>(1u << random.below(8));
            inject(path, bytes, weather.delay_ns + random.below(weather.jitter_ns + 1));
        }
    }
    // Sends as path.flow.src, whether or not that is the real sender.
    void inject(const Path& path, std::vector<uint8_t> bytes, uint64_t delay_ns = 0) {
        under_way.emplace(now + delay_ns, InFlight{path, std::move(bytes)});
    }
    void inject(const Path& path, const Message& message) {
        const Mad mad = build(message);
        inject(path, std::vector<uint8_t>(mad.begin(), mad.end()));
    }

    // Runs up to `end`, including everything that was due at `end`.
    void run_until(uint64_t end) {
        for (;;) {
            uint64_t next = under_way.empty() ? UINT64_MAX : under_way.begin()->first;
            for (const auto& host : hosts) next = std::min(next, host->cm.next_deadline());
            if (next > end) break;
            now = std::max(now, next);
            for (const auto& host : hosts) host->cm.expire(now);
            while (!under_way.empty() && under_way.begin()->first <= now) {
                const InFlight packet = std::move(under_way.begin()->second);
                under_way.erase(under_way.begin());
                arrive(packet);
            }
            if (after_step) after_step();
        }
        now = end;
    }
    void run(uint64_t for_ns) { run_until(now + for_ns); }

    std::vector<std::unique_ptr<Host>> hosts;
    Random random;
    Weather weather;
    uint64_t now = 1'000'000'000;
    std::function<bool(const Path&, const Mad&)> filter;  // returns false for a MAD that the network drops
    std::function<void()> after_step;                     // runs the programs

  private:
    struct InFlight {
        Path path;
        std::vector<uint8_t> bytes;
    };
    void arrive(const InFlight& packet) {
        for (const auto& host : hosts) {
            if (host->gid != packet.path.flow.dst) continue;
            Path back = packet.path;
            std::swap(back.flow.src, back.flow.dst);
            host->cm.receive(now, back, host->max_mtu, packet.bytes);
        }
    }

    std::multimap<uint64_t, InFlight> under_way;
};

inline void Host::send(const Path& path, const Mad& mad) {
    Message message;
    if (parse(mad, message) != ParseError::kNone) throw std::runtime_error("sent a MAD that nobody understands");
    sent.push_back(message);
    network.send(path, mad);
}

inline void Host::deliver(const Event& event) {
    events.push_back({.kind = event.kind,
                      .id = event.id,
                      .listener = event.listener,
                      .context = event.context,
                      .listener_context = event.listener_context,
                      .reason = event.reason,
                      .at_ns = network.now,
                      .path = event.path != nullptr ? *event.path : Path{},
                      .private_data{event.private_data.begin(), event.private_data.end()},
                      .req = copy(event.req),
                      .rep = copy(event.rep),
                      .rej = copy(event.rej),
                      .sidr_req = copy(event.sidr_req),
                      .sidr_rep = copy(event.sidr_rep),
                      .addresses = copy(event.addresses)});
    if (on_event) on_event(event);
}

}  // namespace rove::cm::test
