// SPDX-License-Identifier: Apache-2.0
// Measures a DPDK port whose payload is really produced and consumed: the reference of rove's speed table.
//
//     port_floor EAL_ARGS -- --send|--recv|--echo|--pingpong --size FRAME_BYTES --seconds S [--crc]
//
// Units: sizes are bytes of the Ethernet frame without FCS, gbps counts those bytes, latencies are nanoseconds. A pair
// is --send with --recv (rate) or --pingpong with --echo (latency). The first of a pair ends the run with a special
// frame, and neither calls rx_burst or tx_burst after it: memif of DPDK 22.11 unmaps the rings in another thread when
// the peer leaves, and a process that is inside a burst then crashes.
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "wire/copy.h"
#include "wire/crc32.h"

namespace {

constexpr uint16_t kPort = 0;
constexpr uint32_t kHeaderBytes = 74;       // Ethernet + IPv4 + UDP + BTH + RETH + ICRC: a full RoCEv2 WRITE packet
constexpr uint32_t kBufferBytes = 1 << 20;  // the message of the speed table
constexpr uint32_t kPoolMbufs = 8191;       // 2^13 - 1, as rove's own pool
constexpr uint32_t kPoolCacheMbufs = 256;   // per lcore
constexpr uint32_t kFrameRoomBytes = 4352;  // 4096 + headers, rounded up to 256
constexpr uint16_t kRingDescriptors = 256;  // the number asked for; memif uses its own rsize instead
constexpr uint32_t kMaxBurst = 64;          // packets
constexpr uint64_t kLinkWaitSeconds = 30;   // for the peer to start
constexpr double kWarmUpSeconds = 0.2;      // for caches, page tables and clocks; not counted
constexpr uint32_t kMaxSamples = 1 << 22;   // samples of --pingpong; 16 MiB
constexpr uint32_t kDisconnectMicroseconds = 50'000;  // memif frees its rings after it has taken the link down
constexpr uint32_t kNumberOffset = 14;                // offset of the frame's running number in bytes
constexpr uint32_t kLastFrame = UINT32_MAX;           // in place of the number: the end of the run

struct Options {
    bool send = false, recv = false, echo = false, pingpong = false;
    bool header_only = false;
    bool crc = false;
    uint32_t frame_bytes = 4096 + kHeaderBytes;
    double seconds = 3;
    uint16_t burst = 32;
};

class Port {
  public:
    Port() {
        if (!rte_eth_dev_is_valid_port(kPort)) throw std::runtime_error("no port: give EAL a --vdev or a device");
        pool_ = rte_pktmbuf_pool_create("floor", kPoolMbufs, kPoolCacheMbufs, 0, kFrameRoomBytes + RTE_PKTMBUF_HEADROOM,
                                        SOCKET_ID_ANY);
        if (pool_ == nullptr) throw std::runtime_error("no memory for the packet pool: give EAL a larger -m");
        rte_eth_conf conf{};
        uint16_t rx_descriptors = kRingDescriptors, tx_descriptors = kRingDescriptors;
        check(rte_eth_dev_configure(kPort, 1, 1, &conf), "rte_eth_dev_configure");
        check(rte_eth_dev_adjust_nb_rx_tx_desc(kPort, &rx_descriptors, &tx_descriptors), "adjust_nb_rx_tx_desc");
        check(rte_eth_rx_queue_setup(kPort, 0, rx_descriptors, SOCKET_ID_ANY, nullptr, pool_), "rx_queue_setup");
        check(rte_eth_tx_queue_setup(kPort, 0, tx_descriptors, SOCKET_ID_ANY, nullptr), "tx_queue_setup");
        check(rte_eth_dev_start(kPort), "rte_eth_dev_start");
    }
    ~Port() {
        rte_eth_dev_stop(kPort);
        rte_eth_dev_close(kPort);
    }
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    void wait_for_link() const {
        const uint64_t deadline = rte_get_tsc_cycles() + kLinkWaitSeconds * rte_get_tsc_hz();
        while (!link_up()) {
            if (rte_get_tsc_cycles() > deadline) throw std::runtime_error("the peer did not come up");
            usleep(1000);
        }
    }

    bool link_up() const {
        rte_eth_link link{};
        rte_eth_link_get_nowait(kPort, &link);
        return link.link_status == RTE_ETH_LINK_UP;
    }

    // Fills `mbufs` or none of them. Returns false if the pool is empty for now, because the port holds sent packets.
    bool alloc(rte_mbuf** mbufs, uint16_t n) { return rte_pktmbuf_alloc_bulk(pool_, mbufs, n) == 0; }

    uint16_t receive(rte_mbuf** mbufs, uint16_t n) { return rte_eth_rx_burst(kPort, 0, mbufs, n); }

