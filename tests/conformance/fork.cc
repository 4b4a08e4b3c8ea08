// SPDX-License-Identifier: Apache-2.0
// fork(): `man ibv_fork_init`, and the behaviour that programs rely on. The child has no device that is open in the
// parent. Its calls must return immediately and must not disturb the parent. (With a NIC, the child could open the
// device again.)
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "verbs.h"

using namespace conformance;

namespace {

// Runs `body` in a child for at most `patience` seconds, and returns its exit status. A failure in the child is status
// 99.
template <typename Body>
int in_child(Body body, unsigned patience = 8) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(patience);
        try {
            body();
        } catch (const std::exception& error) {
            fprintf(stderr, "in the child: %s\n", error.what());
            _exit(99);
        }
        _exit(0);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(!WIFSIGNALED(status), "the child: %s",
           WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status);
}

void moves_data(Ends& ends, uint32_t seed) {
    fill(ends.local.at(), 3000, seed);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 3000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 3000, seed));
}

}  // namespace

ALONE(fork, a_child_forked_before_anything_opens_the_device) {
    EXPECT(in_child([] {
               Ends ends;
               moves_data(ends, 1);
           }) == 0);
    // After the child has ended, the parent uses the device.
    Ends ends;
    moves_data(ends, 2);
}

ALONE(fork, a_child_of_a_parent_that_listed_devices_opens_one) {
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT(list != nullptr && find_device(list) != nullptr);
    ibv_free_device_list(list);
    EXPECT(in_child([] {
               Ends ends;
               moves_data(ends, 1);
           }) == 0);
}

ALONE(fork, a_child_with_inherited_objects_just_ends) {
    Ends ends;
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT(in_child([] { std::exit(0); }) == 0);  // runs its destructors
        moves_data(ends, i);
    }
}

ALONE(fork, control_calls_of_a_child_return) {
    Ends ends;
    moves_data(ends, 1);
    for (uint32_t i = 0; i < 2; ++i) {
        EXPECT(in_child([&] {
                   ibv_device_attr attr;
                   ibv_query_device(device().context, &attr);
                   ibv_pd* pd = ibv_alloc_pd(device().context);
                   static uint8_t bytes[4096];
                   if (pd != nullptr) ibv_reg_mr(pd, bytes, sizeof(bytes), kAllAccess);
                   ibv_create_cq(device().context, 16, nullptr, nullptr, 0);
                   ibv_qp_attr qp_attr{};
                   qp_attr.qp_state = IBV_QPS_ERR;
                   ibv_modify_qp(ends.a, &qp_attr, IBV_QP_STATE);
               }) == 0);
        sleep_for(0.05);
    }
}

// The child destroys a copy, and the parent's device is not affected. On a NIC the kernel would destroy the real
// object.
ALONE(fork, destroying_in_a_child_leaves_the_parents_objects) {
    Ends ends;
    if (std::strncmp(ibv_get_device_name(device().context->device), "rove", 4) != 0)
        skip("the kernel destroys the parent's object");
    EXPECT(in_child([&] {
               ibv_destroy_qp(ends.a);
               ibv_dereg_mr(ends.local.mr);
               ibv_destroy_cq(ends.recv_cq);
               ibv_close_device(device().context);
           }) == 0);
    moves_data(ends, 4);
}

ALONE(fork, data_calls_of_a_child_return) {
    Ends ends;
    moves_data(ends, 1);
    if (std::strncmp(ibv_get_device_name(device().context->device), "rove", 4) != 0)
        skip("a child that rings the parent's doorbells is undefined");
    EXPECT(in_child([&] {
               ibv_wc wc;
               for (int i = 0; i < 100; ++i) {
                   ibv_poll_cq(ends.send_cq, 1, &wc);
                   try_post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                                     .sges = {ends.local.sge(0, 8)},
                                     .to = ends.remote.address(8),
                                     .rkey = ends.remote.rkey()});
                   try_post_recv(ends.b, {ends.remote.sge(0, 8)});
                   ibv_req_notify_cq(ends.send_cq, 0);
               }
           }) == 0);
    for (uint32_t i = 0; i < 20; ++i) moves_data(ends, i);
}

ALONE(fork, a_child_finds_no_open_device_or_opens_its_own) {
    Ends ends;
    EXPECT(in_child([] {
               int count = -1;
               ibv_device** list = ibv_get_device_list(&count);
               if (list == nullptr) return;
               if (ibv_device* found = find_device(list); found != nullptr) {
                   ibv_context* context = ibv_open_device(found);
                   if (context != nullptr) ibv_close_device(context);
               }
               ibv_free_device_list(list);
           }) == 0);
    moves_data(ends, 1);
}

// Threads of the parent post and poll while it forks (Python's multiprocessing, system(), popen()).
ALONE(fork, beside_threads_that_move_data) {
    Ends ends;
    std::atomic<bool> stop = false;
    std::string failed;
    std::thread mover([&] {
        try {
            for (uint32_t i = 0; !stop; ++i) moves_data(ends, i);
        } catch (const std::exception& error) {
            failed = error.what();
        }
    });
    int statuses = 0;
    try {
        for (int i = 0; i < 20; ++i) {
            statuses += in_child([] {
                ibv_pd* pd = ibv_alloc_pd(device().context);
                (void)pd;
            });
        }
    } catch (...) {
        stop = true;
        mover.join();
        throw;
    }
    stop = true;
    mover.join();
    EXPECT(failed.empty(), "%s", failed.c_str());
    EXPECT(statuses == 0);
}

ALONE(fork, a_child_that_execs_is_free) {
    Ends ends;
    char* const no_environment[] = {nullptr};  // so that no library is preloaded
    const int status = in_child([&] { execle("/bin/true", "true", static_cast<char*>(nullptr), no_environment); });
    EXPECT(status == 0, "%d", status);
    moves_data(ends, 1);
}

// `man ibv_fork_init`: returns 0 before and after devices are used.
ALONE(fork, fork_init_succeeds) {
    EXPECT_OK(ibv_fork_init());
    Ends ends;
    moves_data(ends, 1);
    EXPECT(in_child([] {}) == 0);
    moves_data(ends, 2);
}

// A child's writes to pages that the parent has registered must not detach them from the device.
ALONE(fork, registered_memory_stays_the_parents) {
    Ends ends;
    int go[2];
    EXPECT(pipe(go) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        alarm(10);
        char byte;
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    std::memset(ends.remote.at(), 1, 65536);  // copies the pages in the parent
    std::memset(ends.local.at(), 2, 65536);
    moves_data(ends, 9);
    EXPECT(write(go[1], "x", 1) == 1);
    int status;
    waitpid(child, &status, 0);
    close(go[0]);
    close(go[1]);
    moves_data(ends, 10);
}
