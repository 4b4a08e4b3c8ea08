// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/rtnetlink.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/text.h"

namespace rove::datapath {

namespace {

constexpr size_t kAnswerBytes = 8192;  // largest datagram; the kernel uses this size for dumps
constexpr uint16_t kKnown =
    // States in which the address is known.
    NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;
constexpr unsigned kCarrier = 1 << 16;  // IFF_LOWER_UP, which only the kernel's own <linux/if.h> has
constexpr uint8_t kIpv4Bits = 32, kIpv6Bits = 128;

uint8_t family_of(const wire::Gid& address) {
    return wire::is_ipv4_mapped(address) ? AF_INET : AF_INET6;
}

// Returns the address as the kernel has it, in 4 or 16 bytes.
std::span<const uint8_t> bytes_of(const wire::Gid& address) {
    return std::span<const uint8_t>(address).subspan(wire::is_ipv4_mapped(address) ? 12 : 0);
}

std::optional<wire::Gid> gid_of(uint8_t family, std::span<const uint8_t> bytes) {
    wire::Gid gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    if (bytes.size() != (family == AF_INET ? 4u : 16u)) return std::nullopt;
    std::copy(bytes.begin(), bytes.end(), gid.end() - static_cast<ptrdiff_t>(bytes.size()));
    return gid;
}

// A message to be sent, with a body and attributes.
class Request {
  public:
    template <class Body>
    Request(uint16_t type, uint16_t flags, const Body& body) {
        header().nlmsg_type = type;
        header().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
        std::memcpy(NLMSG_DATA(bytes_.data()), &body, sizeof body);
        header().nlmsg_len = NLMSG_LENGTH(sizeof body);
    }
    void add(uint16_t type, std::span<const uint8_t> value) {
        rtattr attribute{.rta_len = static_cast<uint16_t>(RTA_LENGTH(value.size())), .rta_type = type};
        char* const at = bytes_.data() + NLMSG_ALIGN(header().nlmsg_len);
        std::memcpy(at, &attribute, sizeof attribute);
        std::memcpy(at + RTA_LENGTH(0), value.data(), value.size());
        header().nlmsg_len = NLMSG_ALIGN(header().nlmsg_len) + RTA_ALIGN(attribute.rta_len);
    }
    void add(uint16_t type, uint32_t value) { add(type, {reinterpret_cast<const uint8_t*>(&value), sizeof value}); }
    const char* data() const { return bytes_.data(); }
    size_t size() const { return header().nlmsg_len; }

  private:
    nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }
    const nlmsghdr& header() const { return *reinterpret_cast<const nlmsghdr*>(bytes_.data()); }

    alignas(nlmsghdr) std::array<char, 256> bytes_{};
};

// Returns the body of a message from the kernel. each_attribute() passes the type and the bytes of each attribute to
// `give`.
template <class Body>
const Body& body_of(const nlmsghdr& message) {
    return *static_cast<const Body*>(NLMSG_DATA(&message));
}
template <class Body>
void each_attribute(const nlmsghdr& message, auto&& give) {
    auto* at =
        reinterpret_cast<const rtattr*>(static_cast<const char*>(NLMSG_DATA(&message)) + NLMSG_ALIGN(sizeof(Body)));
    auto left = static_cast<int>(message.nlmsg_len - NLMSG_SPACE(sizeof(Body)));
    for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
        give(at->rta_type & NLA_TYPE_MASK,
             std::span<const uint8_t>(static_cast<const uint8_t*>(RTA_DATA(at)), RTA_PAYLOAD(at)));
}

uint32_t number(std::span<const uint8_t> bytes) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
    return value;
}

int open_socket(uint32_t groups) {
    const int file = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | (groups != 0 ? SOCK_NONBLOCK : 0), NETLINK_ROUTE);
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = groups;
    if (file < 0 || bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return file;
    ::close(file);
    return -1;
}

// Passes the messages in one datagram to `give`. Returns false if the datagram was the last of an answer.
bool each_message(const char* data, size_t size, auto&& give) {
    auto left = static_cast<unsigned>(size);
    bool more = true;
    for (auto* at = reinterpret_cast<const nlmsghdr*>(data); NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
        if (at->nlmsg_type == NLMSG_DONE || at->nlmsg_type == NLMSG_ERROR) return false;
        give(*at);
        more = (at->nlmsg_flags & NLM_F_MULTI) != 0;
    }
    return more;
}

