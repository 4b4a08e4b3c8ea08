// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/xdp_queue.h"

#include <rte_mempool.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "port/borrowed_mbuf.h"

namespace rove::datapath {

namespace {

constexpr uint32_t kHeadroomBytes = 256;                    // XDP_PACKET_HEADROOM, before each frame
constexpr uint32_t kSmallChunk = 2048, kLargeChunk = 4096;  // sizes that Linux allows
// Linux 6.6 lets a frame use several buffers. Debian 12's headers do not have these constants.
constexpr uint16_t kUseSeveral = 1 << 4;  // XDP_USE_SG
constexpr uint32_t kContinued = 1 << 0;   // XDP_PKT_CONTD
constexpr uint32_t kCompletionRing = 8;   // required for each socket; used only to send

}  // namespace

std::unique_ptr<XdpQueue> XdpQueue::open(const Settings& settings, EventLoop& poller, int* error) {
    FileDescriptor file(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    if (!file.is_open()) {
        *error = errno;
        return nullptr;
    }
    std::unique_ptr<XdpQueue> queue(new XdpQueue(std::move(file), poller, settings));
    *error = queue->prepare();
    return *error == 0 ? std::move(queue) : nullptr;
}

XdpQueue::XdpQueue(FileDescriptor file, EventLoop& poller, const Settings& settings)
    : KernelQueue(std::move(file), poller, true),
      settings_(settings),
      chunk_bytes_(settings.frame_bytes + kHeadroomBytes <= kSmallChunk ? kSmallChunk : kLargeChunk),
      frames_memory_(size_t{settings.chunks} * chunk_bytes_, -1, 0) {}

template <class Entry>
int XdpQueue::map(Ring<Entry>& ring, int option, off_t offset, const xdp_ring_offset& places) {
    if (setsockopt(file(), SOL_XDP, option, &settings_.chunks, sizeof settings_.chunks) != 0) return errno;
    ring.memory = Mapping(places.desc + settings_.chunks * sizeof(Entry), file(), offset);
    if (!ring.memory.is_mapped()) return errno;
    ring.producer = reinterpret_cast<uint32_t*>(ring.memory.at(places.producer));
    ring.consumer = reinterpret_cast<uint32_t*>(ring.memory.at(places.consumer));
    ring.flags = reinterpret_cast<const uint32_t*>(ring.memory.at(places.flags));
    ring.entries = reinterpret_cast<Entry*>(ring.memory.at(places.desc));
    return 0;
}

// Returns 0 or an errno.
int XdpQueue::prepare() {
    if (!frames_memory_.is_mapped()) return ENOMEM;
    xdp_umem_reg memory{};
    memory.addr = reinterpret_cast<uint64_t>(frames_memory_.at(0));
    memory.len = uint64_t{settings_.chunks} * chunk_bytes_;
    memory.chunk_size = chunk_bytes_;
    if (setsockopt(file(), SOL_XDP, XDP_UMEM_REG, &memory, sizeof memory) != 0) return errno;
    xdp_mmap_offsets places{};
    socklen_t bytes = sizeof places;
    if (getsockopt(file(), SOL_XDP, XDP_MMAP_OFFSETS, &places, &bytes) != 0) return errno;
    if (const int error = map(rx_, XDP_RX_RING, XDP_PGOFF_RX_RING, places.rx); error != 0) return error;
    if (const int error = map(fill_, XDP_UMEM_FILL_RING, static_cast<off_t>(XDP_UMEM_PGOFF_FILL_RING), places.fr);
        error != 0)
        return error;
    if (setsockopt(file(), SOL_XDP, XDP_UMEM_COMPLETION_RING, &kCompletionRing, sizeof kCompletionRing) != 0)
        return errno;
    for (uint32_t i = 0; i < settings_.chunks; ++i) fill_.entries[i] = uint64_t{i} * chunk_bytes_;
    __atomic_store_n(fill_.producer, settings_.chunks, __ATOMIC_RELEASE);

    sockaddr_xdp address{};
    address.sxdp_family = AF_XDP;
    address.sxdp_flags = XDP_USE_NEED_WAKEUP;
    if (settings_.frame_bytes + kHeadroomBytes > chunk_bytes_) address.sxdp_flags |= kUseSeveral;
    address.sxdp_ifindex = settings_.interface;
    address.sxdp_queue_id = settings_.queue;
    return bind(file(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

uint16_t XdpQueue::burst(rte_mbuf** frames) {
    const uint32_t filled = this->filled();
    uint16_t count = 0;
    uint64_t bytes = 0;
    for (uint32_t read = 0; read < filled && count < kBurst;) {
        const xdp_desc& at = descriptor(next_);
        if ((at.options & kContinued) == 0) [[likely]] {
            lend(views_[count], frames_memory_.at(at.addr), at.len);
            frames[count] = &views_[count];
            ++count, ++read, ++next_;
            bytes += at.len;
            continue;
        }
        const uint32_t first = next_;
        bool more = true;
        while (more && read < filled) more = (descriptor(next_++).options & kContinued) != 0, ++read;
        rte_mbuf* const whole = more ? nullptr : gather(first, next_ - first);
        if (whole == nullptr) continue;
        bytes += whole->pkt_len;
        frames[count++] = whole;
    }
    if (count != 0) {
        counts_.frames.add(count);
        counts_.bytes.add(bytes);
    }
    return count;
}

rte_mbuf* XdpQueue::gather(uint32_t first, uint32_t count) {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(settings_.pool);
    if (mbuf == nullptr) {
        counts_.no_mbuf.add(1);
        return nullptr;
    }
    for (uint32_t i = 0; i < count; ++i) {
        const xdp_desc& at = descriptor(first + i);
        if (at.len > rte_pktmbuf_tailroom(mbuf)) {
            counts_.errors.add(1);
            rte_pktmbuf_free(mbuf);
            return nullptr;
        }
        std::memcpy(rte_pktmbuf_append(mbuf, static_cast<uint16_t>(at.len)), frames_memory_.at(at.addr), at.len);
    }
    return mbuf;
}

// Returns the buffers of frames that were read to the kernel. The fill ring always has room, because it has as many
// entries as there are chunks.
void XdpQueue::release() {
    const uint32_t count = next_ - released_;
    if (count == 0) return;
    const uint32_t producer = *fill_.producer;
    for (uint32_t i = 0; i < count; ++i)
        fill_.entries[(producer + i) & (settings_.chunks - 1)] =
            descriptor(released_ + i).addr & ~uint64_t{chunk_bytes_ - 1};
    __atomic_store_n(fill_.producer, producer + count, __ATOMIC_RELEASE);
    released_ = next_;
    __atomic_store_n(rx_.consumer, next_, __ATOMIC_RELEASE);
    // A driver without free buffers waits for a wake-up.
    if ((__atomic_load_n(fill_.flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP) != 0) [[unlikely]]
        recvfrom(file(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

uint64_t XdpQueue::missed() {
    xdp_statistics told{};
    socklen_t bytes = sizeof told;
    if (getsockopt(file(), SOL_XDP, XDP_STATISTICS, &told, &bytes) != 0) return 0;
    return told.rx_dropped + told.rx_ring_full;
}

}  // namespace rove::datapath
