// SPDX-License-Identifier: Apache-2.0
// Decides where a frame goes: to the uplink, to one member of the mesh, to all, or nowhere, with the reason. There is
// no I/O here. Units are bytes; addresses are GIDs.
//
// DESIGN NOTES
// 1. The bridge is a proxy within one subnet (RFC 1027, RFC 4389) and no router. Hosts at the uplink find its MAC by
//    ARP and ND for every member's address; members find it as the owner of all addresses that no member has.
//    Addresses, hop limits and everything that the ICRC covers stay unchanged.
// 2. A member may send only from its own addresses, and only the protocols that rove speaks: RoCE, echo, and reports of
//    multicast groups. It can neither take another member's address nor announce a wrong location of an address to
//    hosts at the uplink.
// 3. From the uplink the bridge forwards frames for a member, and frames for multicast groups. The latter go to all
//    members, and each keeps the frames of its own groups.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "bridge/frame.h"
#include "link/address.h"
#include "wire/frame.h"

namespace rove::bridge {

// Where frames went. The first three values count forwarded frames, and the others dropped ones. A new value needs a
// name in to_string() too.
enum class Counter : uint8_t {
    kToUplink,
    kToMembers,
    kBetweenMembers,  // to a member that joined after the sender looked for its address
    kMalformed,       // shorter than its headers state
    kProtocol,        // a protocol that the bridge does not forward
    kVlan,            // from the uplink: tagged with another VLAN; from a member: tagged
    kSpoofed,         // from a member with an address that it does not own, or from the uplink with a member's
    kNotOurs,         // to a MAC or an address that no member has, or from the uplink with the bridge's MAC
    kTooLong,         // longer than the uplink carries
    kSegments,        // arrived in more segments than one mbuf holds
    kMemberFull,      // the member does not read
    kUplinkFull,      // the uplink is full, and the frame cannot wait
    kUplinkDown,      // no carrier, or no peer
    kUnresolved,      // no host at the uplink answers for its address, or too many frames wait for answers
    kNoMbuf,          // the mbuf pool is empty
    kCount,
};
const char* to_string(Counter counter);
inline constexpr auto kFirstDrop = Counter::kMalformed;

struct Counters {
    std::array<uint64_t, static_cast<size_t>(Counter::kCount)> values{};
    uint64_t& operator[](Counter counter) { return values[static_cast<size_t>(counter)]; }
};

// Addresses outside `subnet` are reached through `address`, which lies in it.
struct Gateway {
    wire::Gid address{};
    datapath::Subnet subnet;
};

struct AddressHash {
    size_t operator()(const wire::Gid& address) const;
};

class Forwarding {
  public:
    using Member = uint16_t;  // a number that the caller chooses
    struct Settings {
        wire::MacAddress mac{};        // the bridge's MAC on both sides
        std::optional<uint16_t> vlan;  // the uplink's VID; members use no VLAN
        size_t most_bytes = 0;         // the largest IP packet that the uplink carries
        std::vector<Gateway> gateways;
    };
    enum class To : uint8_t { kNobody, kUplink, kMember, kAllMembers, kNeighbours };
    struct Way {
        To to = To::kNobody;
        Counter drop = Counter::kNotOurs;  // the reason for kNobody
        Member member = 0;                 // for kMember
        wire::Gid next_hop{};              // for kUplink: the next hop whose MAC is used, or a group
    };

    explicit Forwarding(Settings settings) : settings_(std::move(settings)) {}

    // Adds a member's addresses. An address that another member owns is skipped.
    void add(Member member, const std::vector<wire::Gid>& addresses);
    void remove(Member member);

    Way from_member(Member member, const Frame& frame) const;
    // Returns kNeighbours for ARP, ND and frames to the bridge itself.
    Way from_uplink(const Frame& frame) const;

    const Settings& settings() const { return settings_; }

  private:
    std::optional<Member> owner_of(const wire::Gid& address) const;
    wire::Gid next_hop(const wire::Gid& address) const;

    const Settings settings_;
    std::unordered_map<wire::Gid, Member, AddressHash> members_;  // indexed by address
};

}  // namespace rove::bridge
