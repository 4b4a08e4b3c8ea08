// SPDX-License-Identifier: Apache-2.0
// Access to an interface through AF_PACKET sockets (packet(7)), with GSO and GRO (segmentation.h). Units: bytes.
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

// The kinds of an interface's frames that are received and sent.
enum class PacketKinds : bool {
    kRoce,   // RoCEv2
    kBridge  // RoCEv2, ARP, and all of ICMP, ICMPv6, IGMP and MLD
};

// The frames that arrive at an interface. The kernel also handles its own copy of them, and is kept from answering that
// the port is unreachable.
class PacketQueue final : public KernelQueue {
  public:
    // Returns null, with an errno in `*error`, if the kernel refuses such a socket. Nothing is received before begin().
    static std::unique_ptr<PacketQueue> open(const std::string& interface, unsigned index, PacketKinds kinds,
                                             rte_mempool* pool, EventLoop& poller, int* error);
    // Starts receiving. Returns 0 or an errno. Any thread may call it, and a second call does nothing.
    int begin();

    uint16_t burst(rte_mbuf** frames) override;
    uint64_t missed() override;

  private:
    PacketQueue(FileDescriptor file, unsigned index, EventLoop& poller, rte_mempool* pool);
    int prepare(const std::string& interface, PacketKinds kinds);
    bool has_frames() const override { return trains_.has_frames(); }
    void take(size_t message);

    const unsigned index_;            // index of the interface
    std::atomic<bool> begun_{false};  // relaxed: frames wait in the kernel until the new value is seen
    GroReceiver trains_;
    size_t front_ = 0;  // number of bytes before the last message's datagrams
    std::vector<FileDescriptor> listeners_;
    std::atomic<uint64_t> missed_{0};
};

// The header before a frame of a socket with PACKET_VNET_HDR: struct virtio_net_hdr (VIRTIO 1.2, 5.1.6), which Linux's
// header does not give to C++. It is in the host's byte order.
struct [[gnu::packed]] TrainHeader {
    uint8_t flags = 0, gso_type = 0;
    uint16_t header_bytes = 0, segment_bytes = 0;
    uint16_t checksum_start = 0, checksum_offset = 0;  // the offset is relative to the start
};

static_assert(sizeof(TrainHeader) == 10);

// Sends through the queueing disciplines. If they are bypassed, the kernel drops a GSO message that it has to segment
// for the driver.
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

    // The bytes before the datagrams of a message: the header for the kernel, and the frame's headers.
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

// Returns true if this kernel has GSO and GRO of UDP datagrams over AF_PACKET (VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2).
bool packets_come_in_trains();

}  // namespace rove::datapath
