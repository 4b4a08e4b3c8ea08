// SPDX-License-Identifier: Apache-2.0
// The receiving rings of a port with links: which of them a round polls. Only one thread at a time calls it, the holder
// of the worker's drive lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "port/memif/ring.h"

namespace rove::datapath {

class LinkQueues {
  public:
    // A member with few links polls them all: a bell costs the sender more than the poll costs the receiver.
    static constexpr size_t kAlwaysPolled = 4;
    // Rounds without a frame after which a ring beyond those is no longer polled. Two of a busy member take longer than
    // a round trip.
    static constexpr uint32_t kSilentRounds = 512;

    // Adds a ring, which is polled at first. The receiver may be asleep: then the caller ends its sleep.
    void add(RingReceiver& receiver);
    void remove(RingReceiver& receiver);

    // Returns the rings to be read in this round: those that are polled, and those whose bells were set.
    std::span<RingReceiver* const> due() {
        for (const Page& page : pages_)
            if (page.bells->has_rung()) [[unlikely]]
                poll_rung(page);
        if (polled_.size() > kAlwaysPolled && ++rounds_ >= kSilentRounds) [[unlikely]]
            leave_silent();
        return polled_;
    }

    // Lets the next frame of any link ring, because the receiver is about to sleep. Returns false if one is there.
    bool arm();
    // Does so again for a receiver that sleeps on while another, which was rung, has woken.
    void arm_again() { begin_sleep(); }
    // Ends that.
    void disarm();

  private:
    struct Page {
        BellPage* bells;
        std::vector<RingReceiver*> by_bell;  // null: no link has this bell
        size_t links = 0;
    };
    void poll_rung(const Page& page);
    void leave_silent();
    void begin_sleep();

    std::vector<Page> pages_;            // one for each user that links to us
    std::vector<RingReceiver*> polled_;  // the others wait for their bells
    uint32_t rounds_ = 0;                // since leave_silent()
    uint64_t sleeps_ = 0;                // begun so far
};

}  // namespace rove::datapath
