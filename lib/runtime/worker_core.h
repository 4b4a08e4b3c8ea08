// SPDX-License-Identifier: Apache-2.0
// The work of one round. Only the thread that holds the worker's drive lock may call it, unless stated otherwise.
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

// Makes the calling thread an lcore for DPDK during its lifetime, so that it uses that lcore's pool cache for mbufs.
// Only the thread that holds a worker's drive lock may be that worker's lcore, because nothing else protects the cache.
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
    static constexpr uint32_t kTransmitBudget = 64;  // packets that a round may send before it receives again
    static constexpr unsigned kPriorities = 3;       // HIGH, MEDIUM, LOW
    static constexpr uint32_t kRoundsToBatch = 32;   // rounds with several posts each, after which posts may be batched

    struct Shared {  // shared by all workers of a runtime
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

    // Makes the ring for frames from other workers. Returns false if there is no memory.
    bool init();
    void add_interface(RdmaInterface& interface, Port& port, const ImpairConfig& impair);
    // Add and remove the links of a port. Frames that a link has received are processed before it is removed.
    void add_link(const Port& port, const LinkRings& link);
    void remove_link(const Port& port, const LinkRings& link);
    // Lets the next frame of a port with doorbells ring, because the driving thread is about to sleep. Returns false if
    // there are frames already. Several threads may sleep: doorbells ring until each of them has called disarm().
    bool arm();
    // Ends the effect of arm() after a sleep of `rested_ns`.
    void disarm(uint64_t rested_ns);
    // Sets the capture to which the frames of all ports are written, or null for no capture.
    void set_capture(Capture* capture) {
        capture_ = capture;
        sink_.set_capture(capture);
    }
    void set_siblings(const std::vector<std::unique_ptr<Worker>>* workers) { workers_ = workers; }

    // Makes one round. Returns the number of frames received and sent, so 0 means that nothing happened.
    uint32_t round();
    // Makes a round for the progress thread, because the application makes none.
    uint32_t background_round();
    // Sends what can be sent of the work that was posted to `qp`, and receives only after a long series of posts. A
    // program that is known to poll after it posts may post several requests one by one: the first is sent at once, the
    // others as a burst.
    void send_posted(transport::QueuePair& qp);
    // Returns the time at which there is work even if no frame arrives.
    uint64_t next_deadline() const;
    // Returns the time at which a simulated path releases the next delayed frame (port/fault_injection), or UINT64_MAX
    // if it holds none.
    uint64_t next_release() const;
    void tell_background();
    // Returns next_deadline() for a thread that wants to sleep until then, or 0 if the round left work that no doorbell
    // announces.
    uint64_t next_wakeup_ns() const { return engine_.has_active() || sink_.holds_frames() ? 0 : next_deadline(); }

    // The fault injection for frames from this port, or null without it, and the function for Runtime::impair().
    const Impairment* impairment(uint16_t port) const { return ports_[port].impairment.get(); }
    std::string impair(uint16_t port, std::optional<uint32_t> path, std::string_view changes);

    void ring_doorbell(transport::QueuePair& qp);
    // Consumes all doorbells, so that a QP can be removed.
    void take_doorbells();

    // Send an ARP or ND question for `neighbour` through the device's port, and announce our own addresses there.
    void solicit(RdmaInterface& interface, const wire::Gid& neighbour);
    void announce(RdmaInterface& interface);
    // Sends a question to the peer of `qp`: Engine::ask_multipath().
    void ask_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn, uint32_t nonce);

    // Sends the packets that a control call produced, and wakes the threads that wait for its completions. Called as
    // the worker's lcore.
    void flush() { sink_.flush(); }
    // Returns true if a thread of the program that waited for a completion was woken since the last call.
    bool consume_woke_waiter() { return sink_.consume_woke_waiter(); }

    transport::Engine<PacketSink>& engine() { return engine_; }
    PortCounters& counters() { return counters_; }
    uint16_t index() const { return index_; }
    unsigned lcore() const { return lcore_; }
    uint64_t now_ns() const { return shared_.clock.now_ns(); }
    // Returns the engine's time, for a control call.
    uint64_t protocol_ns() {
        begin_round();  // otherwise the time could lie behind that of the next round
        return protocol_ns_;
    }
    // Returns the time of the last receive.
    uint64_t received_ns() const { return received_ns_; }

  private:
    // The origin of a frame. A frame from another worker was checked there, and may be one that we sent to ourselves.
    enum class FrameSource : uint8_t { kPort, kLoopback, kWorker };
    // A slot of a burst: the frame in it, and predictions from the previous frame in this slot. If the peer can still
    // change the frame, `copy` holds its headers, or all of it if it is small.
    struct Frame {
        static constexpr uint32_t kCopiedBytes = 256;  // headers and wire::kSmallPayload
        static_assert(kCopiedBytes >= wire::kSmallPayload + wire::kMaxOverheadBytes);
        static_assert(kCopiedBytes >= wire::kHeadBytes);
        alignas(RTE_CACHE_LINE_SIZE) std::array<uint8_t, kCopiedBytes> copy;
        wire::ParseError error;
        FrameSource origin = FrameSource::kPort;
        bool accepted = false;  // addressed to the interface, for a frame from `origin`
        wire::HeaderPrediction flow;
        wire::ParsedFrame parsed;
    };
    // A port as this worker uses it. We poll each of its queues whose number, modulo the number of workers, is our
    // index, and the first worker polls its links. We send to the queue with our index; without such a queue we have no
    // QPs there.
    struct PortUse {
        RdmaInterface* interface = nullptr;
        const Port* port = nullptr;
        std::vector<std::unique_ptr<RxQueue>> queues;
        LinkQueues links;
        std::unique_ptr<Impairment> impairment;  // null without fault injection
        std::array<Frame, kRxBurst> frames;
    };
    uint32_t receive();
    uint32_t receive_burst();
    uint32_t receive_from(RxQueue& queue, PortUse& from);
    // Parses and delivers a burst of at most kRxBurst frames.
    void parse_burst(rte_mbuf** mbufs, uint16_t count, PortUse& from, FrameSource origin);
    uint32_t take_all(std::span<rte_mbuf*> frames, PortUse& from);
    // Returns a frame that may be kept after the burst. It is a copy in `pool` if the frame is in the peer's memory, or
    // null if there is no mbuf for the copy.
    rte_mbuf* keep(rte_mbuf* mbuf, rte_mempool* pool);
    std::span<rte_mbuf*> impair(std::span<rte_mbuf*> frames, PortUse& from);
    // Returns the pool for frames that fault injection delays. It is the worker's own pool if that is large enough,
    // else one that is made on the first call. Returns null if there is no memory.
    rte_mempool* impair_pool();
    // Parses a frame. Returns true if it is small and must be verified now; others are verified while they are copied.
    [[gnu::always_inline]] static inline bool read_frame(rte_mbuf* mbuf, Frame& read, const RdmaInterface& interface,
                                                         FrameSource origin);
    // Returns false if the mbuf was passed on: to another worker, or back as a reply.
    [[gnu::always_inline]] inline bool deliver_frame(rte_mbuf* mbuf, Frame& read, PortUse& from);
    // Handle a frame that is not RoCE. The result is that of deliver_frame().
    bool discover(rte_mbuf* mbuf, PortUse& from);
    bool discover_kept(rte_mbuf* mbuf, PortUse& from);
    // Hands a frame from `port` to another worker, or frees it.
    void hand_over(rte_mbuf* mbuf, uint16_t port, uint16_t worker);
    // Hands a copy of a frame to `group` to every other worker with members of the group.
    void hand_over_copies(rte_mbuf* mbuf, uint16_t port, const wire::Gid& group);
    uint32_t transmit();
    void mask_doorbells();
    // Reads the clock.
    void begin_round();
    void run_periodic_tasks();
    // Sends the questions and reports that are due on the port's link in addition to RoCE. Only worker 0 does this.
    void send_control_frames(PortUse& use);
    [[gnu::noinline]] void run_engine();
    // A burst whose headers have been parsed.
    struct ParsedBurst {
        rte_mbuf** const mbufs;
        const uint16_t count;
        PortUse& from;
        uint16_t next = 0;
        uint16_t finished = 0;  // mbufs before `next` that must be freed
    };
    [[gnu::noinline]] void deliver_burst(ParsedBurst& frames);
    [[gnu::always_inline]] inline void finish_frame(ParsedBurst& frames, bool stays);
    void recover(ParsedBurst& frames);

    Shared shared_;
    const uint16_t index_;
    const unsigned lcore_;
    ProtocolClock protocol_clock_;
    uint64_t now_ns_ = 0;       // when the round began
    uint64_t protocol_ns_ = 0;  // that time for the engine
    uint64_t missed_ns_ = 0;    // the part of ProtocolClock::missed_ns() that the engine knows
    // Frames that may have arrived while no round was made and are still unread. Timeouts wait until they are read. The
    // ports' queues hold fewer than kMaxUnread frames.
    static constexpr uint32_t kMaxUnread = 16'384;
    uint32_t unread_ = 0;
    uint64_t received_ns_ = 0;
    bool chores_due_ = false;       // set every ProtocolClock::kLookNs
    uint64_t suspected_ns_ = 0;     // when the suspects were last processed
    uint32_t sleepers_ = 0;         // threads between arm() and disarm()
    uint32_t posts_ = 0;            // posts since the last round
    uint32_t batching_rounds_ = 0;  // rounds after several posts each; 0 again when the progress thread had to make one
    PortCounters counters_;
    PacketSink sink_;
    FaultGuard guard_;
    transport::Engine<PacketSink> engine_;
    DelayedFramePool shelf_;              // for all ports' fault injection
    rte_mempool* impair_pool_ = nullptr;  // for the frames there; null until needed
    std::vector<PortUse> ports_;          // indexed by port id
    std::array<Doorbells, kPriorities> doorbells_;
    Capture* capture_ = nullptr;
    rte_ring* handed_over_ = nullptr;  // frames for our QPs that another worker received
    const std::vector<std::unique_ptr<Worker>>* workers_ = nullptr;
};

}  // namespace rove::datapath
