// SPDX-License-Identifier: Apache-2.0
// What the kernel would tell about our devices below /sys/class/infiniband, /sys/class/infiniband_verbs and
// /dev/infiniband, as files of a private folder: real ones, so that opening, listing, resolving and reading them is the
// C library's business. Programs look there for the types of GIDs, the NUMA node, the rate.
//
// The folder is made when a program first looks, in TMPDIR or /tmp, and removed at exit. What killed processes leave is
// swept by the next that makes one: each holds a lock on its own.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <string_view>

namespace rove::verbs {

class Provider;

class Sysfs {
  public:
    // Whether instead() may have another answer than the path itself. For every path that a program uses, so cheap.
    static bool concerns(const char* path) {
        using std::string_view;
        if (path == nullptr || path[0] != '/' || (path[1] != 's' && path[1] != 'd')) return false;
        return string_view(path).starts_with(kClass) || string_view(path).starts_with(kDevices);
    }

    // The file that stands for `path`, of our devices only: a listing has those of the hardware beside. "" if the path
    // means itself. Any thread.
    std::string instead(Provider& provider, const char* path);

    // At exit.
    void remove();

    // For pthread_atfork().
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }

  private:
    static constexpr std::string_view kClass = "/sys/class/infiniband", kDevices = "/dev/infiniband";

    bool exists() const;
    bool make();

    std::mutex mutex_;
    std::string folder_;   // "" until it is made
    pid_t pid_ = 0;        // that made it
    int file_ = -1;        // of the folder, locked
    std::string written_;  // what the files depend on, as they are
};

// What librdmacm opens to reach the kernel. That it is there is told by a file, too.
inline constexpr const char* kRdmaCmDevice = "/dev/infiniband/rdma_cm";

// Names of the character device that would be a device's in /dev/infiniband.
std::string uverbs_name(std::string_view device);

}  // namespace rove::verbs
