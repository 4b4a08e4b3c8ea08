// SPDX-License-Identifier: Apache-2.0
// Files that describe rove's devices as the kernel would below /sys/class/infiniband, /sys/class/infiniband_verbs and
// /dev/infiniband. They are real files in a private folder, so that the C library opens, lists, resolves and reads them
// as usual. Programs look there for the types of GIDs, the NUMA node, and the rate.
//
// The folder is made in TMPDIR or /tmp when a program first uses such a path, and removed at exit. Each process holds a
// lock on its folder, and the next process that makes one removes the folders of killed ones. A program that changes
// its working directory to such a folder, or opens one, is in the private folder, where the kernel resolves relative
// names. Only names that leave it through ".." are resolved here, as they would be in /sys.
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
    // Returns true if instead() may return something for this path. Called for every path that a program uses, so it is
    // cheap. It allocates nothing, because allocators read files while they start.
    static bool concerns(std::string_view path) {
        if (path.starts_with('/') && (path.size() < 2 || std::string_view("sd/.").find(path[1]) == path.npos))
            return false;
        return path.starts_with("..") || path.find("infiniband") != path.npos || path.ends_with("rdma_cm");
    }

    // Returns the private file for `path`, which may list hardware devices as well, or "" if the path itself is used. A
    // relative path starts in `folder`, a descriptor or AT_FDCWD. Any thread may call it.
    std::string instead(Provider& (*provider)(), int folder, std::string_view path);
    // Returns true if `path` is the device that librdmacm opens to reach the kernel.
    static bool is_rdma_cm(int folder, std::string_view path);

    // Removes the private folder, at exit.
    void remove();

    // Handlers for pthread_atfork().
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }

  private:
    // Returns the private file for this absolute path, or "".
    std::string instead(Provider& provider, const std::string& path);
    bool exists() const;
    bool make();

    std::mutex mutex_;
    std::string folder_;          // "" until it is made
    std::atomic<pid_t> pid_ = 0;  // the process that made it
    int file_ = -1;               // the folder's descriptor, which holds its lock
    std::string written_;         // the device state that the files describe
};

// The device that librdmacm opens to reach the kernel. A private file shows that it exists.
inline constexpr const char* kRdmaCmDevice = "/dev/infiniband/rdma_cm";

// Returns the name that a device's character device would have in /dev/infiniband.
std::string uverbs_name(std::string_view device);

}  // namespace rove::verbs
