// SPDX-License-Identifier: Apache-2.0
// The verbs objects. Each one is rdma-core's struct followed by rove's data, so that the inline functions of
// <infiniband/verbs.h>, and programs that read the public members, work unchanged.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "base/spin_lock.h"
#include "runtime/runtime.h"
#include "transport/completion_queue.h"
#include "transport/memory.h"
#include "transport/queue_pair.h"
#include "transport/work_queue.h"
#include "verbs/cm_negotiated_modes.h"
#include "verbs/event_queue.h"
#include "verbs/object_quota.h"
#include "verbs/send_rules.h"
#include "verbs/verbs.h"
#include "verbs/wall_clock.h"

namespace rove::verbs {

class Provider;
struct XrcDomain;
struct XrcTarget;
struct Xrcd;

// A device. Vendor helpers such as mlx5dv_is_supported() read libibverbs' private fields behind struct ibv_device. The
// zeros of `libibverbs_fields` tell them that no provider of theirs drives this device.
struct Device : ibv_device {
    explicit Device(uint32_t max_qps) : ibv_device{}, max_qps(max_qps) {}

    std::array<void*, 16> libibverbs_fields{};
    Provider* provider = nullptr;
    const datapath::DeviceConfig* config = nullptr;
    ObjectQuota pds{kMaxPds};
    __be64 guid = 0;  // the MAC's EUI-64; zero until the datapath runs, if only the driver knows the MAC
    // Set once the datapath runs.
    datapath::RdmaInterface* interface = nullptr;
    datapath::Runtime* runtime = nullptr;
    const uint32_t max_qps;  // the device's share of kMaxQps
    ObjectQuota qps{max_qps}, cqs{kMaxCqs}, srqs{kMaxSrqs}, ahs{kMaxAhs};
    CmNegotiatedModes agreed_peers;
    std::mutex xrc_mutex;
    std::vector<std::weak_ptr<XrcDomain>> xrc_domains;  // shared domains, one for each file; under xrc_mutex
};

struct Context : verbs_context {
    Device* device = nullptr;
    datapath::RdmaInterface* interface = nullptr;
    datapath::Runtime* runtime = nullptr;
    EventQueue<ibv_async_event> async_events;
    std::atomic<uint32_t> references{1};  // PDs, TDs, XRCDs, CQs and channels, and one while it is open

    Context() : verbs_context{} { context.cmd_fd = -1; }
    ~Context() {
        if (context.cmd_fd >= 0) close(context.cmd_fd);
    }
};

struct Cq;

struct Channel : ibv_comp_channel {
    EventQueue<Cq*> events;
    std::atomic<uint32_t> references{0};  // CQs
};

struct Ah;
struct Pd;

struct Mw : ibv_mw {
    Mw(const Pd& pd, ibv_mw_type type) : ibv_mw{}, window(type, &pd) {}

    transport::Window window;
};

struct Td : ibv_td {
    std::atomic<uint32_t> references{0};  // parent domains
};

// A protection domain (PD) or a parent domain, which is another name for a PD and may add a thread domain.
struct Pd : ibv_pd {
    ObjectQuota::Ticket place;
    Pd* protection = this;                // the PD itself; a parent domain points to its PD
    Td* thread_domain = nullptr;          // a parent domain's thread domain, or null
    std::atomic<uint32_t> references{0};  // MRs, MWs, QPs, SRQs, AHs, CQs and parent domains that name this one
    // Destroyed address handles that requests waiting to be sent may still name; see destroy_ah().
    std::mutex ahs_mutex;
    std::vector<std::unique_ptr<Ah>> destroyed_ahs;
    size_t most_destroyed_ahs = kFewDestroyedAhs;
    // The number of destroyed handles at which the first search for such requests is made. A search stops the workers
    // and walks the table of QPs, which has 65 536 entries, so its cost is shared by many handles.
    static constexpr size_t kFewDestroyedAhs = 1024;
};

struct Mr : ibv_mr {
    std::unique_ptr<transport::Region> region;  // the published region
    void* mapping = nullptr;                    // a dma-buf's mapping, unmapped with the MR
    size_t mapping_bytes = 0;
};

struct Cq : ibv_cq_ex, transport::Owner {
    ObjectQuota::Ticket place;
    transport::CompletionQueue queue;
    datapath::Runtime* runtime = nullptr;
    SpinLock lock;                        // held by pollers
    std::atomic<uint32_t> busy_polls{0};  // consecutive polls that found something at once; a hint, therefore relaxed
    SpinLock current_lock;                // held from ibv_start_poll to ibv_end_poll
    ibv_wc current{};                     // the source of the ibv_wc_read_* functions
    ibv_pd* parent_domain = nullptr;      // the parent domain given at creation, or null
    uint64_t current_ns = 0;              // the time of the push by the runtime's clock
    CompletionTimes wall_times;           // guarded like `current`
    std::atomic<uint32_t> references{0};  // send and receive sides of QPs, and XRC SRQs
    uint32_t comp_events_delivered = 0;   // under the channel's lock
    uint32_t async_events_delivered = 0;  // under the context's event lock
};

struct Srq : ibv_srq, transport::Owner {
    ObjectQuota::Ticket place;
    transport::SharedRecvQueue queue;
    std::mutex control;    // held by modify and query
    uint32_t max_wr = 0;   // under `control`
    Xrcd* xrcd = nullptr;  // null, like xrc_cq, unless the SRQ is of type XRC
    Cq* xrc_cq = nullptr;
    std::atomic<uint32_t> references{0};  // QPs
    uint32_t events_delivered = 0;        // under the context's event lock
};

struct Ah : ibv_ah {
    ObjectQuota::Ticket place;
    transport::Path path;
};

// An ibv_qp_ex with the member for ibv_wr_flush(). Programs that are built against rdma-core 45 or later call it there;
// older headers end the struct before it.
struct QpExWithFlush : ibv_qp_ex {
    void (*wr_flush)(ibv_qp_ex*, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t placement,
                     uint8_t selectivity);
};
template <class QpEx>
concept HasFlush = requires(QpEx qp) {
    qp.wr_flush;
};

struct Qp : std::conditional_t<HasFlush<ibv_qp_ex>, ibv_qp_ex, QpExWithFlush>, transport::Owner {
    ObjectQuota::Ticket place;
    transport::QueuePair transport;
    Context* context = nullptr;
    datapath::Runtime* runtime = nullptr;
    Qp* target = nullptr;            // for a handle of an XRC TGT QP, that QP, which does all the work; else null
    Xrcd* xrcd = nullptr;            // the domain by which such a handle was created or opened
    std::shared_ptr<XrcTarget> xrc;  // set in the XRC TGT QP itself
    SendRules send_rules;            // under the send queue's lock

