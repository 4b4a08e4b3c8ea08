// SPDX-License-Identifier: Apache-2.0
// The neighbours on a device's link: the neighbour table, and the replies to ARP, ND and echo requests. Units:
// nanoseconds, bytes.
//
// DESIGN NOTES
// 1. The table is protected by a mutex. It is used when a path is resolved or a discovery frame arrives, never for a
//    RoCE packet. Senders read only an entry's NextHop, which holds the MAC and is changed in place. A new MAC
//    therefore needs no search for the paths that use it, and a neighbour that alternates between MACs blocks no other
//    thread.
// 2. Frames from unknown hosts have limited effects. A request to us adds an entry for its sender if the sender is on
//    our link and there is room, and the entry is removed after kForgetNs if no path uses it. A reply only fills an
//    entry that is being resolved or refreshes a known one. No such frame removes an entry, or makes us send more than
//    one frame in return.
// 3. Neighbours that paths use are probed roughly as in RFC 4861 7.3: every kReachableNs, at once when responses to
//    RDMA requests are overdue (suspect()), and soon after a frame announced another MAC. The first question goes to
//    the known MAC, the later ones to all hosts. Unlike in the RFC, packets continue to go to the old MAC meanwhile,
//    and the questions are milliseconds apart, because a connection waits for the answer. We ask a silent neighbour
//    again each minute, or when it is suspected.
// 4. This class sends nothing. The caller reads due_ns() and gets the questions from next_question().
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "link/address.h"
#include "link/neighbour_packets.h"
#include "transport/queue_pair.h"

namespace rove::datapath {

// A neighbour that the configuration defines.
struct NeighbourConfig {
    wire::Gid address{};
    wire::MacAddress mac{};
};

// A value that is added must be added to to_string() too.
enum class NeighbourCounter : uint8_t {
    kSolicitsAnswered,
    kEchosAnswered,
    kAdvertisesTaken,
    kAdvertisesUnsolicited,  // ignored replies: no question was asked, and the address is not in the table
    kMoved,                  // known neighbours that announced another MAC
    kProbes,                 // questions to known neighbours
    kSilent,                 // neighbours that did not answer kQuestions questions
    kForgotten,              // removed entries that no path used
    kConflicts,              // frames from other hosts that claim one of our addresses
    kTableFull,              // senders that were not added to the table
    kMalformed,
    kIgnored,  // frames for others, or of other protocols
    kCount,
};
const char* to_string(NeighbourCounter counter);

class Neighbours {
  public:
    // The limit for entries that other hosts cause; our own questions get room beyond it. The table takes about 800 KiB
    // and suffices for a /20 subnet whose hosts all talk to us.
    static constexpr size_t kMaxEntries = 4096;
    static constexpr uint64_t kNever = UINT64_MAX;
    static constexpr uint64_t kReachableNs = 30'000'000'000;  // RFC 4861 10: REACHABLE_TIME
    static constexpr uint64_t kDelayNs = 5'000'000'000;       // RFC 4861 10: DELAY_FIRST_PROBE_TIME
    static constexpr uint64_t kForgetNs = 60'000'000'000;     // gc_stale_time of Linux
    static constexpr uint64_t kConfirmedNs = 100'000'000;  // the time after an answer in which suspect() has no effect
    // The wait after the first question; a host answers within a millisecond.
    static constexpr uint64_t kUnicastWaitNs = 5'000'000;
    // The wait after the second question, which then doubles, and its upper limit.
    static constexpr uint64_t kFirstWaitNs = 20'000'000, kLastWaitNs = 1'000'000'000;
    static constexpr uint8_t kQuestions = 8;  // unanswered questions until a neighbour counts as silent: 2.3 s
    static constexpr uint64_t kSilentNs = 60'000'000'000;  // the time until the next question to a silent neighbour
    static constexpr uint64_t kAgainNs = 1'000'000'000;    // that time for one that is suspected or sends something

    Neighbours(const wire::MacAddress& mac, std::optional<uint16_t> vlan, std::vector<Subnet> own,
               std::optional<wire::Gid> gateway_ipv4, std::optional<wire::Gid> gateway_ipv6);
    void add_static(const wire::Gid& address, const wire::MacAddress& mac);

    // Sets the hosts that the link reaches through us. From now on we answer for their addresses too (proxy ARP and ND,
    // RFC 1027 and RFC 4389), and ask in the name of one of them if we have no address of a family.
    void set_proxied(std::set<wire::Gid> hosts);

