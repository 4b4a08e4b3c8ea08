// SPDX-License-Identifier: Apache-2.0
// Which multicast groups a device has joined, and telling the link so: switches that snoop, and routers, send a group's
// datagrams only where a member has reported itself. The host's half of IGMPv3 (RFC 3376) and MLDv2 (RFC 3810), and of
// IGMPv2 and MLDv1 while a router that knows no better is there. Units: nanoseconds, bytes.
//
// DESIGN NOTES
// 1. A group is reported once, however many QPs have joined it, and each change twice, since reports are lost as any
//    frame.
// 2. Nothing is sent from here: whoever drives looks at due_ns() and takes frames by next_report(). So virtual time
//    will do.
// 3. Anybody on the link can ask. A query costs a lookup and moves one time; and a group, or all together, is reported
//    at most every kMinAnswerNs in answer to any number of them.
// 4. We join with all sources, so an answer to a question for some sources names the group as a whole.
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

// Whether members of this group report themselves: not those that everybody is a member of, nor those that do not leave
// the host (RFC 3376 5, RFC 3810 6).
bool is_reported(const wire::Gid& group);

class Memberships {
  public:
    static constexpr uint8_t kRobustness = 2;                    // RFC 3376 8.1
    static constexpr uint64_t kRepeatNs = 1'000'000'000;         // RFC 3376 8.11: within it a change is repeated
    static constexpr uint64_t kOlderRouterNs = 260'000'000'000;  // RFC 3376 8.12: 2 * 125 s + 10 s
    static constexpr uint64_t kMinAnswerNs = 100'000'000;        // note 3
    static constexpr uint64_t kNever = UINT64_MAX;

    // Reports come from `ipv4` and `ipv6`, of which the second is link-local.
    Memberships(const ProxyAddress& ipv4, const ProxyAddress& ipv6, uint32_t seed);

    // A QP joins, or leaves what it has joined. Any thread, as all others.
    void join(const wire::Gid& group, uint64_t now_ns);
    void leave(const wire::Gid& group, uint64_t now_ns);
    // The link came up: a switch there knows nothing of us.
    void report_all(uint64_t now_ns);
    // True: the frame is a query, and was taken.
    bool take(std::span<const uint8_t> frame, uint64_t now_ns);

    // When next_report() has something to say; kNever: not without any of the above. Relaxed: who comes late comes
    // again.
    uint64_t due_ns() const { return due_ns_.load(std::memory_order_relaxed); }
    // Writes a report that is due to `out`, which has room for kMaxReportBytes. Returns its bytes, 0: none is.
    size_t next_report(uint8_t* out, uint64_t now_ns);

  private:
    struct Group {
        uint32_t members = 0;         // QPs
        uint8_t changes_left = 0;     // so often is the last change still to be reported
        uint64_t change_ns = kNever;  // when, the next time
        uint64_t answer_ns = kNever;  // when a query is answered
        uint64_t answered_ns = 0;
    };
    struct Family {
        ProxyAddress speaker;
        uint64_t older_until_ns = 0;  // so long are reports those of the older version
        uint64_t all_ns = kNever;     // when a query for all groups is looked at: note 3
        uint64_t all_within_ns = 0;   // of an older version: how far the answers are spread from then on
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
    std::mutex mutex_;  // guards what follows, and who writes due_ns_
    std::mt19937_64 random_;
    std::array<Family, 2> families_;  // IPv4, IPv6
    Groups groups_;
};

}  // namespace rove::datapath
