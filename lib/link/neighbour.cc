// SPDX-License-Identifier: Apache-2.0
#include "link/neighbour.h"

#include <algorithm>
#include <chrono>

namespace rove::datapath {

const char* to_string(NeighbourCounter counter) {
    switch (counter) {
        case NeighbourCounter::kSolicitsAnswered:
            return "solicits_answered";
        case NeighbourCounter::kEchosAnswered:
            return "echos_answered";
        case NeighbourCounter::kAdvertisesTaken:
            return "advertises_taken";
        case NeighbourCounter::kAdvertisesUnsolicited:
            return "advertises_unsolicited";
        case NeighbourCounter::kMoved:
            return "moved";
        case NeighbourCounter::kProbes:
            return "probes";
        case NeighbourCounter::kSilent:
            return "silent";
        case NeighbourCounter::kForgotten:
            return "forgotten";
        case NeighbourCounter::kConflicts:
            return "conflicts";
        case NeighbourCounter::kTableFull:
            return "table_full";
        case NeighbourCounter::kMalformed:
            return "malformed";
        case NeighbourCounter::kIgnored:
            return "ignored";
        case NeighbourCounter::kCount:
            break;
    }
    return "unknown";
}

Neighbours::Neighbours(const wire::MacAddress& mac, std::optional<uint16_t> vlan, std::vector<Subnet> own,
                       std::optional<wire::Gid> gateway_ipv4, std::optional<wire::Gid> gateway_ipv6)
    : mac_(mac),
      vlan_(vlan),
      own_(std::move(own)),
      gateway_ipv4_(gateway_ipv4),
      gateway_ipv6_(gateway_ipv6),
      random_(std::random_device{}()) {}

void Neighbours::add_static(const wire::Gid& address, const wire::MacAddress& mac) {
    const std::lock_guard lock(mutex_);
    Known& entry = table_[address];
    entry.mac = mac;
    entry.fixed = true;
}

void Neighbours::set_proxied(std::set<wire::Gid> hosts) {
    const std::lock_guard lock(mutex_);
    hosts_ = std::move(hosts);
}

bool Neighbours::owns(const wire::Gid& address) const {
    return std::any_of(own_.begin(), own_.end(), [&](const Subnet& own) { return own.address == address; });
}

const Subnet* Neighbours::subnet_of(const wire::Gid& address) const {
    for (const Subnet& own : own_)
        if (own.contains(address)) return &own;
    return nullptr;
}

bool Neighbours::on_link(const wire::Gid& address) const {
    return subnet_of(address) != nullptr;
}

wire::Gid Neighbours::next_hop(const wire::Gid& address) const {
    if (on_link(address)) return address;
    return (wire::is_ipv4_mapped(address) ? gateway_ipv4_ : gateway_ipv6_).value_or(address);
}

std::optional<wire::MacAddress> Neighbours::lookup(const wire::Gid& neighbour) {
    const std::lock_guard lock(mutex_);
    const auto entry = table_.find(neighbour);
    return entry == table_.end() ? std::nullopt : entry->second.mac;
}

void Neighbours::schedule(Table::iterator entry, uint64_t ns) {
    Known& known = entry->second;
    if (known.due_ns != kNever) schedule_.erase({known.due_ns, entry->first});
    known.due_ns = ns;
    schedule_.insert({ns, entry->first});
    due_ns_.store(schedule_.begin()->first, std::memory_order_relaxed);
}

void Neighbours::erase(Table::iterator entry) {
    schedule_.erase({entry->second.due_ns, entry->first});
    table_.erase(entry);
    due_ns_.store(schedule_.empty() ? kNever : schedule_.begin()->first, std::memory_order_relaxed);
}

bool Neighbours::is_usable(const wire::Gid& neighbour) const {
    const auto entry = table_.find(neighbour);
    return entry != table_.end() && entry->second.mac && !entry->second.is_silent();
}

std::shared_ptr<const transport::NextHop> Neighbours::use(const wire::Gid& neighbour, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    if (!is_usable(neighbour)) return nullptr;
    const auto entry = table_.find(neighbour);
    Known& known = entry->second;
    if (known.next_hop == nullptr) known.next_hop = std::make_shared<transport::NextHop>(*known.mac);
    const bool fresh = known.confirmed_ns != 0 && now_ns - known.confirmed_ns < kReachableNs;
    if (!known.fixed && !fresh && known.questions == 0) schedule_before(entry, now_ns);
    return known.next_hop;
}

// Returns the host that we answer for that shares the longest prefix with `neighbour`, and so is in its subnet if one
// is. Hosts of the other family do not count. Because the set is ordered, it is one of the two hosts next to the
// position of `neighbour`.
const wire::Gid* Neighbours::nearest_host(const wire::Gid& neighbour) const {
    const auto common = [&](const wire::Gid& address) {
        return std::mismatch(address.begin(), address.end(), neighbour.begin()).first - address.begin();
    };
    const auto next = hosts_.lower_bound(neighbour);
    const wire::Gid* nearest = next == hosts_.end() ? nullptr : &*next;
    if (next != hosts_.begin())
        if (const wire::Gid& before = *std::prev(next); nearest == nullptr || common(before) > common(*nearest))
            nearest = &before;
    const bool is_ipv4 = wire::is_ipv4_mapped(neighbour);
    return nearest != nullptr && wire::is_ipv4_mapped(*nearest) == is_ipv4 ? nearest : nullptr;
}

size_t Neighbours::question_for(const wire::Gid& neighbour, const std::optional<wire::MacAddress>& known,
                                uint8_t* out) const {
    // Ask from our address in the neighbour's subnet, or else from any address of its family.
    const Subnet* from = subnet_of(neighbour);
    for (const Subnet& own : own_)
        if (from == nullptr && wire::is_ipv4_mapped(own.address) == wire::is_ipv4_mapped(neighbour)) from = &own;
    if (from != nullptr) return build_solicit(out, speaker(from->address), neighbour, known);
    const wire::Gid* const host = nearest_host(neighbour);
    return host == nullptr ? 0 : build_solicit(out, speaker(*host), neighbour, known);
}

size_t Neighbours::ask(const wire::Gid& neighbour, uint8_t* out, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    auto entry = table_.find(neighbour);
    if (entry == table_.end()) {
        // If the table is full, our own question replaces the unused entry that would be removed next.
        if (table_.size() >= kMaxEntries) {
            const auto victim = std::find_if(schedule_.begin(), schedule_.end(), [this](const auto& due) {
                return !table_.find(due.second)->second.is_used();
            });
            if (victim != schedule_.end()) erase(table_.find(victim->second));
        }
        entry = table_.try_emplace(neighbour).first;
        schedule(entry, now_ns + kForgetNs);
    }
    entry->second.asked_ns = now_ns;
    return question_for(neighbour, std::nullopt, out);
}

bool Neighbours::wait(const wire::Gid& neighbour, int timeout_ms) {
    std::unique_lock lock(mutex_);
    return learnt_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return is_usable(neighbour); });
}

