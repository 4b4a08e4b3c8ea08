// SPDX-License-Identifier: Apache-2.0
// What ports send and receive, as a pcapng file, an interface for each port. For looking, not for speed: workers write
// to the file themselves. Without a capture, ports have no callbacks, and a packet costs nothing. Units: bytes.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/standstill.h"

struct rte_eth_rxtx_callback;
struct rte_mempool;
struct rte_pcapng;

namespace rove::datapath {

class Port;

class Capture {
  public:
    // Frames are as the port's peer sees them: received ones before impairments, sent ones when the port is given them.
    // Null: `*error` says why.
    static std::unique_ptr<Capture> start(const transport::Paused&, const std::string& file,
                                          const std::vector<std::unique_ptr<Port>>& ports, uint32_t largest_frame,
                                          std::string* error);
    ~Capture();  // while no worker runs, too
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

  private:
    struct Tap {  // a callback of a queue
        uint16_t port, queue;
        bool receives;
        const rte_eth_rxtx_callback* callback;
    };
    Capture() = default;
    std::string open(const std::string& file, uint32_t largest_frame);
    bool tap(const Port& port);
    void write(uint16_t port, uint16_t queue, bool received, rte_mbuf** frames, uint16_t count);
    static uint16_t on_receive(uint16_t port, uint16_t queue, rte_mbuf** frames, uint16_t count, uint16_t room,
                               void* capture);
    static uint16_t on_send(uint16_t port, uint16_t queue, rte_mbuf** frames, uint16_t count, void* capture);

    std::string name_;
    std::mutex mutex_;  // against other workers
    rte_pcapng* file_ = nullptr;
    rte_mempool* pool_ = nullptr;
    uint64_t captured_ = 0;  // mbuf flag: a frame that the port did not take and that comes again
    uint64_t lost_ = 0;      // frames that could not be written
    std::vector<Tap> taps_;
};

}  // namespace rove::datapath
