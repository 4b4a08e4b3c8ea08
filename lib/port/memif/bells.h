// SPDX-License-Identifier: Apache-2.0
// The doorbells of a mesh's member: they tell which of its many links have frames, and whether it sleeps.
//
// DESIGN NOTES
// 1. A member that polled the ring of each link would also pay for silent links. So it polls only the rings that frames
//    have come from recently (link_queues.h). Each other link has one bit, its bell, in a page of the member's memory.
//    A sender that finds its ring unmasked has to ring: it sets the bell after it has published frames.
// 2. The page also says whether the member sleeps. If it does, the sender also sends a byte over the link's socket,
//    which ends the sleep. It sends one in each sleep, however much it publishes.
// 3. Each process that shares the page can write to all of it, and so could silence the links of others. Therefore a
//    member has one page for each user whose processes have links to it. A user can harm only its own links.
// 4. A sender publishes and then checks whether it has to ring. A receiver unmasks or begins to sleep, and then checks
//    for frames and bells. Each side has a full barrier between its two steps, so one of them sees the other.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace rove::datapath {

// The page of bells. Sender and receiver are different processes and may be of different releases, so its layout is
// part of the mesh's protocol (docs/protocol/mesh.md).
struct BellPage {
    static constexpr uint16_t kBells = 4096;
    static constexpr uint64_t kBytes = 4096;

    alignas(64) std::atomic<uint64_t> sleep;  // number of the receiver's sleep; 0 while it is awake
    alignas(64) std::atomic<uint64_t> rung;   // one bit for each of `words` in which a bell may have been set
    alignas(64) std::array<std::atomic<uint64_t>, kBells / 64> words;

    // Sets a bell. Returns the number of the receiver's sleep, which has to be ended unless it was already. Returns 0
    // if the receiver is awake, because it then checks the bells before it sleeps.
    uint64_t ring(uint16_t bell) {
        const uint64_t bit = uint64_t{1} << (bell % 64);
        std::atomic<uint64_t>& word = words[bell / 64];
        if ((word.load(std::memory_order_relaxed) & bit) == 0) {
            word.fetch_or(bit, std::memory_order_seq_cst);
            rung.fetch_or(uint64_t{1} << (bell / 64), std::memory_order_seq_cst);
        }
        return sleep.load(std::memory_order_seq_cst);
    }
    bool has_rung() const { return rung.load(std::memory_order_relaxed) != 0; }
    // Clears the bells that were set, and calls visit(bell) for each of them.
    void take(auto&& visit) {
        for (uint64_t some = rung.exchange(0, std::memory_order_seq_cst); some != 0; some &= some - 1) {
            const auto word = static_cast<size_t>(std::countr_zero(some));
            for (uint64_t set = words[word].exchange(0, std::memory_order_seq_cst); set != 0; set &= set - 1)
                visit(static_cast<uint16_t>(word * 64 + static_cast<size_t>(std::countr_zero(set))));
        }
    }
};
static_assert(sizeof(BellPage) <= BellPage::kBytes && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace rove::datapath
