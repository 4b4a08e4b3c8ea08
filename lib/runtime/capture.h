// SPDX-License-Identifier: Apache-2.0
// Writes what ports send and receive to a pcapng file, with one interface for each port. It is meant for debugging and
// is slow: workers write to the file themselves. (DPDK's rte_pcapng knows only ports that DPDK drives.) Units: bytes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace rove::datapath {

class Capture {
  public:
    // Opens the file. Frames are captured as the port's peer sees them: received ones before fault injection, sent ones
    // when the port gets them. `ports` are the ports' names by id. Returns null and stores the reason in `*error` on
    // failure.
    static std::unique_ptr<Capture> start(const std::string& file, const std::vector<std::string>& ports,
                                          std::string* error);
    ~Capture();  // only while no worker writes
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    // Any worker may call these.
    void received(uint16_t port, std::span<const uint8_t> frame) { write(port, frame, kInbound); }
    void sent(uint16_t port, std::span<const uint8_t> frame) { write(port, frame, kOutbound); }

  private:
    static constexpr uint32_t kInbound = 1, kOutbound = 2;  // values of the option epb_flags

    Capture(std::string name, FILE* file) : name_(std::move(name)), file_(file) {}
    void write(uint16_t port, std::span<const uint8_t> frame, uint32_t direction);
    void write_block(uint32_t type, std::span<const uint8_t> body);

    const std::string name_;
    FILE* const file_;
    std::mutex mutex_;   // against other workers
    uint64_t lost_ = 0;  // frames that could not be written
};

}  // namespace rove::datapath
