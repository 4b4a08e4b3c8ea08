// SPDX-License-Identifier: Apache-2.0
// Requests that the other side must refuse, over RC: wrong keys, ends of regions, messages that are too long, receives
// that are never posted. One side runs without HOST, listens and serves; the other gets HOST and asks. For each request
// it checks the status of its completion, that the next request is flushed, and that no byte of either side has
// changed. Prints one line of JSON per request. Sizes in bytes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr size_t kRegion = 16384;
constexpr uint8_t kUntouched = 0xEE;
constexpr double kPatience_s = 30;

struct Request {
    const char* name;
    ibv_wr_opcode opcode;
    uint32_t length;
    size_t offset;        // in the region of the serving side
    uint32_t key_change;  // wrong bits of the rkey
    uint32_t receive;     // size of the receive posted for it; 0: no receive
    std::vector<ibv_wc_status> statuses;
};

// A message longer than its receive: "invalid request" by IBTA (table 58), "remote operation error" from Linux
// Soft-RoCE 6.1.
const Request kRequests[] = {
    {"write_key", IBV_WR_RDMA_WRITE, 3000, 0, 0x5500, 0, {IBV_WC_REM_ACCESS_ERR}},
    {"read_key", IBV_WR_RDMA_READ, 3000, 0, 0x5500, 0, {IBV_WC_REM_ACCESS_ERR}},
    {"faa_key", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0x5500, 0, {IBV_WC_REM_ACCESS_ERR}},
    {"write_beyond", IBV_WR_RDMA_WRITE, 3000, kRegion - 2999, 0, 0, {IBV_WC_REM_ACCESS_ERR}},
    {"read_beyond", IBV_WR_RDMA_READ, 3000, kRegion - 2999, 0, 0, {IBV_WC_REM_ACCESS_ERR}},
    {"faa_beyond", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, kRegion, 0, 0, {IBV_WC_REM_ACCESS_ERR}},
    {"send_too_long", IBV_WR_SEND, 3000, 0, 0, 100, {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR}},
    {"send_unreceived", IBV_WR_SEND, 3000, 0, 0, 0, {IBV_WC_RNR_RETRY_EXC_ERR}},
};

struct Hello {
    uint64_t va;
    uint32_t rkey, qpn;
    ibv_gid gid;
};

