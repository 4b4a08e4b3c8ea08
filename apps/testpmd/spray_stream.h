// SPDX-License-Identifier: Apache-2.0
// Sprays batches of requests from one thread, several in flight at a time; each batch has a random priority and
// direction. With verification, every byte that was written is read back, and READs have known content. Units are
// nanoseconds and bytes.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "histogram.h"
#include "segment.h"

namespace rove::testpmd {

class SprayStream {
  public:
    static constexpr size_t kPriorities = 3;

    // The completed requests of a priority.
    struct Class {
        uint64_t reads = 0, writes = 0;  // since the last clear()
        Histogram latency;               // durations of batches, until their last request completed
    };
    struct Counts {
        uint64_t submitted = 0, completed = 0, failed = 0, under_way = 0;
        uint64_t wrong = 0;  // completed with wrong content
        std::array<Class, kPriorities> classes;
        void add(const Counts& other);
    };

    // The stream's local memory begins at `memory`, and the peer's at `remote`; the functions below give the sizes.
    SprayStream(const Options& options, tent::TransferEngine& engine, tent::SegmentID target, uint32_t thread,
                uint8_t* memory, uint64_t remote);
    static size_t remote_bytes(const Plan& plan) { return size_t{plan.size} * plan.depth; }
    // Half of it is for data that is read back.
    static size_t local_bytes(const Plan& plan) { return 2 * remote_bytes(plan); }

    // Polls the batches in flight and, if `submit` is true, submits those that are due. Returns true if the run has
    // more to submit. Throws a Failure if a request fails.
    bool step(uint64_t now_ns, bool submit);
    bool idle() const { return counts_.under_way == 0; }
    const Counts& counts() const { return counts_; }
    void clear() { counts_.classes = {}; }

  private:
    // The state of a batch; its memory never changes.
    struct Place {
        uint32_t first = 0;  // the first slot
        uint32_t requests = 0;
        tent::BatchID batch = 0;  // 0: nothing is in flight
        tent::Request::OpCode opcode = tent::Request::WRITE;
        int priority = 0;
        bool checks = false;  // true while the batch reads its data back; the request itself is complete
        uint64_t begun_ns = 0;
    };
    void begin(Place& place, uint32_t requests, uint64_t now_ns);
    void submit(Place& place);
    void look(Place& place, uint64_t now_ns);
    void verify(const Place& place);
    uint32_t due(uint64_t now_ns) const;
    uint8_t* local(uint32_t slot, bool returned) const;

    const Options& options_;
    const Plan plan_;
    tent::TransferEngine& engine_;
    const tent::SegmentID target_;
    const uint32_t thread_;
    uint8_t* const memory_;
    const uint64_t remote_, count_;  // requests of the run; 0: without a limit
    const double interval_ns_;       // between two requests; 0: no rate
    std::vector<Place> places_;
    std::vector<uint64_t> messages_;  // the messages that the target's slots hold
    std::vector<tent::Request> requests_;
    std::minstd_rand random_;
    std::discrete_distribution<int> priority_;
    std::bernoulli_distribution reads_;
    uint64_t started_ns_ = 0;
    Counts counts_;
};

}  // namespace rove::testpmd
