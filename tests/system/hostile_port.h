// SPDX-License-Identifier: Apache-2.0
// The common part of senders of hostile packets: memif ports in place of a peer's, and random headers.
#pragma once

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "wire/frame.h"

namespace hostile {

using namespace rove::wire;

inline constexpr uint16_t kBurst = 32;
inline constexpr size_t kMaxFrame = 4400;

[[noreturn]] inline void fail(const std::string& why) {
    std::fprintf(stderr, "FAIL: %s\n", why.c_str());
    std::exit(1);
}

template <size_t N>
std::array<uint8_t, N> from_hex(const std::string& text) {
    std::array<uint8_t, N> bytes{};
    std::string digits;
    for (const char c : text)
        if (c != ':') digits += c;
    if (digits.size() != 2 * N) fail("not " + std::to_string(N) + " bytes of hex: " + text);
    for (size_t i = 0; i < N; ++i) bytes[i] = static_cast<uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
    return bytes;
}

// Client ends of memifs, one for each socket; @NAME is an abstract one.
class Ports {
  public:
    explicit Ports(const std::vector<std::string>& sockets) {
        std::vector<std::string> words{"hostile",
                                       "--no-huge",
                                       "--no-shconf",
                                       "-m",
                                       "256",
                                       "--no-pci",
                                       "--no-telemetry",
                                       "--lcores",
                                       "0@" + std::to_string(sched_getcpu()),
                                       "--log-level",
                                       "error"};
        for (size_t i = 0; i < sockets.size(); ++i) {
            const bool abstract = sockets[i][0] == '@';
            words.push_back("--vdev");
            words.push_back("net_memif" + std::to_string(i) + ",role=client,bsize=4608,socket-abstract=" +
                            (abstract ? "yes" : "no") + ",socket=" + (abstract ? sockets[i].substr(1) : sockets[i]));
        }
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) fail("rte_eal_init");
        pool_ = rte_pktmbuf_pool_create("packets", 8191, 0, 0, kMaxFrame + 256 + RTE_PKTMBUF_HEADROOM, 0);
        for (uint16_t id = 0; id < sockets.size(); ++id) {
            rte_eth_conf conf{};
            if (pool_ == nullptr || rte_eth_dev_configure(id, 1, 1, &conf) != 0 ||
                rte_eth_rx_queue_setup(id, 0, 512, 0, nullptr, pool_) != 0 ||
                rte_eth_tx_queue_setup(id, 0, 512, 0, nullptr) != 0 || rte_eth_dev_start(id) != 0)
                fail("memif port");
        }
    }
    bool is_up(uint16_t id) const {
        rte_eth_link link{};
        return rte_eth_link_get_nowait(id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    }
    void wait(uint16_t id, int seconds) const {
        for (int tries = 1; tries < seconds * 100; ++tries) {
            if (is_up(id)) return;
            usleep(10'000);
            if (tries % 50 != 0) continue;
            rte_eth_dev_stop(id);  // net_memif looks for its server only at the start
            if (rte_eth_dev_start(id) != 0) fail("memif port");
        }
        fail("nobody at the other end of memif " + std::to_string(id));
    }
    rte_mempool* pool() const { return pool_; }

  private:
    rte_mempool* pool_ = nullptr;
};

class Dice {
  public:
    explicit Dice(uint64_t seed) : random_(seed) {}
    uint64_t number() { return random_(); }
    uint64_t below(uint64_t limit) { return random_() % limit; }
    bool chance(unsigned percent) { return below(100) < percent; }
    uint8_t known_opcode() {
        while (true)
            if (const auto opcode = static_cast<uint8_t>(random_()); opcode_info(opcode).known) return opcode;
    }
    // Damages up to eight bytes, mostly in the headers.
    void flip(uint8_t* frame, size_t bytes) {
        for (uint64_t left = 1 + below(8); left > 0; --left) {
            const size_t at = chance(70) ? below(std::min<size_t>(bytes, 80)) : below(bytes);
            frame[at] = static_cast<uint8_t>(random_());
        }
    }
    // Fills in the headers that only packets of `mp` and HELLO have. `psn` is near the expected one.
    void fill_multipath(Headers& headers, uint32_t psn) {
        headers.vp = static_cast<uint16_t>(0xC000 | random_());
        headers.mp = {static_cast<uint8_t>(random_() & 0xF8), static_cast<uint32_t>(below(16)),
                      static_cast<uint32_t>(below(16))};
        const MpAckEntry entry{
            static_cast<MpAck>(below(4)), chance(20), chance(20), chance(50), psn, headers.vp, chance(20)};
        headers.mp_ack = {entry, static_cast<uint8_t>(random_()), (psn + static_cast<uint32_t>(below(8))) & 0xFFFFFF,
                          static_cast<uint8_t>(chance(50) ? 0 : random_()),
                          static_cast<uint8_t>(chance(80) ? 0 : below(32))};
        headers.hello = {static_cast<uint8_t>(chance(90) ? kMpVersion : random_()),
                         chance(50),
                         chance(80),
                         static_cast<uint32_t>(below(1 << 24)),
                         static_cast<uint32_t>(random_()),
                         {static_cast<uint16_t>(random_()), static_cast<uint16_t>(random_())},
                         static_cast<uint32_t>(random_()),
                         static_cast<uint32_t>(chance(50) ? 0 : random_())};
    }
    void fill_acknowledgement(Headers& headers, uint32_t psn) {
        headers.bth.opcode = opcode(Service::kRc, chance(90) ? Op::kAck : Op::kAtomicAck);
        headers.bth.psn = psn;
        headers.aeth = {static_cast<uint8_t>(random_()), static_cast<uint32_t>(below(1 << 24))};
        headers.atomic_original = random_();
    }
    // Sets another source than the peer: a random one, the receiver itself, or an impossible one.
    void forge_source(Flow& flow) {
        switch (below(4)) {
            case 0:
                flow.src = flow.dst;
                break;
            case 1:
                flow.src[is_ipv4_mapped(flow.src) ? 12 : 0] = is_ipv4_mapped(flow.src) ? 239 : 0xFF;
                break;
            case 2:
                flow.src_mac = flow.dst_mac;
                flow.src[15] ^= 0x55;
                break;
            default:
                flow.src[15] = static_cast<uint8_t>(100 + below(100));
                flow.src_mac[5] = static_cast<uint8_t>(random_());
                break;
        }
    }
    // Sets a group's MAC, a group's address, or both, which a connected QP never accepts (IBTA 9.6.1).
    void forge_group(Flow& flow) {
        const uint64_t what = below(3);
        if (what != 1) flow.dst_mac = {0x01, 0x00, 0x5E, 1, 2, 3};
        if (what != 0) {
            if (is_ipv4_mapped(flow.dst))
                flow.dst[12] = 239, flow.dst[13] = 1, flow.dst[14] = 2, flow.dst[15] = 3;
            else
                flow.dst = {0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3};
        }
    }

  private:
    std::mt19937_64 random_;
};

}  // namespace hostile
