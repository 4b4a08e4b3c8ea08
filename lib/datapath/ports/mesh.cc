// SPDX-License-Identifier: Apache-2.0
#include "datapath/ports/mesh.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string_view>

#include "datapath/address.h"
#include "datapath/port_name.h"

namespace rove::datapath {

namespace {

// Both ends must say the same: what a mesh is beyond memif, and its version.
constexpr const char* kSecret = "rove mesh 1";
// Of the addresses that are chosen.
constexpr const char *kIpv4Prefix = "/16", *kIpv6Prefix = "/64";
constexpr auto kMemberWait = std::chrono::milliseconds(50);  // for a member that is about to come

// What a member says of itself in the protocol, where a name has 31 bytes: its MAC and the first of its addresses, by
// which its socket is named, in base 64. The bridge has no address: 0.
struct Card {
    wire::MacAddress mac{};
    wire::Gid address{};
};
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr size_t kCardBytes = sizeof(Card), kCardText = (kCardBytes * 8 + 5) / 6;
static_assert(kCardText < kMemifNameBytes);

std::string to_text(const Card& card) {
    const auto bytes = std::bit_cast<std::array<uint8_t, kCardBytes>>(card);
    std::string text;
    for (size_t bit = 0; bit < kCardBytes * 8; bit += 6) {
        const uint32_t two = bytes[bit / 8] << 8 | (bit / 8 + 1 < kCardBytes ? bytes[bit / 8 + 1] : 0);
        text += kDigits[two >> (10 - bit % 8) & 0x3F];
    }
    return text;
}

std::optional<Card> parse_card(std::string_view text) {
    std::array<uint8_t, kCardBytes + 1> bytes{};
    if (text.size() != kCardText) return std::nullopt;
    for (size_t i = 0; i < text.size(); ++i) {
        const size_t digit = kDigits.find(text[i]), bit = 6 * i;
        if (digit == kDigits.npos) return std::nullopt;
        const auto two = static_cast<uint32_t>(digit << (10 - bit % 8));
        bytes[bit / 8] |= static_cast<uint8_t>(two >> 8);
        bytes[bit / 8 + 1] |= static_cast<uint8_t>(two);
    }
    Card card;
    std::memcpy(&card, bytes.data(), sizeof card);
    return is_multicast(card.mac) ? std::nullopt : std::optional(card);
}

std::string name_of(const Card& card) {
    return card.address == wire::Gid{} ? std::string(MeshFolder::kBridge) : to_string(card.address);
}

std::string without_prefix(const std::string& address) {
    return to_string(parse_subnet(address)->address);
}

}  // namespace

bool MeshPort::open(DeviceConfig& config, std::string* error) {
    auto folder = MeshFolder::open(place_of(config.port), error);
    if (!folder) return false;
    folder_.emplace(std::move(*folder));
    std::vector<std::string> wanted;
    for (const std::string& address : config.addresses) wanted.push_back(without_prefix(address));
    if (!folder_->claim(wanted, error)) return false;
    if (config.addresses.empty())
        for (const std::string& address : folder_->addresses())
            config.addresses.push_back(address + (address.find(':') == std::string::npos ? kIpv4Prefix : kIpv6Prefix));
    mac_ = config.mac ? *config.mac : derived_mac(parse_subnet(config.addresses.front())->address);
    return true;
}

bool MeshPort::open_as_bridge(const std::string& folder, const wire::MacAddress& mac, uint32_t mtu,
                              std::string* error) {
    auto opened = MeshFolder::open(folder, error);
    if (!opened) return false;
    folder_.emplace(std::move(*opened));
    mac_ = mac;
    return folder_->claim_bridge(mtu, error);
}

std::vector<wire::Gid> MeshPort::addresses_of(const std::string& member) const {
    std::vector<wire::Gid> addresses;
    for (const std::string& address : folder_->addresses_of(member)) addresses.push_back(*parse_address(address));
    return addresses;
}

MemifConnection::Settings MeshPort::own_settings(MemifConnection::Role role) const {
    MemifConnection::Settings own = settings(role);
    own.name = to_text({mac_, parse_address(folder_->name()).value_or(wire::Gid{})});
    own.secret = kSecret;
    return own;
}

void MeshPort::start() {
    const Lock lock(mutex_);
    if (is_held() || started_) return;
    started_ = true;
    environment_.poller.add(folder_->listener(), [this] { accept(); });
    // The bridge and each member are connected from the start, whichever of them comes first: it speaks for members.
    if (folder_->name() == MeshFolder::kBridge)
        connect_to_all();
    else
        bridge();
    environment_.user.ports_changed();
}

void MeshPort::accept() {
    const Lock lock(mutex_);
    LinkPort::accept(folder_->listener(), own_settings(MemifConnection::Role::kServer));
}

void MeshPort::connect(const std::string& member, Peer& peer) {
    const int socket = folder_->connect(member);
    if (socket < 0) return;
    peer.connecting = true;
    begin(socket, own_settings(MemifConnection::Role::kClient)).peer.name = member;
}

void MeshPort::connected(Link& link) {
    link.outlet = kNoOutlet;
    if (const auto asked = peers_.find(link.peer.name); asked != peers_.end()) asked->second.connecting = false;
    const auto card = parse_card(link.connection.peer_name());
    if (!card) return;
    link.peer = {card->mac, name_of(*card)};
    Peer& peer = peers_[link.peer.name];
    if (peer.next_hop == nullptr) {
        peer.next_hop = std::make_shared<transport::NextHop>(card->mac);
        peer.outlet = environment_.user.new_outlet();
    }
    peer.next_hop->set(card->mac);
    // Two that connect to each other at once have two links: each sends by the first that it had.
    if (peer.link == nullptr) {
        peer.link = &link;
        link.outlet = peer.outlet;
    }
    changed_.notify_all();
}

void MeshPort::disconnected(Link& link) {
    const auto found = peers_.find(link.peer.name);
    if (found == peers_.end()) return;
    Peer& peer = found->second;
    if (link.sender == nullptr) peer.connecting = false;
    if (peer.link == &link) replace(found->first, peer);
    changed_.notify_all();
}

// The link of a peer has gone. Another process may have its address by now, and paths lead there.
void MeshPort::replace(const std::string& member, Peer& peer) {
    const auto other = std::find_if(links_.begin(), links_.end(), [&](const Link& link) {
        return &link != peer.link && link.peer.name == member && link.sender != nullptr;
    });
    peer.link = nullptr;
    if (other != links_.end()) {
        environment_.user.detach(*this, other->outlet, *other->receiver);
        other->outlet = peer.outlet;
        peer.link = &*other;
        environment_.user.attach(*this, other->outlet, other->peer, *other->sender, *other->receiver);
    } else if (peer.next_hop.use_count() > 1 && !peer.connecting) {
        connect(member, peer);
    }
}

// Who has the address now, connected or about to be. No socket is named after a link-local one, which is of the MAC
// that a peer tells when it is connected.
MeshPort::Peer* MeshPort::peer_of(const wire::Gid& neighbour) {
    if (is_link_local(neighbour)) {
        connect_to_all();
        const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& one) {
            return one.second.next_hop != nullptr && link_local_gid(one.second.next_hop->mac()) == neighbour;
        });
        if (found != peers_.end()) return &found->second;
        // It may be of one that is yet to be connected.
        const bool waits =
            std::any_of(peers_.begin(), peers_.end(), [](const auto& one) { return one.second.connecting; });
        return waits ? nullptr : bridge();
    }
    const auto member = folder_->member(to_string(neighbour));
    return member ? &reach(*member) : bridge();
}

