// SPDX-License-Identifier: Apache-2.0
// The exported calls that make and use device lists. rove's devices follow those that the real library finds.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "base/libc.h"
#include "preload/ownership.h"
#include "preload/real.h"
#include "runtime/runtime.h"
#include "verbs/process_provider.h"

#undef ibv_get_device_list

namespace rove::verbs {

namespace {

// A list as programs see it (`devices`), preceded by the real library's list that it includes.
struct MergedList {
    ibv_device** real;
    ibv_device* devices[];
};

// Returns the merged lists that programs hold. The caller holds fork_mutex().
std::set<ibv_device**>& lists() {
    // Not destroyed before the last destructor of the program.
    static auto& lists = *new std::set<ibv_device**>;
    return lists;
}

// The real library makes its list under a lock of its own. If a thread was making one during a fork, the child finds
// that lock held. The lock cannot be taken before a fork: the real library loads drivers under it, and a driver's
// constructor may fork.
constinit std::atomic<int> making_real_lists{0};
constinit std::atomic<bool> is_real_list_lost{false};

ibv_device** real_list(int* count) {
    if (is_real_list_lost.load() || (making_real_lists.load() != 0 && provider().is_forked_child()))
        return fail<ibv_device*>(ENODEV);
    making_real_lists.fetch_add(1);
    ibv_device** const found = ROVE_REAL(ibv_get_device_list)(count);
    making_real_lists.fetch_sub(1);
    return found;
}

ibv_device** merge(ibv_device** found, int found_count, int* count) {
    const auto ours = provider().devices();
    if (ours.empty()) {
        *count = found_count;
        return found;
    }
    const size_t total = static_cast<size_t>(found_count) + ours.size();
    auto* merged = static_cast<MergedList*>(std::calloc(1, sizeof(MergedList) + (total + 1) * sizeof(ibv_device*)));
    if (merged == nullptr) {
        if (found != nullptr) ROVE_REAL(ibv_free_device_list)(found);
        return fail<ibv_device*>(ENOMEM);
    }
    merged->real = found;
    for (int i = 0; i < found_count; ++i) merged->devices[i] = found[i];
    for (size_t i = 0; i < ours.size(); ++i) merged->devices[static_cast<size_t>(found_count) + i] = ours[i].get();
    std::lock_guard guard(fork_mutex());
    lists().insert(merged->devices);
    *count = static_cast<int>(total);
    return merged->devices;
}

}  // namespace

void leave_lists_in_child() {
    is_real_list_lost.store(making_real_lists.load() != 0);
}

}  // namespace rove::verbs

using namespace rove::verbs;

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
    const rove::libc::NoCancellation uncancelled;
    const int errno_before = errno;
    int count = 0;
    ibv_device** found = real_list(&count);
    const int reason = errno;
    // DPDK's mlx4 and mlx5 drivers look for their hardware with this call while the datapath starts. They get the real
    // list only.
    ibv_device** list =
        rove::datapath::Runtime::on_eal_thread() ? found : merge(found, found != nullptr ? count : 0, &count);
    errno = list != nullptr ? errno_before : reason;  // the real library's reason for finding no device
    if (num_devices != nullptr) *num_devices = list != nullptr ? count : 0;
    return list;
}

void ibv_free_device_list(ibv_device** list) {
    {
        std::lock_guard guard(fork_mutex());
        if (lists().erase(list) == 0) return ROVE_REAL(ibv_free_device_list)(list);
    }
    auto* merged = reinterpret_cast<MergedList*>(reinterpret_cast<uint8_t*>(list) - offsetof(MergedList, devices));
    if (merged->real != nullptr) ROVE_REAL(ibv_free_device_list)(merged->real);
    std::free(merged);
}

ibv_context* ibv_import_device(int cmd_fd) {
    // The real library would search its own list for the device, and rove's devices are not in it. The cmd_fd of rove's
    // contexts is /dev/null (device.cc).
    struct stat file;
    if (fstat(cmd_fd, &file) != 0) return nullptr;
    if (S_ISCHR(file.st_mode) && file.st_rdev == makedev(1, 3)) return fail<ibv_context>(EOPNOTSUPP);
    return ROVE_REAL(ibv_import_device)(cmd_fd);
}

}  // extern "C"
