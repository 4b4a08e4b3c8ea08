// SPDX-License-Identifier: Apache-2.0
// Measures the goodput of RDMA WRITE over N RC QPs in turn, and the memory of an idle QP. Plain libibverbs.
//
//     qp_scale [--host SERVER_ADDRESS] --qps N --size BYTES [--seconds S] [--port TCP_PORT] [--device NAME]
//     [--registrations RATE]
//
// Without --host it is the server: the target of the WRITEs, blocked in a TCP read as perftest's server is. Sizes are
// bytes, gbps counts payload. At the end the server checks every byte of its buffer, and a tag that each QP has
// written. With --registrations the client has a second thread that registers and deregisters a page at that rate per
// second. perftest does not serve here: it takes a buffer and a deep send queue per QP, which is 10 000 times 1 MiB and
// more.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kOutstanding = 32;                 // WRITEs in flight over all QPs
constexpr size_t kBufferBytes = 1 << 20;              // the copy floor has the same; larger messages get a larger one
constexpr uint64_t kTagBase = 0x7461'6700'0000'0000;  // "tag" and the QP's index
constexpr auto kConnectPatience = std::chrono::seconds(30);  // for the server to start
constexpr uint32_t kPsnMask = 0xffffff;                      // 24 bits, IBTA 9.2

struct Options {
    std::string host, device;
    uint32_t qps = 1;
    size_t size = 1 << 20;
    double seconds = 2;
    uint32_t registrations = 0;  // per second
    uint16_t port = 18700;
    bool client() const { return !host.empty(); }
    size_t buffer_bytes() const { return std::max(size, kBufferBytes / size * size); }
};

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

// The TCP connection over which the two ends exchange their addresses. Both run this program, so structs are sent as
// they are.
class Control {
  public:
    explicit Control(const Options& options) {
        sockaddr_in addr{};
        addr.sin_family = AF_INET;
        addr.sin_port = htons(options.port);
        const std::string host = options.client() ? options.host : "0.0.0.0";
        if (inet_pton(AF_INET, host.c_str(), &addr.sin_addr) != 1)
            throw std::runtime_error("not an IPv4 address: " + host);
        options.client() ? connect_to(addr) : accept_one(addr);
    }
    ~Control() { close(fd_); }
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    void send_bytes(const void* bytes, size_t n) {
        for (auto* p = static_cast<const char*>(bytes); n > 0;) {
            const ssize_t sent = send(fd_, p, n, MSG_NOSIGNAL);
            if (sent <= 0) fail("send to the peer");
            p += sent;
            n -= static_cast<size_t>(sent);
        }
    }
    void recv_bytes(void* bytes, size_t n) {
        for (auto* p = static_cast<char*>(bytes); n > 0;) {
            const ssize_t received = recv(fd_, p, n, 0);
            if (received == 0) throw std::runtime_error("the peer went away");
            if (received < 0) fail("receive from the peer");
            p += received;
            n -= static_cast<size_t>(received);
        }
    }
    template <typename T>
    std::vector<T> exchange(const std::vector<T>& mine) {
        std::vector<T> theirs(mine.size());
        send_bytes(mine.data(), mine.size() * sizeof(T));
        recv_bytes(theirs.data(), theirs.size() * sizeof(T));
        return theirs;
    }
    void barrier() { exchange<char>({0}); }

  private:
    void connect_to(const sockaddr_in& addr) {
        for (const auto deadline = Clock::now() + kConnectPatience;; usleep(10'000)) {
            if ((fd_ = socket(AF_INET, SOCK_STREAM, 0)) < 0) fail("socket");
            if (connect(fd_, reinterpret_cast<const sockaddr*>(&addr), sizeof addr) == 0) return;
            if (Clock::now() > deadline) fail("connect");
            close(fd_);
        }
    }
    void accept_one(const sockaddr_in& addr) {
        const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        if (listener < 0) fail("socket");
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(listener, reinterpret_cast<const sockaddr*>(&addr), sizeof addr) != 0 || listen(listener, 1) != 0)
            fail("listen");
        if ((fd_ = accept(listener, nullptr, nullptr)) < 0) fail("accept");
        close(listener);
    }
    int fd_ = -1;
};