void Neighbours::suspect(const wire::Gid& neighbour, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    const auto entry = table_.find(neighbour);
    if (entry == table_.end() || entry->second.fixed || !entry->second.is_used()) return;
    const Known& known = entry->second;
    const bool confirmed = known.confirmed_ns != 0 && now_ns - known.confirmed_ns < kConfirmedNs;
    if (known.questions == 0 ? !confirmed : known.is_silent() && now_ns - known.asked_ns >= kAgainNs)
        schedule_before(entry, now_ns);
}

size_t Neighbours::next_question(uint8_t* out, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    while (!schedule_.empty() && schedule_.begin()->first <= now_ns) {
        const auto entry = table_.find(schedule_.begin()->second);
        Known& known = entry->second;
        if (known.next_hop != nullptr && !known.is_used()) {  // the last path has ended; another may follow
            known.next_hop.reset();
            schedule(entry, now_ns + kForgetNs);
            continue;
        }
        if (known.next_hop == nullptr) {
            count(NeighbourCounter::kForgotten);
            erase(entry);
            continue;
        }
        uint64_t wait_ns = kUnicastWaitNs;
        if (known.questions != 0) wait_ns = std::min(kFirstWaitNs << (known.questions - 1), kLastWaitNs);
        const bool first = known.questions == 0;
        if (!known.is_silent() && ++known.questions == kQuestions) count(NeighbourCounter::kSilent);
        if (known.is_silent()) wait_ns = kSilentNs;
        known.asked_ns = now_ns;
        schedule(entry, now_ns + wait_ns);
        count(NeighbourCounter::kProbes);
        if (const size_t bytes = question_for(entry->first, first ? known.mac : std::nullopt, out); bytes != 0)
            return bytes;
    }
    return 0;
}

