// SPDX-License-Identifier: Apache-2.0
// Sends hostile packets to a live QP over a memif, in place of its peer: mutated golden captures, packets of `mp`,
// storms of acknowledgements, HELLO, forged sources. Some have the QP's own addresses, PSNs and keys and a correct
// ICRC, so that they pass the parser; the rest is damaged bytes. With --guess all are WRITEs that guess a key. --seed
// determines everything. Prints the numbers sent and received: {"sent": N, "received": N, "sent_bytes": N, ...}.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <fstream>

#include "hostile_port.h"

namespace {

using namespace hostile;

constexpr uint32_t kMaxPayload = 4200;  // slightly more than the largest path MTU
enum Kind { kRebuilt, kFlipped, kResized, kRaw, kKinds };

struct Options {
    std::string socket, src_mac, dst_mac, src_gid, dst_gid;
    std::vector<std::string> captures;
    uint64_t count = 1'000'000, seed = 1;
    uint32_t rc_qpn = 0, ud_qpn = 0, psn = 0, qkey = 0, block = 65536;
    uint32_t linger_ms = 500;
    uint32_t peer_qpn = 0;
    bool keyless = false, unreliable = false, multipath = false;
    uint32_t guess_s = 0;
    std::vector<uint32_t> keys;
    std::vector<uint64_t> vas;
};

// Reads the frames of a classic pcap file of this machine's byte order.
void read_capture(const std::string& file, std::vector<std::vector<uint8_t>>& frames) {
    std::ifstream in(file, std::ios::binary);
    in.ignore(24);
    std::array<uint32_t, 4> record;  // seconds, microseconds, captured, original bytes
    while (in.read(reinterpret_cast<char*>(record.data()), sizeof(record))) {
        std::vector<uint8_t> frame(record[2]);
        in.read(reinterpret_cast<char*>(frame.data()), record[2]);
        frames.push_back(std::move(frame));
    }
}

class Mutator {
  public:
    explicit Mutator(const Options& options) : options_(options), dice_(options.seed) {
        for (const std::string& capture : options.captures) read_capture(capture, golden_);
        if (golden_.empty()) fail("no captures");
        flow_.src_mac = from_hex<6>(options.src_mac);
        flow_.dst_mac = from_hex<6>(options.dst_mac);
        flow_.src = from_hex<16>(options.src_gid);
        flow_.dst = from_hex<16>(options.dst_gid);
        payload_.resize(kMaxPayload);
        for (uint8_t& byte : payload_) byte = static_cast<uint8_t>(dice_.number());
    }

    Kind next(uint8_t* out, size_t& bytes) {
        if (options_.guess_s != 0) {
            bytes = guess(out);
            return kRebuilt;
        }
        const std::vector<uint8_t>& frame = golden_[below(golden_.size())];
        const uint64_t dice = below(100);
        if (dice < 10 && !options_.keyless) {
            bytes = std::min(frame.size(), kMaxFrame);
            std::memcpy(out, frame.data(), bytes);
            std::memcpy(out, flow_.dst_mac.data(), 6);
            dice_.flip(out, bytes);
            return kRaw;
        }
        ParsedFrame parsed;
        if (parse_frame(frame, parsed) != ParseError::kNone) fail("a golden frame does not parse");
        bytes = rebuild(parsed, out);
        if (dice < 60 || options_.keyless) return kRebuilt;
        if (dice < 85) {
            dice_.flip(out, bytes);
            return kFlipped;
        }
        // Shorter or longer than its headers claim.
        const size_t size = 1 + below(std::min(bytes + 64, kMaxFrame));
        for (size_t at = bytes; at < size; ++at) out[at] = static_cast<uint8_t>(dice_.number());
        bytes = size;
        return kResized;
    }

  private:
    uint64_t below(uint64_t limit) { return dice_.below(limit); }
    bool chance(unsigned percent) { return dice_.chance(percent); }

    // Makes a WRITE in which only the key is wrong. (A key that is correct by chance writes to memory that the victim
    // checks.)
    size_t guess(uint8_t* out) {
        Headers headers{};
        headers.bth.opcode = opcode(options_.unreliable ? Service::kUc : Service::kRc, Op::kWriteOnly);
        headers.bth.flags = Bth::kMigReq;
        headers.bth.pkey = kDefaultPkey;
        headers.bth.ack_req = true;
        headers.bth.dest_qpn = options_.rc_qpn;
        headers.bth.psn = options_.unreliable ? guessed_++ & 0xFFFFFF : options_.psn;
        headers.reth = {options_.vas[0], static_cast<uint32_t>(dice_.number()), 8};
        const Segment segment{payload_.data(), 8};
        return build_frame(out, make_template(flow_), headers, std::span(&segment, 1));
    }

