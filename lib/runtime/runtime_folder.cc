// SPDX-License-Identifier: Apache-2.0
// The owner of a folder holds a lock on a file in it, which the kernel releases with the process.
#include "runtime/runtime_folder.h"

#include <fcntl.h>
#include <rte_eal.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "base/files.h"

namespace rove::datapath {

namespace {

constexpr const char* kLockFile = "/lock";
constexpr std::string_view kFolderPrefix = "rove-";
constexpr time_t kLongestStartS = 60;

int own_lock = -1;  // held until the process ends

bool take_lock(const FileDescriptor& file) {
    return file.is_open() && flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

// Makes and locks the lock file. A new file is locked before it gets its name, so no other process can find it
// unlocked. Returns -1 if another process has the lock.
int make_lock(const std::string& folder) {
    const std::string name = folder + kLockFile;
    FileDescriptor file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    const std::string made = "/proc/self/fd/" + std::to_string(file.get());
    if (take_lock(file) && linkat(AT_FDCWD, made.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
        return file.release();
    // An earlier process with our PID has left the file, or a process of another PID namespace has it.
    file = FileDescriptor(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    return take_lock(file) ? file.release() : -1;
}

// Returns true if the process that made the folder has ended. A PID that is unknown here may belong to another PID
// namespace, whose process holds the lock or is about to make it.
bool is_left_behind(const std::string& folder, const std::string& name) {
    const long pid = std::strtol(name.c_str() + kFolderPrefix.size(), nullptr, 10);
    if (pid <= 0 || kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH) return false;
    const FileDescriptor file(open((folder + kLockFile).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file.is_open()) return take_lock(file);
    struct stat status;
    return errno == ENOENT && stat(folder.c_str(), &status) == 0 &&
           status.st_mtime + kLongestStartS < std::time(nullptr);
}

void sweep_folders(const std::string& parent) {
    for (const std::string& name : names_in(parent))
        if (const std::string folder = parent + "/" + name;
            name.starts_with(kFolderPrefix) && is_left_behind(folder, name))
            remove_all(folder);
}

}  // namespace

void keep_runtime_folder() {
    const std::string folder = rte_eal_get_runtime_dir();
    own_lock = make_lock(folder);
    sweep_folders(folder.substr(0, folder.rfind('/')));
}

void remove_runtime_folder() {
    const std::string folder = rte_eal_get_runtime_dir();
    if (folder.empty()) return;
    if (own_lock < 0) own_lock = make_lock(folder);
    if (own_lock >= 0) remove_all(folder);
}

void leave_runtime_folder_in_child() {
    if (own_lock >= 0) close(std::exchange(own_lock, -1));
}

}  // namespace rove::datapath
