// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/interface.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "port/kernel_interface/xdp_queue.h"
#include "port/port_kind.h"
#include "port/port_name.h"

namespace rove::datapath {

namespace {

// The buffers for frames that arrive while the worker is elsewhere, for all queues together: 16 MiB. A queue has room
// for a few windows of packets.
constexpr uint32_t kChunks = 4096, kFewestChunks = 512, kMaxQueues = 64;
constexpr auto kAskAgain = std::chrono::milliseconds(50);
constexpr auto kProbeAgain = std::chrono::milliseconds(100);  // the kernel waits a second for an answer
// The overhead of a packet that counts against the interface's MTU. The Ethernet header and a VLAN tag do not count,
// and a packet with a whole path MTU of payload has no pad.
constexpr uint32_t kIpOverheadBytes = wire::kMaxOverheadBytes - 14 - 4 - 3;

uint32_t path_mtu_at(uint32_t interface_mtu) {
    return std::bit_floor(std::max(interface_mtu, kIpOverheadBytes) - kIpOverheadBytes);
}

std::string with_prefix(const Subnet& subnet) {
    const bool ipv4 = wire::is_ipv4_mapped(subnet.address);
    return to_string(subnet.address) + "/" + std::to_string(subnet.prefix_bits - (ipv4 ? 96 : 0));
}

void write_address(const wire::Gid& address, sockaddr_storage& to) {
    if (wire::is_ipv4_mapped(address)) {
        auto& ipv4 = reinterpret_cast<sockaddr_in&>(to);
        ipv4.sin_family = AF_INET;
        std::memcpy(&ipv4.sin_addr, address.data() + 12, sizeof ipv4.sin_addr);
    } else {
        auto& ipv6 = reinterpret_cast<sockaddr_in6&>(to);
        ipv6.sin6_family = AF_INET6;
        std::memcpy(&ipv6.sin6_addr, address.data(), sizeof ipv6.sin6_addr);
    }
}

}  // namespace

bool InterfacePort::open(DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error) {
    name_ = port_argument(config.port);
    const auto refuse = [&](const std::string& why) {
        *error = "port '" + config.port + "': " + why;
        return false;
    };
    std::string why;
    kernel_ = Rtnetlink::open(name_, &why);
    if (!kernel_) return refuse(why);
    const auto link = kernel_->link();
    if (!link || !link->is_ethernet) return refuse("it is not an Ethernet interface");
    mac_ = link->mac;
    has_carrier_ = true;
    interface_.open(kernel_->index());
    std::vector<Subnet> addresses;
    if (for_bridge_) {
        if (config.mac || config.vlan)
            return refuse("its MAC is the kernel's, and a VLAN is an interface of its own (ip link add type vlan)");
        if (!interface_.receive_all_groups()) return refuse("its filter of groups: " + reason_of(errno));
    } else {
        addresses = read_addresses();
        if (kernel_->addresses().empty()) return refuse("it has no address: ip address add 10.0.0.1/24 dev " + name_);
    }
    for (const Subnet& subnet : addresses) config.addresses.push_back(with_prefix(subnet));
    if (!link->is_up)
        std::fprintf(stderr, "rove: %s: no carrier: its port is down until there is one (ip link set %s up)\n",
                     name_.c_str(), name_.c_str());
    if (path_mtu_at(link->mtu) < 256)
        return refuse("its MTU of " + std::to_string(link->mtu) + " has no room for RoCE: ip link set " + name_ +
                      " mtu 1500");
    config.mtu = std::min(config.mtu, path_mtu_at(link->mtu));

    const bool one_queue = for_bridge_ || (interface_.rx_queues() == 1 && packets_come_in_trains());
    const auto kinds = for_bridge_ ? PacketKinds::kBridge : PacketKinds::kRoce;
    int failure = 0;
    if (one_queue || !open_xdp(config.mtu + wire::kMaxOverheadBytes, pools, &why)) {
        opened_.clear();
        program_.reset();
        if (!one_queue)
            std::fprintf(stderr, "rove: %s: through AF_PACKET, not AF_XDP: %s\n", name_.c_str(), why.c_str());
        if (auto queue = PacketQueue::open(name_, kernel_->index(), kinds, pools[0], event_loop_, &failure);
            queue != nullptr) {
            failure = queue->begin();
            opened_.push_back(std::move(queue));
        }
    } else {
        xdp_queues_ = static_cast<uint32_t>(opened_.size());
        rte_mempool* const pool = pools[opened_.size() % pools.size()];
        if (auto queue = PacketQueue::open(name_, kernel_->index(), kinds, pool, event_loop_, &failure);
            queue != nullptr) {
            other_queues_ = queue.get();
            opened_.push_back(std::move(queue));
        }
    }
    while (failure == 0 && opened_senders_.size() < opened_.size()) {
        if (auto sender = PacketSender::open(name_, kernel_->index(), kinds, &failure); sender != nullptr)
            opened_senders_.push_back(std::move(sender));
    }
    if (failure == EPERM)
        return refuse("packets of an interface need CAP_NET_RAW: run as root, or take port = \"udp\"");
    if (failure != 0) return refuse("AF_PACKET: " + reason_of(failure));
    take_frames_to(addresses);
    queues_ = static_cast<uint16_t>(opened_.size());
    for (const auto& queue : opened_) receivers_.push_back(queue.get());
    for (const auto& sender : opened_senders_) senders_.push_back(sender.get());
    serve_other_queues();
    return true;
}

// Starts the AF_PACKET queue once there are other RX queues. `ethtool -L` may add them at any time.
void InterfacePort::serve_other_queues() {
    if (other_queues_ == nullptr || serves_other_queues_) return;
    const uint32_t now = interface_.rx_queues();
    if (now <= xdp_queues_ || other_queues_->begin() != 0) return;
    serves_other_queues_ = true;
    std::fprintf(
        stderr,
        "rove: %s: it has %u RX queues, and AF_XDP reads %u: the flows of the others come more slowly, through "
        "AF_PACKET (ethtool -L %s combined %u avoids that)\n",
        name_.c_str(), now, xdp_queues_, name_.c_str(), xdp_queues_);
}

std::vector<Subnet> InterfacePort::read_addresses() const {
    std::vector<Subnet> found = kernel_->addresses();
    const auto rank = [](const Subnet& one) {
        return is_link_local(one.address) ? 0 : wire::is_ipv4_mapped(one.address) ? 1 : 2;
    };
    std::stable_sort(found.begin(), found.end(),
                     [&](const Subnet& one, const Subnet& other) { return rank(one) < rank(other); });
    // If the kernel has no link-local address, we have one all the same, because programs rely on GID 0.
    if (found.empty() || !is_link_local(found.front().address)) found.insert(found.begin(), {link_local_gid(mac_), 64});
    return found;
}

std::optional<std::vector<Subnet>> InterfacePort::take_addresses() {
    if (!addresses_changed_.exchange(false)) return std::nullopt;
    std::vector<Subnet> found = read_addresses();
    take_frames_to(found);
    return found;
}

void InterfacePort::take_frames_to(const std::vector<Subnet>& addresses) {
    if (program_ == nullptr) return;
    std::set<wire::Gid> before = std::exchange(taken_, {});
    for (const Subnet& one : addresses) {
        if (!program_->take(one.address))
            std::fprintf(stderr, "rove: %s: XDP has no room for address %s: nothing is received for it\n",
                         name_.c_str(), to_string(one.address).c_str());
        taken_.insert(one.address);
        before.erase(one.address);
    }
    for (const wire::Gid& gone : before) program_->leave(gone);
}

bool InterfacePort::open_xdp(uint32_t frame_bytes, const std::vector<rte_mempool*>& pools, std::string* error) {
    const uint32_t most = std::min(interface_.rx_queues(), kMaxQueues);
    program_ = XdpProgram::load(most, error);
    if (program_ == nullptr || !program_->attach(kernel_->index(), error)) return false;
    for (uint32_t queue = 0; queue < most; ++queue) {
        const XdpQueue::Settings settings{
            .interface = kernel_->index(),
            .queue = queue,
            .frame_bytes = frame_bytes,
            .chunks = std::max(kFewestChunks, std::bit_floor(kChunks / most)),
            .pool = pools[queue % pools.size()],
        };
        int failure = 0;
        auto opened = XdpQueue::open(settings, event_loop_, &failure);
        if (opened == nullptr || !program_->lead(queue, opened->file())) {
            *error = failure == EINVAL ? "the kernel's AF_XDP has no frames of " + std::to_string(frame_bytes) +
                                             " bytes; a path MTU of 2048 fits"
                                       : "AF_XDP: " + reason_of(failure);
            return false;
        }
        opened_.push_back(std::move(opened));
    }
    return true;
}

void InterfacePort::start() {
    event_loop_.add(kernel_->changes(), [this] { take_changes(); });
    started_ = true;
    poll_link();
}

bool InterfacePort::is_up() {
    const auto link = kernel_->link();
    if (link) path_mtu_ = path_mtu_at(link->mtu);
    serve_other_queues();
    return started_ && link && link->is_up;
}

void InterfacePort::close() {
    hold(true);
    started_ = false;
    event_loop_.remove(kernel_->changes());
    if (program_ != nullptr) program_->detach();  // frames that arrive from now on are the kernel's
}

void InterfacePort::take_changes() {
    const Rtnetlink::Changes changes = kernel_->take_changes();
    std::unique_lock lock(mutex_);
    for (const auto& [address, mac] : changes.neighbours) {
        const auto found = next_hops_.find(address);
        if (found == next_hops_.end()) continue;
        if (mac)
            found->second->set(*mac);
        else if (found->second.use_count() > 1)
            kernel_->use(address);  // paths lead there
        else
            next_hops_.erase(found);
    }
    if (changes.incomplete) {
        std::erase_if(next_hops_, [&](auto& one) {
            if (const auto mac = kernel_->neighbour(one.first)) return one.second->set(*mac), false;
            return one.second.use_count() == 1;
        });
    }
    lock.unlock();
    learnt_.notify_all();
    if (changes.addresses || changes.incomplete) addresses_changed_ = true;
    if (changes.link || changes.addresses || changes.incomplete) user_.ports_changed();
}

std::optional<Port::ResolvedNextHop> InterfacePort::find(const wire::Gid& destination, int timeout_ms) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    const auto hop = kernel_->next_hop(destination);
    if (!hop) return Port::find(destination, timeout_ms);
    std::unique_lock lock(mutex_);
    for (;;) {
        kernel_->use(*hop);
        if (const auto mac = kernel_->neighbour(*hop)) {
            std::shared_ptr<transport::NextHop>& next_hop = next_hops_[*hop];
            if (next_hop == nullptr) next_hop = std::make_shared<transport::NextHop>(*mac);
            next_hop->set(*mac);
            return ResolvedNextHop{id(), next_hop};
        }
        const auto now = std::chrono::steady_clock::now();
        if (now >= until) return Port::find(destination, timeout_ms);
        learnt_.wait_until(lock, std::min(until, now + kAskAgain));
    }
}

