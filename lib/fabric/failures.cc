// SPDX-License-Identifier: Apache-2.0
#include "fabric/failures.h"

#include <cmath>
#include <numeric>

namespace rove::fabric {

std::vector<Cable> draw(std::span<const Cable> cables, double part, Random& random) {
    std::vector<size_t> order(cables.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto count = static_cast<size_t>(std::lround(part * static_cast<double>(cables.size())));
    std::vector<Cable> drawn;
    for (size_t i = 0; i < count; ++i) {
        std::swap(order[i], order[i + random.below(order.size() - i)]);
        drawn.push_back(cables[order[i]]);
    }
    return drawn;
}

void Failures::set(std::span<const Cable> cables, bool up) {
    for (const Cable& cable : cables) {
        cable.set_up(up);
        if (!up) down_.push_back(cable);
    }
    // All changes at one time are noticed together.
    const Time due = network_.now() + reaction_;
    if (due_ == due) return;
    due_ = due;
    network_.at(due, [this] { react(); });
}

void Failures::react() {
    complete_ = network_.reroute();
    ++reroutes_;
    for (const Cable& cable : down_) {
        if (!cable.forward.up()) cable.forward.drain();
        if (!cable.backward.up()) cable.backward.drain();
    }
    down_.clear();
}

void Failures::repeat(std::vector<Cable> cables, double part, Time interval, Random random) {
    repeated_ = std::move(cables);
    part_ = part;
    interval_ = interval;
    random_ = random;
    next();
}

void Failures::next() {
    std::vector<Cable> failing = draw(repeated_, part_, *random_);
    restore(failed_);
    fail(failing);
    failed_.swap(failing);
    network_.at(network_.now() + interval_, [this] { next(); });
}

}  // namespace rove::fabric
