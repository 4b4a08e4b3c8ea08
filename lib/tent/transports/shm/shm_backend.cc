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

Channel::Dispatched ShmChannel::dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) {
    uint64_t copied = 0;
    while (copied < kRoundBytes) {
        Waiting* waiting = queues.first(level, allowed);
        if (waiting == nullptr) return {.moved = copied != 0};
        auto& task = static_cast<Task&>(*waiting);
        const auto& next = static_cast<const Slice&>(*waiting->first);
        const bool wanted = core_.is_wanted(next);
        uint8_t* remote = wanted ? place(next) : nullptr;
        if (wanted && remote == nullptr) {
            core_.move_waiting(task, Transport::kShm, now_ns);
            continue;
        }
        auto& slice = static_cast<Slice&>(*queues.take(task, now_ns));
        if (!wanted) {
            core_.drop(slice);
            continue;
        }
        copied += slice.length;
        if (task.direction == Direction::kWrite) {
            std::memcpy(remote, slice.local, slice.length);
        } else {
            std::memcpy(slice.local, remote, slice.length);
        }
        core_.done(slice);
    }
    return {.moved = true, .more = true};
}

void ShmChannel::abandon(uint64_t) {
    for (uint8_t level = 0; level < kPriorities; ++level)
        while (Waiting* waiting = queues.first(level, 0xFF))
            core_.fail_waiting(static_cast<Task&>(*waiting), Reason::kPeerGone);
}

std::unique_ptr<Channel> ShmBackend::open(Peer& peer, uint64_t) {
    if (!peer.segment()->same_machine || peer.is_file()) return nullptr;
    auto channel = std::make_unique<ShmChannel>(core_, peer);
    add(*channel);
    return channel;
}

}  // namespace rove::tent