    // Sends all of `mbufs` and waits for room.
    void transmit(rte_mbuf** mbufs, uint16_t n) {
        uint16_t sent = rte_eth_tx_burst(kPort, 0, mbufs, n);
        while (sent < n) sent += rte_eth_tx_burst(kPort, 0, mbufs + sent, n - sent);
    }

  private:
    static void check(int result, const char* what) {
        if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(-result));
    }
    rte_mempool* pool_ = nullptr;
};

// The application's message. Payloads are read from it or written to it, front to back and over again.
class Message {
  public:
    explicit Message(uint32_t payload_bytes) : payload_bytes_(payload_bytes), bytes_(kBufferBytes) {
        for (uint32_t i = 0; i < kBufferBytes; ++i) bytes_[i] = static_cast<uint8_t>(i * 31 + (i >> 8));
    }
    uint8_t* next_payload() {
        if (offset_ + payload_bytes_ > kBufferBytes) offset_ = 0;
        uint8_t* payload = bytes_.data() + offset_;
        offset_ += payload_bytes_;
        return payload;
    }

  private:
    uint32_t payload_bytes_, offset_ = 0;
    std::vector<uint8_t> bytes_;
};

// Writes the headers of a frame, with an experimental EtherType so that it is not RoCE, and a running number.
void write_header(uint8_t* frame, uint32_t number) {
    static const auto header = [] {
        std::array<uint8_t, kHeaderBytes> h{};
        std::fill_n(h.begin(), 6, uint8_t{0xff});
        h[6] = 0x02;   // locally administered source address
        h[12] = 0x88;  // 0x88b5: IEEE 802 local experimental EtherType 1
        h[13] = 0xb5;
        return h;
    }();
    std::memcpy(frame, header.data(), kHeaderBytes);
    std::memcpy(frame + kNumberOffset, &number, sizeof number);
}

void copy_payload(uint8_t* to, const uint8_t* from, uint32_t bytes, const Options& options) {
    if (options.crc)
        rove::wire::crc32_copy(0, to, from, bytes);
    else
        rove::wire::copy(to, from, bytes);
}

void fill(rte_mbuf* mbuf, const Options& options, Message& message, uint32_t number) {
    auto* frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
    mbuf->data_len = static_cast<uint16_t>(options.frame_bytes);
    mbuf->pkt_len = options.frame_bytes;
    write_header(frame, number);
    if (!options.header_only)
        copy_payload(frame + kHeaderBytes, message.next_payload(), options.frame_bytes - kHeaderBytes, options);
}

bool is_last(const rte_mbuf* mbuf) {
    uint32_t number;
    std::memcpy(&number, rte_pktmbuf_mtod_offset(mbuf, const uint8_t*, kNumberOffset), sizeof number);
    return number == kLastFrame;
}

// Ends the run: sends the last frame and stays until the peer has left.
void send_last(Port& port, const Options& options, Message& message) {
    rte_mbuf* mbuf;
    while (!port.alloc(&mbuf, 1)) {
    }
    fill(mbuf, options, message, kLastFrame);
    port.transmit(&mbuf, 1);
    while (port.link_up()) usleep(1000);
    usleep(kDisconnectMicroseconds);
}

void report_rate(const char* mode, const Options& options, uint64_t packets, uint64_t cycles) {
    const double seconds = static_cast<double>(cycles) / static_cast<double>(rte_get_tsc_hz());
    const double pps = seconds > 0 ? static_cast<double>(packets) / seconds : 0;
    std::printf("port_floor mode=%s frame_bytes=%u packets=%lu seconds=%.3f pps=%.0f gbps=%.3f\n", mode,
                options.frame_bytes, packets, seconds, pps, pps * options.frame_bytes * 8 / 1e9);
}

void run_send(Port& port, const Options& options) {
    Message message(options.frame_bytes - kHeaderBytes);
    std::array<rte_mbuf*, kMaxBurst> mbufs;
    const uint64_t start = rte_get_tsc_cycles();
    const auto end = start + static_cast<uint64_t>(options.seconds * static_cast<double>(rte_get_tsc_hz()));
    uint64_t packets = 0, now = start;
    for (; now < end; now = rte_get_tsc_cycles()) {
        if (!port.alloc(mbufs.data(), options.burst)) continue;
        for (uint16_t i = 0; i < options.burst; ++i)
            fill(mbufs[i], options, message, static_cast<uint32_t>(packets + i));
        port.transmit(mbufs.data(), options.burst);
        packets += options.burst;
    }
    send_last(port, options, message);
    report_rate("send", options, packets, now - start);
}

