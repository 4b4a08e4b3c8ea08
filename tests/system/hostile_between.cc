// SPDX-License-Identifier: Apache-2.0
// Forwards the frames of two peers, each at a memif, and adds hostile ones derived from them. These contain all that
// can be read on the way, addresses, QP numbers, PSNs and keys, but come from another source, are damaged, or do not
// match the QP that they are sent to. (An attacker that can write the peer's own packets is the peer, for any RDMA
// device.) Ends when stdin closes. Prints {"hostile": N, "carried": N, "lost": N}.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstring>

#include "hostile_port.h"

namespace {

using namespace hostile;

constexpr uint16_t kHostileBurst = 8;
constexpr size_t kKept = 64;  // frames of each direction from which hostile ones are made

struct Frame {
    std::vector<uint8_t> bytes;
};

class Forger {
  public:
    explicit Forger(uint64_t seed) : dice_(seed) {
        payload_.resize(4096);
        for (uint8_t& byte : payload_) byte = static_cast<uint8_t>(dice_.number());
    }
    // Records a carried `frame`.
    void see(const uint8_t* frame, size_t bytes) {
        if (kept_.size() >= kKept && !dice_.chance(5)) return;
        Frame& place = kept_.size() < kKept ? kept_.emplace_back() : kept_[dice_.below(kKept)];
        place.bytes.assign(frame, frame + bytes);
    }
    // Returns 0 if there is no frame yet to make one from.
    size_t make(uint8_t* out) {
        if (kept_.empty()) return 0;
        const Frame& frame = kept_[dice_.below(kept_.size())];
        ParsedFrame live;
        const size_t size = std::min(frame.bytes.size(), kMaxFrame);
        // Any host believes ARP and ND, so only damaged ones are sent.
        if (parse_frame(frame.bytes, live) != ParseError::kNone) {
            std::memcpy(out, frame.bytes.data(), size);
            for (size_t at = 14; at < size; ++at) out[at] = static_cast<uint8_t>(dice_.number());
            return size;
        }
        Headers headers = live.headers;
        Flow flow = live.flow;
        uint32_t bytes = live.payload_bytes;
        switch (dice_.below(8)) {
            case 0: {  // damaged in a part that no ICRC covers
                std::memcpy(out, frame.bytes.data(), size);
                const size_t from =
                    static_cast<size_t>(live.l3 - frame.bytes.data()) + (is_ipv4_mapped(flow.dst) ? 28 : 48);
                const size_t at = from + dice_.below(size - from);
                out[at] ^= static_cast<uint8_t>(1 + dice_.below(255));
                return size;
            }
            case 1:  // cut short, or longer
                std::memcpy(out, frame.bytes.data(), size);
                return 14 + dice_.below(size - 14);
            case 2:
                dice_.forge_source(flow);
                break;
            case 3:
                dice_.forge_group(flow);
                break;
            case 4:  // another partition
                headers.bth.pkey = static_cast<uint16_t>(0x8001 + dice_.below(0x7000));
                break;
            case 5:  // an unused QP number
                headers.bth.dest_qpn ^= static_cast<uint32_t>(1 + dice_.below(0xFFFF)) << 4;
                break;
            case 6: {  // a transport service that the QP does not speak
                const uint8_t before = headers.bth.opcode;
                do headers.bth.opcode = dice_.known_opcode();
                while (service_of(headers.bth.opcode) == service_of(before) || headers.bth.opcode == kOpcodeCnp);
                dice_.fill_multipath(headers, headers.bth.psn);
                headers.reth = {dice_.number(), static_cast<uint32_t>(dice_.number()), 8};
                break;
            }
            default:  // HELLO in the peer's name, or in another one
                headers.bth.opcode = kOpcodeHello;
                dice_.fill_multipath(headers, headers.bth.psn);
                if (dice_.chance(50)) dice_.forge_source(flow);
                break;
        }
        if (dice_.chance(20) && service_of(headers.bth.opcode) == Service::kRc && !is_ours(live, flow, headers))
            dice_.fill_acknowledgement(headers,
                                       (headers.bth.psn - 4 + static_cast<uint32_t>(dice_.below(8))) & 0xFFFFFF);
        if (!(opcode_info(headers.bth.opcode).extensions & kHasPayload)) bytes = 0;
        const Segment segment{payload_.data(), bytes};
        if (frame_bytes(make_template(flow), headers.bth.opcode, bytes) > kMaxFrame) return 0;
        return build_frame(out, make_template(flow), headers, std::span(&segment, 1));
    }

