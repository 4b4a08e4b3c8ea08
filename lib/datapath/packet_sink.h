// SPDX-License-Identifier: Apache-2.0
// The engine's sink: packets are built in mbufs of this worker's pool and leave through its TX queue of each port.
//
// A frame is built where it is sent from, and a burst of mbufs is taken from and given back to the pool's cache at
// once, so that the same few mbufs are used over and over and stay in the core's caches. Nothing is dropped while the
// port is up: when it takes no more, ready() is false and the engine stops. Units: frames, nanoseconds.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "datapath/counters.h"
#include "datapath/port.h"
#include "datapath/runtime.h"
#include "datapath/tx_queue.h"
#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::datapath {

class PacketSink {
    struct Outgoing;

  public:
    // Frames handed to a port at once: so many, or so many bytes. 8 frames of 4 KiB stay in L1 or nearly so between
    // being built and being sent: 1 MiB WRITEs over memif ran at 5.6-6.4 GB/s with 4 or 8, at 5.1-5.3 with 16 or 32. Of
    // small ones, a memif with its peer on a far core takes 32 at the cost of few more cache misses than 8.
    static constexpr uint16_t kBurst = 32;
    static constexpr uint32_t kBurstBytes = 8 * 4096;
    static constexpr uint16_t kSpare = 8;  // mbufs taken from the pool at once
    static constexpr uint16_t kLoopback = 256;  // frames to ourselves on their way
    static constexpr uint16_t kAnswers = 2;     // that are awaited: an acknowledgement, and what the program says
    static constexpr uint32_t kAnswerBytes = 128;

    PacketSink(rte_mempool* pool, Listener& listener, PortCounters& counters, const transport::MulticastGroups& groups)
        : pool_(pool),
          most_payload_(rte_pktmbuf_data_room_size(pool) - uint64_t{RTE_PKTMBUF_HEADROOM} - wire::kMaxOverheadBytes),
          listener_(listener),
          counters_(counters),
          groups_(groups) {}
    ~PacketSink();
    PacketSink(const PacketSink&) = delete;
    PacketSink& operator=(const PacketSink&) = delete;

    void add_port(const Port& port, uint16_t queue);

    // transport::Sink.
    bool ready() { return full_ == 0 && spare_count_ != 0 && loopback_count_ < kLoopback ? true : make_room(); }
    void send(const transport::Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload) {
        uint64_t bytes = 0;
        for (const wire::Segment& segment : payload) bytes += segment.bytes;
        if (!fits(bytes)) [[unlikely]] return drop_too_long();
        rte_mbuf* const mbuf = next_spare();
        auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
        finish(path, queues_[path.port], mbuf, wire::build_unsealed(frame, path.headers, headers, payload));
    }
    class Series {
      public:
        Series(PacketSink& sink, const transport::Path& path, const wire::Headers& headers, uint32_t bytes)
            : sink_(sink),
              path_(path),
              tx_(sink.queues_[path.port]),
              fits_(sink.fits(bytes)),
              frames_(path.headers, headers, bytes) {}
        void send(const wire::Headers& headers, const void* payload) {
            if (!fits_) [[unlikely]] return sink_.drop_too_long();
            rte_mbuf* const mbuf = sink_.next_spare();
            auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
            sink_.finish(path_, tx_, mbuf, frames_.build_unsealed(frame, headers, payload));
        }

      private:
        PacketSink& sink_;
        const transport::Path& path_;
        Outgoing& tx_;
        const bool fits_;
        const wire::FrameSeries frames_;
    };
    Series series(const transport::Path& path, const wire::Headers& headers, uint32_t bytes) {
        return {*this, path, headers, bytes};
    }
    void suspect(const transport::Path& path) {
        // the others will be suspected again
        if (path.next_hop == nullptr || suspect_count_ == suspects_.size()) return;
        if (suspect_count_ != 0 && wire::same(suspects_[suspect_count_ - 1].peer, path.flow.dst)) return;
        suspects_[suspect_count_++] = {path.port, path.flow.dst};
    }
    void notify(transport::CompletionQueue& cq) { notified_.push_back(&cq); }
    void event(ibv_event_type event, transport::QueuePair& qp) { listener_.event(event, qp); }
    void event(ibv_event_type event, transport::CompletionQueue& cq) { listener_.event(event, cq); }
    void event(ibv_event_type event, transport::SharedRecvQueue& srq) { listener_.event(event, srq); }

    // Frames came to `port`; `after_idle`: after a time without. Then they are few, and the answers are waited for: of
    // a memif, the lines that those go to are asked for, and handed over when they are sent.
    void expect(uint16_t port, bool after_idle) {
        Outgoing& tx = queues_[port];
        tx.awaited = after_idle;
        if (!after_idle || !tx.queue.ring().find()) return;
        tx.queue.ring().fetch_room();
        for (uint16_t ahead = 0; ahead < kAnswers; ++ahead) tx.queue.fetch(ahead, kAnswerBytes);
    }

    bool has_suspects() const { return suspect_count_ != 0; }
    // The peers that the engine has suspected since the last call, perhaps several times the same.
    struct Suspect {
        uint16_t port;
        wire::Gid peer;
    };
    std::span<const Suspect> take_suspects() { return {suspects_.data(), std::exchange(suspect_count_, 0)}; }

    // Neighbour discovery: an empty mbuf, or null, and a finished one for a port. A full queue drops it: they are
    // repeated.
    rte_mbuf* take() { return ready() ? spare_[--spare_count_] : nullptr; }
    void send_raw(uint16_t port, rte_mbuf* mbuf) { queue(queues_[port], mbuf, {mbuf->data_len, 0}); }

