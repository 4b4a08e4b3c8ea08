// SPDX-License-Identifier: Apache-2.0
// Tests the "udp" port over loopback addresses: frames go from mbufs through the kernel's sockets into mbufs. Also
// tests the configurations that it refuses.
#include <gtest/gtest.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "link/address.h"
#include "port/udp/udp.h"
#include "support/random.h"
#include "wire/byte_order.h"
#include "wire/icrc.h"

namespace rove::datapath {
namespace {

constexpr uint32_t kMbufBytes = 4352;
constexpr uint8_t kSendOnly = wire::opcode(wire::Service::kRc, wire::Op::kSendOnly);
constexpr uint8_t kMpWrite = wire::opcode(wire::Service::kMp, wire::Op::kWriteOnly);

rte_mempool* pool() {
    static rte_mempool* const pool = [] {
        const std::string core = "--lcores=0@(" + std::to_string(sched_getcpu()) + ")";
        std::vector<std::string> arguments = {"test", "--no-huge",      "--no-shconf",   "--no-pci",
                                              "-m64", "--no-telemetry", "--log-level=3", core};
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) std::abort();
        return rte_pktmbuf_pool_create("udp_port_test", 4095, 0, 0, RTE_PKTMBUF_HEADROOM + kMbufBytes, SOCKET_ID_ANY);
    }();
    return pool;
}

// Returns an address that only this process uses. RoCE's UDP port exists once per machine and address, and other
// processes may run this test or rove.
std::string loopback(int number) {
    const int process = getpid();
    return "127." + std::to_string(128 + (process >> 8) % 64) + '.' + std::to_string(process % 256) + '.' +
           std::to_string(number);
}

struct Host {
    explicit Host(const std::string& address) : port(0, pool(), poller) {
        DeviceConfig config;
        config.port = "udp:" + address;
        config.addresses = {address};
        if (!port.open(config, &error)) return;
        port.start();
        rx = port.make_rx_queue(0);
        tx = port.make_tx_queue(0);
        gid = *parse_address(address);
        mtu = port.path_mtu();
    }

    EventLoop poller;
    UdpPort port;
    std::string error;
    wire::Gid gid{};
    uint32_t mtu = 0;
    std::unique_ptr<RxQueue> rx;
    std::unique_ptr<TxQueue> tx;
};

struct Packet {
    wire::Gid to{};
    uint16_t udp_src = 0xC000;
    uint32_t bytes = 4096, psn = 0;
    uint8_t traffic_class = 0, hop_limit = 64, opcode = kSendOnly;
};

rte_mbuf* built(const Host& from, const Packet& packet) {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool());
    const wire::FlowTemplate flow = wire::make_template({.dst_mac = derived_mac(packet.to),
                                                         .src_mac = from.port.mac(),
                                                         .src = from.gid,
                                                         .dst = packet.to,
                                                         .traffic_class = packet.traffic_class,
                                                         .hop_limit = packet.hop_limit,
                                                         .udp_src = packet.udp_src});
    wire::Headers headers;
    headers.bth.opcode = packet.opcode;
    headers.bth.psn = packet.psn;
    headers.vp = packet.udp_src;
    const std::vector<uint8_t> data(packet.bytes, static_cast<uint8_t>(packet.psn));
    const wire::Segment payload[] = {{data.data(), packet.bytes}};
    const size_t bytes = wire::build_frame(rte_pktmbuf_mtod(mbuf, uint8_t*), flow, headers, payload);
    mbuf->data_len = static_cast<uint16_t>(bytes);
    mbuf->pkt_len = mbuf->data_len;
    return mbuf;
}

size_t send(Host& from, const std::vector<Packet>& packets) {
    std::vector<rte_mbuf*> frames;
    for (const Packet& packet : packets) frames.push_back(built(from, packet));
    size_t sent = 0;
    for (int tries = 0; tries < 100 && sent < frames.size(); ++tries) {
        const size_t burst = std::min<size_t>(32, frames.size() - sent);
        sent += from.tx->burst(frames.data() + sent, static_cast<uint16_t>(burst));
    }
    return sent;
}

// Returns whole frames. Stops after a period without any.
std::vector<std::vector<uint8_t>> received(Host& at, size_t wanted) {
    using namespace std::chrono_literals;
    std::vector<std::vector<uint8_t>> frames;
    for (auto until = std::chrono::steady_clock::now() + 500ms;
         frames.size() < wanted && std::chrono::steady_clock::now() < until;) {
        rte_mbuf* mbufs[RxQueue::kBurst];
        const uint16_t count = at.rx->burst(mbufs);
        for (uint16_t i = 0; i < count; ++i) {
            const auto* const from = rte_pktmbuf_mtod(mbufs[i], const uint8_t*);
            frames.emplace_back(from, from + mbufs[i]->data_len);
        }
        rte_pktmbuf_free_bulk(mbufs, count);
    }
    return frames;
}

