// SPDX-License-Identifier: Apache-2.0
// Chooses which receiving rings of a port with links are polled in a round. Only the thread that holds the worker's
// drive lock calls it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "port/memif/ring.h"

namespace rove::datapath {

class LinkQueues {
  public:
    // The number of rings that are always polled. A bell costs the sender more than a poll costs the receiver, so a
    // member with few links polls them all.
    static constexpr size_t kAlwaysPolled = 4;
    // The number of rounds without a frame after which a ring beyond kAlwaysPolled is no longer polled. Two rounds of a
    // busy member take longer than a round trip.
    static constexpr uint32_t kSilentRounds = 512;

    // Adds a ring, which is polled at first. The receiver may be asleep, and then the caller ends its sleep.
    void add(RingReceiver& receiver);
    void remove(RingReceiver& receiver);

    // Returns the rings to read in this round: the polled ones, and those whose bells were set.
    std::span<RingReceiver* const> due() {
        for (const Page& page : pages_)
            if (page.bells->has_rung()) [[unlikely]]
                poll_rung(page);
        if (polled_.size() > kAlwaysPolled && ++rounds_ >= kSilentRounds) [[unlikely]]
            leave_silent();
        return polled_;
    }

    // Makes the next frame of any link ring, because the receiver is about to sleep. Returns false if a frame is
    // already there.
    bool arm();
    // Starts a new sleep for a thread that continues to sleep after a ring has woken another thread.
    void arm_again() { begin_sleep(); }
    // Ends the sleep, so that frames no longer ring.
    void disarm();

  private:
    struct Page {
        BellPage* bells;
        std::vector<RingReceiver*> by_bell;  // null if no link has this bell
        size_t links = 0;
    };
    void poll_rung(const Page& page);
    void leave_silent();
    void begin_sleep();

    std::vector<Page> pages_;            // one for each user with links to us
    std::vector<RingReceiver*> polled_;  // the other rings wait for their bells
    uint32_t rounds_ = 0;                // since leave_silent()
    uint64_t sleeps_ = 0;                // number of sleeps
};

}  // namespace rove::datapath
