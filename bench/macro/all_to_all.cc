// SPDX-License-Identifier: Apache-2.0
// Measures the goodput of RDMA WRITEs between N processes, each to all others in turn, over one RC QP per pair. Plain
// libibverbs.
//
//     all_to_all --folder DIR --processes N --rank R [--size BYTES] [--seconds S]
//
// The processes find each other by files in an empty folder that they share: `R` (the addresses of its memory and its
// QPs), `R.connected`, `R.done`. Each prints the bytes that the others have acknowledged to it between the time when
// all were connected and its own end. gbps counts payload.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMaxProcesses = 250;
constexpr uint32_t kOutstanding = 4;                  // WRITEs to each of the others
constexpr auto kPatience = std::chrono::seconds(60);  // for the others
constexpr uint32_t kFirstPsn = 1;

struct Options {
    std::filesystem::path folder;
    uint32_t processes = 2, rank = 0;
    uint32_t size = 64 << 10;
    double seconds = 1;
};

// The data that a process gives the others.
struct Endpoint {
    ibv_gid gid;
    uint64_t address;  // one piece of `size` bytes per process, for that writer
    uint32_t rkey;
    std::array<uint32_t, kMaxProcesses> qpns;  // indexed by the process at the other end
};

void check(bool good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// Makes a file appear under its name with all of its bytes.
void tell(const Options& options, const std::string& name, const void* bytes, size_t count) {
    const auto unfinished = options.folder / (name + ".new");
    std::ofstream(unfinished, std::ios::binary).write(static_cast<const char*>(bytes), static_cast<long>(count));
    std::filesystem::rename(unfinished, options.folder / name);
}

// Polls while it waits. A passive end need not, but such programs do.
void wait_for(const Options& options, const std::string& name, ibv_cq* cq) {
    for (const auto start = Clock::now(); !std::filesystem::exists(options.folder / name);) {
        if (Clock::now() - start > kPatience) throw std::runtime_error("no file " + name);
        ibv_wc completion;
        ibv_poll_cq(cq, 1, &completion);
        usleep(1000);
    }
}

void connect(ibv_qp* qp, uint32_t qpn, const ibv_gid& gid) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = qpn;
    attr.rq_psn = kFirstPsn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.port_num = 1;
    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.sq_psn = kFirstPsn;
    attr.max_rd_atomic = 1;
    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "RTS");
}

void run(const Options& options) {
    const auto all_others = [&](auto&& visit) {
        for (uint32_t other = 0; other < options.processes; ++other)
            if (other != options.rank) visit(other);
    };
    const std::string rank = std::to_string(options.rank);
    ibv_device** const devices = ibv_get_device_list(nullptr);
    check(devices != nullptr && devices[0] != nullptr, "no device");
    ibv_context* const context = ibv_open_device(devices[0]);
    check(context != nullptr, "ibv_open_device");
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_cq* const cq = ibv_create_cq(context, static_cast<int>(kOutstanding * options.processes), nullptr, nullptr, 0);
    check(pd != nullptr && cq != nullptr, "PD, CQ");
    std::vector<uint8_t> source(options.size, static_cast<uint8_t>(options.rank + 1));
    std::vector<uint8_t> target(size_t{options.size} * options.processes);
    ibv_mr* const from = ibv_reg_mr(pd, source.data(), source.size(), 0);
    ibv_mr* const to = ibv_reg_mr(pd, target.data(), target.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    check(from != nullptr && to != nullptr, "ibv_reg_mr");

    Endpoint mine{};
    check(ibv_query_gid(context, 1, 1, &mine.gid) == 0, "ibv_query_gid");
    mine.address = reinterpret_cast<uint64_t>(target.data());
    mine.rkey = to->rkey;
    std::array<ibv_qp*, kMaxProcesses> qps{};
    all_others([&](uint32_t other) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.cap = {kOutstanding, 1, 1, 1, 0};
        init.qp_type = IBV_QPT_RC;
        check((qps[other] = ibv_create_qp(pd, &init)) != nullptr, "ibv_create_qp");
        mine.qpns[other] = qps[other]->qp_num;
    });
    tell(options, rank, &mine, sizeof mine);
    std::vector<Endpoint> ends(options.processes);
    all_others([&](uint32_t other) {
        wait_for(options, std::to_string(other), cq);
        std::ifstream(options.folder / std::to_string(other), std::ios::binary)
            .read(reinterpret_cast<char*>(&ends[other]), sizeof(Endpoint));
        connect(qps[other], ends[other].qpns[options.rank], ends[other].gid);
    });
    tell(options, rank + ".connected", "", 0);
    all_others([&](uint32_t other) { wait_for(options, std::to_string(other) + ".connected", cq); });

    const auto post = [&](uint32_t other) {
        ibv_sge piece{reinterpret_cast<uint64_t>(source.data()), options.size, from->lkey};
        ibv_send_wr request{}, *bad;
        request.wr_id = other;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.rdma = {ends[other].address + uint64_t{options.rank} * options.size, ends[other].rkey};
        check(ibv_post_send(qps[other], &request, &bad) == 0, "ibv_post_send");
    };
    uint64_t completed = 0, under_way = 0;
    const auto reap = [&](auto&& on_each) {
        std::array<ibv_wc, 16> completions;
        const int count = ibv_poll_cq(cq, static_cast<int>(completions.size()), completions.data());
        for (int i = 0; i < count; ++i) {
            if (completions[static_cast<size_t>(i)].status != IBV_WC_SUCCESS)
                throw std::runtime_error(ibv_wc_status_str(completions[static_cast<size_t>(i)].status));
            --under_way;
            ++completed;
            on_each(static_cast<uint32_t>(completions[static_cast<size_t>(i)].wr_id));
        }
    };
    const auto start = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    for (uint32_t i = 0; i < kOutstanding; ++i) all_others([&](uint32_t other) { post(other), ++under_way; });
    while (seconds() < options.seconds) reap([&](uint32_t other) { post(other), ++under_way; });
    const double took = seconds();
    const uint64_t counted = completed;
    while (under_way != 0) reap([](uint32_t) {});
    tell(options, rank + ".done", "", 0);
    all_others([&](uint32_t other) { wait_for(options, std::to_string(other) + ".done", cq); });
    all_others([&](uint32_t other) {
        const auto* const piece = target.data() + size_t{other} * options.size;
        if (!std::all_of(piece, piece + options.size, [&](uint8_t byte) { return byte == uint8_t(other + 1); }))
            throw std::runtime_error("wrong bytes of process " + std::to_string(other));
    });
    std::printf("all_to_all rank=%u seconds=%.3f gbps=%.3f\n", options.rank, took,
                static_cast<double>(counted) * options.size * 8e-9 / took);
}

}  // namespace

int main(int argc, char** argv) try {
    Options options;
    CLI::App app("WRITEs between N processes");
    app.add_option("--folder", options.folder, "empty, and the same for all")
        ->required()
        ->check(CLI::ExistingDirectory);
    app.add_option("--processes", options.processes)->check(CLI::Range(2u, kMaxProcesses));
    app.add_option("--rank", options.rank, "from 0")->check(CLI::Range(0u, kMaxProcesses - 1));
    app.add_option("--size", options.size, "of a WRITE, bytes")->check(CLI::Range(1u, 1u << 30));
    app.add_option("--seconds", options.seconds)->check(CLI::Range(0.1, 3600.0));
    CLI11_PARSE(app, argc, argv);
    run(options);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "all_to_all: %s\n", error.what());
    return 1;
}
