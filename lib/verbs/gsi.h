// SPDX-License-Identifier: Apache-2.0
// The general services interface of a device's port: QP 1, which receives management datagrams (MADs, IBTA 3.9.5). It
// is an ordinary UD QP on the ordinary engine, with its own CQ and receives.
//
// No call here waits. A reply goes back to the sender of its request, so no neighbour has to be resolved.
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
    static constexpr uint32_t kReceives = 1024;    // MADs that fit before receive() is called
    static constexpr uint32_t kSends = 1024;       // MADs that may wait to be sent

    // Opens QP 1 of `device`, whose datapath must run. Returns null and sets errno if there is no memory or no file
    // descriptor.
    static std::unique_ptr<Gsi> open(Device& device);

    // Also destroys an object that open() has set up in part.
    ~Gsi();
    Gsi(const Gsi&) = delete;
    Gsi& operator=(const Gsi&) = delete;

    Device& device() const { return device_; }
    // Returns a descriptor that is readable if MADs have arrived since arm().
    int fd() const { return channel_->fd; }
    void arm();

    // Returns the next MAD, or nothing. `mad` is valid until the next call.
    struct Received {
        wire::Flow back;  // the flow to its sender; `src` is the address to which the MAD was sent
        uint32_t src_qpn = 0;
        std::span<const uint8_t> mad;
    };
    std::optional<Received> receive();

    // Sends a MAD. Uses `flow.dst_mac` if the neighbour is not known. If that is zero too, resolution of the neighbour
    // starts and the MAD is dropped. Returns false if the MAD was dropped.
    bool send(const wire::Flow& flow, uint32_t remote_qpn, std::span<const uint8_t, kMadBytes> mad);

  private:
    static constexpr size_t kReceiveBytes = 320;  // GRH, MAD and the sender's MAC, rounded up to cache lines

    explicit Gsi(Device& device) : device_(device), sends_(kSends), buffers_(kReceives * kReceiveBytes) {}
    int set_up();
    bool post_receive(uint32_t index);

    Device& device_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;  // completions of receives
    ibv_cq* send_cq_ = nullptr;
    ibv_qp* qp_ = nullptr;
    std::vector<Ah> sends_;  // the destination of each MAD that is being sent
    std::vector<uint32_t> free_sends_;
    std::vector<uint8_t> buffers_;
    std::optional<uint32_t> taken_;  // the receive buffer that receive() returned
};

}  // namespace rove::verbs
