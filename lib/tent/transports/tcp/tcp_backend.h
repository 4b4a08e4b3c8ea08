// SPDX-License-Identifier: Apache-2.0
// The transport over the kernel's TCP: for peers that no port of ours reaches, and when all ports are dead. A peer has
// a connection for each priority that is used, so that HIGH does not stand behind LOW in a socket.
//
// It has no threads: dispatch() hands slices over, work() sends and receives without the drive lock, on whatever thread
// calls it, HIGH of all peers first, and progress() takes back what was carried. What was handed over is in the
// kernel's buffers at both ends, and wakes threads of the peers: HIGH cannot overtake it there. So while HIGH is in
// use, little of what is below it is handed over at a time, for all peers together. Units: bytes, nanoseconds.
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
    // It has come back.
    void take_back(const TcpSlice& returned, uint64_t now_ns);

    // One of its connections, which it has with TcpBackend's I/O lock.
    struct Lane {
        Lane(TcpChannel* of, uint8_t of_priority) : channel(of), priority(of_priority) {}

        TcpChannel* const channel;
        const uint8_t priority;
        bool is_ready = false;  // listed in TcpBackend::ready_
        TcpConnection connection;
    };
    // A job opens it.
    void open(Lane& lane);
    // Of a priority; made when it is used for the first time.
    Lane& lane(Priority priority);

  private:
    friend class TcpBackend;
    static constexpr uint64_t kMaxBytes = 1 << 20;  // handed over of a priority

    Shard& shard_;
    TcpBackend& backend_;
    Peer& peer_;
    uint32_t out_ = 0;                               // slices handed over
    std::array<uint64_t, kPriorities> out_bytes_{};  // ... their bytes
    std::atomic<uint32_t> opening_{0};               // connections, by jobs that know of us
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

    // --- of TcpChannel, with the drive lock ---
    // Whether a slice of this priority may be handed over.
    bool has_room(Priority priority, uint64_t now_ns);
    void hand_over(TcpChannel::Lane& lane, Slice& slice, uint64_t now_ns);
    // --- any thread ---
    void opened(TcpChannel::Lane& lane, Stream stream, uint64_t number);
    void forget_lanes(TcpChannel& channel);

  private:
    static constexpr uint64_t kRoundBytes = 512 << 10, kTurnBytes = 128 << 10;  // of work(), and of a lane in it
    static constexpr uint64_t kBesideBytes = 256 << 10;  // below what is in use, of all peers: some 100 us

    void close_at_peer(uint64_t number, std::vector<Task*> tasks);
    // With io_.
    void take_handed_over(uint64_t now_ns);
    void look_for_events();
    void end_silent(uint64_t now_ns);
    void make_ready(TcpChannel::Lane& lane);
    void give_back();

    Shard& shard_;
    std::atomic<uint32_t> out_{0};  // slices handed over and not taken back; written with the drive lock
    RecentBytes recent_;            // handed over and not taken back
    std::vector<TcpSlice> taken_;   // progress()'s

    std::mutex io_;  // whoever sends and receives has it
    const int epoll_;
    std::array<std::deque<TcpChannel::Lane*>, kPriorities> ready_;
    std::vector<TcpChannel::Lane*> opened_;  // lanes that were, once
    std::vector<TcpSlice> ended_;
    uint64_t silence_ns_ = 0;  // when end_silent() was last called

    std::mutex mutex_;  // of these
    std::vector<std::pair<TcpChannel::Lane*, TcpSlice>> handed_over_;
    std::vector<TcpSlice> returned_;
    std::atomic<size_t> returned_count_{0};  // the same, to look at without the lock
};

}  // namespace rove::tent
