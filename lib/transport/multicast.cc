// SPDX-License-Identifier: Apache-2.0
// Joining and leaving multicast groups.
#include "transport/multicast.h"

#include <algorithm>

#include "transport/queue_pair.h"

namespace rove::transport {

bool MulticastGroups::attach(const wire::Gid& group, QueuePair& qp) {
    MulticastGroup& joined = groups_[Key{group, qp.port}];
    if (joined.by_worker_.size() <= qp.worker) joined.by_worker_.resize(qp.worker + size_t{1});
    std::vector<QueuePair*>& members = joined.by_worker_[qp.worker];
    if (std::find(members.begin(), members.end(), &qp) != members.end()) return false;
    members.push_back(&qp);
    ++joined.count_;
    return true;
}

bool MulticastGroups::detach(const wire::Gid& group, QueuePair& qp) {
    const auto found = groups_.find(Key{group, qp.port});
    if (found == groups_.end() || qp.worker >= found->second.by_worker_.size()) return false;
    if (std::erase(found->second.by_worker_[qp.worker], &qp) == 0) return false;
    if (--found->second.count_ == 0) groups_.erase(found);
    return true;
}

}  // namespace rove::transport
