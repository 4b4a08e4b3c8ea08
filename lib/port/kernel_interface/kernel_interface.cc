// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/kernel_interface.h"

#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/dpdk_files.h"

namespace rove::datapath {

KernelInterface::~KernelInterface() {
    if (socket_ >= 0) ::close(socket_);
    if (filter_ >= 0) ::close(filter_);
}

void KernelInterface::open(unsigned index) {
    char name[IF_NAMESIZE];
    if (if_indextoname(index, name) == nullptr) return;
    name_ = name;
    index_ = static_cast<int>(index);
    // A forked child closes this file and the filter's.
    if (socket_ < 0) socket_ = libc::record_file(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

bool KernelInterface::lost_carrier() const {
    if (socket_ < 0) return false;
    // IFF_RUNNING is not used, because the kernel changes it up to a second later.
    ethtool_value link{.cmd = ETHTOOL_GLINK, .data = 0};
    ifreq request{};
    name_.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    request.ifr_data = reinterpret_cast<char*>(&link);
    return ioctl(socket_, SIOCETHTOOL, &request) == 0 ? link.data == 0 : errno == ENODEV;
}

std::optional<uint32_t> KernelInterface::mtu() const {
    if (socket_ < 0) return std::nullopt;
    ifreq request{};
    name_.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    if (ioctl(socket_, SIOCGIFMTU, &request) != 0) return std::nullopt;
    return static_cast<uint32_t>(request.ifr_mtu);
}

uint32_t KernelInterface::rx_queues() const {
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    ifreq request{};
    name_.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    request.ifr_data = reinterpret_cast<char*>(&channels);
    if (ioctl(socket_, SIOCETHTOOL, &request) != 0) return 1;
    return std::max(1u, channels.rx_count + channels.combined_count);
}

bool KernelInterface::receive_at(const wire::MacAddress& mac) {
    return join(PACKET_MR_UNICAST, mac);
}

bool KernelInterface::receive_all_groups() {
    return join(PACKET_MR_ALLMULTI, {});
}

bool KernelInterface::join(uint16_t type, const wire::MacAddress& mac) {
    if (filter_ < 0) filter_ = libc::record_file(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    packet_mreq membership{};
    membership.mr_ifindex = index_;
    membership.mr_type = type;
    membership.mr_alen = static_cast<uint16_t>(mac.size());
    std::copy(mac.begin(), mac.end(), membership.mr_address);
    return setsockopt(filter_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership, sizeof(membership)) == 0;
}

}  // namespace rove::datapath
