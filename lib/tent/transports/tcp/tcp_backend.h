// SPDX-License-Identifier: Apache-2.0
// The transport over the kernel's TCP, for peers that no local port reaches, and for the case that all ports are dead.
// A peer has a connection for each priority in use, so that HIGH does not wait behind LOW in a socket.
//
// It has no threads. dispatch() hands slices over. work() sends and receives without the drive lock, on the thread that
// calls it, HIGH of all peers first. progress() takes back the slices that were carried. Bytes that were handed over
// are in the kernel's buffers at both ends and wake threads of the peers, and HIGH cannot overtake them there. So while
// HIGH is in use, only few bytes of lower priorities are handed over at a time, for all peers together. Units: bytes,
// nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tent/engine/backend.h"
#include "tent/engine/shard.h"
#include "tent/qos/recent_bytes.h"
#include "tent/transports/tcp/tcp_connection.h"

namespace rove::tent {

class TcpBackend;

class TcpChannel : public Channel {
  public:
    TcpChannel(Shard& shard, TcpBackend& backend, Peer& peer);
    ~TcpChannel() override;

    bool available(const BufferDesc&) const override;
    void abandon(uint64_t now_ns) override;
    void revive(uint64_t) override { down_until_ns_.store(0); }
    bool idle() const override { return out_ == 0 && opening_.load() == 0; }

    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;
    // Takes back a slice that was carried or has failed.
    void take_back(const TcpSlice& returned, uint64_t now_ns);

    // One of the channel's connections. TcpBackend's I/O lock protects it.
    struct Lane {
        Lane(TcpChannel* of, uint8_t of_priority) : channel(of), priority(of_priority) {}

        TcpChannel* const channel;
        const uint8_t priority;
        bool is_ready = false;  // listed in TcpBackend::ready_
        TcpConnection connection;
    };
    // Starts a job that opens the connection.
    void open(Lane& lane);
    // Returns the lane of a priority, which is made when the priority is used for the first time.
    Lane& lane(Priority priority);

  private:
    friend class TcpBackend;
    static constexpr uint64_t kMaxBytes = 1 << 20;  // bytes handed over for a priority

    Shard& shard_;
    TcpBackend& backend_;
    Peer& peer_;
    uint32_t out_ = 0;                               // slices handed over
    std::array<uint64_t, kPriorities> out_bytes_{};  // bytes handed over, by priority
    std::atomic<uint32_t> opening_{0};               // connections being opened by jobs that refer to this channel
    std::atomic<uint64_t> down_until_ns_{0};
    std::array<std::unique_ptr<Lane>, kPriorities> lanes_;
};

class TcpBackend : public Backend {
  public:
    explicit TcpBackend(Shard& shard);
    ~TcpBackend() override;

    std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) override;
    bool progress(uint64_t now_ns) override;
    bool is_idle() override { return out_.load(std::memory_order_relaxed) == 0 && nothing_waits(); }
    uint64_t next_deadline(uint64_t) const override { return kNever; }
    bool work() override;

    // TcpChannel calls these two with the drive lock held. has_room() returns true if a slice of this priority may be
    // handed over.
    bool has_room(Priority priority, uint64_t now_ns);
    void hand_over(TcpChannel::Lane& lane, Slice& slice, uint64_t now_ns);
    // Any thread may call these two.
    void opened(TcpChannel::Lane& lane, Stream stream, uint64_t number);
    void forget_lanes(TcpChannel& channel);

  private:
    // Limits of a call of work(), and of a lane in it.
    static constexpr uint64_t kRoundBytes = 512 << 10, kTurnBytes = 128 << 10;
    // The bytes below the priority in use that may be handed over, for all peers: about 100 us.
    static constexpr uint64_t kBesideBytes = 256 << 10;

    void close_at_peer(uint64_t number, std::vector<Task*> tasks);
    // These functions need io_.
    void take_handed_over(uint64_t now_ns);
    void look_for_events();
    void end_silent(uint64_t now_ns);
    void make_ready(TcpChannel::Lane& lane);
    void give_back();

    Shard& shard_;
    std::atomic<uint32_t> out_{0};  // slices handed over and not taken back; written with the drive lock
    RecentBytes recent_;            // bytes handed over and not taken back
    std::vector<TcpSlice> taken_;   // used within progress()

    std::mutex io_;  // held by the thread that sends and receives
    const int epoll_;
    std::array<std::deque<TcpChannel::Lane*>, kPriorities> ready_;
    std::vector<TcpChannel::Lane*> opened_;  // lanes that were open at least once
    std::vector<TcpSlice> ended_;
    uint64_t silence_ns_ = 0;  // when end_silent() was last called

    std::mutex mutex_;  // protects the members below
    std::vector<std::pair<TcpChannel::Lane*, TcpSlice>> handed_over_;
    std::vector<TcpSlice> returned_;
    std::atomic<size_t> returned_count_{0};  // size of returned_, read without the lock
};

}  // namespace rove::tent
