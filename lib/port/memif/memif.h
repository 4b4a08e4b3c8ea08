// SPDX-License-Identifier: Apache-2.0
// The port "memif:SOCKET[,role=server][,id=N][,secret=TEXT]", which uses the memif protocol, version 2.0, with one
// other process. Frames are built and read in place. SOCKET is a path, or "@NAME", which leaves nothing in the file
// system. The peer may be rove, DPDK's net_memif or VPP.
#pragma once

#include <string>

#include "base/socket_file.h"
#include "port/device_config.h"
#include "port/memif/link_port.h"

namespace rove::datapath {

class MemifPort final : public LinkPort {
  public:
    MemifPort(uint16_t id, const DeviceConfig& config, const PortEnvironment& environment);
    // Creates the socket if this is a server. Returns false if that fails, with the reason in `*error`.
    bool open(std::string* error);

    // Listens, or connects to the server. A client tries again until there is a server.
    void start() override;
    void stop() override;
    void close() override;
    bool wants_restart(bool) const override { return !is_server_ && !is_held() && !ready(); }
    void restart() override { start(); }
    bool needs_polling() const override { return wants_restart(true); }
    void after_fork_in_child() override;

  private:
    bool is_up() override;
    bool connected(Link& link) override;
    void disconnected(Link&) override {}
    void accept();
    bool has_peer() const;
    MemifConnection::Settings own_settings() const;

    std::string socket_path_, secret_;
    uint32_t interface_id_ = 0;
    bool is_server_ = false;
    int listener_ = -1;
    std::optional<SocketFile> socket_file_;  // the listener's file, if it has a name in the file system
};

}  // namespace rove::datapath
