// SPDX-License-Identifier: Apache-2.0
#include "datapath/capture.h"

#include <fcntl.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf_dyn.h>
#include <rte_pcapng.h>
#include <rte_version.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "datapath/port.h"

namespace rove::datapath {

namespace {

constexpr unsigned kCopies = 256;  // more than any burst
constexpr uint16_t kAtOnce = 64;
constexpr mode_t kFileMode = 0644;

}  // namespace

std::unique_ptr<Capture> Capture::start(const transport::Paused&, const std::string& file,
                                        const std::vector<std::unique_ptr<Port>>& ports, uint32_t largest_frame,
                                        std::string* error) {
    std::unique_ptr<Capture> capture(new Capture);
    *error = capture->open(file, largest_frame);
    for (const auto& port : ports)
        if (error->empty() && !capture->tap(*port))
            *error = "rte_eth_add_rx_callback: " + std::string(rte_strerror(rte_errno));
    return error->empty() ? std::move(capture) : nullptr;
}

std::string Capture::open(const std::string& file, uint32_t largest_frame) {
    static constexpr rte_mbuf_dynflag kFlag{.name = "rove_captured", .flags = 0};
    name_ = file;
    const int bit = rte_mbuf_dynflag_register(&kFlag);
    if (bit < 0) return std::string("no mbuf flag is free: ") + rte_strerror(rte_errno);
    captured_ = uint64_t{1} << bit;
    // No caches: those who copy are whatever threads drive the workers.
    const auto room = static_cast<uint16_t>(rte_pcapng_mbuf_size(largest_frame));
    pool_ = rte_pktmbuf_pool_create("rove-capture", kCopies, 0, 0, room, SOCKET_ID_ANY);
    if (pool_ == nullptr) return std::string("no memory for copies of frames: ") + rte_strerror(rte_errno);
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode);
    if (fd < 0) return file + ": " + std::strerror(errno);
    file_ = rte_pcapng_fdopen(fd, nullptr, nullptr, "rove", nullptr);
    if (file_ != nullptr) return {};
    close(fd);
    return file + ": " + rte_strerror(rte_errno);
}

bool Capture::tap(const Port& port) {
    for (uint16_t queue = 0; queue < port.queues(); ++queue) {
        const rte_eth_rxtx_callback* receive = rte_eth_add_rx_callback(port.id(), queue, on_receive, this);
        if (receive == nullptr) return false;
        taps_.push_back({port.id(), queue, true, receive});
        const rte_eth_rxtx_callback* send = rte_eth_add_tx_callback(port.id(), queue, on_send, this);
        if (send == nullptr) return false;
        taps_.push_back({port.id(), queue, false, send});
    }
    return true;
}

Capture::~Capture() {
    for (const Tap& tap : taps_) {
        if (tap.receives)
            rte_eth_remove_rx_callback(tap.port, tap.queue, tap.callback);
        else
            rte_eth_remove_tx_callback(tap.port, tap.queue, tap.callback);
    }
    if (file_ != nullptr) rte_pcapng_close(file_);
    rte_mempool_free(pool_);
    if (lost_ != 0) std::fprintf(stderr, "rove: %s lacks %lu frames that could not be written\n", name_.c_str(), lost_);
}

void Capture::write(uint16_t port, uint16_t queue, bool received, rte_mbuf** frames, uint16_t count) {
    const rte_pcapng_direction direction = received ? RTE_PCAPNG_DIRECTION_IN : RTE_PCAPNG_DIRECTION_OUT;
    const std::lock_guard lock(mutex_);
    std::array<rte_mbuf*, kAtOnce> copies;
    uint16_t copied = 0;
    for (uint16_t i = 0; i < count; ++i) {
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
        rte_mbuf* copy = rte_pcapng_copy(port, queue, frames[i], pool_, UINT32_MAX, direction, nullptr);
#else
        rte_mbuf* copy = rte_pcapng_copy(port, queue, frames[i], pool_, UINT32_MAX, rte_get_tsc_cycles(), direction);
#endif
        if (copy != nullptr)
            copies[copied++] = copy;
        else
            ++lost_;
        if (copied != 0 && (copied == kAtOnce || i + 1 == count)) {
            if (rte_pcapng_write_packets(file_, copies.data(), copied) < 0) lost_ += copied;
            copied = 0;
        }
    }
}

uint16_t Capture::on_receive(uint16_t port, uint16_t queue, rte_mbuf** frames, uint16_t count, uint16_t,
                             void* capture) {
    auto& self = *static_cast<Capture*>(capture);
    // An answer may be built in a received frame, whose mbuf was one that was sent.
    for (uint16_t i = 0; i < count; ++i) frames[i]->ol_flags &= ~self.captured_;
    if (count != 0) self.write(port, queue, true, frames, count);
    return count;
}

uint16_t Capture::on_send(uint16_t port, uint16_t queue, rte_mbuf** frames, uint16_t count, void* capture) {
    auto& self = *static_cast<Capture*>(capture);
    // What a full port did not take comes again, first and in its order.
    uint16_t again = 0;
    while (again < count && (frames[again]->ol_flags & self.captured_) != 0) ++again;
    if (again == count) return count;
    self.write(port, queue, false, frames + again, static_cast<uint16_t>(count - again));
    for (uint16_t i = again; i < count; ++i) frames[i]->ol_flags |= self.captured_;
    return count;
}

}  // namespace rove::datapath
