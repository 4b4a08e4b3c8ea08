// SPDX-License-Identifier: Apache-2.0
// XRC's objects apart from QPs and SRQs: domains, and the shared part of a TGT QP that has several handles.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <vector>

#include "verbs/objects.h"

namespace rove::verbs {

struct XrcDomain {
    // Guards the TGT QPs and their handles. Workers lock it for events, so it must not be held together with a worker.
    std::mutex mutex;
    std::vector<Qp*> targets;
    int fd = -1;  // the file by which it is shared, or -1
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

// The part of a TGT QP that its handles share. Programs see the handles only.
struct XrcTarget {
    std::shared_ptr<XrcDomain> domain;
    std::vector<Qp*> handles;  // under the domain's mutex
};

inline Xrcd& from(ibv_xrcd* xrcd) {
    return *static_cast<Xrcd*>(xrcd);
}

// Takes over `target`, a complete TGT QP, and returns its first handle. Returns null and sets errno if there is no
// memory.
ibv_qp* adopt_target(ibv_xrcd* xrcd, std::unique_ptr<Qp> target, void* qp_context);
// Removes `handle` from its target. Returns the target if that was its last handle, and the caller must destroy it;
// else null.
Qp* close_handle(Qp& handle);

}  // namespace rove::verbs
