// SPDX-License-Identifier: Apache-2.0
#include "port/port_name.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/files.h"
#include "link/address.h"
#include "port/port_kind.h"

namespace rove::datapath {

namespace {

#define ROVE_KIND(kind) &kind##_kind,
constexpr const PortKind* kKinds[] = {ROVE_PORT_KINDS(ROVE_KIND)};

// Returns the MAC of a network interface of the kernel.
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

}  // namespace

std::string driver_of(std::string_view port) {
    const std::string_view name = port.substr(0, port.find(','));
    return std::string(name.substr(0, name.find_last_not_of("0123456789") + 1));
}

const PortKind* kind_of(std::string_view port) {
    for (const PortKind* const kind : kKinds) {
        if (!port.starts_with(kind->name)) continue;
        const std::string_view rest = port.substr(kind->name.size());
        if (rest.starts_with(':') || (rest.empty() && !kind->needs_argument)) return kind;
    }
    return nullptr;
}

std::string port_forms() {
    std::string forms;
    for (const PortKind* const kind : kKinds) forms.append(forms.empty() ? "" : ", ").append(kind->forms);
    return forms;
}

bool is_ethdev(std::string_view port) {
    return kind_of(port) == nullptr;
}

std::string_view without_options(std::string_view port) {
    const PortKind* const kind = kind_of(port);
    return kind != nullptr && kind->argument_has_commas ? port : port.substr(0, port.find(','));
}

std::string port_argument(std::string_view port) {
    const std::string_view name = without_options(port);
    const size_t colon = name.find(':');
    return std::string(colon == name.npos ? std::string_view() : name.substr(colon + 1));
}

std::string argument(std::string_view port, std::string_view key) {
    for (size_t comma = port.find(','); comma != std::string_view::npos; comma = port.find(',', comma + 1)) {
        const std::string_view word = port.substr(comma + 1, port.find(',', comma + 1) - comma - 1);
        if (word.substr(0, word.find('=')) == key && word.size() > key.size())
            return std::string(word.substr(key.size() + 1));
    }
    return {};
}

bool is_pci(std::string_view port) {
    if (!is_ethdev(port)) return false;
    const std::string_view address = port.substr(0, port.find(','));
    return address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos &&
           address.find(':') != std::string_view::npos;
}

std::string pci_address(std::string_view port) {
    const std::string address(port.substr(0, port.find(',')));
    return std::count(address.begin(), address.end(), ':') == 1 ? "0000:" + address : address;
}

bool is_peer_to_peer(std::string_view driver) {
    return driver == "net_memif" || driver == "net_vhost" || driver == "net_virtio_user" || driver == "net_ring";
}

std::string kernel_interface(const DeviceConfig& config) {
    const PortKind* const kind = kind_of(config.port);
    if (kind != nullptr && kind->is_kernel_interface) return port_argument(config.port);
    const std::string driver = driver_of(config.port);
    const bool has_one = driver == "net_af_packet" || driver == "net_af_xdp" || driver == "net_tap";
    return has_one ? argument(config.port, "iface") : std::string();
}

uint32_t known_rate_mbps(const DeviceConfig& config) {
    constexpr uint32_t kVirtual = 100'000;  // for a port without a rate of its own
    if (config.link_rate_mbps != 0) return config.link_rate_mbps;
    const std::string interface = kernel_interface(config);
    const std::string speed = interface.empty() ? "" : first_line_of("/sys/class/net/" + interface + "/speed");
    // -1, or EINVAL on reading, if the interface has no rate or no carrier. Tun and tap devices say 10 Mb/s.
    constexpr long kTap = 10;
    const long mbps = std::strtol(speed.c_str(), nullptr, 10);
    return mbps > kTap ? static_cast<uint32_t>(mbps) : kVirtual;
}

std::string sysfs_device(const DeviceConfig& config) {
    const std::string interface = kernel_interface(config);
    const std::string folder = interface.empty() ? "/sys/bus/pci/devices/" + pci_address(config.port)
                                                 : "/sys/class/net/" + interface + "/device";
    return is_directory(folder) ? folder : std::string();
}

std::optional<wire::MacAddress> mac_before_start(const DeviceConfig& config) {
    if (config.mac) return config.mac;
    const PortKind* const kind = kind_of(config.port);
    if (kind != nullptr && kind->is_kernel_interface) return interface_mac(port_argument(config.port));
    if (config.addresses.empty()) return std::nullopt;
    const std::string driver = driver_of(config.port);
    std::optional<wire::MacAddress> mac = wire::MacAddress{};
    if (driver == "net_af_packet" || driver == "net_af_xdp")
        mac = interface_mac(argument(config.port, "iface"));
    else if (kind == nullptr && !is_peer_to_peer(driver) && driver != "net_tap")
        return std::nullopt;
    // RdmaInterface does the same where a port has no MAC of its own.
    if (mac == wire::MacAddress{}) mac = derived_mac(parse_subnet(config.addresses.front())->address);
    return mac;
}

}  // namespace rove::datapath