// Sends a RoCE datagram from any address, through a socket of the kernel.
void send_datagram(const std::string& from, const Host& to, std::span<const uint8_t> datagram) {
    const FileDescriptor file = open_udp_socket(*parse_address(from), 0xC777);
    const SocketAddress target(to.gid, wire::kRoceUdpPort);
    ASSERT_EQ(sendto(file.get(), datagram.data(), datagram.size(), 0, target.get(), target.bytes()),
              static_cast<ssize_t>(datagram.size()));
}

TEST(UdpPort, ATrainArrivesFrameByFrame) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    uint32_t psn = 0;
    // The first datagrams are received wherever they fit, later ones in place. The size also changes.
    for (const uint32_t bytes : {4096u, 4096u, 1024u, 1024u, 8u, 4096u, 0u}) {
        std::vector<Packet> packets;
        for (uint32_t i = 0; i < 32; ++i)
            packets.push_back({.to = b.gid, .bytes = bytes, .psn = psn + i, .traffic_class = 0x6A, .hop_limit = 9});
        packets.back().bytes = bytes / 2;
        ASSERT_EQ(send(a, packets), 32u);
        const auto frames = received(b, 32);
        ASSERT_EQ(frames.size(), 32u) << bytes;
        for (const auto& frame : frames) {
            wire::ParsedFrame parsed;
            ASSERT_EQ(wire::parse_frame(frame, parsed), wire::ParseError::kNone);
            EXPECT_EQ(parsed.headers.bth.psn, psn);
            ASSERT_EQ(parsed.payload_bytes, &frame == &frames.back() ? bytes / 2 : bytes);
            EXPECT_TRUE(std::all_of(parsed.payload, parsed.payload + parsed.payload_bytes,
                                    [&](uint8_t byte) { return byte == static_cast<uint8_t>(psn); }));
            EXPECT_EQ(parsed.flow.src, a.gid);
            EXPECT_EQ(parsed.flow.dst, b.gid);
            EXPECT_EQ(parsed.flow.src_mac, derived_mac(a.gid));
            EXPECT_EQ(parsed.flow.dst_mac, b.port.mac());
            EXPECT_EQ(parsed.flow.udp_src, 0xC000);
            EXPECT_EQ(parsed.flow.traffic_class, 0x6A);
            EXPECT_EQ(parsed.flow.hop_limit, 9);
            ++psn;
        }
    }
    EXPECT_EQ(a.port.statistics().tx_frames, psn);
    EXPECT_EQ(b.port.statistics().rx_frames, psn);
    EXPECT_EQ(a.port.statistics().tx_errors + b.port.statistics().rx_errors + b.port.statistics().rx_missed, 0u);
}

TEST(UdpPort, WhatFindsNoMbufWaitsUntilThereIsOne) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    constexpr uint32_t kFrames = 100;
    std::vector<Packet> packets;  // the sizes rule out segmentation
    for (uint32_t i = 0; i < kFrames; ++i) packets.push_back({.to = b.gid, .bytes = 8 + 4 * i, .psn = i});
    ASSERT_EQ(send(a, packets), kFrames);
    std::vector<rte_mbuf*> taken;
    while (rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool())) taken.push_back(mbuf);
    auto frames = received(b, kFrames);
    EXPECT_LT(frames.size(), kFrames);
    rte_pktmbuf_free_bulk(taken.data(), static_cast<unsigned>(taken.size()));
    for (auto& frame : received(b, kFrames - frames.size())) frames.push_back(std::move(frame));
    ASSERT_EQ(frames.size(), kFrames);
    for (uint32_t i = 0; i < kFrames; ++i) {
        wire::ParsedFrame parsed;
        ASSERT_EQ(wire::parse_frame(frames[i], parsed), wire::ParseError::kNone);
        EXPECT_EQ(parsed.headers.bth.psn, i);
    }
}

