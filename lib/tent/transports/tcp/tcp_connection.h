// SPDX-License-Identifier: Apache-2.0
// The initiator's end of a connection of the tcp transport, which never waits: requests are sent one behind the other,
// while the answers to those before come in the same order. One thread at a time. Units: bytes, nanoseconds of
// CLOCK_MONOTONIC.
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
    bool may_land = false;  // of a WRITE whose connection broke: the peer may still carry it
    uint64_t number = 0;    // of the connection that broke
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
    // Somebody opens it.
    void begin_opening() { state_ = State::kOpening; }
    // It is open, and has this number. A stream that is not open: the peer cannot be reached, and what was added fails.
    void open(Stream stream, uint64_t number, uint64_t now_ns, std::vector<TcpSlice>* ended);
    // What epoll said of it (EPOLLIN ...), edge by edge.
    void note(uint32_t events);
    // Sends and receives what goes without waiting, until that is `most` bytes or somewhat more. Slices that were
    // carried, or failed, are appended to `ended`. Returns the bytes.
    uint64_t advance(uint64_t most, uint64_t now_ns, std::vector<TcpSlice>* ended);
    // advance() left off because of `most`.
    bool has_more() const { return has_more_; }
    // When a byte was last moved, or something was to be again.
    uint64_t moved_ns() const { return moved_ns_; }
    // All of its slices end as kBroken.
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
    uint64_t sent_ = 0;      // of the first to send, its TcpRequest included
    uint64_t received_ = 0;  // of the first to be answered, its TcpAnswer included
    TcpAnswer answer_;       // to that
};

}  // namespace rove::tent
