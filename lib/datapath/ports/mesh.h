// SPDX-License-Identifier: Apache-2.0
// "mesh" or "mesh:FOLDER": processes that use the same folder are hosts of one network (mesh_folder.h), and each pair
// that talks has a link of its own. To send to an address is to connect to the socket of who has it: no ARP, no switch.
#pragma once

#include <condition_variable>
#include <map>
#include <string>
#include <vector>

#include "datapath/config.h"
#include "datapath/ports/link_port.h"
#include "datapath/ports/mesh_folder.h"

namespace rove::datapath {

class MeshPort final : public LinkPort {
  public:
    MeshPort(uint16_t id, const Environment& environment) : LinkPort(id, environment) {}
    // Becomes a member. Without addresses in `config`, those that are free are written there. False, and says why in
    // `*error`: the folder cannot be used, or an address is another's.
    bool open(DeviceConfig& config, std::string* error);
    // Becomes the bridge of the mesh in `folder`, to a network of this path MTU (MeshFolder::claim_bridge()): frames
    // to addresses that no member has go to `mac`.
    bool open_as_bridge(const std::string& folder, const wire::MacAddress& mac, uint32_t mtu, std::string* error);
    // Of the member of this name.
    std::vector<wire::Gid> addresses_of(const std::string& member) const;

    void start() override;
    void stop() override;
    void close() override;

    bool finds_neighbours() const override { return true; }
    std::optional<Way> find(const wire::Gid& neighbour, int timeout_ms) override;
    void find_all() override;
    // A bridge may lead to networks that carry less.
    uint32_t path_mtu() const override { return folder_->bridge_mtu().value_or(Port::path_mtu()); }
    void after_fork_in_child() override;

  private:
    // Another member, also one that has gone: paths to it may still be in use.
    struct Peer {
        uint16_t outlet = 0;
        std::shared_ptr<transport::NextHop> next_hop;  // null: we have never been connected
        Link* link = nullptr;                          // that its frames go through; null: none
        bool connecting = false;
    };

    bool is_up() override { return started_; }
    void connected(Link& link) override;
    void disconnected(Link& link) override;
    void replace(const std::string& member, Peer& peer);
    void accept();
    void connect_to_all();
    Peer* peer_of(const wire::Gid& neighbour);
    Peer* bridge();
    Peer& reach(const std::string& member);
    void connect(const std::string& member, Peer& peer);
    MemifConnection::Settings own_settings(MemifConnection::Role role) const;

    std::optional<MeshFolder> folder_;
    bool started_ = false;
    std::map<std::string, Peer> peers_;  // by name
    std::condition_variable_any changed_;
};

}  // namespace rove::datapath