// Null: the mesh has none, or this is it.
MeshPort::Peer* MeshPort::bridge() {
    const std::string name(MeshFolder::kBridge);
    return folder_->has_bridge() && folder_->name() != name ? &reach(name) : nullptr;
}

MeshPort::Peer& MeshPort::reach(const std::string& member) {
    Peer& peer = peers_[member];
    if (peer.link == nullptr && !peer.connecting) connect(member, peer);
    return peer;
}

std::optional<Port::Way> MeshPort::find(const wire::Gid& neighbour, int timeout_ms) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    std::unique_lock lock(mutex_);
    for (;;) {
        const Peer* const peer = peer_of(neighbour);
        if (peer != nullptr && peer->link != nullptr) return Way{peer->outlet, peer->next_hop};
        const auto now = std::chrono::steady_clock::now();
        if (now >= until) return std::nullopt;
        changed_.wait_until(lock, std::min(until, now + kMemberWait));
    }
}

void MeshPort::find_all() {
    const Lock lock(mutex_);
    connect_to_all();
}

void MeshPort::connect_to_all() {
    for (const std::string& member : folder_->members()) reach(member);
}

void MeshPort::stop() {
    const Lock lock(mutex_);
    if (started_) environment_.poller.remove(folder_->listener());
    started_ = false;
    while (!links_.empty()) end(links_.front());
}

void MeshPort::close() {
    const Lock lock(mutex_);
    hold(true);
    if (started_) environment_.poller.remove(folder_->listener());
    folder_->leave();
    close_all();
}

void MeshPort::after_fork_in_child() {
    LinkPort::after_fork_in_child();
    folder_->after_fork_in_child();
}

}  // namespace rove::datapath
