// SPDX-License-Identifier: Apache-2.0
// Sets up DPDK's ports. Requirements of the drivers of 22.11 are explained where they are met.
#include "port/ethdev/ethdev.h"

#include <fcntl.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "link/address.h"
#include "port/port_name.h"

namespace rove::datapath {

namespace {

constexpr uint64_t kRssWanted = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;

// Finds the port that EAL has created for `config`. Returns 0, or DPDK's error.
int find_port(const DeviceConfig& config, uint16_t* port, rte_eth_dev_info* info) {
    const std::string name = config.port.substr(0, config.port.find(','));
    int result = rte_eth_dev_get_port_by_name(name.c_str(), port);
    // DPDK 24.11 keeps the name "03:00.0", and 22.11 adds the domain.
    if (result != 0 && is_pci(config.port))
        result = rte_eth_dev_get_port_by_name(pci_address(config.port).c_str(), port);
    return result != 0 ? result : rte_eth_dev_info_get(*port, info);
}

// The most that a driver adds to an MTU to get the length of a frame, rounded up: Ethernet header, two VLAN tags and
// FCS are 26 bytes; virtio's header with the Ethernet header and one tag is 30.
constexpr uint32_t kDriverBytes = 36;
constexpr uint32_t kMinMtu = 256;
constexpr uint32_t kPlaceBytes = 2048;  // default framesz of net_af_packet, and the least that AF_XDP accepts

// Returns the MTU that frames with this RoCE payload need. DPDK and Linux count the bytes behind the Ethernet header
// and VLAN tag.
constexpr uint32_t needed_mtu(uint32_t roce_mtu) {
    return roce_mtu + wire::kMaxOverheadBytes - RTE_ETHER_HDR_LEN - RTE_VLAN_HLEN;
}

// Returns the largest MTU that rte_eth_dev_configure() accepts. `max_rx_pktlen` may be thousands above `max_mtu`
// (vmxnet3, virtio), so their difference is not the size of a header. A driver without a limit of its own reports
// UINT16_MAX.
uint32_t largest_mtu(const rte_eth_dev_info& info) {
    constexpr uint32_t kFraming = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
    return std::min<uint32_t>(info.max_mtu, info.max_rx_pktlen - std::min(info.max_rx_pktlen, kFraming));
}

// Directs net_tap's signals to the calling thread. The kernel announces frames to net_tap by a signal to the process,
// and the driver reads only after its handler has run. In the program's threads the signal would interrupt calls, and
// it would never be handled if all of them block it.
void take_tap_signals() {
    sigset_t taken;
    sigemptyset(&taken);
    const std::string files = "/proc/self/fd/";
    for (const std::string& name : names_in(files)) {
        if (target_of(files + name) != "/dev/net/tun") continue;
        const int fd = std::atoi(name.c_str());
        const int signal = fcntl(fd, F_GETSIG);
        if (signal <= 0) continue;  // not net_tap's file, which has a signal of its choice
        const f_owner_ex here{F_OWNER_TID, gettid()};
        fcntl(fd, F_SETOWN_EX, &here);
        sigaddset(&taken, signal);
    }
    pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
}

class EthdevRxQueue final : public RxQueue {
  public:
    EthdevRxQueue(uint16_t port, uint16_t queue) : RxQueue(false), port_(port), queue_(queue) {}
    uint16_t burst(rte_mbuf** frames) override { return rte_eth_rx_burst(port_, queue_, frames, kBurst); }

  private:
    const uint16_t port_, queue_;
};

class EthdevTxQueue final : public TxQueue {
  public:
    EthdevTxQueue(uint16_t port, uint16_t queue) : port_(port), queue_(queue) {}
    uint16_t burst(rte_mbuf** frames, uint16_t count) override {
        return rte_eth_tx_burst(port_, queue_, frames, count);
    }

