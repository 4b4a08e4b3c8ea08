// SPDX-License-Identifier: Apache-2.0
// Request and response between two programs that sleep until a message arrives: over RC SENDs with a completion
// channel, or over kernel TCP.
//
//     sleepers [SERVER_ADDRESS] [--over verbs|tcp] [--sleep-in CALL] [--connections N] [--size BYTES]
//     [--count MESSAGES] [--pause-us TIME] [--stay-s TIME] [--port TCP_PORT] [--device NAME] [--gid-index N]
//
// Without an address it is the server. Each connection has one request in flight, and each end sleeps in one call for
// all of its connections: `get` is ibv_get_cq_event(), or read() of one TCP connection; `epoll-set` is epoll_wait() of
// a set within another, and `system-call` is poll() without the C library. After each message an end is busy for a
// while (--pause-us), the client before its next request and the server after its response. At the end the client
// sleeps (--stay-s). It prints requests per second, the median, the 99th percentile and the mean of half the time from
// a request to its response, as perftest and qperf do, the number of sleeps per message, the CPU time that all threads
// of its process used per message, and the share of messages that stalled. The server prints its own CPU time. Every
// byte of a message is checked.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTcpBacklog = 1024;
constexpr auto kConnectPatience = std::chrono::seconds(30);  // for the server to start

struct Options {
    std::string host, over = "verbs", sleep_in = "get", device;
    uint32_t connections = 1, size = 8, count = 20'000, pause_us = 0, stay_s = 0, gid_index = 1;
    uint16_t port = 18750;
    bool client() const { return !host.empty(); }
};

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

void check(bool ok, const std::string& what) {
    if (!ok) fail(what);
}

