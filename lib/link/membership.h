// SPDX-License-Identifier: Apache-2.0
// The multicast groups that a device has joined, and their reports to the link. Switches that snoop, and routers,
// forward a group's datagrams only to links where a member has reported itself. This is the host part of IGMPv3 (RFC
// 3376) and MLDv2 (RFC 3810), and of IGMPv2 and MLDv1 while a router that knows only these is present. Units:
// nanoseconds, bytes.
//
// DESIGN NOTES
// 1. A group is reported once, however many QPs have joined it. Each change is reported twice, because reports can be
//    lost like any frame.
// 2. This class sends nothing. The caller reads due_ns() and gets the frames from next_report(), so it works with
//    virtual time too.
// 3. Any host on the link can send queries. A query costs one lookup and changes one time. A group, or all groups
//    together, is reported at most once every kMinAnswerNs, however many queries there are.
// 4. We join groups with all sources, so the answer to a query for certain sources names the group as a whole.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <span>

#include "link/membership_packets.h"

namespace rove::datapath {

// Returns true if members of this group report themselves. Groups that every host is a member of, and groups that do
// not leave the host, are not reported (RFC 3376 5, RFC 3810 6).
bool is_reported(const wire::Gid& group);

class Memberships {
  public:
    static constexpr uint8_t kRobustness = 2;                    // RFC 3376 8.1
    static constexpr uint64_t kRepeatNs = 1'000'000'000;         // RFC 3376 8.11: a change is repeated within this time
    static constexpr uint64_t kOlderRouterNs = 260'000'000'000;  // RFC 3376 8.12: 2 * 125 s + 10 s
    static constexpr uint64_t kMinAnswerNs = 100'000'000;        // note 3
    static constexpr uint64_t kNever = UINT64_MAX;

    // Reports are sent from `ipv4` and `ipv6`; the second must be link-local.
    Memberships(const ProxyAddress& ipv4, const ProxyAddress& ipv6, uint32_t seed);

    // Records that a QP has joined, or has left, a group. This and the other functions may be called from any thread.
    void join(const wire::Gid& group, uint64_t now_ns);
    void leave(const wire::Gid& group, uint64_t now_ns);
    // Reports all groups again. The link came up, and a switch there knows nothing of us.
    void report_all(uint64_t now_ns);
    // Returns true if the frame was a query, which has then been consumed.
    bool take(std::span<const uint8_t> frame, uint64_t now_ns);

    // Returns the time at which next_report() has a report to send, or kNever if it has no report until another
    // function is called. A relaxed load suffices: a caller that reads an old value sees the new one in its next round.
    uint64_t due_ns() const { return due_ns_.load(std::memory_order_relaxed); }
    // Writes a report that is due to `out`, which has room for kMaxReportBytes. Returns its bytes, or 0 if none is due.
    size_t next_report(uint8_t* out, uint64_t now_ns);

  private:
    struct Group {
        uint32_t members = 0;         // QPs
        uint8_t changes_left = 0;     // reports of the last change that are still to be sent
        uint64_t change_ns = kNever;  // time of the next one
        uint64_t answer_ns = kNever;  // time at which a query is answered
        uint64_t answered_ns = 0;
    };
    struct Family {
        ProxyAddress speaker;
        uint64_t older_until_ns = 0;  // until then reports use the older version
        uint64_t all_ns = kNever;     // time at which a query for all groups is answered: note 3
        uint64_t all_within_ns = 0;   // for older versions, the interval over which the answers are spread
        uint64_t all_answered_ns = 0;
    };
    using Groups = std::map<wire::Gid, Group>;
    void change(Groups::iterator at, uint64_t now_ns);
    void begin_answers(size_t family, uint64_t now_ns);
    MembershipRecord take_record(Groups::iterator& at, uint64_t now_ns);
    uint64_t random_within(uint64_t ns) { return ns == 0 ? 0 : random_() % ns; }
    void wake_at(uint64_t ns) {
        if (ns < due_ns_.load(std::memory_order_relaxed)) due_ns_.store(ns, std::memory_order_relaxed);
    }

    std::atomic<uint64_t> due_ns_{kNever};
    std::mutex mutex_;  // guards the members below, and writes of due_ns_
    std::mt19937_64 random_;
    std::array<Family, 2> families_;  // IPv4, IPv6
    Groups groups_;
};

}  // namespace rove::datapath
