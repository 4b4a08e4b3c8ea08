// SPDX-License-Identifier: Apache-2.0
// See io_uring_backend.h.
#include "tent/transports/io_uring/io_uring_backend.h"

#include <algorithm>
#include <cstring>

#include "tent/engine/clock.h"
#include "tent/engine/peer.h"
#include "tent/transports/io_uring/file.h"

namespace rove::tent {

namespace {

// The bytes begun before others have their turn, since data in the page cache is copied at once.
constexpr uint64_t kRoundBytes = 1 << 20;
constexpr uint64_t kKernelLookNs = 20'000'000;  // interval between two checks of the slices in the kernel
constexpr uint64_t kCancel = UINT64_MAX;        // user data of a cancellation

}  // namespace

Channel::Dispatched FileChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    return backend_.begin(*this, level, allowed, now_ns);
}

IoUringBackend::~IoUringBackend() {
    if (started_) io_uring_queue_exit(&ring_);
}

Status IoUringBackend::start() {
    if (started_) return {};
    const int result = io_uring_queue_init(2 * kDeep, &ring_, 0);
    if (result < 0) return {Code::kInternalError, std::string("transport io_uring: ") + std::strerror(-result)};
    started_ = true;
    return {};
}

std::unique_ptr<Channel> IoUringBackend::open(Peer& peer, uint64_t) {
    if (peer.segment()->kind != SegmentKind::kFile) return nullptr;
    auto channel = std::make_unique<FileChannel>(shard_, *this);
    add(*channel);
    return channel;
}

void IoUringBackend::forget(Channel& channel) {
    while (!channel.idle()) {
        io_uring_submit_and_wait(&ring_, 1);
        reap(monotonic_ns());
    }
    remove(channel);
}

bool IoUringBackend::is_idle() {
    return out_ == 0 && nothing_waits();
}

bool IoUringBackend::progress(uint64_t now_ns) {
    if (out_ == 0) return false;
    if (now_ns - looked_ns_ >= kKernelLookNs) ask_back(now_ns);
    return reap(now_ns);
}

Channel::Dispatched IoUringBackend::begin(FileChannel& channel, uint8_t level, uint8_t allowed, uint64_t now_ns) {
    Channel::Dispatched result;
    uint64_t begun = 0;
    while (out_ < kDeep && begun < kRoundBytes) {
        Waiting* waiting = channel.queues.first(level, allowed);
        if (waiting == nullptr) break;
        auto& slice = static_cast<Slice&>(*channel.queues.take(*waiting, now_ns));
        result.moved = true;
        if (!shard_.is_wanted(slice)) {
            shard_.drop(slice);
            continue;
        }
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // the queue holds more than kDeep
        const int fd = slice.task->segment->file->fd();
        const auto length = static_cast<unsigned>(slice.length);
        if (slice.task->is_write) {
            io_uring_prep_write(sqe, fd, slice.local, length, slice.remote);
        } else {
            io_uring_prep_read(sqe, fd, slice.local, length, slice.remote);
        }
        const auto place =
            static_cast<size_t>(std::find(with_kernel_.begin(), with_kernel_.end(), nullptr) - with_kernel_.begin());
        with_kernel_[place] = &slice;
        io_uring_sqe_set_data64(sqe, place);
        begun += slice.length;
        ++out_;
        ++channel.out_;
    }
    result.more = begun >= kRoundBytes;
    // An entry that the kernel does not accept now for lack of memory stays in the ring for the next round.
    if (io_uring_sq_ready(&ring_) != 0) io_uring_submit(&ring_);
    return result;
}

void IoUringBackend::ask_back(uint64_t now_ns) {
    looked_ns_ = now_ns;
    for (size_t place = 0; place < kDeep; ++place) {
        Slice* slice = with_kernel_[place];
        if (slice == nullptr || now_ns < slice->task->progress_ns + shard_.max_timeout_ns()) continue;
        shard_.time_out(*slice->task, Reason::kNoProgress);
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        if (sqe == nullptr) break;
        io_uring_prep_cancel64(sqe, place, 0);
        io_uring_sqe_set_data64(sqe, kCancel);
    }
    if (io_uring_sq_ready(&ring_) != 0) io_uring_submit(&ring_);
}

bool IoUringBackend::reap(uint64_t now_ns) {
    bool moved = false;
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        const uint64_t place = io_uring_cqe_get_data64(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(&ring_, cqe);
        if (place == kCancel) continue;
        Slice& slice = *with_kernel_[place];
        with_kernel_[place] = nullptr;
        --out_;
        --static_cast<FileChannel*>(slice.task->peer->channel(Transport::IOURING))->out_;
        moved = true;
        // A short count means an interruption, or that the file was truncated meanwhile. Further attempts tell which.
        if (result >= 0 && static_cast<uint64_t>(result) == slice.length) {
            shard_.done(slice);
        } else if (shard_.is_wanted(slice)) {
            shard_.retry(slice, now_ns);
        } else {
            shard_.drop(slice);
        }
    }
    return moved;
}

}  // namespace rove::tent
