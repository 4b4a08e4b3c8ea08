// SPDX-License-Identifier: Apache-2.0
// Measures half the round trip of small messages over one kernel TCP connection, the reference for rove's latency.
//
//     tcp_pingpong --port PORT [--host SERVER_ADDRESS] [--size BYTES] [--seconds S]
//
// Without --host it serves one connection. Latencies are nanoseconds. Both ends spin on non-blocking sockets with
// TCP_NODELAY, because rove spins too: with blocking reads TCP would be slower.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kWarmUp = std::chrono::milliseconds(200);     // not counted
constexpr auto kConnectPatience = std::chrono::seconds(10);  // for the server to start

int check(int result, const char* what) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), what);
    return result;
}

sockaddr_in address(const std::string& host, uint16_t port) {
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &addr.sin_addr) != 1) throw std::runtime_error("not an IPv4 address: " + host);
    return addr;
}

int connect_to(const std::string& host, uint16_t port) {
    const sockaddr_in addr = address(host, port);
    for (const auto deadline = Clock::now() + kConnectPatience;; usleep(10'000)) {
        const int fd = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
        if (connect(fd, reinterpret_cast<const sockaddr*>(&addr), sizeof addr) == 0) return fd;
        if (Clock::now() > deadline) check(-1, "connect");
        close(fd);
    }
}

int accept_one(uint16_t port) {
    const sockaddr_in addr = address("0.0.0.0", port);
    const int listener = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    const int on = 1;
    check(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
    check(bind(listener, reinterpret_cast<const sockaddr*>(&addr), sizeof addr), "bind");
    check(listen(listener, 1), "listen");
    const int fd = check(accept(listener, nullptr, nullptr), "accept");
    close(listener);
    return fd;
}

void send_message(int fd, const std::vector<char>& message) {
    if (check(static_cast<int>(send(fd, message.data(), message.size(), MSG_NOSIGNAL)), "send") !=
        static_cast<int>(message.size()))
        throw std::runtime_error("a small message did not fit into the socket");
}

// Returns false if the peer has closed the connection.
bool receive_message(int fd, std::vector<char>& message) {
    for (size_t received = 0; received < message.size();) {
        const ssize_t n = recv(fd, message.data() + received, message.size() - received, MSG_DONTWAIT);
        if (n == 0) return false;
        if (n > 0)
            received += static_cast<size_t>(n);
        else if (errno != EAGAIN)
            check(-1, "recv");
    }
    return true;
}

void measure(int fd, std::vector<char>& message, double seconds) {
    std::vector<int64_t> half_trips_ns;
    half_trips_ns.reserve(static_cast<size_t>(seconds * 1e6) + 1);
    const auto counted_from = Clock::now() + kWarmUp;
    const auto end = counted_from + std::chrono::duration<double>(seconds);
    for (auto now = Clock::now(); now < end;) {
        const auto sent = now;
        send_message(fd, message);
        if (!receive_message(fd, message)) throw std::runtime_error("the server went away");
        now = Clock::now();
        if (sent >= counted_from) half_trips_ns.push_back((now - sent).count() / 2);
    }
    std::sort(half_trips_ns.begin(), half_trips_ns.end());
    const size_t samples = half_trips_ns.size();
    if (samples == 0) throw std::runtime_error("no round trip finished");
    std::printf("tcp_pingpong size=%zu samples=%zu median_ns=%ld p99_ns=%ld\n", message.size(), samples,
                half_trips_ns[samples / 2], half_trips_ns[samples * 99 / 100]);
}

}  // namespace

int main(int argc, char** argv) try {
    std::string host;
    uint16_t port = 18600;
    size_t size = 64;
    double seconds = 1;
    CLI::App app("Latency of kernel TCP");
    app.add_option("--host", host, "server's IPv4 address; without it this is the server");
    app.add_option("--port", port, "TCP port");
    app.add_option("--size", size, "message, bytes, the same on both ends")->check(CLI::Range(1, 4096));
    app.add_option("--seconds", seconds, "how long to measure")->check(CLI::Range(0.1, 3600.0));
    CLI11_PARSE(app, argc, argv);

    const int fd = host.empty() ? accept_one(port) : connect_to(host, port);
    const int on = 1;
    check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    std::vector<char> message(size);
    if (host.empty())
        while (receive_message(fd, message)) send_message(fd, message);
    else
        measure(fd, message, seconds);
    close(fd);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "tcp_pingpong: %s\n", error.what());
    return 1;
}
