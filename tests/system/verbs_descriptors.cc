// SPDX-License-Identifier: Apache-2.0
// A process that lacks descriptors when it first uses rove's devices. The call fails then without a leak, and works as
// soon as there are enough. `CASE` is one of those in main().
#include <dirent.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "peer.h"

namespace {

using peer::fail;

constexpr unsigned kSeconds = 60;  // a longer time is a hang
constexpr int kMaxNeeded = 400;    // descriptors

int open_files() {
    int count = 0;
    DIR* const folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

void allow(rlim_t files) {
    const rlimit limit{files, 4096};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail("setrlimit");
}

// Calls `attempt` with room for 0, 1, 2, ... more descriptors, until it succeeds. Returns the number at that time.
int try_with_ever_more(const std::function<bool()>& attempt) {
    const int before = open_files(), next = fcntl(0, F_DUPFD, 0);
    close(next);
    for (int more = 0; more < kMaxNeeded; ++more) {
        allow(static_cast<rlim_t>(next + more));
        const bool done = attempt();
        allow(4096);
        if (done) return open_files() - before;
    }
    fail("it never works: %s", strerror(errno));
}

bool open_device() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr) return false;
    ibv_context* const context = count > 0 ? ibv_open_device(list[0]) : nullptr;
    ibv_free_device_list(list);
    return context != nullptr;
}

// Binds an id of rdma_cm to an address, for which all devices are used.
bool bind_id() {
    rdma_event_channel* const channel = rdma_create_event_channel();
    if (channel == nullptr) return false;
    rdma_cm_id* id = nullptr;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    const bool bound = rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0 &&
                       rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)) == 0 && rdma_listen(id, 1) == 0;
    if (bound) return true;
    if (id != nullptr) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    return false;
}

// Prints "FILES" and the number of open files in the end: it is equal however often the attempt failed before.
int scarce(const std::function<bool()>& attempt) {
    std::printf("FILES %d\n", try_with_ever_more(attempt));
    return 0;
}

int plenty(const std::function<bool()>& attempt) {
    const int before = open_files();
    if (!attempt()) fail("%s", strerror(errno));
    std::printf("FILES %d\n", open_files() - before);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string how = argc > 1 ? argv[1] : "", what = argc > 2 ? argv[2] : "";
    alarm(kSeconds);
    const bool cm = what == "cm";
    if (cm && !open_device()) fail("ibv_open_device");
    const std::function<bool()> attempt = cm ? bind_id : open_device;
    return how == "scarce" ? scarce(attempt) : how == "plenty" ? plenty(attempt) : 2;
}
