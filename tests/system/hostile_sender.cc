// SPDX-License-Identifier: Apache-2.0
// Sends mutated golden captures at a live QP over a memif, in place of its peer. A share of the packets is rebuilt with the
// QP's own addresses, PSNs and keys and a right ICRC, so that it gets past the parser; the rest is damaged bytes.
// Everything follows from --seed. Prints {"sent": N, "received": N, "kinds": [rebuilt, flipped, resized, raw]}.
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "wire/frame.h"

namespace {

using namespace rove::wire;

constexpr uint16_t kBurst = 32;
constexpr uint32_t kMaxPayload = 4200;      // a little more than the largest path MTU
constexpr size_t kMaxFrame = 4400;
enum Kind { kRebuilt, kFlipped, kResized, kRaw, kKinds };

struct Options {
    std::string socket, src_mac, dst_mac, src_gid, dst_gid;
    std::vector<std::string> captures;
    uint64_t count = 1'000'000, seed = 1;
    uint32_t rc_qpn = 0, ud_qpn = 0, psn = 0, qkey = 0, block = 65536;
    uint32_t linger_ms = 500;
    std::vector<uint32_t> keys;
    std::vector<uint64_t> vas;
};

[[noreturn]] void fail(const std::string& why) {
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

// The frames of a classic pcap file of this machine's byte order.
void read_capture(const std::string& file, std::vector<std::vector<uint8_t>>& frames) {
    std::ifstream in(file, std::ios::binary);
    in.ignore(24);
    std::array<uint32_t, 4> record;     // seconds, microseconds, captured, original bytes
    while (in.read(reinterpret_cast<char*>(record.data()), sizeof(record))) {
        std::vector<uint8_t> frame(record[2]);
        in.read(reinterpret_cast<char*>(frame.data()), record[2]);
        frames.push_back(std::move(frame));
    }
}

class Mutator {
  public:
    explicit Mutator(const Options& options) : options_(options), random_(options.seed) {
        for (const std::string& capture : options.captures) read_capture(capture, golden_);
        if (golden_.empty()) fail("no captures");
        flow_.src_mac = from_hex<6>(options.src_mac);
        flow_.dst_mac = from_hex<6>(options.dst_mac);
        flow_.src = from_hex<16>(options.src_gid);
        flow_.dst = from_hex<16>(options.dst_gid);
        payload_.resize(kMaxPayload);
        for (uint8_t& byte : payload_) byte = static_cast<uint8_t>(random_());
    }

    Kind next(uint8_t* out, size_t& bytes) {
        const std::vector<uint8_t>& frame = golden_[below(golden_.size())];
        const uint64_t dice = below(100);
        if (dice < 10) {
            bytes = std::min(frame.size(), kMaxFrame);
            std::memcpy(out, frame.data(), bytes);
            std::memcpy(out, flow_.dst_mac.data(), 6);
            flip(out, bytes);
            return kRaw;
        }
        ParsedFrame parsed;
        if (parse_frame(frame, parsed) != ParseError::kNone) fail("a golden frame does not parse");
        bytes = rebuild(parsed, out);
        if (dice < 60) return kRebuilt;
        if (dice < 85) {
            flip(out, bytes);
            return kFlipped;
        }
        // Shorter or longer than its headers say.
        const size_t size = 1 + below(std::min(bytes + 64, kMaxFrame));
        for (size_t at = bytes; at < size; ++at) out[at] = static_cast<uint8_t>(random_());
        bytes = size;
        return kResized;
    }

  private:
    uint64_t below(uint64_t limit) { return random_() % limit; }
    bool chance(unsigned percent) { return below(100) < percent; }

    uint8_t known_opcode() {
        while (true)
            if (const auto opcode = static_cast<uint8_t>(random_()); opcode_info(opcode).known) return opcode;
    }

    void flip(uint8_t* frame, size_t bytes) {
        for (uint64_t left = 1 + below(8); left > 0; --left) {
            // Mostly in the headers.
            const size_t at = chance(70) ? below(std::min<size_t>(bytes, 80)) : below(bytes);
            frame[at] = static_cast<uint8_t>(random_());
        }
    }

    uint64_t address() {
        const uint64_t base = options_.vas[chance(60) ? 0 : below(options_.vas.size())];
        return chance(90) ? base - 64 + below(options_.block + 128) : random_();
    }
    uint32_t key() { return chance(90) ? options_.keys[chance(60) ? 0 : below(options_.keys.size())] : static_cast<uint32_t>(random_()); }
    uint32_t length(uint32_t payload) {
        const std::array<uint32_t, 7> choices{payload, 0, 1, options_.block, options_.block + 1, 0x80000000, 0xFFFFFFFF};
        return chance(60) ? payload : choices[below(choices.size())];
    }

    size_t rebuild(const ParsedFrame& golden, uint8_t* out) {
        Headers headers = golden.headers;
        if (chance(30)) headers.bth.opcode = known_opcode();
        const bool ud = service_of(headers.bth.opcode) == Service::kUd;
        headers.bth.dest_qpn = chance(90) == ud ? options_.ud_qpn : options_.rc_qpn;
        if (chance(5)) headers.bth.dest_qpn = static_cast<uint32_t>(below(1 << 24));
        // The responder's next PSN: what it was when the QP was last revived, or a little later.
        headers.bth.psn = chance(80) ? (options_.psn + below(8)) & 0xFFFFFF : static_cast<uint32_t>(below(1 << 24));
        headers.bth.pkey = chance(95) ? kDefaultPkey : static_cast<uint16_t>(random_());
        headers.bth.flags = Bth::kMigReq | (chance(50) ? Bth::kSolicited : 0);
        headers.bth.ack_req = chance(50);
        uint32_t bytes = 0;
        if (opcode_info(headers.bth.opcode).extensions & kHasPayload)
            bytes = chance(50) ? std::min(golden.payload_bytes, kMaxPayload)
                               : (chance(30) ? 1024 : static_cast<uint32_t>(below(kMaxPayload + 1)));
        headers.reth = {address(), key(), length(bytes)};
        headers.atomic = {chance(80) ? address() & ~7ULL : address(), key(), random_(), random_()};
        headers.deth = {chance(80) ? options_.qkey : static_cast<uint32_t>(random_()), static_cast<uint32_t>(below(1 << 24))};
        headers.invalidate_rkey = key();
        if (chance(20)) headers.aeth = {static_cast<uint8_t>(random_()), static_cast<uint32_t>(below(1 << 24))};

        Flow flow = flow_;
        flow.traffic_class = static_cast<uint8_t>(random_());
        flow.flow_label = static_cast<uint32_t>(below(1 << 20));
        flow.udp_src = static_cast<uint16_t>(0xC000 | random_());
        if (chance(5)) flow.src[15] = static_cast<uint8_t>(random_());
        if (chance(2)) flow.dst[15] = static_cast<uint8_t>(random_());
        if (chance(2)) flow.vlan = static_cast<uint16_t>(random_());
        const Segment segment{payload_.data(), bytes};
        return build_frame(out, make_template(flow), headers, std::span(&segment, 1));
    }

    const Options& options_;
    std::mt19937_64 random_;
    std::vector<std::vector<uint8_t>> golden_;
    std::vector<uint8_t> payload_;
    Flow flow_;
};

struct Port {
    uint16_t id = 0;
    rte_mempool* pool = nullptr;

    explicit Port(const std::string& socket) {
        std::string vdev = "net_memif0,role=client,bsize=4608,socket-abstract=" + std::string(socket[0] == '@' ? "yes" : "no") +
                           ",socket=" + (socket[0] == '@' ? socket.substr(1) : socket);
        std::vector<std::string> words{"hostile_sender", "--no-huge", "--no-shconf", "-m", "256", "--no-pci", "--no-telemetry",
                                       "--lcores", "0@" + std::to_string(sched_getcpu()), "--log-level", "error", "--vdev", vdev};
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) fail("rte_eal_init");
        pool = rte_pktmbuf_pool_create("packets", 4095, 0, 0, kMaxFrame + 256 + RTE_PKTMBUF_HEADROOM, 0);
        rte_eth_conf conf{};
        if (pool == nullptr || rte_eth_dev_configure(id, 1, 1, &conf) != 0 || rte_eth_rx_queue_setup(id, 0, 512, 0, nullptr, pool) != 0 ||
            rte_eth_tx_queue_setup(id, 0, 512, 0, nullptr) != 0 || rte_eth_dev_start(id) != 0)
            fail("memif port");
        for (int tries = 0; tries < 500; ++tries) {
            rte_eth_link link{};
            rte_eth_link_get_nowait(id, &link);
            if (link.link_status == RTE_ETH_LINK_UP) return;
            usleep(10'000);
        }
        fail("nobody at the other end of the memif");
    }

    // What the victim answers is only thrown away.
    uint64_t drain() {
        rte_mbuf* got[kBurst];
        const uint16_t n = rte_eth_rx_burst(id, 0, got, kBurst);
        rte_pktmbuf_free_bulk(got, n);
        return n;
    }
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Sender of hostile RoCE packets"};
    app.add_option("captures", options.captures, "golden pcap files")->required();
    app.add_option("--socket", options.socket, "memif socket; @NAME: abstract")->required();
    app.add_option("--count", options.count, "packets");
    app.add_option("--seed", options.seed);
    app.add_option("--src-mac", options.src_mac)->required();
    app.add_option("--dst-mac", options.dst_mac)->required();
    app.add_option("--src-gid", options.src_gid, "32 hex digits")->required();
    app.add_option("--dst-gid", options.dst_gid)->required();
    app.add_option("--rc-qpn", options.rc_qpn)->required();
    app.add_option("--ud-qpn", options.ud_qpn)->required();
    app.add_option("--psn", options.psn)->required();
    app.add_option("--qkey", options.qkey)->required();
    app.add_option("--block", options.block, "bytes of each memory block");
    app.add_option("--keys", options.keys, "rkeys, that of the writable block first")->required()->delimiter(',');
    app.add_option("--vas", options.vas, "addresses of the blocks")->required()->delimiter(',');
    app.add_option("--linger-ms", options.linger_ms, "stay connected this long after the last packet");
    CLI11_PARSE(app, argc, argv);

    Mutator mutator(options);
    Port port(options.socket);
    uint64_t kinds[kKinds] = {}, received = 0;
    for (uint64_t sent = 0; sent < options.count;) {
        rte_mbuf* burst[kBurst];
        const auto wanted = static_cast<uint16_t>(std::min<uint64_t>(kBurst, options.count - sent));
        if (rte_pktmbuf_alloc_bulk(port.pool, burst, wanted) != 0) fail("out of mbufs");
        for (uint16_t i = 0; i < wanted; ++i) {
            size_t bytes = 0;
            ++kinds[mutator.next(rte_pktmbuf_mtod(burst[i], uint8_t*), bytes)];
            burst[i]->data_len = static_cast<uint16_t>(bytes);
            burst[i]->pkt_len = static_cast<uint32_t>(bytes);
        }
        for (uint16_t done = 0; done < wanted;) {
            done = static_cast<uint16_t>(done + rte_eth_tx_burst(port.id, 0, burst + done, static_cast<uint16_t>(wanted - done)));
            received += port.drain();
        }
        sent += wanted;
    }
    for (uint32_t left = options.linger_ms; left > 0; --left) {
        received += port.drain();
        usleep(1000);
    }
    std::printf("{\"sent\": %" PRIu64 ", \"received\": %" PRIu64 ", \"kinds\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]}\n",
                options.count, received, kinds[kRebuilt], kinds[kFlipped], kinds[kResized], kinds[kRaw]);
    return 0;
}
