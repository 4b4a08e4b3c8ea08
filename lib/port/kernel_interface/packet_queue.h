// SPDX-License-Identifier: Apache-2.0
// An interface through AF_PACKET sockets (packet(7)), in trains (trains.h). Units: bytes.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "port/kernel_interface/kernel_queue.h"
#include "port/segmentation/segmentation.h"

namespace rove::datapath {

// What of an interface's frames is read and sent.
enum class PacketKinds : bool {
    kRoce,   // RoCEv2
    kBridge  // that, and what a bridge needs beside: ARP, and all of ICMP, ICMPv6, IGMP and MLD
};

// What comes to an interface. The kernel goes on with its own copy, and is kept from answering that nobody is there.
class PacketQueue final : public KernelQueue {
  public:
    // Returns null if the kernel gives us no such socket: `*error` has errno. Nothing comes before begin().
    static std::unique_ptr<PacketQueue> open(const std::string& interface, unsigned index, PacketKinds kinds,
                                             rte_mempool* pool, EventLoop& poller, int* error);
    // Returns 0 or errno. Any thread; again does nothing.
    int begin();

    uint16_t burst(rte_mbuf** frames) override;
    uint64_t missed() override;

  private:
    PacketQueue(FileDescriptor file, unsigned index, EventLoop& poller, rte_mempool* pool);
    int prepare(const std::string& interface, PacketKinds kinds);
    bool has_frames() const override { return trains_.has_frames(); }
    void take(size_t message);

    const unsigned index_;            // of the interface
    std::atomic<bool> begun_{false};  // relaxed: what is read late waits in the kernel meanwhile
    GroReceiver trains_;
    size_t front_ = 0;  // bytes, that stood before the last message's datagrams
    std::vector<FileDescriptor> listeners_;
    std::atomic<uint64_t> missed_{0};
};

// What stands before a frame of a socket with PACKET_VNET_HDR: struct virtio_net_hdr (VIRTIO 1.2, 5.1.6), which Linux's
// header does not give to C++. In the host's order.
struct [[gnu::packed]] TrainHeader {
    uint8_t flags = 0, gso_type = 0;
    uint16_t header_bytes = 0, segment_bytes = 0;
    uint16_t checksum_start = 0, checksum_offset = 0;  // the latter from the former
};

static_assert(sizeof(TrainHeader) == 10);

// Through the queueing disciplines: past them, the kernel drops a train that it has to cut for the driver.
class PacketSender final : public GsoSender {
  public:
    static std::unique_ptr<PacketSender> open(const std::string& interface, unsigned index, PacketKinds kinds,
                                              int* error);

    int file() const { return file_.get(); }
    const FrameCounts& counts() const { return counts_; }

  private:
    PacketSender(std::string port, FileDescriptor file, PacketKinds kinds)
        : GsoSender(std::move(port), counts_, kinds == PacketKinds::kBridge ? Others::kSent : Others::kLeft),
          file_(std::move(file)) {}
    void send(std::span<Train> trains) override;
    void write(const Train& train, size_t message);

    // What stands before the datagrams of a message: a word for the kernel, and headers.
    struct QueueFront {
        TrainHeader told;
        std::array<uint8_t, wire::kMaxLowerBytes> headers;
    };
    const FileDescriptor file_;
    FrameCounts counts_;
    std::array<QueueFront, kMaxFrames> fronts_;
    std::array<iovec, 2 * kMaxFrames> pieces_;
    std::array<mmsghdr, kMaxFrames> messages_{};
    size_t piece_count_ = 0;
};

// Whether this kernel gives and takes UDP datagrams in trains by AF_PACKET (VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2).
bool packets_come_in_trains();

}  // namespace rove::datapath
