// SPDX-License-Identifier: Apache-2.0
#include "spray_target.h"

#include <nlohmann/json.hpp>

#include "session.h"

namespace rove::testpmd {

SprayTarget::SprayTarget(datapath::Runtime& runtime, const Options& options, Connection connection, const Plan& plan)
    : runtime_(runtime),
      connection_(std::move(connection)),
      plan_(plan),
      segment_(options, connection_, size_t{plan.qps} * plan.depth * plan.size) {
    // READs find this content before anything was written.
    for (uint32_t thread = 0; plan.verify && thread < plan.qps; ++thread)
        for (uint32_t slot = 0; slot < plan.depth; ++slot)
            fill(segment_.memory() + (size_t{thread} * plan.depth + slot) * plan.size, plan.size, thread, slot);
    Introduction mine;
    mine.plan = plan;
    mine.segment = segment_.engine().getSegmentName();
    mine.address = reinterpret_cast<uint64_t>(segment_.memory());
    connection_.send(mine);
}

void SprayTarget::settle() {
    account_ = connection_.receive_account();
    connection_.send(account_);
}

Report SprayTarget::report(double) const {
    return {{"threads", plan_.qps}};
}

}  // namespace rove::testpmd
