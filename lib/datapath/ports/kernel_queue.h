// SPDX-License-Identifier: Apache-2.0
// Frames that the kernel lays into memory that it shares with us, for interface.h: what AF_XDP and AF_PACKET have in
// common. A socket's file can be waited for.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "datapath/poller.h"
#include "datapath/ports/file_descriptor.h"
#include "datapath/ports/port.h"
#include "datapath/ports/ring.h"

namespace rove::datapath {

// Memory that is given back with its owner. A forked child has none of it.
class Mapping {
  public:
    Mapping() = default;  // none
    // mmap()'s arguments; a file of -1: memory of our own.
    Mapping(size_t bytes, int file, off_t offset)
        : at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_POPULATE, file, offset)),
          bytes_(bytes) {
        if (is_mapped()) madvise(at_, bytes_, MADV_DONTFORK);
    }
    Mapping(Mapping&& other) noexcept : at_(std::exchange(other.at_, MAP_FAILED)), bytes_(other.bytes_) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(at_, other.at_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping() {
        if (is_mapped()) munmap(at_, bytes_);
    }

    bool is_mapped() const { return at_ != MAP_FAILED; }
    uint8_t* at(size_t offset) const { return static_cast<uint8_t*>(at_) + offset; }

  private:
    void* at_ = MAP_FAILED;
    size_t bytes_ = 0;
};

class KernelQueue : public RxQueue {
  public:
    // As long as the poller waits for the file, it would end every sleep until the frames are read. So it waits only
    // while the queue is armed.
    bool arm() override {
        if (has_frames()) return false;
        poller_.add(file(), [] {});
        armed_ = true;
        return true;
    }
    void disarm() override {
        if (armed_) poller_.remove(file());
        armed_ = false;
    }

    int file() const { return file_.get(); }
    uint64_t frames() const { return frames_.get(); }
    uint64_t bytes() const { return bytes_.get(); }
    uint64_t errors() const { return errors_.get(); }  // longer than there is room for
    uint64_t no_mbuf() const { return no_mbuf_.get(); }
    virtual uint64_t missed() = 0;  // had no place

  protected:
    KernelQueue(FileDescriptor file, Poller& poller) : RxQueue(true), file_(std::move(file)), poller_(poller) {}
    virtual bool has_frames() const = 0;

    const FileDescriptor file_;
    RingCount frames_, bytes_, errors_, no_mbuf_;
    std::array<rte_mbuf, kBurst> views_{};

  private:
    Poller& poller_;
    bool armed_ = false;
};

}  // namespace rove::datapath
