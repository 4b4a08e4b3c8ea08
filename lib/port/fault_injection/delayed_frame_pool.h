// SPDX-License-Identifier: Apache-2.0
// The pool of frames that wait until they are due. A worker has one pool for all its ports and their paths.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <vector>

namespace rove::datapath {

class DelayedFramePool {
  public:
    // The most frames that wait. They are mbufs of the worker's pool, into which all its ports receive
    // (EthdevPort::open()), or of the pool for impairments. This is half of kImpairedMbufs (eal.h).
    static constexpr uint32_t kFrames = 2048;

    struct Frame {
        rte_mbuf* mbuf = nullptr;
        uint64_t due_ns = 0;
        Frame* next = nullptr;
    };

    DelayedFramePool() : frames_(kFrames) {
        for (Frame& frame : frames_) give_back(frame);
    }
    DelayedFramePool(const DelayedFramePool&) = delete;
    DelayedFramePool& operator=(const DelayedFramePool&) = delete;

    // Returns a free entry, or null if all are in use.
    Frame* take() {
        Frame* const frame = free_;
        if (frame != nullptr) free_ = frame->next;
        return frame;
    }
    void give_back(Frame& frame) {
        frame.next = free_;
        free_ = &frame;
    }

    // A queue: first in, first out.
    class List {
      public:
        bool empty() const { return first_ == nullptr; }
        uint32_t size() const { return size_; }
        const Frame& front() const { return *first_; }
        void push(Frame& frame) {
            frame.next = nullptr;
            (first_ == nullptr ? first_ : last_->next) = &frame;
            last_ = &frame;
            ++size_;
        }
        Frame& pop() {
            Frame& frame = *first_;
            first_ = frame.next;
            --size_;
            return frame;
        }

      private:
        Frame* first_ = nullptr;
        Frame* last_ = nullptr;
        uint32_t size_ = 0;
    };

  private:
    std::vector<Frame> frames_;
    Frame* free_ = nullptr;
};

}  // namespace rove::datapath
