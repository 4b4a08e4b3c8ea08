// SPDX-License-Identifier: Apache-2.0
// XRC's objects beside QPs and SRQs: domains, and what a TGT QP has that several handles stand for.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <vector>

#include "verbs/objects.h"

namespace rove::verbs {

struct XrcDomain {
    std::mutex mutex;  // of the TGT QPs and their handles. Workers take it for events: never held with a worker
    std::vector<Qp*> targets;
    int fd = -1;  // of the file that it is shared by; -1: it is not shared
    dev_t device_number = 0;
    ino_t inode = 0;

    XrcDomain() = default;
    XrcDomain(const XrcDomain&) = delete;
    ~XrcDomain();
};

// One opening of a domain.
struct Xrcd : ibv_xrcd {
    std::shared_ptr<XrcDomain> domain;
    std::atomic<uint32_t> references{0};  // SRQs, and handles of TGT QPs
};

// Of a TGT QP, which no program sees itself.
struct XrcTarget {
    std::shared_ptr<XrcDomain> domain;
    std::vector<Qp*> handles;  // under the domain's mutex
};

inline Xrcd& from(ibv_xrcd* xrcd) {
    return *static_cast<Xrcd*>(xrcd);
}

// The first handle of `target`, which is ready but for that. Null and errno, without memory.
ibv_qp* adopt_target(ibv_xrcd* xrcd, std::unique_ptr<Qp> target, void* qp_context);
// Takes `handle` from its target. Returns the target if that was its last: it is to be destroyed.
Qp* close_handle(Qp& handle);

}  // namespace rove::verbs