void run_recv(Port& port, const Options& options) {
    const uint32_t payload_bytes = options.frame_bytes - kHeaderBytes;
    Message message(payload_bytes);
    std::array<rte_mbuf*, kMaxBurst> mbufs;
    const auto warm_up = static_cast<uint64_t>(kWarmUpSeconds * static_cast<double>(rte_get_tsc_hz()));
    uint64_t packets = 0, first = 0, last = 0;  // counting starts at `first`
    for (bool done = false; !done;) {
        const uint16_t n = port.receive(mbufs.data(), options.burst);
        if (n == 0) continue;
        done = is_last(mbufs[n - 1]);
        for (uint16_t i = 0; i < n; ++i) {
            if (mbufs[i]->data_len != options.frame_bytes) throw std::runtime_error("a frame of another size arrived");
            if (!options.header_only)
                copy_payload(message.next_payload(), rte_pktmbuf_mtod_offset(mbufs[i], uint8_t*, kHeaderBytes),
                             payload_bytes, options);
        }
        rte_pktmbuf_free_bulk(mbufs.data(), n);
        last = rte_get_tsc_cycles();
        if (first == 0) first = last + warm_up;
        if (last > first) packets += n;
    }
    report_rate("recv", options, packets, last > first ? last - first : 0);
}

void run_echo(Port& port, const Options& options) {
    std::array<rte_mbuf*, kMaxBurst> mbufs;
    for (bool done = false; !done;) {
        const uint16_t n = port.receive(mbufs.data(), options.burst);
        if (n == 0) continue;
        done = is_last(mbufs[n - 1]);
        port.transmit(mbufs.data(), n);
    }
}

void run_pingpong(Port& port, const Options& options) {
    Message message(options.frame_bytes - kHeaderBytes);
    std::vector<uint32_t> cycles(kMaxSamples);  // written once here, so that no page fault falls into a sample
    const uint64_t hz = rte_get_tsc_hz(), start = rte_get_tsc_cycles();
    const auto counted_from = start + static_cast<uint64_t>(kWarmUpSeconds * static_cast<double>(hz));
    const auto end = counted_from + static_cast<uint64_t>(options.seconds * static_cast<double>(hz));
    size_t samples = 0;
    uint32_t number = 0;
    for (uint64_t now = start; now < end && samples < kMaxSamples;) {
        rte_mbuf* mbuf = nullptr;
        if (!port.alloc(&mbuf, 1)) continue;
        const uint64_t sent = rte_get_tsc_cycles();
        fill(mbuf, options, message, number++);
        port.transmit(&mbuf, 1);
        while (port.receive(&mbuf, 1) == 0) {
        }
        now = rte_get_tsc_cycles();
        rte_pktmbuf_free(mbuf);
        if (sent >= counted_from) cycles[samples++] = static_cast<uint32_t>(now - sent);
    }
    send_last(port, options, message);
    if (samples == 0) throw std::runtime_error("no round trip finished");
    cycles.resize(samples);
    std::sort(cycles.begin(), cycles.end());
    const auto half_trip_ns = [&](double quantile) {
        const auto index = static_cast<size_t>(quantile * static_cast<double>(samples - 1));
        return static_cast<double>(cycles[index]) * 1e9 / static_cast<double>(hz) / 2;
    };
    std::printf("port_floor mode=pingpong frame_bytes=%u samples=%zu median_ns=%.0f p99_ns=%.0f\n", options.frame_bytes,
                samples, half_trip_ns(0.5), half_trip_ns(0.99));
}

}  // namespace

int main(int argc, char** argv) try {
    const int eal_args = rte_eal_init(argc, argv);
    if (eal_args < 0) throw std::runtime_error("EAL did not start");

    Options options;
    CLI::App app("Copy floor of a DPDK port: EAL_ARGS -- OPTIONS");
    auto* mode = app.add_option_group("mode");
    mode->add_flag("--send", options.send, "copy payload out of a 1 MiB buffer into packets and send them");
    mode->add_flag("--recv", options.recv, "copy the payload of packets into a 1 MiB buffer");
    mode->add_flag("--echo", options.echo, "send every packet back");
    mode->add_flag("--pingpong", options.pingpong, "measure half round trips against --echo");
    mode->require_option(1);
    app.add_option("--size", options.frame_bytes, "frame, bytes")->check(CLI::Range(kHeaderBytes + 1, kFrameRoomBytes));
    app.add_option("--seconds", options.seconds, "how long to send")->check(CLI::Range(0.5, 3600.0));
    app.add_option("--burst", options.burst, "packets")->check(CLI::Range(1u, kMaxBurst));
    app.add_flag("--crc", options.crc, "CRC-32 in the same pass as the copy of this side: the least that ICRC costs");
    app.add_flag("--header-only", options.header_only, "do not touch the payload: what the copy on this side costs");
    CLI11_PARSE(app, argc - eal_args, argv + eal_args);

    {
        Port port;
        port.wait_for_link();
        if (options.send) run_send(port, options);
        if (options.recv) run_recv(port, options);
        if (options.echo) run_echo(port, options);
        if (options.pingpong) run_pingpong(port, options);
    }
    return 0;  // without rte_eal_cleanup: it unmaps the memory that the interrupt thread uses to end a memif connection
} catch (const std::exception& error) {
    std::fprintf(stderr, "port_floor: %s\n", error.what());
    return 1;
}
