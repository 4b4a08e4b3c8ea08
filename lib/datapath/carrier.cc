// SPDX-License-Identifier: Apache-2.0
#include "datapath/carrier.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace rove::datapath {

Carrier::~Carrier() {
    if (socket_ >= 0) ::close(socket_);
}

void Carrier::watch(unsigned index) {
    char name[IF_NAMESIZE];
    if (if_indextoname(index, name) == nullptr) return;
    interface_ = name;
    if (socket_ < 0) socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

bool Carrier::lost() const {
    if (socket_ < 0) return false;
    // Not IFF_RUNNING: the kernel changes that up to a second later.
    ethtool_value link{.cmd = ETHTOOL_GLINK, .data = 0};
    ifreq request{};
    interface_.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    request.ifr_data = reinterpret_cast<char*>(&link);
    return ioctl(socket_, SIOCETHTOOL, &request) == 0 ? link.data == 0 : errno == ENODEV;
}

std::optional<uint32_t> Carrier::mtu() const {
    ifreq request{};
    interface_.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    if (socket_ < 0 || ioctl(socket_, SIOCGIFMTU, &request) != 0) return std::nullopt;
    return static_cast<uint32_t>(request.ifr_mtu);
}

}  // namespace rove::datapath