  private:
    const uint16_t port_, queue_;
};

}  // namespace

uint32_t least_buffer_bytes(const std::vector<DeviceConfig>& devices) {
    uint32_t least = 0;
    for (const DeviceConfig& device : devices) {
        uint16_t port;
        rte_eth_dev_info info{};
        if (!is_ethdev(device.port) || find_port(device, &port, &info) != 0) continue;
        least = std::max({least, info.min_rx_bufsize, uint32_t{RTE_ETHER_MTU} + kDriverBytes});
        // These drivers do not report it, but a buffer needs room for all bytes that the kernel may store for a frame.
        const std::string driver = driver_of(device.port), given = argument(device.port, "framesz");
        if (driver == "net_af_packet" || driver == "net_af_xdp")
            least = std::max({least, kPlaceBytes, static_cast<uint32_t>(std::strtoul(given.c_str(), nullptr, 10))});
    }
    return (least + 255) / 256 * 256;
}

bool EthdevPort::open(DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error) {
    const auto failed = [&](const std::string& step, int result) {
        *error = "port '" + config.port + "': " + step + ": " + rte_strerror(-result);
        return false;
    };
    rte_eth_dev_info info{};
    if (const int result = find_port(config, &dpdk_id_, &info); result != 0)
        return failed("EAL made no such port", result);
    name_ = config.port;
    const std::string_view driver = info.driver_name;
    memif_client_ = driver == "net_memif" && config.port.find("role=server") == std::string::npos &&
                    config.port.find("role=master") == std::string::npos;
    if (driver == "net_af_packet" || driver == "net_af_xdp") interface_.open(info.if_index);
    has_carrier_ = !is_peer_to_peer(driver);

    size_t most = std::min(info.max_rx_queues, info.max_tx_queues);
    // net_tap 22.11 offers more, but at its start it writes two files for each queue where there is room for
    // RTE_MP_MAX_FD_NUM.
    if (driver == "net_tap") most = std::min<size_t>(most, RTE_MP_MAX_FD_NUM / 2);
    // This driver reports 2, but sends nothing through the second queue of an 82540EM.
    if (driver == "net_e1000_em") most = 1;
    if (config.queues > most) {
        *error = "port '" + config.port + "': got queues = " + std::to_string(config.queues) + ", allowed 1.." +
                 std::to_string(most);
        return false;
    }
    queues_ =
        config.queues != 0 ? config.queues : static_cast<uint16_t>(!has_carrier_ ? 1 : std::min(pools.size(), most));
    rte_eth_conf conf{};
    if (queues_ > 1 && (info.flow_type_rss_offloads & kRssWanted) != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & kRssWanted;
    }
    if (!choose_mtu(info, config, &conf.rxmode.mtu, error)) return false;
    // This driver makes its device drop all VLANs except those that it is given, whether or not filtering was
    // requested.
    const bool filters_vlans = driver == "net_virtio" && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) != 0;
    if (config.vlan && filters_vlans) conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
    // Frames are freed to the pool that they came from, and are never shared. So NICs that support the faster free may
    // use it.
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    if (const int result = rte_eth_dev_configure(dpdk_id_, queues_, queues_, &conf); result != 0)
        return failed("rte_eth_dev_configure", result);
    uint16_t rx_descriptors = kDescriptors, tx_descriptors = kDescriptors;
    if (const int result = rte_eth_dev_adjust_nb_rx_tx_desc(dpdk_id_, &rx_descriptors, &tx_descriptors); result != 0)
        return failed("rte_eth_dev_adjust_nb_rx_tx_desc", result);
    for (uint16_t queue = 0; queue < queues_; ++queue) {
        rte_mempool* pool = pools[queue % pools.size()];  // pool of the worker that polls it
        if (const int result = rte_eth_rx_queue_setup(dpdk_id_, queue, rx_descriptors, SOCKET_ID_ANY, nullptr, pool);
            result != 0)
            return failed("rte_eth_rx_queue_setup of " + std::to_string(rx_descriptors) + " buffers of " +
                              std::to_string(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM) + " bytes",
                          result);
        if (const int result = rte_eth_tx_queue_setup(dpdk_id_, queue, tx_descriptors, SOCKET_ID_ANY, nullptr);
            result != 0)
            return failed("rte_eth_tx_queue_setup", result);
    }
    if (config.vlan && filters_vlans)
        if (const int result = rte_eth_dev_vlan_filter(dpdk_id_, *config.vlan, 1); result != 0)
            return failed("rte_eth_dev_vlan_filter", result);
    if (driver == "net_tap") take_tap_signals();
    // Ports between processes make up a MAC. A tap's MAC is that of the kernel's end, and with the same one a bridge
    // would not forward our frames.
    rte_ether_addr mac{};
    if (has_carrier_ && driver != "net_tap" && rte_eth_macaddr_get(dpdk_id_, &mac) == 0)
        std::memcpy(mac_.data(), mac.addr_bytes, mac_.size());
    if (!config.mac || mac_ == wire::MacAddress{} || *config.mac == mac_) return true;
    if (const int result = receive_at(*config.mac); result != 0) {
        *error = "port '" + config.port + "': got mac = \"" + to_string(*config.mac) +
                 "\", which it cannot use, neither in place of its own address nor in addition to it (" +
                 rte_strerror(-result) + "); allowed: \"" + to_string(mac_) + "\"";
        return false;
    }
    return true;
}

bool EthdevPort::choose_mtu(const rte_eth_dev_info& info, DeviceConfig& config, uint32_t* mtu,
                            std::string* error) const {
    // memif and af_packet of 22.11 report a largest frame of 1518 bytes and refuse a larger MTU. But they carry any
    // frame that fits their buffers if the MTU is not set.
    const bool tells = info.max_rx_pktlen > RTE_ETHER_MAX_LEN && std::string_view(info.driver_name) != "net_af_packet";
    const uint32_t largest = tells ? largest_mtu(info) : UINT16_MAX;
    uint32_t fits = config.mtu;
    while (fits > kMinMtu && needed_mtu(fits) > largest) fits /= 2;
    if (!config.mtu_given) config.mtu = fits;
    const uint32_t needed = needed_mtu(config.mtu);
    if (needed > largest) {
        *error = "port '" + config.port + "': got mtu = " + std::to_string(config.mtu) +
                 ", whose frames need an Ethernet MTU of " + std::to_string(needed) + " bytes; the port has at most " +
                 std::to_string(largest) + ", allowed: ";
        *error += needed_mtu(fits) <= largest ? "mtu = " + std::to_string(fits) + ", or less"
                                              : "a port of " + std::to_string(needed_mtu(kMinMtu)) + " or more";
        return false;
    }
    if (tells) *mtu = std::min(largest, std::max(needed, uint32_t{RTE_ETHER_MTU}));
    return true;
}

