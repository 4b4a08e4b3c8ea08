// SPDX-License-Identifier: Apache-2.0
// The transport over the kernel's TCP: for peers that no port of ours reaches, and when all ports are dead. A few lanes
// a peer, each a thread that blocks on a connection of its own and carries one slice after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tent/backend.h"
#include "tent/shard.h"

namespace rove::tent {

class TcpChannel : public Channel {
  public:
    TcpChannel(Shard& shard, Peer& peer);
    ~TcpChannel() override;

    bool available(const BufferDesc&) const override;
    void abandon(uint64_t now_ns) override;
    void revive(uint64_t) override { down_until_ns_.store(0); }
    bool idle() const override { return out_ == 0 && !is_starting_; }

    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;
    // Takes what the lanes have carried. Returns whether there was any.
    bool collect(uint64_t now_ns);

  private:
    static constexpr size_t kLanes = 4, kDeep = 2;  // connections; slices that wait or are carried, per lane

    enum class Outcome : uint8_t { kDone, kRefused, kUnreachable, kBroken };
    struct Returned {
        Slice* slice;
        Outcome outcome;
        uint64_t number;  // of the connection that broke
    };
    struct Lane {
        Stream stream;
        uint64_t number = 0;
        std::thread thread;
    };

    void start_lanes();
    void run(Lane& lane);
    bool connect(Lane& lane);
    Outcome carry(Lane& lane, const Slice& slice);
    void take_back(const Returned& returned, uint64_t now_ns);

    Shard& shard_;
    Peer& peer_;
    size_t out_ = 0;  // slices with lanes; the driver's
    bool has_started_ = false, is_starting_ = false;  // the lanes, by a job; the driver's
    std::atomic<uint64_t> down_until_ns_{0};

    std::mutex mutex_;
    std::condition_variable work_;
    std::deque<Slice*> waiting_;
    std::vector<Returned> returned_, taken_;
    bool stopped_ = false;
    std::vector<Lane> lanes_;
};

class TcpBackend : public Backend {
  public:
    explicit TcpBackend(Shard& shard) : Backend(Transport::kTcp, shard.config().queues), shard_(shard) {}

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    bool progress(uint64_t now_ns) override;
    bool is_idle() override;
    uint64_t next_deadline(uint64_t) const override { return kNever; }

  private:
    Shard& shard_;
};

}  // namespace rove::tent
