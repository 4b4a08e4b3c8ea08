// SPDX-License-Identifier: Apache-2.0
// A process that forks. Its children's use of inherited objects must end at once and not disturb the parent, whose
// threads write and read back all the while. `CASE` is one of those in main().
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr uint32_t kBytes = 64 * 1024, kDepth = 16;
constexpr unsigned kChildSeconds = 10;  // a longer time is a hang

// Two connected RC QPs of the device, and further objects that a child may use.
struct Pair {
    peer::Device device{"", 1};
    std::vector<uint8_t> memory = std::vector<uint8_t>(2 * kBytes);
    ibv_mr* mr = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_cq_ex* cq_ex = nullptr;
    ibv_qp* qps[2] = {};
    ibv_qp_ex* qp_ex = nullptr;
    uint64_t seed = 0;

    Pair() {
        mr = ibv_reg_mr(device.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        channel = ibv_create_comp_channel(device.context);
        cq = ibv_create_cq(device.context, kDepth, nullptr, channel, 0);
        ibv_cq_init_attr_ex cq_attr{};
        cq_attr.cqe = kDepth;
        cq_ex = ibv_create_cq_ex(device.context, &cq_attr);
        if (mr == nullptr || cq == nullptr || cq_ex == nullptr) fail("out of objects");
        for (ibv_qp*& qp : qps) qp = peer::create_qp(device, cq, {});
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
        attr.qp_type = IBV_QPT_RC;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.pd = device.pd;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        qp_ex = ibv_qp_to_qp_ex(ibv_create_qp_ex(device.context, &attr));
        for (int i = 0; i < 2; ++i) {
            peer::to_init(qps[i], {});
            peer::to_rtr(qps[i], device, {}, {qps[1 - i]->qp_num, 0, device.gid});
            peer::to_rts(qps[i], {}, 0);
        }
    }

    int post(ibv_send_wr** bad) {
        ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()), kBytes, mr->lkey};
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.rdma = {.remote_addr = reinterpret_cast<uint64_t>(&memory[kBytes]), .rkey = mr->rkey};
        return ibv_post_send(qps[0], &wr, bad);
    }

    // Sends one verified WRITE to the other half of our memory.
    void move() {
        peer::fill(memory.data(), kBytes, ++seed);
        ibv_send_wr* bad;
        if (post(&bad) != 0) fail("ibv_post_send");
        ibv_wc wc{};
        for (const double end = peer::now_s() + 10; ibv_poll_cq(cq, 1, &wc) == 0;)
            if (peer::now_s() > end) fail("no completion");
        if (wc.status != IBV_WC_SUCCESS) fail("a WRITE: %s", ibv_wc_status_str(wc.status));
        if (peer::first_difference(&memory[kBytes], kBytes, seed) != kBytes) fail("wrong bytes");
    }
};

int device_count() {
    int count = -1;
    ibv_device** list = ibv_get_device_list(&count);
    if (list != nullptr) ibv_free_device_list(list);
    return count;
}

#define EXPECT(condition)                                                                       \
    do {                                                                                        \
        errno = 0;                                                                              \
        if (!(condition)) fail("in the child: %s is not so (%s)", #condition, strerror(errno)); \
    } while (0)

void exit_at_once(Pair&) {}

void control(Pair& pair) {
    EXPECT(device_count() == 0);
    ibv_context* context = pair.device.context;
    EXPECT(ibv_open_device(context->device) == nullptr && errno == ENODEV);
    EXPECT(ibv_alloc_pd(context) == nullptr && errno == ENODEV);
    EXPECT(ibv_reg_mr(pair.device.pd, pair.memory.data(), 64, 0) == nullptr && errno == ENODEV);
    EXPECT(ibv_create_cq(context, 1, nullptr, nullptr, 0) == nullptr && errno == ENODEV);
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = 1;
    EXPECT(ibv_create_cq_ex(context, &cq_attr) == nullptr && errno == ENODEV);
    EXPECT(ibv_alloc_mw(pair.device.pd, IBV_MW_TYPE_2) == nullptr && errno == ENODEV);
    ibv_port_attr port;
    EXPECT(ibv_query_port(context, 1, &port) == ENODEV);
    ibv_device_attr attr;
    EXPECT(ibv_query_device(context, &attr) == ENODEV);
    ibv_gid gid;
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == -1 && errno == ENODEV);
    ibv_qp_attr qp_attr{};
    qp_attr.qp_state = IBV_QPS_ERR;
    EXPECT(ibv_modify_qp(pair.qps[0], &qp_attr, IBV_QP_STATE) == ENODEV);
    EXPECT(ibv_destroy_qp(pair.qps[0]) == ENODEV);
    EXPECT(ibv_dereg_mr(pair.mr) == ENODEV);
    EXPECT(ibv_destroy_cq(pair.cq) == ENODEV);
    EXPECT(ibv_dealloc_pd(pair.device.pd) == ENODEV);
    ibv_cq* cq;
    void* cq_context;
    EXPECT(ibv_get_cq_event(pair.channel, &cq, &cq_context) == -1 && errno == ENODEV);
    ibv_async_event event;
    EXPECT(ibv_get_async_event(context, &event) == -1 && errno == ENODEV);
    EXPECT(ibv_close_device(context) == ENODEV);
}

