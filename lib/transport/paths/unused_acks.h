// SPDX-License-Identifier: Apache-2.0
// The paths of ACKs that have returned and let no packet out yet, in the order of their return (MP-3). The next packet
// takes the path of the first one. The memory grows with use, from nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace rove::transport {

class UnusedAcks {
  public:
    // Enough for a window of this size, all of which may be acknowledged at once (BX-3). With 64, the remaining packets
    // took random paths: in MP-RDMA's Fig. 15 a path of 9.5 Gb/s carried 5.3 instead of 9.2. For larger windows see
    // Paths::keep_ack().
    static constexpr uint32_t kMost = 256;

    uint32_t count() const { return count_; }
    // Returns the path of an ACK; 0 is the first one. There must be more than `index`.
    uint16_t operator[](uint32_t index) const { return vps_[(first_ + index) & (places_ - 1u)]; }
    uint16_t first() const { return (*this)[0]; }
    // Returns true if the first ACK has let out a packet, and may let out another one (MP-6).
    bool is_first_used() const { return uses_ != 0; }

    // Adds an ACK. Returns false if kMost are kept, or without memory.
    bool add(uint16_t vp) {
        if (count_ == places_ && !grow()) [[unlikely]]
            return false;
        vps_[(first_ + count_++) & (places_ - 1u)] = vp;
        return true;
    }
    // Counts a packet that the first ACK lets out. Returns their number.
    uint32_t use_first() { return ++uses_; }
    void remove_first() {
        ++first_;
        --count_;
        uses_ = 0;
    }
    void clear() { count_ = uses_ = 0; }

    size_t bytes() const { return places_ * sizeof(uint16_t); }

  private:
    bool grow();

    std::unique_ptr<uint16_t[]> vps_;
    uint16_t places_ = 0;  // a power of two, or 0
    uint16_t first_ = 0;   // counts on beyond `places_`
    uint16_t count_ = 0;
    uint8_t uses_ = 0;  // packets that the first ACK has let out
};

}  // namespace rove::transport
