// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "port/port_kind.h"
#include "port/port_name.h"

namespace rove::bridge {

namespace {

constexpr int kBadUsage = 2;

constexpr const char* kAbout =
    "Connects a mesh of processes to a port, which they share, each with its own address.\n"
    "\n"
    "  rove-bridge --port net_af_packet0,iface=eth0\n"
    "  rove-run --config member.toml -- ib_write_bw      with addresses of eth0's subnet on port = \"mesh\"\n"
    "\n"
    "It answers ARP and ND at the port for the addresses of all members, and forwards their frames. A mesh has\n"
    "one bridge.";

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "rove-bridge: %s\n", why.c_str());
    std::exit(kBadUsage);
}

Gateway parse_gateway(const std::string& text) {
    const auto subnet = datapath::parse_subnet(text);
    if (!subnet || text.find('/') == text.npos || datapath::is_multicast(subnet->address))
        refuse("--gateway: got '" + text + "', allowed an address with its subnet, such as 10.0.0.254/24");
    return {subnet->address, *subnet};
}

void check_port(const std::string& port) {
    const datapath::PortKind* const kind = datapath::kind_of(port);
    if (kind == &datapath::mesh_kind)
        refuse("--port: a mesh has no ARP, by which members could be found. Name another port");
    if (kind == &datapath::udp_kind)
        refuse("--port: the sockets of '" + port +
               "' have the kernel's addresses, and members have their own. Allowed: "
               "a port that carries frames, such as interface:NAME or net_af_packet0,iface=NAME");
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options o;
    datapath::DeviceConfig& uplink = o.bridge.uplink;
    CLI::App app{kAbout, "rove-bridge"};
    app.add_option("--port", uplink.port,
                   "the uplink, as in a configuration: interface:NAME, memif:SOCKET, a vdev of DPDK's EAL such as "
                   "net_af_packet0,iface=NAME, or a PCI address")
        ->required()
        ->type_name("PORT");
    app.add_option("--mesh", o.bridge.folder, "folder of the mesh; default: the user's, as for port = \"mesh\"")
        ->type_name("FOLDER");
    std::vector<std::string> gateways;
    app.add_option("--gateway", gateways, "router for addresses outside its subnet; one for each address family")
        ->type_name("ADDRESS/PREFIX");
    uint32_t mtu = 0;
    auto* const mtu_option =
        app.add_option("--mtu", mtu, "path MTU of the members: 256, 512, 1024, 2048 or 4096; default: the port's");
    mtu_option->check(CLI::IsMember({256, 512, 1024, 2048, 4096}))->type_name("BYTES");
    uint16_t vlan = 0;
    auto* const vlan_option = app.add_option("--vlan", vlan, "VLAN of the uplink; members send untagged frames");
    vlan_option->check(CLI::Range(1, 4094))->type_name("VID");
    std::string mac, eal;
    app.add_option("--mac", mac, "MAC address of all members; default: the port's, or a random one")->type_name("MAC");
    app.add_option("--eal", eal, "further EAL arguments, separated by blanks")->type_name("ARGS");
    app.add_flag("-i,--interactive", o.interactive, "show a prompt; try help, ? and the tabulator");
    app.add_option("--cmdline-file", o.cmdline_file, "execute the commands of this file first")->type_name("FILE");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
        std::exit(app.exit(help));
    } catch (const CLI::ParseError& error) {
        refuse(error.what());
    }
    check_port(uplink.port);
    if (mtu_option->count() != 0) o.bridge.mtu = mtu;
    // AF_XDP limits a frame to one page.
    uplink.mtu = datapath::driver_of(uplink.port) == "net_af_xdp" ? 2048 : 4096;
    if (vlan_option->count() != 0) uplink.vlan = vlan;
    if (!mac.empty()) {
        uplink.mac = datapath::parse_mac(mac);
        if (!uplink.mac) refuse("--mac: got '" + mac + "', allowed a unicast MAC address such as 02:00:00:00:00:01");
    }
    for (const std::string& gateway : gateways) o.bridge.gateways.push_back(parse_gateway(gateway));
    std::istringstream words(eal);
    for (std::string word; words >> word;) o.bridge.eal_args.push_back(word);
    std::error_code ignored;
    if (!o.cmdline_file.empty() && !std::filesystem::is_regular_file(o.cmdline_file, ignored))
        refuse("--cmdline-file: no file " + o.cmdline_file);
    return o;
}

}  // namespace rove::bridge