    uint64_t address() {
        const uint64_t base = options_.vas[chance(60) ? 0 : below(options_.vas.size())];
        return chance(90) ? base - 64 + below(options_.block + 128) : dice_.number();
    }
    uint32_t key() {
        return !options_.keyless && chance(90) ? options_.keys[chance(60) ? 0 : below(options_.keys.size())]
                                               : static_cast<uint32_t>(dice_.number());
    }
    uint32_t length(uint32_t payload) {
        const std::array<uint32_t, 7> choices{payload,    0,         1, options_.block, options_.block + 1,
                                              0x80000000, 0xFFFFFFFF};
        return chance(60) ? payload : choices[below(choices.size())];
    }

    size_t rebuild(const ParsedFrame& golden, uint8_t* out) {
        Headers headers = golden.headers;
        const uint32_t psn = (options_.psn + static_cast<uint32_t>(below(8))) & 0xFFFFFF;
        if (chance(30))
            headers.bth.opcode = dice_.known_opcode();
        else if (options_.multipath && service_of(headers.bth.opcode) == Service::kRc)
            headers.bth.opcode = opcode(Service::kMp, op_of(headers.bth.opcode));
        dice_.fill_multipath(headers, psn);
        const bool ud = service_of(headers.bth.opcode) == Service::kUd;
        headers.bth.dest_qpn = chance(90) == ud ? options_.ud_qpn : options_.rc_qpn;
        if (chance(5)) headers.bth.dest_qpn = static_cast<uint32_t>(below(1 << 24));
        // The responder's next PSN: its value when the QP was last revived, or slightly more.
        headers.bth.psn = chance(80) ? (options_.psn + below(8)) & 0xFFFFFF : static_cast<uint32_t>(below(1 << 24));
        headers.bth.pkey = chance(95) ? kDefaultPkey : static_cast<uint16_t>(dice_.number());
        headers.bth.flags = Bth::kMigReq | (chance(50) ? Bth::kSolicited : 0);
        headers.bth.ack_req = chance(50);
        uint32_t bytes = 0;
        if (opcode_info(headers.bth.opcode).extensions & kHasPayload)
            bytes = chance(50) ? std::min(golden.payload_bytes, kMaxPayload)
                               : (chance(30) ? 1024 : static_cast<uint32_t>(below(kMaxPayload + 1)));
        headers.reth = {address(), key(), length(bytes)};
        headers.atomic = {chance(80) ? address() & ~7ULL : address(), key(), dice_.number(), dice_.number()};
        headers.deth = {chance(80) ? options_.qkey : static_cast<uint32_t>(dice_.number()),
                        static_cast<uint32_t>(below(1 << 24))};
        headers.invalidate_rkey = key();
        if (chance(20)) headers.aeth = {static_cast<uint8_t>(dice_.number()), static_cast<uint32_t>(below(1 << 24))};

        const uint64_t theme = below(10);
        if (theme == 0)
            dice_.fill_acknowledgement(headers, (options_.psn - 4 + static_cast<uint32_t>(below(12))) & 0xFFFFFF);
        if (theme == 1) headers.bth.opcode = kOpcodeHello;
        if (theme <= 1) {
            bytes = 0;
            headers.bth.dest_qpn = chance(90) ? options_.rc_qpn : options_.ud_qpn;
        }
        Flow flow = flow_;
        if (theme == 2) dice_.forge_source(flow);
        if (theme == 3) dice_.forge_group(flow);
        flow.traffic_class = static_cast<uint8_t>(dice_.number());
        flow.flow_label = static_cast<uint32_t>(below(1 << 20));
        flow.udp_src = static_cast<uint16_t>(0xC000 | dice_.number());
        if (chance(5)) flow.src[15] = static_cast<uint8_t>(dice_.number());
        if (chance(2)) flow.dst[15] = static_cast<uint8_t>(dice_.number());
        if (chance(2)) flow.vlan = static_cast<uint16_t>(dice_.number());
        if (!(opcode_info(headers.bth.opcode).extensions & kHasPayload)) bytes = 0;
        if (options_.keyless) bytes = std::min(bytes, 8u);
        const Segment segment{payload_.data(), bytes};
        return build_frame(out, make_template(flow), headers, std::span(&segment, 1));
    }

