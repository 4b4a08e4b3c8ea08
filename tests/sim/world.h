// SPDX-License-Identifier: Apache-2.0
// A random world: a network, queue pairs, and programs on both hosts, all drawn from one seed; and the model of the
// guarantees of verbs that checks every completion and every byte. Units: virtual nanoseconds, bytes, offsets into a
// host's arena.
//
// DESIGN NOTES
// 1. Each host has one arena of memory and a shadow of it. All memory of requests is in the arena, with gaps between.
//    At the end arena and shadow must be equal, so a misplaced byte anywhere is detected.
// 2. A reliable world's result is known when its plan is drawn: RC executes a queue pair's requests in order, and no
//    two queue pairs write the same place, except for one counter per host, whose sum is known.
// 3. In a failing world a queue pair may break. Then the requests must have taken effect up to some point at or beyond
//    the last completion, and not beyond it: data never holds kUntouched, so each byte shows whether it was written.
//    Over many paths, the message at that point may have holes, and WRITEs beyond it may be in memory as far as the
//    ordering of the two ends allows. The order is also checked in memory while the world runs.
// 4. In a reliable world a connection may be doomed: one of its ends posts a request that fails locally. Only its two
//    directions are checked as in a failing world.
// 5. UC and UD may lose messages but never mix them: the first bytes of a message identify it.
// 6. An ATOMIC WRITE takes effect in its turn under every ordering of WRITEs, and its word is never seen in part. A
//    FLUSH changes nothing: when it completes, all data that was put before it is in memory.
#pragma once

#include <optional>

#include "rove/verbs.h"
#include "transport/extended_verbs.h"
#include "transport/virtual_network.h"

namespace rove::test {

inline constexpr uint8_t kUntouched = 0xEE;
inline constexpr size_t kWithin = 500;              // bytes of a READ beyond a region's end that are within the region
inline constexpr uint64_t kIsReceive = 1ull << 63;  // in a wr_id

struct Range {
    size_t offset = 0;
    uint32_t bytes = 0;
};

struct Arena {
    Host* host = nullptr;
    std::vector<uint8_t> memory, shadow;  // grow while the world is planned, then stay
    Region region;

    // Allocates fresh untouched bytes, with a gap before and behind.
    size_t allocate(size_t bytes, Random& random, size_t align = 1);
    ibv_sge sge(const Range& range) const { return {region.iova + range.offset, range.bytes, region.key}; }
    void set(size_t offset, const std::vector<uint8_t>& data);  // sets both memory and shadow
    bool holds(size_t offset, const std::vector<uint8_t>& data) const {
        return std::equal(data.begin(), data.end(), memory.begin() + static_cast<ptrdiff_t>(offset));
    }
};

// A receive request and its state.
struct PlannedReceive {
    std::vector<Range> pieces;
    uint32_t bytes = 0;
    bool posted = false, done = false;
};

struct PlannedSend {
    static constexpr auto kAtomicWrite = static_cast<ibv_wr_opcode>(transport::kWrAtomicWrite);
    static constexpr auto kFlush = static_cast<ibv_wr_opcode>(transport::kWrFlush);

    ibv_wr_opcode opcode = IBV_WR_SEND;
    uint32_t flags = 0;
    uint32_t immediate = 0;
    std::vector<Range> local;  // source, or destination of a response
    // The data sent or the expected response; for a request that fails locally, the data that it may place.
    std::vector<uint8_t> data;
    size_t remote = 0;
    bool fresh = true;  // no other request touches the remote range
    bool shared_counter = false;
    uint64_t compare_add = 0, swap = 0;
    // Length of a FLUSH's range, or of the word that an ATOMIC WRITE without SGEs has in compare_add.
    uint32_t length = 0;
    std::optional<ibv_wc_status> poison;                          // the request must fail with this
    bool bad_rkey = false, beyond_end = false, too_long = false;  // the fault of a poisoned request
    bool bad_lkey = false, narrow = false;                        // the fault of one that fails locally
    bool placed = false;                                          // a WRITE or ATOMIC WRITE: all of it was seen

    bool fails_at_home() const { return poison == IBV_WC_LOC_PROT_ERR; }
    // Returns true if the request fails before its last packet is made. Then no later request is begun.
    bool stops_sending() const { return fails_at_home() && !is_read() && !is_atomic(); }
    uint32_t bytes() const {
        uint32_t sum = 0;
        for (const Range& piece : local) sum += piece.bytes;
        return sum;
    }
    bool signaled() const { return (flags & IBV_SEND_SIGNALED) != 0; }
    bool is_sync() const { return (flags & ROVE_SEND_SYNC) != 0; }
    bool is_message() const {
        return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    }
    bool is_send() const { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }
    bool is_write() const { return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
    bool is_read() const { return opcode == IBV_WR_RDMA_READ; }
    bool is_atomic() const { return opcode >= IBV_WR_ATOMIC_CMP_AND_SWP && opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD; }
    bool is_atomic_write() const { return opcode == kAtomicWrite; }
    bool is_flush() const { return opcode == kFlush; }
    bool puts_data() const { return is_write() || is_atomic_write(); }  // at an address of its own choice
};

struct ReceivePool {  // a QP's receive queue, or an SRQ
    Arena* arena = nullptr;
    transport::RecvQueue* queue = nullptr;
    QueuePair* qp = nullptr;  // null for an SRQ
    std::vector<PlannedReceive> receives;
    size_t posted = 0;
};

// The order in which the packets of a WRITE may become visible in memory.
enum class Promise : uint8_t {
    kInOrder,      // after everything posted before the WRITE; its last packet after the others
    kLastInOrder,  // only the last packet
    kNone,
};

// The extent to which a message is in memory.
struct Applied {
    bool any = false, all = false, end = false;  // packets; `end` is the last one
};

// The requests of one queue pair and the receives of its peer.
struct Direction {
    uint32_t index = 0;
    ibv_qp_type type = IBV_QPT_RC;
    Arena* from = nullptr;
    Arena* to = nullptr;
    QueuePair* qp = nullptr;    // the sender
    QueuePair* peer = nullptr;  // the receiver
    QpOptions options;
    bool reliable = false;  // nothing may fail
    bool doomed = false;    // a request fails locally
    Region narrow;          // ends within that request's memory; does not exist if the length is 0
    Promise promise = Promise::kInOrder;
    Path path;                    // UD
    uint32_t xrc_srqn = 0;        // XRC: the SRQ at `to`
    ReceivePool* pool = nullptr;  // at `to`
    std::vector<PlannedSend> sends;
    std::vector<size_t> messages;  // indices of the requests that take a receive
    size_t hot = 0;                // RC: start of the range that is written and read again and again
    std::vector<uint8_t> hot_model;
    uint64_t counter_added = 0;  // added to the peer's shared counter