TEST(UdpPort, OneFlowsFramesKeepTheirOrder) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    test::Random random(7);
    std::map<uint16_t, uint32_t> next;
    for (int round = 0; round < 100; ++round) {
        std::vector<Packet> packets;
        for (uint32_t i = 0; i < 1 + random.below(64); ++i)
            packets.push_back({.to = b.gid,
                               .udp_src = static_cast<uint16_t>(0xC000 + random.below(3)),
                               .bytes = random.pick(0u, 4u, 1024u, 1025u, 4096u),
                               .psn = static_cast<uint32_t>(round * 64) + i});
        ASSERT_EQ(send(a, packets), packets.size());
        const auto frames = received(b, packets.size());
        ASSERT_EQ(frames.size(), packets.size());
        for (const auto& frame : frames) {
            wire::ParsedFrame parsed;
            ASSERT_EQ(wire::parse_frame(frame, parsed), wire::ParseError::kNone);
            uint32_t& least = next[parsed.flow.udp_src];
            EXPECT_GE(parsed.headers.bth.psn, least);
            least = parsed.headers.bth.psn + 1;
        }
    }
}

TEST(UdpPort, Ipv6) {
    Host host("::1");
    ASSERT_EQ(host.error, "");
    std::vector<Packet> packets;
    for (uint32_t i = 0; i < 20; ++i) packets.push_back({.to = host.gid, .psn = i, .traffic_class = 0x42});
    ASSERT_EQ(send(host, packets), 20u);
    const auto frames = received(host, 20);
    ASSERT_EQ(frames.size(), 20u);
    for (uint32_t i = 0; i < frames.size(); ++i) {
        wire::ParsedFrame parsed;
        ASSERT_EQ(wire::parse_frame(frames[i], parsed), wire::ParseError::kNone);
        EXPECT_EQ(parsed.headers.bth.psn, i);
        EXPECT_EQ(parsed.flow.traffic_class, 0x42);
        EXPECT_EQ(parsed.flow.src, host.gid);
    }
}

// Packets like those from rdma_rxe, which numbers them. The port cannot see which identification the kernel really gave
// a packet.
TEST(UdpPort, PacketsOfWhoNumbersThemAreIntactAndDamagedOnesAreNot) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    constexpr size_t kToDatagram = 42, kL3 = 14, kId = 4;
    for (const uint16_t identification : {0, 1, 0x7BE4, 0xFFFF}) {
        rte_mbuf* const mbuf = built(a, {.to = b.gid, .bytes = 500});
        auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
        const size_t bytes = mbuf->data_len;
        wire::store_be16(frame + kL3 + kId, identification);
        wire::store(frame + bytes - 4, wire::icrc(frame + kL3, bytes - kL3 - 4));
        const std::span<uint8_t> datagram(frame + kToDatagram, bytes - kToDatagram);
        send_datagram(loopback(1), b, datagram);
        const auto intact = received(b, 1);
        ASSERT_EQ(intact.size(), 1u);
        wire::ParsedFrame parsed;
        // The ICRC also covers the source port, which differs from the one that the frame was built with.
        EXPECT_EQ(wire::parse_frame(intact.front(), parsed), wire::ParseError::kIcrc);
        wire::store_be16(frame + 34, 0xC777);
        wire::store(frame + bytes - 4, wire::icrc(frame + kL3, bytes - kL3 - 4));
        send_datagram(loopback(1), b, datagram);
        const auto again = received(b, 1);
        ASSERT_EQ(again.size(), 1u);
        EXPECT_EQ(wire::parse_frame(again.front(), parsed), wire::ParseError::kNone);
        EXPECT_EQ(parsed.flow.ipv4_id, identification);
        uint32_t taken = 0;
        for (size_t at = 20; at < 120; ++at) {
            datagram[at] ^= 0x10;
            send_datagram(loopback(1), b, datagram);
            datagram[at] ^= 0x10;
            const auto damaged = received(b, 1);
            ASSERT_EQ(damaged.size(), 1u);
            taken += wire::parse_frame(damaged.front(), parsed) == wire::ParseError::kNone;
        }
        EXPECT_EQ(taken, 0u);
        rte_pktmbuf_free(mbuf);
    }
}