    // State between ibv_wr_start and ibv_wr_complete, under the send queue's lock.
    bool has_wr_api = false;
    int wr_error = 0;         // errno of the first refused request
    uint32_t wr_pending = 0;  // requests built and not published
    transport::SendWqe* wr_current = nullptr;

    std::mutex control;  // held by modify and query
    ibv_qp_attr attr{};  // the attributes as last set
    ibv_qp_init_attr init_attr{};
    bool refuses_multipath = false;           // set by ibv_set_ece() until RESET
    std::atomic<bool> notify_drained{false};  // the program asked for IBV_EVENT_SQ_DRAINED (en_sqd_async_notify)
    std::atomic<uint32_t> multicast_groups{0};
    uint32_t events_delivered = 0;  // under the context's event lock
};

// The from() functions return rove's object for rdma-core's. The pointer must be to one of rove's objects (see
// is_ours() in preload/ownership.h).
inline Context& from(ibv_context* context) {
    auto* outer = reinterpret_cast<uint8_t*>(context) - offsetof(verbs_context, context);
    return *static_cast<Context*>(reinterpret_cast<verbs_context*>(outer));
}
inline Device& from(ibv_device* device) {
    return *static_cast<Device*>(device);
}
inline Channel& from(ibv_comp_channel* channel) {
    return *static_cast<Channel*>(channel);
}
// Returns the protection domain, also for a parent domain.
inline Pd& from(ibv_pd* pd) {
    return *static_cast<Pd*>(pd)->protection;
}
inline Td& from(ibv_td* td) {
    return *static_cast<Td*>(td);
}
inline Mr& from(ibv_mr* mr) {
    return *static_cast<Mr*>(mr);
}
inline Mw& from(ibv_mw* mw) {
    return *static_cast<Mw*>(mw);
}
inline Cq& from(ibv_cq_ex* cq) {
    return *static_cast<Cq*>(cq);
}
inline Cq& from(ibv_cq* cq) {
    return from(reinterpret_cast<ibv_cq_ex*>(cq));
}
inline Srq& from(ibv_srq* srq) {
    return *static_cast<Srq*>(srq);
}
inline Ah& from(ibv_ah* ah) {
    return *static_cast<Ah*>(ah);
}
inline Qp& from(ibv_qp_ex* qp) {
    return *static_cast<Qp*>(qp);
}
inline Qp& from(ibv_qp* qp) {
    return from(reinterpret_cast<ibv_qp_ex*>(qp));
}

// Returns the XRC TGT QP behind a handle, and any other QP itself.
inline Qp& underlying_qp(ibv_qp* qp) {
    Qp& handle = from(qp);
    return handle.target != nullptr ? *handle.target : handle;
}

inline ibv_cq* as_ibv(Cq& cq) {
    return reinterpret_cast<ibv_cq*>(&cq);
}
inline Context& context_of(const ibv_pd& pd) {
    return from(pd.context);
}

// Counts an object that names `pd`, which may be a parent domain. The count keeps it from being deallocated.
inline void retain(ibv_pd* pd) {
    static_cast<Pd*>(pd)->references.fetch_add(1);
}
inline void release(ibv_pd* pd) {
    static_cast<Pd*>(pd)->references.fetch_sub(1);
}
inline void retain(Context& context) {
    context.references.fetch_add(1);
}
// Drops a reference. The last one deletes the context.
void release(Context& context);

// Sets errno and returns null, for calls that return a pointer.
template <class T>
T* fail(int error) {
    errno = error;
    return nullptr;
}
// Sets errno if `error` is not 0 and returns `error`, for calls that return an errno value. The kernel's refusals set
// errno too.
inline int with_errno(int error) {
    if (error != 0) errno = error;
    return error;
}

}  // namespace rove::verbs