void InterfacePort::suspect(const wire::Gid& destination) {
    const auto now = std::chrono::steady_clock::now();
    auto probed = probed_.load(std::memory_order_relaxed);
    if (now - probed < kProbeAgain || !probed_.compare_exchange_strong(probed, now)) return;
    if (const auto hop = kernel_->next_hop(destination)) kernel_->probe(*hop);
}

// Gives each group a socket of its own, because the kernel bounds the number of groups of one socket.
int InterfacePort::join(const wire::Gid& group) {
    const std::lock_guard lock(mutex_);
    if (const auto found = groups_.find(group); found != groups_.end()) {
        ++found->second.joined;
        return 0;
    }
    const bool ipv4 = wire::is_ipv4_mapped(group);
    FileDescriptor file(socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!file.is_open()) return errno;
    group_req request{};
    request.gr_interface = kernel_->index();
    write_address(group, request.gr_group);
    if (setsockopt(file.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &request, sizeof request) != 0)
        return errno;
    if (program_ != nullptr && !program_->take(group)) return ENOMEM;
    groups_.emplace(group, Group{std::move(file), 1});
    return 0;
}

void InterfacePort::leave(const wire::Gid& group) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(group);
    if (found == groups_.end() || --found->second.joined != 0) return;
    if (program_ != nullptr) program_->leave(group);
    groups_.erase(found);
}

