// SPDX-License-Identifier: Apache-2.0
// An interface through AF_PACKET sockets (packet(7)): the way in where AF_XDP cannot be, and the way out. Units: bytes.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "datapath/ports/kernel_queue.h"

namespace rove::datapath {

// RoCEv2 that comes to an interface, in a ring that the kernel copies it to. The kernel goes on with its own copy, and
// is kept from answering that nobody is there.
class PacketQueue final : public KernelQueue {
  public:
    // Null if the kernel gives us no such socket: `*error` has errno.
    static std::unique_ptr<PacketQueue> open(const std::string& interface, unsigned index, uint32_t frame_bytes,
                                             Poller& poller, int* error);

    uint16_t burst(rte_mbuf** frames) override;
    void release() override;
    uint64_t missed() override;

  private:
    PacketQueue(FileDescriptor file, Poller& poller, uint32_t frame_bytes);
    int prepare(const std::string& interface, unsigned index);
    bool has_frames() const override;
    uint8_t* slot(uint32_t index) const;
    uint32_t slots() const { return slots_per_block_ * kBlocks; }

    static constexpr uint32_t kBlockBytes = 1 << 17, kBlocks = 64;
    const uint32_t slot_bytes_, slots_per_block_;
    Mapping ring_;
    std::vector<FileDescriptor> listeners_;
    uint32_t next_ = 0;      // to be read
    uint32_t released_ = 0;  // before it, the kernel has the slots back
    std::atomic<uint64_t> missed_{0};
};

// Past the queueing disciplines, as a NIC sends.
class PacketSender final : public TxQueue {
  public:
    static std::unique_ptr<PacketSender> open(unsigned interface, int* error);

    uint16_t burst(rte_mbuf** frames, uint16_t count) override;
    int file() const { return file_.get(); }
    uint64_t frames() const { return frames_.get(); }
    uint64_t bytes() const { return bytes_.get(); }
    uint64_t errors() const { return errors_.get(); }  // that the interface does not take: too long, or it is down

  private:
    explicit PacketSender(FileDescriptor file) : file_(std::move(file)) {}

    const FileDescriptor file_;
    RingCount frames_, bytes_, errors_;
};

}  // namespace rove::datapath
