// SPDX-License-Identifier: Apache-2.0
// A stream of batches that are alike: some under way at once, the next when one is through (closed loop), or at times
// of their own (open loop; what comes while all places are taken waits, and its time counts from when it came). One
// thread's. Units: bytes, nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <random>
#include <rove/tent.hpp>
#include <string>
#include <vector>

#include "options.h"

namespace rove::tebench {

uint64_t now_ns();

// What one stream does.
struct Work {
    size_t class_index = 0;
    int priority = 0;
    tent::TransportType hint = tent::UNSPEC;
    Operation operation = Operation::kWrite;
    bool check = false, notify = false;
    bool seeded = false;  // content by the target's addresses is written, or expected
    size_t block = 0, batch = 0, outstanding = 1;
    double rate = 0;           // batches per second; 0: closed loop
    uint64_t interval_ns = 0;  // between a completion and the next submit
    uint64_t deadline_ns = 0;  // of a batch, from its submit; 0: none
    bool tight = false;        // the deadline is the command line's
    tent::IntentType intent = tent::IntentType::INTENT_UNSPEC;
    uint8_t* local = nullptr;  // bytes() of it, or twice as much with `check`
    tent::SegmentID target = 0;
    uint64_t remote = 0;  // bytes() from here on
    uint64_t seed = 0;

    size_t batch_bytes() const { return block * batch; }
    size_t bytes() const { return batch_bytes() * outstanding; }
    size_t local_bytes() const { return bytes() * (check ? 2 : 1); }
};

class Stream {
  public:
    Stream(tent::TransferEngine& engine, const Work& work);

    // Submits what is due, if `submit`, and looks at what is under way. False: it has failed, error() says how.
    bool step(bool submit);
    bool idle() const { return running_ == 0; }
    // When something is to be done: now, unless an open loop waits for what comes next.
    uint64_t due_ns() const { return running_ == 0 && work_.rate > 0 ? next_ns_ : 0; }
    // Times of batches that are submitted from now on are kept, and others are not.
    void record(bool on) { recording_ = on; }

    const Work& work() const { return work_; }
    const std::string& error() const { return error_; }
    // Bytes that have arrived, of batches that are not through as well, since the start.
    uint64_t arrived() const;
    // Of batches that were recorded: from submit, or in an open loop from when it came, to completion.
    std::vector<uint64_t>& times_ns() { return times_ns_; }
    // ... that ended because of their deadline.
    size_t missed() const { return missed_; }

  private:
    struct Place {
        size_t index = 0;
        tent::BatchID batch = 0;  // 0: nothing under way
        tent::Request::OpCode opcode = tent::Request::WRITE;
        bool counted = false, recorded = false;
        bool written = false;  // the target's memory has the pattern of `seed`
        uint64_t seed = 0;
        uint64_t begun_ns = 0, not_before_ns = 0;
        uint64_t deadline_ns = 0;  // 0: none
        uint64_t arrived = 0;
    };

    bool begin(Place& place, uint64_t begun_ns);
    bool look(Place& place);
    bool fail(const Place& place, const std::string& why);
    uint8_t* pattern(const Place& place) const { return work_.local + place.index * work_.batch_bytes(); }
    uint8_t* returned(const Place& place) const;

    tent::TransferEngine& engine_;
    const Work work_;
    std::vector<Place> places_;
    std::vector<tent::Request> requests_;
    std::vector<uint8_t> expected_;  // with `seeded`
    std::mt19937_64 random_;
    uint64_t next_ns_ = 0;  // open loop: the next one comes
    uint64_t seeds_ = 0;
    size_t running_ = 0;
    bool recording_ = false;
    uint64_t arrived_ = 0;  // of batches that are through
    std::vector<uint64_t> times_ns_;
    size_t missed_ = 0;
    std::string error_;
};

}  // namespace rove::tebench
