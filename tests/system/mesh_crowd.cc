// SPDX-License-Identifier: Apache-2.0
// Many members of a mesh: processes that are connected to all others, or each to its next ones, send each other a
// message of 8 B and sleep until all have arrived. Prints the cost as JSON: shared memory and descriptors, and the time
// of an empty poll of the first member when all are silent.
#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr uint32_t kMost = 1024;
constexpr double kPatience = 240;  // seconds

// The data that the processes share.
struct Shared {
    std::array<std::atomic<uint32_t>, 8> arrived;
    std::atomic<bool> failed;
    std::array<ibv_gid, kMost> gid;
    uint32_t qpn[kMost][kMost];   // number of the first member's QP for the second
    std::atomic<uint32_t> files;  // descriptors of the first member
    std::atomic<uint32_t> empty_poll_ns[2];
};

void arrive(Shared& shared, size_t barrier, uint32_t count) {
    shared.arrived[barrier].fetch_add(1);
    for (const double end = peer::now_s() + kPatience; shared.arrived[barrier] < count;) {
        if (shared.failed) _exit(1);
        if (peer::now_s() > end) fail("only %u of %u arrived", shared.arrived[barrier].load(), count);
        usleep(2000);
    }
}

uint64_t shared_memory_kib() {
    std::ifstream file("/proc/meminfo");
    for (std::string key; file >> key;)
        if (uint64_t kib; key == "Shmem:" && file >> kib) return kib;
    fail("no Shmem in /proc/meminfo");
}

