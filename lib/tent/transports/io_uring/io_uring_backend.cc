// SPDX-License-Identifier: Apache-2.0
// See io_uring_backend.h.
#include "tent/transports/io_uring/io_uring_backend.h"

#include <algorithm>
#include <cstring>

#include "tent/clock.h"
#include "tent/peer.h"
#include "tent/transports/io_uring/file.h"

namespace rove::tent {

namespace {

constexpr uint64_t kRoundBytes =
    1 << 20;  // begun before others have their turn: what the page cache has is copied at once

}  // namespace

FileChannel::FileChannel(Core& core)
    : Channel(core.config().rdma.queues) {}

IoUringBackend::~IoUringBackend() {
    if (started_) io_uring_queue_exit(&ring_);
}

Status IoUringBackend::start() {
    if (started_) return {};
    const int result = io_uring_queue_init(kDeep, &ring_, 0);
    if (result < 0) return {Code::kInternalError, std::string("transport io_uring: ") + std::strerror(-result)};
    started_ = true;
    return {};
}

std::unique_ptr<Channel> IoUringBackend::open(Peer& peer, uint64_t) {
    if (peer.segment()->kind != SegmentKind::kFile) return nullptr;
    auto channel = std::make_unique<FileChannel>(core_);
    channels_.push_back(channel.get());
    return channel;
}

void IoUringBackend::forget(Channel& channel) {
    while (!channel.idle()) {
        io_uring_submit_and_wait(&ring_, 1);
        reap(monotonic_ns());
    }
    std::erase(channels_, &static_cast<FileChannel&>(channel));
}

bool IoUringBackend::quiet() {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const FileChannel* channel) { return channel->idle() && channel->queues.empty(); });
}

bool IoUringBackend::progress(uint64_t now_ns) {
    if (channels_.empty()) return false;
    bool moved = out_ != 0 && reap(now_ns);
    const uint8_t allowed = core_.allowed(now_ns);
    for (size_t i = 0; i < channels_.size(); ++i)
        moved |= begin(*channels_[(first_ + i) % channels_.size()], allowed, now_ns);
    first_ = (first_ + 1) % channels_.size();
    return moved;
}

bool IoUringBackend::begin(FileChannel& channel, uint8_t allowed, uint64_t now_ns) {
    channel.queues.promote(now_ns);
    uint64_t begun = 0;
    while (out_ < kDeep && begun < kRoundBytes) {
        auto* slice = static_cast<Slice*>(channel.queues.pop(allowed, now_ns));
        if (slice == nullptr) break;
        if (!core_.is_wanted(*slice, now_ns)) continue;
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // the queue holds kDeep
        const int fd = slice->task->segment->file->fd();
        const auto length = static_cast<unsigned>(slice->length);
        if (slice->task->direction == Direction::kWrite) {
            io_uring_prep_write(sqe, fd, slice->local, length, slice->remote);
        } else {
            io_uring_prep_read(sqe, fd, slice->local, length, slice->remote);
        }
        io_uring_sqe_set_data(sqe, slice);
        begun += slice->length;
        ++out_;
        ++channel.out_;
    }
    // What the kernel does not take now, having no memory, stays in the ring for the next round.
    if (io_uring_sq_ready(&ring_) != 0) io_uring_submit(&ring_);
    return begun != 0;
}

bool IoUringBackend::reap(uint64_t now_ns) {
    bool moved = false;
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        auto& slice = *static_cast<Slice*>(io_uring_cqe_get_data(cqe));
        const int result = cqe->res;
        io_uring_cqe_seen(&ring_, cqe);
        --out_;
        --static_cast<FileChannel*>(slice.task->peer->channel(Transport::kIoUring))->out_;
        moved = true;
        // Less than it should be: interrupted, or the file was cut off meanwhile, which more attempts show.
        if (result >= 0 && static_cast<uint64_t>(result) == slice.length) {
            core_.done(slice);
        } else {
            core_.retry(slice, now_ns);
        }
    }
    return moved;
}

}  // namespace rove::tent
