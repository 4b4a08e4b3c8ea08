// SPDX-License-Identifier: Apache-2.0
// Commands that create ids, give them addresses, and report their properties.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdmacm/commands.h"
#include "rdmacm/state.h"

namespace rove::verbs::ucma {

namespace {

// The kernel does not number rove's devices, so librdmacm identifies them by the GUID.
constexpr uint32_t kNoDeviceIndex = UINT32_MAX;
constexpr uint8_t kTwoSubnets = 64;   // hop limit
constexpr uint8_t kRate100Gbps = 16;  // IB_RATE_100_GBPS; a virtual port has no rate of its own
constexpr uint8_t kExactly = 2;       // IBTA 15.2.5.16: selectors of path records
constexpr sa_family_t kAfIb = 27;
constexpr int kPortsTried = 64;  // attempts with ports that are free here and may be taken in the kernel

struct SockaddrIb {  // struct sockaddr_ib of <rdma/ib.h>
    uint16_t family;
    uint16_t pkey;
    uint32_t flow_info;
    uint8_t gid[16];
    uint64_t service_id, service_mask, scope_id;
};

struct PathRecord {  // IBTA 15.2.5.16, in network byte order
    uint64_t service_id;
    uint8_t dgid[16], sgid[16];
    uint16_t dlid, slid;
    uint32_t flow_label_hop_limit;
    uint8_t traffic_class, reversible_paths;
    uint16_t pkey, qos_class_sl;
    uint8_t mtu, rate, packet_lifetime, preference;
    uint8_t reserved[6];
};
static_assert(sizeof(PathRecord) == sizeof(ib_path_rec_data::path_rec));

}  // namespace

Id* RdmaCmServer::find(const std::shared_ptr<Channel>& channel, uint32_t handle, int* error) {
    Id* const id = handle < ids_.size() ? ids_[handle].get() : nullptr;
    const bool is_known = id != nullptr && id->is_known.load(std::memory_order_acquire);
    *error = !is_known ? ENOENT : id->channel != channel ? EINVAL : 0;
    return *error == 0 ? id : nullptr;
}

// Uses the lowest free handle, as the kernel does: librdmacm finds ids by it in a table of 65536 entries.
Id& RdmaCmServer::make_id(std::shared_ptr<Channel> channel) {
    if (free_handles_.empty()) {
        free_handles_.insert(static_cast<uint32_t>(ids_.size()));
        ids_.emplace_back();
    }
    const uint32_t handle = free_handles_.extract(free_handles_.begin()).value();
    ids_[handle] = std::make_unique<Id>();
    ids_[handle]->handle = handle;
    set_channel(*ids_[handle], std::move(channel));
    return *ids_[handle];
}

void RdmaCmServer::set_channel(Id& id, std::shared_ptr<Channel> channel) {
    if (id.channel != nullptr) id.channel->ids.erase(&id);
    id.channel = std::move(channel);
    id.channel->ids.insert(&id);
}

uint32_t RdmaCmServer::destroy(Id& id) {
    // Requests that the program has not seen are destroyed with their listener.
    std::vector<Id*> requests;
    if (id.events_waiting.load(std::memory_order_acquire) != 0) {
        id.channel->events.drop([&](const Event& event) {
            if (event.id != &id) return false;
            if (event.request != nullptr) requests.push_back(event.request);
            return true;
        });
    }
    const uint32_t reported = id.events_reported + destroy_twin(id);
    if (id.connection != cm::Id::kNone) {
        connections_.erase(static_cast<uint64_t>(id.connection));
        cm_->destroy(now_ns(), id.connection);
    }
    forget_peer(id);
    for (const auto& multicast : id.multicasts) multicasts_.erase(multicast->handle);
    if (id.state == IdState::kResolving) stop_resolution(id);
    set_qpn(id, 0);
    id.channel->ids.erase(&id);
    if (id.has_port) ports_.release(id.port_space, id.source.port(), &id);
    free_handles_.insert(id.handle);
    ids_[id.handle].reset();
    for (Id* request : requests) destroy(*request);
    return reported;
}

int RdmaCmServer::create_id(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_create_id>(in);
    if (header.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    ibv_qp_type type = static_cast<ibv_qp_type>(command.qp_type);
    switch (command.ps) {
        case RDMA_PS_TCP:
            type = IBV_QPT_RC;
            break;
        case RDMA_PS_UDP:
        case RDMA_PS_IPOIB:
            type = IBV_QPT_UD;
            break;
        case RDMA_PS_IB:
            break;
        default:
            return EINVAL;
    }
    Id& id = make_id(channel);
    id.uid = command.uid;
    id.port_space = command.ps;
    id.qp_type = type;
    make_twin(id);
    const int error = respond(command.response, header, rdma_ucm_create_id_resp{.id = id.handle});
    if (error != 0) destroy(id);
    return error;
}

int RdmaCmServer::destroy_id(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_destroy_id>(in);
    if (header.out < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    return respond(command.response, header, rdma_ucm_destroy_id_resp{.events_reported = destroy(*id)});
}

int RdmaCmServer::bind(Id& id, const SocketAddress& address) {
    if (id.state != IdState::kIdle || !address.is_ip()) return EINVAL;
    std::optional<Local> local;
    // An id bound to a loopback address is bound to no device, as in the kernel, and listens on all of them. libfabric
    // searches for a device, and would take one found here for a device that others reach at this address.
    if (!address.is_any() && !address.is_loopback()) {
        if (const int error = need_devices(); error != 0) return error;
        local = find_local(interfaces_, address);
        if (!local) {
            const int error = id.twin ? bind_twin(id, address) : EADDRNOTAVAIL;
            id.belongs_to_kernel = error == 0;
            return error;
        }
    }
    Ports::Binding binding{.address = address, .reuse = id.reuse_address, .ipv6_only = id.ipv6_only};
    for (int tried = 0;; ++tried) {
        if (const int error = ports_.bind(id.port_space, binding, &id); error != 0) return error;
        if (!address.is_any() || !id.twin) break;
        // For a wildcard the kernel returns either error if another process has the port.
        const int error = bind_twin(id, binding.address);
        const bool is_taken = error == EADDRINUSE || error == EADDRNOTAVAIL;
        if (error != 0 && !is_taken) destroy_twin(id);  // the kernel has no such addresses
        if (!is_taken) break;
        ports_.release(id.port_space, binding.address.port(), &id);
        if (address.port() != 0 || tried == kPortsTried) return error;
        binding.address = address;
    }
    id.source = binding.address;
    id.has_port = true;
    id.local = local;
    id.state = IdState::kBound;
    return 0;
}

int RdmaCmServer::bind_ip(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_bind_ip>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    return id == nullptr ? error : bind(*id, SocketAddress(&command.addr, sizeof(command.addr)));
}

// AF_IB is refused, as by kernels before 3.11. librdmacm tries it once, and uses IP addresses afterwards.
int RdmaCmServer::bind(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_bind>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    return bind(*id, SocketAddress(&command.addr, std::min<size_t>(command.addr_size, sizeof(command.addr))));
}

int RdmaCmServer::resolve(Id& id, const SocketAddress& source, const SocketAddress& destination, uint32_t timeout_ms) {
    if (!destination.is_ip()) return EINVAL;
    if (const int error = need_devices(); error != 0) return error;
    if (id.state == IdState::kIdle) {
        const SocketAddress from = source.is_ip() ? source : any_address(destination.family);
        if (from.family != destination.family) return EINVAL;
        if (const int error = bind(id, from); error != 0) return error;
        if (id.belongs_to_kernel) return resolve_twin(id, destination, timeout_ms);
    }
    if (id.state != IdState::kBound || id.source.family != destination.family) return EINVAL;
    SocketAddress to = destination;
    if (to.is_any()) {  // this host, as in the kernel
        const wire::Gid loopback = to.family == AF_INET
                                       ? wire::Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1}
                                       : wire::Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
        to = socket_address_of(loopback, destination.port());
    }
    const std::optional<Local> local = id.local ? id.local : find_source(interfaces_, to);
    if (!local && id.twin && id.source.is_any()) {
        const int error = resolve_twin(id, destination, timeout_ms);
        id.belongs_to_kernel = error == 0;
        return error;
    }
    if (!local) return ENODEV;
    id.local = local;
    id.destination = to;
    id.remote_gid = destination_gid(*local, to);
    id.was_unbound = id.source.is_any();
    if (id.was_unbound) {
        const uint16_t port = id.source.port();
        id.source = to.is_loopback() ? to : socket_address_of(local_gid(id), port);
        id.source.set_port(port);
        if (datapath::is_link_local(local_gid(id))) id.source.v6.sin6_scope_id = to.scope_id();
    }
    if (is_resolved(id)) {
        id.state = IdState::kAddressResolved;
        push(id, EventType::kAddressResolved, 0);
        return 0;
    }
    id.state = IdState::kResolving;
    start_resolution(id, timeout_ms);
    return 0;
}

int RdmaCmServer::resolve_ip(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_resolve_ip>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    return resolve(*id, SocketAddress(&command.src_addr, sizeof(command.src_addr)),
                   SocketAddress(&command.dst_addr, sizeof(command.dst_addr)), command.timeout_ms);
}

int RdmaCmServer::resolve_addr(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_resolve_addr>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    return resolve(*id, SocketAddress(&command.src_addr, std::min<size_t>(command.src_size, sizeof(command.src_addr))),
                   SocketAddress(&command.dst_addr, std::min<size_t>(command.dst_size, sizeof(command.dst_addr))),
                   command.timeout_ms);
}

int RdmaCmServer::resolve_route(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_resolve_route>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    if (id->state != IdState::kAddressResolved) return EINVAL;
    id->state = IdState::kRouteResolved;
    push(*id, EventType::kRouteResolved, 0);
    return 0;
}

namespace {

bool has_route(const Id& id) {
    return id.state == IdState::kRouteResolved || id.state == IdState::kConnect || id.state == IdState::kDisconnected;
}

}  // namespace

int RdmaCmServer::query_route(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_query>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    rdma_ucm_query_route_resp answer{};
    std::memcpy(&answer.src_addr, &id->source, id->source.size());
    std::memcpy(&answer.dst_addr, &id->destination, id->destination.size());
    answer.ibdev_index = kNoDeviceIndex;
    if (id->local) {
        answer.node_guid = device(*id).guid;
        answer.port_num = 1;
        ib_user_path_rec& path = answer.ib_route[0];
        std::memcpy(path.sgid, local_gid(*id).data(), sizeof(path.sgid));
        std::memcpy(path.dgid, id->remote_gid.data(), sizeof(path.dgid));
        path.pkey = htobe16(wire::kDefaultPkey);
        if (has_route(*id)) {
            answer.num_paths = 1;
            path.reversible = 1;
            path.numb_path = 1;
            path.hop_limit = kTwoSubnets;
            path.traffic_class = id->traffic_class;
            path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
            path.mtu = id->remote ? id->remote->path_mtu : mtu_code(*id);
            path.rate = kRate100Gbps;
            path.packet_life_time = kPacketLifetime;
        }
    }
    return respond_some(command.response, header, answer, offsetof(rdma_ucm_query_route_resp, ibdev_index));
}

int RdmaCmServer::query(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_query>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    rdma_ucm_query_addr_resp answer{};
    answer.ibdev_index = kNoDeviceIndex;
    if (id->local) {
        answer.node_guid = device(*id).guid;
        answer.port_num = 1;
        answer.pkey = htobe16(wire::kDefaultPkey);
    }
    constexpr size_t kAddressNeeded = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
    switch (command.option) {
        case RDMA_USER_CM_QUERY_ADDR:
            answer.src_size = static_cast<uint16_t>(id->source.size());
            answer.dst_size = static_cast<uint16_t>(id->destination.size());
            std::memcpy(&answer.src_addr, &id->source, answer.src_size);
            std::memcpy(&answer.dst_addr, &id->destination, answer.dst_size);
            return respond_some(command.response, header, answer, kAddressNeeded);
        case RDMA_USER_CM_QUERY_GID: {
            SockaddrIb from{.family = kAfIb, .pkey = answer.pkey};
            SockaddrIb to = from;
            if (id->local) std::memcpy(from.gid, local_gid(*id).data(), sizeof(from.gid));
            std::memcpy(to.gid, id->remote_gid.data(), sizeof(to.gid));
            answer.src_size = answer.dst_size = sizeof(from);
            std::memcpy(&answer.src_addr, &from, sizeof(from));
            std::memcpy(&answer.dst_addr, &to, sizeof(to));
            return respond_some(command.response, header, answer, kAddressNeeded);
        }
        case RDMA_USER_CM_QUERY_PATH: {
            struct {  // rdma_ucm_query_path_resp, which ends in an array without length
                uint32_t num_paths, reserved;
                ib_path_rec_data path;
            } paths{};
            constexpr uint32_t kGmp = 1, kPrimary = 2, kBidirectional = 1 << 4;  // IB_PATH_* of <rdma/ib_user_sa.h>
            if (id->local && has_route(*id)) {
                PathRecord record{};
                std::memcpy(record.sgid, local_gid(*id).data(), sizeof(record.sgid));
                std::memcpy(record.dgid, id->remote_gid.data(), sizeof(record.dgid));
                record.flow_label_hop_limit = htobe32(kTwoSubnets);
                record.traffic_class = id->traffic_class;
                record.reversible_paths = 0x80 | 1;
                record.pkey = htobe16(wire::kDefaultPkey);
                const uint8_t mtu = id->remote ? id->remote->path_mtu : mtu_code(*id);
                record.mtu = static_cast<uint8_t>(kExactly << 6 | mtu);
                record.rate = kExactly << 6 | kRate100Gbps;
                record.packet_lifetime = kExactly << 6 | kPacketLifetime;
                paths.num_paths = 1;
                paths.path.flags = kGmp | kPrimary | kBidirectional;
                std::memcpy(paths.path.path_rec, &record, sizeof(record));
            }
            return respond_some(command.response, header, paths, sizeof(rdma_ucm_query_path_resp));
        }
        default:
            return ENOSYS;
    }
}

int RdmaCmServer::set_option(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_set_option>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    // The option also goes to the kernel's id, because the id's device is not known yet.
    if (id->twin) {
        auto same = command;
        same.id = *id->twin;
        channel->kernel.run(header.cmd, same);
    }
    // A path record from ibacm (RDMA_OPTION_IB_PATH) is refused; librdmacm then asks for the route with RESOLVE_ROUTE.
    if (command.level != RDMA_OPTION_ID) return ENOSYS;
    uint8_t byte = 0;
    int flag = 0;
    const auto read = [&](auto& value) {
        return command.optlen != sizeof(value) ? EINVAL : copy_in(&value, command.optval, sizeof(value));
    };
    switch (command.optname) {
        case RDMA_OPTION_ID_TOS:
            return read(id->traffic_class);
        case RDMA_OPTION_ID_REUSEADDR:
        case RDMA_OPTION_ID_AFONLY:
            if (error = read(flag); error != 0) return error;
            if (id->state != IdState::kIdle) return EINVAL;
            (command.optname == RDMA_OPTION_ID_AFONLY ? id->ipv6_only : id->reuse_address) = flag != 0;
            return 0;
        case RDMA_OPTION_ID_ACK_TIMEOUT:
            if (error = read(byte); error != 0) return error;
            if (byte > 31) return EINVAL;
            id->ack_timeout = byte;
            return 0;
        default:
            return ENOSYS;
    }
}

int RdmaCmServer::migrate_id(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_migrate_id>(in);
    if (header.out < sizeof(rdma_ucm_migrate_resp)) return ENOSPC;
    const std::shared_ptr<Channel> before = channel_of(static_cast<int>(command.fd));
    if (before == nullptr) return fcntl(static_cast<int>(command.fd), F_GETFD) < 0 ? ENOENT : EINVAL;
    int error;
    Id* const id = find(before, command.id, &error);
    if (id == nullptr) return error;
    uint32_t kernels = 0;
    if (id->twin && (error = migrate_twin(*id, *channel, &kernels)) != 0) return error;
    // No event is pushed during this, because pushing needs the mutex. An event that a thread is just taking from the
    // old queue is counted before drop() returns.
    std::vector<Event> events;
    if (before != channel) {
        before->events.drop([&](const Event& event) {
            if (event.id != id) return false;
            events.push_back(event);
            return true;
        });
    }
    const uint32_t reported = id->events_reported + kernels;
    set_channel(*id, channel);
    for (const Event& event : events) {
        if (event.request != nullptr) set_channel(*event.request, channel);
        channel->events.push(event);
    }
    return respond(command.response, header, rdma_ucm_migrate_resp{.events_reported = reported});
}

// --- multicast

int RdmaCmServer::join(Id& id, const SocketAddress& group, uint64_t uid, uint32_t* handle) {
    const bool ready =
        id.state == IdState::kBound || id.state == IdState::kAddressResolved || id.state == IdState::kRouteResolved;
    if (!id.is_datagram() || !ready || !id.local) return EINVAL;
    const wire::Gid gid = group.gid();
    // For a wildcard the kernel lets the subnet manager choose a group. RoCE has no subnet manager.
    if (!group.is_ip() || !datapath::is_multicast(gid)) return EINVAL;
    auto multicast = std::make_unique<Multicast>();
    multicast->handle = next_multicast_++;
    multicast->uid = uid;
    *handle = multicast->handle;
    multicasts_[*handle] = {&id, multicast.get()};
    Event event{.multicast = multicast.get()};
    rdma_ucm_ud_param& joined = event.response.param.ud;
    joined.qp_num = wire::kMulticastQpn;
    joined.qkey = kUdpQkey;
    joined.ah_attr = address_of(id, gid);
    id.multicasts.push_back(std::move(multicast));
    push(id, std::move(event), EventType::kMulticastJoin, 0);
    return 0;
}

int RdmaCmServer::join_ip_mcast(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_join_ip_mcast>(in);
    if (header.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    rdma_ucm_create_id_resp answer{};
    error = join(*id, SocketAddress(&command.addr, sizeof(command.addr)), command.uid, &answer.id);
    if (error == 0 && (error = respond(command.response, header, answer)) != 0) leave(answer.id);
    return error;
}

int RdmaCmServer::join_mcast(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_join_mcast>(in);
    if (header.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    if (command.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    rdma_ucm_create_id_resp answer{};
    const SocketAddress group(&command.addr, std::min<size_t>(command.addr_size, sizeof(command.addr)));
    error = join(*id, group, command.uid, &answer.id);
    if (error == 0 && (error = respond(command.response, header, answer)) != 0) leave(answer.id);
    return error;
}

uint32_t RdmaCmServer::leave(uint32_t handle) {
    const auto [id, multicast] = multicasts_.extract(handle).mapped();
    id->channel->events.drop([joined = multicast](const Event& event) {
        if (event.multicast != joined) return false;
        event.id->events_waiting.fetch_sub(1, std::memory_order_relaxed);
        return true;
    });
    const uint32_t reported = multicast->events_reported;
    std::erase_if(id->multicasts, [left = multicast](const auto& joined) { return joined.get() == left; });
    return reported;
}

int RdmaCmServer::leave_mcast(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_destroy_id>(in);
    if (header.out < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
    if (channel->kernel.is_there() && (command.id & kKernelsMulticast) != 0) {
        auto same = command;
        same.id &= ~kKernelsMulticast;
        return channel->kernel.run(header.cmd, {reinterpret_cast<const uint8_t*>(&same), sizeof(same)}, header.out);
    }
    const auto found = multicasts_.find(command.id);
    if (found == multicasts_.end()) return ENOENT;
    if (found->second.first->channel != channel) return EINVAL;
    return respond(command.response, header, rdma_ucm_destroy_id_resp{.events_reported = leave(command.id)});
}

}  // namespace rove::verbs::ucma