class Refused {
  public:
    Refused(const std::string& host, uint16_t port, const std::string& device, int gid_index, uint32_t mtu)
        : asks_(!host.empty()), device_(device, gid_index), memory_(kRegion, kUntouched) {
        options_ = {.depth = 4, .mtu = mtu, .timeout = 18, .rnr_retry = 1};
        mr_ = ibv_reg_mr(
            device_.pd, memory_.data(), memory_.size(),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
        cq_ = ibv_create_cq(device_.context, 16, nullptr, nullptr, 0);
        if (mr_ == nullptr || cq_ == nullptr) fail("ibv_reg_mr or ibv_create_cq: %s", strerror(errno));
        if (asks_)
            control_.connect_to(host, port, kPatience_s);
        else
            control_.accept_peer(port);
    }
    ~Refused() {
        if (ibv_destroy_cq(cq_) != 0 || ibv_dereg_mr(mr_) != 0)
            std::fprintf(stderr, "an object could not be destroyed\n");
    }

    void try_one(const Request& request) {
        ibv_qp* qp = peer::create_qp(device_, cq_, options_);
        peer::to_init(qp, options_);
        const Hello mine{reinterpret_cast<uint64_t>(memory_.data()), mr_->rkey, qp->qp_num, device_.gid};
        const Hello theirs = control_.exchange(mine);
        peer::to_rtr(qp, device_, options_, {theirs.qpn, 0xFFFFFE, theirs.gid});
        peer::to_rts(qp, options_, 0xFFFFFE);
        if (!asks_ && request.receive > 0) post_receive(qp, request.receive);
        control_.barrier();
        if (asks_) ask(qp, request, theirs);
        control_.barrier();
        if (!asks_ && request.receive > 0 && next_completion(request).status == IBV_WC_SUCCESS)
            fail("%s: received", request.name);
        // A message that is too long may have filled its receive.
        const size_t first = asks_ ? 0 : request.receive;
        for (size_t at = first; at < memory_.size(); ++at)
            if (memory_[at] != kUntouched) fail("%s: byte %zu has changed", request.name, at);
        std::fill(memory_.begin(), memory_.end(), kUntouched);
        if (const int error = ibv_destroy_qp(qp)) fail("ibv_destroy_qp: %s", strerror(error));
        control_.barrier();
    }

  private:
    void post_receive(ibv_qp* qp, uint32_t size) {
        ibv_sge sge{reinterpret_cast<uint64_t>(memory_.data()), size, mr_->lkey};
        ibv_recv_wr wr{.wr_id = 0, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad;
        if (const int error = ibv_post_recv(qp, &wr, &bad)) fail("ibv_post_recv: %s", strerror(error));
    }

    void ask(ibv_qp* qp, const Request& request, const Hello& theirs) {
        ibv_sge sge{reinterpret_cast<uint64_t>(memory_.data()), request.length, mr_->lkey};
        ibv_send_wr wrs[2] = {}, *bad;
        for (ibv_send_wr& wr : wrs) {
            wr.wr_id = static_cast<uint64_t>(&wr - wrs);
            wr.opcode = request.opcode;
            wr.send_flags = IBV_SEND_SIGNALED;
            wr.sg_list = &sge;
            wr.num_sge = 1;
            const uint64_t va = theirs.va + request.offset;
            const uint32_t rkey = theirs.rkey ^ request.key_change;
            if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
                wr.wr.atomic = {.remote_addr = va, .compare_add = 1, .swap = 0, .rkey = rkey};
            else
                wr.wr.rdma = {.remote_addr = va, .rkey = rkey};
        }
        wrs[0].next = &wrs[1];
        if (const int error = ibv_post_send(qp, wrs, &bad))
            fail("%s: ibv_post_send: %s", request.name, strerror(error));
        const ibv_wc first = next_completion(request), second = next_completion(request);
        if (first.wr_id != 0 ||
            std::find(request.statuses.begin(), request.statuses.end(), first.status) == request.statuses.end())
            fail("%s: %s", request.name, ibv_wc_status_str(first.status));
        if (second.wr_id != 1 || second.status != IBV_WC_WR_FLUSH_ERR)
            fail("%s: the next: %s", request.name, ibv_wc_status_str(second.status));
        std::printf("{\"request\": \"%s\", \"status\": \"%s\"}\n", request.name, ibv_wc_status_str(first.status));
    }

    ibv_wc next_completion(const Request& request) {
        const double deadline = peer::now_s() + kPatience_s;
        ibv_wc wc;
        while (ibv_poll_cq(cq_, 1, &wc) == 0)
            if (peer::now_s() > deadline) fail("%s: no completion", request.name);
        return wc;
    }

    bool asks_;
    peer::QpOptions options_;
    peer::Device device_;
    peer::Control control_;
    std::vector<uint8_t> memory_;
    ibv_mr* mr_;
    ibv_cq* cq_;
};

}  // namespace

int main(int argc, char** argv) {
    std::string host, device;
    uint16_t port = 18515;
    int gid_index = 1;
    uint32_t mtu = 1024;
    CLI::App app{"Requests that must be refused"};
    app.add_option("host", host, "the side that is asked; none: be that side");
    app.add_option("--port", port, "TCP port of the control channel");
    app.add_option("--device", device, "verbs device; default the first");
    app.add_option("--gid-index", gid_index);
    app.add_option("--mtu", mtu, "path MTU, bytes");
    CLI11_PARSE(app, argc, argv);
    Refused refused(host, port, device, gid_index, mtu);
    for (const Request& request : kRequests) refused.try_one(request);
    return 0;
}