  private:
    // Returns true if the QP would accept it as its peer's.
    static bool is_ours(const ParsedFrame& live, const Flow& flow, const Headers& headers) {
        return flow.src == live.flow.src && flow.dst == live.flow.dst && flow.dst_mac == live.flow.dst_mac &&
               headers.bth.pkey == live.headers.bth.pkey && headers.bth.dest_qpn == live.headers.bth.dest_qpn;
    }
    Dice dice_;
    std::vector<Frame> kept_;
    std::vector<uint8_t> payload_;
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> sockets;
    uint64_t count = 100'000, seed = 1;
    CLI::App app{"Hostile packets between two peers"};
    app.add_option("sockets", sockets, "memif sockets of the two; @NAME: abstract")->required()->expected(2);
    app.add_option("--count", count, "hostile packets");
    app.add_option("--seed", seed);
    CLI11_PARSE(app, argc, argv);

    const Ports ports(sockets);
    for (uint16_t id = 0; id < 2; ++id) ports.wait(id, 30);
    std::printf("{\"up\": true}\n");
    std::fflush(stdout);
    Forger forgers[] = {Forger(seed), Forger(seed + 1)};  // indexed by the origin of the frames
    uint64_t hostile = 0, carried = 0, lost = 0;
    const auto send = [&](uint16_t to, rte_mbuf** frames, uint16_t n) {
        uint16_t sent = 0;
        for (int tries = 0; sent < n && tries < 1000; ++tries)
            sent =
                static_cast<uint16_t>(sent + rte_eth_tx_burst(to, 0, frames + sent, static_cast<uint16_t>(n - sent)));
        rte_pktmbuf_free_bulk(frames + sent, n - sent);
        return sent;
    };
    for (uint64_t turn = 0;; ++turn) {
        bool idle = true;
        for (uint16_t from = 0; from < 2; ++from) {
            const uint16_t to = 1 - from;
            rte_mbuf* got[kBurst];
            const uint16_t n = rte_eth_rx_burst(from, 0, got, kBurst);
            for (uint16_t i = 0; i < n; ++i) forgers[from].see(rte_pktmbuf_mtod(got[i], uint8_t*), got[i]->pkt_len);
            idle &= n == 0;
            const uint16_t sent = n == 0 ? uint16_t{0} : send(to, got, n);
            carried += sent;
            lost += n - sent;
            if (hostile >= count) continue;
            rte_mbuf* burst[kHostileBurst];
            if (rte_pktmbuf_alloc_bulk(ports.pool(), burst, kHostileBurst) != 0) continue;
            uint16_t made = 0;
            for (; made < kHostileBurst; ++made) {
                const size_t bytes = forgers[from].make(rte_pktmbuf_mtod(burst[made], uint8_t*));
                if (bytes == 0) break;
                burst[made]->data_len = static_cast<uint16_t>(bytes);
                burst[made]->pkt_len = static_cast<uint32_t>(bytes);
            }
            rte_pktmbuf_free_bulk(burst + made, kHostileBurst - made);
            if (made != 0) hostile += send(to, burst, made);
        }
        if (idle) sched_yield();
        if (turn % 1024 != 0) continue;
        pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
        if (poll(&input, 1, 0) != 0) break;  // closed
    }
    std::printf("{\"hostile\": %" PRIu64 ", \"carried\": %" PRIu64 ", \"lost\": %" PRIu64 "}\n", hostile, carried,
                lost);
    return 0;
}
