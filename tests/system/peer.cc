// SPDX-License-Identifier: Apache-2.0
#include "peer.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace peer {

void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fputs("FAIL: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputs("\n", stderr);
    va_end(arguments);
    std::exit(1);
}

double now_s() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Control::accept_peer(uint16_t port) {
    const int on = 1;
    if (listener_ < 0) {
        listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener_, 1) != 0)
            fail("TCP port %u: %s", port, strerror(errno));
    }
    fd_ = accept(listener_, nullptr, nullptr);
    if (fd_ < 0) fail("accept: %s", strerror(errno));
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Control::connect_to(const std::string& host, uint16_t port, double patience_s) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) fail("host %s", host.c_str());
    const double deadline = now_s() + patience_s;
    while (true) {
        fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd_, found->ai_addr, found->ai_addrlen) == 0) break;
        const int error = errno;
        close(fd_);
        if (now_s() > deadline) fail("connect to %s:%u: %s", host.c_str(), port, strerror(error));
        usleep(20'000);
    }
    freeaddrinfo(found);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Control::close_peer() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
}

Control::~Control() {
    close_peer();
    if (listener_ >= 0) close(listener_);
}

void Control::send(const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t sent = ::send(fd_, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) fail("control channel: peer is gone");
        at += sent;
        bytes -= static_cast<size_t>(sent);
    }
}

void Control::receive(void* data, size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t got = ::recv(fd_, at, bytes, 0);
        if (got <= 0) fail("control channel: peer is gone");
        at += got;
        bytes -= static_cast<size_t>(got);
    }
}

Device::Device(const std::string& name, int index) : gid_index(static_cast<uint8_t>(index)) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) fail("no verbs devices");
    for (int i = 0; i < count && context == nullptr; ++i)
        if (name.empty() || name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    if (context == nullptr) fail("device '%s' not found", name.c_str());
    pd = ibv_alloc_pd(context);
    if (pd == nullptr) fail("ibv_alloc_pd: %s", strerror(errno));
    if (ibv_query_gid(context, 1, index, &gid) != 0) fail("gid index %d: %s", index, strerror(errno));
}

Device::~Device() {
    if (ibv_dealloc_pd(pd) != 0) std::fprintf(stderr, "ibv_dealloc_pd: %s\n", strerror(errno));
    ibv_close_device(context);
}

static ibv_mtu to_enum(uint32_t mtu) {
    for (const ibv_mtu value : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
        if (mtu == (128U << value)) return value;
    fail("path MTU %u: 256, 512, 1024, 2048 or 4096", mtu);
}

ibv_qp* create_qp(const Device& device, ibv_cq* cq, const QpOptions& options) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = options.srq;
    init.qp_type = options.type;
    init.sq_sig_all = 0;
    init.cap = {.max_send_wr = options.depth,
                .max_recv_wr = options.srq != nullptr ? 0 : options.depth,
                .max_send_sge = options.sge,
                .max_recv_sge = options.sge,
                .max_inline_data = options.inline_bytes};
    ibv_qp* qp = ibv_create_qp(device.pd, &init);
    if (qp == nullptr) fail("ibv_create_qp: %s", strerror(errno));
    return qp;
}

static void modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask, const char* state) {
    if (const int error = ibv_modify_qp(qp, &attributes, mask)) fail("ibv_modify_qp to %s: %s", state, strerror(error));
}

void to_init(ibv_qp* qp, const QpOptions& options) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (options.type == IBV_QPT_UD) {
        attributes.qkey = kQkey;
        mask |= IBV_QP_QKEY;
    } else {
        attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        if (options.type == IBV_QPT_RC) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    modify(qp, attributes, mask, "INIT");
}

static ibv_ah_attr address_of(const Device& device, const QpOptions& options, const QpAddress& remote) {
    ibv_ah_attr address{};
    address.is_global = 1;
    address.grh.dgid = remote.gid;
    address.grh.sgid_index = device.gid_index;
    address.grh.hop_limit = 64;
    address.sl = options.sl;
    address.port_num = 1;
    return address;
}

void to_rtr(ibv_qp* qp, const Device& device, const QpOptions& options, const QpAddress& remote) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    int mask = IBV_QP_STATE;
    if (options.type != IBV_QPT_UD) {
        attributes.path_mtu = to_enum(options.mtu);
        attributes.dest_qp_num = remote.qpn;
        attributes.rq_psn = remote.psn;
        attributes.ah_attr = address_of(device, options, remote);
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (options.type == IBV_QPT_RC) {
        attributes.max_dest_rd_atomic = options.rd_atomic;
        attributes.min_rnr_timer = 1;  // IBTA table 46: 0.01 ms
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    modify(qp, attributes, mask, "RTR");
}

int try_rts(ibv_qp* qp, const QpOptions& options, uint32_t local_psn) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = local_psn;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (options.type == IBV_QPT_RC) {
        attributes.timeout = options.timeout;
        attributes.retry_cnt = options.retry;
        attributes.rnr_retry = options.rnr_retry;
        attributes.max_rd_atomic = options.rd_atomic;
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    return ibv_modify_qp(qp, &attributes, mask);
}

void to_rts(ibv_qp* qp, const QpOptions& options, uint32_t local_psn) {
    if (const int error = try_rts(qp, options, local_psn)) fail("ibv_modify_qp to RTS: %s", strerror(error));
}

ibv_ah* create_ah(const Device& device, const QpOptions& options, const QpAddress& remote) {
    ibv_ah_attr address = address_of(device, options, remote);
    ibv_ah* ah = ibv_create_ah(device.pd, &address);
    if (ah == nullptr) fail("ibv_create_ah: %s", strerror(errno));
    return ah;
}

// splitmix64 of the 8-byte word's index.
static uint64_t word_at(uint64_t seed, uint64_t index) {
    uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    return z ^ (z >> 27);
}

void fill(uint8_t* data, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 8) {
        const uint64_t word = word_at(seed, at / 8);
        std::memcpy(data + at, &word, std::min<size_t>(8, bytes - at));
    }
}

size_t first_difference(const uint8_t* data, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 8) {
        const uint64_t word = word_at(seed, at / 8);
        const size_t length = std::min<size_t>(8, bytes - at);
        if (std::memcmp(data + at, &word, length) == 0) continue;
        const auto* expected = reinterpret_cast<const uint8_t*>(&word);
        for (size_t i = 0; i < length; ++i)
            if (data[at + i] != expected[i]) return at + i;
    }
    return bytes;
}

size_t resident_bytes() {
    unsigned long total = 0, resident = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2) fail("/proc/self/statm");
    std::fclose(file);
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace peer
