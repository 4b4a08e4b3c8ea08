// SPDX-License-Identifier: Apache-2.0
// "mesh" or "mesh:FOLDER": processes that use the same folder are hosts of one network (mesh_folder.h). To send to an
// address is to connect to the socket of the member that has it: no ARP, no switch.
//
// DESIGN NOTES
// 1. Frames go one way on a link: from the member that has connected to the one that listens on the named socket. The
//    kernel says whose socket a name in the folder leads to; what a member that has connected says of itself is not
//    believed. So no process gets another member's frames. A member that is connected to connects back, and each of a
//    pair sends by its own link.
// 2. What members can make grow is bounded. There is a peer only for a name that stands in the folder, and its outlet's
//    number comes back when no path leads there. Links are bounded for each user, handshakes as link_port.h says.
#pragma once

#include <bitset>
#include <chrono>
#include <condition_variable>
#include <map>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "port/memif/bells.h"
#include "port/memif/link_port.h"
#include "port/memif/shared_memory.h"
#include "port/mesh/mesh_folder.h"

namespace rove::datapath {

class MeshPort final : public LinkPort {
  public:
    MeshPort(uint16_t id, const Environment& environment) : LinkPort(id, environment) {}
    // Becomes a member. Without addresses in `config`, those that are free are written there. Returns false, and says
    // why in `*error`, if the folder cannot be used or an address is another's.
    bool open(DeviceConfig& config, std::string* error);
    // Becomes the bridge of the mesh in `folder`, to a network of this path MTU (MeshFolder::claim_bridge()): frames
    // to addresses that no member has go to `mac`. The user of a bridge has a member's frames only once it can send to
    // that member, and only from links of the user who owns the member's socket.
    bool open_as_bridge(const std::string& folder, const wire::MacAddress& mac, uint32_t mtu, std::string* error);
    // Returns the addresses of the member of this name.
    std::vector<wire::Gid> addresses_of(const std::string& member) const;

    void start() override;
    void stop() override;
    void close() override;

    bool resolves_neighbours() const override { return true; }
    std::optional<ResolvedNextHop> find(const wire::Gid& neighbour, int timeout_ms) override;
    void resolve_all() override;
    // A bridge may lead to networks that carry less.
    uint32_t path_mtu() const override { return folder_->bridge_mtu().value_or(Port::path_mtu()); }
    void after_fork_in_child() override { folder_->after_fork_in_child(); }

  private:
    // Another member that we send to, also one that has gone: paths to it may still be in use.
    struct Peer {
        std::optional<uint16_t> outlet;
        std::shared_ptr<transport::NextHop> next_hop;  // null: we have never been connected
        Link* link = nullptr;                          // that its frames go through; null: none
        bool connecting = false;
        int lacked = 0;                                 // errno of what this process lacked for a link, 0 if nothing
        uint32_t tries = 0;                             // that failed so, one after the other
        std::chrono::steady_clock::time_point tried{};  // when we last connected to it

        bool has_paths() const { return next_hop.use_count() > 1; }
    };
    // Between two tries to connect to a member that does not finish the handshake, or that was just lost.
    static constexpr std::chrono::milliseconds kTryAgain{50}, kSeldomTryAgain{500};
    // The links of one user's processes to us share these.
    struct User {
        FileDescriptor file;  // the page of bells
        SharedMapping bells;
        std::bitset<BellPage::kBells> used;
    };

    bool is_bridge() const { return folder_->name() == MeshFolder::kBridge; }
    bool is_up() override;
    bool connected(Link& link) override;
    bool connected_to(Link& link);
    bool connected_from(Link& link);
    void disconnected(Link& link) override;
    void accept();
    size_t most_links_of(uid_t user) const;
    std::optional<MemifConnection::Settings> settings_for(const ucred& user);
    void connect_to_all();
    void look_after_peers();
    void forget_unused();
    Peer* peer_of(const wire::Gid& neighbour);
    Peer* bridge();
    Peer& reach(const std::string& member, std::chrono::milliseconds again = kTryAgain);
    void connect(const std::string& member, Peer& peer);
    void lack(const std::string& member, Peer& peer, const std::string& why, int error);
    MemifConnection::Settings own_settings(MemifConnection::Role role) const;

    std::optional<MeshFolder> folder_;
    bool started_ = false;
    std::map<std::string, Peer> peers_;  // by name
    std::map<uid_t, User> users_;        // that have links to us
    int told_error_ = 0;                 // the last one of which a line was written
    std::condition_variable_any changed_;
};

}  // namespace rove::datapath
