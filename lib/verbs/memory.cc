// SPDX-License-Identifier: Apache-2.0
// Memory regions.
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <new>
#include <span>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

constexpr unsigned kSupportedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                      IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND | transport::kAccessFlushGlobal;
constexpr unsigned kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// Returns true if mappings with sufficient permissions cover [begin, end). For kernels and mappings that cannot be
// populated.
bool is_mapped(uintptr_t begin, uintptr_t end, bool writable) {
    const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), &std::fclose);
    if (maps == nullptr) return true;  // no way to check
    char line[512];
    uintptr_t covered = begin;
    while (covered < end && std::fgets(line, sizeof(line), maps.get()) != nullptr) {
        uintptr_t low, high;
        char permissions[5];
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &low, &high, permissions) != 3) continue;
        if (high <= covered) continue;
        if (low > covered || permissions[0] != 'r' || (writable && permissions[1] != 'w')) return false;
        covered = high;
    }
    return covered >= end;
}

// Does what pinning does for a NIC: brings the pages in and refuses addresses that are not mapped, so that a worker
// that copies to them later does not fault. Returns 0, EFAULT or ENOMEM.
int populate(void* address, size_t length, bool writable) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~(page - 1);
    const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + length + page - 1) & ~(page - 1);
    if (end <= begin) return EFAULT;
    if (madvise(reinterpret_cast<void*>(begin), end - begin, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) ==
        0) {
        return 0;
    }
    // EINVAL means an old kernel, a device's memory, or a mapping that is not writable. Only the last is an error.
    if (errno == EINVAL || errno == ENOMEM)
        return is_mapped(begin, end, writable) ? (errno == ENOMEM ? ENOMEM : 0) : EFAULT;
    return EFAULT;
}

