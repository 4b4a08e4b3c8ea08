// SPDX-License-Identifier: Apache-2.0
// Starts DPDK's EAL inside the process of a program: its arguments, and the thread that runs it.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"
#include "wire/frame.h"

namespace rove::datapath {

// RTE_MEMPOOL_CACHE_MAX_SIZE. A whole ring of a port fits, so the pool's shared ring is rarely used.
inline constexpr uint32_t kPoolCacheMbufs = 512;

// Returns the room for a frame in an mbuf, rounded up to 256 bytes. AF_XDP uses another 256 bytes of it
// (XDP_PACKET_HEADROOM) and does not support the frames of a larger MTU.
constexpr uint32_t frame_room_bytes(uint32_t mtu) {
    return (mtu + wire::kMaxOverheadBytes + 255) / 256 * 256 + (mtu <= 2048 ? 256 : 0);
}

uint32_t largest_mtu(const Config& config);

// The mbufs that a worker needs, in addition to its ports' rings, for fault injection: twice the number that
// DelayedFramePool holds.
inline constexpr uint32_t kImpairedMbufs = 4095;
// Returns the number of mbufs in a worker's pool: enough to work with while the rings of all its ports are full.
uint32_t pool_mbufs(const Config& config);

// Returns the EAL command line for `config`, program name first. `cpus` are the CPUs that the process may run on.
std::vector<std::string> eal_arguments(const Config& config, const std::vector<unsigned>& cpus, bool hugepages,
                                       bool avx512);

// Held from the check of the free hugepages until the pools have been allocated, if there are hugepages. Otherwise, of
// two processes that start together, the second would count the pages that the first is about to allocate. The wait is
// limited, because the holder may be waiting for us, as a virtio-user port does for its peer.
class HugepageInitLock {
  public:
    HugepageInitLock();
    ~HugepageInitLock();
    HugepageInitLock(const HugepageInitLock&) = delete;
    HugepageInitLock& operator=(const HugepageInitLock&) = delete;

  private:
    int file_ = -1;
};

// Returns true if there are the descriptors that a start needs. EAL starts only once in a process, so it is better to
// check in advance what may be different a moment later.
bool has_descriptors(const Config& config);
// Makes room for the sockets of ports and checks for memory. Returns false and stores the reason if there is no memory.
bool prepare_eal(const Config& config, std::string* error);
// Prepares logging and calls rte_eal_init in the calling thread, which becomes EAL's main lcore. Returns false and
// stores the reason if it fails.
bool start_eal(const Config& config, std::string* error);

}  // namespace rove::datapath
