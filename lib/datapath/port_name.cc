// SPDX-License-Identifier: Apache-2.0
// See port_name.h.
#include "datapath/port_name.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include "datapath/address.h"

namespace rove::datapath {

namespace {

// Of a network interface of the kernel.
std::optional<wire::MacAddress> interface_mac(const std::string& name) {
    const int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) return std::nullopt;
    ifreq request{};
    name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    const bool found = ioctl(file, SIOCGIFHWADDR, &request) == 0;
    close(file);
    if (!found) return std::nullopt;
    wire::MacAddress mac;
    std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
    return mac;
}

// The value of `key` in "net_af_packet0,iface=eth0,...".
std::string argument(const std::string& port, const std::string& key) {
    const size_t begin = port.find("," + key + "=");
    if (begin == std::string::npos) return {};
    const size_t value = begin + key.size() + 2;
    return port.substr(value, port.find(',', value) - value);
}

// EAL's names of virtual ports are their driver's with a number behind.
std::string driver_of(const DeviceConfig& config) {
    const std::string name = config.port.substr(0, config.port.find(','));
    return name.substr(0, name.find_last_not_of("0123456789") + 1);
}

}  // namespace

bool is_peer_to_peer(std::string_view driver) {
    return driver == "net_memif" || driver == "net_vhost" || driver == "net_virtio_user" || driver == "net_ring";
}

std::string kernel_interface(const DeviceConfig& config) {
    const std::string driver = driver_of(config);
    const bool has_one = driver == "net_af_packet" || driver == "net_af_xdp" || driver == "net_tap";
    return has_one ? argument(config.port, "iface") : std::string();
}

std::string sysfs_device(const DeviceConfig& config) {
    const std::string interface = kernel_interface(config), name = config.port.substr(0, config.port.find(','));
    std::string folder = "/sys/bus/pci/devices/";
    if (std::count(name.begin(), name.end(), ':') == 1) folder += "0000:";
    folder += name;
    if (!interface.empty()) folder = "/sys/class/net/" + interface + "/device";
    std::error_code ignored;
    return std::filesystem::is_directory(folder, ignored) ? folder : std::string();
}

std::optional<wire::MacAddress> mac_before_start(const DeviceConfig& config) {
    if (config.mac) return config.mac;
    const std::string driver = driver_of(config);
    std::optional<wire::MacAddress> mac = wire::MacAddress{};
    if (driver == "net_af_packet" || driver == "net_af_xdp")
        mac = interface_mac(argument(config.port, "iface"));
    else if (!is_peer_to_peer(driver) && driver != "net_tap")
        return std::nullopt;
    // As Interface does where a port has none of its own.
    if (mac == wire::MacAddress{}) mac = derived_mac(parse_subnet(config.addresses.front())->address);
    return mac;
}

}  // namespace rove::datapath
