// SPDX-License-Identifier: Apache-2.0
// XRC (IBTA annex A14): domains, and the handles of TGT QPs.
//
// A domain is private, or belongs to an inode of the file system: two openings with the same inode on the same device
// get the same domain. That holds within a process, because the devices of two processes share nothing. A TGT QP
// belongs to its domain. It lives until the last of its handles is destroyed: the one that created it, and those from
// ibv_open_qp() (man ibv_open_qp).
#include "verbs/xrc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "verbs/event_ack.h"
#include "verbs/verbs.h"

namespace rove::verbs {

XrcDomain::~XrcDomain() {
    if (fd >= 0) close(fd);
}

namespace {

// Returns the domain of a file, or null if it is not open. The caller holds the device's xrc_mutex.
std::shared_ptr<XrcDomain> find_domain(Device& device, const struct stat& file) {
    std::erase_if(device.xrc_domains, [](const std::weak_ptr<XrcDomain>& domain) { return domain.expired(); });
    for (const std::weak_ptr<XrcDomain>& known : device.xrc_domains) {
        std::shared_ptr<XrcDomain> domain = known.lock();
        if (domain != nullptr && domain->device_number == file.st_dev && domain->inode == file.st_ino) return domain;
    }
    return nullptr;
}

// Returns 0, EBADF or EMFILE, or, as ib_uverbs does, EAGAIN (no such domain) or EINVAL (O_EXCL, and it exists).
int open_shared(Device& device, const ibv_xrcd_init_attr& attr, std::shared_ptr<XrcDomain>& domain) {
    struct stat file;
    if (fstat(attr.fd, &file) != 0) return EBADF;
    domain = find_domain(device, file);
    if (domain != nullptr) return (attr.oflags & O_EXCL) != 0 ? EINVAL : 0;
    if ((attr.oflags & O_CREAT) == 0) return EAGAIN;
    domain = std::make_shared<XrcDomain>();
    // While the file is open, no other file gets its inode number.
    domain->fd = fcntl(attr.fd, F_DUPFD_CLOEXEC, 0);
    if (domain->fd < 0) return EMFILE;
    domain->device_number = file.st_dev;
    domain->inode = file.st_ino;
    device.xrc_domains.push_back(domain);
    return 0;
}

// Returns a new handle of the TGT QP `target`, or null with ENOMEM. The caller holds the mutex of its domain.
ibv_qp* make_handle(Xrcd& xrcd, Qp& target, void* qp_context) {
    auto* handle = new (std::nothrow) Qp{};
    if (handle == nullptr) return fail<ibv_qp>(ENOMEM);
    handle->context = &from(xrcd.context);
    handle->runtime = target.runtime;
    handle->transport.type = IBV_QPT_XRC_RECV;
    handle->transport.owner = handle;
    handle->target = &target;
    handle->xrcd = &xrcd;
    ibv_qp& base = handle->qp_base;
    base.context = xrcd.context;
    base.qp_context = qp_context;
    base.qp_num = target.transport.qpn;
    base.handle = target.transport.qpn;
    base.state = target.transport.state;
    base.qp_type = IBV_QPT_XRC_RECV;
    init_acks(base);
    target.xrc->handles.push_back(handle);
    xrcd.references.fetch_add(1);
    return &base;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
    constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if ((attr->comp_mask & ~kNeeded) != 0) return fail<ibv_xrcd>(EOPNOTSUPP);
    if (attr->comp_mask != kNeeded) return fail<ibv_xrcd>(EINVAL);
    auto xrcd = std::make_unique<Xrcd>();
    Device& device = *from(context).device;
    if (attr->fd == -1) {
        xrcd->domain = std::make_shared<XrcDomain>();
    } else {
        const std::lock_guard guard(device.xrc_mutex);
        if (const int error = open_shared(device, *attr, xrcd->domain); error != 0) return fail<ibv_xrcd>(error);
    }
    xrcd->context = context;
    retain(from(context));
    return xrcd.release();
}

int close_xrcd(ibv_xrcd* handle) {
    Xrcd& xrcd = from(handle);
    if (xrcd.references.load() != 0) return EBUSY;
    Context& context = from(xrcd.context);
    delete &xrcd;
    release(context);
    return 0;
}

ibv_qp* adopt_target(ibv_xrcd* handle, std::unique_ptr<Qp> target, void* qp_context) {
    Xrcd& xrcd = from(handle);
    const std::lock_guard guard(xrcd.domain->mutex);
    ibv_qp* const first = make_handle(xrcd, *target, qp_context);
    if (first == nullptr) return nullptr;
    xrcd.domain->targets.push_back(target.get());
    retain(*target.release()->context);
    return first;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
    constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    if ((attr->comp_mask & ~(kNeeded | IBV_QP_OPEN_ATTR_CONTEXT)) != 0) return fail<ibv_qp>(EOPNOTSUPP);
    if ((attr->comp_mask & kNeeded) != kNeeded || attr->qp_type != IBV_QPT_XRC_RECV) return fail<ibv_qp>(EINVAL);
    if (attr->xrcd == nullptr || attr->xrcd->context != context) return fail<ibv_qp>(EINVAL);
    XrcDomain& domain = *from(attr->xrcd).domain;
    const std::lock_guard guard(domain.mutex);
    const auto found = std::find_if(domain.targets.begin(), domain.targets.end(),
                                    [&](const Qp* target) { return target->transport.qpn == attr->qp_num; });
    if (found == domain.targets.end()) return fail<ibv_qp>(EINVAL);
    void* const qp_context = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attr->qp_context : nullptr;
    return make_handle(from(attr->xrcd), **found, qp_context);
}

Qp* close_handle(Qp& handle) {
    Qp* const target = handle.target;
    XrcDomain& domain = *handle.xrcd->domain;
    const std::lock_guard guard(domain.mutex);
    std::erase(target->xrc->handles, &handle);  // no event reaches it from here on
    if (!target->xrc->handles.empty()) return nullptr;
    std::erase(domain.targets, target);  // no call can open it from here on
    return target;
}

}  // namespace rove::verbs
