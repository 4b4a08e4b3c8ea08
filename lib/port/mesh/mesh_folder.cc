// SPDX-License-Identifier: Apache-2.0
#include "port/mesh/mesh_folder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_set>

#include "base/files.h"
#include "base/text.h"

namespace rove::datapath {

namespace {

constexpr unsigned kMaxMembers = 65533;
// The longest wait for other processes that claim, which take milliseconds. The time starts again with each of their
// claims, because a job may start a thousand processes at once.
constexpr auto kLongestWait = std::chrono::seconds(10);
constexpr auto kFirstWait = std::chrono::milliseconds(1), kLastWait = std::chrono::milliseconds(64);
constexpr std::string_view kLockSuffix = ".lock";
constexpr uint32_t kMinMtu = 256, kMaxMtu = 4096;  // path MTUs of RoCE

std::string lock_file(const std::string& address) {
    return address + std::string(kLockSuffix);
}

bool is_address(const std::string& text) {
    for (const int family : {AF_INET, AF_INET6}) {
        std::array<uint8_t, sizeof(in6_addr)> address{};
        std::array<char, INET6_ADDRSTRLEN> printed{};
        if (inet_pton(family, text.c_str(), address.data()) == 1)
            return text == inet_ntop(family, address.data(), printed.data(), printed.size());
    }
    return false;
}

bool is_name(const std::string& text) {
    return text == MeshFolder::kBridge || is_address(text);
}

std::string default_path() {
    const char* const runtime = secure_getenv("XDG_RUNTIME_DIR");
    struct stat directory {};
    if (runtime != nullptr && runtime[0] == '/' && stat(runtime, &directory) == 0 && S_ISDIR(directory.st_mode) &&
        directory.st_uid == geteuid())
        return std::string(runtime) + "/rove";
    return "/tmp/rove-" + std::to_string(geteuid());
}

// Returns why this folder cannot be used and a remedy, or "" if it can.
std::string fault_of(const struct stat& folder, bool named) {
    const bool is_sticky = (folder.st_mode & S_ISVTX) != 0, is_open = (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (named && (folder.st_uid == 0 || is_sticky)) return "";
    if (folder.st_uid != geteuid())
        return "belongs to user " + std::to_string(folder.st_uid) +
               (named ? ": set its sticky bit (chmod +t), or name another folder" : ": name another folder (mesh:DIR)");
    if (is_open)
        return named ? "can be written to by others: chmod go-w or +t" : "can be written to by others: chmod go-w";
    return "";
}

mode_t type_of(int folder, const std::string& file) {
    struct stat status {};
    return fstatat(folder, file.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_mode & S_IFMT : 0;
}

// Returns a path of the descriptor that is short enough for a socket's name, wherever the file is.
std::string path_of(int descriptor) {
    return "/proc/self/fd/" + std::to_string(descriptor);
}

// Returns the names of the entries of the directory.
std::vector<std::string> files_in(int directory) {
    return names_in(path_of(directory));
}

template <auto kCall>  // bind or connect
int call_at(int socket, const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (path.size() >= sizeof(name.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    std::memcpy(name.sun_path, path.data(), path.size());
    return kCall(socket, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
}

FileDescriptor make_socket() {
    return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

// A lock on the folder. No other process claims or leaves while it is held.
class MeshFolder::FolderLock {
  public:
    explicit FolderLock(int folder) : folder_(folder) {
        using Clock = std::chrono::steady_clock;
        timespec changed = change_of(folder);
        auto wait = kFirstWait;
        for (auto end = Clock::now() + kLongestWait; !(is_held_ = flock(folder, LOCK_EX | LOCK_NB) == 0);) {
            if (const timespec now = change_of(folder);
                now.tv_sec != changed.tv_sec || now.tv_nsec != changed.tv_nsec) {
                changed = now;
                end = Clock::now() + kLongestWait;
            }
            if (Clock::now() >= end) return;
            std::this_thread::sleep_for(wait);
            wait = std::min(2 * wait, kLastWait);
        }
    }
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;
    // Unlocks explicitly: a child that was forked meanwhile has the descriptor too, so closing ours would not be
    // enough.
    ~FolderLock() {
        if (is_held_) flock(folder_, LOCK_UN);
    }
    bool is_held() const { return is_held_; }

  private:
    // Returns when a file was last created or removed there.
    static timespec change_of(int folder) {
        struct stat status {};
        fstat(folder, &status);
        return status.st_mtim;
    }

    const int folder_;
    bool is_held_ = false;
};

std::optional<MeshFolder> MeshFolder::open(const std::string& folder, std::string* error) {
    const bool named = !folder.empty();
    std::string path = named ? folder : default_path();
    // A symbolic link is followed if a slash comes after it.
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const auto refuse = [&](const std::string& why) {
        *error = "mesh folder '" + path + "' " + why;
        return std::nullopt;
    };
    const auto open_it = [&] {
        return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    };
    FileDescriptor directory = open_it();
    if (!directory.is_open() && errno == ENOENT) {
        if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
            return refuse("cannot be made (" + reason_of(errno) + "): name another (mesh:DIR)");
        directory = open_it();
    }
    if (!directory.is_open() && (errno == ENOTDIR || errno == ELOOP))
        return refuse("is not a directory: name one (mesh:DIR) that is not a symbolic link");
    struct stat status {};
    if (!directory.is_open() || fstat(directory.get(), &status) != 0)
        return refuse("cannot be opened (" + reason_of(errno) + "): name another (mesh:DIR)");
    const std::string fault = fault_of(status, named);
    if (!fault.empty()) return refuse(fault);
    if (faccessat(directory.get(), ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0)
        return refuse("cannot be written to (" + reason_of(errno) + "): name another (mesh:DIR)");
    return MeshFolder(std::move(path), std::move(directory), named);
}

bool MeshFolder::claim(const std::vector<std::string>& addresses, std::string* error) {
    const FolderLock exclusion(folder_.get());
    if (!exclusion.is_held()) {
        *error =
            "mesh folder '" + path_ + "' is locked: end the process that has it (fuser), or name another (mesh:DIR)";
        return false;
    }
    remove_dead();
    bool is_taken;
    *error = addresses.empty() ? take_lowest() : take_all(addresses, &is_taken);
    if (!error->empty()) return false;
    if (enter()) return true;
    *error = "mesh folder '" + path_ + "': cannot listen at '" + name() + "' (" + reason_of(errno) +
             "): name another folder (mesh:DIR)";
    for (const std::string& address : addresses_) clear(address);
    give_back(addresses_, locks_);
    forget();
    return false;
}

bool MeshFolder::claim_bridge(uint32_t mtu, std::string* error) {
    told_ = std::to_string(mtu) + "\n";
    return claim({std::string(kBridge)}, error);
}

// Removes the files that killed members have left.
void MeshFolder::remove_dead() const {
    for (const std::string& file : files_in(folder_.get())) {
        if (!file.ends_with(kLockSuffix)) continue;
        const std::string address = file.substr(0, file.size() - kLockSuffix.size());
        if (!is_name(address) || !take(address, false).is_open()) continue;
        if (clear(address)) unlinkat(folder_.get(), file.c_str(), 0);
    }
}

// Returns the locked file of an address. On failure it is closed, and errno is EWOULDBLOCK if another process has the
// lock or the existing file is not ours. Another errno means that the file cannot be created.
FileDescriptor MeshFolder::take(const std::string& address, bool make) const {
    const std::string file = lock_file(address);
    // O_NONBLOCK, because it could be a FIFO.
    constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    FileDescriptor lock(openat(folder_.get(), file.c_str(), kFlags));
    // The first attempt has no O_CREAT, because in a sticky folder the kernel refuses it for files of other users.
    if (!lock.is_open() && errno == ENOENT) {
        if (!make) return lock;
        lock = FileDescriptor(openat(folder_.get(), file.c_str(), kFlags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
        if (!lock.is_open() || (named_ && fchmod(lock.get(), 0666) != 0)) return {};
    }
    if (!lock.is_open() && (errno == EMFILE || errno == ENFILE)) return lock;
    struct stat status {};
    // A file that also has another name may be a file of ours that another user has linked there.
    if (lock.is_open() && fstat(lock.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1 &&
        flock(lock.get(), LOCK_EX | LOCK_NB) == 0)
        return lock;
    errno = EWOULDBLOCK;
    return {};
}

// Removes the socket or symbolic link of a dead member at this address, and any unfinished socket. Returns false if
// something is still there.
bool MeshFolder::clear(const std::string& address) const {
    for (const std::string& file : {address, "." + address}) {
        const mode_t type = type_of(folder_.get(), file);
        if (type == S_IFSOCK || type == S_IFLNK) unlinkat(folder_.get(), file.c_str(), 0);
        if (type_of(folder_.get(), file) != 0) return false;
    }
    return true;
}

void MeshFolder::give_back(const std::vector<std::string>& addresses, const std::vector<FileDescriptor>& locks) const {
    for (size_t i = 0; i < locks.size(); ++i)
        if (locks[i].is_open()) unlinkat(folder_.get(), lock_file(addresses[i]).c_str(), 0);
}

// Takes all addresses, or none and returns the reason. `*is_taken` says whether an address is in use.
std::string MeshFolder::take_all(const std::vector<std::string>& addresses, bool* is_taken) {
    std::vector<FileDescriptor> locks;
    *is_taken = false;
    for (const std::string& address : addresses) {
        std::string why;
        if (!is_name(address)) {
            why = "is not an address in the form that inet_ntop prints";
        } else if (std::count(addresses.begin(), addresses.end(), address) != 1) {
            why = "is given twice";
        } else if (locks.push_back(take(address, true)); !locks.back().is_open()) {
            *is_taken = errno == EWOULDBLOCK;
            why = *is_taken ? "is in use by " + owner_of(address) + ": take another, or name another folder (mesh:DIR)"
                            : "cannot be locked (" + reason_of(errno) + "): name another folder (mesh:DIR)";
        } else if (!clear(address)) {
            *is_taken = true;
            why = "is not free: remove '" + path_ + "/" + address + "', which belongs to another user";
        }
        if (why.empty()) continue;
        give_back(addresses, locks);
        if (*is_taken && address == kBridge)
            return "mesh folder '" + path_ + "' has a bridge already, " + owner_of(address) +
                   ": end it, or name another folder";
        return "mesh folder '" + path_ + "': address " + address + " " + why;
    }
    addresses_ = addresses;
    locks_ = std::move(locks);
    return "";
}

std::string MeshFolder::take_lowest() {
    // The files of dead members have been removed already.
    const std::vector<std::string> listed = files_in(folder_.get());
    const std::unordered_set<std::string> files(listed.begin(), listed.end());
    for (unsigned n = 1; n <= kMaxMembers; ++n) {
        std::array<char, INET6_ADDRSTRLEN> ipv4{}, ipv6{};
        std::snprintf(ipv4.data(), ipv4.size(), "10.77.%u.%u", n >> 8, n & 0xff);
        std::snprintf(ipv6.data(), ipv6.size(), "fd77::%x", n);
        if (files.contains(lock_file(ipv4.data())) || files.contains(lock_file(ipv6.data()))) continue;
        bool is_taken;
        std::string why = take_all({ipv4.data(), ipv6.data()}, &is_taken);
        if (!is_taken) return why;
    }
    return "mesh folder '" + path_ + "': all " + std::to_string(kMaxMembers) +
           " addresses are in use: name another folder (mesh:DIR)";
}

// Creates the socket under a temporary name, because a process that sees the final name must be able to connect.
bool MeshFolder::listen_at(const std::string& file) {
    listener_ = make_socket();
    if (!listener_.is_open() || call_at<::bind>(listener_.get(), path_of(folder_.get()) + "/" + file) != 0)
        return false;
    // Sets the mode of the socket, whatever the umask is. The descriptor makes sure that it is this file's mode, and
    // not that of a file to which a symbolic link in its place leads.
    const FileDescriptor socket(openat(folder_.get(), file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!socket.is_open() || fstat(socket.get(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
    return chmod(path_of(socket.get()).c_str(), named_ ? 0666 : S_IRUSR | S_IWUSR) == 0 &&
           listen(listener_.get(), SOMAXCONN) == 0;
}

// Publishes the member. All locks are held, and their addresses cleared.
bool MeshFolder::enter() {
    const std::string program = first_line_of("/proc/self/comm");
    const std::string owner = std::to_string(getpid()) + " " + program + "\n" + told_;
    for (const FileDescriptor& lock : locks_)
        if (ftruncate(lock.get(), 0) != 0 || pwrite(lock.get(), owner.data(), owner.size(), 0) < 0) return false;
    const std::string unfinished = "." + name();
    if (!listen_at(unfinished)) return false;
    for (size_t i = 1; i < addresses_.size(); ++i)
        if (symlinkat(name().c_str(), folder_.get(), addresses_[i].c_str()) != 0) return false;
    return renameat(folder_.get(), unfinished.c_str(), folder_.get(), name().c_str()) == 0;
}

// Returns the text in the address's lock file, or "" if there is no such file.
std::string MeshFolder::lock_text(const std::string& address) const {
    const std::string file = lock_file(address);
    const FileDescriptor lock(openat(folder_.get(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    std::array<char, 64> text{};
    if (!lock.is_open() || read(lock.get(), text.data(), text.size() - 1) <= 0) return "";
    return text.data();
}

std::string MeshFolder::owner_of(const std::string& address) const {
    std::string owner = lock_text(address);
    owner.erase(std::min(owner.size(), owner.find('\n')));
    const size_t space = owner.find(' ');
    if (space == std::string::npos) return "another process";
    return printable("process " + owner.substr(0, space) + " (" + owner.substr(space + 1) + ")");
}

std::optional<std::string> MeshFolder::member(const std::string& address) const {
    if (!is_address(address)) return std::nullopt;
    std::array<char, INET6_ADDRSTRLEN> target{};
    const ssize_t bytes = readlinkat(folder_.get(), address.c_str(), target.data(), target.size());
    if (bytes >= 0) {
        std::string name(target.data(), static_cast<size_t>(bytes));
        return is_address(name) ? std::optional(std::move(name)) : std::nullopt;
    }
    return type_of(folder_.get(), address) == S_IFSOCK ? std::optional(address) : std::nullopt;
}

std::vector<std::string> MeshFolder::addresses_of(const std::string& member) const {
    std::vector<std::string> addresses;
    for (const std::string& file : files_in(folder_.get()))
        if (this->member(file) == member) addresses.push_back(file);
    return addresses;
}

std::optional<uid_t> MeshFolder::owner(const std::string& member) const {
    struct stat status {};
    if (!is_name(member) || fstatat(folder_.get(), member.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(status.st_mode))
        return std::nullopt;
    return status.st_uid;
}

bool MeshFolder::has_bridge() const {
    return type_of(folder_.get(), std::string(kBridge)) == S_IFSOCK;
}

std::optional<uint32_t> MeshFolder::bridge_mtu() const {
    if (!has_bridge()) return std::nullopt;
    const std::string text = lock_text(std::string(kBridge));
    const char* const number = text.c_str() + std::min(text.size(), text.find('\n'));
    const unsigned long mtu = std::strtoul(number, nullptr, 10);
    return mtu >= kMinMtu && mtu <= kMaxMtu && std::has_single_bit(mtu) ? std::optional(static_cast<uint32_t>(mtu))
                                                                        : std::nullopt;
}

int MeshFolder::connect(const std::string& member) const {
    if (!is_name(member)) {
        errno = EINVAL;
        return -1;
    }
    FileDescriptor socket = make_socket();
    const FileDescriptor peer(openat(folder_.get(), member.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!socket.is_open() || !peer.is_open()) return -1;
    if (call_at<::connect>(socket.get(), path_of(peer.get())) == 0) return socket.release();
    return -1;
}

std::vector<std::string> MeshFolder::members() const {
    std::vector<std::string> names;
    for (const std::string& file : files_in(folder_.get()))
        if (is_name(file) && type_of(folder_.get(), file) == S_IFSOCK && (addresses_.empty() || file != name()))
            names.push_back(file);
    return names;
}

void MeshFolder::leave() {
    if (addresses_.empty()) return;
    const FolderLock exclusion(folder_.get());
    for (const std::string& address : addresses_) {
        unlinkat(folder_.get(), address.c_str(), 0);
        // Another process may be about to lock it. Without the folder's lock the file stays, and the next process that
        // claims removes it.
        if (exclusion.is_held()) unlinkat(folder_.get(), lock_file(address).c_str(), 0);
    }
    // A forked child may have the descriptors too.
    for (const FileDescriptor& lock : locks_) flock(lock.get(), LOCK_UN);
    forget();
}

void MeshFolder::forget() {
    listener_ = {};
    locks_.clear();
    addresses_.clear();
}

void MeshFolder::after_fork_in_child() {
    forget();
    folder_ = {};
}

}  // namespace rove::datapath
