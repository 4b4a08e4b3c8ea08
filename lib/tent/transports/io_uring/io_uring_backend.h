// SPDX-License-Identifier: Apache-2.0
// The transport between memory and files of this machine, by the kernel's io_uring. One ring an engine; what a file has
// under way belongs to its channel. Buffered: the kernel's page cache is asked first, and nothing has to be aligned.
// Units: bytes.
#pragma once

#include <liburing.h>

#include <array>

#include "tent/engine/backend.h"
#include "tent/engine/shard.h"

namespace rove::tent {

class IoUringBackend;

class FileChannel : public Channel {
  public:
    FileChannel(Shard& shard, IoUringBackend& backend) : Channel(shard.config().queues), backend_(backend) {}

    bool available(const BufferDesc&) const override { return true; }
    void abandon(uint64_t) override {}  // a file's process is the kernel
    bool idle() const override { return out_ == 0; }
    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;

  private:
    friend class IoUringBackend;
    IoUringBackend& backend_;
    size_t out_ = 0;  // slices with the kernel
};

class IoUringBackend : public Backend {
  public:
    explicit IoUringBackend(Shard& shard) : Backend(Transport::IOURING, shard.config().queues), shard_(shard) {}
    ~IoUringBackend() override;

    // Makes the ring, when a file is opened for the first time. kInternalError: the kernel refuses.
    Status start();

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    // Waits for what is under way: the kernel reads and writes the program's memory.
    void forget(Channel& channel) override;
    bool progress(uint64_t now_ns) override;
    bool is_idle() override;
    uint64_t next_deadline(uint64_t) const override { return kNever; }

  private:
    static constexpr unsigned kDeep = 64;  // slices with the kernel at once, of all files

    friend class FileChannel;
    Channel::Dispatched begin(FileChannel& channel, uint8_t level, uint8_t allowed, uint64_t now_ns);
    bool reap(uint64_t now_ns);
    // What has been with the kernel for too long is asked back.
    void ask_back(uint64_t now_ns);

    Shard& shard_;
    io_uring ring_{};
    bool started_ = false;
    unsigned out_ = 0;                         // slices with the kernel
    std::array<Slice*, kDeep> with_kernel_{};  // by the place that a request's user data names
    uint64_t looked_ns_ = 0;
};

}  // namespace rove::tent
