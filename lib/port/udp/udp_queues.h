// SPDX-License-Identifier: Apache-2.0
// The queues of a "udp" port, which move datagrams between a worker's mbufs and the sockets, with GSO and GRO
// (segmentation.h). Units: bytes, frames.
#pragma once

#include <rte_mbuf.h>

#include <span>
#include <vector>

#include "port/segmentation/segmentation.h"
#include "port/udp/udp.h"
#include "wire/datagram.h"

namespace rove::datapath {

class UdpRxQueue final : public RxQueue {
  public:
    UdpRxQueue(const UdpPort::Receivers& receivers, rte_mempool* pool, FrameCounts& counts);

    uint16_t burst(rte_mbuf** frames) override;
    bool arm() override { return !trains_.has_frames(); }

  private:
    bool receive(const UdpPort::Receiver& receiver);
    void take(const UdpPort::Receiver& receiver, size_t message);

    const UdpPort::Receivers& receivers_;
    size_t next_receiver_ = 0;
    // The source and the destination of the frames that begin with `lower_`.
    wire::Gid peer_{}, peers_destination_{};
    wire::FlowTemplate lower_;
    GroReceiver trains_;
};

class UdpTxQueue final : public GsoSender {
  public:
    UdpTxQueue(std::string port, std::vector<UdpPort::Local>& locals, FrameCounts& counts)
        : GsoSender(std::move(port), counts, Others::kLeft), locals_(locals) {}

  private:
    void send(std::span<Train> trains) override;
    Result send(Train& train);
    int socket_of(Train& train);

    std::vector<UdpPort::Local>& locals_;
};

}  // namespace rove::datapath