// Makes the port receive frames for `mac`. Returns 0, or a negative errno. For an interface of the kernel only the
// filter changes, because its address would stay changed after our end.
int EthdevPort::receive_at(const wire::MacAddress& mac) {
    if (interface_.is_open()) return interface_.receive_at(mac) ? 0 : -errno;
    rte_ether_addr address;
    std::memcpy(address.addr_bytes, mac.data(), mac.size());
    if (rte_eth_dev_default_mac_addr_set(dpdk_id_, &address) == 0) return 0;
    if (rte_eth_dev_mac_addr_add(dpdk_id_, &address, 0) == 0) return 0;
    return rte_eth_promiscuous_enable(dpdk_id_);
}

// Makes the port receive frames to groups, by which neighbours ask for IPv6 addresses.
void EthdevPort::receive_groups() {
    int result =
        interface_.is_open() ? (interface_.receive_all_groups() ? 0 : -errno) : rte_eth_allmulticast_enable(dpdk_id_);
    if (result != 0 && !interface_.is_open())
        if (const int other = rte_eth_promiscuous_enable(dpdk_id_); other != -ENOTSUP) result = other;
    // A port that supports neither, as most virtual ports, filters nothing.
    if (result != 0 && result != -ENOTSUP)
        std::fprintf(
            stderr,
            "rove: port '%s' does not accept multicast addresses (%s): neighbours may not find its IPv6 addresses\n",
            name_.c_str(), rte_strerror(-result));
}

void EthdevPort::start() {
    const int result = rte_eth_dev_start(dpdk_id_);
    started_ = result == 0;
    // Each reason is reported once, because the start is tried again every half second.
    if (std::exchange(start_result_, result) != result && !started_ && has_carrier_)
        std::fprintf(stderr, "rove: port '%s' does not start (%s), and is down until it does\n", name_.c_str(),
                     rte_strerror(-result));
    if (!started_) return;
    receive_groups();
    poll_link();
}

void EthdevPort::close() {
    hold(true);
    stop();
    if (dpdk_id_ != RTE_MAX_ETHPORTS) rte_eth_dev_close(dpdk_id_);
}

void EthdevPort::stop() {
    if (started_) rte_eth_dev_stop(dpdk_id_);
    started_ = false;
}

bool EthdevPort::is_up() {
    if (!started_) return false;
    // DPDK's answer is not used: net_af_packet of 24.11 reads IFF_RUNNING, which the kernel changes up to a second
    // later.
    if (interface_.is_open()) return !interface_.lost_carrier();
    // The rate is kept for rate_mbps(). Drivers query the NIC in several steps and keep the results, so a query from a
    // second thread would make the first one see a link that is down.
    rte_eth_link link{};
    const bool up = rte_eth_link_get_nowait(dpdk_id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    const bool has_rate = up && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN;
    rate_mbps_.store(has_rate ? link.link_speed : 0, std::memory_order_relaxed);
    return up;
}

void EthdevPort::restart() {
    if (is_held()) return;
    stop();
    start();
}

// Returns the path MTU that the interface carries, because AF_PACKET and AF_XDP would lose larger frames.
uint32_t EthdevPort::path_mtu() const {
    const std::optional<uint32_t> mtu = interface_.mtu();
    if (!mtu) return Port::path_mtu();
    return std::max(std::bit_floor(*mtu - std::min(*mtu, needed_mtu(0))), kMinMtu);
}

std::unique_ptr<RxQueue> EthdevPort::make_rx_queue(uint16_t queue) {
    return std::make_unique<EthdevRxQueue>(dpdk_id_, queue);
}

std::unique_ptr<TxQueue> EthdevPort::make_tx_queue(uint16_t queue) {
    return std::make_unique<EthdevTxQueue>(dpdk_id_, queue);
}

PortStatistics EthdevPort::statistics() const {
    rte_eth_stats stats{};
    if (rte_eth_stats_get(dpdk_id_, &stats) != 0) return {};
    return {.rx_frames = stats.ipackets,
            .rx_bytes = stats.ibytes,
            .rx_missed = stats.imissed,
            .rx_errors = stats.ierrors,
            .rx_no_mbuf = stats.rx_nombuf,
            .tx_frames = stats.opackets,
            .tx_bytes = stats.obytes,
            .tx_errors = stats.oerrors};
}

}  // namespace rove::datapath
