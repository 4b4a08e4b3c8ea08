// SPDX-License-Identifier: Apache-2.0
// Set-up of DPDK's ports. What the drivers of 22.11 need is said where it is done.
#include "datapath/ports/ethdev.h"

#include <fcntl.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "datapath/eal.h"
#include "datapath/port_name.h"

namespace rove::datapath {

namespace {

constexpr uint64_t kRssWanted = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;

// The kernel tells net_tap of frames by a signal to the process, and the driver reads only after its handler ran. In
// the program's threads it would interrupt calls, and never run if all of them block it. So the calling thread takes
// it.
void take_tap_signals() {
    sigset_t taken;
    sigemptyset(&taken);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
        if (std::filesystem::read_symlink(entry.path(), ignored) != "/dev/net/tun") continue;
        const int fd = std::atoi(entry.path().filename().c_str());
        const int signal = fcntl(fd, F_GETSIG);
        if (signal <= 0) continue;  // not net_tap's, which has chosen one
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

bool EthdevPort::open(const DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error) {
    const auto failed = [&](const char* step, int result) {
        *error = "port '" + config.port + "': " + step + ": " + rte_strerror(-result);
        return false;
    };
    const std::string name = config.port.substr(0, config.port.find(','));
    if (const int result = rte_eth_dev_get_port_by_name(name.c_str(), &dpdk_id_); result != 0)
        return failed("EAL made no such port", result);
    rte_eth_dev_info info{};
    if (const int result = rte_eth_dev_info_get(dpdk_id_, &info); result != 0)
        return failed("rte_eth_dev_info_get", result);
    const std::string_view driver = info.driver_name;
    memif_client_ = driver == "net_memif" && config.port.find("role=server") == std::string::npos &&
                    config.port.find("role=master") == std::string::npos;
    if (driver == "net_af_packet" || driver == "net_af_xdp") carrier_.watch(info.if_index);
    has_carrier_ = !is_peer_to_peer(driver);

    size_t most = std::min(info.max_rx_queues, info.max_tx_queues);
    // net_tap 22.11 offers more, but at its start writes two files a queue where there is room for RTE_MP_MAX_FD_NUM.
    if (driver == "net_tap") most = std::min<size_t>(most, RTE_MP_MAX_FD_NUM / 2);
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
    // memif and af_packet of 22.11 report a largest frame of 1518 and refuse a larger MTU, but carry what fits their
    // buffers when the MTU is left alone.
    const uint32_t overhead = info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu
                                  ? info.max_rx_pktlen - info.max_mtu
                                  : RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
    if (info.max_rx_pktlen > RTE_ETHER_MAX_LEN && driver != "net_af_packet")
        conf.rxmode.mtu =
            std::min({frame_room_bytes(config.mtu), info.max_rx_pktlen, info.max_mtu + overhead}) - overhead;
    // Frames are freed in the pool they came from and never shared: NICs that have the faster free may use it.
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    if (const int result = rte_eth_dev_configure(dpdk_id_, queues_, queues_, &conf); result != 0)
        return failed("rte_eth_dev_configure", result);
    uint16_t rx_descriptors = kDescriptors, tx_descriptors = kDescriptors;
    if (const int result = rte_eth_dev_adjust_nb_rx_tx_desc(dpdk_id_, &rx_descriptors, &tx_descriptors); result != 0)
        return failed("rte_eth_dev_adjust_nb_rx_tx_desc", result);
    for (uint16_t queue = 0; queue < queues_; ++queue) {
        rte_mempool* pool = pools[queue % pools.size()];  // of the worker that polls it
        if (const int result = rte_eth_rx_queue_setup(dpdk_id_, queue, rx_descriptors, SOCKET_ID_ANY, nullptr, pool);
            result != 0)
            return failed("rte_eth_rx_queue_setup (a frame of the port may be larger than what mtu needs)", result);
        if (const int result = rte_eth_tx_queue_setup(dpdk_id_, queue, tx_descriptors, SOCKET_ID_ANY, nullptr);
            result != 0)
            return failed("rte_eth_tx_queue_setup", result);
    }
    if (driver == "net_tap") take_tap_signals();
    // Ports between processes invent one. A tap's is that of the kernel's end: a bridge would keep our frames to
    // itself.
    rte_ether_addr mac{};
    if (has_carrier_ && driver != "net_tap" && rte_eth_macaddr_get(dpdk_id_, &mac) == 0)
        std::memcpy(mac_.data(), mac.addr_bytes, mac_.size());
    return true;
}

void EthdevPort::start() {
    started_ = rte_eth_dev_start(dpdk_id_) == 0;
    if (!started_) return;
    rte_eth_allmulticast_enable(dpdk_id_);  // virtual ports that do not know the call see all frames anyway
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
    rte_eth_link link{};
    return started_ && rte_eth_link_get_nowait(dpdk_id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP &&
           !carrier_.lost();
}

void EthdevPort::restart() {
    if (is_held()) return;
    stop();
    start();
}

// AF_PACKET and AF_XDP would lose what the interface does not carry.
uint32_t EthdevPort::path_mtu() const {
    constexpr uint32_t kLeast = 256, kHeaders = wire::kMaxOverheadBytes - RTE_ETHER_HDR_LEN - RTE_VLAN_HLEN;
    const std::optional<uint32_t> mtu = carrier_.mtu();
    return mtu ? std::max(std::bit_floor(*mtu - std::min(*mtu, kHeaders)), kLeast) : Port::path_mtu();
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
