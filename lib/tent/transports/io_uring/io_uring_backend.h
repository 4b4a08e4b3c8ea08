// SPDX-License-Identifier: Apache-2.0
// The transport between memory and files of this machine, over the kernel's io_uring. All files of an engine share one
// ring, and each channel counts the slices of its file. I/O is buffered: it uses the kernel's page cache, and needs no
// alignment. Units: bytes.
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
    void abandon(uint64_t) override {}  // no peer process can end, since the kernel serves a file
    bool idle() const override { return out_ == 0; }
    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;

  private:
    friend class IoUringBackend;
    IoUringBackend& backend_;
    size_t out_ = 0;  // slices in the kernel
};

class IoUringBackend : public Backend {
  public:
    explicit IoUringBackend(Shard& shard) : Backend(Transport::IOURING, shard.config().queues), shard_(shard) {}
    ~IoUringBackend() override;

    // Makes the ring when a file is opened for the first time. Returns kInternalError if the kernel refuses.
    Status start();

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    // Waits for the channel's slices in the kernel, which reads and writes the program's memory.
    void forget(Channel& channel) override;
    bool progress(uint64_t now_ns) override;
    bool is_idle() override;
    uint64_t next_deadline(uint64_t) const override { return kNever; }

  private:
    static constexpr unsigned kDeep = 64;  // slices in the kernel at once, over all files

    friend class FileChannel;
    Channel::Dispatched begin(FileChannel& channel, uint8_t level, uint8_t allowed, uint64_t now_ns);
    bool reap(uint64_t now_ns);
    // Times out slices that have been in the kernel for too long, and cancels them.
    void ask_back(uint64_t now_ns);

    Shard& shard_;
    io_uring ring_{};
    bool started_ = false;
    unsigned out_ = 0;                         // slices in the kernel
    std::array<Slice*, kDeep> with_kernel_{};  // indexed by the place in a request's user data
    uint64_t looked_ns_ = 0;
};

}  // namespace rove::tent
