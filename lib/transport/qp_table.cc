// SPDX-License-Identifier: Apache-2.0
#include "transport/qp_table.h"

namespace rove::transport {

bool QueuePairTable::insert_xrc_srq(SharedRecvQueue& srq) {
    const std::lock_guard lock(xrc_mutex_);
    if (owned_xrc_srqs_ == nullptr) {
        owned_xrc_srqs_ = std::make_unique<XrcSrqTable>(secret_, 1);
        xrc_srqs_.store(owned_xrc_srqs_.get(), std::memory_order_release);
    }
    return owned_xrc_srqs_->insert(srq);
}

void QueuePairTable::remove_xrc_srq(SharedRecvQueue& srq) {
    const std::lock_guard lock(xrc_mutex_);
    owned_xrc_srqs_->remove(srq);
}

}  // namespace rove::transport
