// SPDX-License-Identifier: Apache-2.0
// Who is where on a device's link: the table of neighbours, and what is answered to ARP, ND and echo requests.
// Units: nanoseconds, bytes.
//
// DESIGN NOTES
// 1. A table under a mutex: it is asked when a path is resolved and written when a discovery frame arrives, never for a
//    RoCE packet. What senders read is an entry's NextHop, which holds the MAC and is changed in place: no path has to
//    be found and renewed, and a neighbour that alternates between MACs stops nobody.
// 2. What strangers may do: a request to us makes an entry for its sender if it is on our link and there is room, and
//    the entry is forgotten after kForgetNs if no path uses it. An answer only fills an entry that is being resolved,
//    or renews one that is known. No stranger removes an entry, or makes us send more than a frame for one of his.
// 3. Neighbours that paths use are probed as RFC 4861 7.3 says, roughly: every kReachableNs, or at once when an answer
//    to requests is overdue (suspect()), or soon after one was said to have moved; first at the MAC that is known, then
//    by asking all. Otherwise than there, packets go on to the old MAC meanwhile, the questions follow each other in
//    milliseconds, since a connection waits, and who is silent is asked again each minute, or when he is suspected.
// 4. Nothing is sent from here: whoever drives looks at due_ns() and takes questions by next_question().
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

// A neighbour that the configuration names.
struct NeighbourConfig {
    wire::Gid address{};
    wire::MacAddress mac{};
};

// When a value is added, name it in to_string() too.
enum class NeighbourCounter : uint8_t {
    kSolicitsAnswered,
    kEchosAnswered,
    kAdvertisesTaken,
    kAdvertisesUnsolicited,  // ignored: nobody asked and nobody by that address is known
    kMoved,                  // a known neighbour came with another MAC
    kProbes,                 // questions to neighbours that are known
    kSilent,                 // neighbours that have not answered kQuestions of them
    kForgotten,              // entries that nobody used
    kConflicts,              // somebody else claims one of our addresses
    kTableFull,              // a sender was not remembered
    kMalformed,
    kIgnored,  // not for us, or nothing that we speak
    kCount,
};
const char* to_string(NeighbourCounter counter);

class Neighbours {
  public:
    // Of entries that strangers add; our own questions find room beyond. About 800 KiB; a subnet of a /20 all talking
    // to us.
    static constexpr size_t kMaxEntries = 4096;
    static constexpr uint64_t kNever = UINT64_MAX;
    static constexpr uint64_t kReachableNs = 30'000'000'000;  // RFC 4861 10: REACHABLE_TIME
    static constexpr uint64_t kDelayNs = 5'000'000'000;       // RFC 4861 10: DELAY_FIRST_PROBE_TIME
    static constexpr uint64_t kForgetNs = 60'000'000'000;     // as Linux's gc_stale_time
    static constexpr uint64_t kConfirmedNs = 100'000'000;     // so long after an answer nobody is suspected
    // of the first question; a host answers within a millisecond
    static constexpr uint64_t kUnicastWaitNs = 5'000'000;
    // of the second, each doubled; at most
    static constexpr uint64_t kFirstWaitNs = 20'000'000, kLastWaitNs = 1'000'000'000;
    static constexpr uint8_t kQuestions = 8;               // without an answer: it is silent. 2.3 s
    static constexpr uint64_t kSilentNs = 60'000'000'000;  // until the next
    static constexpr uint64_t kAgainNs = 1'000'000'000;    // ... if it is suspected, or speaks

    Neighbours(const wire::MacAddress& mac, std::optional<uint16_t> vlan, std::vector<Subnet> own,
               std::optional<wire::Gid> gateway_ipv4, std::optional<wire::Gid> gateway_ipv6);
    void add_static(const wire::Gid& address, const wire::MacAddress& mac);

    // Hosts that the link reaches through us, from now on: we answer for their addresses too (proxy ARP and ND, RFC
    // 1027 and RFC 4389), and ask in the name of one of them where we have no address of a family.
    void set_proxied(std::set<wire::Gid> hosts);

    bool owns(const wire::Gid& address) const;
    const std::vector<Subnet>& own() const { return own_; }  // as RdmaInterface::gids()
    bool has_gateway(bool ipv4) const { return (ipv4 ? gateway_ipv4_ : gateway_ipv6_).has_value(); }
    // Whom to ask for the MAC of a frame to `address`: itself on our link, else the gateway. Without one, itself.
    wire::Gid next_hop(const wire::Gid& address) const;
    std::optional<wire::MacAddress> lookup(const wire::Gid& neighbour);
    // For a path to `neighbour`. Null: where it is is not known, or it has been silent for long.
    std::shared_ptr<const transport::NextHop> use(const wire::Gid& neighbour, uint64_t now_ns);
    // Makes an entry to be resolved and writes the question to `out` (kMaxDiscoveryBytes). Returns its bytes.
    size_t ask(const wire::Gid& neighbour, uint8_t* out, uint64_t now_ns);
    // Waits until use() will find the neighbour, at most `timeout_ms`. False: it will not.
    bool wait(const wire::Gid& neighbour, int timeout_ms);
    // Requests to `neighbour`, or to whom it routes to, are not answered.
    void suspect(const wire::Gid& neighbour, uint64_t now_ns);

    // When next_question() has something to do; kNever: not without any of the others. Relaxed: who comes late comes
    // again.
    uint64_t due_ns() const { return due_ns_.load(std::memory_order_relaxed); }
    // Writes a question that is due to `out` (kMaxDiscoveryBytes). Returns its bytes, 0: none is.
    size_t next_question(uint8_t* out, uint64_t now_ns);

    // Looks at a frame that is not RoCE. An answer, if one is due, replaces the frame in place: `room` has the frame at
    // its start and at least kMaxDiscoveryBytes. Returns the bytes to send, 0 for none.
    size_t handle(std::span<uint8_t> room, size_t frame_bytes, uint64_t now_ns);

    // Whom we announce ourselves as when the link comes up.
    std::vector<ProxyAddress> speakers() const;

    struct Entry {
        std::optional<wire::MacAddress> mac;  // none: being resolved
        bool fixed = false;
        bool used = false;    // by paths
        bool silent = false;  // it has answered none of kQuestions
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
        uint8_t questions = 0;                         // since the last answer; at most kQuestions
        uint64_t asked_ns = 0, confirmed_ns = 0;       // 0: never
        uint64_t due_ns = kNever;                      // when it is asked, or forgotten: as in schedule_
        std::shared_ptr<transport::NextHop> next_hop;  // null: no path has used it for long
        bool is_silent() const { return questions >= kQuestions; }
        // Only use() makes one more of us and the paths, so that under the mutex what is not used stays so.
        bool is_used() const { return next_hop.use_count() > 1; }
    };
    using Table = std::map<wire::Gid, Known>;
    // `answer`: it was asked for. Otherwise it may be true or not.
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
    mutable std::mutex mutex_;  // guards what follows, and who writes due_ns_
    std::condition_variable learnt_;
    std::set<wire::Gid> hosts_;  // that we speak for
    Table table_;
    std::set<std::pair<uint64_t, wire::Gid>> schedule_;  // of all entries that are not fixed
    std::mt19937_64 random_;
    std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> counters_{};
};

}  // namespace rove::datapath
