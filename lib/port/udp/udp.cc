// SPDX-License-Identifier: Apache-2.0
#include "port/udp/udp.h"

#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "link/address.h"
#include "port/port_environment.h"
#include "port/port_kind.h"
#include "port/udp/udp_queues.h"

namespace rove::datapath {

namespace {

std::string smaller_mtus(uint32_t most) {
    std::string list;
    for (uint32_t mtu = 256; mtu <= most; mtu *= 2) list += (list.empty() ? "" : ", ") + std::to_string(mtu);
    return list.empty() ? "an interface with a larger one" : list;
}

// Returns how many datagrams the kernel has dropped because the socket's memory was full or the UDP checksum was wrong.
uint64_t dropped_by(int file) {
    std::array<uint32_t, SK_MEMINFO_VARS> memory{};
    socklen_t bytes = sizeof memory;
    return getsockopt(file, SOL_SOCKET, SO_MEMINFO, memory.data(), &bytes) == 0 ? memory[SK_MEMINFO_DROPS] : 0;
}

}  // namespace

bool UdpPort::open(const DeviceConfig& config, std::string* error) {
    if (config.addresses.empty()) {
        *error = "port 'udp': there is no default route, so it has no address. Allowed: port = \"udp:ADDRESS\"";
        return false;
    }
    name_ = "port '" + config.port + "'";
    mac_ = derived_mac(parse_subnet(config.addresses.front())->address);
    for (const std::string& name : config.addresses) {
        const wire::Gid address = parse_subnet(name)->address;
        const bool ipv4 = wire::is_ipv4_mapped(address);
        FileDescriptor roce = open_roce_socket(address, error);
        if (!roce.is_open()) return false;
        event_loop_.add_doorbell(roce.get(), EventLoop::Doorbell::kSocket);
        auto receiver = std::make_unique<Receiver>(address, mac_, std::move(roce));
        locals_.push_back({address, ipv4, receivers_.add(std::move(receiver)), SourcePorts(address)});
        interface_.open(interface_of(address));
        const auto interface_mtu = interface_.mtu();
        if (!interface_mtu) continue;
        const uint32_t fits = roce_mtu(*interface_mtu, ipv4);
        if (fits == 0 || (config.mtu_given && config.mtu > fits)) {
            *error = "port '" + config.port + "': an mtu of " + std::to_string(config.mtu) +
                     " does not fit the interface's MTU of " + std::to_string(*interface_mtu) +
                     ". Allowed: " + smaller_mtus(fits);
            return false;
        }
        path_mtu_ = std::min(path_mtu_, fits);
    }
    has_carrier_ = true;
    return true;
}

std::unique_ptr<RxQueue> UdpPort::make_rx_queue(uint16_t) {
    return std::make_unique<UdpRxQueue>(receivers_, pool_, received_);
}

std::unique_ptr<TxQueue> UdpPort::make_tx_queue(uint16_t) {
    return std::make_unique<UdpTxQueue>(name_, locals_, sent_);
}

void UdpPort::start() {
    if (is_held()) return;
    started_ = true;
    poll_link();
}

// Keeps the sockets open, because application threads may be inside any call until the process has ended.
void UdpPort::close() {
    hold(true);
    stop();
}

bool UdpPort::is_up() {
    return started_ && !interface_.lost_carrier() &&
           std::all_of(locals_.begin(), locals_.end(), [](const Local& local) { return is_local(local.address); });
}

std::optional<Port::ResolvedNextHop> UdpPort::find(const wire::Gid& neighbour, int timeout_ms) {
    const auto local = std::find_if(locals_.begin(), locals_.end(),
                                    [&](const Local& one) { return one.ipv4 == wire::is_ipv4_mapped(neighbour); });
    if (local == locals_.end() || !has_route(local->address, neighbour)) return Port::find(neighbour, timeout_ms);
    return ResolvedNextHop{id(), std::make_shared<const transport::NextHop>(derived_mac(neighbour))};
}

UdpPort::Receivers::~Receivers() {
    for (size_t i = 0; i < size(); ++i) delete all_[i].load();
}

UdpPort::Receiver* UdpPort::Receivers::add(std::unique_ptr<Receiver> receiver) {
    const size_t at = size_.load(std::memory_order_relaxed);
    if (at == kMost) return nullptr;
    Receiver* const added = receiver.release();
    all_[at].store(added, std::memory_order_release);
    size_.store(at + 1, std::memory_order_release);
    return added;
}

std::unique_ptr<UdpPort::Receiver> UdpPort::Receivers::remove(const Receiver& receiver) {
    const size_t last = size() - 1;
    size_t at = 0;
    while (all_[at].load() != &receiver) ++at;
    std::unique_ptr<Receiver> removed(all_[at].load());
    all_[at].store(all_[last].load(), std::memory_order_release);
    size_.store(last, std::memory_order_release);
    return removed;
}

// Returns the receiver of the group, or null if the group has no member.
UdpPort::Receiver* UdpPort::receiver_of(const wire::Gid& group) {
    for (size_t i = 0; i < receivers_.size(); ++i)
        if (receivers_[i].address == group) return &receivers_[i];
    return nullptr;
}

int UdpPort::join(const wire::Gid& group) {
    const std::lock_guard lock(mutex_);
    if (Receiver* const receiver = receiver_of(group); receiver != nullptr) {
        ++receiver->joined;
        return 0;
    }
    const auto local = std::ranges::find(locals_, wire::is_ipv4_mapped(group), &Local::ipv4);
    if (local == locals_.end()) return EADDRNOTAVAIL;  // this port receives no datagrams of that family
    if (receivers_.size() == Receivers::kMost) return ENOMEM;
    FileDescriptor file = open_group_socket(group);
    if (!file.is_open()) return errno;
    if (const int error = join_group(file.get(), local->address, group); error != 0) return error;
    Receiver* const added = receivers_.add(std::make_unique<Receiver>(group, multicast_mac(group), std::move(file)));
    added->joined = 1;
    // A thread that it wakes finds the socket in receivers_.
    event_loop_.add_doorbell(added->file.get(), EventLoop::Doorbell::kSocket);
    return 0;
}

void UdpPort::leave(const wire::Gid& group) {
    std::unique_ptr<Receiver> left;
    {
        const std::lock_guard lock(mutex_);
        Receiver* const receiver = receiver_of(group);
        if (receiver == nullptr || --receiver->joined != 0) return;
        left = receivers_.remove(*receiver);
        missed_ += dropped_by(left->file.get());
    }
    grace_.wait();
    event_loop_.remove_doorbell(left->file.get());
}

void UdpPort::after_fork_in_child() {
    for (Local& local : locals_) local.sources.close_all();
    for (size_t i = 0; i < receivers_.size(); ++i) receivers_[i].file = FileDescriptor();
}

PortStatistics UdpPort::statistics() const {
    PortStatistics statistics{.rx_frames = received_.frames.get(),
                              .rx_bytes = received_.bytes.get(),
                              .rx_missed = 0,
                              .rx_errors = received_.errors.get(),
                              .rx_no_mbuf = received_.no_mbuf.get(),
                              .tx_frames = sent_.frames.get(),
                              .tx_bytes = sent_.bytes.get(),
                              .tx_errors = sent_.errors.get(),
                              .tx_over_mtu = sent_.over_mtu.get()};
    const std::lock_guard lock(mutex_);
    statistics.rx_missed = missed_;
    for (size_t i = 0; i < receivers_.size(); ++i) statistics.rx_missed += dropped_by(receivers_[i].file.get());
    return statistics;
}

std::unique_ptr<Port> open_udp_port(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                    const std::vector<rte_mempool*>&, std::string* error) {
    auto port = std::make_unique<UdpPort>(id, environment.pool, environment.poller, environment.grace);
    return port->open(config, error) ? std::move(port) : nullptr;
}

}  // namespace rove::datapath
