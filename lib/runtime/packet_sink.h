// SPDX-License-Identifier: Apache-2.0
// The engine's packet sink. It builds each packet where it is sent from and passes it to a TX target.
//
// A TX target is a DPDK port's TX queue, which gets bursts of mbufs, or a link to another process, whose frames are
// built in the buffers of its ring. Mbufs come from and return to the pool's cache at once, so that the same few are
// reused and stay in the core's caches. Nothing is dropped while the link is up: when a TX target is full, ready()
// returns false for its paths, and the engine continues with others. Units: frames.
#pragma once

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "port/counters.h"
#include "port/memif/ring.h"
#include "port/port.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::datapath {

class PacketSink {
    struct TxTarget;

  public:
    static constexpr uint16_t kSpare = 8;       // mbufs allocated from the pool at once
    static constexpr uint16_t kLoopback = 256;  // frames to ourselves that are not yet received

    PacketSink(rte_mempool* pool, Listener& listener, PortCounters& counters, const transport::MulticastGroups& groups)
        : pool_(pool),
          most_payload_(rte_pktmbuf_data_room_size(pool) - uint64_t{RTE_PKTMBUF_HEADROOM} - wire::kMaxOverheadBytes),
          listener_(listener),
          counters_(counters),
          groups_(groups) {}
    ~PacketSink();
    PacketSink(const PacketSink&) = delete;
    PacketSink& operator=(const PacketSink&) = delete;

    // Adds a port's own TX target: its TX queue or, for a port with links, the frames to all of them.
    void add_port(const Port& port, std::unique_ptr<TxQueue> queue);
    // Adds the TX target of a link. `peer` is the MAC at its other end, or zero for any MAC. No frame may be on its way
    // to the target when remove_link() is called.
    void add_link(const Port& port, uint16_t outlet, const wire::MacAddress& peer, RingSender& ring);
    void remove_link(uint16_t outlet);

    // The functions of transport::Sink.
    bool ready() { return full_ == 0 && has_buffers() ? true : make_room(); }
    bool ready(const transport::Path& path) {
        TxTarget& outlet = *outlets_[path.outlet];
        if (!outlet.is_full && has_buffers()) [[likely]]
            return true;
        make_room();
        return !outlet.is_full && has_buffers();
    }
    void send(const transport::Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload) {
        uint64_t bytes = 0;
        for (const wire::Segment& segment : payload) bytes += segment.bytes;
        if (!fits(bytes)) [[unlikely]]
            return drop_too_long();
        TxTarget& outlet = *outlets_[path.outlet];
        build(path, outlet, bytes,
              [&](uint8_t* at) { return wire::build_unsealed(at, path.headers, headers, payload); });
    }
    class Series {
      public:
        Series(PacketSink& sink, const transport::Path& path, const wire::Headers& headers, uint32_t bytes)
            : sink_(sink),
              path_(path),
              outlet_(*sink.outlets_[path.outlet]),
              bytes_(bytes),
              fits_(sink.fits(bytes)),
              frames_(path.headers, headers, bytes) {}
        void send(const wire::Headers& headers, const void* payload) {
            if (!fits_) [[unlikely]]
                return sink_.drop_too_long();
            sink_.build(path_, outlet_, bytes_,
                        [&](uint8_t* at) { return frames_.build_unsealed(at, headers, payload); });
        }

      private:
        PacketSink& sink_;
        const transport::Path& path_;
        TxTarget& outlet_;
        const uint32_t bytes_;
        const bool fits_;
        const wire::FrameSeries frames_;
    };
    Series series(const transport::Path& path, const wire::Headers& headers, uint32_t bytes) {
        return {*this, path, headers, bytes};
    }
    void suspect(const transport::Path& path) {
        // A peer that finds no room here will be suspected again.
        if (path.next_hop == nullptr || suspect_count_ == suspects_.size()) return;
        if (suspect_count_ != 0 && wire::same(suspects_[suspect_count_ - 1].peer, path.flow.dst)) return;
        suspects_[suspect_count_++] = {path.port, path.flow.dst};
    }
    void notify(transport::CompletionQueue& cq) { notified_.push_back(&cq); }
    void event(ibv_event_type event, transport::QueuePair& qp) { listener_.event(event, qp); }
    void event(ibv_event_type event, transport::CompletionQueue& cq) { listener_.event(event, cq); }
    void event(ibv_event_type event, transport::SharedRecvQueue& srq) { listener_.event(event, srq); }

    bool has_suspects() const { return suspect_count_ != 0; }
    // A peer that the engine has suspected since the last call. The list may name a peer several times.
    struct Suspect {
        uint16_t port;
        wire::Gid peer;
    };
    std::span<const Suspect> take_suspects() { return {suspects_.data(), std::exchange(suspect_count_, 0)}; }

