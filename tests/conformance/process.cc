// SPDX-License-Identifier: Apache-2.0
// The life cycle of programs: exit() with running threads, dropped privileges, and servers whose clients come and go.
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "verbs.h"

using namespace conformance;

ALONE(process, exit_while_threads_post_and_poll) {
    for (int round = 0; round < 3; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            Ends& ends = *new Ends;
            for (int i = 0; i < 3; ++i) {
                std::thread([&ends, i] {
                    const Work work{.opcode = IBV_WR_RDMA_WRITE,
                                    .sges = {ends.local.sge(0, 4096)},
                                    .to = ends.remote.address(),
                                    .rkey = ends.remote.rkey()};
                    ibv_wc wc[16];
                    while (true) {
                        ibv_send_wr wr = request(work), *bad;
                        if (i > 0) ibv_post_send(ends.a, &wr, &bad);
                        ibv_poll_cq(ends.send_cq, 16, wc);
                    }
                }).detach();
            }
            sleep_for(0.1);
            std::exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        EXPECT(!WIFSIGNALED(status), "%s", WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
        EXPECT(WEXITSTATUS(status) == 0, "%d", WEXITSTATUS(status));
    }
}

// A process that has opened the device may continue as another user (daemons).
ALONE(process, privileges_may_be_dropped_after_opening) {
    if (geteuid() != 0) skip("not root");
    device();
    constexpr unsigned kNobody = 65534;
    EXPECT(setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0);
    Ends ends;
    fill(ends.local.at(), 5000, 1);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 5000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 5000, 1));
}

// A server keeps running. Its clients are new processes, and every second one is killed.
DOOMED(process, a_server_serves_clients_that_come_and_go) {
    constexpr int kClients = 4;
    if (!peer.first) {
        for (int i = 0; i < kClients; ++i) {
            const pid_t client = fork();  // no device is open here
            if (client == 0) {
                alarm(15);
                try {
                    Half half(peer);
                    for (int k = 0; k < 20; ++k) {
                        post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                                       .sges = {half.memory.sge(0, 5000)},
                                       .to = half.theirs.address,
                                       .rkey = half.theirs.rkey});
                        succeeded(half.send_cq);
                    }
                    peer.barrier();
                } catch (const std::exception& error) {
                    fprintf(stderr, "client %d: %s\n", i, error.what());
                    _exit(99);
                }
                if (i % 2 == 1) raise(SIGKILL);
                std::exit(0);
            }
            int status;
            waitpid(client, &status, 0);
            if (!(i % 2 == 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                             : WIFEXITED(status) && WEXITSTATUS(status) == 0))
                fail("client %d: status %#x", i, status);
        }
        raise(SIGKILL);
    }
    for (int i = 0; i < kClients; ++i) {
        Half half(peer);
        peer.barrier();
    }
}

// A program may end without destroying its objects.
ALONE(process, an_end_without_cleaning_up) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        Ends& ends = *new Ends;
        post(ends.a, {.sges = {ends.local.sge(0, 100)}});  // waits for a receive forever
        std::exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %#x", status);
}
