// SPDX-License-Identifier: Apache-2.0
// What one thread sprays: batches of requests, some under way at once, each of a priority and a direction that chance
// gives it. With verification every byte that was written is read back, and what is read is known. Units: nanoseconds,
// bytes.
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

    // Requests.
    struct Class {
        uint64_t reads = 0, writes = 0;  // complete, since cleared
        Histogram latency;               // of batches: until all of one was complete
    };
    struct Counts {
        uint64_t submitted = 0, completed = 0, failed = 0, under_way = 0;
        uint64_t wrong = 0;  // complete, but not with the right bytes
        std::array<Class, kPriorities> classes;
        void add(const Counts& other);
    };

    // Local memory for it begins at `memory`, the peer's at `remote`; sizes below.
    SprayStream(const Options& options, tent::TransferEngine& engine, tent::SegmentID target, uint32_t thread,
                uint8_t* memory, uint64_t remote);
    static size_t remote_bytes(const Plan& plan) { return size_t{plan.size} * plan.depth; }
    static size_t local_bytes(const Plan& plan) { return 2 * remote_bytes(plan); }  // half for what is read back

    // Looks at what is under way, and submits what is due, if `submit`. Returns whether the run asks for more. Throws a
    // Failure when a request fails.
    bool step(uint64_t now_ns, bool submit);
    bool idle() const { return counts_.under_way == 0; }
    const Counts& counts() const { return counts_; }
    void clear() { counts_.classes = {}; }

  private:
    // Of a batch, which always has the same memory.
    struct Place {
        uint32_t first = 0;  // slot
        uint32_t requests = 0;
        tent::BatchID batch = 0;  // 0: nothing under way
        tent::Request::OpCode opcode = tent::Request::WRITE;
        int priority = 0;
        bool checks = false;  // reads back what it wrote; the request itself is complete
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
    const uint64_t remote_, count_;  // requests of the run; 0: any
    const double interval_ns_;       // between two requests; 0: no rate
    std::vector<Place> places_;
    std::vector<uint64_t> messages_;  // that the slots of the target hold
    std::vector<tent::Request> requests_;
    std::minstd_rand random_;
    std::discrete_distribution<int> priority_;
    std::bernoulli_distribution reads_;
    uint64_t started_ns_ = 0;
    Counts counts_;
};

}  // namespace rove::testpmd