void Neighbours::learn(const wire::Gid& address, const wire::MacAddress& mac, bool may_add, bool answer,
                       uint64_t now_ns) {
    auto entry = table_.find(address);
    if (entry == table_.end()) {
        if (!may_add || !on_link(address)) return;
        if (table_.size() >= kMaxEntries) return count(NeighbourCounter::kTableFull);
        entry = table_.try_emplace(address).first;
        entry->second.mac = mac;
        return schedule(entry, now_ns + kForgetNs);
    }
    Known& known = entry->second;
    if (known.fixed) return;
    const bool resolved = !known.mac, changed = known.mac != mac, was_silent = known.is_silent();
    if (changed && !resolved) count(NeighbourCounter::kMoved);
    known.mac = mac;
    if (changed && known.next_hop != nullptr) known.next_hop->set(mac);
    if (answer || resolved) {
        known.confirmed_ns = now_ns;
        known.questions = 0;
        // The interval is random, so that neighbours found together are not probed together: RFC 4861 6.3.4.
        const uint64_t next_ns = kReachableNs / 2 + random_() % kReachableNs;
        schedule(entry, now_ns + (known.next_hop != nullptr ? next_ns : kForgetNs));
    } else if (changed) {  // an unverified claim: packets use it at once, and it is probed soon
        known.confirmed_ns = 0;
        if (was_silent) known.questions = 0;
        if (known.questions == 0) schedule_before(entry, now_ns + kDelayNs);
    } else if (was_silent && known.next_hop != nullptr && now_ns - known.asked_ns >= kAgainNs) {
        schedule_before(entry, now_ns);  // it sends again, so it may answer too
    }
    learnt_.notify_all();
}

size_t Neighbours::handle(std::span<uint8_t> room, size_t frame_bytes, uint64_t now_ns) {
    const Discovery frame = parse_discovery(room.first(frame_bytes));
    const std::lock_guard lock(mutex_);
    const bool our_vlan =
        vlan_ ? frame.vlan && (*frame.vlan & 0xFFF) == *vlan_ : !frame.vlan || (*frame.vlan & 0xFFF) == 0;
    if (frame.kind == Discovery::Kind::kMalformed) {
        count(NeighbourCounter::kMalformed);
        return 0;
    }
    if (!our_vlan || frame.kind == Discovery::Kind::kOther || frame.frame_src == mac_ ||
        (frame.frame_dst != mac_ && !is_multicast(frame.frame_dst))) {
        count(NeighbourCounter::kIgnored);
        return 0;
    }
    if (answers_for(frame.kind == Discovery::Kind::kAdvertise ? frame.target : frame.sender)) {
        if (frame.mac != mac_) count(NeighbourCounter::kConflicts);
        return 0;
    }
    switch (frame.kind) {
        case Discovery::Kind::kSolicit:
            if (!answers_for(frame.target)) break;
            if (frame.mac) learn(frame.sender, *frame.mac, true, false, now_ns);
            count(NeighbourCounter::kSolicitsAnswered);
            return build_advertise(room.data(), speaker(frame.target), frame.frame_src, frame.sender);
        case Discovery::Kind::kAdvertise:
            if (!frame.mac) break;
            {
                const auto entry = table_.find(frame.target);
                const bool known = entry != table_.end();
                count(known ? NeighbourCounter::kAdvertisesTaken : NeighbourCounter::kAdvertisesUnsolicited);
                // It is an answer if it is addressed to us alone and we have asked. Replies contain nothing of the
                // question, so nothing more can be verified.
                const bool answer =
                    known && frame.frame_dst == mac_ && entry->second.asked_ns > entry->second.confirmed_ns;
                learn(frame.target, *frame.mac, false, answer, now_ns);
            }
            return 0;
        case Discovery::Kind::kEcho:
            if (!owns(frame.receiver)) break;
            count(NeighbourCounter::kEchosAnswered);
            return turn_echo(room.first(frame_bytes), frame, speaker(frame.receiver));
        default:
            break;
    }
    count(NeighbourCounter::kIgnored);
    return 0;
}

std::vector<ProxyAddress> Neighbours::speakers() const {
    std::vector<ProxyAddress> all;
    for (const Subnet& own : own_) all.push_back(speaker(own.address));
    return all;
}

std::map<wire::Gid, Neighbours::Entry> Neighbours::entries() const {
    const std::lock_guard lock(mutex_);
    std::map<wire::Gid, Entry> all;
    for (const auto& [address, known] : table_)
        all[address] = {known.mac, known.fixed, known.is_used(), known.is_silent()};
    return all;
}

std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> Neighbours::counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
}

}  // namespace rove::datapath
