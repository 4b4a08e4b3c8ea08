// SPDX-License-Identifier: Apache-2.0
// Measures the rate at which two processes on two cores move data if only the copies remain: one copies from a message
// of its own into shared memory, the other from there into a message of its own. There are no ports, headers or
// descriptors.
//
//     memory_floor --send|--recv NAME --seconds S
//
// NAME is the name of the memory for shm_open(). The receiver makes it and is started first. gbps counts payload.
#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "wire/copy.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPieceBytes = 4096;  // the payload of a full packet
constexpr uint32_t kPieces = 512;       // in the shared memory: the slots of a ring of rove's
constexpr uint32_t kBurst = 8;          // pieces announced together
constexpr uint32_t kMessageBytes = 1 << 20;
constexpr double kWarmUpSeconds = 0.2;  // not counted
constexpr uint64_t kEnd = UINT64_MAX;   // replaces the count when the sender is done

struct Shared {
    alignas(64) std::atomic<uint64_t> written{0};
    alignas(64) std::atomic<uint64_t> read{0};
    alignas(4096) uint8_t pieces[kPieces][kPieceBytes];
};

Shared* map(const std::string& name, int flags) {
    const int fd = shm_open(name.c_str(), flags, 0600);
    if (fd < 0 || ((flags & O_CREAT) != 0 && ftruncate(fd, sizeof(Shared)) != 0))
        throw std::runtime_error("no shared memory " + name);
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    return static_cast<Shared*>(memory);
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void send(const std::string& name, double seconds) {
    Shared& shared = *map(name, O_RDWR);
    std::vector<uint8_t> message(kMessageBytes, 1);
    const auto start = Clock::now();
    for (uint64_t piece = 0; seconds_since(start) < seconds + kWarmUpSeconds; shared.written.store(piece)) {
        while (piece + kBurst - shared.read.load(std::memory_order_acquire) > kPieces) _mm_pause();
        for (uint32_t i = 0; i < kBurst; ++i, ++piece)
            rove::wire::copy(shared.pieces[piece % kPieces], message.data() + piece * kPieceBytes % kMessageBytes,
                             kPieceBytes);
    }
    shared.written.store(kEnd);
}

void receive(const std::string& name) {
    Shared& shared = *new (map(name, O_RDWR | O_CREAT | O_EXCL)) Shared;
    std::vector<uint8_t> message(kMessageBytes, 1);
    uint64_t piece = 0, counted_from = 0;
    Clock::time_point first{}, begin{};
    while (true) {
        const uint64_t written = shared.written.load(std::memory_order_acquire);
        if (written == kEnd) break;
        if (written == piece) {
            _mm_pause();
            continue;
        }
        for (; piece != written; ++piece)
            rove::wire::copy(message.data() + piece * kPieceBytes % kMessageBytes, shared.pieces[piece % kPieces],
                             kPieceBytes);
        shared.read.store(piece, std::memory_order_release);
        if (first == Clock::time_point{}) first = Clock::now();
        if (counted_from == 0 && seconds_since(first) >= kWarmUpSeconds) counted_from = piece, begin = Clock::now();
    }
    const double seconds = seconds_since(begin);
    shm_unlink(name.c_str());
    if (counted_from == 0) throw std::runtime_error("the sender was done at once");
    std::printf("memory_floor seconds=%.3f gbps=%.3f\n", seconds,
                static_cast<double>(piece - counted_from) * kPieceBytes * 8e-9 / seconds);
}

}  // namespace

int main(int argc, char** argv) try {
    std::string to, from;
    double seconds = 0.8;
    CLI::App app("Copy floor of two cores");
    auto* mode = app.add_option_group("mode");
    mode->add_option("--send", to, "copy a message of 1 MiB into the shared memory of this name");
    mode->add_option("--recv", from, "make it, and copy what comes there into a message of 1 MiB");
    mode->require_option(1);
    app.add_option("--seconds", seconds, "how long to send")->check(CLI::Range(0.1, 3600.0));
    CLI11_PARSE(app, argc, argv);
    if (from.empty())
        send(to, seconds);
    else
        receive(from);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "memory_floor: %s\n", error.what());
    return 1;
}