// Opens one TCP connection for each of ours; verbs use the first to exchange addresses.
std::vector<int> connect_all(const Options& options) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options.port);
    inet_pton(AF_INET, options.client() ? options.host.c_str() : "0.0.0.0", &address.sin_addr);
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    const uint32_t count = options.over == "tcp" ? options.connections : 1;
    std::vector<int> sockets;
    int listener = -1;
    if (!options.client()) {
        const int on = 1;
        check((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        check(bind(listener, name, sizeof address) == 0 && listen(listener, kTcpBacklog) == 0, "listen");
    }
    const auto until = Clock::now() + kConnectPatience;
    while (sockets.size() < count) {
        int connected = -1;
        if (options.client()) {
            check((connected = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
            if (connect(connected, name, sizeof address) != 0) {
                check(Clock::now() < until, "connect");
                close(connected);
                usleep(10'000);
                continue;
            }
        } else {
            check((connected = accept(listener, nullptr, nullptr)) >= 0, "accept");
        }
        const int on = 1;
        setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        sockets.push_back(connected);
    }
    if (listener >= 0) close(listener);
    return sockets;
}

void transfer(bool sends, int socket, void* bytes, size_t count) {
    for (auto* at = static_cast<char*>(bytes); count > 0;) {
        const ssize_t moved = sends ? send(socket, at, count, MSG_NOSIGNAL) : recv(socket, at, count, MSG_WAITALL);
        if (moved == 0) throw std::runtime_error("the peer went away");
        check(moved > 0, "transfer");
        at += moved;
        count -= static_cast<size_t>(moved);
    }
}

void fill(uint8_t* message, uint32_t size, uint32_t connection, uint32_t turn) {
    for (uint32_t i = 0; i < size; ++i) message[i] = static_cast<uint8_t>(i * 31 + connection * 7 + turn);
}

void verify(const uint8_t* message, uint32_t size, uint32_t connection, uint32_t turn) {
    for (uint32_t i = 0; i < size; ++i)
        if (message[i] != static_cast<uint8_t>(i * 31 + connection * 7 + turn))
            throw std::runtime_error("a message arrived that was not sent");
}

// Sleeps until `file` is readable, in the call `name`. Fails if that returns anything else.
void sleep_in(const std::string& name, int file, int set, int set_of_set) {
    constexpr int kMinuteMs = 60'000;
    timespec minute{60, 0};
    timeval minute_too{60, 0};
    pollfd polled[2] = {{.fd = -1, .events = POLLIN, .revents = 0}, {.fd = file, .events = POLLIN, .revents = 0}};
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(file, &readable);
    sigset_t none;
    sigemptyset(&none);
    epoll_event event{};
    int result = -1;
    if (name == "poll")
        result = poll(polled, 2, kMinuteMs);
    else if (name == "ppoll")
        result = ppoll(polled, 2, &minute, &none);
    else if (name == "system-call")
        result = static_cast<int>(syscall(SYS_poll, polled, 2, kMinuteMs));
    else if (name == "select")
        result = select(file + 1, &readable, nullptr, nullptr, &minute_too);
    else if (name == "pselect")
        result = pselect(file + 1, &readable, nullptr, nullptr, &minute, &none);
    else if (name == "epoll")
        result = epoll_wait(set, &event, 1, kMinuteMs);
    else if (name == "epoll_pwait")
        result = epoll_pwait(set, &event, 1, kMinuteMs, &none);
    else if (name == "epoll_pwait2")
        result = epoll_pwait2(set, &event, 1, &minute, &none);
    else if (name == "epoll-set")
        result = epoll_wait(set_of_set, &event, 1, kMinuteMs);
    check(result == 1, name);
    if (name == "select" || name == "pselect") check(FD_ISSET(file, &readable), name);
}

// The messages of all connections over one transport.
class Transport {
  public:
    virtual ~Transport() = default;
    virtual void send(uint32_t connection, uint32_t turn) = 0;
    // Makes room for the connection's next message.
    virtual void consumed(uint32_t /*connection*/) {}
    // Sleeps until messages have arrived; calls `came(connection, message)` for each. The message is valid during the
    // call.
    using Came = std::function<void(uint32_t connection, const uint8_t* message)>;
    virtual void wait(const Came& came) = 0;
};

class Tcp final : public Transport {
  public:
    Tcp(const Options& options, std::vector<int> sockets)
        : options_(options), sockets_(std::move(sockets)), message_(options.size), set_(epoll_create1(0)) {
        for (uint32_t i = 0; i < sockets_.size(); ++i) {
            epoll_event event{.events = EPOLLIN, .data = {.u32 = i}};
            epoll_ctl(set_, EPOLL_CTL_ADD, sockets_[i], &event);
            polled_.push_back({.fd = sockets_[i], .events = POLLIN, .revents = 0});
        }
    }
    void send(uint32_t connection, uint32_t turn) override {
        fill(message_.data(), options_.size, connection, turn);
        transfer(true, sockets_[connection], message_.data(), options_.size);
    }
    void wait(const Came& came) override {
        if (options_.sleep_in == "get") return take(0, came);
        if (options_.sleep_in == "poll") {
            check(poll(polled_.data(), polled_.size(), -1) > 0, "poll");
            for (uint32_t i = 0; i < polled_.size(); ++i)
                if (polled_[i].revents != 0) take(i, came);
            return;
        }
        epoll_event events[64];
        const int count = epoll_wait(set_, events, 64, -1);
        check(count > 0, "epoll_wait");
        for (int i = 0; i < count; ++i) take(events[i].data.u32, came);
    }

  private:
    void take(uint32_t connection, const Came& came) {
        transfer(false, sockets_[connection], message_.data(), options_.size);
        came(connection, message_.data());
    }

    const Options& options_;
    const std::vector<int> sockets_;
    std::vector<uint8_t> message_;
    std::vector<pollfd> polled_;
    const int set_;
};

class Verbs final : public Transport {
  public:
    Verbs(const Options& options, int control) : options_(options) {
        int count = 0;
        ibv_device** const devices = ibv_get_device_list(&count);
        for (int i = 0; i < count && context_ == nullptr; ++i)
            if (options.device.empty() || options.device == ibv_get_device_name(devices[i]))
                context_ = ibv_open_device(devices[i]);
        check(context_ != nullptr, "no such device");
        const uint32_t n = options.connections;
        check((pd_ = ibv_alloc_pd(context_)) != nullptr, "ibv_alloc_pd");
        check((channel_ = ibv_create_comp_channel(context_)) != nullptr, "ibv_create_comp_channel");
        check((received_ = ibv_create_cq(context_, static_cast<int>(n), nullptr, channel_, 0)) != nullptr,
              "ibv_create_cq");
        check((sent_ = ibv_create_cq(context_, static_cast<int>(n), nullptr, nullptr, 0)) != nullptr, "ibv_create_cq");
        buffer_.resize(size_t{2} * n * options.size);
        check((mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE)) != nullptr, "ibv_reg_mr");
        struct Endpoint {
            ibv_gid gid;
            uint32_t qpn;
        };
        std::vector<Endpoint> mine(n), theirs(n);
        for (uint32_t i = 0; i < n; ++i) {
            ibv_qp_init_attr init{};
            init.send_cq = sent_;
            init.recv_cq = received_;
            init.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
            init.qp_type = IBV_QPT_RC;
            check((qps_.emplace_back(ibv_create_qp(pd_, &init))) != nullptr, "ibv_create_qp");
            check(ibv_query_gid(context_, 1, static_cast<int>(options.gid_index), &mine[i].gid) == 0, "ibv_query_gid");
            mine[i].qpn = qps_[i]->qp_num;
        }
        transfer(true, control, mine.data(), n * sizeof(Endpoint));
        transfer(false, control, theirs.data(), n * sizeof(Endpoint));
        for (uint32_t i = 0; i < n; ++i) {
            connect(qps_[i], options.gid_index, theirs[i].gid, theirs[i].qpn);
            post_receive(i);
        }
        check(ibv_req_notify_cq(received_, 0) == 0, "ibv_req_notify_cq");
        char ready = 1;
        transfer(true, control, &ready, 1);
        transfer(false, control, &ready, 1);
        set_ = epoll_create1(0);
        epoll_event event{.events = EPOLLIN, .data = {}};
        epoll_ctl(set_, EPOLL_CTL_ADD, channel_->fd, &event);
        set_of_set_ = epoll_create1(0);
        epoll_ctl(set_of_set_, EPOLL_CTL_ADD, set_, &event);
        if (options.sleep_in != "get") fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
    }
    void send(uint32_t connection, uint32_t turn) override {
        uint8_t* const message = &buffer_[size_t{2} * connection * options_.size];
        fill(message, options_.size, connection, turn);
        ibv_sge sge{reinterpret_cast<uintptr_t>(message), options_.size, mr_->lkey};
        ibv_send_wr wr{}, *bad;
        wr.wr_id = connection;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        // The peer's last message acknowledged ours before it.
        ibv_wc wc[16];
        while (ibv_poll_cq(sent_, 16, wc) == 16) continue;
        check(ibv_post_send(qps_[connection], &wr, &bad) == 0, "ibv_post_send");
    }
    void consumed(uint32_t connection) override { post_receive(connection); }
    void wait(const Came& came) override {
        if (options_.sleep_in != "get") sleep_in(options_.sleep_in, channel_->fd, set_, set_of_set_);
        ibv_cq* cq;
        void* context;
        if (ibv_get_cq_event(channel_, &cq, &context) != 0) {
            check(errno == EAGAIN, "ibv_get_cq_event");
            return;
        }
        ibv_ack_cq_events(cq, 1);
        check(ibv_req_notify_cq(received_, 0) == 0, "ibv_req_notify_cq");
        ibv_wc wcs[64];
        int count;
        while ((count = ibv_poll_cq(received_, 64, wcs)) > 0) {
            for (int i = 0; i < count; ++i) {
                if (wcs[i].status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(wcs[i].status));
                const auto connection = static_cast<uint32_t>(wcs[i].wr_id);
                came(connection, &buffer_[(size_t{2} * connection + 1) * options_.size]);
            }
        }
        check(count == 0, "ibv_poll_cq");
    }

  private:
    void post_receive(uint32_t connection) {
        ibv_sge sge{reinterpret_cast<uintptr_t>(&buffer_[(size_t{2} * connection + 1) * options_.size]), options_.size,
                    mr_->lkey};
        ibv_recv_wr wr{}, *bad;
        wr.wr_id = connection;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        check(ibv_post_recv(qps_[connection], &wr, &bad) == 0, "ibv_post_recv");
    }
    static void connect(ibv_qp* qp, uint32_t gid_index, const ibv_gid& gid, uint32_t qpn) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
              "INIT");
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = qpn;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 1;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = gid;
        attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.port_num = 1;
        check(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
              "RTR");
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        check(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                IBV_QP_MAX_QP_RD_ATOMIC) == 0,
              "RTS");
    }

    const Options& options_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq *received_ = nullptr, *sent_ = nullptr;
    ibv_mr* mr_ = nullptr;
    std::vector<uint8_t> buffer_;  // for each connection, the message to send and the one to receive
    std::vector<ibv_qp*> qps_;
    int set_ = -1, set_of_set_ = -1;
};

