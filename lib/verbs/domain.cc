// SPDX-License-Identifier: Apache-2.0
// Protection domains, thread domains and parent domains. A thread domain promises that the objects made with it are
// used by one thread at a time. Other devices then need no locks; rove takes them anyway.
#include <memory>
#include <new>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

ibv_pd* alloc_pd(ibv_context* context) {
    auto pd = std::unique_ptr<Pd>(new (std::nothrow) Pd{});
    if (pd == nullptr || !(pd->place = from(context).device->pds.take())) return fail<ibv_pd>(ENOMEM);
    pd->context = context;
    retain(from(context));
    return pd.release();
}

// Also deallocates parent domains.
int dealloc_pd(ibv_pd* handle) {
    Pd* pd = static_cast<Pd*>(handle);
    if (pd->references.load() != 0) return EBUSY;
    if (pd->protection != pd) release(pd->protection);
    if (pd->thread_domain != nullptr) pd->thread_domain->references.fetch_sub(1);
    Context& context = context_of(*pd);
    delete pd;
    release(context);
    return 0;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
    if (attr->comp_mask != 0) return fail<ibv_td>(EOPNOTSUPP);
    auto* td = new (std::nothrow) Td{};
    if (td == nullptr) return fail<ibv_td>(ENOMEM);
    td->context = context;
    retain(from(context));
    return td;
}

int dealloc_td(ibv_td* handle) {
    Td& td = from(handle);
    if (td.references.load() != 0) return EBUSY;
    Context& context = from(td.context);
    delete &td;
    release(context);
    return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    constexpr uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if ((attr->comp_mask & ~kKnown) != 0) return fail<ibv_pd>(EINVAL);
    if (attr->pd == nullptr || attr->pd->context != context || &from(attr->pd) != attr->pd) return fail<ibv_pd>(EINVAL);
    if (attr->td != nullptr && attr->td->context != context) return fail<ibv_pd>(EINVAL);
    // The allocators are for rings that a device reads. rove's rings are used by the CPU only, and may be anywhere.
    if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0 &&
        (attr->alloc == nullptr || attr->free == nullptr)) {
        return fail<ibv_pd>(EINVAL);
    }
    auto* pd = new (std::nothrow) Pd{};
    if (pd == nullptr) return fail<ibv_pd>(ENOMEM);
    pd->context = context;
    pd->protection = &from(attr->pd);
    retain(attr->pd);
    if (attr->td != nullptr) {
        pd->thread_domain = &from(attr->td);
        pd->thread_domain->references.fetch_add(1);
    }
    retain(from(context));
    return pd;
}

}  // namespace rove::verbs
