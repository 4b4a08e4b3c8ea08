// SPDX-License-Identifier: Apache-2.0
#include "base/secret.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <random>

namespace rove {

namespace {

struct SipState {
    uint64_t v0, v1, v2, v3;

    void round() {
        v0 += v1;
        v1 = std::rotl(v1, 13) ^ v0;
        v0 = std::rotl(v0, 32);
        v2 += v3;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }
    void take(uint64_t word) {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
    }
};

}  // namespace

Secret Secret::random() {
    std::array<uint64_t, 2> key;
    ssize_t got;
    do got = getrandom(key.data(), sizeof key, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof key) {  // for example in a sandbox that forbids the call
        std::random_device device;
        for (uint64_t& word : key) word = uint64_t{device()} << 32 | device();
    }
    return Secret(key);
}

// Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
uint64_t Secret::hash(uint64_t word) const {
    SipState state{key_[0] ^ 0x736f6d6570736575, key_[1] ^ 0x646f72616e646f6d, key_[0] ^ 0x6c7967656e657261,
                   key_[1] ^ 0x7465646279746573};
    state.take(word);
    state.take(uint64_t{sizeof word} << 56);
    state.v2 ^= 0xFF;
    for (int i = 0; i < 4; ++i) state.round();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

// A Feistel network over two halves of 12 bits. With halves this small, four rounds can be distinguished from a random
// permutation after some hundred outputs. Therefore there are ten rounds, as in FF1 of NIST SP 800-38G.
uint32_t Secret::permute24(uint32_t number) const {
    constexpr uint32_t kRounds = 10, kHalf = 0xFFF;
    uint32_t left = number >> 12 & kHalf, right = number & kHalf;
    for (uint32_t round = 0; round < kRounds; ++round) {
        const uint32_t mixed = static_cast<uint32_t>(hash(uint64_t{1} << 63 | uint64_t{round} << 32 | right)) & kHalf;
        const uint32_t next = left ^ mixed;
        left = right;
        right = next;
    }
    return left << 12 | right;
}

}  // namespace rove