void post_and_poll(Pair& pair) {
    ibv_wc wc;
    ibv_poll_cq_attr poll{};
    for (int i = 0; i < 3; ++i) {
        ibv_send_wr* bad = nullptr;
        EXPECT(pair.post(&bad) == ENODEV && bad != nullptr);
        EXPECT(ibv_poll_cq(pair.cq, 1, &wc) == 0);
        EXPECT(ibv_start_poll(pair.cq_ex, &poll) == ENOENT);
        ibv_recv_wr receive{}, *bad_receive = nullptr;
        EXPECT(ibv_post_recv(pair.qps[1], &receive, &bad_receive) == ENODEV && bad_receive == &receive);
        EXPECT(ibv_req_notify_cq(pair.cq, 0) == ENODEV);
        ibv_wr_start(pair.qp_ex);
        ibv_wr_send(pair.qp_ex);
        ibv_wr_set_sge(pair.qp_ex, pair.mr->lkey, reinterpret_cast<uint64_t>(pair.memory.data()), 1);
        EXPECT(ibv_wr_complete(pair.qp_ex) == ENODEV);
        ibv_wr_start(pair.qp_ex);
        ibv_wr_abort(pair.qp_ex);
    }
}

void fork_again(Pair& pair);

// Runs `act` in a child, which then runs exit() with all its destructors.
pid_t start_child(Pair& pair, void (*act)(Pair&)) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    alarm(kChildSeconds);
    act(pair);
    std::exit(0);
}

void wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) fail("a child: %s", WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0) fail("a child: exit status %d", WEXITSTATUS(status));
}

void fork_again(Pair& pair) {
    wait_for(start_child(pair, control));
}

void look_at_files(Pair&) {
    EXPECT(access("/sys/class/infiniband/rove0/node_guid", R_OK) != 0);
    EXPECT(chdir("/sys/class/infiniband") != 0 || access("rove0", F_OK) != 0);
    EXPECT(chdir("/") == 0 && access("proc", F_OK) == 0);
}

void start_program(Pair&) {
    execl("/bin/true", "true", nullptr);
    fail("exec");
}

// A parent with traffic and control calls on other threads, whose locks children inherit in any state.
int with_objects() {
    Pair& pair = *new Pair;
    std::atomic<bool> ended{false};
    std::thread traffic([&] {
        while (!ended) pair.move();
    });
    std::thread calls([&] {
        while (!ended) {
            ibv_mr* mr = ibv_reg_mr(pair.device.pd, pair.memory.data(), 4096, 0);
            ibv_cq* cq = ibv_create_cq(pair.device.context, 1, nullptr, nullptr, 0);
            if (mr == nullptr || cq == nullptr || ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0)
                fail("a control call");
        }
    });
    for (int round = 0; round < 5; ++round) {
        for (auto* act : {exit_at_once, control, post_and_poll, fork_again, start_program})
            wait_for(start_child(pair, act));
    }
    ended = true;
    traffic.join();
    calls.join();
    pair.move();
    return 0;
}