    // Before the drive lock is given up: what is queued goes to the ports, and who sleeps is woken. Returns the frames
    // that the ports took. None of those that stay counts on a ring: it may be unmapped until the next round.
    uint32_t flush();
    // Wakes who waits for completions. Not sooner: on our core he would run at once, while frames that came together
    // with his are still to be looked at and the lock is ours. A reply may come right before the acknowledgement of
    // what it answers, and programs rely on finding that, as they do with NICs, whose acknowledgements come first.
    void deliver() {
        for (transport::CompletionQueue* cq : notified_) {
            listener_.notify(*cq);
            has_woken_ = true;
        }
        notified_.clear();
    }
    // Whether it has woken somebody since the last call.
    bool take_woken() { return std::exchange(has_woken_, false); }
    // Takes the frames that we sent to ourselves.
    uint16_t take_loopback(rte_mbuf** out, uint16_t count);
    // Whether, since this was last asked, no port has got rid of a frame, and one has frames: those that its TX queue
    // has not taken, and of a memif those in the ring that the peer has not read.
    bool is_stalled();
    void set_now(uint64_t now_ns) { now_ns_ = now_ns; }
    rte_mempool* pool() const { return pool_; }

  private:
    struct Outgoing {  // the frames that wait for a port's TX queue
        const Port* port = nullptr;
        TxQueue queue;
        bool awaited = false;  // by the peer: what is sent next
        uint16_t room = 0;     // of the ring, when the first of the frames came
        uint16_t count = 0;
        uint16_t unsealed_count = 0;
        uint32_t bytes = 0;
        uint64_t moved_ns = 0;  // when the port last took a frame, or had none to take
        uint64_t taken = 0;     // frames that the port has taken
        uint64_t progress = 0;  // when is_stalled() last looked: a memif's peer had emptied so many slots, or `taken`
        std::array<rte_mbuf*, kBurst> frames;
        std::array<wire::Unsealed, kBurst> unsealed;  // those of the frames that have no ICRC yet
        bool full() const { return count == kBurst || bytes >= kBurstBytes; }
    };
    // Whether a frame with so much payload can be built in an mbuf. The transport never asks for one that cannot: this
    // is the bound that holds if it errs, for the memory behind an mbuf is another mbuf.
    bool fits(uint64_t payload_bytes) const { return payload_bytes <= most_payload_; }
    void drop_too_long() { ++counters_[PortCounter::kTxTooLong]; }
    // Stays spare until its frame is built: the program's memory may turn out to have gone (fault_guard.h).
    rte_mbuf* next_spare() const { return spare_[spare_count_ - 1u]; }
    void finish(const transport::Path& path, Outgoing& tx, rte_mbuf* mbuf, wire::Built built) {
        --spare_count_;
        mbuf->data_len = built.bytes;
        mbuf->pkt_len = built.bytes;
        if (path.next_hop == nullptr) [[unlikely]] {
            if (path.loopback || path.multicast) {
                if (built.l3_offset != 0) wire::seal(rte_pktmbuf_mtod(mbuf, uint8_t*), built);
                built.l3_offset = 0;
                if (path.loopback) return loop_back(path, mbuf);
                loop_back_copy(path, mbuf);
            }
        } else {
            path.next_hop->write(rte_pktmbuf_mtod(mbuf, uint8_t*));
        }
        queue(tx, mbuf, built);
    }
    // The frame is finished.
    void loop_back(const transport::Path& path, rte_mbuf* mbuf) {
        loopback_[(loopback_head_ + loopback_count_++) % kLoopback] = mbuf;
        mbuf->port = path.port;
    }
    // A datagram to a group that QPs of the device have joined comes to them too (IBTA 10.5.2).
    void loop_back_copy(const transport::Path& path, rte_mbuf* mbuf);
    void queue(Outgoing& tx, rte_mbuf* mbuf, wire::Built built) {
        // Written when the burst is full: until then the peer's lines have time to come.
        if (tx.count == 0) tx.room = tx.port->ready() && tx.queue.ring().find() ? tx.queue.ring().room() : uint16_t{0};
        if (tx.count < tx.room) tx.queue.fetch(tx.count, built.bytes);
        tx.frames[tx.count++] = mbuf;
        if (built.l3_offset != 0) {
            tx.unsealed[tx.unsealed_count++] = {rte_pktmbuf_mtod_offset(mbuf, uint8_t*, built.l3_offset),
                                                built.bytes - built.l3_offset - uint32_t{wire::kIcrcBytes}};
        }
        tx.bytes += built.bytes;
        if (tx.full()) {
            ++full_;
            push(tx);
        }
    }
    bool make_room();
    uint32_t push(Outgoing& tx);

    rte_mempool* const pool_;
    const uint64_t most_payload_;  // bytes, that fit into one of its mbufs behind all headers
    Listener& listener_;
    PortCounters& counters_;
    const transport::MulticastGroups& groups_;
    uint64_t now_ns_ = 0;
    uint16_t full_ = 0;  // TX queues that are full
    uint16_t spare_count_ = 0;
    uint16_t loopback_head_ = 0, loopback_count_ = 0;
    std::array<rte_mbuf*, kSpare> spare_;
    std::vector<Outgoing> queues_;  // by DPDK port id
    std::vector<transport::CompletionQueue*> notified_;
    bool has_woken_ = false;
    size_t suspect_count_ = 0;
    std::array<Suspect, 8> suspects_;
    std::array<rte_mbuf*, kLoopback> loopback_;
};

}  // namespace rove::datapath
