// SPDX-License-Identifier: Apache-2.0
// What moves between a worker's mbufs and the sockets of a "udp" port, as few calls as can be: many datagrams of one
// size leave as one, and come as one (UDP_SEGMENT, UDP_GRO). Units: bytes, frames.
#pragma once

#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "datapath/ports/udp.h"
#include "wire/datagram.h"

namespace rove::datapath {

// DESIGN NOTES
// 1. The kernel copies into mbufs, behind room for the headers. How it will cut what came is not known before: the
//    buffers of a call are as long as the datagrams of the last large train were, so that the next one falls into
//    place, one datagram a buffer. Behind them is a spill buffer. What falls otherwise is copied once more.
// 2. A train takes as many buffers as it may have datagrams. So when trains come, a call asks for a few of them; else
//    for as many datagrams as a burst has.
class UdpRxQueue final : public RxQueue {
  public:
    UdpRxQueue(const UdpPort::Receivers& receivers, rte_mempool* pool, Poller& poller, UdpPort::Counts& counts);
    ~UdpRxQueue() override;

    uint16_t burst(rte_mbuf** frames) override;
    // The poller looks at the sockets only while it is asked to: they stay readable while we poll.
    bool arm() override;
    void disarm() override;

  private:
    static constexpr size_t kTrains = 2;            // received in one call
    static constexpr size_t kMostSegments = 128;    // of a train: the kernel's UDP_MAX_SEGMENTS
    static constexpr size_t kMostBuffers = 64;      // of a train that falls into place: 64 KiB of 1 KiB each
    static constexpr uint32_t kLeastInPlace = 512;  // shorter datagrams of a train are as well copied
    using Bytes = std::array<uint8_t, 65'536>;      // of a train, or a datagram, at most

    // What one message of recvmmsg() fills.
    struct Slot {
        std::array<rte_mbuf*, kMostBuffers> mbufs{};
        size_t mbuf_count = 0;
        std::array<iovec, kMostBuffers + 1> pieces;
        size_t buffers = 0;  // of `pieces`, that are mbufs'; the one behind them is the spill
        SocketAddress from;
        alignas(cmsghdr) std::array<char, 128> control;
    };
    // One that came.
    struct Message {
        const UdpPort::Receiver& receiver;
        size_t bytes, segment;  // of all its datagrams but the last
        wire::Incoming packet;
        size_t datagrams() const { return (bytes + segment - 1) / segment; }
        size_t bytes_of(size_t datagram) const { return std::min(segment, bytes - datagram * segment); }
    };

    bool receive(const UdpPort::Receiver& receiver);
    // The messages that a call may bring.
    unsigned prepare();
    bool prepare(size_t slot, size_t buffers, uint32_t bytes);
    void take(Slot& slot, const Message& message);
    void take_in_place(Slot& slot, const Message& message);
    void take_copies(Slot& slot, const Message& message);
    void add(std::span<rte_mbuf*> mbufs, const Message& message);
    void identify(std::span<rte_mbuf*> mbufs);
    uint16_t identify(rte_mbuf& mbuf, uint16_t assumed);

    const UdpPort::Receivers& receivers_;
    rte_mempool* const pool_;
    Poller& poller_;
    UdpPort::Counts& counts_;
    const uint32_t room_;         // of a datagram, in an mbuf
    bool trains_ = false;         // the last call brought one
    uint32_t train_segment_ = 0;  // of the last that had long ones; 0: none has
    size_t next_receiver_ = 0;
    // Whose frames begin with `lower_`, and to whom they are.
    wire::Gid peer_{};
    const UdpPort::Receiver* peers_receiver_ = nullptr;
    wire::FlowTemplate lower_;
    wire::Identifications identifications_;
    std::array<Slot, kBurst> slots_;
    std::array<mmsghdr, kBurst> messages_;
    std::unique_ptr<Bytes[]> spills_;  // as slots_; the kernel gives them memory when something falls there
    std::unique_ptr<Bytes> in_one_piece_;
    std::vector<rte_mbuf*> ready_;  // from ready_next_ on
    size_t ready_next_ = 0;
};

// DESIGN NOTE. Frames of one flow and size are a message, wherever among the others they stand: those of another flow
// take another path, or go to another host, where none can tell which was first. What the kernel does not take stays
// the caller's, in its order.
class UdpTxQueue final : public TxQueue {
  public:
    UdpTxQueue(std::vector<UdpPort::Local>& locals, UdpPort::Counts& counts);
    // A message.
    Burst wanted() const override { return {kMostFrames, kMostBytes - kLargestFrameBytes}; }
    uint16_t burst(rte_mbuf** frames, uint16_t count) override;

  private:
    // Of a burst, and of a message: UDP_MAX_SEGMENTS of older kernels.
    static constexpr size_t kMostFrames = kMostBurst;
    static constexpr uint32_t kMostBytes = 65'000;  // of a message
    static constexpr uint32_t kLargestFrameBytes = 4096 + wire::kMaxOverheadBytes;

    struct Message {
        wire::Outgoing first;
        size_t segment = 0, bytes = 0;
        bool ended = false;  // by a shorter frame
        uint8_t count = 0;
        std::array<uint8_t, kMostFrames> frames;  // where they stand in the burst
    };
    enum class Result : uint8_t { kSent, kDropped, kFull };

    void group(rte_mbuf** frames, uint16_t count);
    bool append(const wire::Outgoing& frame, uint8_t at);
    Result send(Message& message);
    int socket_of(Message& message);

    std::vector<UdpPort::Local>& locals_;
    UdpPort::Counts& counts_;
    bool segments_ = true;  // the kernel makes many datagrams of one call
    wire::Identifications identifications_;
    std::array<wire::Outgoing, kMostFrames> outgoing_;
    std::array<Message, kMostFrames> messages_;
    size_t message_count_ = 0;
};

}  // namespace rove::datapath
