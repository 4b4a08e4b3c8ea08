// SPDX-License-Identifier: Apache-2.0
// The exported calls that make and take lists of devices: rove's behind those that the real library finds.
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

// A list as programs get it, behind the real library's list that it contains.
struct MergedList {
    ibv_device** real;
    ibv_device* devices[];
};

std::set<ibv_device**>& lists() {                      // under fork_mutex()
    static auto& lists = *new std::set<ibv_device**>;  // not destroyed before the last program's destructor
    return lists;
}

// The real library makes its list under a lock of its own, which a child finds held if a thread made one when the
// process forked. It is not taken in prepare: the real library loads drivers under it, and a constructor may fork.
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
    // DPDK's mlx4 and mlx5 drivers look for their hardware with this call while our datapath starts: they get only
    // that.
    ibv_device** list =
        rove::datapath::Runtime::on_eal_thread() ? found : merge(found, found != nullptr ? count : 0, &count);
    errno = list != nullptr ? errno_before : reason;  // why the real library found none
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
    // The real library would look for the device among those of its list, and ours are not of its making. The cmd_fd of
    // our contexts is /dev/null (device.cc).
    struct stat file;
    if (fstat(cmd_fd, &file) != 0) return nullptr;
    if (S_ISCHR(file.st_mode) && file.st_rdev == makedev(1, 3)) return fail<ibv_context>(EOPNOTSUPP);
    return ROVE_REAL(ibv_import_device)(cmd_fd);
}

}  // extern "C"
