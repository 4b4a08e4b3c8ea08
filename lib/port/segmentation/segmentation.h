// SPDX-License-Identifier: Apache-2.0
// Segmentation (GSO and GRO): the kernel accepts and returns several datagrams of one flow and one size as one message.
// For UDP sockets this is UDP_SEGMENT and UDP_GRO, for AF_PACKET sockets PACKET_VNET_HDR. The cost of a frame in the
// kernel is then paid once per message. Units: bytes, frames.
//
// The ICRC covers IPv4's identification, and the code that segments a message numbers its packets: the n-th packet
// after the first has the first one's identification plus n.
#pragma once

#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "port/memif/ring.h"
#include "port/port.h"
#include "wire/datagram.h"

namespace rove::datapath {

// The number of paths that mp uses in a process that sends with GSO. It is large enough to spread over a network of
// equal-cost paths, and small enough that frames of one path form messages. Over a veth of MTU 1500, mp moved 0.042
// GB/s with all 16384 paths, 0.08 with 32, 0.17 with 16, 0.18 with 8, 0.23 with 4, and rc 0.37 (on a machine with other
// load).
inline constexpr uint32_t kTrainPaths = 8;

// The counters of the frames in one direction, written by one thread.
struct FrameCounts {
    RingCount frames, bytes;
    RingCount errors;    // received and too short or too long, or sent while the link is down
    RingCount over_mtu;  // sent, and dropped because the interface's MTU is less
    RingCount no_mbuf;   // received, and dropped because there was no mbuf
};

// Sends frames as GSO messages.
//
// DESIGN NOTE. Frames of one flow and size form one message, wherever in the burst they are. Frames of other flows take
// another path or are sent to another host, where their order relative to these cannot be seen. Frames that the kernel
// does not accept stay the caller's, in their order.
class GsoSender : public TxQueue {
  public:
    enum class Others : bool { kLeft, kSent };  // frames that are not RoCE: ARP, ND, IGMP, MLD, echo
    // Takes the name of the port for messages. `counts` has to exist only when frames are sent.
    GsoSender(std::string port, FrameCounts& counts, Others others)
        : port_(std::move(port)), others_(others), counts_(counts) {}
    // Asks for the frames of one GSO message.
    Burst wanted() const final { return {kMaxFrames, kMaxBytes - kLargestFrameBytes}; }
    uint16_t burst(rte_mbuf** frames, uint16_t count) final;

  protected:
    // The limit of a burst, and of a message: UDP_MAX_SEGMENTS of older kernels.
    static constexpr size_t kMaxFrames = kMaxBurst;
    static constexpr uint32_t kMaxBytes = 65'000;  // limit of a message
    static constexpr size_t kEthernetBytes = 14;

    enum class Result : uint8_t { kFull, kSent, kDropped, kOverMtu };
    // Returns the result for a message that the kernel will never send. Its frames are lost as on a cut cable.
    static Result refused(int error) { return error == EMSGSIZE ? Result::kOverMtu : Result::kDropped; }
    // Frames that are sent as one GSO message.
    struct Train {
        wire::Outgoing first;
        size_t segment = 0, bytes = 0;  // size of each datagram but the last, and of all together
        bool ended = false;             // true after a shorter datagram, which is the last
        uint8_t count = 0;
        Result result = Result::kFull;
        std::array<uint8_t, kMaxFrames> frames;  // positions in the burst
        // Returns the bytes of headers before each datagram.
        size_t lower_bytes() const { return static_cast<size_t>(first.datagram.data() - first.l3) + kEthernetBytes; }
    };
    // Sends the messages and sets their results. If a message is not accepted, those behind it are not accepted either.
    virtual void send(std::span<Train> trains) = 0;
    // Returns a frame of a message. Its ICRC is right for its position in the message.
    wire::Outgoing& frame(const Train& train, size_t at) { return outgoing_[train.frames[at]]; }
    // Makes the sender send frames one by one for a while, because the kernel has refused a message. (The kernel
    // accepts no GSO message over a tunnel. Older kernels return the same error for datagrams that are longer than the
    // interface's current MTU.)
    void send_singly() { singly_ = kSingly; }

  private:
    static constexpr uint32_t kLargestFrameBytes = 4096 + wire::kMaxOverheadBytes;
    static constexpr uint32_t kSingly = 1024;  // in bursts

    void group(rte_mbuf** frames, uint16_t count);
    bool append(const wire::Outgoing& frame, uint8_t at);
    void identify(Train& train);
    void say_over_mtu(const Train& train);

