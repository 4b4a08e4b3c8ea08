// SPDX-License-Identifier: Apache-2.0
// The initiator's end of a connection of the tcp transport. It never waits: requests are sent one after the other,
// while the answers to earlier ones arrive in the same order. One thread at a time may use it. Units: bytes,
// nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tent/control/stream.h"
#include "tent/engine/task.h"
#include "tent/transports/tcp/tcp_server.h"

namespace rove::tent {

enum class TcpOutcome : uint8_t { kDone, kRefused, kUnreachable, kBroken };

// A slice that was given to a connection.
struct TcpSlice {
    Slice* slice = nullptr;
    uint64_t since_ns = 0;
    TcpOutcome outcome = TcpOutcome::kDone;
    bool may_land = false;  // true for a WRITE whose connection broke: the peer may still carry it
    uint64_t number = 0;    // the broken connection's number
};

class TcpConnection {
  public:
    enum class State : uint8_t { kClosed, kOpening, kOpen };

    State state() const { return state_; }
    int fd() const { return stream_.fd(); }

    void add(const TcpSlice& slice, uint64_t now_ns) {
        if (!has_slices()) moved_ns_ = now_ns;
        to_send_.push_back(slice);
    }
    bool has_slices() const { return !to_send_.empty() || !to_answer_.empty(); }
    // Called when a job starts to open the connection.
    void begin_opening() { state_ = State::kOpening; }
    // Ends the opening of the connection, whose number is `number`. If the stream is not open, the peer cannot be
    // reached, and the slices added until then fail.
    void open(Stream stream, uint64_t number, uint64_t now_ns, std::vector<TcpSlice>* ended);
    // Notes epoll's events (EPOLLIN ...), which are edge-triggered.
    void note(uint32_t events);
    // Sends and receives without waiting, until it has moved `most` bytes or somewhat more. Appends slices that were
    // carried or have failed to `ended`. Returns the bytes moved.
    uint64_t advance(uint64_t most, uint64_t now_ns, std::vector<TcpSlice>* ended);
    // Returns true if advance() stopped because of `most`.
    bool has_more() const { return has_more_; }
    // Returns when a byte was last moved, or when the connection last ceased to be empty.
    uint64_t moved_ns() const { return moved_ns_; }
    // Ends all its slices as kBroken.
    void end(std::vector<TcpSlice>* ended);

  private:
    static constexpr size_t kTogether = 4;  // requests in one system call

    bool send(uint64_t most, uint64_t* bytes);
    bool receive(uint64_t most, uint64_t* bytes, std::vector<TcpSlice>* ended);
    void take_answer(std::vector<TcpSlice>* ended);

    State state_ = State::kClosed;
    Stream stream_;
    uint64_t number_ = 0;
    uint64_t moved_ns_ = 0;
    bool has_more_ = false;
    bool is_readable_ = false, is_writable_ = false;
    std::deque<TcpSlice> to_send_, to_answer_;
    uint64_t sent_ = 0;      // bytes sent for the first entry of to_send_, its TcpRequest included
    uint64_t received_ = 0;  // bytes received for the first entry of to_answer_, its TcpAnswer included
    TcpAnswer answer_;       // answer to that entry
};

}  // namespace rove::tent