    bool owns(const wire::Gid& address) const;
    const std::vector<Subnet>& own() const { return own_; }  // equal to RdmaInterface::gids()
    bool has_gateway(bool ipv4) const { return (ipv4 ? gateway_ipv4_ : gateway_ipv6_).has_value(); }
    // Returns the address to resolve for frames to `address`: itself if it is on our link or there is no gateway, else
    // the gateway.
    wire::Gid next_hop(const wire::Gid& address) const;
    std::optional<wire::MacAddress> lookup(const wire::Gid& neighbour);
    // Returns the next hop for a path to `neighbour`, or null if its MAC is unknown or it has been silent for long.
    std::shared_ptr<const transport::NextHop> use(const wire::Gid& neighbour, uint64_t now_ns);
    // Adds an entry to be resolved and writes the question to `out` (kMaxDiscoveryBytes). Returns its bytes.
    size_t ask(const wire::Gid& neighbour, uint8_t* out, uint64_t now_ns);
    // Waits until use() will find the neighbour, for at most `timeout_ms`. Returns false if it will not.
    bool wait(const wire::Gid& neighbour, int timeout_ms);
    // Reports that requests to `neighbour`, or to hosts behind it, are not answered.
    void suspect(const wire::Gid& neighbour, uint64_t now_ns);

    // Returns the time at which next_question() has something to do, or kNever if there is nothing until another
    // function is called. A relaxed load suffices: a caller that reads an old value sees the new one in its next round.
    uint64_t due_ns() const { return due_ns_.load(std::memory_order_relaxed); }
    // Writes a question that is due to `out` (kMaxDiscoveryBytes). Returns its bytes, or 0 if none is due.
    size_t next_question(uint8_t* out, uint64_t now_ns);

    // Handles a frame that is not RoCE. If it has to be answered, the answer replaces it: `room` starts with the frame
    // and has at least kMaxDiscoveryBytes. Returns the bytes to send, or 0 for no answer.
    size_t handle(std::span<uint8_t> room, size_t frame_bytes, uint64_t now_ns);

    // Returns the addresses to announce when the link comes up.
    std::vector<ProxyAddress> speakers() const;

    struct Entry {
        std::optional<wire::MacAddress> mac;  // no value while it is being resolved
        bool fixed = false;
        bool used = false;    // a path uses it
        bool silent = false;  // it did not answer kQuestions questions
    };
    std::map<wire::Gid, Entry> entries() const;
    std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> counters() const;

  private:
    void count(NeighbourCounter counter) { ++counters_[static_cast<size_t>(counter)]; }
    bool on_link(const wire::Gid& address) const;
    bool answers_for(const wire::Gid& address) const { return owns(address) || hosts_.contains(address); }
    struct Known {
        std::optional<wire::MacAddress> mac;
        bool fixed = false;
        uint8_t questions = 0;                    // questions since the last answer, at most kQuestions
        uint64_t asked_ns = 0, confirmed_ns = 0;  // 0 for never
        uint64_t due_ns = kNever;  // time of the next question, or of the removal; the same as in schedule_
        std::shared_ptr<transport::NextHop> next_hop;  // null if no path has used it for long
        bool is_silent() const { return questions >= kQuestions; }
        // Only use() adds an owner besides this table and the paths, so an entry that is not used under the mutex stays
        // so.
        bool is_used() const { return next_hop.use_count() > 1; }
    };
    using Table = std::map<wire::Gid, Known>;
    // Records that `address` has `mac`. `answer` is true if we asked for it; otherwise the claim may be false.
    void learn(const wire::Gid& address, const wire::MacAddress& mac, bool may_add, bool answer, uint64_t now_ns);
    void schedule(Table::iterator entry, uint64_t ns);
    void schedule_before(Table::iterator entry, uint64_t ns) {
        if (ns < entry->second.due_ns) schedule(entry, ns);
    }
    void erase(Table::iterator entry);
    bool is_usable(const wire::Gid& neighbour) const;
    const wire::Gid* nearest_host(const wire::Gid& neighbour) const;
    size_t question_for(const wire::Gid& neighbour, const std::optional<wire::MacAddress>& known, uint8_t* out) const;
    ProxyAddress speaker(const wire::Gid& address) const { return {mac_, address, vlan_}; }
    const Subnet* subnet_of(const wire::Gid& address) const;

    const wire::MacAddress mac_;
    const std::optional<uint16_t> vlan_;  // VID
    const std::vector<Subnet> own_;
    const std::optional<wire::Gid> gateway_ipv4_, gateway_ipv6_;

    std::atomic<uint64_t> due_ns_{kNever};
    mutable std::mutex mutex_;  // guards the members below, and writes of due_ns_
    std::condition_variable learnt_;
    std::set<wire::Gid> hosts_;  // hosts that we answer for
    Table table_;
    std::set<std::pair<uint64_t, wire::Gid>> schedule_;  // all entries that are not fixed
    std::mt19937_64 random_;
    std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> counters_{};
};

}  // namespace rove::datapath
