// SPDX-License-Identifier: Apache-2.0
// See tcp_backend.h. A WRITE whose connection broke may land later. The rule of rdma/connection.h applies here too.
#include "tent/transports/tcp/tcp_backend.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tent/control/connection_name.h"
#include "tent/control/handshake.h"
#include "tent/engine/clock.h"

namespace rove::tent {

namespace {

constexpr uint64_t kTcpConnectNs = 2'000'000'000;
// After this silence a connection with slices in flight counts as broken.
constexpr uint64_t kTcpSilentNs = 3'000'000'000;
constexpr uint64_t kTcpLookNs = 100'000'000;  // interval between two checks for such connections
constexpr uint64_t kTcpDownNs = 200'000'000;  // pause after a peer did not answer
constexpr uint64_t kTcpCallNs = 2'000'000'000;

// Connects to `peer` under this number. The returned stream is open only if that succeeded.
Stream connect_data(Peer& peer, const Credentials& credentials, uint64_t number) {
    const uint64_t deadline_ns = monotonic_ns() + kTcpConnectNs;
    std::string why;
    Stream stream = open_connection(peer.segment()->data_address, Purpose::kData, credentials, deadline_ns, &why);
    TcpHello hello;
    from_hex(peer.owner(), &hello.owner);
    hello.number = number;
    TcpAnswer answer;
    const bool is_open = stream.is_open() && stream.send(&hello, sizeof(hello), deadline_ns) &&
                         stream.receive(&answer, sizeof(answer), deadline_ns) && answer.refused == 0;
    if (!is_open) stream.close();
    return stream;
}

}  // namespace

TcpChannel::TcpChannel(Shard& shard, TcpBackend& backend, Peer& peer)
    : Channel(shard.config().queues), shard_(shard), backend_(backend), peer_(peer) {}

TcpChannel::~TcpChannel() {
    backend_.forget_lanes(*this);
}

TcpChannel::Lane& TcpChannel::lane(Priority priority) {
    std::unique_ptr<Lane>& lane = lanes_[index(priority)];
    if (lane == nullptr) lane = std::make_unique<Lane>(this, index(priority));
    return *lane;
}

bool TcpChannel::available(const BufferDesc&) const {
    if (peer_.gone.load(std::memory_order_relaxed)) return false;
    const uint64_t down_until_ns = down_until_ns_.load(std::memory_order_relaxed);
    return down_until_ns == 0 || monotonic_ns() >= down_until_ns;  // the clock is read only if necessary
}

void TcpChannel::abandon(uint64_t) {
    for (uint8_t level = 0; level < kPriorities; ++level)
        while (Waiting* waiting = queues.first(level, 0xFF))
            shard_.fail_waiting(static_cast<Task&>(*waiting), Reason::kPeerGone);
}

Channel::Dispatched TcpChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    Dispatched result;
    while (Waiting* waiting = queues.first(level, allowed)) {
        const Priority priority = waiting->priority;
        if (out_bytes_[index(priority)] >= kMaxBytes || !backend_.has_room(priority, now_ns)) break;
        auto& slice = static_cast<Slice&>(*queues.take(*waiting, now_ns));
        result.moved = true;
        if (!shard_.is_wanted(slice)) {
            shard_.drop(slice);
            continue;
        }
        ++out_;
        out_bytes_[index(priority)] += slice.length;
        backend_.hand_over(lane(priority), slice, now_ns);
    }
    return result;
}

void TcpChannel::take_back(const TcpSlice& returned, uint64_t now_ns) {
    Slice& slice = *returned.slice;
    --out_;
    out_bytes_[index(slice.task->priority)] -= slice.length;
    switch (returned.outcome) {
        case TcpOutcome::kDone:
            return shard_.done(slice);
        case TcpOutcome::kRefused:
            return shard_.refused(slice);
        case TcpOutcome::kUnreachable:
            down_until_ns_.store(now_ns + kTcpDownNs);
            return shard_.move_elsewhere(slice, Transport::TCP, now_ns);
        case TcpOutcome::kBroken:
            return shard_.retry(slice, now_ns);
    }
}

void TcpChannel::open(Lane& lane) {
    lane.connection.begin_opening();
    opening_.fetch_add(1);
    shard_.jobs().add(peer_.name(), [this, &lane] {
        const uint64_t number = shard_.next_number();
        backend_.opened(lane, connect_data(peer_, shard_.credentials(), number), number);
    });
}

TcpBackend::TcpBackend(Shard& shard)
    : Backend(Transport::TCP, shard.config().queues), shard_(shard), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

TcpBackend::~TcpBackend() {
    if (epoll_ >= 0) close(epoll_);
}

std::unique_ptr<Channel> TcpBackend::open(Peer& peer, uint64_t) {
    if (peer.segment()->data_address.empty() || epoll_ < 0) return nullptr;
    auto channel = std::make_unique<TcpChannel>(shard_, *this, peer);
    add(*channel);
    return channel;
}

bool TcpBackend::has_room(Priority priority, uint64_t now_ns) {
    const uint8_t used = shard_.first_in_use(now_ns);
    return used >= index(priority) || recent_.behind(used, priority, now_ns) < kBesideBytes;
}

