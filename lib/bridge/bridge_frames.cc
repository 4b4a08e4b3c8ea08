// SPDX-License-Identifier: Apache-2.0
// Processes a round of the bridge: frames from the uplink, frames from members, and frames that wait for a MAC.
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bridge/bridge.h"

namespace rove::bridge {

using datapath::is_multicast;
using datapath::RingReceiver;
using datapath::RxQueue;

namespace {

constexpr size_t kMaxUnresolved = 256;         // addresses that are being resolved
constexpr size_t kMaxUnresolvedOfOne = 8;      // addresses that one member may have in resolution
constexpr size_t kMaxWaiting = 32;             // frames for each address: a member's first burst
constexpr size_t kMaxWaitingOfAll = 1024;      // frames for all addresses, a part of the pool
constexpr uint64_t kAskAgainNs = 50'000'000;   // the interval of Interface::resolve()
constexpr uint64_t kGiveUpNs = 1'000'000'000;  // the sender has retransmitted before this
constexpr size_t kMaxKnown = 4096;             // equal to Neighbours::kMaxEntries
constexpr uint64_t kUnusedNs =
    60'000'000'000;  // after this time without use, a host at the uplink is no longer tracked
constexpr uint64_t kForgetNs = 10'000'000'000;  // between two searches for unused hosts

}  // namespace

Bridge::Arrived::Arrived(const rte_mbuf& mbuf) : data(rte_pktmbuf_mtod(&mbuf, const uint8_t*)) {
    const size_t bytes = mbuf.data_len;
    head = {copy.data(), std::min(bytes, kHeadBytes)};
    std::memcpy(copy.data(), data, head.size());
    frame = parse(head, bytes);
}

uint32_t Bridge::round() {
    now_ns_ = clock_.now_ns();
    member_was_full_ = false;
    uint32_t moved = receive_from_uplink();
    publish();
    moved += receive_from_members();
    send_questions();
    publish();
    outlet_->flush();
    if (now_ns_ - forgot_ns_ >= kForgetNs) forget_unused();
    return moved;
}

uint32_t Bridge::receive_from_uplink() {
    if (!uplink_->ready()) return 0;
    uint32_t received = 0;
    rte_mbuf* frames[RxQueue::kBurst];
    for (RxQueue* const queue : uplink_rx_) {
        const uint16_t count = queue->burst(frames);
        received += count;
        for (uint16_t i = 0; i < count; ++i) {
            take_from_uplink(*frames[i]);
            if (frames[i]->pool != nullptr) rte_pktmbuf_free(frames[i]);
        }
        if (queue->is_zero_copy()) queue->release();
    }
    return received;
}

uint32_t Bridge::receive_from_members() {
    uint32_t received = 0;
    const std::span<RingReceiver* const> links = members_rx_.due();
    ++turn_;
    for (size_t i = 0; i < links.size(); ++i) {
        RingReceiver* const link = links[(turn_ + i) % links.size()];
        if (!link->has_frames()) continue;
        if (!outlet_->has_room()) outlet_->flush();
        if (!outlet_->has_room()) return received;
        received += receive_from(*senders_.at(link), *link);
    }
    return received;
}

uint16_t Bridge::receive_from(Peer& member, RingReceiver& receiver) {
    rte_mbuf* frames[RxQueue::kBurst];
    const uint16_t count = receiver.burst(frames);
    for (uint16_t i = 0; i < count; ++i) {
        take_from_member(member, *frames[i]);
        if (frames[i]->pool != nullptr) rte_pktmbuf_free(frames[i]);
    }
    receiver.release();
    return count;
}

void Bridge::take_from_uplink(rte_mbuf& mbuf) {
    if (mbuf.nb_segs != 1 && rte_pktmbuf_linearize(&mbuf) != 0) return drop(Counter::kSegments);
    const Arrived arrived(mbuf);
    const Forwarding::Way way = forwarding_->from_uplink(arrived.frame);
    switch (way.to) {
        case Forwarding::To::kMember:
            return deliver(*peers_[way.member], arrived, Counter::kToMembers);
        case Forwarding::To::kAllMembers:
            for (const auto& member : peers_)
                if (member != nullptr) deliver(*member, arrived, Counter::kToMembers);
            return;
        case Forwarding::To::kNeighbours:
            return discover(mbuf);
        default:
            return drop(way.drop);
    }
}

void Bridge::take_from_member(Peer& from, const rte_mbuf& mbuf) {
    const Arrived arrived(mbuf);
    const Forwarding::Way way = forwarding_->from_member(from.number, arrived.frame);
    switch (way.to) {
        case Forwarding::To::kUplink:
            return send_to_uplink(from, arrived, way.next_hop);
        case Forwarding::To::kMember:
            return deliver(*peers_[way.member], arrived, Counter::kBetweenMembers);
        default:
            ++from.rx_drops;
            return drop(way.drop);
    }
}

void Bridge::deliver(Peer& to, const Arrived& arrived, Counter counter) {
    const Link link{.dst = is_multicast(arrived.frame.dst) ? arrived.frame.dst_mac : to.peer.mac, .src = mac()};
    const auto room = static_cast<uint32_t>(kLinkBytes + arrived.frame.l3_bytes);
    const auto write = [&](uint8_t* at) {
        return static_cast<uint32_t>(edit(at, arrived.frame, link, arrived.head, arrived.data));
    };
    bool sent = false;
    if (to.sender != nullptr) {
        if (uint8_t* const at = to.sender->next(room); at != nullptr) {
            to.sender->took(write(at));
            sent = true;
        } else if (!to.sender->full()) {
            sent = to.sender->send_copy(bounce_.data(), write(bounce_.data()));
        }
    }
    if (sent && !std::exchange(to.has_unpublished, true)) unpublished_.push_back(&to);
    to.tx_drops += !sent;
    member_was_full_ |= !sent;
    ++counters_[sent ? counter : Counter::kMemberFull];
}

void Bridge::publish() {
    for (Peer* const member : unpublished_) {
        member->has_unpublished = false;
        if (member->sender != nullptr) member->sender->publish();
    }
    unpublished_.clear();
}

void Bridge::send_to_uplink(Peer& from, const Arrived& arrived, const wire::Gid& next_hop) {
    Link link{.dst = {}, .src = mac(), .vlan = forwarding_->settings().vlan};
    const size_t room = kLinkBytes + arrived.frame.l3_bytes;
    const auto write = [&](uint8_t* at) { return edit(at, arrived.frame, link, arrived.head, arrived.data); };
    if (is_multicast(next_hop)) {
        link.dst = datapath::multicast_mac(next_hop);
    } else if (const transport::NextHop* const found = find(next_hop); found != nullptr) {
        link.dst = found->mac();
    } else {
        Unresolved* const place = place_to_wait(from.number, next_hop);
        if (place == nullptr) return drop(Counter::kUnresolved);
        if (rte_mbuf* const mbuf = outlet_->make(room, write); mbuf != nullptr) place->frames.push_back(mbuf);
        return;
    }
    ++counters_[Counter::kToUplink];
    outlet_->send(room, write);
}

// --- hosts at the uplink ---------------------------------------------------------------------------------------------

// Handles ARP, ND, and echo requests to the bridge itself.
void Bridge::discover(const rte_mbuf& arrived) {
    rte_mbuf* const mbuf = rte_pktmbuf_copy(&arrived, pool_, 0, UINT32_MAX);
    if (mbuf == nullptr) return drop(Counter::kNoMbuf);
    const std::span<uint8_t> room(rte_pktmbuf_mtod(mbuf, uint8_t*), mbuf->data_len + rte_pktmbuf_tailroom(mbuf));
    const size_t answer =
        room.size() < datapath::kMaxDiscoveryBytes ? 0 : neighbours_->handle(room, mbuf->data_len, now_ns_);
    has_learnt_ = true;
    if (answer == 0) return rte_pktmbuf_free(mbuf);
    mbuf->data_len = static_cast<uint16_t>(answer);
    mbuf->pkt_len = static_cast<uint32_t>(answer);
    outlet_->send(mbuf);
}

std::shared_ptr<const transport::NextHop> Bridge::resolve(const wire::Gid& next_hop) {
    if (!uplink_->resolves_neighbours()) return neighbours_->use(next_hop, now_ns_);
    const auto way = uplink_->find(next_hop, 0);
    return way ? way->next_hop : nullptr;
}

const transport::NextHop* Bridge::find(const wire::Gid& next_hop) {
    if (const auto known = known_.find(next_hop); known != known_.end()) {
        known->second.used_ns = now_ns_;
        return known->second.next_hop.get();
    }
    std::shared_ptr<const transport::NextHop> found = resolve(next_hop);
    if (found == nullptr) return nullptr;
    if (known_.size() == kMaxKnown) known_.clear();  // hosts that are still in use are resolved again
    return known_.emplace(next_hop, Known{std::move(found), now_ns_}).first->second.next_hop.get();
}

void Bridge::forget_unused() {
    forgot_ns_ = now_ns_;
    std::erase_if(known_, [&](const auto& one) { return now_ns_ - one.second.used_ns >= kUnusedNs; });
}

// Returns the entry for one more frame to `next_hop`, or null if too many frames wait.
Bridge::Unresolved* Bridge::place_to_wait(Member asker, const wire::Gid& next_hop) {
    size_t of_asker = 0, waiting = 0;
    Unresolved* asked = nullptr;
    for (Unresolved& one : unresolved_) {
        of_asker += one.asker == asker;
        waiting += one.frames.size();
        if (one.next_hop == next_hop) asked = &one;
    }
    if (waiting == kMaxWaitingOfAll) return nullptr;
    if (asked != nullptr) return asked->frames.size() < kMaxWaiting ? asked : nullptr;
    if (of_asker == kMaxUnresolvedOfOne || unresolved_.size() == kMaxUnresolved) return nullptr;
    unresolved_ns_ = now_ns_;
    return &unresolved_.emplace_back(Unresolved{next_hop, asker, now_ns_, now_ns_ + kGiveUpNs, {}});
}

// Sends the frames of addresses that are resolved now, repeats the requests for the others, and drops frames that have
// waited too long.
void Bridge::look_up_unresolved() {
    has_learnt_ = false;
    unresolved_ns_ = now_ns_ + kAskAgainNs;
    std::erase_if(unresolved_, [&](Unresolved& one) {
        if (const transport::NextHop* const found = find(one.next_hop); found != nullptr) {
            for (rte_mbuf* const mbuf : one.frames) {
                found->write(rte_pktmbuf_mtod(mbuf, uint8_t*));
                ++counters_[Counter::kToUplink];
                outlet_->send(mbuf);
            }
            return true;
        }
        if (one.until_ns <= now_ns_) {
            counters_[Counter::kUnresolved] += one.frames.size();
            one.free_frames();
            return true;
        }
        if (one.ask_ns <= now_ns_) {
            one.ask_ns = now_ns_ + kAskAgainNs;
            if (!uplink_->resolves_neighbours())
                send_small([&](uint8_t* at) { return neighbours_->ask(one.next_hop, at, now_ns_); });
        }
        return false;
    });
}

void Bridge::send_small(auto&& build) {
    size_t bytes = 0;
    rte_mbuf* const mbuf = outlet_->make(datapath::kMaxDiscoveryBytes, [&](uint8_t* at) { return bytes = build(at); });
    if (mbuf == nullptr) return;
    if (bytes == 0)
        rte_pktmbuf_free(mbuf);
    else
        outlet_->send(mbuf);
}

void Bridge::send_questions() {
    if (!unresolved_.empty() && (has_learnt_ || unresolved_ns_ <= now_ns_)) look_up_unresolved();
    for (int questions = 0; questions < RxQueue::kBurst && neighbours_->due_ns() <= now_ns_; ++questions)
        send_small([&](uint8_t* at) { return neighbours_->next_question(at, now_ns_); });
}

// Announces addresses to hosts that may remember another MAC for them, such as an earlier bridge's.
void Bridge::announce(const std::vector<wire::Gid>& addresses) {
    if (!uplink_->ready() || uplink_->resolves_neighbours()) return;
    for (const wire::Gid& address : addresses)
        send_small([&](uint8_t* at) {
            return datapath::build_announce(at, {mac(), address, forwarding_->settings().vlan});
        });
}

uint64_t Bridge::deadline_ns() const {
    if (outlet_->holds_frames()) return 0;
    return std::min(neighbours_->due_ns(), unresolved_.empty() ? datapath::Neighbours::kNever : unresolved_ns_);
}

}  // namespace rove::bridge