    const std::string port_;
    const Others others_;
    bool said_over_mtu_ = false;
    uint32_t singly_ = 0;  // remaining bursts without GSO
    wire::Identifications identifications_;
    std::array<wire::Outgoing, kMaxFrames> outgoing_;
    std::array<Train, kMaxFrames> sent_;
    size_t train_count_ = 0;
    FrameCounts& counts_;
};

// Receives with recvmmsg() and splits GRO messages into frames.
//
// DESIGN NOTES
// 1. The kernel copies into mbufs, behind room for the headers. How it will split a message is not known in advance. So
//    the buffers of a call are as long as the datagrams of the last message with long datagrams. If the next message
//    has the same size, each of its datagrams fills one buffer. Behind these is a spill buffer. A message that is split
//    differently is copied once more.
// 2. A GRO message takes as many buffers as it may have datagrams. So after GRO messages a call asks for only a few
//    messages, and otherwise for as many datagrams as a burst has.
// 3. A slot stays prepared until a message has filled it, so a poll that receives nothing prepares nothing.
class GroReceiver {
  public:
    // The most bytes before the datagrams of a message: Ethernet, IPv6 and UDP headers, and the kernel's own header.
    static constexpr size_t kMaxFrontBytes = wire::kMaxLowerBytes + 16;
    // The layout of a message: `front` bytes, then datagrams of `segment` bytes, of which the last may be shorter.
    struct Message {
        size_t bytes, front, segment;
        size_t datagrams() const { return (bytes - front + segment - 1) / segment; }
        size_t bytes_of(size_t datagram) const { return std::min(segment, bytes - front - datagram * segment); }
    };

    GroReceiver(rte_mempool* pool, FrameCounts& counts);
    ~GroReceiver();
    GroReceiver(const GroReceiver&) = delete;
    GroReceiver& operator=(const GroReceiver&) = delete;

    // Receives the messages that are there, and keeps the first `front` bytes of each separate. Returns the number of
    // messages.
    size_t receive(int file, size_t front);
    msghdr& header(size_t message) { return messages_[message].msg_hdr; }
    size_t bytes(size_t message) const { return messages_[message].msg_len; }
    // Returns the first `bytes` of a message in contiguous memory.
    const uint8_t* head(size_t message, size_t bytes);
    // Returns the datagrams of a message, each in an mbuf that the caller owns, with room for headers before it.
    // Returns nothing if they are too short or too long, or there are no mbufs.
    std::span<rte_mbuf*> take(size_t message, const Message& parts);
    // Gives the packets of an IPv4 message, which have all their headers, the identifications for which their ICRCs are
    // right. The first guess for the first packet is the identification that it has.
    void identify(std::span<rte_mbuf*> frames);
    // Makes the frames available to give(), and counts them.
    void add(std::span<rte_mbuf*> frames);

    bool has_frames() const { return ready_next_ != ready_.size(); }
    uint16_t give(rte_mbuf** frames);

  private:
    static constexpr size_t kBurst = RxQueue::kBurst;
    static constexpr size_t kTrains = 2;          // messages in one call after GRO messages
    static constexpr size_t kMaxSegments = 128;   // limit of a message: the kernel's UDP_MAX_SEGMENTS
    static constexpr size_t kMaxBuffers = 64;     // limit for a message that is received in place: 64 KiB of 1 KiB each
    static constexpr uint32_t kMinInPlace = 512;  // shorter datagrams are copied at no more cost
    using Bytes = std::array<uint8_t, 65'536 + kMaxFrontBytes>;  // limit of a message

    // The buffers that one message of recvmmsg() fills.
    struct Slot {
        std::array<rte_mbuf*, kMaxBuffers> mbufs{};
        size_t mbuf_count = 0;
        std::array<iovec, kMaxBuffers + 2> pieces;  // the front, mbufs, and the spill buffer
        size_t buffers = 0;                         // number of `pieces` in mbufs
        std::array<uint8_t, kMaxFrontBytes> front;
        alignas(sockaddr_storage) std::array<char, 32> from;
        alignas(cmsghdr) std::array<char, 128> control;
    };
    // The layout for which slots are prepared: `front` bytes, then `buffers` buffers of `bytes` each.
    struct Layout {
        size_t front = 0, buffers = 0;
        uint32_t bytes = 0;
        bool operator==(const Layout&) const = default;
    };
    // Prepares slots. Returns how many messages a call may receive.
    unsigned prepare(size_t front);
    // Prepares slots, and returns the first of them for which the pool had too few mbufs, or `until`.
    unsigned prepare(unsigned from, unsigned until);
    bool prepare_slot(unsigned at);
    std::span<rte_mbuf*> take_in_place(Slot& slot, const Message& parts);
    std::span<rte_mbuf*> take_copies(Slot& slot, const Message& parts);
    std::span<rte_mbuf*> set_datagrams(const Message& parts, size_t count);
    uint8_t* gather(const Slot& slot, size_t bytes);
    uint16_t identify(rte_mbuf& mbuf, uint16_t assumed);

    rte_mempool* const pool_;
    const uint32_t room_;         // room for a datagram in an mbuf
    bool trains_ = false;         // true if the last call received a GRO message
    uint32_t train_segment_ = 0;  // datagram size of the last message with long ones; 0 before the first
    wire::Identifications identifications_;
    std::array<Slot, kBurst> slots_;
    std::array<mmsghdr, kBurst> messages_;
    Layout layout_;
    unsigned prepared_ = 0;  // slots that were prepared for this layout
    unsigned filled_ = 0;    // slots at the front that the last call has filled
    // One for each slot; the kernel provides the memory when something is written there.
    std::unique_ptr<Bytes[]> spills_;
    std::unique_ptr<Bytes> in_one_piece_;
    std::array<rte_mbuf*, kMaxSegments> taken_;
    std::vector<rte_mbuf*> ready_;  // valid from ready_next_ on
    size_t ready_next_ = 0;
    FrameCounts& counts_;
};

}  // namespace rove::datapath