TEST(UdpPort, WhatIsNoRoceIsCountedOrLeftToTheEngine) {
    Host b(loopback(2));
    ASSERT_EQ(b.error, "");
    const std::vector<uint8_t> bytes(60'000, 0x5A);
    for (const size_t length : {0, 1, 15, 16, 17, 100, 4200, 60'000}) {
        send_datagram(loopback(1), b, std::span(bytes).first(length));
        for (const auto& frame : received(b, 1)) {
            wire::ParsedFrame parsed;
            EXPECT_NE(wire::parse_frame(frame, parsed), wire::ParseError::kNone) << length;
        }
    }
    EXPECT_EQ(b.port.statistics().rx_errors, 4u);  // 0, 1, 15 and 60 000 bytes
}

TEST(UdpPort, ASourcePortThatSomebodyElseHas) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    const FileDescriptor other = open_udp_socket(a.gid, 0xC005);
    ASSERT_TRUE(other.is_open());
    ASSERT_EQ(send(a, {{.to = b.gid, .udp_src = 0xC005, .psn = 1},
                       {.to = b.gid, .udp_src = 0xC005, .psn = 2, .opcode = kMpWrite},
                       {.to = b.gid, .udp_src = 0xC006, .psn = 3}}),
              3u);
    const auto frames = received(b, 2);
    ASSERT_EQ(frames.size(), 2u);
    wire::ParsedFrame parsed;
    ASSERT_EQ(wire::parse_frame(frames[0], parsed), wire::ParseError::kNone);
    EXPECT_EQ(parsed.flow.udp_src, wire::kRoceUdpPort);
    ASSERT_EQ(wire::parse_frame(frames[1], parsed), wire::ParseError::kNone);
    EXPECT_EQ(parsed.flow.udp_src, 0xC006);
    EXPECT_EQ(a.port.statistics().tx_errors, 1u);
}

TEST(UdpPort, MoreSourcePortsThanSockets) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    constexpr uint32_t kPorts = 2 * SourcePorts::kMost;
    for (uint32_t i = 0; i < kPorts; ++i) {
        ASSERT_EQ(send(a, {{.to = b.gid, .udp_src = static_cast<uint16_t>(0xC000 + i), .bytes = 8, .psn = i}}), 1u);
        const auto frames = received(b, 1);
        ASSERT_EQ(frames.size(), 1u);
        wire::ParsedFrame parsed;
        ASSERT_EQ(wire::parse_frame(frames[0], parsed), wire::ParseError::kNone);
        EXPECT_EQ(parsed.flow.udp_src, 0xC000 + i);
    }
    const std::filesystem::directory_iterator files("/proc/self/fd");
    EXPECT_LT(std::distance(begin(files), end(files)), static_cast<ptrdiff_t>(SourcePorts::kMost + 64));
}

TEST(UdpPort, FramesThatAreTheKernelsBusinessGoNowhere) {
    Host a(loopback(1));
    ASSERT_EQ(a.error, "");
    rte_mbuf* arp = built(a, {.to = a.gid, .bytes = 0});
    rte_pktmbuf_mtod(arp, uint8_t*)[13] = 0x06;
    EXPECT_EQ(a.tx->burst(&arp, 1), 1);
    EXPECT_EQ(received(a, 0).size(), 0u);
    EXPECT_EQ(a.port.statistics().tx_frames + a.port.statistics().tx_errors, 0u);
}

TEST(UdpPort, AFrameEndsASleep) {
    using namespace std::chrono_literals;
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    const auto sleeps = [&](std::chrono::nanoseconds time) {
        const auto begun = std::chrono::steady_clock::now();
        b.poller.wait(static_cast<uint64_t>(time.count()));
        return std::chrono::steady_clock::now() - begun >= time - 50ms;
    };
    ASSERT_TRUE(b.rx->arm());
    EXPECT_TRUE(sleeps(300ms));
    send(a, {{.to = b.gid}});
    EXPECT_FALSE(sleeps(30s));
    EXPECT_TRUE(sleeps(300ms));  // a frame rings once, read or not
    send(a, {{.to = b.gid}});
    EXPECT_FALSE(sleeps(30s));
    b.rx->disarm();
    EXPECT_EQ(received(b, 2).size(), 2u);
}

TEST(UdpPort, NeighboursAreThoseThatThereIsARouteTo) {
    Host a(loopback(1));
    ASSERT_EQ(a.error, "");
    const auto way = a.port.find(*parse_address(loopback(9)), 0);
    ASSERT_TRUE(way.has_value());
    EXPECT_EQ(way->outlet, a.port.id());
    EXPECT_EQ(way->next_hop->mac(), derived_mac(*parse_address(loopback(9))));
    // Strangers whose MADs are answered leave no state behind.
    const std::weak_ptr<const transport::NextHop> found = a.port.find(*parse_address(loopback(10)), 0)->next_hop;
    EXPECT_TRUE(found.expired());
    EXPECT_FALSE(a.port.find(*parse_address("::1"), 0).has_value());  // the port has no address of that family
    EXPECT_FALSE(a.port.find(*parse_address("fe80::1"), 0).has_value());
}