// A parent whose threads hold the locks of the library and of its hooks most of the time.
int hammered() {
    Pair& pair = *new Pair;
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    const auto hammer = [&](auto call) {
        threads.emplace_back([&ended, call] {
            while (!ended) call();
        });
    };
    hammer([&] { pair.move(); });
    hammer([&] {
        ibv_mr* const mr = ibv_reg_mr(pair.device.pd, pair.memory.data(), 4096, 0);
        ibv_comp_channel* const channel = ibv_create_comp_channel(pair.device.context);
        ibv_cq* const cq = ibv_create_cq(pair.device.context, 1, nullptr, channel, 0);
        pollfd file{.fd = channel->fd, .events = POLLIN, .revents = 0};
        if (poll(&file, 1, 0) != 0) fail("poll");
        if (ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0 || ibv_destroy_comp_channel(channel) != 0)
            fail("a control call");
    });
    hammer([&] {
        if (device_count() != 1 || access("/sys/class/infiniband/rove0/node_guid", R_OK) != 0) fail("no device");
        ibv_context* const context = ibv_open_device(pair.device.context->device);
        if (context == nullptr || ibv_close_device(context) != 0) fail("ibv_close_device");
    });
    hammer([] {
        rdma_event_channel* const channel = rdma_create_event_channel();
        rdma_cm_id* id = nullptr;
        if (channel == nullptr || rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) fail("rdma_create_id");
        rdma_destroy_id(id);
        rdma_destroy_event_channel(channel);
    });
    for (int round = 0; round < 50; ++round)
        for (auto* act : {start_program, exit_at_once, round % 2 != 0 ? control : post_and_poll, look_at_files})
            wait_for(start_child(pair, act));
    // A child that runs no handlers. (It makes no calls of the C library that take locks, not even malloc().)
    for (int round = 0; round < 50; ++round) {
        for (const bool executes : {false, true}) {
            const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
            if (child == 0) {
                alarm(kChildSeconds);
                if (executes) execl("/bin/true", "true", nullptr);
                ibv_device_attr attr;
                const bool refuses = ibv_reg_mr(pair.device.pd, pair.memory.data(), 64, 0) == nullptr &&
                                     errno == ENODEV && ibv_query_device(pair.device.context, &attr) == ENODEV &&
                                     ibv_destroy_qp(pair.qps[0]) == ENODEV;
                _exit(refuses && access("/nowhere", F_OK) != 0 ? 0 : 1);
            }
            wait_for(child);
        }
    }
    ended = true;
    for (std::thread& thread : threads) thread.join();
    pair.move();
    // No lock is held: exit() runs to its end in such a child, too.
    const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child == 0) {
        alarm(kChildSeconds);
        EXPECT(device_count() == 0);
        look_at_files(pair);
        std::exit(0);
    }
    wait_for(child);
    pair.move();
    return 0;
}

// A parent that has only listed devices: its child uses the device, and after the child's end the parent does.
int after_list() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (count == 0 || ibv_get_device_guid(list[0]) == 0) fail("no device");
    ibv_free_device_list(list);
    for (int i = 0; i < 2; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(kChildSeconds);
            (new Pair)->move();
            std::exit(0);
        }
        wait_for(child);
    }
    (new Pair)->move();
    return 0;
}

// A server that lists devices and then becomes a daemon: daemon() ends the parent, and the child uses the device. Its
// starter learns of its end from standard output.
int daemonized() {
    int count = 0;
    ibv_free_device_list(ibv_get_device_list(&count));
    if (count == 0) fail("no device");
    const int out = dup(STDOUT_FILENO);
    if (daemon(0, 0) != 0) fail("daemon");
    alarm(kChildSeconds);
    (new Pair)->move();
    if (dprintf(out, "moved\n") < 0) return 1;
    return 0;
}

// The parent is killed, and its child lives on: another process can take the parent's place.
int orphan() {
    Pair& pair = *new Pair;
    pair.move();
    int told[2];
    if (pipe(told) != 0) fail("pipe");
    if (fork() == 0) {
        alarm(kChildSeconds);  // no process waits for it
        if (write(told[1], "", 1) != 1) _exit(1);
        pause();
    }
    char none;
    if (read(told[0], &none, 1) != 1) fail("read");
    raise(SIGKILL);
    return 1;
}

int move_once() {
    (new Pair)->move();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string name = argc == 2 ? argv[1] : "";
    const int status = name == "with-objects" ? with_objects()
                       : name == "hammered"   ? hammered()
                       : name == "after-list" ? after_list()
                       : name == "daemon"     ? daemonized()
                       : name == "orphan"     ? orphan()
                       : name == "move"       ? move_once()
                                              : 2;
    if (status == 0) std::puts("OK");
    return status;
}
