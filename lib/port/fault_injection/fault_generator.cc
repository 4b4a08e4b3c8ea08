// SPDX-License-Identifier: Apache-2.0
#include "port/fault_injection/fault_generator.h"

#include <cmath>

namespace rove::datapath {

namespace {

uint64_t threshold(double probability) {
    return probability >= 1 ? UINT64_MAX : static_cast<uint64_t>(std::ldexp(probability, 64));
}

}  // namespace

void FaultGenerator::set(const PathSettings& settings) {
    loss_ = threshold(settings.loss);
    duplicate_ = threshold(settings.duplicate);
    corrupt_ = threshold(settings.corrupt);
    reorder_ = threshold(settings.reorder);
    mark_ = threshold(settings.mark);
}

FaultDecision FaultGenerator::next(uint32_t frame_bytes) {
    FaultDecision fate;
    if (hit(loss_)) {
        fate.lose = true;
        return fate;
    }
    fate.mark = hit(mark_);
    if (hit(corrupt_) && frame_bytes != 0) fate.flip_bit = static_cast<int64_t>(random_() % (frame_bytes * 8ull));
    if (hit(reorder_))
        fate.hold_frames = 1 + static_cast<uint32_t>(random_() % kMaxHoldFrames);
    else
        fate.duplicate = hit(duplicate_);
    return fate;
}

}  // namespace rove::datapath
