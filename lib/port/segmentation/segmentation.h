// SPDX-License-Identifier: Apache-2.0
// Trains: datagrams of one flow and one size that the kernel takes and gives as one message (UDP_SEGMENT and UDP_GRO of
// UDP sockets; PACKET_VNET_HDR of AF_PACKET's). What a frame costs on its way through the kernel, a train costs once.
// Units: bytes, frames.
//
// The ICRC covers IPv4's identification, and who cuts a train numbers its packets: the n-th has n more than the first.
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

// Paths that mp takes from a process whose frames go in trains: enough to spread over a network of equal-cost paths,
// and so few that frames of one path are a train. Over a veth of MTU 1500, mp moved 0.042 GB/s with all 16384 paths,
// 0.08 with 32, 0.17 with 16, 0.18 with 8, 0.23 with 4, and RC 0.37 (beside other load).
inline constexpr uint32_t kTrainPaths = 8;

// Of frames in one direction, written by one thread.
struct FrameCounts {
    RingCount frames, bytes;
    RingCount errors;    // received and too short or too long, or sent while the link is down
    RingCount over_mtu;  // sent, and dropped because the interface's MTU is less
    RingCount no_mbuf;   // that had come
};

// DESIGN NOTE. Frames of one flow and size are a train, wherever among the others they stand: those of another flow
// take another path, or go to another host, where none can tell which was first. What the kernel does not take stays
// the caller's, in its order.
class GsoSender : public TxQueue {
  public:
    enum class Others : bool { kLeft, kSent };  // frames that are not RoCE: ARP, ND, IGMP, MLD, echo
    // `port` is its name in messages. `counts` has to be there only when it sends.
    GsoSender(std::string port, FrameCounts& counts, Others others)
        : port_(std::move(port)), others_(others), counts_(counts) {}
    // A train.
    Burst wanted() const final { return {kMaxFrames, kMaxBytes - kLargestFrameBytes}; }
    uint16_t burst(rte_mbuf** frames, uint16_t count) final;

  protected:
    // Of a burst, and of a train: UDP_MAX_SEGMENTS of older kernels.
    static constexpr size_t kMaxFrames = kMaxBurst;
    static constexpr uint32_t kMaxBytes = 65'000;  // of a train
    static constexpr size_t kEthernetBytes = 14;

    enum class Result : uint8_t { kFull, kSent, kDropped, kOverMtu };
    // Returns the result of a train that the kernel will never send: the frames are lost as on a cut cable.
    static Result refused(int error) { return error == EMSGSIZE ? Result::kOverMtu : Result::kDropped; }
    struct Train {
        wire::Outgoing first;
        size_t segment = 0, bytes = 0;  // of datagrams: of all but the last, and of all
        bool ended = false;             // by a shorter one
        uint8_t count = 0;
        Result result = Result::kFull;
        std::array<uint8_t, kMaxFrames> frames;  // where they stand in the burst
        // Before each datagram.
        size_t lower_bytes() const { return static_cast<size_t>(first.datagram.data() - first.l3) + kEthernetBytes; }
    };
    // Sets their results. What follows a train that is not taken is not taken either.
    virtual void send(std::span<Train> trains) = 0;
    // The frames of a train, whose ICRCs are right for where they stand in it.
    wire::Outgoing& frame(const Train& train, size_t at) { return outgoing_[train.frames[at]]; }
    // The kernel has refused a train: frames go one by one for a while. (It takes none over a tunnel, and older ones
    // say the same of datagrams that are longer than the interface's MTU is now.)
    void send_singly() { singly_ = kSingly; }

  private:
    static constexpr uint32_t kLargestFrameBytes = 4096 + wire::kMaxOverheadBytes;
    static constexpr uint32_t kSingly = 1024;  // bursts

    void group(rte_mbuf** frames, uint16_t count);
    bool append(const wire::Outgoing& frame, uint8_t at);
    void identify(Train& train);
    void say_over_mtu(const Train& train);

    const std::string port_;
    const Others others_;
    bool said_over_mtu_ = false;
    uint32_t singly_ = 0;  // bursts yet to go without trains
    wire::Identifications identifications_;
    std::array<wire::Outgoing, kMaxFrames> outgoing_;
    std::array<Train, kMaxFrames> sent_;
    size_t train_count_ = 0;
    FrameCounts& counts_;
};

