// SPDX-License-Identifier: Apache-2.0
// Verified traffic to two peers, during which a test makes everything fail that can.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

namespace {

constexpr double kStep = 0.002;   // seconds between two samples of the bytes that have arrived
constexpr double kReport = 0.02;  // and between two lines
constexpr double kHang = 30;      // longer than every timeout: a request that takes longer never ends
constexpr double kAgain = 0.01;   // after a refusal
constexpr size_t kRegions = 64;   // per slot, in the peer's memory

// One request at a time: a WRITE to a region, then the READ of it.
struct Slot {
    BatchID batch = 0;
    Request::OpCode opcode = Request::WRITE;
    uint64_t seed = 0, address = 0;
    size_t region = 0, arrived = 0;  // bytes of the present request
    double submitted = 0, retry = 0;
};

struct Target {
    Options options;
    Remote remote;
    std::vector<Slot> slots;
    std::vector<uint64_t> samples;  // bytes that had arrived, every kStep
    uint64_t bytes = 0, completed = 0, refused = 0;
    uint64_t begun_anew = 0;  // READs that found the initial content: the process was started again
    std::array<uint64_t, 7> states{};
    double slowest = 0;
};

class Traffic {
  public:
    explicit Traffic(const Options& options)
        : size_(options.sizes.front()),
          engine_(start(options)),
          memory_(allocate(*engine_, 2 * options.depth * size_)),
          initial_(size_) {
        for (size_t i = 0; i < 2; ++i) {
            Target& target = targets_[i];
            target.options = options;
            if (i == 1) target.options.peer = options.other_peers.front();
            target.remote = open(*engine_, target.options);
            target.slots.resize(options.depth);
            if (options.depth * kRegions * size_ > target.remote.bytes)
                fail("the target has %zu bytes", target.remote.bytes);
        }
    }

    // Runs until standard input ends.
    int run() {
        const double begun = now_s();
        std::printf("{\"begun\": %.6f}\n", begun);
        bool ends = false;
        double report = begun;
        for (size_t running = 1; !ends || running != 0;) {
            running = 0;
            for (Target& target : targets_)
                for (Slot& slot : target.slots) running += step(target, slot, ends);
            const double now = now_s();
            for (Target& target : targets_)
                while (begun + static_cast<double>(target.samples.size() + 1) * kStep < now)
                    target.samples.push_back(target.bytes);
            if (now < report) continue;
            report = now + kReport;
            std::printf("{\"completed\": [%" PRIu64 ", %" PRIu64 "]}\n", targets_[0].completed, targets_[1].completed);
            std::fflush(stdout);
            pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
            ends = ends || poll(&input, 1, 0) > 0;
        }
        for (const Target& target : targets_) print(target);
        return 0;
    }

  private:
    // Returns true if a request of the slot is in flight.
    bool step(Target& target, Slot& slot, bool ends) {
        uint8_t* here = memory_ + static_cast<size_t>(&slot - target.slots.data()) * size_ +
                        (&target == &targets_[1] ? target.slots.size() * size_ : 0);
        if (slot.batch == 0 && (ends || now_s() < slot.retry || !submit(target, slot, here))) return false;
        TransferStatus status;
        expect(engine_->getTransferStatus(slot.batch, 0, status), "getTransferStatus");
        target.bytes += status.transferred_bytes - slot.arrived;
        slot.arrived = status.transferred_bytes;
        const double took = now_s() - slot.submitted;
        if (status.s == PENDING) {
            if (took > kHang) fail("a request is under way for %.0f s", took);
            return true;
        }
        expect(engine_->freeBatch(slot.batch), "freeBatch");
        slot.batch = 0;
        ++target.states[status.s];
        if (status.s != COMPLETED) {
            // "Any part may have been carried", and later may be: the next one goes elsewhere.
            if (status.s != FAILED && status.s != TIMEOUT) fail("a request ended in state %d", status.s);
            slot.opcode = Request::WRITE;
            slot.region = (slot.region + 1) % kRegions;
            return false;
        }
        ++target.completed;
        target.slowest = std::max(target.slowest, took);
        if (slot.opcode == Request::READ) verify(target, slot, here);
        slot.opcode = slot.opcode == Request::WRITE ? Request::READ : Request::WRITE;
        return false;
    }

    bool submit(Target& target, Slot& slot, uint8_t* here) {
        if (slot.opcode == Request::WRITE) peer::fill(here, size_, slot.seed = ++seed_);
        if (slot.opcode == Request::READ) std::memset(here, 0xee, size_);
        const uint64_t offset = offset_of(target, slot);
        slot.batch = engine_->allocateBatch(1);
        slot.submitted = now_s();
        slot.arrived = 0;
        const Status status = engine_->submitTransfer(
            slot.batch, {request(target.options, slot.opcode, here, target.remote, offset, size_)});
        if (status.ok()) return true;
        ++target.refused;
        expect(engine_->freeBatch(slot.batch), "freeBatch");
        slot.batch = 0;
        slot.opcode = Request::WRITE;
        slot.retry = now_s() + kAgain;
        // A process that was started again has its memory elsewhere.
        SegmentInfo info;
        if (engine_->getSegmentInfo(target.remote.segment, info).ok() && !info.buffers.empty())
            target.remote.address = info.buffers.front().base;
        return false;
    }

    void verify(Target& target, const Slot& slot, const uint8_t* here) {
        const size_t differs = peer::first_difference(here, size_, slot.seed);
        if (differs == size_) return;
        if (std::memcmp(here, initial_.data(), size_) != 0)
            fail("byte %zu of %zu at %" PRIu64 " is wrong after %.3f s", differs, size_, offset_of(target, slot),
                 now_s() - slot.submitted);
        ++target.begun_anew;
    }

    uint64_t offset_of(const Target& target, const Slot& slot) const {
        return (static_cast<size_t>(&slot - target.slots.data()) * kRegions + slot.region) * size_;
    }

    static void print(const Target& target) {
        std::printf("{\"completed\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"timeout\": %" PRIu64
                    ", \"refused\": %" PRIu64 ", \"begun_anew\": %" PRIu64
                    ", \"slowest\": %.6f, \"step\": %.4f, "
                    "\"samples\": [",
                    target.completed, target.states[FAILED], target.states[TIMEOUT], target.refused, target.begun_anew,
                    target.slowest, kStep);
        for (size_t i = 0; i < target.samples.size(); ++i)
            std::printf("%s%" PRIu64, i == 0 ? "" : ", ", target.samples[i]);
        std::printf("]}\n");
    }

    const size_t size_;
    std::unique_ptr<TransferEngine> engine_;
    uint8_t* memory_;
    const std::vector<uint8_t> initial_;  // a target's initial memory: zeros
    std::array<Target, 2> targets_;
    uint64_t seed_ = 1000;
};

}  // namespace

int faults(const Options& options) {
    return Traffic(options).run();
}

}  // namespace check
