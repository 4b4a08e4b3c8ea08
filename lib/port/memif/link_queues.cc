// SPDX-License-Identifier: Apache-2.0
#include "port/memif/link_queues.h"

#include <algorithm>

namespace rove::datapath {

void LinkQueues::add(RingReceiver& receiver) {
    polled_.push_back(&receiver);
    receiver.set_polled(true);
    if (receiver.bells() == nullptr) return;
    auto page = std::ranges::find(pages_, receiver.bells(), &Page::bells);
    if (page == pages_.end()) page = pages_.insert(pages_.end(), Page{.bells = receiver.bells(), .by_bell = {}});
    if (page->by_bell.size() <= receiver.bell()) page->by_bell.resize(receiver.bell() + 1u);
    page->by_bell[receiver.bell()] = &receiver;
    ++page->links;
}

void LinkQueues::remove(RingReceiver& receiver) {
    std::erase(polled_, &receiver);
    const auto page = std::ranges::find(pages_, receiver.bells(), &Page::bells);
    if (page == pages_.end()) return;
    page->by_bell[receiver.bell()] = nullptr;
    if (--page->links == 0) pages_.erase(page);
}

void LinkQueues::poll_rung(const Page& page) {
    page.bells->take([&](uint16_t bell) {
        // A peer may set bells that no link has.
        RingReceiver* const receiver = bell < page.by_bell.size() ? page.by_bell[bell] : nullptr;
        if (receiver == nullptr || receiver->is_polled()) return;
        receiver->set_polled(true);
        receiver->disarm();
        polled_.push_back(receiver);
    });
}

// Stops polling the rings that were silent since the last call. They wait for their bells from now on.
void LinkQueues::leave_silent() {
    rounds_ = 0;
    for (size_t i = polled_.size(); i-- > 0 && polled_.size() > kAlwaysPolled;) {
        RingReceiver* const receiver = polled_[i];
        if (receiver->take_activity() || receiver->bells() == nullptr || !receiver->arm()) continue;
        receiver->set_polled(false);
        polled_[i] = polled_.back();
        polled_.pop_back();
    }
}

void LinkQueues::begin_sleep() {
    ++sleeps_;
    for (const Page& page : pages_) page.bells->sleep.store(sleeps_, std::memory_order_seq_cst);
}

bool LinkQueues::arm() {
    if (polled_.size() > kAlwaysPolled) leave_silent();
    for (RingReceiver* const receiver : polled_)
        if (!receiver->arm()) return false;
    begin_sleep();
    return std::ranges::none_of(pages_, [](const Page& page) { return page.bells->has_rung(); });
}

void LinkQueues::disarm() {
    for (const Page& page : pages_) page.bells->sleep.store(0, std::memory_order_relaxed);
    for (RingReceiver* const receiver : polled_) receiver->disarm();
}

}  // namespace rove::datapath
