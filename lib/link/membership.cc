// SPDX-License-Identifier: Apache-2.0
#include "link/membership.h"

#include <algorithm>

#include "link/address.h"

namespace rove::datapath {

namespace {

size_t family_of(const wire::Gid& group) {
    return wire::is_ipv4_mapped(group) ? 0 : 1;
}

// Leaves a margin of one sixteenth, because the answer is sent only after the next round, which is short compared with
// this margin.
constexpr uint64_t without_margin(uint64_t ns) {
    return ns - ns / 16;
}

}  // namespace

bool is_reported(const wire::Gid& group) {
    static constexpr uint8_t kAllSystems[4] = {224, 0, 0, 1};
    static constexpr uint8_t kAllNodes[16] = {0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    if (wire::is_ipv4_mapped(group)) return !std::equal(std::begin(kAllSystems), std::end(kAllSystems), &group[12]);
    const uint8_t scope = group[1] & 0xF;
    return scope > 1 && !std::equal(std::begin(kAllNodes), std::end(kAllNodes), group.begin());
}

Memberships::Memberships(const ProxyAddress& ipv4, const ProxyAddress& ipv6, uint32_t seed) : random_(seed) {
    families_[0].speaker = ipv4;
    families_[1].speaker = ipv6;
}

void Memberships::change(Groups::iterator at, uint64_t now_ns) {
    at->second.changes_left = kRobustness;
    at->second.change_ns = now_ns;
    at->second.answer_ns = kNever;
    wake_at(now_ns);
}

void Memberships::join(const wire::Gid& group, uint64_t now_ns) {
    if (!is_reported(group)) return;
    const std::lock_guard lock(mutex_);
    const auto at = groups_.try_emplace(group).first;
    if (at->second.members++ == 0) change(at, now_ns);
}

void Memberships::leave(const wire::Gid& group, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    const auto at = groups_.find(group);
    if (at == groups_.end() || at->second.members == 0) return;
    if (--at->second.members == 0) change(at, now_ns);
}

void Memberships::report_all(uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    for (auto at = groups_.begin(); at != groups_.end(); ++at)
        if (at->second.members != 0) change(at, now_ns);
}

bool Memberships::take(std::span<const uint8_t> frame, uint64_t now_ns) {
    const std::optional<MembershipQuery> query = parse_membership_query(frame);
    if (!query) return false;
    const std::lock_guard lock(mutex_);
    Family& family = families_[query->ipv6 ? 1 : 0];
    const std::optional<uint16_t>& vlan = family.speaker.vlan;
    if (vlan ? !query->vlan || (*query->vlan & 0xFFF) != *vlan : query->vlan && (*query->vlan & 0xFFF) != 0)
        return true;
    if (query->older) family.older_until_ns = now_ns + kOlderRouterNs;
    const uint64_t within_ns = without_margin(query->max_response_ns);
    if (!query->group) {
        // With an older version each group is answered at a time of its own, otherwise all groups together.
        const bool older = now_ns < family.older_until_ns;
        family.all_within_ns = older ? within_ns : 0;
        const uint64_t at_ns = now_ns + (older ? 0 : random_within(within_ns));
        family.all_ns = std::min(family.all_ns, std::max(at_ns, family.all_answered_ns + kMinAnswerNs));
        wake_at(family.all_ns);
        return true;
    }
    const auto found = groups_.find(*query->group);
    if (found == groups_.end() || found->second.members == 0) return true;
    Group& group = found->second;
    const uint64_t at_ns = std::max(now_ns + random_within(within_ns), group.answered_ns + kMinAnswerNs);
    group.answer_ns = std::min(group.answer_ns, at_ns);
    wake_at(group.answer_ns);
    return true;
}

// Schedules the answers to a query for all groups of the family, which is due.
void Memberships::begin_answers(size_t family, uint64_t now_ns) {
    Family& asked = families_[family];
    asked.all_ns = kNever;
    asked.all_answered_ns = now_ns;
    for (auto& [address, group] : groups_)
        if (group.members != 0 && family_of(address) == family)
            group.answer_ns = std::min(group.answer_ns, now_ns + random_within(asked.all_within_ns));
}

// Returns the record to report for the group at `at` and moves `at` to the next group.
MembershipRecord Memberships::take_record(Groups::iterator& at, uint64_t now_ns) {
    Group& group = at->second;
    MembershipRecord record{at->first, Membership::kIsMember};
    group.answered_ns = now_ns;
    group.answer_ns = kNever;  // the report of a change is an answer too
    if (group.change_ns <= now_ns) {
        record.says = group.members != 0 ? Membership::kJoins : Membership::kLeaves;
        --group.changes_left;
        group.change_ns = group.changes_left != 0 ? now_ns + 1 + random_within(kRepeatNs) : kNever;
    }
    at = group.members == 0 && group.changes_left == 0 ? groups_.erase(at) : std::next(at);
    return record;
}

size_t Memberships::next_report(uint8_t* out, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < families_.size(); ++i)
        if (families_[i].all_ns <= now_ns) begin_answers(i, now_ns);
    uint64_t due_ns = std::min(families_[0].all_ns, families_[1].all_ns);
    std::array<MembershipRecord, kMaxRecords> records;
    size_t count = 0;
    for (auto at = groups_.begin(); at != groups_.end();) {
        const uint64_t at_ns = std::min(at->second.change_ns, at->second.answer_ns);
        const size_t family = family_of(at->first);
        if (at_ns > now_ns || (count != 0 && family != family_of(records[0].group))) {
            due_ns = std::min(due_ns, at_ns);
            ++at;
            continue;
        }
        if (count == kMaxRecords) break;
        records[count++] = take_record(at, now_ns);
        if (now_ns < families_[family].older_until_ns)
            return build_older_report(out, families_[family].speaker, records[0]);
    }
    if (count != 0)
        return build_report(out, families_[family_of(records[0].group)].speaker, std::span(records).first(count));
    due_ns_.store(due_ns, std::memory_order_relaxed);
    return 0;
}

}  // namespace rove::datapath
