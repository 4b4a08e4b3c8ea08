// SPDX-License-Identifier: Apache-2.0
// Runs a stream of batches with equal parameters. In a closed loop it submits the next batch when one completes, with
// `outstanding` in flight. In an open loop batches arrive at their own times: one that arrives while all places are
// taken waits, and its duration counts from its arrival.
//
// A stream belongs to one thread. Units are bytes, and nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <random>
#include <rove/tent.hpp>
#include <string>
#include <vector>

#include "options.h"

namespace rove::tebench {

uint64_t now_ns();

// Describes one stream's work.
struct Work {
    size_t class_index = 0;
    int priority = 0;
    tent::TransportType hint = tent::UNSPEC;
    Operation operation = Operation::kWrite;
    bool check = false, notify = false;
    bool seeded = false;  // the content depends on the target's addresses and is written, or expected
    size_t block = 0, batch = 0, outstanding = 1;
    double rate = 0;           // batches per second; 0: closed loop
    uint64_t interval_ns = 0;  // the pause between a completion and the next submission
    uint64_t deadline_ns = 0;  // a batch's deadline after its submission; 0: none
    bool tight = false;        // true if the deadline is the command line's
    tent::IntentType intent = tent::IntentType::INTENT_UNSPEC;
    uint8_t* local = nullptr;  // bytes() long, or twice that with `check`
    tent::SegmentID target = 0;
    uint64_t remote = 0;  // where the target's bytes() begin
    uint64_t seed = 0;

    size_t batch_bytes() const { return block * batch; }
    size_t bytes() const { return batch_bytes() * outstanding; }
    size_t local_bytes() const { return bytes() * (check ? 2 : 1); }
};

class Stream {
  public:
    Stream(tent::TransferEngine& engine, const Work& work);

    // Submits due batches if `submit` is true, and polls those in flight. Returns false after a failure, which error()
    // describes.
    bool step(bool submit);
    bool idle() const { return running_ == 0; }
    // Returns the time at which step() has work next: 0 for now, unless an open loop waits for the next arrival.
    uint64_t due_ns() const { return running_ == 0 && work_.rate > 0 ? next_ns_ : 0; }
    // Starts or stops recording. Durations are kept for batches that are submitted while recording is on.
    void record(bool on) { recording_ = on; }

    const Work& work() const { return work_; }
    const std::string& error() const { return error_; }
    // Returns the bytes that arrived since the start, including batches in flight.
    uint64_t arrived() const;
    // The durations of recorded batches: from the submission, or in an open loop from the arrival, to the completion.
    std::vector<uint64_t>& times_ns() { return times_ns_; }
    // Returns the number of recorded batches that ended because their deadline passed.
    size_t missed() const { return missed_; }

  private:
    struct Place {
        size_t index = 0;
        tent::BatchID batch = 0;  // 0: nothing is in flight
        tent::Request::OpCode opcode = tent::Request::WRITE;
        bool counted = false, recorded = false;
        bool written = false;  // true if the target's memory holds the pattern of `seed`
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
    std::vector<uint8_t> expected_;  // the expected content, with `seeded`
    std::mt19937_64 random_;
    uint64_t next_ns_ = 0;  // the next arrival of an open loop
    uint64_t seeds_ = 0;
    size_t running_ = 0;
    bool recording_ = false;
    uint64_t arrived_ = 0;  // bytes of completed batches
    std::vector<uint64_t> times_ns_;
    size_t missed_ = 0;
    std::string error_;
};

}  // namespace rove::tebench
