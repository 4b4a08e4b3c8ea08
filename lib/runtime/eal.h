// SPDX-License-Identifier: Apache-2.0
// Starting DPDK's EAL inside somebody else's process: which arguments, in which thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"
#include "wire/frame.h"

namespace rove::datapath {

inline constexpr uint32_t kPoolCacheMbufs =
    512;  // RTE_MEMPOOL_CACHE_MAX_SIZE: a port's whole ring fits, so that the pool's ring rests

// Room for a frame in an mbuf, rounded up to 256 bytes. AF_XDP takes another 256 of it (XDP_PACKET_HEADROOM) and has
// none of the frames that a larger MTU makes.
constexpr uint32_t frame_room_bytes(uint32_t mtu) {
    return (mtu + wire::kMaxOverheadBytes + 255) / 256 * 256 + (mtu <= 2048 ? 256 : 0);
}

uint32_t largest_mtu(const Config& config);

// The mbufs that a worker needs beside the rings of its ports where frames are impaired: twice what DelayedFramePool
// holds.
inline constexpr uint32_t kImpairedMbufs = 4095;
// Returns the number of mbufs in a worker's pool: enough to work with while the rings of all its ports are full.
uint32_t pool_mbufs(const Config& config);

// The EAL command line for `config`, program name first. `cpus` are those the process may run on.
std::vector<std::string> eal_arguments(const Config& config, const std::vector<unsigned>& cpus, bool hugepages,
                                       bool avx512);

// Held from the look at the free hugepages until the pools have theirs, if there are any: of two processes that start
// together, the second would count what the first is about to take. The wait ends after a while: who holds it may be
// waiting for us, as a virtio-user port does for its peer.
class HugepageInitLock {
  public:
    HugepageInitLock();
    ~HugepageInitLock();
    HugepageInitLock(const HugepageInitLock&) = delete;
    HugepageInitLock& operator=(const HugepageInitLock&) = delete;

  private:
    int file_ = -1;
};

// EAL starts only once in a process, so what may be different a moment later is looked at before. Returns false without
// the descriptors that a start takes.
bool has_descriptors(const Config& config);
// Makes room for the sockets of ports, and looks for memory. Returns false and says why if there is none.
bool prepare_eal(const Config& config, std::string* error);
// In the calling thread, which becomes EAL's main lcore: prepares logging and calls rte_eal_init. Returns false and
// says why.
bool start_eal(const Config& config, std::string* error);

}  // namespace rove::datapath
