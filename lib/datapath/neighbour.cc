// SPDX-License-Identifier: Apache-2.0
// The neighbour table and its answers.
#include "datapath/neighbour.h"

#include <algorithm>
#include <chrono>
#include <utility>

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
    : mac_(mac), vlan_(vlan), own_(std::move(own)), gateway_ipv4_(gateway_ipv4), gateway_ipv6_(gateway_ipv6) {}

void Neighbours::add_static(const wire::Gid& address, const wire::MacAddress& mac) {
    const std::lock_guard lock(mutex_);
    entries_[address] = {mac, true};
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
    const auto entry = entries_.find(neighbour);
    return entry == entries_.end() ? std::nullopt : entry->second.mac;
}

size_t Neighbours::ask(const wire::Gid& neighbour, uint8_t* out) {
    const std::lock_guard lock(mutex_);
    if (entries_.size() >= kMaxEntries && !entries_.contains(neighbour)) {
        // Our own question goes before what strangers made us remember.
        const auto victim =
            std::find_if(entries_.begin(), entries_.end(), [](const auto& e) { return !e.second.fixed; });
        if (victim == entries_.end()) return 0;
        entries_.erase(victim);
    }
    entries_.try_emplace(neighbour);
    // The question comes from our address on the neighbour's subnet, or from any of its family.
    const Subnet* from = subnet_of(neighbour);
    for (const Subnet& own : own_)
        if (from == nullptr && wire::is_ipv4_mapped(own.address) == wire::is_ipv4_mapped(neighbour)) from = &own;
    return from == nullptr ? 0 : build_solicit(out, speaker(from->address), neighbour);
}

std::optional<wire::MacAddress> Neighbours::wait(const wire::Gid& neighbour, int timeout_ms) {
    std::unique_lock lock(mutex_);
    const auto known = [&] {
        const auto entry = entries_.find(neighbour);
        return entry != entries_.end() && entry->second.mac;
    };
    if (!learnt_.wait_for(lock, std::chrono::milliseconds(timeout_ms), known)) return std::nullopt;
    return entries_.find(neighbour)->second.mac;
}

void Neighbours::learn(const wire::Gid& address, const wire::MacAddress& mac, bool may_add) {
    const auto entry = entries_.find(address);
    if (entry == entries_.end()) {
        if (!may_add || !on_link(address)) return;
        if (entries_.size() >= kMaxEntries) return count(NeighbourCounter::kTableFull);
        entries_[address] = {mac, false};
        return;
    }
    if (entry->second.fixed || entry->second.mac == mac) return;
    if (entry->second.mac) {
        count(NeighbourCounter::kMoved);
        if (moved_.size() < kMaxEntries && std::find(moved_.begin(), moved_.end(), address) == moved_.end())
            moved_.push_back(address);
    }
    entry->second.mac = mac;
    learnt_.notify_all();
}

size_t Neighbours::handle(std::span<uint8_t> room, size_t frame_bytes) {
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
    if (owns(frame.kind == Discovery::Kind::kAdvertise ? frame.target : frame.sender)) {
        if (frame.mac != mac_) count(NeighbourCounter::kConflicts);
        return 0;
    }
    switch (frame.kind) {
        case Discovery::Kind::kSolicit:
            if (!owns(frame.target)) break;
            if (frame.mac) learn(frame.sender, *frame.mac, true);
            count(NeighbourCounter::kSolicitsAnswered);
            return build_advertise(room.data(), speaker(frame.target), frame.frame_src, frame.sender);
        case Discovery::Kind::kAdvertise:
            if (!frame.mac) break;
            count(entries_.contains(frame.target) ? NeighbourCounter::kAdvertisesTaken
                                                  : NeighbourCounter::kAdvertisesUnsolicited);
            learn(frame.target, *frame.mac, false);
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

std::vector<Speaker> Neighbours::speakers() const {
    std::vector<Speaker> all;
    for (const Subnet& own : own_) all.push_back(speaker(own.address));
    return all;
}

std::vector<wire::Gid> Neighbours::take_moved() {
    const std::lock_guard lock(mutex_);
    return std::exchange(moved_, {});
}

std::map<wire::Gid, Neighbours::Entry> Neighbours::entries() const {
    const std::lock_guard lock(mutex_);
    return entries_;
}

std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> Neighbours::counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
}

}  // namespace rove::datapath