void TcpBackend::hand_over(TcpChannel::Lane& lane, Slice& slice, uint64_t now_ns) {
    recent_.add(static_cast<Priority>(lane.priority), slice.length, now_ns);
    out_.store(out_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    handed_over_.push_back({&lane, {.slice = &slice, .since_ns = now_ns}});
}

bool TcpBackend::progress(uint64_t now_ns) {
    if (returned_count_.load(std::memory_order_relaxed) == 0) return false;
    {
        const std::lock_guard lock(mutex_);
        std::swap(returned_, taken_);
        returned_count_.store(0, std::memory_order_relaxed);
    }
    out_.store(out_.load(std::memory_order_relaxed) - static_cast<uint32_t>(taken_.size()), std::memory_order_relaxed);
    std::map<uint64_t, std::vector<Task*>> broken;  // keyed by the number of the connection
    for (const TcpSlice& one : taken_) {
        Task& task = *one.slice->task;
        recent_.remove(task.priority, one.slice->length, one.since_ns);
        if (one.may_land) {
            shard_.add_fence(task);
            broken[one.number].push_back(&task);
        }
        static_cast<TcpChannel*>(task.peer->channel(Transport::TCP))->take_back(one, now_ns);
    }
    taken_.clear();
    for (auto& [number, tasks] : broken) close_at_peer(number, std::move(tasks));
    return true;
}

// A WRITE of a broken connection may still land, so its task waits until the peer has closed the connection.
void TcpBackend::close_at_peer(uint64_t number, std::vector<Task*> tasks) {
    const auto peer = tasks.front()->peer;
    shard_.jobs().add(peer->name(), [tasks = std::move(tasks), peer, &shard = shard_, number] {
        const ConnectionName name{peer->owner(), TcpServer::kRail, number};
        const auto closed = peer->control().call(MessageType::kClose, name.to_json(), kTcpCallNs);
        bool sure = false;
        if (closed) get(*closed, "ok", &sure);
        shard.with_lock([&] {
            for (Task* task : tasks) shard.drop_fence(*task, sure);
        });
    });
}

bool TcpBackend::work() {
    if (out_.load(std::memory_order_relaxed) == 0) return false;
    const std::unique_lock io(io_, std::try_to_lock);
    if (!io.owns_lock()) return false;
    const uint64_t now_ns = monotonic_ns();
    take_handed_over(now_ns);
    look_for_events();
    uint64_t bytes = 0;
    for (auto& ready : ready_) {
        for (size_t left = ready.size(); left != 0 && bytes < kRoundBytes; --left) {
            TcpChannel::Lane& lane = *ready.front();
            ready.pop_front();
            lane.is_ready = false;
            bytes += lane.connection.advance(kTurnBytes, now_ns, &ended_);
            if (lane.connection.has_more()) make_ready(lane);
        }
    }
    if (now_ns - silence_ns_ >= kTcpLookNs) end_silent(now_ns);
    const bool any = !ended_.empty();
    give_back();
    return any;
}

void TcpBackend::take_handed_over(uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    for (const auto& [lane, slice] : handed_over_) {
        lane->connection.add(slice, now_ns);
        if (lane->connection.state() == TcpConnection::State::kOpen) make_ready(*lane);
        if (lane->connection.state() == TcpConnection::State::kClosed) lane->channel->open(*lane);
    }
    handed_over_.clear();
}

void TcpBackend::look_for_events() {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        auto& lane = *static_cast<TcpChannel::Lane*>(events[static_cast<size_t>(i)].data.ptr);
        lane.connection.note(events[static_cast<size_t>(i)].events);
        make_ready(lane);
    }
}

void TcpBackend::end_silent(uint64_t now_ns) {
    silence_ns_ = now_ns;
    for (TcpChannel::Lane* lane : opened_) {
        TcpConnection& one = lane->connection;
        if (one.state() == TcpConnection::State::kOpen && one.has_slices() && now_ns - one.moved_ns() >= kTcpSilentNs)
            one.end(&ended_);
    }
}

void TcpBackend::make_ready(TcpChannel::Lane& lane) {
    if (lane.is_ready) return;
    lane.is_ready = true;
    ready_[lane.priority].push_back(&lane);
}

void TcpBackend::give_back() {
    if (ended_.empty()) return;
    const std::lock_guard lock(mutex_);
    returned_.insert(returned_.end(), ended_.begin(), ended_.end());
    returned_count_.store(returned_.size(), std::memory_order_relaxed);
    ended_.clear();
}

void TcpBackend::opened(TcpChannel::Lane& lane, Stream stream, uint64_t number) {
    const std::lock_guard io(io_);
    if (stream.is_open()) {
        epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = &lane}};
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, stream.fd(), &event) != 0) stream.close();
    }
    lane.connection.open(std::move(stream), number, monotonic_ns(), &ended_);
    if (std::find(opened_.begin(), opened_.end(), &lane) == opened_.end()) opened_.push_back(&lane);
    make_ready(lane);
    give_back();
    lane.channel->opening_.fetch_sub(1);  // the channel may be destroyed once the lock is released
}

void TcpBackend::forget_lanes(TcpChannel& channel) {
    const std::lock_guard io(io_);
    for (const auto& lane : channel.lanes_) {
        if (lane == nullptr) continue;
        std::erase(ready_[lane->priority], lane.get());
        std::erase(opened_, lane.get());
    }
}

}  // namespace rove::tent
