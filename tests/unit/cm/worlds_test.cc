// SPDX-License-Identifier: Apache-2.0
// Random worlds. The programs of two hosts connect, accept, reject, hesitate, disconnect and destroy at random. The
// network between them loses, repeats, reorders and damages MADs, and strangers replay and forge them. In every world:
// - Both ends of a connection reach the same result: established, or an error on each side that still had an id.
// - No event comes for a destroyed id, and no event contradicts an earlier one.
// - In the end no id, timer or record is left.
// A failed world prints its seed. ROVE_CM_SEED=N runs that world alone, and ROVE_CM_WORLDS=N sets the number of worlds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "network.h"

namespace rove::cm {
namespace {

using namespace test;
using enum EventKind;

constexpr uint64_t kSidrService = service_id_of(0x0111, 7174);

// The state of an id, as the program knows it.
struct Known {
    enum class Fate { kPending, kEstablished, kFailed, kDisconnected, kAnswered } fate = Fate::kPending;
    bool active = false, responded = false, time_wait_over = false;
    bool destroyed_early = false;  // before the program knew the result
    uint64_t token = 0;            // identifies the connection; sent in the private data of the REQ
};

class Program {
  public:
    Program(Network& network, Host& host, Host& peer, bool damaged)
        : network_(network), host_(host), peer_(peer), damaged_(damaged) {
        host.on_event = [this](const Event& event) { on(event); };
        Id id;
        EXPECT_EQ(host.cm.listen({.service_id = kService, .backlog = 16}, nullptr, id), 0);
        listeners_.push_back(id);
        EXPECT_EQ(host.cm.listen({.service_id = kSidrService}, nullptr, id), 0);
        listeners_.push_back(id);
    }

    // Takes at most one random action.
    void act(Random& random, bool closing) {
        host_.sent.clear();
        host_.events.clear();
        if (!closing && ids_.size() < 20 && random.chance(0.05)) ask(random);
        if (ids_.empty()) return;
        auto at = ids_.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.below(ids_.size())));
        const Id id = at->first;
        Known& known = at->second;
        const State state = *host_.cm.state(id);
        Cm& cm = host_.cm;
        const uint64_t now = network_.now;
        switch (state) {
            case State::kReqReceived:
                if (random.chance(0.1)) {
                    EXPECT_EQ(cm.delay(now, id, 14, {}), 0);
                }
                if (random.chance(0.5)) {
                    EXPECT_EQ(cm.accept(now, id, {.local = {.qpn = ++qpn_}}), 0);
                } else if (random.chance(0.1)) {
                    EXPECT_EQ(cm.reject(now, id, {}), 0);
                    known.fate = Known::Fate::kFailed;
                }
                break;
            case State::kRepReceived:
                if (random.chance(0.5)) {
                    EXPECT_EQ(cm.confirm(now, id, {}), 0);
                    known.fate = Known::Fate::kEstablished;
                } else if (random.chance(0.1)) {
                    EXPECT_EQ(cm.reject(now, id, {}), 0);
                    known.fate = Known::Fate::kFailed;
                }
                break;
            case State::kSidrReqReceived:
                if (random.chance(0.5)) {
                    EXPECT_EQ(cm.sidr_reply(now, id, {.qpn = 5}), 0);
                    known.fate = Known::Fate::kAnswered;
                }
                break;
            case State::kEstablished:
                if (random.chance(closing ? 0.3 : 0.02)) {
                    EXPECT_EQ(cm.disconnect(now, id, {}), 0);
                }
                break;
            case State::kClosed:
                if (random.chance(0.3)) destroy(id);
                break;
            default:
                break;
        }
        if (random.chance(closing ? 0.01 : 0.001) && ids_.contains(id)) destroy(id);
    }

    void destroy(Id id) {
        Known& known = ids_.at(id);
        known.destroyed_early = known.fate == Known::Fate::kPending;
        record(known);
        EXPECT_EQ(host_.cm.destroy(network_.now, id), 0);
        ids_.erase(id);
    }
    void finish() {
        while (!ids_.empty()) destroy(ids_.begin()->first);
        for (const Id id : listeners_) EXPECT_EQ(host_.cm.destroy(network_.now, id), 0);
    }
    bool idle() const { return ids_.empty(); }