    // For neighbour discovery: take() returns an empty mbuf, or null if none can be allocated. send_raw() sends a
    // finished frame to a port. A full queue drops it, because such frames are repeated.
    rte_mbuf* take() { return ready() ? spare_[--spare_count_] : nullptr; }
    void send_raw(uint16_t port, rte_mbuf* mbuf) { queue(*outlets_[port], mbuf, {mbuf->data_len, 0}); }

    // Sends all queued frames and calls deliver(). Called before the drive lock is released. Returns the number of
    // frames sent.
    uint32_t flush();
    // Wakes the threads that wait for completions. This must not happen earlier: on our core such a thread would run at
    // once, while we hold the lock and frames that arrived together with its own are still to be processed. A reply may
    // come right before the acknowledgement of its request. Programs rely on finding both, as with NICs, where the
    // acknowledgement comes first.
    void deliver() {
        for (transport::CompletionQueue* cq : notified_) {
            listener_.notify(*cq);
            has_woken_ = true;
        }
        notified_.clear();
    }
    // Returns true if a thread was woken since the last call.
    bool consume_woke_waiter() { return std::exchange(has_woken_, false); }
    // Returns frames that we sent to ourselves.
    uint16_t take_loopback(rte_mbuf** out, uint16_t count);
    // Returns true if no TX target has got rid of a frame since the last call although at least one has frames. These
    // are frames that a TX queue did not accept, or frames in a ring that the peer has not read.
    bool is_stalled();
    // Returns true if there are frames to ourselves, or frames that a port did not accept.
    bool holds_frames() const { return loopback_count_ != 0 || !waiting_.empty(); }
    void set_capture(Capture* capture) { capture_ = capture; }
    rte_mempool* pool() const { return pool_; }

