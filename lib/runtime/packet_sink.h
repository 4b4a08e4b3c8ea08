// SPDX-License-Identifier: Apache-2.0
// The engine's sink: packets are built where they are sent from, and leave through outlets.
//
// A port of DPDK is an outlet, and takes bursts of mbufs. Those are taken from and given back to the pool's cache at
// once, so that the same few are used over and over and stay in the core's caches. A link to another process is one
// too, and its frames are built in the buffers of its ring. Nothing is dropped while the link is up: when an outlet
// takes no more, ready() is false for its paths, and the engine goes on with others. Units: frames.
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
    static constexpr uint16_t kSpare = 8;       // mbufs taken from the pool at once
    static constexpr uint16_t kLoopback = 256;  // frames to ourselves on their way

    PacketSink(rte_mempool* pool, Listener& listener, PortCounters& counters, const transport::MulticastGroups& groups)
        : pool_(pool),
          most_payload_(rte_pktmbuf_data_room_size(pool) - uint64_t{RTE_PKTMBUF_HEADROOM} - wire::kMaxOverheadBytes),
          listener_(listener),
          counters_(counters),
          groups_(groups) {}
    ~PacketSink();
    PacketSink(const PacketSink&) = delete;
    PacketSink& operator=(const PacketSink&) = delete;

    // The outlet of a port's own: its TX queue, or, of one that has links, what goes to all of them.
    void add_port(const Port& port, std::unique_ptr<TxQueue> queue);
    // The outlet of a link. No frame is under way to it when it is taken away.
    // `peer`: the MAC that is there; zero: any.
    void add_link(const Port& port, uint16_t outlet, const wire::MacAddress& peer, RingSender& ring);
    void remove_link(uint16_t outlet);

    // transport::Sink.
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
        // the others will be suspected again
        if (path.next_hop == nullptr || suspect_count_ == suspects_.size()) return;
        if (suspect_count_ != 0 && wire::same(suspects_[suspect_count_ - 1].peer, path.flow.dst)) return;
        suspects_[suspect_count_++] = {path.port, path.flow.dst};
    }
    void notify(transport::CompletionQueue& cq) { notified_.push_back(&cq); }
    void event(ibv_event_type event, transport::QueuePair& qp) { listener_.event(event, qp); }
    void event(ibv_event_type event, transport::CompletionQueue& cq) { listener_.event(event, cq); }
    void event(ibv_event_type event, transport::SharedRecvQueue& srq) { listener_.event(event, srq); }

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
    void send_raw(uint16_t port, rte_mbuf* mbuf) { queue(*outlets_[port], mbuf, {mbuf->data_len, 0}); }

    // Before the drive lock is given up: what is queued goes out, and who sleeps is woken. Returns the frames that
    // went.
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
    bool consume_woke_waiter() { return std::exchange(has_woken_, false); }
    // Takes the frames that we sent to ourselves.
    uint16_t take_loopback(rte_mbuf** out, uint16_t count);
    // Whether, since this was last asked, no outlet has got rid of a frame, and one has frames: those that a TX queue
    // has not taken, and those in a ring that the peer has not read.
    bool is_stalled();
    // Frames to ourselves, or that a port has not taken.
    bool holds_frames() const { return loopback_count_ != 0 || !waiting_.empty(); }
    void set_capture(Capture* capture) { capture_ = capture; }
    rte_mempool* pool() const { return pool_; }

  private:
    struct TxTarget {  // and the frames that wait to be sent
        const Port* port = nullptr;
        std::unique_ptr<TxQueue> queue;
        RingSender* ring = nullptr;  // not null: frames are built there
        wire::MacAddress peer{};     // at the other end of the ring
        bool is_full = false;        // it counts in full_
        bool waits = false;          // it is in waiting_
        uint16_t count = 0;
        uint16_t unsealed_count = 0;
        uint16_t captured = 0;  // of those that wait in mbufs
        uint32_t bytes = 0;
        uint64_t taken = 0;     // frames that it has taken
        uint64_t progress = 0;  // when is_stalled() last looked: a ring's peer had emptied so many slots, or `taken`
        TxQueue::Burst burst;   // what it is handed at once
        std::array<rte_mbuf*, TxQueue::kMaxBurst> frames;
        std::array<wire::PendingIcrc, TxQueue::kMaxBurst> unsealed;  // those of the frames that have no ICRC yet
        bool has_burst() const { return count >= burst.frames || bytes >= burst.bytes; }
    };
    TxTarget& outlet_of(uint16_t number);
    // Whether a frame with so much payload can be built in an mbuf, or a ring's buffer. The transport never asks for
    // one that cannot: this is the bound that holds if it errs, for behind a buffer lies another.
    bool fits(uint64_t payload_bytes) const { return payload_bytes <= most_payload_; }
    void drop_too_long() { ++counters_[PortCounter::kTxTooLong]; }
    // Builds a frame with so much payload where it is sent from. The place is taken afterwards: the program's memory
    // may turn out to have gone meanwhile (fault_guard.h).
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
    // A large frame in a ring, built elsewhere first if it goes past the caches; both ways are timed now and then.
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
    // The frame is finished.
    void loop_back(const transport::Path& path, rte_mbuf* mbuf) {
        loopback_[(loopback_head_ + loopback_count_++) % kLoopback] = mbuf;
        mbuf->port = path.port;
    }
    // A datagram to a group that QPs of the device have joined comes to them too (IBTA 10.5.2).
    void loop_back_copy(const transport::Path& path, rte_mbuf* mbuf);
    void queue(TxTarget& outlet, rte_mbuf* mbuf, wire::BuiltFrame built) {
        if (outlet.queue == nullptr) [[unlikely]]
            return send_copies(outlet, mbuf, built);
        if (outlet.is_full) [[unlikely]]
            return drop_full(mbuf);
        outlet.frames[outlet.count] = mbuf;
        count(outlet, rte_pktmbuf_mtod(mbuf, uint8_t*), built);
    }
    // Of who has not asked whether this outlet is ready: an answer to ARP, or to a question of mp's (hello.h).
    void drop_full(rte_mbuf* mbuf) {
        ++counters_[PortCounter::kTxFull];
        rte_pktmbuf_free(mbuf);
    }
    // A frame is there for the outlet, which is not full: no more ever wait than there are places for.
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
    // Of frames to whoever has a MAC or a group's, and to a peer that has small buffers.
    void send_copies(TxTarget& outlet, rte_mbuf* mbuf, wire::BuiltFrame built);
    bool send_copy(TxTarget& outlet, const rte_mbuf& mbuf);
    // For a frame that is not built in a ring.
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
    const uint64_t most_payload_;  // bytes, that fit into one of its mbufs behind all headers
    Listener& listener_;
    PortCounters& counters_;
    const transport::MulticastGroups& groups_;
    Capture* capture_ = nullptr;
    uint16_t full_ = 0, open_ = 0;  // outlets that are full, and that lead anywhere
    uint16_t spare_count_ = 0;
    uint16_t loopback_head_ = 0, loopback_count_ = 0;
    std::array<rte_mbuf*, kSpare> spare_;
    std::vector<std::unique_ptr<TxTarget>> outlets_;  // by Path::outlet: ports, then links
    std::vector<TxTarget*> waiting_;  // those with frames that wait, and perhaps some that have none any more
    std::vector<transport::CompletionQueue*> notified_;
    bool has_woken_ = false;
    size_t suspect_count_ = 0;
    std::array<Suspect, 8> suspects_;
    std::array<rte_mbuf*, kLoopback> loopback_;
};

}  // namespace rove::datapath
