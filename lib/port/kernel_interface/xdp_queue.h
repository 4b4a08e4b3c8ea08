// SPDX-License-Identifier: Apache-2.0
// An RX queue of an interface, read through an AF_XDP socket (Documentation/networking/af_xdp.rst of Linux). Frames are
// read where the kernel or the NIC has stored them. Units: bytes.
#pragma once

#include <linux/if_xdp.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <string>

#include "port/kernel_interface/kernel_queue.h"

namespace rove::datapath {

// A memory mapping that ends with this object. A forked child does not have it.
class Mapping {
  public:
    Mapping() = default;  // no mapping
    // Takes the arguments of mmap(). A file of -1 means memory of our own.
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

class XdpQueue final : public KernelQueue {
  public:
    struct Settings {
        unsigned interface = 0;
        uint32_t queue = 0;
        uint32_t frame_bytes = 0;     // limit of a frame
        uint32_t chunks = 0;          // number of frame buffers, a power of two
        rte_mempool* pool = nullptr;  // for frames that do not fit into one buffer
    };
    // Opens the queue. Returns null, with an errno in `*error`, if the kernel refuses such a socket.
    static std::unique_ptr<XdpQueue> open(const Settings& settings, EventLoop& poller, int* error);

    uint16_t burst(rte_mbuf** frames) override;
    void release() override;
    uint64_t missed() override;

  private:
    // A ring of the socket, with its two indices. The object also keeps our own index.
    template <class Entry>
    struct Ring {
        Mapping memory;
        uint32_t* producer = nullptr;
        uint32_t* consumer = nullptr;
        const uint32_t* flags = nullptr;
        Entry* entries = nullptr;
    };
    XdpQueue(FileDescriptor file, EventLoop& poller, const Settings& settings);
    int prepare();
    template <class Entry>
    int map(Ring<Entry>& ring, int option, off_t offset, const xdp_ring_offset& places);
    bool has_frames() const override { return filled() != 0; }
    uint32_t filled() const { return __atomic_load_n(rx_.producer, __ATOMIC_ACQUIRE) - next_; }
    const xdp_desc& descriptor(uint32_t index) const { return rx_.entries[index & (settings_.chunks - 1)]; }
    rte_mbuf* gather(uint32_t first, uint32_t count);

    const Settings settings_;
    const uint32_t chunk_bytes_;
    std::array<rte_mbuf, kBurst> views_{};
    Mapping frames_memory_;
    Ring<xdp_desc> rx_;
    Ring<uint64_t> fill_;
    uint32_t next_ = 0;      // next to read
    uint32_t released_ = 0;  // first one whose buffer was not returned to the kernel
};

}  // namespace rove::datapath