uint32_t open_files() {
    uint32_t count = 0;
    DIR* const folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

// Returns the best of several tries, because other processes run on the same cores.
uint32_t empty_poll_ns(ibv_cq* cq) {
    double best = 1;
    for (int tries = 0; tries < 40; ++tries) {
        constexpr int kPolls = 2000;
        const double start = peer::now_s();
        ibv_wc wc;
        for (int i = 0; i < kPolls; ++i) ibv_poll_cq(cq, 1, &wc);
        best = std::min(best, (peer::now_s() - start) / kPolls);
    }
    return static_cast<uint32_t>(best * 1e9);
}

struct Message {
    uint32_t from, to;
};

class Member {
  public:
    Member(Shared& shared, uint32_t me, std::vector<uint32_t> others, uint32_t members)
        : shared_(shared), me_(me), others_(std::move(others)), members_(members), device_("", 1) {
        channel_ = ibv_create_comp_channel(device_.context);
        cq_ = ibv_create_cq(device_.context, static_cast<int>(4 * members), nullptr, channel_, 0);
        idle_ = ibv_create_cq(device_.context, 16, nullptr, nullptr, 0);
        slots_.resize(2 * others_.size());
        mr_ = ibv_reg_mr(device_.pd, slots_.data(), slots_.size() * sizeof(Message), IBV_ACCESS_LOCAL_WRITE);
        if (cq_ == nullptr || idle_ == nullptr || mr_ == nullptr) fail("no CQ or MR");
        shared_.gid[me] = device_.gid;
        for (const uint32_t other : others_) shared_.qpn[me][other] = make_qp();
    }

    void run() {
        arrive(shared_, 0, members_ + 1);  // the parent measures the memory
        const uint32_t before = open_files();
        if (me_ == 0) shared_.empty_poll_ns[0] = empty_poll_ns(idle_);
        arrive(shared_, 1, members_ + 1);
        for (size_t i = 0; i < others_.size(); ++i) connect(i);
        arrive(shared_, 2, members_ + 1);
        arrive(shared_, 3, members_ + 1);
        ibv_req_notify_cq(cq_, 0);
        for (size_t i = 0; i < others_.size(); ++i) send(i);
        for (size_t left = 2 * others_.size(); left > 0;) left -= wait();
        for (size_t i = 0; i < others_.size(); ++i) {
            const Message& came = slots_[others_.size() + i];
            if (came.from != others_[i] || came.to != me_)
                fail("a message for %u from %u came to %u", came.to, came.from, me_);
        }
        if (me_ == 0) shared_.files = open_files() - before;
        arrive(shared_, 4, members_ + 1);
        if (me_ == 0) {
            sleep(1);
            shared_.empty_poll_ns[1] = empty_poll_ns(idle_);
        }
        arrive(shared_, 5, members_ + 1);
    }

  private:
    uint32_t make_qp() {
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = cq_;
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap = {
            .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
        ibv_qp* const qp = ibv_create_qp(device_.pd, &attributes);
        if (qp == nullptr) fail("ibv_create_qp");
        ibv_qp_attr init{};
        init.qp_state = IBV_QPS_INIT;
        init.port_num = 1;
        if (ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
            fail("INIT");
        qps_.push_back(qp);
        return qp->qp_num;
    }
    void connect(size_t i) {
        const uint32_t other = others_[i];
        ibv_sge place = sge(others_.size() + i);
        ibv_recv_wr wr{.wr_id = i, .next = nullptr, .sg_list = &place, .num_sge = 1}, *bad;
        if (ibv_post_recv(qps_[i], &wr, &bad) != 0) fail("ibv_post_recv");
        ibv_qp_attr rtr{};
        rtr.qp_state = IBV_QPS_RTR;
        rtr.path_mtu = IBV_MTU_1024;
        rtr.dest_qp_num = shared_.qpn[other][me_];
        rtr.min_rnr_timer = 12;
        rtr.ah_attr.is_global = 1;
        rtr.ah_attr.port_num = 1;
        rtr.ah_attr.grh.dgid = shared_.gid[other];
        rtr.ah_attr.grh.sgid_index = device_.gid_index;
        rtr.ah_attr.grh.hop_limit = 64;
        if (const int error = ibv_modify_qp(qps_[i], &rtr,
                                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
            fail("%u to %u: RTR: %s", me_, other, std::strerror(error));
        ibv_qp_attr rts{};
        rts.qp_state = IBV_QPS_RTS;
        rts.timeout = 18;  // 1 s
        rts.retry_cnt = rts.rnr_retry = 7;
        if (ibv_modify_qp(qps_[i], &rts,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_MAX_QP_RD_ATOMIC) != 0)
            fail("RTS");
    }
    ibv_sge sge(size_t slot) {
        return {.addr = reinterpret_cast<uint64_t>(&slots_[slot]), .length = sizeof(Message), .lkey = mr_->lkey};
    }
    void send(size_t i) {
        slots_[i] = {me_, others_[i]};
        ibv_sge place = sge(i);
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &place;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (ibv_post_send(qps_[i], &wr, &bad) != 0) fail("ibv_post_send");
    }
    size_t wait() {
        pollfd file{channel_->fd, POLLIN, 0};
        if (poll(&file, 1, static_cast<int>(kPatience * 1000)) != 1) fail("%u waits for messages", me_);
        ibv_cq* cq;
        void* context;
        if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail("ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
        ibv_req_notify_cq(cq_, 0);
        size_t done = 0;
        std::array<ibv_wc, 32> wcs;
        while (const int count = ibv_poll_cq(cq_, wcs.size(), wcs.data())) {
            for (int at = 0; at < count; ++at)
                if (wcs[static_cast<size_t>(at)].status != IBV_WC_SUCCESS)
                    fail("%u: %s", me_, ibv_wc_status_str(wcs[static_cast<size_t>(at)].status));
            done += static_cast<size_t>(count);
        }
        return done;
    }

    Shared& shared_;
    const uint32_t me_;
    const std::vector<uint32_t> others_;
    const uint32_t members_;
    peer::Device device_;
    ibv_comp_channel* channel_;
    ibv_cq *cq_, *idle_;
    ibv_mr* mr_;
    std::vector<Message> slots_;  // messages to send, then to receive
    std::vector<ibv_qp*> qps_;
};

}  // namespace

int main(int argc, char** argv) {
    uint32_t members = 16, neighbours = 0;
    CLI::App app;
    app.add_option("--members", members)->check(CLI::Range(2u, kMost));
    app.add_option("--neighbours", neighbours, "that each is connected to on either side; 0: all");
    CLI11_PARSE(app, argc, argv);
    auto* const shared =
        static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> children;
    uint64_t pairs = 0;
    for (uint32_t me = 0; me < members; ++me) {
        std::vector<uint32_t> others;
        for (uint32_t other = 0; other < members; ++other) {
            const uint32_t apart = (other + members - me) % members;
            if (other != me && (neighbours == 0 || std::min(apart, members - apart) <= neighbours))
                others.push_back(other);
        }
        pairs += others.size();
        children.push_back(fork());
        if (children.back() != 0) continue;
        (new Member(*shared, me, std::move(others), members))->run();
        _exit(0);
    }
    pairs /= 2;
    std::array<uint64_t, 3> kib{};
    const auto watched_arrive = [&](size_t barrier) {
        for (const double end = peer::now_s() + kPatience; shared->arrived[barrier] < members;) {
            int status = 0;
            if (waitpid(-1, &status, WNOHANG) > 0 && status != 0) shared->failed = true;
            if (shared->failed || peer::now_s() > end) {
                shared->failed = true;
                fail("a member failed before step %zu", barrier);
            }
            usleep(2000);
        }
    };
    watched_arrive(0);
    kib[0] = shared_memory_kib();
    shared->arrived[0].fetch_add(1);
    watched_arrive(1), shared->arrived[1].fetch_add(1);
    watched_arrive(2);
    kib[1] = shared_memory_kib();
    shared->arrived[2].fetch_add(1);
    watched_arrive(3), shared->arrived[3].fetch_add(1);
    watched_arrive(4);
    kib[2] = shared_memory_kib();
    shared->arrived[4].fetch_add(1);
    watched_arrive(5), shared->arrived[5].fetch_add(1);
    int worst = 0;
    for (const pid_t child : children) {
        int status = 0;
        if (waitpid(child, &status, 0) == child) worst |= status;
    }
    const double peers = 2.0 * static_cast<double>(pairs) / members;
    std::printf(
        "{\"members\": %u, \"pairs\": %lu, \"idle_kib_a_pair\": %.1f, \"used_kib_a_pair\": %.1f, "
        "\"files_a_peer\": %.2f, \"empty_poll_ns\": [%u, %u]}\n",
        members, pairs, static_cast<double>(kib[1] - kib[0]) / static_cast<double>(pairs),
        static_cast<double>(kib[2] - kib[0]) / static_cast<double>(pairs), shared->files.load() / peers,
        shared->empty_poll_ns[0].load(), shared->empty_poll_ns[1].load());
    return worst != 0;
}
