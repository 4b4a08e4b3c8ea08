// SPDX-License-Identifier: Apache-2.0
// Where a frame goes: to the uplink, to a member of the mesh, to all, or nowhere, and then why. No I/O.
//
// DESIGN NOTES
// 1. The bridge is a proxy within one subnet (RFC 1027, RFC 4389), and no router: hosts at the uplink find its MAC by
//    ARP and ND for every member's address, members find it as the one that speaks for addresses that no member has.
//    Addresses, hop limits and all that an ICRC covers stay as they are.
// 2. A member sends from its own addresses only, and only what rove speaks: RoCE, echo, reports of multicast groups. So
//    it can neither take another's address nor tell hosts at the uplink where somebody is.
// 3. From the uplink comes what is for a member, and for groups, whose frames go to all members: each takes those of
//    the groups that it has joined.
// Units: bytes; addresses as GIDs.
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

// When a value is added, name it in to_string() too. The first three are of frames that went on, the others of frames
// that were dropped.
enum class Counter : uint8_t {
    kToUplink,
    kToMembers,
    kBetweenMembers,  // of a member that came after others had looked for its address
    kMalformed,       // shorter than its headers say
    kProtocol,        // nothing that goes over the bridge
    kVlan,            // of another VLAN than the uplink's; from a member: tagged
    kSpoofed,         // from a member with an address that is not its own, or from the uplink with a member's
    kNotOurs,         // to a MAC or an address that is nobody's here, or from the uplink with its MAC
    kTooLong,         // more than the uplink carries
    kSegments,        // came in more pieces than one mbuf holds
    kMemberFull,      // the member does not read
    kUplinkFull,      // the uplink takes no more, and the frame cannot wait
    kUplinkDown,      // it has no carrier, or no peer
    kUnresolved,      // nobody at the uplink answers for its address, or too many frames wait for answers
    kNoMbuf,          // the pool is empty
    kCount,
};
const char* to_string(Counter counter);
inline constexpr auto kFirstDrop = Counter::kMalformed;

struct Counters {
    std::array<uint64_t, static_cast<size_t>(Counter::kCount)> values{};
    uint64_t& operator[](Counter counter) { return values[static_cast<size_t>(counter)]; }
};

// Whoever is beyond `subnet` is reached through `address`, which is in it.
struct Gateway {
    wire::Gid address{};
    datapath::Subnet subnet;
};

struct AddressHash {
    size_t operator()(const wire::Gid& address) const;
};

class Forwarding {
  public:
    using Member = uint16_t;  // a number of the caller's
    struct Settings {
        wire::MacAddress mac{};        // the bridge's, on both sides
        std::optional<uint16_t> vlan;  // the uplink's VID; members know none
        size_t most_bytes = 0;         // of an IP packet at the uplink
        std::vector<Gateway> gateways;
    };
    enum class To : uint8_t { kNobody, kUplink, kMember, kAllMembers, kNeighbours };
    struct Way {
        To to = To::kNobody;
        Counter drop = Counter::kNotOurs;  // why kNobody
        Member member = 0;                 // of kMember
        wire::Gid next_hop{};              // of kUplink: whose MAC it gets, or a group
    };

    explicit Forwarding(Settings settings) : settings_(std::move(settings)) {}

    // An address that another member has stays with it.
    void add(Member member, const std::vector<wire::Gid>& addresses);
    void remove(Member member);

    Way from_member(Member member, const Frame& frame) const;
    // kNeighbours: ARP, ND and what is for the bridge itself.
    Way from_uplink(const Frame& frame) const;

    const Settings& settings() const { return settings_; }

  private:
    std::optional<Member> owner_of(const wire::Gid& address) const;
    wire::Gid next_hop(const wire::Gid& address) const;

    const Settings settings_;
    std::unordered_map<wire::Gid, Member, AddressHash> members_;  // by address
};

}  // namespace rove::bridge