// The data that one end sends the other.
struct Endpoint {
    ibv_gid gid;
    uint64_t buffer_address, tags_address;
    uint32_t buffer_rkey, tags_rkey;
    uint32_t qps;
    uint64_t size;
};

size_t resident_bytes() {
    size_t total_pages = 0, resident_pages = 0;
    std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
    return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

uint8_t pattern(size_t offset) {
    return static_cast<uint8_t>(offset * 131 + (offset >> 8) * 7 + 1);
}

// Registers and deregisters a page while the WRITEs run. At its end it prints the rate.
class Registrar {
  public:
    Registrar(ibv_pd* pd, uint32_t rate) : pd_(pd), rate_(rate) {
        if (rate != 0) thread_ = std::thread([this] { run(); });
    }
    ~Registrar() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }
    Registrar(const Registrar&) = delete;
    Registrar& operator=(const Registrar&) = delete;

    uint64_t count() const { return count_; }

  private:
    void run() {
        alignas(4096) static char page[4096];
        for (const auto start = Clock::now(); !stop_; usleep(500)) {
            const std::chrono::duration<double> passed = Clock::now() - start;
            for (const auto due = static_cast<uint64_t>(passed.count() * rate_); count_ < due; ++count_) {
                ibv_mr* mr = ibv_reg_mr(pd_, page, sizeof page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
                if (mr == nullptr || ibv_dereg_mr(mr) != 0) return;  // the printed rate shows it
            }
        }
    }

    ibv_pd* pd_;
    uint32_t rate_;
    std::atomic<bool> stop_{false};
    std::atomic<uint64_t> count_{0};
    std::thread thread_;
};

class Node {
  public:
    explicit Node(const Options& options)
        : options_(options), buffer_(options.buffer_bytes()), tags_(options.qps), in_flight_(options.qps) {
        open_device();
        if ((pd_ = ibv_alloc_pd(context_)) == nullptr) fail("ibv_alloc_pd");
        if ((cq_ = ibv_create_cq(context_, 2 * kOutstanding, nullptr, nullptr, 0)) == nullptr) fail("ibv_create_cq");
        if (options.client()) {
            for (size_t i = 0; i < buffer_.size(); ++i) buffer_[i] = pattern(i);
            for (uint32_t q = 0; q < options.qps; ++q) tags_[q] = kTagBase + q;
        }
        const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        if ((buffer_mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), access)) == nullptr) fail("ibv_reg_mr");
        if ((tags_mr_ = ibv_reg_mr(pd_, tags_.data(), tags_.size() * sizeof tags_[0], access)) == nullptr)
            fail("ibv_reg_mr");
    }
    ~Node() {
        for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
        ibv_dereg_mr(tags_mr_);
        ibv_dereg_mr(buffer_mr_);
        ibv_destroy_cq(cq_);
        ibv_dealloc_pd(pd_);
        ibv_close_device(context_);
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Creates the QPs and connects each to the peer's QP of the same index.
    void connect(Control& control) {
        const size_t resident_before = resident_bytes();
        std::vector<uint32_t> numbers;
        for (uint32_t i = 0; i < options_.qps; ++i) numbers.push_back(create_qp());
        const Endpoint mine{gid_,
                            reinterpret_cast<uint64_t>(buffer_.data()),
                            reinterpret_cast<uint64_t>(tags_.data()),
                            buffer_mr_->rkey,
                            tags_mr_->rkey,
                            options_.qps,
                            options_.size};
        peer_ = control.exchange<Endpoint>({mine}).front();
        if (peer_.qps != options_.qps || peer_.size != options_.size)
            throw std::runtime_error("both ends need the same --qps and --size");
        const std::vector<uint32_t> peers = control.exchange(numbers);
        for (uint32_t i = 0; i < options_.qps; ++i) connect_qp(qps_[i], numbers[i], peers[i]);
        const size_t resident_after = resident_bytes();
        bytes_per_qp_ =
            resident_after > resident_before ? static_cast<double>(resident_after - resident_before) / options_.qps : 0;
        control.barrier();
    }

    // WRITEs for the given time with the QPs in turn, then one tag over every QP.
    void write_all() {
        const size_t slots = buffer_.size() / options_.size;
        const Registrar registrar(pd_, options_.registrations);
        const auto start = Clock::now();
        const auto end = start + std::chrono::duration<double>(options_.seconds);
        uint64_t posted = 0, completed = 0;
        for (bool more = true; more || completed < posted; more = more && Clock::now() < end) {
            for (; more && has_room(posted, completed); ++posted)
                post_write(posted, buffer_mr_, posted % slots * options_.size, options_.size, peer_.buffer_address,
                           peer_.buffer_rkey);
            completed += poll();
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        const double registrations = static_cast<double>(registrar.count()) / seconds;

        for (uint64_t i = 0, done = 0; done < options_.qps; done += poll())
            for (; i < options_.qps && has_room(i, done); ++i)
                post_write(i, tags_mr_, i * sizeof tags_[0], sizeof tags_[0], peer_.tags_address, peer_.tags_rkey);
        std::printf(
            "qp_scale qps=%u size=%zu messages=%lu seconds=%.3f gbps=%.3f rss_bytes_per_qp=%.0f "
            "registrations_per_s=%.0f\n",
            options_.qps, options_.size, completed, seconds,
            static_cast<double>(completed * options_.size) * 8 / 1e9 / seconds, bytes_per_qp_, registrations);
    }

    void verify() const {
        for (size_t i = 0; i < buffer_.size(); ++i)
            if (buffer_[i] != pattern(i)) throw std::runtime_error("wrong byte at offset " + std::to_string(i));
        for (uint32_t q = 0; q < options_.qps; ++q)
            if (tags_[q] != kTagBase + q) throw std::runtime_error("wrong tag of QP index " + std::to_string(q));
        std::printf("qp_scale_server qps=%u verified=yes rss_bytes_per_qp=%.0f\n", options_.qps, bytes_per_qp_);
    }

  private:
    void open_device() {
        int n = 0;
        ibv_device** devices = ibv_get_device_list(&n);
        for (int i = 0; i < n && context_ == nullptr; ++i)
            if (options_.device.empty() || options_.device == ibv_get_device_name(devices[i]))
                if ((context_ = ibv_open_device(devices[i])) == nullptr) fail("ibv_open_device");
        if (devices != nullptr) ibv_free_device_list(devices);
        if (context_ == nullptr) throw std::runtime_error("no RDMA device of that name");
        if (ibv_query_port(context_, kPort, &port_) != 0) fail("ibv_query_port");
        for (int i = 0; i < port_.gid_tbl_len; ++i) {
            ibv_gid_entry entry{};
            if (ibv_query_gid_ex(context_, kPort, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
            const bool ipv4 = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(entry.gid.raw));
            if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !ipv4) continue;
            gid_ = entry.gid;
            gid_index_ = static_cast<uint8_t>(i);
            return;
        }
        throw std::runtime_error("the port has no RoCE v2 GID of an IPv4 address");
    }

    uint32_t send_depth() const { return (kOutstanding + options_.qps - 1) / options_.qps; }

    // Returns true if the next WRITE, number `posted`, may be posted to its QP.
    bool has_room(uint64_t posted, uint64_t completed) const {
        return posted - completed < kOutstanding && in_flight_[posted % options_.qps] < send_depth();
    }

    // Creates a QP as shallow as the load allows: 1 WQE each way from kOutstanding QPs on.
    uint32_t create_qp() {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq_;
        init.qp_type = IBV_QPT_RC;
        init.cap.max_send_wr = send_depth();
        init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
        ibv_qp* qp = ibv_create_qp(pd_, &init);
        if (qp == nullptr) fail("ibv_create_qp of QP " + std::to_string(qps_.size()));
        qps_.push_back(qp);
        return qp->qp_num;
    }

    void connect_qp(ibv_qp* qp, uint32_t number, uint32_t peer_number) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = kPort;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
        attr = {};
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = port_.active_mtu;
        attr.dest_qp_num = peer_number;
        attr.rq_psn = first_psn(peer_number);
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;  // 0.64 ms, IBTA table 45
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = kPort;
        attr.ah_attr.grh.dgid = peer_.gid;
        attr.ah_attr.grh.sgid_index = gid_index_;
        attr.ah_attr.grh.hop_limit = 64;
        modify(qp, attr,
               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
               "RTR");
        attr = {};
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;  // 4.096 us * 2^14 = 67 ms, perftest's choice
        attr.retry_cnt = attr.rnr_retry = 7;
        attr.sq_psn = first_psn(number);
        attr.max_rd_atomic = 1;
        modify(qp, attr,
               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                   IBV_QP_MAX_QP_RD_ATOMIC,
               "RTS");
    }

    // Returns a first PSN that both ends can compute and that neighbouring QPs do not share.
    static uint32_t first_psn(uint32_t qp_number) { return qp_number * 2654435761u >> 8 & kPsnMask; }

    static void modify(ibv_qp* qp, ibv_qp_attr& attr, int mask, const char* state) {
        if ((errno = ibv_modify_qp(qp, &attr, mask)) != 0) fail(std::string("ibv_modify_qp to ") + state);
    }

    void post_write(uint64_t number, const ibv_mr* from, size_t offset, size_t bytes, uint64_t to, uint32_t rkey) {
        ibv_sge sge{reinterpret_cast<uint64_t>(from->addr) + offset, static_cast<uint32_t>(bytes), from->lkey};
        ibv_send_wr wr{}, *bad = nullptr;
        wr.wr_id = number % options_.qps;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = to + offset;
        wr.wr.rdma.rkey = rkey;
        if ((errno = ibv_post_send(qps_[wr.wr_id], &wr, &bad)) != 0) fail("ibv_post_send");
        ++in_flight_[wr.wr_id];
    }

    uint32_t poll() {
        ibv_wc completions[kOutstanding];
        const int n = ibv_poll_cq(cq_, kOutstanding, completions);
        if (n < 0) fail("ibv_poll_cq");
        for (int i = 0; i < n; ++i) {
            if (completions[i].status != IBV_WC_SUCCESS)
                throw std::runtime_error("WRITE on QP index " + std::to_string(completions[i].wr_id) + ": " +
                                         ibv_wc_status_str(completions[i].status));
            --in_flight_[completions[i].wr_id];
        }
        return static_cast<uint32_t>(n);
    }

    static constexpr uint8_t kPort = 1;
    const Options& options_;
    std::vector<uint8_t> buffer_;
    std::vector<uint64_t> tags_;  // one per QP
    ibv_context* context_ = nullptr;
    ibv_port_attr port_{};
    ibv_gid gid_{};
    uint8_t gid_index_ = 0;
    ibv_pd* pd_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_mr *buffer_mr_ = nullptr, *tags_mr_ = nullptr;
    std::vector<ibv_qp*> qps_;
    std::vector<uint32_t> in_flight_;  // WRITEs, per QP
    Endpoint peer_{};
    double bytes_per_qp_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
    Options options;
    CLI::App app("Goodput of RDMA WRITE over many RC QPs");
    app.add_option("--host", options.host,
                   "server's IPv4 address for the TCP connection; without it this is the server");
    app.add_option("--qps", options.qps, "RC QPs")->check(CLI::Range(1, 1 << 14));
    app.add_option("--size", options.size, "message, bytes")->check(CLI::Range(1, 1 << 30));
    app.add_option("--seconds", options.seconds, "how long to write")->check(CLI::Range(0.1, 3600.0));
    app.add_option("--registrations", options.registrations, "registrations a second beside the WRITEs; default none");
    app.add_option("--port", options.port, "TCP port");
    app.add_option("--device", options.device, "RDMA device; without it the first");
    CLI11_PARSE(app, argc, argv);

    Node node(options);
    Control control(options);
    node.connect(control);
    if (options.client()) node.write_all();
    control.barrier();  // the server waits here for the client's end
    if (!options.client()) node.verify();
    control.barrier();
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "qp_scale: %s\n", error.what());
    return 1;
}
