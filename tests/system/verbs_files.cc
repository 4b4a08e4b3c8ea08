// SPDX-License-Identifier: Apache-2.0
// The privacy of a process with a device open: other programs get none of its descriptors, and its memory is not at
// fixed addresses that they map. `CASE` is one of those in main().
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "peer.h"

extern char** environ;

namespace {

using peer::fail;

constexpr unsigned kSeconds = 20;  // a longer time is a hang
constexpr int kImages = 6;
constexpr char kSelf[] = "/proc/self/exe";

// Returns the target of each descriptor of this process except 0 to 2.
std::map<int, std::string> files() {
    std::map<int, std::string> all;
    DIR* const folder = opendir("/proc/self/fd");
    if (folder == nullptr) fail("/proc/self/fd");
    while (const dirent* entry = readdir(folder)) {
        const int file = std::atoi(entry->d_name);
        char name[256] = "";
        if (file > 2 && file != dirfd(folder) && readlinkat(dirfd(folder), entry->d_name, name, sizeof(name) - 1) > 0)
            all[file] = name;
    }
    closedir(folder);
    return all;
}

// Opens the first device and sends a message over it, so that its port is in use.
struct User {
    peer::Device device{"", 1};
    ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
    ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, channel, 0);

    User() {
        ibv_qp* qps[2];
        for (ibv_qp*& qp : qps) qp = peer::create_qp(device, cq, {});
        for (int i = 0; i < 2; ++i) {
            peer::to_init(qps[i], {});
            peer::to_rtr(qps[i], device, {}, {qps[1 - i]->qp_num, 0, device.gid});
            peer::to_rts(qps[i], {}, 0);
        }
        ibv_send_wr request{}, *bad;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        if (ibv_post_send(qps[0], &request, &bad) != 0) fail("ibv_post_send");
        ibv_wc wc{};
        while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
        if (wc.status != IBV_WC_SUCCESS) fail("a WRITE: %s", ibv_wc_status_str(wc.status));
    }
};

// Runs in a started program: fails if there is any file.
int look() {
    for (const auto& [file, name] : files()) fail("the program that was started has %d: %s", file, name.c_str());
    return 0;
}

// Excludes the program's own files from the test.
void keep_own_files() {
    for (const auto& [file, name] : files()) fcntl(file, F_SETFD, FD_CLOEXEC);
}

void has_none(const char* how, int status) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("%s: status %d", how, status);
}

void waited(const char* how, pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) fail("%s", how);
    has_none(how, status);
}

int execute(void*) {
    execl(kSelf, "verbs_files", "look", nullptr);
    return 1;
}

// Starts a program in each possible way.
int started() {
    keep_own_files();
    User user;
    char self[4096] = "", name[] = "verbs_files", argument[] = "look";
    if (readlink(kSelf, self, sizeof(self) - 1) < 0) fail("readlink");
    const std::string command = "exec '" + std::string(self) + "' look";
    has_none("system()", std::system(command.c_str()));
    has_none("popen()", pclose(popen(command.c_str(), "r")));
    pid_t child = -1;
    char* const words[] = {name, argument, nullptr};
    if (posix_spawn(&child, self, nullptr, nullptr, words, environ) != 0) fail("posix_spawn");
    waited("posix_spawn()", child);
    child = fork();
    if (child == 0) _exit(execute(nullptr));
    waited("fork()", child);
    // It runs no handlers of pthread_atfork().
    static char stack[64 * 1024];
    waited("clone()", clone(execute, stack + sizeof(stack), SIGCHLD, nullptr));
    return 0;
}

// A child that continues by itself, as with daemon(): it has the files that verbs gave the program, and no others.
int forked() {
    const auto before = files();
    const User user;
    const pid_t child = fork();
    if (child == 0) {
        for (const auto& [file, name] : files())
            // /dev/null is cmd_fd of the context, and reserves numbers.
            if (!before.contains(file) && file != user.channel->fd && file != user.device.context->async_fd &&
                name != "/dev/null")
                fail("the child has %d: %s", file, name.c_str());
        _exit(0);
    }
    waited("fork()", child);
    return 0;
}

// A program that executes itself with its device open, as servers do to restart: each image begins without files.
int again(int image) {
    if (image > 0)
        look();
    else
        keep_own_files();
    const User user;
    if (image < kImages) execl(kSelf, "verbs_files", "again", std::to_string(image + 1).c_str(), nullptr);
    return image < kImages;
}

// Open MPI's OpenSHMEM maps its heap at 0xff000000 with MAP_FIXED, whatever is there; others use other low addresses. A
// library's memory must be high, where the kernel puts it.
int placed() {
    constexpr unsigned long kHigh = 1ul << 46;
    const User user;
    std::ifstream maps("/proc/self/maps");
    const auto program = reinterpret_cast<unsigned long>(&environ);
    int seen = 0;
    for (std::string line; std::getline(maps, line); ++seen) {
        const unsigned long begin = std::stoul(line, nullptr, 16);
        constexpr unsigned long kProgram = 1ul << 36;  // around it: the program itself and its heap
        if (begin < kHigh && (begin > program ? begin - program : program - begin) > kProgram) fail("%s", line.c_str());
    }
    if (seen == 0) fail("/proc/self/maps");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    alarm(kSeconds);
    const int status = name == "look"      ? look()
                       : name == "started" ? started()
                       : name == "forked"  ? forked()
                       : name == "placed"  ? placed()
                       : name == "again"   ? again(argc > 2 ? std::atoi(argv[2]) : 0)
                                           : 2;
    if (status == 0 && name != "look") std::puts("OK");
    return status;
}
