// SPDX-License-Identifier: Apache-2.0
// What a worker does in a round. Only the thread that holds the worker's drive lock calls into it, except where said.
// Units: nanoseconds of the runtime's clock, frames.
#pragma once

#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "link/neighbour.h"
#include "port/counters.h"
#include "port/fault_injection/impairment.h"
#include "port/memif/link_queues.h"
#include "port/port.h"
#include "runtime/capture.h"
#include "runtime/clock.h"
#include "runtime/doorbells.h"
#include "runtime/fault_guard.h"
#include "runtime/packet_sink.h"
#include "runtime/protocol_clock.h"
#include "runtime/rdma_interface.h"
#include "runtime/worker.h"
#include "transport/engine.h"

namespace rove::datapath {

// Makes the calling thread an lcore for DPDK while it lives, so that mbufs come from and go to that lcore's pool cache.
// Only the holder of a worker's drive lock may be that worker's lcore: the cache has no other protection.
class LcoreScope {
  public:
    explicit LcoreScope(unsigned lcore) : saved_(RTE_PER_LCORE(_lcore_id)) { RTE_PER_LCORE(_lcore_id) = lcore; }
    ~LcoreScope() { RTE_PER_LCORE(_lcore_id) = saved_; }
    LcoreScope(const LcoreScope&) = delete;
    LcoreScope& operator=(const LcoreScope&) = delete;

  private:
    unsigned saved_;
};

class ProgressThread;
struct LinkRings;

class WorkerCore {
  public:
    static constexpr uint16_t kRxBurst = RxQueue::kBurst;
    static constexpr uint32_t kTransmitBudget = 64;  // packets a round may send before it looks at what came in
    static constexpr unsigned kPriorities = 3;       // HIGH, MEDIUM, LOW
    static constexpr uint32_t kRoundsToBatch = 32;   // rounds after which posts may wait for the next

    struct Shared {  // what all workers of a runtime have in common
        const Clock& clock;
        const transport::Config& config;
        transport::QueuePairTable& queue_pairs;
        transport::MemoryTable& memory;
        transport::TimeWaitTable& time_wait;
        Listener& listener;
        ProgressThread& background;
    };
    WorkerCore(const Shared& shared, uint16_t index, unsigned lcore, rte_mempool* pool);
    ~WorkerCore();
    WorkerCore(const WorkerCore&) = delete;
    WorkerCore& operator=(const WorkerCore&) = delete;

    // Makes the ring of frames from other workers. False without memory.
    bool init();
    void add_interface(RdmaInterface& interface, Port& port, const ImpairConfig& impair);
    // Of a port with links. What a link has received is taken before it goes.
    void add_link(const Port& port, const LinkRings& link);
    void remove_link(const Port& port, const LinkRings& link);
    // Lets the next frame of a port with doorbells ring, because the thread that drives is about to sleep. Returns
    // false if frames are there already. Several threads may sleep: doorbells ring until each has called disarm().
    bool arm();
    // Ends that, after a sleep of `rested_ns`.
    void disarm(uint64_t rested_ns);
    // Where frames of all ports are written to; null: nowhere.
    void set_capture(Capture* capture) {
        capture_ = capture;
        sink_.set_capture(capture);
    }
    void set_siblings(const std::vector<std::unique_ptr<Worker>>* workers) { workers_ = workers; }

    // One round. Returns the frames received and sent: 0 means that nothing happened.
    uint32_t round();
    // A round by the background thread, because the application makes none.
    uint32_t background_round();
    // Work was posted to `qp`: sends what can be sent, and looks at what came in only after a long run of posts. A
    // program that is known to poll after it posts may post several requests one by one: the first goes out at once,
    // the others as a burst.
    void send_posted(transport::QueuePair& qp);
    // When there is work again though nothing comes in.
    uint64_t next_deadline() const;
    // When a modelled path gives up the next frame that it delays (impair/); UINT64_MAX if it holds none.
    uint64_t next_release() const;
    void tell_background();
    // The same for who would sleep until then: 0 as long as something is left of a round, and nothing will tell.
    uint64_t next_wakeup_ns() const { return engine_.has_active() || sink_.holds_frames() ? 0 : next_deadline(); }

    // What befalls frames from this port, null if nothing does; and Runtime::impair().
    const Impairment* impairment(uint16_t port) const { return ports_[port].impairment.get(); }
    std::string impair(uint16_t port, std::optional<uint32_t> path, std::string_view changes);

    void ring_doorbell(transport::QueuePair& qp);
    // Takes all doorbells, so that a QP can be removed.
    void take_doorbells();

    // An ARP or ND question for `neighbour`, through the device's port; and the announcement of our own addresses.
    void solicit(RdmaInterface& interface, const wire::Gid& neighbour);
    void announce(RdmaInterface& interface);
    // A question to the peer of `qp`: Engine::ask_multipath().
    void ask_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn, uint32_t nonce);

    // After a control call, as the worker's lcore: sends what it made, and wakes who waits for its completions.
    void flush() { sink_.flush(); }
    // Whether a thread of the program was woken since the last call: one that sleeps until a completion comes.
    bool consume_woke_waiter() { return sink_.consume_woke_waiter(); }

    transport::Engine<PacketSink>& engine() { return engine_; }
    PortCounters& counters() { return counters_; }
    uint16_t index() const { return index_; }
    unsigned lcore() const { return lcore_; }
    uint64_t now_ns() const { return shared_.clock.now_ns(); }
    // The engine's time, for a control call.
    uint64_t protocol_ns() {
        begin_round();  // else it could lie behind that of the next round
        return protocol_ns_;
    }
    // When it last looked at what came in.
    uint64_t received_ns() const { return received_ns_; }