// Returns EINVAL for rights that contradict each other or do not exist. Optional rights may be ignored (man
// ibv_reg_mr).
int check_access(unsigned access) {
    access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    if ((access & ~kSupportedAccess) != 0) return EINVAL;
    if ((access & kNeedsLocalWrite) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
    return 0;
}

int check_range(void* address, size_t length, unsigned access) {
    // The whole address space means implicit on-demand paging, which is not offered.
    if ((access & IBV_ACCESS_ON_DEMAND) != 0 && address == nullptr && length == SIZE_MAX) return EOPNOTSUPP;
    if (length == 0 || reinterpret_cast<uintptr_t>(address) + length < length) return EINVAL;
    // A page that is missing when it is used counts as memory that was unmapped.
    if ((access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
    return populate(address, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
    int error = check_access(access);
    if (error == 0) error = check_range(address, length, access);
    if (error != 0) return fail<ibv_mr>(error);

    datapath::Runtime::guard_memory();
    auto mr = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (mr == nullptr) return fail<ibv_mr>(ENOMEM);
    mr->region.reset(new (std::nothrow) transport::Region{.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova,
                                                          .length = length,
                                                          .host = static_cast<uint8_t*>(address),
                                                          .access = static_cast<int>(access),
                                                          .pd = &from(pd)});
    if (mr->region == nullptr || !context_of(*pd).runtime->memory().insert(*mr->region)) return fail<ibv_mr>(ENOMEM);
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->handle = mr->lkey = mr->rkey = mr->region->key;
    retain(pd);
    return mr.release();
}

int rereg_mr(ibv_mr* handle, int flags, ibv_pd* pd, void* address, size_t length, int access) {
    Mr& mr = from(handle);
    const bool change_range = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool change_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    const bool change_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    const unsigned new_access =
        change_access ? static_cast<unsigned>(access) : static_cast<unsigned>(mr.region->access);
    // IBV_REREG_MR_ERR_INPUT says that the old region is still valid (man ibv_rereg_mr), which holds after every error
    // here. The kernel's drivers return IBV_REREG_MR_ERR_CMD for inconsistent access flags, which says that the region
    // must not be used any more.
    const auto input_error = [](int error) {
        errno = error;
        return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
    };
    if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return input_error(EINVAL);
    if (change_range && (address == nullptr || length == 0)) return input_error(EINVAL);
    if (!change_access && access != 0) return input_error(EINVAL);
    if (change_pd && (pd == nullptr || pd->context != mr.context)) return input_error(EINVAL);
    int error = check_access(new_access);
    if (error == 0 && (change_range || change_access)) {
        error = check_range(change_range ? address : mr.addr, change_range ? length : mr.length, new_access);
    }
    if (error != 0) return input_error(error);

    // A new region replaces the old one under the same key: workers see one or the other.
    const transport::Region& before = *mr.region;
    std::unique_ptr<transport::Region> region(
        new (std::nothrow) transport::Region{.iova = before.iova,
                                             .length = change_range ? length : before.length,
                                             .host = change_range ? static_cast<uint8_t*>(address) : before.host,
                                             .access = static_cast<int>(new_access),
                                             .pd = change_pd ? &from(pd) : before.pd});
    if (region == nullptr) return input_error(ENOMEM);
    if ((new_access & IBV_ACCESS_ZERO_BASED) != 0)
        region->iova = 0;
    else if (change_range || (before.access & IBV_ACCESS_ZERO_BASED) != 0)
        region->iova = reinterpret_cast<uintptr_t>(region->host);
    if (!from(mr.context).runtime->memory().replace(*mr.region, *region)) return input_error(EBUSY);
    mr.region = std::move(region);
    if (change_range) {
        mr.addr = address;
        mr.length = length;
    }
    if (change_pd && pd != mr.pd) {
        release(mr.pd);
        retain(pd);
        mr.pd = pd;
    }
    return 0;
}

int dereg_mr(ibv_mr* handle) {
    Mr& mr = from(handle);
    if (!from(mr.context).runtime->memory().remove(*mr.region)) return EBUSY;
    if (mr.mapping != nullptr) munmap(mr.mapping, mr.mapping_bytes);
    release(mr.pd);
    delete &mr;
    return 0;
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    // NCCL and UCX pass no descriptor to ask whether GPU memory can be registered. With this error they use host memory
    // instead. After EBADF they would try to register, and fail, because a CPU cannot map a GPU's buffers.
    if (fd < 0) return fail<ibv_mr>(EOPNOTSUPP);
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t skipped = offset % page;
    if (length == 0 || length + skipped < length || offset + length < length) return fail<ibv_mr>(EINVAL);
    struct statfs file {};
    if (fstatfs(fd, &file) != 0) return nullptr;
    if (file.f_type != DMA_BUF_MAGIC) return fail<ibv_mr>(EINVAL);
    // A dma-buf is a special kind of file, and the kernel accepts no other.
    const int protection = PROT_READ | ((access & IBV_ACCESS_LOCAL_WRITE) != 0 ? PROT_WRITE : 0);
    void* const mapping =
        mmap(nullptr, length + skipped, protection, MAP_SHARED, fd, static_cast<off_t>(offset - skipped));
    constexpr int kNotSupported = 524;  // the kernel's ENOTSUPP, without a text in libraries: the driver cannot map it
    if (mapping == MAP_FAILED) return fail<ibv_mr>(errno == kNotSupported ? EOPNOTSUPP : errno);
    ibv_mr* mr = reg_mr(pd, static_cast<uint8_t*>(mapping) + skipped, length, iova, static_cast<unsigned>(access));
    if (mr == nullptr) {
        const int error = errno;
        munmap(mapping, length + skipped);
        return fail<ibv_mr>(error);
    }
    from(mr).mapping = mapping;
    from(mr).mapping_bytes = length + skipped;
    mr->addr = reinterpret_cast<void*>(static_cast<uintptr_t>(offset));
    return mr;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
    auto mr = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (mr == nullptr) return fail<ibv_mr>(ENOMEM);
    mr->region.reset(new (std::nothrow)
                         transport::Region{.access = IBV_ACCESS_LOCAL_WRITE, .pd = &from(pd), .is_null = true});
    if (mr->region == nullptr || !context_of(*pd).runtime->memory().insert(*mr->region)) return fail<ibv_mr>(ENOMEM);
    mr->context = pd->context;
    mr->pd = pd;
    mr->handle = mr->lkey = mr->rkey = mr->region->key;
    retain(pd);
    return mr.release();
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
    if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
        advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return EOPNOTSUPP;
    }
    if ((flags & ~static_cast<uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 || count == 0) return EINVAL;
    const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    transport::MemoryTable& memory = context_of(*pd).runtime->memory();
    for (const ibv_sge& sge : std::span(list, count)) {
        uint8_t* at = memory.locate(sge.lkey, sge.addr, sge.length, writes ? IBV_ACCESS_LOCAL_WRITE : 0, &from(pd));
        if (at == nullptr) return EFAULT;
        if (sge.length == 0 || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) continue;
        if (populate(at, sge.length, writes) != 0) return EFAULT;
    }
    return 0;
}

}  // namespace rove::verbs
