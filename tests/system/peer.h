// SPDX-License-Identifier: Apache-2.0
// The common part of the verbs programs of the system tests: a TCP control channel, one device with its QPs, and byte
// patterns. Plain libibverbs: nothing here knows rove. Errors end the program.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace peer {

// Prints "FAIL: ..." to stderr and exits with status 1.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Returns CLOCK_MONOTONIC in seconds, which is comparable between the processes of one host.
double now_s();

// The out-of-band channel of the two processes, as in perftest.
class Control {
  public:
    // Waits for one peer. A further call waits for the next one.
    void accept_peer(uint16_t port);
    // Tries until `patience_s` seconds have passed.
    void connect_to(const std::string& host, uint16_t port, double patience_s);
    void close_peer();
    ~Control();

    void send(const void* data, size_t bytes);
    void receive(void* data, size_t bytes);
    template <typename T>
    T exchange(const T& mine) {
        T theirs;
        send(&mine, sizeof(mine));
        receive(&theirs, sizeof(theirs));
        return theirs;
    }
    void barrier() { exchange<char>('b'); }
    int fd() const { return fd_; }

  private:
    int listener_ = -1, fd_ = -1;
};

struct Device {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    uint8_t gid_index = 0;
    ibv_gid gid{};

    // An empty `name` means the first device.
    Device(const std::string& name, int gid_index);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
};

struct QpOptions {
    ibv_qp_type type = IBV_QPT_RC;
    uint32_t depth = 16, sge = 1, inline_bytes = 0;
    uint32_t mtu = 1024;  // bytes
    uint8_t timeout = 14, retry = 7, rnr_retry = 7, sl = 0;
    uint8_t rd_atomic = 16;
    ibv_srq* srq = nullptr;
};

inline constexpr uint32_t kQkey = 0x11111111;

// The parameters of a QP that the other side needs.
struct QpAddress {
    uint32_t qpn = 0, psn = 0;
    ibv_gid gid{};
};

ibv_qp* create_qp(const Device& device, ibv_cq* cq, const QpOptions& options);
void to_init(ibv_qp* qp, const QpOptions& options);
void to_rtr(ibv_qp* qp, const Device& device, const QpOptions& options, const QpAddress& remote);
int try_rts(ibv_qp* qp, const QpOptions& options, uint32_t local_psn);  // returns 0 or an errno
void to_rts(ibv_qp* qp, const QpOptions& options, uint32_t local_psn);
ibv_ah* create_ah(const Device& device, const QpOptions& options, const QpAddress& remote);

// Fills in bytes that depend on every part of `seed` and on their place.
void fill(uint8_t* data, size_t bytes, uint64_t seed);
// Returns the index of the first byte that fill() would not have made, or `bytes`.
size_t first_difference(const uint8_t* data, size_t bytes, uint64_t seed);

size_t resident_bytes();  // VmRSS of this process

}  // namespace peer
