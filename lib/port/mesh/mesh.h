// SPDX-License-Identifier: Apache-2.0
// The port "mesh" or "mesh:FOLDER": processes that use the same folder are hosts of one network (mesh_folder.h). To
// send to an address, a member connects to the socket of the member that has it. There is no ARP and no switch.
//
// DESIGN NOTES
// 1. Frames are sent one way on a link: from the member that has connected to the member that listens on the named
//    socket. The kernel says who owns the socket behind a name in the folder, but the data that a connecting member
//    sends about itself is not trusted. So no process gets another member's frames. A member that accepts a connection
//    connects back, and each of the two sends over its own link.
// 2. The state that members can cause is bounded. A peer exists only for a name that is in the folder, and the number
//    of its TX target is freed when no path uses it. The number of links is bounded for each user, and that of
//    handshakes as link_port.h describes.
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
    MeshPort(uint16_t id, const PortEnvironment& environment) : LinkPort(id, environment) {}
    // Becomes a member. If `config` has no addresses, free ones are chosen and written there. Returns false, with the
    // reason in `*error`, if the folder cannot be used or another member has an address.
    bool open(DeviceConfig& config, std::string* error);
    // Becomes the bridge of the mesh in `folder`, to a network of this path MTU (MeshFolder::claim_bridge()). Frames to
    // addresses that no member has are sent to `mac`. The LinkObserver of a bridge gets a member's frames only once it
    // can send to that member, and only from links of the user who owns the member's socket.
    bool open_as_bridge(const std::string& folder, const wire::MacAddress& mac, uint32_t mtu, std::string* error);
    // Returns the addresses of the member of this name.
    std::vector<wire::Gid> addresses_of(const std::string& member) const;

    void start() override;
    void stop() override;
    void close() override;

    bool resolves_neighbours() const override { return true; }
    std::optional<ResolvedNextHop> find(const wire::Gid& neighbour, int timeout_ms) override;
    void resolve_all() override;
    // Returns the path MTU of the bridge if there is one, because it may lead to networks that carry less.
    uint32_t path_mtu() const override { return folder_->bridge_mtu().value_or(Port::path_mtu()); }
    void after_fork_in_child() override { folder_->after_fork_in_child(); }

  private:
    // Another member to which we send. It may have died, while paths to it are still in use.
    struct Peer {
        std::optional<uint16_t> outlet;
        std::shared_ptr<transport::NextHop> next_hop;  // null if we have never been connected
        Link* link = nullptr;                          // the link that carries its frames, or null
        bool connecting = false;
        int lacked = 0;      // errno of the resource that this process lacked for a link, or 0
        uint32_t tries = 0;  // consecutive attempts that failed for this reason
        std::chrono::steady_clock::time_point tried{};  // time of the last attempt to connect

        bool has_paths() const { return next_hop.use_count() > 1; }
    };
    // The interval between attempts to connect to a member that does not complete the handshake, or that was just lost.
    static constexpr std::chrono::milliseconds kTryAgain{50}, kSeldomTryAgain{500};
    // The bells that the links of one user's processes to us share.
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
    std::map<std::string, Peer> peers_;  // keyed by name
    std::map<uid_t, User> users_;        // users with links to us
    int told_error_ = 0;                 // the last error that was reported
    std::condition_variable_any changed_;
};

}  // namespace rove::datapath
