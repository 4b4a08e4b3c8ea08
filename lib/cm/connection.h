// SPDX-License-Identifier: Apache-2.0
// The connection manager's records of listeners, connections and address resolutions, and the keys that find them.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

#include "base/secret.h"
#include "cm/cm.h"
#include "wire/byte_order.h"

namespace rove::cm {

// A peer's name for a connection that it requested, by which its duplicates are found. For an address resolution
// `comm_id` is the request id and `ca_guid` is 0.
struct RemoteName {
    wire::Gid gid;
    uint64_t ca_guid;
    uint32_t comm_id;
    bool sidr;
    bool operator==(const RemoteName&) const = default;
};

struct RemoteQp {
    wire::Gid gid;
    uint32_t qpn;
    bool operator==(const RemoteQp&) const = default;
};

// Hashes with a secret. Peers choose these keys, so they must not know which keys share a bucket.
class KeyHash {
  public:
    explicit KeyHash(const Secret& secret) : secret_(&secret) {}
    size_t operator()(const wire::Gid& gid) const {
        return secret_->hash(secret_->hash(wire::load<uint64_t>(gid.data())) ^ wire::load<uint64_t>(gid.data() + 8));
    }
    size_t operator()(const RemoteName& name) const {
        const uint64_t id = uint64_t{name.sidr} << 32 | name.comm_id;
        return secret_->hash(secret_->hash((*this)(name.gid) ^ name.ca_guid) ^ id);
    }
    size_t operator()(const RemoteQp& qp) const { return secret_->hash((*this)(qp.gid) ^ qp.qpn); }

  private:
    const Secret* secret_;
};

struct Listener {
    Id id = Id::kNone;
    void* context = nullptr;
    Listen listen;  // backlog is at least 1
    // The number of requests that the program has not answered, up to `listen.backlog`, and of all requests that are
    // not established, up to Config::max_half_open.
    struct Counts {
        uint32_t waiting = 0, half_open = 0;
    };
    Counts counts;
    std::unordered_map<wire::Gid, Counts, KeyHash> of_source;  // only sources with open requests
};

struct Connection {
    static constexpr uint64_t kNever = UINT64_MAX;

    Id id = Id::kNone;
    void* context = nullptr;
    State state = State::kClosed;
    bool owned = true;  // the program has not destroyed it, so it gets events
    bool sidr = false;
    bool xrc = false;         // the REP carries the QP in the field of the EE context (IBTA annex A14)
    Id listener = Id::kNone;  // the listener that counts it as half-open
    bool waiting = false;     // the listener also counts it as waiting for the program
    Path path;
    uint64_t transaction_id = 0;  // shared by the REQ and its answers, or the id of our DREQ
    uint64_t service_id = 0;
    uint64_t local_guid = 0;
    uint32_t local_comm_id = 0;  // 0 if no MAD finds it by this id
    uint32_t local_qpn = 0;
    std::optional<uint32_t> remote_comm_id;  // active side: set when the REP arrives
    std::optional<RemoteName> remote_name;   // key in by_remote_name_
    std::optional<RemoteQp> remote_qp;       // key in by_remote_qp_
    std::optional<uint8_t> promised;  // set after our MRA told the peer our comm id: exponent of the wait we announced
    // The MAD to retransmit. In kReqSent, kRepSent, kDreqSent and kSidrReqSent a timer sends it again; in the other
    // states it is sent when the peer repeats itself.
    std::optional<Mad> mad;
    uint8_t retries = 0;     // retransmissions left; in kEstablished and kClosed unsolicited ones
    uint8_t timeout = 0;     // exponent of the current wait
    uint8_t longest = 0;     // exponent of the longest wait
    uint8_t extensions = 0;  // number of MRAs that prolonged the wait
    uint64_t deadline_ns = kNever;
    std::optional<uint64_t> probed_ns;    // time of the last stale-connection probe
    std::list<Id>::iterator lingering{};  // position in the list; valid if not owned
};

}  // namespace rove::cm
