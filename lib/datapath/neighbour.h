// SPDX-License-Identifier: Apache-2.0
// Who is where on a device's link: the table of neighbours, and what is answered to ARP, ND and echo requests.
//
// A table of bounded size under a mutex: it is asked when a path is resolved and written when a discovery frame
// arrives, never for a RoCE packet. What strangers may do: a request to us makes an entry for its sender if it is on
// our link and there is room; an answer only fills an entry that is being resolved or renews one that is known.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/address.h"
#include "datapath/config.h"
#include "datapath/neighbour_packets.h"

namespace rove::datapath {

// When a value is added, name it in to_string() too.
enum class NeighbourCounter : uint8_t {
    kSolicitsAnswered,
    kEchosAnswered,
    kAdvertisesTaken,
    kAdvertisesUnsolicited,  // ignored: nobody asked and nobody by that address is known
    kMoved,                  // a known neighbour came with another MAC
    kConflicts,              // somebody else claims one of our addresses
    kTableFull,              // a sender was not remembered
    kMalformed,
    kIgnored,  // not for us, or nothing that we speak
    kCount,
};
const char* to_string(NeighbourCounter counter);

class Neighbours {
  public:
    static constexpr size_t kMaxEntries = 4096;  // about 400 KiB; a subnet of a /20 all talking to us

    Neighbours(const wire::MacAddress& mac, std::optional<uint16_t> vlan, std::vector<Subnet> own,
               std::optional<wire::Gid> gateway_ipv4, std::optional<wire::Gid> gateway_ipv6);
    void add_static(const wire::Gid& address, const wire::MacAddress& mac);

    bool owns(const wire::Gid& address) const;
    // Whom to ask for the MAC of a frame to `address`: itself on our link, else the gateway. Without one, itself.
    wire::Gid next_hop(const wire::Gid& address) const;
    std::optional<wire::MacAddress> lookup(const wire::Gid& neighbour);
    // Makes an entry to be resolved and writes the question to `out` (kMaxDiscoveryBytes). Returns its bytes.
    size_t ask(const wire::Gid& neighbour, uint8_t* out);
    // Waits until the neighbour is known, at most `timeout_ms`.
    std::optional<wire::MacAddress> wait(const wire::Gid& neighbour, int timeout_ms);

    // Looks at a frame that is not RoCE. An answer, if one is due, replaces the frame in place: `room` has the frame at
    // its start and at least kMaxDiscoveryBytes. Returns the bytes to send, 0 for none.
    size_t handle(std::span<uint8_t> room, size_t frame_bytes);

    // Whom we announce ourselves as when the link comes up.
    std::vector<Speaker> speakers() const;
    // Neighbours whose MAC changed since the last call.
    std::vector<wire::Gid> take_moved();

    struct Entry {
        std::optional<wire::MacAddress> mac;  // none: being resolved
        bool fixed = false;
    };
    std::map<wire::Gid, Entry> entries() const;
    std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> counters() const;

  private:
    void count(NeighbourCounter counter) { ++counters_[static_cast<size_t>(counter)]; }
    bool on_link(const wire::Gid& address) const;
    void learn(const wire::Gid& address, const wire::MacAddress& mac, bool may_add);
    Speaker speaker(const wire::Gid& address) const { return {mac_, address, vlan_}; }
    const Subnet* subnet_of(const wire::Gid& address) const;

    const wire::MacAddress mac_;
    const std::optional<uint16_t> vlan_;  // VID
    const std::vector<Subnet> own_;
    const std::optional<wire::Gid> gateway_ipv4_, gateway_ipv6_;

    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable learnt_;
    std::map<wire::Gid, Entry> entries_;
    std::vector<wire::Gid> moved_;
    std::array<uint64_t, static_cast<size_t>(NeighbourCounter::kCount)> counters_{};
};

}  // namespace rove::datapath
