// SPDX-License-Identifier: Apache-2.0
// The general services interface of a device's port: QP 1, to which management datagrams (MADs) come (IBTA 3.9.5). It
// is an ordinary UD QP on the ordinary engine, with a CQ and receives of its own.
//
// Nothing here waits. An answer goes to where its question came from, and so needs no discovery of neighbours.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "verbs/objects.h"

namespace rove::verbs {

class Gsi {
  public:
    static constexpr size_t kMadBytes = 256;       // IBTA 13.4.2
    static constexpr uint32_t kQkey = 0x80010000;  // IBTA 3.5.3
    static constexpr uint32_t kReceives = 1024;    // MADs that may come before receive() is called
    static constexpr uint32_t kSends = 1024;       // MADs that may wait to be sent

    // Of `device`, whose datapath runs. Null and errno without memory or file descriptors.
    static std::unique_ptr<Gsi> open(Device& device);

    ~Gsi();  // of one that could not be opened
    Gsi(const Gsi&) = delete;
    Gsi& operator=(const Gsi&) = delete;

    Device& device() const { return device_; }
    // Readable when MADs have come since arm().
    int fd() const { return channel_->fd; }
    void arm();

    // Takes the next MAD. `mad` is valid until the next call.
    struct Received {
        wire::Flow back;  // the way back to its sender: src is the address that it was sent to
        uint32_t src_qpn = 0;
        std::span<const uint8_t> mad;
    };
    std::optional<Received> receive();

    // `flow.dst_mac` counts if the neighbour is not known; if it is zero too, the neighbour is asked for, and the MAD
    // is dropped. False: dropped.
    bool send(const wire::Flow& flow, uint32_t remote_qpn, std::span<const uint8_t, kMadBytes> mad);

  private:
    static constexpr size_t kReceiveBytes = 320;  // GRH, MAD and the sender's MAC, at a multiple of a cache line

    explicit Gsi(Device& device) : device_(device), sends_(kSends), buffers_(kReceives * kReceiveBytes) {}
    int set_up();
    bool post_receive(uint32_t index);

    Device& device_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;  // of receives
    ibv_cq* send_cq_ = nullptr;
    ibv_qp* qp_ = nullptr;
    std::vector<Ah> sends_;  // where each MAD that is being sent goes
    std::vector<uint32_t> free_sends_;
    std::vector<uint8_t> buffers_;
    std::optional<uint32_t> taken_;  // the receive that receive() gave out
};

}  // namespace rove::verbs