  private:
    // Where frames come from. What another worker hands over was looked at there: it may be one that we sent to
    // ourselves.
    enum class FrameSource : uint8_t { kPort, kLoopback, kWorker };
    // A place in a burst: the frame there, and what is known since the one before it. Of a frame that the peer can
    // still change, a copy of its head, or of all of it if it is small.
    struct Frame {
        static constexpr uint32_t kCopiedBytes = 256;  // headers and wire::kSmallPayload
        static_assert(kCopiedBytes >= wire::kSmallPayload + wire::kMaxOverheadBytes);
        static_assert(kCopiedBytes >= wire::kHeadBytes);
        alignas(RTE_CACHE_LINE_SIZE) std::array<uint8_t, kCopiedBytes> copy;
        wire::ParseError error;
        FrameSource origin = FrameSource::kPort;
        bool accepted = false;  // addressed to the interface, if it comes from `origin`
        wire::HeaderPrediction flow;
        wire::ParsedFrame parsed;
    };
    // A port. We poll each of its queues whose number, modulo the workers, is our index, and the first worker its
    // links. We send by the queue of our index; without one we have no QPs there.
    struct PortUse {
        RdmaInterface* interface = nullptr;
        const Port* port = nullptr;
        std::vector<std::unique_ptr<RxQueue>> queues;
        LinkQueues links;
        std::unique_ptr<Impairment> impairment;  // null: none asked for
        std::array<Frame, kRxBurst> frames;
    };
    uint32_t receive();
    uint32_t receive_burst();
    uint32_t receive_from(RxQueue& queue, PortUse& from);
    // At most kRxBurst.
    void parse_burst(rte_mbuf** mbufs, uint16_t count, PortUse& from, FrameSource origin);
    uint32_t take_all(std::span<rte_mbuf*> frames, PortUse& from);
    // For who keeps a frame beyond the burst: a copy in `pool`, if it is the peer's memory. Null without an mbuf for
    // it.
    rte_mbuf* keep(rte_mbuf* mbuf, rte_mempool* pool);
    std::span<rte_mbuf*> impair(std::span<rte_mbuf*> frames, PortUse& from);
    // Returns the pool for frames that an impairment holds: the worker's if it is large enough, or one that is made
    // now. Null without memory.
    rte_mempool* impair_pool();
    // Parses it. True: it is small, and to be verified now; others are while they are copied.
    [[gnu::always_inline]] static inline bool read_frame(rte_mbuf* mbuf, Frame& read, const RdmaInterface& interface,
                                                         FrameSource origin);
    // Returns false if the mbuf went elsewhere: to another worker, or back as an answer.
    [[gnu::always_inline]] inline bool deliver_frame(rte_mbuf* mbuf, Frame& read, PortUse& from);
    // A frame that is not RoCE; returns as deliver_frame().
    bool discover(rte_mbuf* mbuf, PortUse& from);
    bool discover_kept(rte_mbuf* mbuf, PortUse& from);
    // Gives a frame from `port` to another worker, or frees it.
    void hand_over(rte_mbuf* mbuf, uint16_t port, uint16_t worker);
    // Gives a copy of a frame to `group` to each other worker that has members of it.
    void hand_over_copies(rte_mbuf* mbuf, uint16_t port, const wire::Gid& group);
    uint32_t transmit();
    void mask_doorbells();
    // Looks at the clock.
    void begin_round();
    void run_periodic_tasks();
    // Of worker 0: what there is to ask or to report on the port's link, beside RoCE.
    void send_control_frames(PortUse& use);
    [[gnu::noinline]] void run_engine();
    // A burst whose headers were read.
    struct ParsedBurst {
        rte_mbuf** const mbufs;
        const uint16_t count;
        PortUse& from;
        uint16_t next = 0;
        uint16_t finished = 0;  // before it, to be freed
    };
    [[gnu::noinline]] void deliver_burst(ParsedBurst& frames);
    [[gnu::always_inline]] inline void finish_frame(ParsedBurst& frames, bool stays);
    void recover(ParsedBurst& frames);

    Shared shared_;
    const uint16_t index_;
    const unsigned lcore_;
    ProtocolClock protocol_clock_;
    uint64_t now_ns_ = 0;       // when the round began
    uint64_t protocol_ns_ = 0;  // ... as the engine has it
    uint64_t missed_ns_ = 0;    // ProtocolClock::missed_ns() that the engine knows of
    // Frames that may have come while no round was made and are still to be read: until then no timeout passes. The
    // queues of the ports hold fewer than kMaxUnread.
    static constexpr uint32_t kMaxUnread = 16'384;
    uint32_t unread_ = 0;
    uint64_t received_ns_ = 0;
    bool chores_due_ = false;       // every ProtocolClock::kLookNs
    uint64_t suspected_ns_ = 0;     // when suspects were last looked up
    uint32_t sleepers_ = 0;         // between arm() and disarm()
    uint32_t posts_ = 0;            // since the last round
    uint32_t batching_rounds_ = 0;  // that followed several posts, since one of them was left to the background thread
    PortCounters counters_;
    PacketSink sink_;
    FaultGuard guard_;
    transport::Engine<PacketSink> engine_;
    DelayedFramePool shelf_;              // of all ports' impairments
    rte_mempool* impair_pool_ = nullptr;  // for the frames there; null: none was needed yet
    std::vector<PortUse> ports_;          // by DPDK port id
    std::array<Doorbells, kPriorities> doorbells_;
    Capture* capture_ = nullptr;
    rte_ring* handed_over_ = nullptr;  // frames for our QPs that came to another worker
    const std::vector<std::unique_ptr<Worker>>* workers_ = nullptr;
};

}  // namespace rove::datapath
