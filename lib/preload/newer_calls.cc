// SPDX-License-Identifier: Apache-2.0
// See newer_calls.h.
#include "preload/newer_calls.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

#include "verbs/objects.h"
#include "verbs/process_provider.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

struct Buffer {
    ibv_pd* pd = nullptr;
    std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
    size_t size = 0;

    bool contains(const void* address, size_t length) const {
        const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(memory.get());
        return offset <= size && length <= size - offset;
    }
};

// Returns the buffers by handle, which is their address. The caller holds fork_mutex(), because a child may free its
// parent's buffers.
auto& buffers() {
    // Not destroyed, because programs free theirs in destructors.
    static auto* const all = new std::unordered_map<const ibv_buf*, std::unique_ptr<Buffer>>;
    return *all;
}

}  // namespace

void* alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) try {
    auto buffer = std::make_unique<Buffer>();
    void* memory = nullptr;
    if (posix_memalign(&memory, static_cast<size_t>(sysconf(_SC_PAGESIZE)), size) != 0) return fail<void>(ENOMEM);
    buffer->memory.reset(memory);
    buffer->pd = pd;
    buffer->size = size;
    auto* const handle = reinterpret_cast<ibv_buf*>(buffer.get());
    const std::lock_guard guard(fork_mutex());
    buffers().emplace(handle, std::move(buffer));
    *buf = handle;
    return memory;
} catch (const std::bad_alloc&) {
    return fail<void>(ENOMEM);
}

void free_buf(ibv_buf* buf) {
    const std::lock_guard guard(fork_mutex());
    buffers().erase(buf);
}

bool is_ours(const ibv_buf* buf) {
    const std::lock_guard guard(fork_mutex());
    return buffers().contains(buf);
}

ibv_mr* reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, size_t length, int access) {
    return reg_mr_ex(pd, {.length = length,
                          .access = access,
                          .comp_mask = kMrHasBuffer | kMrHasAddress,
                          .iova = 0,
                          .addr = address,
                          .fd = -1,
                          .fd_offset = 0,
                          .dmah = nullptr,
                          .buf = buf});
}

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attr) {
    const auto has = [&](uint64_t bit) { return (attr.comp_mask & bit) != 0; };
    // DMA handles are not offered.
    if ((attr.comp_mask & ~(kMrHasIova | kMrHasAddress | kMrHasFd | kMrHasFdOffset | kMrHasBuffer)) != 0)
        return fail<ibv_mr>(EOPNOTSUPP);
    if (has(kMrHasBuffer)) {
        // A buffer's part is registered by its address, in the buffer's protection domain (man ibv_alloc_buf).
        if (!has(kMrHasAddress) || has(kMrHasFd)) return fail<ibv_mr>(EINVAL);
        const std::lock_guard guard(fork_mutex());
        const auto found = buffers().find(attr.buf);
        if (found == buffers().end() || found->second->pd != pd || !found->second->contains(attr.addr, attr.length)) {
            return fail<ibv_mr>(EINVAL);
        }
    }
    // Memory is given either by an address or by a dma-buf.
    if (has(kMrHasAddress) == has(kMrHasFd) || (has(kMrHasFdOffset) && !has(kMrHasFd))) return fail<ibv_mr>(EINVAL);
    if (has(kMrHasFd)) {
        const uint64_t offset = has(kMrHasFdOffset) ? attr.fd_offset : 0;
        return reg_dmabuf_mr(pd, offset, attr.length, has(kMrHasIova) ? attr.iova : offset, attr.fd, attr.access);
    }
    const uint64_t iova = has(kMrHasIova) ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
    return reg_mr(pd, attr.addr, attr.length, iova, static_cast<unsigned>(attr.access));
}

}  // namespace rove::verbs
