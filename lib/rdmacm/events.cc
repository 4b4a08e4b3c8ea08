// SPDX-License-Identifier: Apache-2.0
// Turns events of the connection manager into events of librdmacm.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rdmacm/state.h"
#include "runtime/held_qp.h"
#include "transport/queue_pair.h"

namespace rove::verbs::ucma {

namespace {

// Limits the peer's value to the device's maximum. The peer's initiator depth becomes the own responder resources, and
// its resources the own depth.
uint8_t depth(uint8_t peers) {
    return std::min<uint8_t>(peers, transport::kMaxRdAtomic);
}

// Copies private data. The array is one byte longer than the type's private_data_len can express.
template <class Parameters>
void fill_private_data(Parameters& parameters, std::span<const uint8_t> data) {
    const size_t bytes = std::min(data.size(), sizeof(parameters.private_data) - 1);
    std::copy_n(data.begin(), bytes, parameters.private_data);
    parameters.private_data_len = static_cast<uint8_t>(bytes);
}

// Fills in the values of a REQ or REP for the program.
void fill_connection(rdma_ucm_event_resp& response, const Id& id, const auto& message, std::span<const uint8_t> data) {
    rdma_ucm_conn_param& parameters = response.param.conn;
    parameters.qp_num = message.qpn;
    parameters.responder_resources = id.responder_resources;
    parameters.initiator_depth = id.initiator_depth;
    parameters.flow_control = message.flow_control;
    parameters.rnr_retry_count = message.rnr_retry_count;
    parameters.srq = message.srq;
    fill_private_data(parameters, data);
    response.ece = {.vendor_id = message.ece.vendor_id, .attr_mod = message.ece.options};
}

ibv_qp_type type_of(const cm::Req& req) {
    switch (req.service) {
        case cm::TransportService::kUc:
            return IBV_QPT_UC;
        case cm::TransportService::kExtended:
            return IBV_QPT_XRC_RECV;
        default:
            return IBV_QPT_RC;
    }
}

bool speaks_multipath(const cm::Ece& ece) {
    return ece.vendor_id == kVendorId && (ece.options & kEceMultipath) != 0;
}

}  // namespace

void RdmaCmServer::push(Id& id, Event event, EventType type, int status) {
    event.id = &id;
    rdma_ucm_event_resp& response = event.response;
    response.uid = event.multicast != nullptr ? event.multicast->uid : id.uid;
    // The program could not identify events of a request that it has not accepted. Its accept will fail.
    if (response.uid == 0) return;
    response.id = event.request != nullptr     ? event.request->handle
                  : event.multicast != nullptr ? event.multicast->handle
                                               : id.handle;
    response.event = static_cast<uint32_t>(type);
    response.status = static_cast<uint32_t>(status);
    id.events_waiting.fetch_add(1, std::memory_order_relaxed);
    id.channel->events.push(event);
}

void RdmaCmServer::push(Id& id, EventType type, int status) {
    push(id, Event{}, type, status);
}

void RdmaCmServer::send(const cm::Path& path, const cm::Mad& mad) {
    gsis_[path.interface]->send(path.flow, path.remote_qpn, mad);
}

void RdmaCmServer::push_request(const cm::Event& event, Id& listener) {
    const wire::Flow& flow = event.path->flow;
    const auto& gids = gsis_[event.path->interface]->device().interface->gids();
    const auto own = std::find(gids.begin(), gids.end(), flow.src);
    // The kernel may have removed the address from its interface since the request arrived.
    if (own == gids.end() || flow.src == wire::Gid{}) return rejected_requests_.push_back(event.id);
    Id& id = make_id(listener.channel);
    id.is_known.store(false, std::memory_order_relaxed);
    id.port_space = listener.port_space;
    id.qp_type = listener.qp_type;
    id.state = IdState::kConnect;
    id.connection = event.id;
    connections_[static_cast<uint64_t>(event.id)] = &id;
    id.local = Local{event.path->interface, static_cast<size_t>(own - gids.begin()), flow.src};
    id.remote_gid = flow.dst;
    id.source = socket_address_of(flow.src, listener.source.port());
    id.destination = socket_address_of(flow.dst, event.addresses != nullptr ? event.addresses->src_port : 0);
    id.ack_timeout = listener.ack_timeout;
    Event out{.request = &id};
    if (event.req != nullptr) {
        const cm::Req& req = *event.req;
        id.qp_type = type_of(req);
        id.local_psn = cm_->random_psn();
        id.responder_resources = depth(req.initiator_depth);
        id.initiator_depth = depth(req.responder_resources);
        id.traffic_class = req.primary.traffic_class;
        id.peer_ece = req.ece;
        id.remote = Id::Remote{.qpn = req.qpn,
                               .psn = req.starting_psn,
                               .path_mtu = req.path_mtu,
                               .retry_count = req.retry_count,
                               .rnr_retry_count = req.rnr_retry_count,
                               .ack_timeout = req.primary.local_ack_timeout,
                               .traffic_class = req.primary.traffic_class,
                               .flow_label = req.primary.flow_label};
        remember_peer(id, speaks_multipath(req.ece));
        fill_connection(out.response, id, req, event.private_data);
        out.response.param.conn.retry_count = req.retry_count;
    } else {
        fill_private_data(out.response.param.ud, event.private_data);
    }
    push(listener, std::move(out), EventType::kConnectRequest, 0);
}

void RdmaCmServer::deliver(const cm::Event& event) {
    const bool is_request = event.kind == cm::EventKind::kConnectRequest || event.kind == cm::EventKind::kSidrRequest;
    const auto found = connections_.find(static_cast<uint64_t>(is_request ? event.listener : event.id));
    if (found == connections_.end()) {
        if (is_request) rejected_requests_.push_back(event.id);
        return;
    }
    Id& id = *found->second;
    if (is_request && id.is_datagram() != (event.kind == cm::EventKind::kSidrRequest)) {
        rejected_requests_.push_back(event.id);
        return;
    }
    Event out;
    switch (event.kind) {
        case cm::EventKind::kConnectRequest:
        case cm::EventKind::kSidrRequest:
            return push_request(event, id);
        case cm::EventKind::kConnectResponse: {
            const cm::Rep& rep = *event.rep;
            id.responder_resources = depth(rep.initiator_depth);
            id.initiator_depth = depth(rep.responder_resources);
            id.remote = Id::Remote{.qpn = rep.qpn,
                                   .psn = rep.starting_psn,
                                   .path_mtu = mtu_code(id),
                                   .retry_count = id.retry_count,
                                   .rnr_retry_count = rep.rnr_retry_count,
                                   .ack_timeout = kDefaultAckTimeout,
                                   .traffic_class = id.traffic_class,
                                   .flow_label = 0};
            remember_peer(id, id.offered_multipath && speaks_multipath(rep.ece));
            fill_connection(out.response, id, rep, event.private_data);
            return push(id, std::move(out), EventType::kConnectResponse, 0);
        }
        case cm::EventKind::kEstablished:
            fill_private_data(out.response.param.conn, event.private_data);
            return push(id, std::move(out), EventType::kEstablished, 0);
        case cm::EventKind::kRejected:
            fill_private_data(out.response.param.conn, event.private_data);
            return push(id, std::move(out), EventType::kRejected, static_cast<int>(event.reason));
        case cm::EventKind::kUnreachable:
            return push(id, EventType::kUnreachable, -ETIMEDOUT);
        case cm::EventKind::kDisconnected:
            if (std::exchange(id.state, IdState::kDisconnected) == IdState::kDisconnected) return;
            fill_private_data(out.response.param.conn, event.private_data);
            return push(id, std::move(out), EventType::kDisconnected,
                        event.reason == cm::RejReason::kTimeout ? -ETIMEDOUT : 0);
        case cm::EventKind::kTimeWaitExit:
            return push(id, EventType::kTimeWaitExit, 0);
        case cm::EventKind::kSidrResponse: {
            const cm::SidrRep& rep = *event.sidr_rep;
            rdma_ucm_ud_param& answer = out.response.param.ud;
            fill_private_data(answer, event.private_data);
            if (rep.status != cm::SidrStatus::kValid)
                return push(id, std::move(out), EventType::kUnreachable, static_cast<int>(rep.status));
            answer.qp_num = rep.qpn;
            answer.qkey = rep.qkey;
            answer.ah_attr = address_of(id, id.remote_gid);
            return push(id, std::move(out), EventType::kEstablished, 0);
        }
    }
}

void RdmaCmServer::finish_calls() {
    while (!rejected_requests_.empty()) {
        const cm::Id unwanted = rejected_requests_.back();
        rejected_requests_.pop_back();
        cm_->destroy(now_ns(), unwanted);
    }
    if (cm_) wake_at(cm_->next_deadline());
    if (!due_.empty()) wake_at(due_.begin()->first);
}

// --- the mode that the two ends have negotiated

void RdmaCmServer::remember_peer(Id& id, bool multipath) {
    device(id).agreed_peers.insert({id.remote_gid, id.remote->qpn, id.local_psn}, multipath);
}

void RdmaCmServer::forget_peer(Id& id) {
    if (id.local && id.remote) device(id).agreed_peers.erase({id.remote_gid, id.remote->qpn, id.local_psn});
}

// Returns the ECE for a REP after the peer has offered mp. It states the mode of the own QP, whatever the program
// passed. A connection of a device to itself is rc, which both of its ends determine without this.
cm::Ece RdmaCmServer::ece_of_reply(const Id& id, uint32_t qpn, const cm::Ece& given) {
    if (id.peer_ece.vendor_id != kVendorId || id.remote_gid == local_gid(id)) return given;
    cm::Ece ece = given;
    const auto look = [&ece](const transport::QueuePair& qp, const transport::WorkerQuiesced&) {
        ece = {.vendor_id = kVendorId, .options = qp.mp() != nullptr ? kEceMultipath : 0};
    };
    datapath::look_at_qp(*runtime_.load(std::memory_order_relaxed), qpn, look);
    return ece;
}

}  // namespace rove::verbs::ucma
