// SPDX-License-Identifier: Apache-2.0
// Creating and joining the slots, under an flock that the kernel releases if its holder dies. See slots.h.
#include "tent/qos/slots_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <optional>

#include "base/relaxed.h"

namespace rove::tent {

namespace {

class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ < 0) return;
        flock(fd_, LOCK_UN);  // closing does not unlock, since the mapping keeps the file open
        close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

std::string system_error(int error) {
    char text[128];
    return strerror_r(error, text, sizeof(text));
}

// Returns the start time of a process in clock ticks since boot: field 22 of /proc/PID/stat. Returns nothing if the
// process has ended or is a zombie.
std::optional<uint64_t> start_time(int32_t pid) {
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
    if (file == nullptr) return std::nullopt;
    char text[1024];
    text[std::fread(text, 1, sizeof(text) - 1, file.get())] = 0;
    const char* after_name = std::strrchr(text, ')');  // the name may contain blanks and parentheses
    char state = 0;
    unsigned long long started = 0;
    if (after_name == nullptr || std::sscanf(after_name + 1,
                                             " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                             "%*s %llu",
                                             &state, &started) != 2)
        return std::nullopt;
    if (state == 'Z' || state == 'X') return std::nullopt;
    return started;
}

bool alive(const ProcessEntry& entry) {
    // The acquire load pairs with the release in take_entry(): `started` belongs to this pid.
    const int32_t pid = entry.pid.load(std::memory_order_acquire);
    return pid != 0 && start_time(pid) == entry.started.load(kRelaxed);
}

uint32_t entries(const SharedSlots& shared) {
    return std::min(shared.used.load(std::memory_order_acquire), SharedSlots::kProcesses);
}

int32_t living_process(const SharedSlots& shared) {
    for (uint32_t i = 0; i < entries(shared); ++i)
        if (alive(shared.processes[i])) return shared.processes[i].pid.load(kRelaxed);
    return 0;
}

void make(SharedSlots* memory, uint64_t interval_ns) {
    std::memset(static_cast<void*>(memory), 0, sizeof(*memory));
    auto* shared = new (memory) SharedSlots{};
    shared->version = SharedSlots::kVersion;
    shared->interval_ns = interval_ns;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->global_mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    shared->magic.store(SharedSlots::kMagic, std::memory_order_release);
}

ProcessEntry* take_entry(SharedSlots& shared) {
    for (uint32_t i = 0; i < SharedSlots::kProcesses; ++i) {
        ProcessEntry& entry = shared.processes[i];
        if (i < entries(shared) && alive(entry)) continue;
        entry.pid.store(0, kRelaxed);
        for (auto& bytes : entry.pending) bytes.store(0, kRelaxed);
        for (auto& when : entry.wanted_ns) when.store(0, kRelaxed);
        entry.core.store(-1, kRelaxed);
        entry.ran_ns.store(system_ns(), kRelaxed);
        entry.started.store(start_time(getpid()).value_or(0), kRelaxed);
        entry.pid.store(getpid(), std::memory_order_release);
        if (i >= entries(shared)) shared.used.store(i + 1, std::memory_order_release);
        return &entry;
    }
    return nullptr;
}

// Checks the object before it is mapped. Sets `empty` if its content is yet to be made.
Status check(int fd, const std::string& path, bool* empty) {
    const std::string remove = "; remove /dev/shm" + path + " if no other program needs it, or choose another path";
    struct {
        uint64_t magic = 0;
        int32_t version = 0;
    } found;
    const ssize_t bytes = pread(fd, &found, sizeof(found), 0);
    struct stat status {};
    if (bytes < 0 || fstat(fd, &status) != 0) return {Code::kInvalidArgument, path + ": " + system_error(errno)};
    // All zeros and exactly our size: a process was killed just after it made the file.
    const bool is_begun = found.magic == 0 && static_cast<size_t>(status.st_size) == sizeof(SharedSlots);
    *empty = bytes == 0 || is_begun;
    if (*empty) return {};
    if (found.magic != SharedSlots::kMagic)
        return {Code::kInvalidArgument, "shared_quota_shm_path: " + path + " does not contain slots" + remove};
    if (found.version != SharedSlots::kVersion)
        return {Code::kInvalidArgument, "shared_quota_shm_path: " + path + " has version " +
                                            std::to_string(found.version) + ", this program has " +
                                            std::to_string(SharedSlots::kVersion) + remove};
    if (static_cast<size_t>(status.st_size) < sizeof(SharedSlots))
        return {Code::kInvalidArgument, "shared_quota_shm_path: " + path + " is truncated" + remove};
    return {};
}

}  // namespace

uint64_t system_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Status join_slots(const SlotConfig& config, SharedSlots** shared, ProcessEntry** own) {
    const std::string& path = config.shm_path;
    while (true) {
        // Group access: processes that share the slots need not run as one user.
        const Descriptor file(shm_open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0660));
        if (file.get() < 0)
            return {Code::kInvalidArgument, "shared_quota_shm_path: " + path + ": " + system_error(errno)};
        while (flock(file.get(), LOCK_EX) != 0)
            if (errno != EINTR) return {Code::kInternalError, path + ": flock: " + system_error(errno)};
        struct stat status {};
        if (fstat(file.get(), &status) == 0 && status.st_nlink == 0) continue;  // removed meanwhile

        bool empty = false;
        if (Status checked = check(file.get(), path, &empty); !checked.ok()) return checked;
        if (empty && ftruncate(file.get(), sizeof(SharedSlots)) != 0)
            return {Code::kInternalError, path + ": ftruncate: " + system_error(errno)};
        void* memory = mmap(nullptr, sizeof(SharedSlots), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
        if (memory == MAP_FAILED) return {Code::kInternalError, path + ": mmap: " + system_error(errno)};
        auto* mapped = static_cast<SharedSlots*>(memory);

        const int32_t other = empty ? 0 : living_process(*mapped);
        if (other == 0) make(mapped, config.interval_ns);
        Status joined;
        if (mapped->interval_ns != config.interval_ns) {
            joined = {Code::kInvalidArgument, "slot_rotation_interval_ms: process " + std::to_string(other) + " uses " +
                                                  path + " with " + std::to_string(mapped->interval_ns / 1'000'000) +
                                                  ", this process has " +
                                                  std::to_string(config.interval_ns / 1'000'000)};
        } else if (*own = take_entry(*mapped); *own == nullptr) {
            joined = {Code::kTooManyRequests,
                      path + " is full: the maximum number of processes is " + std::to_string(SharedSlots::kProcesses)};
        }
        if (!joined.ok()) {
            munmap(memory, sizeof(SharedSlots));
            return joined;
        }
        *shared = mapped;
        return {};
    }
}

void leave_slots(SharedSlots* shared, ProcessEntry* own) {
    own->pid.store(0, std::memory_order_release);
    munmap(shared, sizeof(SharedSlots));
}

void free_dead_processes(SharedSlots& shared) {
    for (uint32_t i = 0; i < entries(shared); ++i) {
        ProcessEntry& entry = shared.processes[i];
        int32_t pid = entry.pid.load(kRelaxed);
        // The exchange fails if a process that joins has taken the entry meanwhile.
        if (pid != 0 && !alive(entry)) entry.pid.compare_exchange_strong(pid, 0, kRelaxed);
    }
}

}  // namespace rove::tent
