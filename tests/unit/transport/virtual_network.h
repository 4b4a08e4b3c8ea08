// SPDX-License-Identifier: Apache-2.0
// Hosts joined by a network in virtual time. Frames are built, carried as bytes and parsed again, so a flipped bit
// meets the ICRC. The network's actions come from a seed, or packet by packet from a test's filter. Units: virtual
// nanoseconds, bytes, probabilities per packet.
#pragma once

#include <map>

#include "support/random.h"
#include "transport/host.h"

namespace rove::test {

// One of several paths through the network. The UDP source port selects it, and packets of one path stay in order.
struct Lane {
    uint64_t delay_ns = 0;  // in addition to the impairment's delay
    double loss = 0;
    std::vector<std::pair<uint64_t, uint64_t>> dark{};  // [from, to): every packet on it is lost
};

// Losses in bursts, which a packet may start. Time ends a burst, not packets: a retransmission after a timeout is
// beyond it.
struct Bursts {
    double begin = 0, loss = 0;  // `loss` applies to packets within
    uint64_t mean_ns = 0;        // mean length
};

// The impairment of the packets that a host sends.
struct Impairment {
    double loss = 0, duplicate = 0, reorder = 0, corrupt = 0, mark_ce = 0;
    uint64_t delay_ns = 2'000;
    uint64_t reorder_ns = 20'000;  // the maximum delay of a reordered packet
    uint64_t bytes_per_s = 0;      // 0 = no limit
    uint32_t room_packets = 0;     // size of the sender's ring until the wire takes the packets; 0 = unlimited
    double refuse = 0;             // the probability that the ring is found full, and has room when asked again
    std::vector<Lane> lanes;       // empty: one without faults
    uint32_t lane_hash = 0;        // 0: a lane is the port modulo their number; otherwise another choice for each value
    Bursts bursts;
    std::vector<std::pair<uint64_t, uint64_t>> down;  // [from, to): every sent packet is lost
};

// A packet as a test sees it when it is sent.
struct Observed {
    uint64_t time = 0;
    uint32_t from = 0;
    wire::Headers headers;
    uint32_t payload_bytes = 0;
    wire::Op op() const { return wire::op_of(headers.bth.opcode); }
    bool is_response() const {
        return op() >= wire::Op::kReadResponseFirst && op() <= wire::Op::kAtomicAck && !is_cnp();
    }
    bool is_cnp() const { return headers.bth.opcode == wire::kOpcodeCnp; }
};

enum class Verdict : uint8_t {
    kPass,
    kDrop,
    kTwice,
    kHold,  // until release()
    kMarkCe,
    kDamage,  // the last bit before the ICRC
};

class Network {
  public:
    explicit Network(uint64_t seed = 1, uint32_t hosts = 2, const transport::Config& config = {})
        : Network(seed, std::vector<transport::Config>(hosts, config)) {}
    Network(uint64_t seed, const std::vector<transport::Config>& hosts);
    // Frames that hosts send during their destruction are dropped.
    ~Network() {
        for (auto& host : hosts_)
            host->sink.transmit = [](const Path&, const wire::Headers&, std::vector<uint8_t>&&) {};
    }

    Host& host(uint32_t index) { return *hosts_[index]; }
    uint64_t now() const { return now_; }
    Random& random() { return random_; }

    std::vector<Impairment> egress;                  // indexed by host
    std::function<Verdict(const Observed&)> filter;  // null: everything passes
    // Calls a host's engine, and calls recover() if that was left in the middle of a step; null: direct calls.
    std::function<void(Host&, const std::function<void()>& step, const std::function<void()>& recover)> guard;
    bool keep_trace = true;
    std::vector<Observed> trace;  // all packets sent, including those lost

    // Calls `action` at `time`.
    void at(uint64_t time, std::function<void()> action);
    // Lets a host send its packets. This happens after every event; a test calls it after posting.
    void pump(Host& host);
    void pump() {
        for (auto& host : hosts_)
            if (!is_stalled(host->index())) pump(*host);
    }
    // Runs until nothing more can happen, `done` returns true, or `horizon` (absolute) is reached. Returns false only
    // for the horizon.
    bool run(uint64_t horizon = 60'000'000'000, const std::function<bool()>& done = nullptr);
    void run_for(uint64_t ns) { run_until(now_ + ns); }
    void run_until(uint64_t time) {
        run(time);
        now_ = std::max(now_, time);
    }
    // Puts the packets that the filter held back on the wire, oldest first (or newest first).
    void release(bool reversed = false);
    // From now until `time` a host pauses: it neither receives nor sends. Arriving packets wait, in order.
    void stall(uint32_t host, uint64_t time);
    void stall_at(uint64_t begin, uint32_t host, uint64_t end) {
        at(begin, [this, host, end] { stall(host, end); });
    }
    bool is_stalled(uint32_t host) const { return now_ < stalled_until_[host]; }
    // Delivers a frame to a host that no host has sent.
    void inject(uint32_t to, const Path& path, const wire::Headers& headers, const std::vector<uint8_t>& payload);
    void deliver(Host& host, std::span<const uint8_t> frame);

  private:
    // Lets the host's engine send or expire.
    void transmit(Host& host, const std::function<void()>& step) {
        guard ? guard(host, step, [&host] { host.engine.recover_transmit(); }) : step();
    }
    struct Event {
        uint32_t host = 0;
        std::vector<uint8_t> frame;
        std::function<void()> action;
    };
    struct WorkerQuiesced {
        uint32_t from;
        wire::MacAddress to;
        std::vector<uint8_t> frame;
    };
    void on_sent(uint32_t from, const Path& path, const wire::Headers& headers, std::vector<uint8_t>&& frame);
    bool has_room(uint32_t from);
    void carry(uint32_t from, const wire::MacAddress& to, std::vector<uint8_t> frame);
    void schedule(const wire::MacAddress& to, uint64_t time, const std::vector<uint8_t>& frame);

    Random random_;
    uint64_t now_ = 1'000'000;
    std::multimap<uint64_t, Event> events_;         // in order of time, then of insertion
    std::vector<std::deque<uint64_t>> departures_;  // indexed by host: the departure time of each packet in its ring
    std::vector<bool> wake_pending_;
    std::vector<uint64_t> burst_until_;
    std::vector<uint64_t> stalled_until_;
    std::vector<WorkerQuiesced> held_;
    std::vector<std::unique_ptr<Host>> hosts_;  // last, because they call `room` when they are destroyed
};

// Sets Congestion Experienced and corrects the IPv4 checksum.
void mark_ce(std::vector<uint8_t>& frame);

// Two connected QPs of two hosts.
struct Connection {
    QueuePair& a;
    QueuePair& b;
};
Connection connect(Network& network, Host& a, Host& b, const QpOptions& options_a, const QpOptions& options_b,
                   bool ipv6 = false);

}  // namespace rove::test

extern template class rove::transport::Engine<rove::test::TestSink>;