    // The result of each connection by its token, for the end that requested it and for the other end.
    std::map<uint64_t, Known> active_ends, passive_ends;

  private:
    void ask(Random& random) {
        const uint64_t token = random.next();
        std::array<uint8_t, 8> data;
        wire::store_be64(data.data(), token);
        Id id;
        const CmaHeader addresses{.src_port = 1, .src = host_.gid, .dst = peer_.gid};
        if (random.chance(0.2)) {
            EXPECT_EQ(host_.cm.sidr_request(
                          network_.now, {.path = host_.to(peer_), .service_id = kSidrService, .addresses = addresses},
                          nullptr, id),
                      0);
        } else {
            Connect connect{.path = host_.to(peer_),
                            .service_id = random.chance(0.05) ? kService + 1 : kService,
                            .addresses = addresses};
            connect.local = {.qpn = ++qpn_, .ca_guid = host_.gid[15]};
            connect.private_data = data;
            EXPECT_EQ(host_.cm.connect(network_.now, connect, nullptr, id), 0);
        }
        ids_.emplace(id, Known{.active = true, .token = token});
    }

    void on(const Event& event) {
        using Fate = Known::Fate;
        SCOPED_TRACE(to_string(event.kind));
        if (event.kind == kConnectRequest || event.kind == kSidrRequest) {
            const uint64_t token = event.kind == kConnectRequest ? wire::load_be64(event.private_data.data()) : 0;
            EXPECT_TRUE(ids_.emplace(event.id, Known{.token = token}).second);
            if (event.kind == kConnectRequest && !damaged_) {
                EXPECT_TRUE(tokens_.insert(token).second) << "one REQ, two requests";
            }
            return;
        }
        const auto found = ids_.find(event.id);
        ASSERT_NE(found, ids_.end());
        Known& known = found->second;
        switch (event.kind) {
            case kConnectResponse:
                EXPECT_TRUE(known.active && !known.responded && known.fate == Fate::kPending);
                known.responded = true;
                break;
            case kEstablished:
                EXPECT_TRUE(!known.active && known.fate == Fate::kPending);
                known.fate = Fate::kEstablished;
                break;
            case kRejected:
            case kUnreachable:
                EXPECT_EQ(known.fate, Fate::kPending);
                known.fate = Fate::kFailed;
                break;
            case kDisconnected:
                EXPECT_TRUE(known.fate == Fate::kEstablished || known.fate == Fate::kPending);
                known.fate = Fate::kDisconnected;
                break;
            case kTimeWaitExit:
                EXPECT_TRUE(known.fate == Fate::kDisconnected && !known.time_wait_over);
                known.time_wait_over = true;
                break;
            case kSidrResponse:
                EXPECT_TRUE(known.active && known.fate == Fate::kPending);
                known.fate = Fate::kAnswered;
                break;
            default:
                ADD_FAILURE();
        }
    }
    void record(const Known& known) { (known.active ? active_ends : passive_ends)[known.token] = known; }

    Network& network_;
    Host& host_;
    Host& peer_;
    const bool damaged_;  // a REQ may arrive twice with different ids
    std::map<Id, Known> ids_;
    std::set<uint64_t> tokens_;
    std::vector<Id> listeners_;
    uint32_t qpn_ = 100;
};

struct Sums {
    size_t connections = 0, established = 0;
};