// Sends the request and passes the messages of the answer to `give`. Each request has a socket of its own, so no thread
// waits for the answer to another.
void ask(const Request& request, auto&& give) {
    const FileDescriptor file(open_socket(0));
    if (!file.is_open() || send(file.get(), request.data(), request.size(), 0) < 0) return;
    alignas(nlmsghdr) std::array<char, kAnswerBytes> answer;
    for (bool more = true; more;) {
        const ssize_t size = recv(file.get(), answer.data(), answer.size(), 0);
        if (size < 0 && errno == EINTR) continue;
        more = size > 0 && each_message(answer.data(), static_cast<size_t>(size), give);
    }
}

Request neighbour_request(uint16_t type, uint16_t flags, unsigned index, const wire::Gid& address, uint16_t state,
                          uint8_t use) {
    ndmsg body{};
    body.ndm_family = family_of(address);
    body.ndm_ifindex = static_cast<int>(index);
    body.ndm_state = state;
    body.ndm_flags = use;
    Request request(type, flags, body);
    request.add(NDA_DST, bytes_of(address));
    return request;
}

Rtnetlink::Changes::Neighbour read_neighbour(const nlmsghdr& message) {
    const auto& body = body_of<ndmsg>(message);
    Rtnetlink::Changes::Neighbour neighbour;
    std::optional<wire::MacAddress> mac;
    each_attribute<ndmsg>(message, [&](int type, std::span<const uint8_t> value) {
        if (type == NDA_DST) neighbour.address = gid_of(body.ndm_family, value).value_or(wire::Gid{});
        if (type == NDA_LLADDR && value.size() == wire::MacAddress{}.size())
            std::copy(value.begin(), value.end(), mac.emplace().begin());
    });
    if (message.nlmsg_type == RTM_NEWNEIGH && (body.ndm_state & kKnown) != 0) neighbour.mac = mac;
    return neighbour;
}

}  // namespace

std::optional<Rtnetlink> Rtnetlink::open(const std::string& interface, std::string* error) {
    Rtnetlink opened;
    opened.index_ = if_nametoindex(interface.c_str());
    if (opened.index_ == 0) {
        *error = "there is no such interface, but";
        struct if_nameindex* const all = if_nameindex();
        for (const auto* at = all; at != nullptr && at->if_index != 0; ++at) *error += std::string(" ") + at->if_name;
        if (all != nullptr) if_freenameindex(all);
        return std::nullopt;
    }
    opened.changes_ = FileDescriptor(open_socket(RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR));
    if (!opened.changes_.is_open()) {
        *error = "the kernel's rtnetlink: " + reason_of(errno);
        return std::nullopt;
    }
    return opened;
}

std::optional<Rtnetlink::Link> Rtnetlink::link() const {
    ifinfomsg body{};
    body.ifi_index = static_cast<int>(index_);
    std::optional<Link> link;
    ask(Request(RTM_GETLINK, 0, body), [&](const nlmsghdr& message) {
        if (message.nlmsg_type != RTM_NEWLINK) return;
        const auto& told = body_of<ifinfomsg>(message);
        link.emplace();
        link->is_ethernet = told.ifi_type == ARPHRD_ETHER;
        link->is_up = (told.ifi_flags & IFF_UP) != 0 && (told.ifi_flags & kCarrier) != 0;
        each_attribute<ifinfomsg>(message, [&](int type, std::span<const uint8_t> value) {
            if (type == IFLA_MTU) link->mtu = number(value);
            if (type == IFLA_ADDRESS && value.size() == link->mac.size())
                std::copy(value.begin(), value.end(), link->mac.begin());
        });
    });
    return link;
}

