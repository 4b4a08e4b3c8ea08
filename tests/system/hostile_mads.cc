// SPDX-License-Identifier: Apache-2.0
// Sends hostile MADs to a live connection manager over a memif: floods of requests for its service, answers and
// disconnects with ids that it never gave, noise; from many addresses, and also in the name of a peer that it has on
// another port. Prints the numbers sent and received: {"sent": N, "received": N}.
#include <CLI/CLI.hpp>
#include <cinttypes>

#include "cm/messages.h"
#include "hostile_port.h"

namespace {

using namespace hostile;
using namespace rove::cm;

struct Options {
    std::string socket, src_mac, dst_mac, src_gid, dst_gid, peer_gid;
    uint64_t count = 1'000'000, seed = 1;
    uint16_t port = 7174;
};

Mad hostile_mad(Dice& dice, const Options& options, const Flow& flow) {
    const auto word = [&] { return static_cast<uint32_t>(dice.number()); };
    Message message{.transaction_id = dice.number(), .body{}};
    const uint64_t theme = dice.below(8);
    switch (theme) {
        case 0: {
            Req req{.local_comm_id = word(),
                    .ca_guid = dice.number(),
                    .qpn = word() & 0xFFFFFF,
                    .local_response_timeout = 31,
                    .path_mtu = 3,
                    .max_cm_retries = 15};
            req.service_id = service_id_of(0x0106, dice.chance(80) ? options.port : static_cast<uint16_t>(word()));
            req.responder_resources = req.initiator_depth = 1;
            req.primary.local_gid = flow.src;
            req.primary.remote_gid = flow.dst;
            build_cma_header({.src_port = 1, .src = flow.src, .dst = flow.dst}, req.private_data);
            message.body = req;
            break;
        }
        case 1:
            message.body = Rep{.local_comm_id = word(), .remote_comm_id = word()};
            break;
        case 2:
            message.body = Rtu{.local_comm_id = word(), .remote_comm_id = word()};
            break;
        case 3:
            message.body = Dreq{.local_comm_id = word(), .remote_comm_id = word(), .remote_qpn = word()};
            break;
        case 4:
            message.body = Drep{.local_comm_id = word(), .remote_comm_id = word()};
            break;
        case 5:
            message.body = Rej{.local_comm_id = word(), .remote_comm_id = word(), .reason = RejReason::kTimeout};
            break;
        case 6:
            message.body = SidrReq{.request_id = word(), .service_id = service_id_of(0x0111, options.port)};
            break;
        default:
            message.body = Mra{.local_comm_id = word(), .remote_comm_id = word(), .service_timeout = 31};
            break;
    }
    Mad mad = build(message);
    if (dice.chance(10))
        for (int i = 0; i < 4; ++i) mad[dice.below(mad.size())] = static_cast<uint8_t>(dice.number());
    return mad;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Sender of hostile MADs"};
    app.add_option("--socket", options.socket, "memif socket; @NAME: abstract")->required();
    app.add_option("--count", options.count, "packets");
    app.add_option("--seed", options.seed);
    app.add_option("--port", options.port, "that somebody listens at");
    app.add_option("--src-mac", options.src_mac)->required();
    app.add_option("--dst-mac", options.dst_mac)->required();
    app.add_option("--src-gid", options.src_gid, "32 hex digits")->required();
    app.add_option("--dst-gid", options.dst_gid)->required();
    app.add_option("--peer-gid", options.peer_gid, "in whose name a share is sent")->required();
    CLI11_PARSE(app, argc, argv);

    Dice dice(options.seed);
    const Ports ports({options.socket});
    ports.wait(0, 5);
    Flow base;
    base.src_mac = from_hex<6>(options.src_mac);
    base.dst_mac = from_hex<6>(options.dst_mac);
    base.src = from_hex<16>(options.src_gid);
    base.dst = from_hex<16>(options.dst_gid);
    const Gid peer = from_hex<16>(options.peer_gid);
    uint64_t sent = 0, received = 0;
    while (sent < options.count) {
        rte_mbuf* burst[kBurst];
        if (rte_pktmbuf_alloc_bulk(ports.pool(), burst, kBurst) != 0) fail("out of mbufs");
        for (rte_mbuf* const mbuf : burst) {
            Flow flow = base;
            if (dice.chance(20)) {
                flow.src = peer;
            } else if (dice.chance(50)) {
                flow.src[15] = static_cast<uint8_t>(2 + dice.below(250));
            }
            flow.udp_src = static_cast<uint16_t>(0xC000 | dice.number());
            const Mad mad = hostile_mad(dice, options, flow);
            Headers headers{};
            headers.bth.opcode = opcode(Service::kUd, Op::kSendOnly);
            headers.bth.flags = Bth::kMigReq;
            headers.bth.pkey = kDefaultPkey;
            headers.bth.dest_qpn = kGsiQpn;
            headers.deth = {dice.chance(95) ? kGsiQkey : static_cast<uint32_t>(dice.number()), kGsiQpn};
            const Segment segment{mad.data(),
                                  static_cast<uint32_t>(dice.chance(98) ? mad.size() : dice.below(mad.size()))};
            const size_t bytes =
                build_frame(rte_pktmbuf_mtod(mbuf, uint8_t*), make_template(flow), headers, std::span(&segment, 1));
            mbuf->data_len = static_cast<uint16_t>(bytes);
            mbuf->pkt_len = static_cast<uint32_t>(bytes);
        }
        for (uint16_t done = 0; done < kBurst;) {
            done = static_cast<uint16_t>(done +
                                         rte_eth_tx_burst(0, 0, burst + done, static_cast<uint16_t>(kBurst - done)));
            rte_mbuf* got[kBurst];
            const uint16_t n = rte_eth_rx_burst(0, 0, got, kBurst);
            rte_pktmbuf_free_bulk(got, n);
            received += n;
        }
        sent += kBurst;
    }
    std::printf("{\"sent\": %" PRIu64 ", \"received\": %" PRIu64 "}\n", sent, received);
    return 0;
}
