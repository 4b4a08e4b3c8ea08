// SPDX-License-Identifier: Apache-2.0
// The addresses of a device, and paths to other hosts.
#include "runtime/rdma_interface.h"

#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "link/address.h"
#include "link/neighbour.h"
#include "port/port.h"
#include "port/port_name.h"
#include "runtime/config.h"
#include "runtime/progress_thread.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"

namespace rove::datapath {

namespace {

constexpr size_t kPlaces = 32;    // entries for the kernel's addresses
constexpr int kAskAgainMs = 50;   // between two questions for the same neighbour
constexpr int kResolveMs = 3000;  // after it the neighbour counts as unreachable
constexpr uint64_t kResolveNs = uint64_t{kResolveMs} * 1'000'000;
// HELLO: the first question may reach a peer that sleeps for half a millisecond. Each later one waits twice as long as
// the one before, but no longer than a restored rail may take until it is used again (T-19: 50 ms, for the questions of
// both ends together).
constexpr uint64_t kFirstHelloNs = 2'000'000, kLastHelloNs = 16'000'000;
constexpr uint64_t kStrangerNs = 250'000'000;    // after it the peer counts as a standard endpoint
constexpr uint64_t kPatienceNs = 1'000'000'000;  // many stalls of a shared core; TENT waits 3 s for a peer
constexpr uint64_t kConnectNs = 3'000'000'000;
constexpr uint64_t kReportGapNs = 10'000'000'000;  // between two lines about downgrades

std::optional<wire::Gid> address_of(const std::optional<std::string>& text) {
    return text ? parse_address(*text) : std::nullopt;
}

}  // namespace

RdmaInterface::RdmaInterface(Runtime& runtime, const DeviceConfig& config, std::string name, Port& port)
    : runtime_(runtime),
      device_port_(port),
      name_(std::move(name)),
      port_(port.id()),
      max_mtu_(config.mtu),
      config_(config),
      vlan_(config.vlan) {
    std::vector<Subnet> own;
    for (const std::string& address : config.addresses) own.push_back(*parse_subnet(address));
    mac_ = config.mac ? *config.mac : port.mac() != wire::MacAddress{} ? port.mac() : derived_mac(own.front().address);
    if (!port.has_kernel_stack()) own.insert(own.begin(), Subnet{link_local_gid(mac_), 64});
    table_.resize(port.has_kernel_stack() ? std::max(kPlaces, own.size()) : own.size());
    set_addresses(own);
    neighbours_ = std::make_unique<Neighbours>(mac_, vlan_, own, address_of(config.gateway_ipv4),
                                               address_of(config.gateway_ipv6));
    // Reports are sent from a configured address of their family, or 0.0.0.0 without one (RFC 3376 4.2.13), and from
    // the link-local address.
    ProxyAddress ipv4{mac_, wire::Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, vlan_};
    for (const wire::Gid& gid : addresses_)
        if (wire::is_ipv4_mapped(gid) && ipv4.address[12] == 0) ipv4.address = gid;
    memberships_ =
        std::make_unique<Memberships>(ipv4, ProxyAddress{mac_, addresses_.front(), vlan_}, std::random_device{}());
    // Questions for our IPv6 addresses are sent to these groups: RFC 4861 7.2.1.
    for (const wire::Gid& gid : addresses_)
        if (!wire::is_ipv4_mapped(gid) && !port.has_kernel_stack())
            memberships_->join(solicited_node_group(gid), runtime_.now_ns());
    for (const NeighbourConfig& neighbour : config.neighbours)
        neighbours_->add_static(neighbour.address, neighbour.mac);
}

RdmaInterface::~RdmaInterface() = default;

bool RdmaInterface::link_up() const {
    return !device_port_.has_carrier() || device_port_.ready();
}

uint32_t RdmaInterface::rate_mbps() const {
    // All drivers of DPDK's virtual devices report the same rate.
    const bool has_own = config_.link_rate_mbps == 0 && is_pci(config_.port);
    const uint32_t own = has_own ? device_port_.rate_mbps() : 0;
    return own != 0 ? own : known_rate_mbps(config_);
}

bool RdmaInterface::ready() const {
    return device_port_.ready();
}

uint32_t RdmaInterface::active_mtu() const {
    return std::min(max_mtu_, device_port_.path_mtu());
}

std::string RdmaInterface::name_of(const DeviceConfig& config, size_t index) {
    return config.name.empty() ? "rove" + std::to_string(index) : config.name;
}

uint16_t RdmaInterface::queues() const {
    return device_port_.queues();
}

PortStatistics RdmaInterface::statistics() const {
    return device_port_.statistics();
}

std::optional<uint16_t> RdmaInterface::dpdk_port() const {
    return device_port_.dpdk_id();
}

std::vector<wire::Gid> RdmaInterface::gids() const {
    const std::lock_guard lock(addresses_mutex_);
    std::vector<wire::Gid> gids;
    for (const Subnet& place : table_) gids.push_back(place.address);
    return gids;
}

std::vector<Subnet> RdmaInterface::subnets() const {
    const std::lock_guard lock(addresses_mutex_);
    return table_;
}

bool RdmaInterface::has_gateway(bool ipv4) const {
    return device_port_.has_kernel_stack() || neighbours_->has_gateway(ipv4);
}

bool RdmaInterface::owns(const wire::Gid& address) const {
    const std::lock_guard lock(addresses_mutex_);
    return std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end();
}

// Keeps the meaning of an index that a program has stored: an address that remains keeps its entry, and a new one gets
// the first free entry.
bool RdmaInterface::set_addresses(const std::vector<Subnet>& addresses) {
    const auto port_argument = [](auto& among, const wire::Gid& address) {
        return std::find_if(among.begin(), among.end(), [&](const Subnet& one) { return one.address == address; });
    };
    std::vector<Subnet> table = subnets();
    for (Subnet& place : table)
        if (port_argument(addresses, place.address) == addresses.end()) place = {};
    for (const Subnet& address : addresses) {
        auto place = port_argument(table, address.address);
        if (place == table.end()) place = port_argument(table, {});
        if (place != table.end()) *place = address;  // if there are too few entries, the last addresses get none
    }
    const std::lock_guard lock(addresses_mutex_);
    table_.swap(table);
    addresses_.clear();
    for (const Subnet& place : table_)
        if (place.address != wire::Gid{}) addresses_.push_back(place.address);
    return !std::equal(table.begin(), table.end(), table_.begin(),
                       [](const Subnet& one, const Subnet& other) { return one.address == other.address; });
}

bool RdmaInterface::receives(const wire::Flow& flow, bool from_port) const {
    if (!on_vlan(flow.vlan)) return false;
    const auto owns = [this](const wire::Gid& address) {
        return std::any_of(addresses_.begin(), addresses_.end(),
                           [&](const wire::Gid& own) { return wire::same(own, address); });
    };
    // A frame that we sent does not come back through the port unless the network returns it, and any other host that
    // uses our addresses forges them. A group never sends.
    if (from_port && (wire::same(flow.src_mac, mac_) || owns(flow.src))) return false;
    if (is_multicast(flow.src_mac) || is_multicast(flow.src)) return false;
    if (wire::same(flow.dst_mac, mac_)) return owns(flow.dst);
    return is_multicast(flow.dst) && wire::same(flow.dst_mac, multicast_mac(flow.dst));
}

int RdmaInterface::begin_path(const wire::Flow& flow, transport::Path& path) const {
    if (wire::is_ipv4_mapped(flow.src) != wire::is_ipv4_mapped(flow.dst) || !owns(flow.src)) return EINVAL;
    path.flow = flow;
    path.flow.src_mac = mac_;
    path.flow.vlan.reset();
    if (vlan_) path.flow.vlan = static_cast<uint16_t>((flow.vlan.value_or(0) & 0xE000) | *vlan_);
    path.port = path.outlet = port_;
    path.loopback = owns(flow.dst);
    path.multicast = is_multicast(flow.dst);
    path.next_hop = nullptr;
    if (path.loopback) path.flow.dst_mac = mac_;
    if (path.multicast) {
        path.flow.dst_mac = multicast_mac(flow.dst);
        device_port_.resolve_all();
    }
    return 0;
}

wire::Gid RdmaInterface::next_hop(const wire::Gid& destination) const {
    return device_port_.has_kernel_stack() ? destination : neighbours_->next_hop(destination);
}

void RdmaInterface::suspect(const wire::Gid& destination, uint64_t now_ns) {
    if (device_port_.resolves_neighbours()) return device_port_.suspect(destination);
    neighbours_->suspect(next_hop(destination), now_ns);
}

bool RdmaInterface::take_way(transport::Path& path, int timeout_ms) const {
    const auto way = device_port_.find(next_hop(path.flow.dst), timeout_ms);
    if (!way) return false;
    path.outlet = way->outlet;
    path.next_hop = way->next_hop;
    path.flow.dst_mac = path.next_hop->mac();
    return true;
}

bool RdmaInterface::find_path(const wire::Flow& flow, transport::Path& path) {
    if (begin_path(flow, path) != 0) return false;
    if (device_port_.resolves_neighbours() && !path.loopback && !path.multicast) {
        const bool has_mac = path.flow.dst_mac != wire::MacAddress{};
        if (!(has_mac && device_port_.answers_by_mac()) && !take_way(path, 0)) return false;
    } else if (!path.loopback && !path.multicast) {
        const wire::Gid neighbour = neighbours_->next_hop(flow.dst);
        if (const auto mac = neighbours_->lookup(neighbour)) path.flow.dst_mac = *mac;
        if (path.flow.dst_mac == wire::MacAddress{}) {
            runtime_.solicit(*this, neighbour);
            return false;
        }
    }
    path.headers = wire::make_template(path.flow);
    return true;
}

bool RdmaInterface::reaches(const wire::Gid& address) {
    if (owns(address) || is_multicast(address)) return true;
    const wire::Gid neighbour = next_hop(address);
    return device_port_.resolves_neighbours() ? device_port_.find(neighbour, 0).has_value()
                                              : neighbours_->lookup(neighbour).has_value();
}

int RdmaInterface::resolve(const wire::Flow& flow, transport::Path& path) {
    if (const int error = begin_path(flow, path); error != 0) return error;
    if (device_port_.resolves_neighbours() && !path.loopback && !path.multicast) {
        if (!take_way(path, kResolveMs)) return errno;
    } else if (!path.loopback && !path.multicast) {
        const wire::Gid neighbour = neighbours_->next_hop(flow.dst);
        path.next_hop = neighbours_->use(neighbour, runtime_.now_ns());
        // This does not use real time, because this process may have been off its core, and so may a neighbour on this
        // host, whose stack answers only when it runs.
        const auto protocol_ns = [&worker = *runtime_.workers().front()] {
            const Worker::Hold hold(worker);
            return worker.core(hold).protocol_ns();
        };
        const uint64_t begun_ns = path.next_hop == nullptr ? protocol_ns() : 0;
        while (path.next_hop == nullptr) {
            runtime_.solicit(*this, neighbour);
            runtime_.wait_for_neighbour(*this, neighbour, kAskAgainMs);
            path.next_hop = neighbours_->use(neighbour, runtime_.now_ns());
            if (path.next_hop == nullptr && protocol_ns() - begun_ns >= kResolveNs) return EHOSTUNREACH;
        }
        path.flow.dst_mac = path.next_hop->mac();
    }
    path.headers = wire::make_template(path.flow);
    return 0;
}

int RdmaInterface::agree_on_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn,
                                      bool& multipath) {
    using Hello = transport::HelloState;
    multipath = false;
    const transport::Mode mode = runtime_.config().transport.mode;
    const Hello::RemoteQp peer{remote_qpn, path.flow.dst};
    Worker& worker = runtime_.worker_of(qp);
    std::random_device random;
    const uint32_t nonce = random() | 1;  // 0 means that nothing was asked
    const auto has_confirmed = [&] {
        const Hello::PendingOffer* const promise = qp.hello.promised(peer);
        return promise != nullptr && promise->confirmed;
    };
    bool promised = false;
    uint64_t rc_ns = 0;  // how long the peer counts as a standard endpoint because it was silent now
    {
        const Worker::Hold hold(worker);
        qp.hello.begin(peer, &hello_peers_, nonce);
        promised = qp.hello.promised(peer) != nullptr;
    }
    if (mode == transport::Mode::kRc || path.loopback) return 0;
    const std::optional<bool> known = hello_peers_.speaks_mp(peer.gid, runtime_.now_ns());
    const bool must_answer = mode == transport::Mode::kMp || known == true;
    if (promised || must_answer || !known) {
        transport::Path way = path;
        // A peer that was just started may not have opened its end of the port yet.
        const uint64_t connected_by_ns = runtime_.now_ns() + kConnectNs;
        while (!device_port_.ready() && runtime_.now_ns() < connected_by_ns)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // Uses the protocol's time, as every other timeout does: frames that arrived while this process was off its
        // core are still to be read, and a peer that was off its own core is not silent.
        const auto protocol_ns = [&worker](const Worker::Hold& hold) { return worker.core(hold).protocol_ns(); };
        const uint64_t begun_ns = protocol_ns(Worker::Hold(worker));
        for (uint64_t wait_ns = kFirstHelloNs; qp.hello.answer == Hello::Answer::kNone;
             wait_ns = std::min(2 * wait_ns, kLastHelloNs)) {
            // Each question uses another path, because one may be dead.
            way.flow.udp_src = static_cast<uint16_t>(transport::kFirstVp | (random() & 0x3FFF));
            way.headers = wire::make_template(way.flow);
            const uint64_t asked_ns = runtime_.now_ns();
            {
                const Worker::Hold hold(worker);
                // A peer that was promised mp, and has confirmed it, need not answer.
                const bool patient = (must_answer || qp.hello.promised(peer) != nullptr) && !has_confirmed();
                if (protocol_ns(hold) - begun_ns >= (patient ? kPatienceNs : kStrangerNs)) break;
                worker.ask_multipath(hold, qp, way, remote_qpn, nonce);
            }
            while (qp.hello.answer == Hello::Answer::kNone && runtime_.now_ns() < asked_ns + wait_ns) {
                runtime_.progress();
                if (wait_ns < kLastHelloNs) {
                    sched_yield();
                } else {  // a silent peer is no reason to keep a core busy
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
            }
        }
        if (qp.hello.answer == Hello::Answer::kNone) rc_ns = hello_peers_.record_timeout(peer.gid, runtime_.now_ns());
    }
    // A line may block, which must not happen while the worker is held.
    const auto is_downgrade = [&] { return qp.hello.answer == Hello::Answer::kNone && !has_confirmed(); };
    if (rc_ns != 0 && mode == transport::Mode::kAuto && is_downgrade()) report_downgrade(peer.gid, rc_ns);
    const Worker::Hold hold(worker);
    const Hello::Answer answer = qp.hello.answer;
    const bool confirmed = has_confirmed();
    multipath = answer == Hello::Answer::kYes || (answer == Hello::Answer::kNone && confirmed);
    int error = 0;
    if (answer != Hello::Answer::kNone || confirmed) {
        hello_peers_.record_answer(peer.gid, multipath);
    } else if (must_answer) {
        error = ETIMEDOUT;
    }
    if (error == 0 && !multipath && mode == transport::Mode::kMp) error = EPROTONOSUPPORT;
    if (error != 0) {
        qp.hello.has_peer = false;  // the next attempt may connect it to another peer
        return error;
    }
    qp.hello.decision = multipath ? Hello::Decision::kMp : Hello::Decision::kRc;
    if (is_downgrade()) ++worker.core(hold).engine().counters()[transport::Counter::kDowngrades];
    return 0;
}

void RdmaInterface::report_downgrade(const wire::Gid& peer, uint64_t rc_ns) {
    const uint64_t now_ns = runtime_.now_ns();
    uint64_t last_ns = downgrade_reported_ns_.load(std::memory_order_relaxed);
    if (last_ns != 0 && now_ns - last_ns < kReportGapNs) return;
    if (!downgrade_reported_ns_.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed)) return;
    std::fprintf(stderr,
                 "rove: %s: %s does not answer HELLO: connections to it speak rc, over one path, for %lu s; then it is "
                 "asked again\n",
                 name_.c_str(), to_string(peer).c_str(), (rc_ns + 999'999'999) / 1'000'000'000);
}

int RdmaInterface::join(const wire::Gid& group) {
    if (const int error = device_port_.join(group); error != 0 || device_port_.has_kernel_stack()) return error;
    memberships_->join(group, runtime_.now_ns());
    runtime_.background().look_again();
    device_port_.resolve_all();
    return 0;
}

void RdmaInterface::leave(const wire::Gid& group) {
    if (device_port_.has_kernel_stack()) return device_port_.leave(group);
    memberships_->leave(group, runtime_.now_ns());
    runtime_.background().look_again();
    device_port_.leave(group);
}

uint16_t RdmaInterface::udp_source_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn) {
    if (flow_label == 0) {
        uint64_t mixed = static_cast<uint64_t>(local_qpn) * remote_qpn;
        mixed ^= mixed >> 20;
        mixed ^= mixed >> 40;
        flow_label = static_cast<uint32_t>(mixed & 0xFFFFF);
    }
    const uint32_t low = flow_label & 0x03FFF, high = flow_label & 0xFC000;
    return static_cast<uint16_t>((low ^ (high >> 14)) | 0xC000);
}

}  // namespace rove::datapath
