// SPDX-License-Identifier: Apache-2.0
// Tests the handshake of a memif with random peers: each seed gives one sequence of messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "memif_script.h"
#include "port/memif/memif_connection.h"

namespace rove::datapath {
namespace {

// Applies one to three random changes.
void mutate(std::vector<Sent>& messages, const std::vector<int>& files, std::mt19937_64& random) {
    const auto below = [&](size_t bound) { return random() % bound; };
    for (size_t changes = 1 + below(3); changes != 0 && !messages.empty(); --changes) {
        const size_t at = below(messages.size());
        Sent& sent = messages[at];
        auto* const bytes = reinterpret_cast<uint8_t*>(&sent.message);
        switch (below(8)) {
            case 0:
                bytes[below(sizeof(sent.message))] = static_cast<uint8_t>(random());
                break;
            case 1:
                bytes[below(20)] ^= static_cast<uint8_t>(1u << below(8));
                break;
            case 2:
                std::memset(bytes + 2 + below(18), random() % 2 == 0 ? 0xff : 0, 1 + below(8));
                break;
            case 3:
                sent.bytes = below(sizeof(sent.message) + 1);
                break;
            case 4:
                sent.files.assign(below(5), files[below(files.size())]);
                break;
            case 5:
                messages.erase(messages.begin() + static_cast<ptrdiff_t>(at));
                break;
            case 6:
                messages.insert(messages.begin() + static_cast<ptrdiff_t>(below(messages.size())), Sent(sent));
                break;
            case 7:
                std::swap(sent, messages[below(messages.size())]);
                break;
        }
    }
}

uint64_t environment(const char* name, uint64_t otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
}

// ROVE_SEED=N runs that sequence alone, ROVE_SEEDS=N runs N sequences.
TEST(MemifConnectionAtRandom, SequencesDoNoHarm) {
    const uint64_t only = environment("ROVE_SEED", 0), seeds = environment("ROVE_SEEDS", 3000);
    const Script server_script;
    std::vector<Sent> client_script;
    for (const MemifType type : {MemifType::kHello, MemifType::kAck, MemifType::kAck, MemifType::kAck, MemifType::kAck,
                                 MemifType::kConnected}) {
        client_script.emplace_back().message.type = type;
        if (type != MemifType::kHello) continue;
        MemifHello& hello = client_script.back().message.hello;
        hello.min_version = hello.max_version = kMemifVersion;
        hello.max_log2_slots = 4;
    }
    const FileDescriptor unsealed = make_memory(kRegionBytes, 0), small = make_memory(100);
    const std::vector<int> kinds = {server_script.memory.get(), server_script.doorbell.get(), unsealed.get(),
                                    small.get(), 0};
    const size_t files = open_files(), memories = mapped_memories();
    size_t connected = 0;
    for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds); ++seed) {
        std::mt19937_64 random(seed);
        const bool is_server = random() % 2 == 0;
        std::vector<Sent> messages = is_server ? server_script.messages : client_script;
        mutate(messages, kinds, random);
        {
            auto [ours, peers] = socket_pair();
            auto settings = is_server ? server_settings() : client_settings();
            MemifConnection connection(ours.release(), settings);
            for (const Sent& sent : messages) {
                send_bytes(peers.get(), &sent.message, sent.bytes, sent.files);
                if (random() % 2 == 0) connection.advance();
            }
            if (connection.advance() == State::kConnected) {
                ++connected;
                for (const auto* ring : {&connection.to_server(), &connection.to_client()}) {
                    ASSERT_EQ(ring->ring->cookie, kMemifCookie) << "ROVE_SEED=" << seed;
                    const uint16_t last = static_cast<uint16_t>((1u << ring->log2_slots) - 1);
                    ring->ring->descriptors[last].metadata = 0;
                }
            }
        }
        if (seed % 64 != 0 && only == 0) continue;
        ASSERT_EQ(open_files(), files) << "ROVE_SEED=" << seed << " or one of the 63 before";
        ASSERT_EQ(mapped_memories(), memories) << "ROVE_SEED=" << seed << " or one of the 63 before";
    }
    std::printf("%zu of %llu sequences connect\n", connected, static_cast<unsigned long long>(seeds));
    EXPECT_GE(connected, only != 0 ? 0 : seeds / 10) << "the sequences go too far wrong to test much";
}

}  // namespace
}  // namespace rove::datapath
