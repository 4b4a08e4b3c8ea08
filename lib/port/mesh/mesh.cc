// SPDX-License-Identifier: Apache-2.0
#include "port/mesh/mesh.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "link/address.h"
#include "port/port_kind.h"
#include "port/port_name.h"

namespace rove::datapath {

namespace {

// The secret in INIT, which both ends must have. It names the version of the mesh's protocol (docs/protocol/mesh.md).
constexpr const char* kSecret = "rove mesh 2";
// The prefix lengths of addresses that were chosen automatically.
constexpr const char *kIpv4Prefix = "/16", *kIpv6Prefix = "/64";
constexpr uint32_t kTries = 3;  // attempts at a link that this process lacks a resource for, before find() reports it
// The factor by which find() waits longer for a member whose socket has accepted the connection. Its process is alive
// and may wait for a core, for example while hundreds of programs start on a few cores.
constexpr int kBusyPeer = 10;
// The limits on the links of one user's processes to us. Links of other users may take a part of this process's
// descriptors.
constexpr size_t kMaxLinks = BellPage::kBells, kOthersPart = 4;

// The data that a member sends about itself in the protocol, in base 64, since a name has 31 bytes there: its MAC, and
// the first of its addresses, after which its socket is named. The bridge has no address and sends 0.
struct MemberInfo {
    wire::MacAddress mac{};
    wire::Gid address{};
};
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr size_t kCardBytes = sizeof(MemberInfo), kCardText = (kCardBytes * 8 + 5) / 6;
static_assert(kCardText < kMemifNameBytes);

std::string to_text(const MemberInfo& card) {
    const auto bytes = std::bit_cast<std::array<uint8_t, kCardBytes>>(card);
    std::string text;
    for (size_t bit = 0; bit < kCardBytes * 8; bit += 6) {
        const uint32_t two = bytes[bit / 8] << 8 | (bit / 8 + 1 < kCardBytes ? bytes[bit / 8 + 1] : 0);
        text += kDigits[two >> (10 - bit % 8) & 0x3F];
    }
    return text;
}

std::optional<MemberInfo> parse_card(std::string_view text) {
    std::array<uint8_t, kCardBytes + 1> bytes{};
    if (text.size() != kCardText) return std::nullopt;
    for (size_t i = 0; i < text.size(); ++i) {
        const size_t digit = kDigits.find(text[i]), bit = 6 * i;
        if (digit == kDigits.npos) return std::nullopt;
        const auto two = static_cast<uint32_t>(digit << (10 - bit % 8));
        bytes[bit / 8] |= static_cast<uint8_t>(two >> 8);
        bytes[bit / 8 + 1] |= static_cast<uint8_t>(two);
    }
    MemberInfo card;
    std::memcpy(&card, bytes.data(), sizeof card);
    return is_multicast(card.mac) ? std::nullopt : std::optional(card);
}

std::string name_of(const MemberInfo& card) {
    return card.address == wire::Gid{} ? std::string(MeshFolder::kBridge) : to_string(card.address);
}

std::string without_prefix(const std::string& address) {
    return to_string(parse_subnet(address)->address);
}

}  // namespace

bool MeshPort::open(DeviceConfig& config, std::string* error) {
    auto folder = MeshFolder::open(port_argument(config.port), error);
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
    own.mesh = true;
    return own;
}

void MeshPort::start() {
    const Lock lock(mutex_);
    if (is_held() || started_) return;
    started_ = true;
    environment_.poller.add(folder_->listener(), [this] { accept(); });
    // The bridge and each member connect to each other at the start, whichever starts first, because the bridge answers
    // for members.
    if (is_bridge())
        connect_to_all();
    else
        bridge();
    look_after_peers();
    environment_.user.ports_changed();
}

void MeshPort::accept() {
    const Lock lock(mutex_);
    FileDescriptor socket = take_connection(folder_->listener());
    if (!socket.is_open()) return;
    if (const auto settings = settings_for(datapath::peer_of(socket.get()))) begin(socket.release(), *settings);
}

size_t MeshPort::most_links_of(uid_t user) const {
    rlimit limit{};
    if (user == geteuid() || getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxLinks;
    return std::min<size_t>(kMaxLinks, limit.rlim_max / kOthersPart);
}

// Returns the settings of a link from this user. Returns nothing if the user has as many links as it may have, or there
// is no memory for its bells.
std::optional<MemifConnection::Settings> MeshPort::settings_for(const ucred& user) {
    const auto found = users_.find(user.uid);
    if (found == users_.end()) {
        User added{.file = make_shared_memory("rove-bells", BellPage::kBytes), .bells = {}, .used = {}};
        if (added.file.is_open()) added.bells = SharedMapping(added.file, BellPage::kBytes);
        if (added.bells.address() == nullptr) return std::nullopt;
        users_.emplace(user.uid, std::move(added));
    }
    User& of = users_.at(user.uid);
    if (of.used.count() >= most_links_of(user.uid)) return std::nullopt;
    MemifConnection::Settings settings = own_settings(MemifConnection::Role::kServer);
    while (of.used[settings.bell]) ++settings.bell;
    of.used[settings.bell] = true;
    settings.bell_file = of.file.get();
    settings.bells = reinterpret_cast<BellPage*>(of.bells.address());
    return settings;
}

void MeshPort::connect(const std::string& member, Peer& peer) {
    FileDescriptor socket(folder_->connect(member));
    if (!socket.is_open() && (errno == EMFILE || errno == ENFILE) && make_room_for_files(-1))
        socket = FileDescriptor(folder_->connect(member));
    if (!socket.is_open()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) lack(member, peer, "no socket", errno);
        return;
    }
    make_room_for_files(socket.get());
    peer.connecting = true;
    begin(socket.release(), own_settings(MemifConnection::Role::kClient)).peer.name = member;
}

// Records which resource this process lacked for a link, for find(), and reports it once.
void MeshPort::lack(const std::string& member, Peer& peer, const std::string& why, int error) {
    peer.lacked = error;
    ++peer.tries;
    if (std::exchange(told_error_, error) == error) return;
    const char* const hint = error == EMFILE ? " (ulimit -n)" : error == EFBIG ? " (ulimit -f)" : "";
    std::fprintf(stderr, "rove: mesh: no link to %s: %s%s\n", member.c_str(), why.c_str(), hint);
}

bool MeshPort::connected(Link& link) {
    const bool has_place = link.role == MemifConnection::Role::kClient ? connected_to(link) : connected_from(link);
    changed_.notify_all();
    return has_place;
}

bool MeshPort::connected_to(Link& link) {
    Peer& peer = peers_[link.peer.name];
    const auto card = parse_card(link.connection.peer_name());
    if (!card) return false;
    if (!peer.outlet) peer.outlet = environment_.user.new_outlet();
    if (!peer.outlet) return false;
    if (peer.next_hop == nullptr) peer.next_hop = std::make_shared<transport::NextHop>(card->mac);
    peer.next_hop->set(card->mac);
    peer.connecting = false;
    peer.lacked = told_error_ = 0;
    peer.tries = 0;
    peer.link = &link;
    link.peer.mac = card->mac;
    link.outlet = *peer.outlet;
    attach(link);
    // Links from that member may be waiting for this one.
    for (auto& [id, other] : links_)
        if (other.receiver != nullptr && !other.attached && other.peer.name == link.peer.name) attach(other);
    return true;
}

bool MeshPort::connected_from(Link& link) {
    const auto card = parse_card(link.connection.peer_name());
    if (!card) return false;
    link.peer = {card->mac, name_of(*card)};
    const auto owner = folder_->owner(link.peer.name);
    if (is_bridge() && owner != link.user.uid) return false;
    // Answers to the member use a link of our own.
    const bool can_send = owner && link.peer.name != folder_->name() && reach(link.peer.name).link != nullptr;
    if (can_send || !is_bridge()) attach(link);
    return true;
}

void MeshPort::disconnected(Link& link) {
    if (link.role == MemifConnection::Role::kServer) {
        const auto of = users_.find(link.user.uid);
        of->second.used[link.bell] = false;
        if (of->second.used.none()) users_.erase(of);
    } else {
        Peer& peer = peers_[link.peer.name];
        peer.connecting = false;
        const int lacked = link.connection.lacked();
        if (lacked == EMFILE) make_room_for_files(-1);
        if (lacked != 0) lack(link.peer.name, peer, link.connection.why(), lacked);
        // Another process may have taken the address, and paths lead there.
        if (std::exchange(peer.link, nullptr) == &link && peer.has_paths()) reach(link.peer.name, kSeldomTryAgain);
    }
    forget_unused();
    changed_.notify_all();
}

// Forgets the members to which nothing leads any more, so that the number of known members is bounded by the living
// ones.
void MeshPort::forget_unused() {
    std::erase_if(peers_, [&](const auto& one) {
        const Peer& peer = one.second;
        if (peer.link != nullptr || peer.connecting || peer.lacked != 0 || peer.has_paths()) return false;
        if (peer.outlet) environment_.user.free_outlet(*peer.outlet);
        return true;
    });
}

// Connects to members that died and were replaced while paths led to them, and to members whose frames wait for our
// link.
void MeshPort::look_after_peers() {
    for (auto& [member, peer] : peers_) {
        peer.lacked = 0;
        if (peer.has_paths()) reach(member, kSeldomTryAgain);
    }
    for (const auto& [id, link] : links_)
        if (link.receiver != nullptr && !link.attached) reach(link.peer.name, kSeldomTryAgain);
    forget_unused();
}

bool MeshPort::is_up() {
    const Lock lock(mutex_);
    if (started_) look_after_peers();
    return started_;
}

// Returns the member that has the address now, connected or about to be. No socket is named after a link-local address,
// which is derived from the MAC that a peer announces once it is connected.
MeshPort::Peer* MeshPort::peer_of(const wire::Gid& neighbour) {
    if (is_link_local(neighbour)) {
        connect_to_all();
        const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& one) {
            return one.second.next_hop != nullptr && link_local_gid(one.second.next_hop->mac()) == neighbour;
        });
        if (found != peers_.end()) return &found->second;
        // The address may belong to a member that is still connecting.
        const bool waits =
            std::any_of(peers_.begin(), peers_.end(), [](const auto& one) { return one.second.connecting; });
        return waits ? nullptr : bridge();
    }
    const auto member = folder_->member(to_string(neighbour));
    return member ? &reach(*member) : bridge();
}

