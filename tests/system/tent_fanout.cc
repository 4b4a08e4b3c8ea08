// SPDX-License-Identifier: Apache-2.0
// One engine and many peers: the time of HIGH requests to one of them, alone and with LOW ones to all others; and
// requests to all of them at once, every byte verified.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;
using peer::now_s;

namespace {

constexpr size_t kHigh = 65'536;  // bytes
constexpr double kPause = 0.002;  // between two HIGH requests
constexpr double kHang = 30;

struct Low {
    Remote remote;
    BatchID batch = 0;
    size_t carried = 0;  // its bytes, as last read
    double retry = 0;
};

size_t entries(const char* folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

class Fanout {
  public:
    explicit Fanout(const Options& options) : options_(options), size_(options.sizes.front()), engine_(start(options)) {
        memory_ = allocate(*engine_, size_ + kHigh);
        alone_ = peer::resident_bytes();
        high_ = check::open(*engine_, options);
        for (const std::string& name : options.other_peers) {
            Options other = options;
            other.peer = name;
            lows_.push_back({.remote = check::open(*engine_, other)});
        }
        print_use();
    }

    void print_use() const {
        std::printf("{\"peers\": %zu, \"threads\": %zu, \"descriptors\": %zu, \"resident\": %zu, \"alone\": %zu}\n",
                    lows_.size() + 1, entries("/proc/self/task"), entries("/proc/self/fd"), peer::resident_bytes(),
                    alone_);
        std::fflush(stdout);
    }

    // Prints the times of HIGH requests during `seconds`, in microseconds.
    void measure(bool beside) {
        std::vector<double> took_us;
        low_bytes_ = refused_ = 0;
        BatchID batch = 0;
        double next = now_s(), submitted = 0;
        for (const double end = now_s() + options_.seconds; now_s() < end || batch != 0;) {
            const double now = now_s();
            if (batch == 0 && now >= next) {
                batch = submit(high_, PRIO_HIGH, memory_, kHigh);
                if (batch == 0) fail("a HIGH request is refused");
                submitted = now;
            }
            TransferStatus status;
            if (batch != 0) expect(engine_->getTransferStatus(batch, status), "getTransferStatus");
            if (batch != 0 && status.s != PENDING) {
                if (status.s != COMPLETED) fail("a HIGH request ended in state %d", status.s);
                took_us.push_back((now_s() - submitted) * 1e6);
                expect(engine_->freeBatch(batch), "freeBatch");
                batch = 0;
                next = now_s() + kPause;
            }
            if (now - submitted > kHang) fail("a HIGH request is under way for %.0f s", kHang);
            if (beside) look_after(now);
        }
        std::sort(took_us.begin(), took_us.end());
        std::printf("{\"beside\": %s, \"requests\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"low_bytes\": %" PRIu64
                    ", \"refused\": %" PRIu64 "}\n",
                    beside ? "true" : "false", took_us.size(), took_us[took_us.size() / 2],
                    took_us[took_us.size() * 99 / 100], low_bytes_, refused_);
        std::fflush(stdout);
    }

  private:
    BatchID submit(const Remote& remote, int priority, void* from, size_t bytes) {
        Request one = request(options_, Request::WRITE, from, remote, 0, bytes);
        one.priority = priority;
        const BatchID batch = engine_->allocateBatch(1);
        if (engine_->submitTransfer(batch, {one}).ok()) return batch;
        expect(engine_->freeBatch(batch), "freeBatch");
        return 0;
    }

    // Keeps one LOW request to each peer; a few are checked in each round.
    void look_after(double now) {
        for (size_t i = 0; i < std::min<size_t>(8, lows_.size()); ++i) {
            Low& low = lows_[turn_++ % lows_.size()];
            if (low.batch == 0 && now >= low.retry) {
                low.batch = submit(low.remote, PRIO_LOW, memory_ + kHigh, size_);
                low.carried = 0;
                if (low.batch == 0) {
                    ++refused_;
                    low.retry = now + 0.05;
                }
            }
            if (low.batch == 0) continue;
            TransferStatus status;
            expect(engine_->getTransferStatus(low.batch, status), "getTransferStatus");
            low_bytes_ += status.transferred_bytes - low.carried;
            low.carried = status.transferred_bytes;
            if (status.s == PENDING) continue;
            expect(engine_->freeBatch(low.batch), "freeBatch");
            low.batch = 0;
        }
    }

    const Options& options_;
    const size_t size_;
    std::unique_ptr<TransferEngine> engine_;
    uint8_t* memory_ = nullptr;
    Remote high_;
    std::vector<Low> lows_;
    size_t turn_ = 0;
    uint64_t low_bytes_ = 0, refused_ = 0;
    size_t alone_ = 0;  // resident bytes before a peer was opened
};

}  // namespace

int visit(const Options& options) {
    const size_t size = options.sizes.front();
    const auto engine = start(options);
    std::vector<Remote> remotes{check::open(*engine, options)};
    for (const std::string& name : options.other_peers) {
        Options other = options;
        other.peer = name;
        remotes.push_back(check::open(*engine, other));
    }
    uint8_t* const memory = allocate(*engine, size * remotes.size());
    const auto seed = [&](size_t round, size_t peer) { return 1 + round * remotes.size() + peer; };
    const auto move = [&](Request::OpCode opcode) {
        std::vector<BatchID> batches;
        for (size_t i = 0; i < remotes.size(); ++i) {
            batches.push_back(engine->allocateBatch(1));
            const Request one = request(options, opcode, memory + i * size, remotes[i], 0, size);
            expect(engine->submitTransfer(batches.back(), {one}), "submitTransfer");
        }
        for (size_t i = 0; i < remotes.size(); ++i) {
            const TransferStatus status = wait(*engine, batches[i], kHang);
            if (status.s != COMPLETED) fail("a request to peer %zu ended in state %d", i, status.s);
            expect(engine->freeBatch(batches[i]), "freeBatch");
        }
    };
    for (size_t round = 0; round < options.rounds; ++round) {
        for (size_t i = 0; i < remotes.size(); ++i) peer::fill(memory + i * size, size, seed(round, i));
        move(Request::WRITE);
        std::fill_n(memory, size * remotes.size(), uint8_t{0});
        move(Request::READ);
        for (size_t i = 0; i < remotes.size(); ++i)
            if (peer::first_difference(memory + i * size, size, seed(round, i)) != size)
                fail("what came back from peer %zu is not what it was sent", i);
    }
    for (size_t i = 0; i < remotes.size(); ++i)
        verify_there(*engine, remotes[i], remotes[i].address, size, seed(options.rounds - 1, i));
    std::printf("{\"peers\": %zu, \"threads\": %zu, \"descriptors\": %zu}\n", remotes.size(),
                entries("/proc/self/task"), entries("/proc/self/fd"));
    return 0;
}

int fanout(const Options& options) {
    Fanout fanout(options);
    fanout.measure(false);
    for (size_t i = 0; i < options.rounds; ++i) fanout.measure(true);
    fanout.print_use();
    return 0;
}

}  // namespace check