// Buffers of recvmmsg(), and the frames in what it has brought.
//
// DESIGN NOTES
// 1. The kernel copies into mbufs, behind room for the headers. How it will cut what came is not known before: the
//    buffers of a call are as long as the datagrams of the last large train were, so that the next one falls into
//    place, one datagram a buffer. Behind them is a spill buffer. What falls otherwise is copied once more.
// 2. A train takes as many buffers as it may have datagrams. So when trains come, a call asks for a few of them; else
//    for as many datagrams as a burst has.
// 3. A slot stays prepared until a message has filled it: who polls in vain prepares nothing.
class GroReceiver {
  public:
    // What comes in a message before its datagrams, at most: Ethernet, IPv6 and UDP headers, and what the kernel says.
    static constexpr size_t kMaxFrontBytes = wire::kMaxLowerBytes + 16;
    // What one message has: `front` bytes, then datagrams of `segment` bytes, of which the last may be shorter.
    struct Message {
        size_t bytes, front, segment;
        size_t datagrams() const { return (bytes - front + segment - 1) / segment; }
        size_t bytes_of(size_t datagram) const { return std::min(segment, bytes - front - datagram * segment); }
    };

    GroReceiver(rte_mempool* pool, FrameCounts& counts);
    ~GroReceiver();
    GroReceiver(const GroReceiver&) = delete;
    GroReceiver& operator=(const GroReceiver&) = delete;

    // Receives what is there, the first `front` bytes of each message apart. Returns how many messages came.
    size_t receive(int file, size_t front);
    msghdr& header(size_t message) { return messages_[message].msg_hdr; }
    size_t bytes(size_t message) const { return messages_[message].msg_len; }
    // Where the first `bytes` of a message lie one behind the other.
    const uint8_t* head(size_t message, size_t bytes);
    // Its datagrams, each in an mbuf of the caller's, with room for headers before it. Empty: they are too short or too
    // long, or there are no mbufs.
    std::span<rte_mbuf*> take(size_t message, const Message& parts);
    // Gives an IPv4 train's packets, which have all their headers, the identifications with which they are intact. That
    // of the first is assumed to be the one it has.
    void identify(std::span<rte_mbuf*> frames);
    // They are ready to be given, and count.
    void add(std::span<rte_mbuf*> frames);

    bool has_frames() const { return ready_next_ != ready_.size(); }
    uint16_t give(rte_mbuf** frames);

  private:
    static constexpr size_t kBurst = RxQueue::kBurst;
    static constexpr size_t kTrains = 2;          // received in one call
    static constexpr size_t kMaxSegments = 128;   // of a train: the kernel's UDP_MAX_SEGMENTS
    static constexpr size_t kMaxBuffers = 64;     // of a train that falls into place: 64 KiB of 1 KiB each
    static constexpr uint32_t kMinInPlace = 512;  // shorter datagrams of a train are as well copied
    using Bytes = std::array<uint8_t, 65'536 + kMaxFrontBytes>;  // of a message at most

    // What one message of recvmmsg() fills.
    struct Slot {
        std::array<rte_mbuf*, kMaxBuffers> mbufs{};
        size_t mbuf_count = 0;
        std::array<iovec, kMaxBuffers + 2> pieces;  // the front, mbufs, and the spill behind them
        size_t buffers = 0;                         // of `pieces`, that are mbufs'
        std::array<uint8_t, kMaxFrontBytes> front;
        alignas(sockaddr_storage) std::array<char, 32> from;
        alignas(cmsghdr) std::array<char, 128> control;
    };
    // Each slot is prepared for `front` bytes, then buffers of so many bytes.
    struct Layout {
        size_t front = 0, buffers = 0;
        uint32_t bytes = 0;
        bool operator==(const Layout&) const = default;
    };
    // Returns how many messages a call may bring.
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
    const uint32_t room_;         // of a datagram, in an mbuf
    bool trains_ = false;         // the last call brought one
    uint32_t train_segment_ = 0;  // of the last that had long ones; 0: none has
    wire::Identifications identifications_;
    std::array<Slot, kBurst> slots_;
    std::array<mmsghdr, kBurst> messages_;
    Layout layout_;
    unsigned prepared_ = 0;            // slots that have this layout ...
    unsigned filled_ = 0;              // ... but for those that the last call has filled, which are the first
    std::unique_ptr<Bytes[]> spills_;  // as slots_; the kernel gives them memory when something falls there
    std::unique_ptr<Bytes> in_one_piece_;
    std::array<rte_mbuf*, kMaxSegments> taken_;
    std::vector<rte_mbuf*> ready_;  // from ready_next_ on
    size_t ready_next_ = 0;
    FrameCounts& counts_;
};

}  // namespace rove::datapath
