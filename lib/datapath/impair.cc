// SPDX-License-Identifier: Apache-2.0
// The dice, and what is done to mbufs.
#include "datapath/impair.h"

#include <cmath>

namespace rove::datapath {

namespace {

constexpr uint32_t kMaxHoldFrames = 4;  // a held frame comes 1..4 frames late

uint64_t threshold(double probability) {
    return probability >= 1 ? UINT64_MAX : static_cast<uint64_t>(std::ldexp(probability, 64));
}

}  // namespace

FateDice::FateDice(const ImpairConfig& config)
    : random_(config.seed),
      loss_(threshold(config.loss)),
      duplicate_(threshold(config.duplicate)),
      corrupt_(threshold(config.corrupt)),
      reorder_(threshold(config.reorder)),
      any_((loss_ | duplicate_ | corrupt_ | reorder_) != 0) {}

Fate FateDice::next(uint32_t frame_bytes) {
    Fate fate;
    if (hit(loss_)) {
        fate.lose = true;
        return fate;
    }
    if (hit(corrupt_) && frame_bytes != 0) fate.flip_bit = static_cast<int64_t>(random_() % (frame_bytes * 8ull));
    if (hit(reorder_))
        fate.hold_frames = 1 + static_cast<uint32_t>(random_() % kMaxHoldFrames);
    else
        fate.duplicate = hit(duplicate_);
    return fate;
}

uint16_t Impairment::apply(rte_mbuf** in, uint16_t count, rte_mbuf** out) {
    uint16_t kept = 0;
    for (uint16_t i = 0; i < count; ++i) {
        rte_mbuf* mbuf = in[i];
        const Fate fate = dice_.next(mbuf->data_len);
        if (fate.flip_bit >= 0)
            rte_pktmbuf_mtod(mbuf, uint8_t*)[fate.flip_bit / 8] ^= static_cast<uint8_t>(1u << (fate.flip_bit % 8));
        if (fate.lose)
            rte_pktmbuf_free(mbuf);
        else if (fate.hold_frames != 0 && held_count_ < kMaxHeld)
            held_[held_count_++] = {mbuf, fate.hold_frames + 1};
        else
            out[kept++] = mbuf;
        if (fate.duplicate)
            if (rte_mbuf* copy = rte_pktmbuf_copy(mbuf, pool_, 0, UINT32_MAX); copy != nullptr) out[kept++] = copy;
        for (uint16_t h = 0; h < held_count_;) {
            if (--held_[h].frames_left != 0) {
                ++h;
                continue;
            }
            out[kept++] = held_[h].mbuf;
            held_[h] = held_[--held_count_];
        }
    }
    return kept;
}

}  // namespace rove::datapath