void be_busy(const Options& options) {
    for (const auto since = Clock::now(); Clock::now() - since < std::chrono::microseconds(options.pause_us);) continue;
}

// Returns the CPU time that all threads of the process have used.
double process_cpu_us() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
}

void serve(const Options& options, Transport& transport) {
    std::vector<uint32_t> turns(options.connections);
    const double begun_cpu_us = process_cpu_us();
    for (uint32_t left = options.count; left > 0;) {
        transport.wait([&](uint32_t connection, const uint8_t* message) {
            verify(message, options.size, connection, turns[connection]);
            transport.consumed(connection);
            transport.send(connection, turns[connection]++);
            be_busy(options);
            --left;
        });
    }
    std::printf("sleepers server cpu_us=%.2f\n", (process_cpu_us() - begun_cpu_us) / options.count);
    std::fflush(stdout);
}

void request(const Options& options, Transport& transport) {
    std::vector<uint32_t> turns(options.connections);
    std::vector<Clock::time_point> begun(options.connections);
    std::vector<double> halves_us;
    halves_us.reserve(options.count);
    uint32_t to_send = options.count;
    const auto send = [&](uint32_t connection) {
        if (to_send == 0) return;
        --to_send;
        begun[connection] = Clock::now();
        transport.send(connection, turns[connection]);
    };
    const double begun_cpu_us = process_cpu_us();
    const auto start = Clock::now();
    for (uint32_t i = 0; i < options.connections; ++i) send(i);
    while (halves_us.size() < options.count) {
        transport.wait([&](uint32_t connection, const uint8_t* message) {
            halves_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begun[connection]).count() /
                                2);
            verify(message, options.size, connection, turns[connection]++);
            transport.consumed(connection);
            be_busy(options);
            send(connection);
        });
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double cpu_us = process_cpu_us() - begun_cpu_us;
    double sum = 0;
    for (const double one : halves_us) sum += one;
    constexpr double kStallUs = 200;  // several wake-ups on an idle host, and less than another thread's slice
    const auto stalls = std::count_if(halves_us.begin(), halves_us.end(), [](double us) { return us > kStallUs; });
    std::sort(halves_us.begin(), halves_us.end());
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    std::printf("sleepers over=%s rate=%.0f median_us=%.2f p99_us=%.2f mean_us=%.2f sleeps=%.2f\n",
                options.over.c_str(), options.count / seconds, halves_us[halves_us.size() / 2],
                halves_us[halves_us.size() * 99 / 100], sum / options.count,
                static_cast<double>(used.ru_nvcsw) / options.count);
    std::printf("sleepers client cpu_us=%.2f stalls=%.4f\n", cpu_us / options.count,
                static_cast<double>(stalls) / options.count);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Request and response between two programs that sleep until a message comes");
    app.add_option("host", options.host);
    app.add_option("--over", options.over)->check(CLI::IsMember({"verbs", "tcp"}));
    app.add_option("--sleep-in", options.sleep_in)
        ->check(CLI::IsMember({"get", "poll", "ppoll", "select", "pselect", "epoll", "epoll_pwait", "epoll_pwait2",
                               "epoll-set", "system-call"}));
    app.add_option("--pause-us", options.pause_us)->check(CLI::Range(0, 1'000'000));
    app.add_option("--connections", options.connections)->check(CLI::Range(1, 1000));
    app.add_option("--size", options.size)->check(CLI::Range(1, 1024));
    app.add_option("--count", options.count)->check(CLI::Range(1, 100'000'000));
    app.add_option("--stay-s", options.stay_s);
    app.add_option("--port", options.port);
    app.add_option("--device", options.device);
    app.add_option("--gid-index", options.gid_index);
    CLI11_PARSE(app, argc, argv);
    const bool one = options.sleep_in == "get" && options.connections == 1;
    if (options.over == "tcp" && !one && options.sleep_in != "poll" && options.sleep_in != "epoll") {
        std::fprintf(stderr, "sleepers: over TCP in poll, epoll, or get with one connection\n");
        return 2;
    }
    try {
        std::vector<int> sockets = connect_all(options);
        std::unique_ptr<Transport> transport;
        if (options.over == "verbs")
            transport = std::make_unique<Verbs>(options, sockets.front());
        else
            transport = std::make_unique<Tcp>(options, sockets);
        options.client() ? request(options, *transport) : serve(options, *transport);
        sleep(options.stay_s);
        // The last response must be acknowledged before its sender ends.
        char done = 1;
        transfer(options.client(), sockets.front(), &done, 1);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "sleepers: %s\n", error.what());
        return 1;
    }
    return 0;
}
