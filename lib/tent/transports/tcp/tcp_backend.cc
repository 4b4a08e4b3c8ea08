// SPDX-License-Identifier: Apache-2.0
// See tcp_backend.h. A WRITE whose connection broke may land later; the rule of rdma/connection.h holds here too.
#include "tent/transports/tcp/tcp_backend.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tent/clock.h"
#include "tent/control/connection_name.h"
#include "tent/control/handshake.h"
#include "tent/no_signals.h"
#include "tent/transports/tcp/tcp_server.h"

namespace rove::tent {

namespace {

constexpr uint64_t kConnectNs = 2'000'000'000;
constexpr uint64_t kCarryNs = 3'000'000'000, kCarryByteNs = 100;  // for a slice, and for each of its bytes: 10 MB/s
// a peer that did not answer is not tried again so soon
constexpr uint64_t kDownNs = 200'000'000;
constexpr uint64_t kCallNs = 2'000'000'000;

}  // namespace

TcpChannel::TcpChannel(Shard& shard, Peer& peer)
    : Channel(shard.config().queues),
      shard_(shard),
      peer_(peer),
      lanes_(kLanes) {}

TcpChannel::~TcpChannel() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    work_.notify_all();
    for (Lane& lane : lanes_) {
        if (lane.thread.joinable()) lane.thread.join();
    }
}

bool TcpChannel::available(const BufferDesc&) const {
    return !peer_.gone.load(std::memory_order_relaxed) &&
           monotonic_ns() >= down_until_ns_.load(std::memory_order_relaxed);
}

void TcpChannel::abandon(uint64_t) {
    for (uint8_t level = 0; level < kPriorities; ++level)
        while (Waiting* waiting = queues.first(level, 0xFF))
            shard_.fail_waiting(static_cast<Task&>(*waiting), Reason::kPeerGone);
}

bool TcpChannel::collect(uint64_t now_ns) {
    if (out_ == 0) return false;
    {
        const std::lock_guard lock(mutex_);
        std::swap(returned_, taken_);
    }
    for (const Returned& returned : taken_) take_back(returned, now_ns);
    const bool any = !taken_.empty();
    taken_.clear();
    return any;
}

Channel::Dispatched TcpChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    Dispatched result;
    while (out_ < kLanes * kDeep) {
        Waiting* waiting = queues.first(level, allowed);
        if (waiting == nullptr) break;
        auto& slice = static_cast<Slice&>(*queues.take(*waiting, now_ns));
        result.moved = true;
        if (!shard_.is_wanted(slice)) {
            shard_.drop(slice);
            continue;
        }
        ++out_;
        {
            const std::lock_guard lock(mutex_);
            waiting_.push_back(&slice);
        }
        if (!has_started_) start_lanes();  // when there is work for them
        work_.notify_one();
    }
    return result;
}

void TcpChannel::start_lanes() {
    has_started_ = is_starting_ = true;
    shard_.jobs().add(peer_.name(), [this] {
        const NoSignals guard;
        for (Lane& lane : lanes_) lane.thread = std::thread([this, &lane] { run(lane); });
        shard_.with_lock([this] { is_starting_ = false; });
    });
}

void TcpChannel::take_back(const Returned& returned, uint64_t now_ns) {
    --out_;
    Slice& slice = *returned.slice;
    switch (returned.outcome) {
        case Outcome::kDone:
            shard_.done(slice);
            return;
        case Outcome::kRefused:
            shard_.refused(slice);
            return;
        case Outcome::kUnreachable:
            down_until_ns_.store(now_ns + kDownNs);
            shard_.move_elsewhere(slice, Transport::kTcp, now_ns);
            return;
        case Outcome::kBroken:
            break;
    }
    if (slice.task->direction == Direction::kWrite) {
        shard_.add_fence(*slice.task);
        // Not ours after this: the channel may have gone. The task keeps the peer.
        const auto peer = slice.task->peer;
        shard_.jobs().add(peer->name(), [task = slice.task, peer, &shard = shard_, number = returned.number] {
            const ConnectionName name{peer->owner(), TcpServer::kRail, number};
            const auto closed = peer->control().call(MessageType::kClose, name.to_json(), kCallNs);
            bool sure = false;
            if (closed) get(*closed, "ok", &sure);
            shard.with_lock([&] { shard.drop_fence(*task, sure); });
        });
    }
    shard_.retry(slice, now_ns);
}

void TcpChannel::run(Lane& lane) {
    std::unique_lock lock(mutex_);
    while (true) {
        work_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
        if (stopped_) return;
        Slice* slice = waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        const Outcome outcome = carry(lane, *slice);
        if (outcome == Outcome::kBroken || outcome == Outcome::kRefused) lane.stream.close();
        lock.lock();
        returned_.push_back({slice, outcome, lane.number});
    }
}

bool TcpChannel::connect(Lane& lane) {
    const uint64_t deadline_ns = monotonic_ns() + kConnectNs;
    std::string why;
    lane.number = shard_.next_number();
    lane.stream =
        open_connection(peer_.segment()->data_address, Purpose::kData, shard_.credentials(), deadline_ns, &why);
    if (!lane.stream.is_open()) return false;
    TcpHello hello;
    from_hex(peer_.owner(), &hello.owner);
    hello.number = lane.number;
    TcpAnswer answer;
    if (lane.stream.send(&hello, sizeof(hello), deadline_ns) &&
        lane.stream.receive(&answer, sizeof(answer), deadline_ns) && answer.refused == 0) {
        return true;
    }
    lane.stream.close();
    return false;
}

TcpChannel::Outcome TcpChannel::carry(Lane& lane, const Slice& slice) {
    const uint64_t deadline_ns = monotonic_ns() + kCarryNs + slice.length * kCarryByteNs;
    if (!lane.stream.is_open() && !connect(lane)) return Outcome::kUnreachable;
    const bool is_write = slice.task->direction == Direction::kWrite;
    const TcpRequest request{.operation = is_write ? TcpRequest::kWrite : TcpRequest::kRead,
                             .address = slice.remote,
                             .length = slice.length};
    TcpAnswer answer;
    if (!lane.stream.send(&request, sizeof(request), deadline_ns)) return Outcome::kBroken;
    // One that is refused is not read to its end: the answer says so.
    const bool sent = !is_write || lane.stream.send(slice.local, slice.length, deadline_ns);
    if (!lane.stream.receive(&answer, sizeof(answer), deadline_ns)) return Outcome::kBroken;
    if (answer.refused != 0) return Outcome::kRefused;
    if (!sent) return Outcome::kBroken;
    if (!is_write && !lane.stream.receive(slice.local, slice.length, deadline_ns)) return Outcome::kBroken;
    return Outcome::kDone;
}

std::unique_ptr<Channel> TcpBackend::open(Peer& peer, uint64_t) {
    if (peer.segment()->data_address.empty()) return nullptr;
    auto channel = std::make_unique<TcpChannel>(shard_, peer);
    add(*channel);
    return channel;
}

bool TcpBackend::is_idle() {
    return nothing_waits() &&
           std::all_of(channels().begin(), channels().end(), [](const Channel* channel) { return channel->idle(); });
}

bool TcpBackend::progress(uint64_t now_ns) {
    bool moved = false;
    for (Channel* channel : channels()) moved |= static_cast<TcpChannel*>(channel)->collect(now_ns);
    return moved;
}

}  // namespace rove::tent
