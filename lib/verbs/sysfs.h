// SPDX-License-Identifier: Apache-2.0
// What the kernel would tell about our devices below /sys/class/infiniband, /sys/class/infiniband_verbs and
// /dev/infiniband, as files of a private folder: real ones, so that opening, listing, resolving and reading them is the
// C library's business. Programs look there for the types of GIDs, the NUMA node, the rate.
//
// The folder is made when a program first looks, in TMPDIR or /tmp, and removed at exit. What killed processes leave is
// swept by the next that makes one: each holds a lock on its own. A program that changes its folder to one of ours, or
// opens it, is in the private folder. The kernel finds the names that are relative to it; only those that lead out of
// it, by "..", mean what they would mean in /sys.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

namespace rove::verbs {

class Provider;

class Sysfs {
  public:
    // Returns true if instead() may have another answer than the path itself. For every path that a program uses, so
    // cheap; allocates nothing, since allocators look at files while they start.
    static bool concerns(std::string_view path) {
        if (path.starts_with('/') && (path.size() < 2 || std::string_view("sd/.").find(path[1]) == path.npos))
            return false;
        return path.starts_with("..") || path.find("infiniband") != path.npos || path.ends_with("rdma_cm");
    }

    // The file that stands for `path`, of our devices only: a listing has those of the hardware beside. "" if the path
    // means itself. A path that is relative begins in `folder`, a descriptor or AT_FDCWD. Any thread.
    std::string instead(Provider& (*provider)(), int folder, std::string_view path);
    // Returns true if `path` is what librdmacm opens to reach the kernel.
    static bool is_rdma_cm(int folder, std::string_view path);

    // At exit.
    void remove();

    // For pthread_atfork().
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }

  private:
    // Returns the path in the private folder that stands for this absolute path, or "".
    std::string instead(Provider& provider, const std::string& path);
    bool exists() const;
    bool make();

    std::mutex mutex_;
    std::string folder_;          // "" until it is made
    std::atomic<pid_t> pid_ = 0;  // that made it
    int file_ = -1;               // of the folder, locked
    std::string written_;         // what the files depend on, as they are
};

// What librdmacm opens to reach the kernel. That it is there is told by a file, too.
inline constexpr const char* kRdmaCmDevice = "/dev/infiniband/rdma_cm";

// Names of the character device that would be a device's in /dev/infiniband.
std::string uverbs_name(std::string_view device);

}  // namespace rove::verbs