void run_world(uint64_t seed, Sums& sums) {
    SCOPED_TRACE("ROVE_CM_SEED=" + std::to_string(seed));
    Random random(seed);
    Network network(seed);
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    network.weather = {.loss = random.pick(0.0, 0.01, 0.1, 0.3),
                       .duplication = random.pick(0.0, 0.1, 0.3),
                       .corruption = 0,
                       .delay_ns = random.pick(5'000ull, 100'000ull, 5 * kMs),
                       .jitter_ns = random.pick(0ull, 100'000ull, 20 * kMs)};
    const bool damaged = random.chance(0.3), strangers = random.chance(0.5);
    if (damaged) network.weather.corruption = 0.05;

    // Strangers replay packets from other addresses, or forge the peer's address with guessed ids.
    std::vector<std::pair<Path, Mad>> overheard;
    network.filter = [&](const Path& path, const Mad& mad) {
        // Answers (REJ, DREP) are left out, because with another change they might have the right ids.
        if (strangers && overheard.size() < 64 && mad[17] != 0x12 && mad[17] != 0x16) overheard.emplace_back(path, mad);
        return true;
    };
    Program first(network, a, b, damaged), second(network, b, a, damaged);
    const auto forge = [&] {
        if (overheard.empty()) return;
        auto [path, mad] = overheard[random.below(overheard.size())];
        if (random.chance(0.5)) {
            path.flow.src = ipv4(static_cast<uint8_t>(3 + random.below(250)));
        } else {
            // Forges the peer's address, but without its ids: bytes 8 to 15 are the transaction id, 24 to 31 the
            // communication ids.
            wire::store(&mad[8], random.next());
            mad[24 + random.below(8)] ^= static_cast<uint8_t>(1 + random.below(255));
            mad[16] = 0;
            mad[17] = static_cast<uint8_t>(random.pick(0x12, 0x13, 0x14, 0x15, 0x16));
        }
        network.inject(path, std::vector<uint8_t>(mad.begin(), mad.end()));
        if (overheard.size() == 64) overheard.erase(overheard.begin());
    };
    const uint64_t step = random.pick(200'000ull, 2 * kMs, 20 * kMs);
    for (int i = 0; i < 3000; ++i) {
        network.run(1 + random.below(step));
        first.act(random, false);
        second.act(random, false);
        if (strangers && random.chance(0.3)) forge();
        if (testing::Test::HasFailure()) return;
    }
    // The programs now answer, and close all their connections.
    for (int i = 0; i < 20'000 && !(first.idle() && second.idle()); ++i) {
        network.run(20 * kMs);
        first.act(random, true);
        second.act(random, true);
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(first.idle() && second.idle());
    first.finish();
    second.finish();
    network.run(200 * kSecond);
    for (const Host* host : {&a, &b}) {
        EXPECT_EQ(host->cm.usage().listeners, 0u);
        EXPECT_EQ(host->cm.usage().connections, 0u);
        EXPECT_EQ(host->cm.usage().lingering, 0u);
        EXPECT_EQ(host->cm.usage().names, 0u);
        EXPECT_EQ(host->cm.next_deadline(), UINT64_MAX);
    }
    // With a damaged id, one end may assume what the other did not send.
    if (damaged) return;
    const auto connected = [](const Known& known) {
        return known.fate == Known::Fate::kEstablished || known.fate == Known::Fate::kDisconnected;
    };
    for (const auto& [active, passive] :
         {std::pair(&first.active_ends, &second.passive_ends), std::pair(&second.active_ends, &first.passive_ends)}) {
        for (const auto& [token, end] : *active) {
            ++sums.connections;
            const auto other = passive->find(token);
            if (other == passive->end()) {
                EXPECT_TRUE(!connected(end));
                continue;
            }
            sums.established += connected(end) && connected(other->second);
            if (end.destroyed_early || other->second.destroyed_early) continue;
            EXPECT_EQ(connected(end), connected(other->second)) << "token " << token;
        }
    }
}

TEST(CmWorlds, BothEndsComeToTheSame) {
    const char* const seed = std::getenv("ROVE_CM_SEED");
    const char* const worlds = std::getenv("ROVE_CM_WORLDS");
    const uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
    const uint64_t count = seed != nullptr ? 1 : worlds != nullptr ? std::strtoull(worlds, nullptr, 0) : 60;
    Sums sums;
    for (uint64_t i = 0; i < count; ++i) {
        run_world(first + i, sums);
        if (HasFailure()) return;
    }
    if (seed != nullptr) return;
    std::printf("%llu worlds: %zu connections, %zu established\n", static_cast<unsigned long long>(count),
                sums.connections, sums.established);
    EXPECT_GT(sums.established, 10 * count);
}

}  // namespace
}  // namespace rove::cm