std::vector<Subnet> Rtnetlink::addresses() const {
    std::vector<Subnet> found;
    ask(Request(RTM_GETADDR, NLM_F_DUMP, ifaddrmsg{}), [&](const nlmsghdr& message) {
        const auto& told = body_of<ifaddrmsg>(message);
        if (message.nlmsg_type != RTM_NEWADDR || told.ifa_index != index_) return;
        if (told.ifa_family != AF_INET && told.ifa_family != AF_INET6) return;
        uint32_t flags = told.ifa_flags;
        std::optional<wire::Gid> local, address;
        each_attribute<ifaddrmsg>(message, [&](int type, std::span<const uint8_t> value) {
            if (type == IFA_FLAGS) flags = number(value);
            if (type == IFA_LOCAL) local = gid_of(told.ifa_family, value);
            if (type == IFA_ADDRESS) address = gid_of(told.ifa_family, value);
        });
        if ((flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) != 0 && (flags & IFA_F_OPTIMISTIC) == 0) return;
        if (!local) local = address;  // they differ on a link to a single peer
        const int unused = told.ifa_family == AF_INET ? kIpv6Bits - kIpv4Bits : 0;
        if (local) found.push_back({*local, static_cast<uint8_t>(told.ifa_prefixlen + unused)});
    });
    return found;
}

std::optional<wire::Gid> Rtnetlink::next_hop(const wire::Gid& destination) const {
    rtmsg body{};
    body.rtm_family = family_of(destination);
    body.rtm_dst_len = body.rtm_family == AF_INET ? kIpv4Bits : kIpv6Bits;
    Request request(RTM_GETROUTE, 0, body);
    request.add(RTA_DST, bytes_of(destination));
    request.add(RTA_OIF, index_);
    std::optional<wire::Gid> hop;
    ask(request, [&](const nlmsghdr& message) {
        const auto& told = body_of<rtmsg>(message);
        if (message.nlmsg_type != RTM_NEWROUTE || told.rtm_type != RTN_UNICAST) return;
        hop = destination;
        uint32_t out = 0;
        each_attribute<rtmsg>(message, [&](int type, std::span<const uint8_t> value) {
            if (type == RTA_OIF) out = number(value);
            if (type == RTA_GATEWAY) hop = gid_of(told.rtm_family, value);
            if (type == RTA_VIA && value.size() > sizeof(uint16_t)) {  // struct rtvia: an IPv4 route by an IPv6 gateway
                uint16_t family;
                std::memcpy(&family, value.data(), sizeof family);
                hop = gid_of(static_cast<uint8_t>(family), value.subspan(sizeof family));
            }
        });
        if (out != index_) hop.reset();
    });
    return hop;
}

std::optional<wire::MacAddress> Rtnetlink::neighbour(const wire::Gid& address) const {
    std::optional<wire::MacAddress> mac;
    ask(neighbour_request(RTM_GETNEIGH, 0, index_, address, 0, 0), [&](const nlmsghdr& message) {
        if (message.nlmsg_type == RTM_NEWNEIGH) mac = read_neighbour(message).mac;
    });
    return mac;
}

void Rtnetlink::use(const wire::Gid& neighbour) const {
    ask(neighbour_request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, index_, neighbour, 0, NTF_USE),
        [](const nlmsghdr&) {});
}

void Rtnetlink::probe(const wire::Gid& neighbour) const {
    ask(neighbour_request(RTM_NEWNEIGH, NLM_F_REPLACE | NLM_F_ACK, index_, neighbour, NUD_PROBE, 0),
        [](const nlmsghdr&) {});
}

Rtnetlink::Changes Rtnetlink::take_changes() const {
    Changes changes;
    const auto take = [&](const nlmsghdr& message) {
        switch (message.nlmsg_type) {
            case RTM_NEWLINK:
            case RTM_DELLINK:
                changes.link |= body_of<ifinfomsg>(message).ifi_index == static_cast<int>(index_);
                break;
            case RTM_NEWADDR:
            case RTM_DELADDR:
                changes.addresses |= body_of<ifaddrmsg>(message).ifa_index == index_;
                break;
            case RTM_NEWNEIGH:
            case RTM_DELNEIGH:
                if (body_of<ndmsg>(message).ndm_ifindex == static_cast<int>(index_))
                    changes.neighbours.push_back(read_neighbour(message));
                break;
            default:
                break;
        }
    };
    alignas(nlmsghdr) std::array<char, kAnswerBytes> read;
    for (;;) {
        const ssize_t size = recv(changes_.get(), read.data(), read.size(), 0);
        if (size > 0) {
            each_message(read.data(), static_cast<size_t>(size), take);
        } else if (size < 0 && errno == ENOBUFS) {  // the kernel had no room for the changes
            changes.incomplete = true;
        } else if (size == 0 || errno != EINTR) {
            return changes;
        }
    }
}

void Rtnetlink::close() {
    changes_ = FileDescriptor();
}

}  // namespace rove::datapath