    size_t posted = 0;
    size_t succeeded = 0;       // requests known to have succeeded: [0, succeeded)
    size_t ended = 0;           // requests that have succeeded, failed or been flushed
    size_t delivered = 0;       // messages received with success
    size_t receives_ended = 0;  // own queue: completed in any way
    size_t writes_checked = 0;
    int drains = 0;                                       // the number of times that the send queue was paused
    std::optional<std::pair<size_t, size_t>> drained_at;  // `ended` and `delivered` since it has drained
    bool send_failed = false, receive_failed = false;     // a completion without success was seen
    bool broken() const { return send_failed || receive_failed; }
    // Returns true for RC, and for XRC, which has the same guarantees. A TGT QP sends nothing.
    bool is_rc() const { return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND; }
    std::vector<bool> message_seen;  // UC, UD
};

class World {
  public:
    // With `multipath`, RC queue pairs speak mp.
    explicit World(uint64_t seed, bool multipath = false);
    ~World();
    // Runs the world and checks everything. Failures are reported to gtest.
    void run();
    Network& network() { return *net_; }

  private:
    static constexpr size_t kHotBytes = 6000;

    // world_network.cc
    transport::Config draw_config();
    void draw_network();
    Promise promise(uint32_t from) const;
    void draw_queue_pairs();
    void poll_also(uint32_t host, CompletionQueue* cq);
    SharedRecvQueue& make_xrc_srq(CompletionQueue& cq);
    Connection connect_xrc(const QpOptions& options, bool ipv6);

    // world_plan.cc
    void plan(Direction& d);
    void plan_rc(Direction& d, PlannedSend& send, const PlannedSend* like);
    void plan_flush(Direction& d, PlannedSend& send);
    void plan_atomic_write(Direction& d, PlannedSend& send);
    void fill_source(Direction& d, const PlannedSend& send);
    void plan_datagram(Direction& d, PlannedSend& send, size_t index);
    void plan_poison(Direction& d);
    void plan_failure_at_home(Direction& d);
    void plan_receives();
    uint32_t draw_bytes(const Direction& d);
    std::vector<uint8_t> draw_data(size_t bytes);
    std::vector<Range> draw_pieces(Arena& arena, uint32_t bytes, uint32_t most);

    // world_run.cc
    void tick(uint32_t host);
    void run_program(uint32_t host);
    void pause_or_resume(Direction& d);
    void post_sends(Direction& d);
    void post_receives(ReceivePool& pool);
    void poll(uint32_t host);
    bool finished() const;
    std::string describe() const;

    // world_check.cc
    void on_send(Direction& d, const ibv_wc& wc);
    void on_receive(Direction& d, const ibv_wc& wc);
    void on_datagram(Direction& d, const ibv_wc& wc, PlannedReceive& receive);
    void check_visible(Direction& d);
    void check_writes_before(Direction& d, size_t end);
    void check_failure(const Direction& d, size_t index, ibv_wc_status status);
    void check_completed(Direction& d, size_t index);
    void check_response(Direction& d, const PlannedSend& send);
    void check_whole(const Direction& d, const PlannedSend& send) const;
    void settle_rc(Direction& d);
    void settle_unreliable(Direction& d);
    void settle_counters();
    void check_order(const Direction& d, const PlannedSend& send, const Applied& applied, bool all_before);
    Applied applied(const Direction& d, const Arena& arena, const std::vector<Range>& pieces,
                    const std::vector<uint8_t>& data) const;
    Applied settle(const Direction& d, Arena& arena, const std::vector<Range>& pieces,
                   const std::vector<uint8_t>& data) const;
    void settle_events(const Direction& d);
    void settle_memory();

    uint64_t seed_;
    bool multipath_;
    Random random_;
    bool reliable_ = true;          // RC must succeed, except on doomed connections
    bool clean_ = false;            // no packet is lost or late
    bool in_order_ = false;         // no duplication and reordering: UC and UD keep order
    double eagerness_ = 1;          // the probability that a tick posts a send
    double receive_eagerness_ = 1;  // the probability that it posts a receive
    double pause_eagerness_ = 0;    // the probability that it pauses a send queue
    uint64_t tick_ns_ = 0;
    transport::Config configs_[2];
    bool relaxed_[2] = {};  // the arena was registered with IBV_ACCESS_RELAXED_ORDERING
    std::unique_ptr<Network> net_;
    Arena arenas_[2];
    size_t counters_[2] = {};           // offsets of the shared counters
    std::vector<uint64_t> fetched_[2];  // values read from the counters
    std::deque<ReceivePool> pools_;
    std::deque<Direction> directions_;
    std::vector<CompletionQueue*> cqs_[2];
    bool ticking_ = true;
};

}  // namespace rove::test
