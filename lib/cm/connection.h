// SPDX-License-Identifier: Apache-2.0
// What the connection manager keeps of each listener, connection and address resolution, and what they are found by.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

#include "base/secret.h"
#include "cm/cm.h"
#include "wire/byte_order.h"

namespace rove::cm {

// How a peer names a connection that it asked for: its duplicates are found by it. Of an address resolution `comm_id`
// is the request id, and `ca_guid` 0.
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

// Peers choose these keys, so none of them may know which share a bucket.
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
    Listen listen;  // backlog: at least 1
    // Of requests: those that the program has not answered, up to `listen.backlog`, and all that are not established,
    // up to Config::max_half_open.
    struct Counts {
        uint32_t waiting = 0, half_open = 0;
    };
    Counts counts;
    std::unordered_map<wire::Gid, Counts, KeyHash> of_source;  // without those that have none
};

struct Connection {
    static constexpr uint64_t kNever = UINT64_MAX;

    Id id = Id::kNone;
    void* context = nullptr;
    State state = State::kClosed;
    bool owned = true;  // the program has not destroyed it: it gets events
    bool sidr = false;
    bool xrc = false;         // the REP names its QP where others name an EE context (IBTA annex A14)
    Id listener = Id::kNone;  // that counts it among its half-open ones
    bool waiting = false;     // and among those that wait for the program
    Path path;
    uint64_t transaction_id = 0;  // of the REQ and its answers, or of the DREQ that was sent
    uint64_t service_id = 0;
    uint64_t local_guid = 0;
    uint32_t local_comm_id = 0;  // 0: it is not found by one
    uint32_t local_qpn = 0;
    std::optional<uint32_t> remote_comm_id;  // active side: since the REP came
    std::optional<RemoteName> remote_name;   // it is found by
    std::optional<RemoteQp> remote_qp;       // it is found by
    std::optional<uint8_t> promised;  // an MRA has told the peer our comm id, and to wait for up to this exponent
    // The MAD to send again: by a timer in kReqSent, kRepSent, kDreqSent and kSidrReqSent; else, if the peer repeats
    // itself.
    std::optional<Mad> mad;
    uint8_t retries = 0;     // left; of kEstablished and kClosed, repetitions that nobody has asked for
    uint8_t timeout = 0;     // exponent of the wait that is under way
    uint8_t longest = 0;     // exponent of the longest wait
    uint8_t extensions = 0;  // MRAs that made the wait longer
    uint64_t deadline_ns = kNever;
    std::optional<uint64_t> probed_ns;    // when the peer was asked last whether it knows the connection
    std::list<Id>::iterator lingering{};  // when it is not owned
};

}  // namespace rove::cm