// Returns null if the mesh has no bridge, or if this is the bridge.
MeshPort::Peer* MeshPort::bridge() {
    return folder_->has_bridge() && !is_bridge() ? &reach(std::string(MeshFolder::kBridge)) : nullptr;
}

MeshPort::Peer& MeshPort::reach(const std::string& member, std::chrono::milliseconds again) {
    Peer& peer = peers_[member];
    const auto now = std::chrono::steady_clock::now();
    if (peer.link == nullptr && !peer.connecting && started_ && now - peer.tried >= again) {
        peer.tried = now;
        connect(member, peer);
    }
    return peer;
}

std::optional<Port::ResolvedNextHop> MeshPort::find(const wire::Gid& neighbour, int timeout_ms) {
    const auto begun = std::chrono::steady_clock::now();
    const auto timeout = std::chrono::milliseconds(timeout_ms);
    std::unique_lock lock(mutex_);
    for (;;) {
        const Peer* const peer = peer_of(neighbour);
        if (peer != nullptr && peer->link != nullptr) return ResolvedNextHop{*peer->outlet, peer->next_hop};
        const auto now = std::chrono::steady_clock::now();
        const auto until = begun + (peer != nullptr && peer->connecting ? kBusyPeer * timeout : timeout);
        const int lacked = peer == nullptr ? 0 : peer->lacked;
        if (now >= until || (lacked != 0 && peer->tries >= kTries)) {
            errno = lacked != 0 ? lacked : EHOSTUNREACH;
            return std::nullopt;
        }
        changed_.wait_until(lock, std::min(until, now + kTryAgain));
    }
}

void MeshPort::resolve_all() {
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
    end_all();
}

void MeshPort::close() {
    const Lock lock(mutex_);
    hold(true);
    if (std::exchange(started_, false)) environment_.poller.remove(folder_->listener());
    folder_->leave();
    close_all();
}

std::unique_ptr<Port> open_mesh_port(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                     const std::vector<rte_mempool*>&, std::string* error) {
    auto port = std::make_unique<MeshPort>(id, environment);
    return port->open(config, error) ? std::move(port) : nullptr;
}

}  // namespace rove::datapath