PortStatistics InterfacePort::statistics() const {
    PortStatistics sum;
    for (KernelQueue* const queue : receivers_) {
        sum.rx_frames += queue->counts().frames.get();
        sum.rx_bytes += queue->counts().bytes.get();
        sum.rx_errors += queue->counts().errors.get();
        sum.rx_no_mbuf += queue->counts().no_mbuf.get();
        sum.rx_missed += queue->missed();
    }
    for (const PacketSender* const sender : senders_) {
        sum.tx_frames += sender->counts().frames.get();
        sum.tx_bytes += sender->counts().bytes.get();
        sum.tx_errors += sender->counts().errors.get();
        sum.tx_over_mtu += sender->counts().over_mtu.get();
    }
    return sum;
}

void InterfacePort::after_fork_in_child() {
    if (program_ != nullptr) program_->detach();
    for (const KernelQueue* const queue : receivers_) ::close(queue->file());
    for (const PacketSender* const sender : senders_) ::close(sender->file());
    kernel_->close();
}

std::unique_ptr<Port> open_interface_port(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                          const std::vector<rte_mempool*>& pools, std::string* error) {
    auto port = std::make_unique<InterfacePort>(id, environment);
    return port->open(config, pools, error) ? std::move(port) : nullptr;
}

}  // namespace rove::datapath
