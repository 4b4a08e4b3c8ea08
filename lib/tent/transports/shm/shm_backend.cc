// SPDX-License-Identifier: Apache-2.0
// See shm_backend.h.
#include "tent/transports/shm/shm_backend.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace rove::tent {

namespace {

constexpr uint64_t kRoundBytes = 1 << 20;  // copied before others have their turn: some 100 us

}  // namespace

ShmChannel::ShmChannel(Core& core, Peer&)
    : Channel(core.config().rdma.queues),
      core_(core) {}

ShmChannel::~ShmChannel() {
    for (const auto& [name, mapping] : mappings_)
        if (mapping.address != nullptr) munmap(mapping.address, mapping.length);
}

uint8_t* ShmChannel::place(const Slice& slice) {
    const BufferDesc& buffer = *slice.task->remote;
    auto [at, is_new] = mappings_.try_emplace(buffer.shm);
    Mapping& mapping = at->second;
    if (is_new) {
        const int access = buffer.writable ? O_RDWR : O_RDONLY;
        const int fd = shm_open(buffer.shm.c_str(), access | O_CLOEXEC, 0);
        struct stat status{};
        if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0) {
            mapping.length = static_cast<uint64_t>(status.st_size);
            void* mapped =
                mmap(nullptr, mapping.length, PROT_READ | (buffer.writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
            if (mapped != MAP_FAILED) mapping.address = static_cast<uint8_t*>(mapped);
        }
        if (fd >= 0) close(fd);
    }
    const uint64_t offset = buffer.shm_offset + (slice.remote - buffer.address);
    if (mapping.address == nullptr || offset + slice.length > mapping.length) return nullptr;
    return mapping.address + offset;
}

bool ShmChannel::dispatch(uint8_t allowed, uint64_t now_ns) {
    queues.promote(now_ns);
    uint64_t copied = 0;
    while (copied < kRoundBytes) {
        auto* slice = static_cast<Slice*>(queues.pop(allowed, now_ns));
        if (slice == nullptr) break;
        if (!core_.is_wanted(*slice, now_ns)) continue;
        uint8_t* remote = place(*slice);
        if (remote == nullptr) {
            core_.move_elsewhere(*slice, Transport::kShm, now_ns);
            continue;
        }
        copied += slice->length;
        if (slice->task->direction == Direction::kWrite) {
            std::memcpy(remote, slice->local, slice->length);
        } else {
            std::memcpy(slice->local, remote, slice->length);
        }
        core_.done(*slice);
    }
    return copied != 0;
}

void ShmChannel::abandon(uint64_t now_ns) {
    while (auto* slice = static_cast<Slice*>(queues.pop(0xFF, now_ns))) core_.fail(*slice);
}

std::unique_ptr<Channel> ShmBackend::open(Peer& peer, uint64_t) {
    if (!peer.segment()->same_machine || peer.is_file()) return nullptr;
    auto channel = std::make_unique<ShmChannel>(core_, peer);
    channels_.push_back(channel.get());
    return channel;
}

void ShmBackend::forget(Channel& channel) {
    std::erase(channels_, &static_cast<ShmChannel&>(channel));
}

bool ShmBackend::quiet() {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const ShmChannel* channel) { return channel->queues.empty(); });
}

bool ShmBackend::progress(uint64_t now_ns) {
    bool moved = false;
    for (ShmChannel* channel : channels_) moved |= channel->dispatch(core_.allowed(now_ns), now_ns);
    return moved;
}

}  // namespace rove::tent
