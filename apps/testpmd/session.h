// SPDX-License-Identifier: Apache-2.0
// Owns one end's verbs objects: QPs that are spread over all ports and connected to the peer's, and memory for their
// messages.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "exchange.h"
#include "options.h"

namespace rove::testpmd {

template <auto kDestroy>
struct Destroy {
    void operator()(auto* object) const { kDestroy(object); }
};
template <class T, auto kDestroy>
using Owned = std::unique_ptr<T, Destroy<kDestroy>>;

// An open port. It outlives all runs.
struct Rail {
    Owned<ibv_context, ibv_close_device> context;
    Owned<ibv_pd, ibv_dealloc_pd> pd;
    ibv_gid gid{};
    uint32_t max_mtu = 0;
};
// Opens all of rove's devices. Throws a Failure if rove has no device, or if one has no such GID.
std::vector<Rail> open_rails(int gid_index);

class Session {
  public:
    // Creates the objects. `initiates` is true for the end that posts the requests.
    Session(const std::vector<Rail>& rails, const Options& options, const Plan& plan, bool initiates);

    const Plan& plan() const { return plan_; }
    const Introduction& mine() const { return mine_; }
    void connect(const Introduction& theirs);

    size_t rails() const { return sides_.size(); }
    ibv_cq* cq(size_t rail) const { return sides_[rail].cq.get(); }
    ibv_qp* qp(uint32_t q) const { return qps_[q].get(); }
    uint32_t lkey(uint32_t q) const { return sides_[q % rails()].mr->lkey; }
    // The memory of message `slot` of a QP, here and at the peer. Slots from depth to 2 * depth - 1 receive the copies
    // for verification; the target of SENDs has twice as many receives as the peer has requests.
    uint8_t* slot(uint32_t q, uint32_t slot) { return memory_.data() + offset(q, slot); }
    uint64_t remote_slot(uint32_t q, uint32_t slot) const {
        return theirs_.rails[q % rails()].address + offset(q, slot);
    }
    uint32_t remote_key(uint32_t q) const { return theirs_.rails[q % rails()].rkey; }

    // Posts a receive into `slot`.
    void post_receive(uint32_t q, uint32_t slot);

  private:
    struct Side {
        const Rail* rail;
        Owned<ibv_mr, ibv_dereg_mr> mr;
        Owned<ibv_cq, ibv_destroy_cq> cq;
    };
    size_t offset(uint32_t q, uint32_t slot) const { return (size_t{2} * q * plan_.depth + slot) * stride_; }
    void connect(uint32_t q);

    const Options& options_;
    Plan plan_;
    size_t stride_;
    std::vector<uint8_t> memory_;
    std::vector<Side> sides_;
    std::vector<Owned<ibv_qp, ibv_destroy_qp>> qps_;  // QP q is on rail q modulo rails
    Introduction mine_, theirs_;
};

// Fills data with bytes that depend on the QP, the message and their position.
void fill(uint8_t* data, size_t bytes, uint32_t q, uint64_t message);
bool is_filled(const uint8_t* data, size_t bytes, uint32_t q, uint64_t message);

}  // namespace rove::testpmd
