// SPDX-License-Identifier: Apache-2.0
// How a memif's rings are found, and what is seldom done with them.
#include "datapath/memif_ring.h"

#include <rte_vect.h>
#include <rte_version.h>

#include <array>
#include <cstring>
#include <string_view>

// Of ethdev's interface for drivers, which Debian has no headers for.
extern "C" struct rte_eth_dev* rte_eth_dev_allocated(const char* name);

namespace rove::datapath {

namespace {

constexpr uint32_t kCookie = 0x3e31f20;  // of the protocol: begins every ring
constexpr uint8_t kMostLog2Slots = 14;

// As much of 22.11's rte_eth_dev as leads to what the driver keeps for this process.
struct EthDevice {
    std::array<void*, 6> functions;
    void* data;
    void* process_private;
};

#ifdef RTE_ARCH_X86
void store_line(uint8_t* to, const uint8_t* from) {
    for (size_t at = 0; at < RTE_CACHE_LINE_SIZE; at += sizeof(__m128i))
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
}

// Whole lines: zeros follow the last byte. They are to be ordered by _mm_sfence().
void store_past_caches(uint8_t* to, const uint8_t* from, uint32_t bytes) {
    uint32_t at = 0;
    for (; at + RTE_CACHE_LINE_SIZE <= bytes; at += RTE_CACHE_LINE_SIZE) store_line(to + at, from + at);
    if (at == bytes) return;
    std::array<uint8_t, RTE_CACHE_LINE_SIZE> last{};
    std::memcpy(last.data(), from + at, bytes - at);
    store_line(to + at, last.data());
}
#endif

}  // namespace

MemifRing::MemifRing(uint16_t port, uint16_t queue, Use use) : port_(port), queue_(queue), use_(use) {
    rte_eth_dev_info info{};
    std::array<char, RTE_ETH_NAME_MAX_LEN> name;
    if (!std::string_view(rte_version()).starts_with("DPDK 22.11.") || rte_eth_dev_info_get(port, &info) != 0 ||
        std::string_view(info.driver_name) != "net_memif" || rte_eth_dev_get_name_by_port(port, name.data()) != 0)
        return;
    const auto* const device = reinterpret_cast<const EthDevice*>(rte_eth_dev_allocated(name.data()));
    if (device != nullptr) regions_ = static_cast<Region* const*>(device->process_private);
}

void MemifRing::hand_over(uint16_t count) {
    for (; count != 0; --count) {
        const auto back = static_cast<uint16_t>(-count);
        const uint8_t* const frame = buffer(back);
        rte_cldemote(frame);
        rte_cldemote(frame + RTE_CACHE_LINE_SIZE);
        rte_cldemote(descriptors() + slot(back));
    }
}

uint8_t* MemifRing::buffer_for(const Descriptor& descriptor, uint32_t bytes) const {
    // The peer may write to descriptors at any time, whatever it should.
    const uint32_t offset = __atomic_load_n(&descriptor.offset, __ATOMIC_RELAXED);
    const uint32_t whole = RTE_CACHE_LINE_ROUNDUP(bytes);
    // A server's are told for each frame; in a client's is what was sent last.
    const uint32_t room = to_server() ? buffer_spacing_ : __atomic_load_n(&descriptor.length, __ATOMIC_RELAXED);
    const uint32_t region_bytes = regions_[0]->bytes;
    uint8_t* const buffer = region_ + offset;
    const bool takes = descriptor.region == 0 && whole <= room && whole <= region_bytes &&
                       offset <= region_bytes - whole && rte_is_aligned(buffer, RTE_CACHE_LINE_SIZE);
    return takes ? buffer : nullptr;
}

uint16_t MemifRing::send_past_caches(rte_mbuf* const* frames, uint16_t count) {
    uint16_t sent = 0;
#ifdef RTE_ARCH_X86
    // A zero-copy driver keeps its mbufs, and a capture wants to see the frames.
    if (driver_->mbufs != nullptr || rte_eth_fp_ops[port_].txq.clbk[queue_] != nullptr) return 0;
    for (count = std::min(count, room()); sent < count; ++sent) {
        rte_mbuf* const mbuf = frames[sent];
        Descriptor& descriptor = descriptors()[slot(sent)];
        uint8_t* const buffer = buffer_for(descriptor, mbuf->data_len);
        if (mbuf->nb_segs != 1 || buffer == nullptr) break;
        store_past_caches(buffer, rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len);
        descriptor.flags = 0;
        descriptor.length = mbuf->data_len;
        driver_->bytes += mbuf->data_len;
        rte_pktmbuf_free(mbuf);
    }
    driver_->frames += sent;
    _mm_sfence();
    // Pairs with the peer's load: what is in the slots is there.
    __atomic_store_n(to_server() ? &ring_->head : &ring_->tail, static_cast<uint16_t>(next() + sent), __ATOMIC_RELEASE);
#endif
    return sent;
}

bool MemifRing::meet(Ring* ring) {
    if (driver_->port != port_ || driver_->region != 0 || driver_->log2_slots > kMostLog2Slots ||
        ring->cookie != kCookie) {
        regions_ = nullptr;
        return false;
    }
    ring_ = ring;
    learn();
    return true;
}

}  // namespace rove::datapath