  private:
    struct TxTarget {  // also holds the frames that wait to be sent
        const Port* port = nullptr;
        std::unique_ptr<TxQueue> queue;
        RingSender* ring = nullptr;  // if not null, frames are built in this ring
        wire::MacAddress peer{};     // the MAC at the other end of the ring
        bool is_full = false;        // counted in full_
        bool waits = false;          // contained in waiting_
        uint16_t count = 0;
        uint16_t unsealed_count = 0;
        uint16_t captured = 0;  // how many of the waiting mbufs were captured
        uint32_t bytes = 0;
        uint64_t taken = 0;     // frames that it has accepted
        uint64_t progress = 0;  // at the last is_stalled(): slots that the ring's peer has emptied, or `taken`
        TxQueue::Burst burst;   // the most that it is given at once
        std::array<rte_mbuf*, TxQueue::kMaxBurst> frames;
        std::array<wire::PendingIcrc, TxQueue::kMaxBurst> unsealed;  // frames whose ICRC is still missing
        bool has_burst() const { return count >= burst.frames || bytes >= burst.bytes; }
    };
    TxTarget& outlet_of(uint16_t number);
    // Returns true if a frame with this payload fits an mbuf or a ring's buffer. The transport never asks for a larger
    // one. This check protects the buffer behind in case of an error there.
    bool fits(uint64_t payload_bytes) const { return payload_bytes <= most_payload_; }
    void drop_too_long() { ++counters_[PortCounter::kTxTooLong]; }
    // Builds a frame with this payload at the place from which it is sent. The place is reserved only afterwards,
    // because a fault in the program's memory may abort the copy (fault_guard.h).
    template <class Builder>
    [[gnu::always_inline]] void build(const transport::Path& path, TxTarget& outlet, uint64_t payload_bytes,
                                      Builder&& builder) {
        if (outlet.ring != nullptr && path.next_hop != nullptr) {
            const auto room = static_cast<uint32_t>(payload_bytes) + wire::kMaxOverheadBytes;
            if (uint8_t* const frame = outlet.ring->next(room); frame != nullptr) [[likely]] {
                NonTemporalPolicy& non_temporal = outlet.ring->non_temporal();
                if (payload_bytes >= NonTemporalPolicy::kLargeBytes &&
                    (non_temporal.bypasses_cache() || non_temporal.is_timed())) [[unlikely]]
                    return build_non_temporal(path, outlet, frame, builder);
                const wire::BuiltFrame built = builder(frame);
                path.next_hop->write(frame);
                outlet.ring->took(built.bytes);
                return count(outlet, frame, built);
            }
        }
        rte_mbuf* const mbuf = spare_[spare_count_ - 1u];
        auto* const frame = rte_pktmbuf_mtod(mbuf, uint8_t*);
        finish(path, outlet, mbuf, builder(frame));
    }
    // Builds a large frame for a ring. If it is to bypass the caches, it is built elsewhere and then stored in the
    // ring. Both methods are timed from time to time.
    template <class Builder>
    [[gnu::noinline]] void build_non_temporal(const transport::Path& path, TxTarget& outlet, uint8_t* slot,
                                              Builder& builder) {
        NonTemporalPolicy& non_temporal = outlet.ring->non_temporal();
        uint8_t* const frame =
            non_temporal.bypasses_cache() ? rte_pktmbuf_mtod(spare_[spare_count_ - 1u], uint8_t*) : slot;
        const uint64_t start = rte_rdtsc();
        wire::BuiltFrame built = builder(frame);
        path.next_hop->write(frame);
        if (frame != slot) {
            if (built.l3_offset != 0) wire::seal(frame, built);
            built.l3_offset = 0;
            outlet.ring->store(slot, frame, built.bytes);
        }
        if (non_temporal.is_timed()) non_temporal.cost(rte_rdtsc() - start, built.bytes);
        outlet.ring->took(built.bytes);
        count(outlet, slot, built);
    }
    void finish(const transport::Path& path, TxTarget& outlet, rte_mbuf* mbuf, wire::BuiltFrame built) {
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
        queue(outlet, mbuf, built);
    }
    // Loops back a finished frame.
    void loop_back(const transport::Path& path, rte_mbuf* mbuf) {
        loopback_[(loopback_head_ + loopback_count_++) % kLoopback] = mbuf;
        mbuf->port = path.port;
    }
    // Loops back a copy of a datagram if QPs of the device have joined its group, because they receive it too (IBTA
    // 10.5.2).
    void loop_back_copy(const transport::Path& path, rte_mbuf* mbuf);
    void queue(TxTarget& outlet, rte_mbuf* mbuf, wire::BuiltFrame built) {
        if (outlet.queue == nullptr) [[unlikely]]
            return send_copies(outlet, mbuf, built);
        if (outlet.is_full) [[unlikely]]
            return drop_full(mbuf);
        outlet.frames[outlet.count] = mbuf;
        count(outlet, rte_pktmbuf_mtod(mbuf, uint8_t*), built);
    }
    // Drops a frame of a caller that did not ask whether this TX target is ready: an ARP reply, or an mp question
    // (hello.h).
    void drop_full(rte_mbuf* mbuf) {
        ++counters_[PortCounter::kTxFull];
        rte_pktmbuf_free(mbuf);
    }
    // Records a new frame for a TX target that is not full. The frames that wait never exceed the array, because the
    // target becomes full before.
    void count(TxTarget& outlet, uint8_t* frame, wire::BuiltFrame built) {
        ++outlet.count;
        if (!outlet.waits) waiting_.push_back(&outlet);
        outlet.waits = true;
        if (built.l3_offset != 0) {
            outlet.unsealed[outlet.unsealed_count++] = {frame + built.l3_offset,
                                                        built.bytes - built.l3_offset - uint32_t{wire::kIcrcBytes}};
        }
        outlet.bytes += built.bytes;
        if (outlet.has_burst() || (outlet.ring != nullptr && outlet.ring->full())) [[unlikely]]
            push(outlet);
    }
    // Sends copies of a frame: to a MAC or group reached by links, or to a peer with small buffers.
    void send_copies(TxTarget& outlet, rte_mbuf* mbuf, wire::BuiltFrame built);
    bool send_copy(TxTarget& outlet, const rte_mbuf& mbuf);
    // Returns true if there is a buffer for a frame that is not built in a ring.
    bool has_buffers() const { return spare_count_ != 0 && loopback_count_ < kLoopback; }
    bool make_room();
    void set_full(TxTarget& outlet, bool full) {
        full_ = static_cast<uint16_t>(full_ + full - outlet.is_full);
        outlet.is_full = full;
    }
    uint32_t push(TxTarget& outlet);
    uint32_t push_ring(TxTarget& outlet);
    uint32_t push_queue(TxTarget& outlet);
    void capture(TxTarget& outlet);

    rte_mempool* const pool_;
    const uint64_t most_payload_;  // bytes of payload that fit into an mbuf behind all headers
    Listener& listener_;
    PortCounters& counters_;
    const transport::MulticastGroups& groups_;
    Capture* capture_ = nullptr;
    uint16_t full_ = 0, open_ = 0;  // TX targets that are full, and TX targets that are connected
    uint16_t spare_count_ = 0;
    uint16_t loopback_head_ = 0, loopback_count_ = 0;
    std::array<rte_mbuf*, kSpare> spare_;
    std::vector<std::unique_ptr<TxTarget>> outlets_;  // indexed by Path::outlet: ports, then links
    std::vector<TxTarget*> waiting_;  // TX targets with waiting frames, and maybe some that have sent theirs
    std::vector<transport::CompletionQueue*> notified_;
    bool has_woken_ = false;
    size_t suspect_count_ = 0;
    std::array<Suspect, 8> suspects_;
    std::array<rte_mbuf*, kLoopback> loopback_;
};

}  // namespace rove::datapath
