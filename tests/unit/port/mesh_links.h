// SPDX-License-Identifier: Apache-2.0
// A link of a mesh for tests, with both ends in this process.
#pragma once

#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "port/memif/bells.h"
#include "port/memif/memif_connection.h"
#include "port/memif/ring.h"
#include "port/memif/shared_memory.h"

namespace rove::datapath {

// The bell page of a receiver.
struct Bells {
    FileDescriptor file = make_shared_memory("test-bells", BellPage::kBytes);
    SharedMapping mapping{file, BellPage::kBytes};
    BellPage* page() const { return reinterpret_cast<BellPage*>(mapping.address()); }
};

inline MemifConnection::Settings mesh_client() {
    return {.role = MemifConnection::Role::kClient,
            .name = "client",
            .secret = "test",
            .log2_slots = 9,
            .buffer_bytes = 4352,
            .mesh = true};
}

class MeshLink {
  public:
    MeshLink(const Bells& bells, uint16_t bell) {
        std::array<int, 2> ends;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) return;
        using Role = MemifConnection::Role;
        server_ = std::make_unique<MemifConnection>(ends[1], MemifConnection::Settings{.role = Role::kServer,
                                                                                       .secret = "test",
                                                                                       .mesh = true,
                                                                                       .bell_file = bells.file.get(),
                                                                                       .bells = bells.page(),
                                                                                       .bell = bell});
        client_ = std::make_unique<MemifConnection>(ends[0], mesh_client());
        for (int i = 0; i < 10; ++i) client_->advance(), server_->advance();
        if (client_->advance() != MemifConnection::State::kConnected) return;
        sender_ = std::make_unique<RingSender>(*client_, Role::kClient);
        receiver_ = std::make_unique<RingReceiver>(*server_, Role::kServer, nullptr);
    }

    bool is_connected() const { return receiver_ != nullptr; }
    const MemifConnection& client() const { return *client_; }
    RingSender& sender() { return *sender_; }
    RingReceiver& receiver() { return *receiver_; }
    // Returns the socket that becomes readable when the sender ends a sleep.
    int doorbell() const { return server_->socket(); }

    // Sends a frame of `bytes` bytes, each with the value `value`. Returns false if the ring is full.
    bool send(uint8_t value, uint32_t bytes = 64) {
        uint8_t* const frame = sender_->next(bytes);
        if (frame == nullptr) return false;
        std::fill_n(frame, bytes, value);
        sender_->took(bytes);
        sender_->publish();
        return true;
    }
    // Reads the received frames and returns their number. Counts the bytes that differ from the expected value, which
    // grows by one with each frame.
    uint32_t receive(uint8_t* next_value, uint32_t* wrong_bytes) {
        std::array<rte_mbuf*, RxQueue::kBurst> frames;
        const uint16_t count = receiver_->burst(frames.data());
        for (uint16_t i = 0; i < count; ++i, ++*next_value)
            for (uint16_t at = 0; at < frames[i]->data_len; ++at)
                *wrong_bytes += rte_pktmbuf_mtod(frames[i], const uint8_t*)[at] != *next_value;
        receiver_->release();
        return count;
    }

  private:
    std::unique_ptr<MemifConnection> client_, server_;
    std::unique_ptr<RingSender> sender_;
    std::unique_ptr<RingReceiver> receiver_;
};

}  // namespace rove::datapath