wire::Gid group_of(uint32_t number) {
    return *parse_address("239.7." + std::to_string(number / 200) + "." + std::to_string(number % 200 + 1));
}

TEST(UdpPort, PlacesOfGroupsThatAreLeftAreUsedAgain) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    for (uint32_t i = 0; i < 3 * UdpPort::Receivers::kMost; ++i) {
        ASSERT_EQ(b.port.join(group_of(i)), 0);
        ASSERT_EQ(b.port.join(group_of(i)), 0);  // another member
        b.port.leave(group_of(i));
        if (i % 16 == 0) {  // the port receives the group
            send(a, {{.to = group_of(i), .bytes = 8, .psn = i}});
            const auto frames = received(b, 1);
            ASSERT_EQ(frames.size(), 1u) << i;
            wire::ParsedFrame parsed;
            ASSERT_EQ(wire::parse_frame(frames[0], parsed), wire::ParseError::kNone);
            EXPECT_EQ(parsed.flow.dst, group_of(i));
            EXPECT_EQ(parsed.flow.dst_mac, multicast_mac(group_of(i)));
        }
        b.port.leave(group_of(i));
        send(a, {{.to = group_of(i), .bytes = 8}});
    }
    EXPECT_EQ(received(b, 1).size(), 0u);
}

TEST(UdpPort, AGroupThatThereIsNoPlaceForIsRefused) {
    Host a(loopback(1)), b(loopback(2));
    ASSERT_EQ(a.error + b.error, "");
    constexpr uint32_t kGroups = UdpPort::Receivers::kMost - 1;  // the port's own address also needs a place
    for (uint32_t i = 0; i < kGroups; ++i) ASSERT_EQ(b.port.join(group_of(i)), 0);
    EXPECT_EQ(b.port.join(group_of(kGroups)), ENOMEM);
    EXPECT_EQ(b.port.join(*parse_address("ff15::77")), EADDRNOTAVAIL);  // the port has an IPv4 address
    b.port.leave(group_of(5));
    EXPECT_EQ(b.port.join(group_of(kGroups)), 0);
    for (const uint32_t i : {0u, 4u, 5u, kGroups - 1, kGroups}) {
        send(a, {{.to = group_of(i), .bytes = 8}});
        EXPECT_EQ(received(b, 1).size(), i == 5 ? 0u : 1u) << i;
    }
}

TEST(UdpPort, WhatCannotBeIsRefusedInALine) {
    {
        Host elsewhere("203.0.113.77");
        EXPECT_NE(elsewhere.error.find("does not have that address. Allowed: "), std::string::npos) << elsewhere.error;
        EXPECT_NE(elsewhere.error.find("127.0.0.1"), std::string::npos) << elsewhere.error;
    }
    const FileDescriptor other = open_udp_socket(*parse_address(loopback(3)), wire::kRoceUdpPort);
    ASSERT_TRUE(other.is_open());
    Host taken(loopback(3));
    EXPECT_NE(taken.error.find("UDP port 4791 is in use by process " + std::to_string(getpid()) + " ("),
              std::string::npos)
        << taken.error;
    Host free(loopback(1));
    EXPECT_EQ(free.error, "");
    EXPECT_EQ(free.mtu, 4096u);
}

TEST(UdpPort, TheMtuIsTheLargestThatFits) {
    EXPECT_EQ(roce_mtu(1500, true), 1024u);
    EXPECT_EQ(roce_mtu(1500, false), 1024u);
    EXPECT_EQ(roce_mtu(4096 + 71, true), 2048u);
    EXPECT_EQ(roce_mtu(4096 + 72, true), 4096u);
    EXPECT_EQ(roce_mtu(4096 + 72, false), 2048u);
    EXPECT_EQ(roce_mtu(9000, false), 4096u);
    EXPECT_EQ(roce_mtu(65'536, false), 4096u);
    EXPECT_EQ(roce_mtu(300, true), 0u);
    EXPECT_EQ(Host(loopback(1)).mtu, 4096u);
}

TEST(UdpPort, AddressesByName) {
    EXPECT_EQ(udp_addresses("udp:10.1.2.3"), std::vector<std::string>{"10.1.2.3"});
    EXPECT_EQ(udp_addresses("udp:fd00::1"), std::vector<std::string>{"fd00::1"});
    EXPECT_TRUE(udp_addresses("udp:eth0").empty());
}

}  // namespace
}  // namespace rove::datapath