    const Options& options_;
    Dice dice_;
    uint32_t guessed_ = 0;
    std::vector<std::vector<uint8_t>> golden_;
    std::vector<uint8_t> payload_;
    Flow flow_;
};

// Packets of the victim are only counted; but with --multipath it learns, when it asks, that its peer speaks mp.
struct Answers {
    const Options& options;
    uint64_t frames = 0, bytes = 0, sent = 0, sent_bytes = 0;

    void drain() {
        rte_mbuf* got[kBurst];
        const uint16_t n = rte_eth_rx_burst(0, 0, got, kBurst);
        for (uint16_t i = 0; i < n; ++i) {
            bytes += got[i]->pkt_len;
            if (options.multipath) answer_hello(*got[i]);
        }
        rte_pktmbuf_free_bulk(got, n);
        frames += n;
    }
    void answer_hello(rte_mbuf& asked) {
        ParsedFrame frame;
        if (parse_frame({rte_pktmbuf_mtod(&asked, uint8_t*), asked.data_len}, frame) != ParseError::kNone ||
            frame.headers.bth.opcode != kOpcodeHello || frame.headers.hello.answer) {
            return;
        }
        Headers headers = frame.headers;
        headers.bth.dest_qpn = headers.hello.qpn;
        headers.hello.answer = headers.hello.mp = true;
        headers.hello.qpn = options.peer_qpn;
        std::swap(frame.flow.src, frame.flow.dst);
        std::swap(frame.flow.src_mac, frame.flow.dst_mac);
        rte_mbuf* answer = rte_pktmbuf_alloc(asked.pool);
        if (answer == nullptr) return;
        const size_t made = build_frame(rte_pktmbuf_mtod(answer, uint8_t*), make_template(frame.flow), headers, {});
        answer->data_len = static_cast<uint16_t>(made);
        answer->pkt_len = static_cast<uint32_t>(made);
        // The ring may be full of our packets at every attempt. The victim asks again, but only for a second.
        for (int tries = 0; rte_eth_tx_burst(0, 0, &answer, 1) == 0; ++tries) {
            if (tries == 1000) {
                rte_pktmbuf_free(answer);
                return;
            }
            usleep(100);
        }
        ++sent;
        sent_bytes += made;
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
    app.add_flag("--keyless", options.keyless,
                 "whole and small packets only, by one that does not know the keys: the most in answer to a byte");
    app.add_option("--guess", options.guess_s, "guess keys for so many seconds, in place of --count packets");
    app.add_flag("--unreliable", options.unreliable, "--guess at a UC QP");
    app.add_option("--peer-qpn", options.peer_qpn, "the QP that the victim's is connected to");
    app.add_flag("--multipath", options.multipath, "be a peer that speaks mp, and send mostly its packets");
    CLI11_PARSE(app, argc, argv);

    Mutator mutator(options);
    const Ports ports({options.socket});
    ports.wait(0, 5);
    Answers answers{options};
    uint64_t kinds[kKinds] = {}, sent_bytes = 0, sent = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.guess_s);
    const auto finished = [&] {
        return options.guess_s != 0 ? std::chrono::steady_clock::now() >= end : sent >= options.count;
    };
    while (!finished()) {
        rte_mbuf* burst[kBurst];
        const auto wanted =
            options.guess_s != 0 ? kBurst : static_cast<uint16_t>(std::min<uint64_t>(kBurst, options.count - sent));
        if (rte_pktmbuf_alloc_bulk(ports.pool(), burst, wanted) != 0) fail("out of mbufs");
        for (uint16_t i = 0; i < wanted; ++i) {
            size_t bytes = 0;
            ++kinds[mutator.next(rte_pktmbuf_mtod(burst[i], uint8_t*), bytes)];
            burst[i]->data_len = static_cast<uint16_t>(bytes);
            burst[i]->pkt_len = static_cast<uint32_t>(bytes);
            sent_bytes += bytes;
        }
        for (uint16_t done = 0; done < wanted;) {
            done = static_cast<uint16_t>(done +
                                         rte_eth_tx_burst(0, 0, burst + done, static_cast<uint16_t>(wanted - done)));
            answers.drain();
        }
        sent += wanted;
    }
    for (uint32_t left = options.linger_ms; left > 0; --left) {
        answers.drain();
        usleep(1000);
    }
    std::printf("{\"sent\": %" PRIu64 ", \"received\": %" PRIu64 ", \"sent_bytes\": %" PRIu64
                ", \"received_bytes\": %" PRIu64 ", \"kinds\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]}\n",
                sent + answers.sent, answers.frames, sent_bytes + answers.sent_bytes, answers.bytes, kinds[kRebuilt],
                kinds[kFlipped], kinds[kResized], kinds[kRaw]);
    return 0;
}
