// SPDX-License-Identifier: Apache-2.0
// ibv_get_device_list, ibv_open_device, ibv_query_device(_ex): their results, and the limits that they report.
#include <dirent.h>

#include <memory>
#include <set>

#include "verbs.h"

using namespace conformance;

namespace {

int open_files() {
    int count = 0;
    DIR* directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr) ++count;
    closedir(directory);
    return count;
}

// The limits of real devices may be in the millions. Larger limits than this are not tested, so that a case takes a few
// seconds.
constexpr int kCountable = 1 << 20;

// Creates objects until the device refuses. There must be `limit` of them.
template <typename Make>
void limit_is_kept(int limit, Make make) {
    if (limit > kCountable) skip("%d are too many to make in a few seconds", limit);
    std::vector<decltype(make())> objects;
    objects.reserve(static_cast<size_t>(limit) + 1);
    for (int made = 0; made < limit; ++made) {
        objects.push_back(make());
        EXPECT(objects.back() != nullptr, "%d of %d: %s", made, limit, strerror(errno));
    }
    errno = 0;
    const auto beyond = make();
    const int reason = errno;
    EXPECT(beyond == nullptr, "%d were made", limit + 1);
    EXPECT(reason == ENOMEM || reason == ENOSPC || reason == EAGAIN, "%s", strerror(reason));
}

}  // namespace

// `man ibv_get_device_list`: a NULL-terminated array. Its length is in num_devices, which may be NULL.
CASE(device_limits, device_list_is_null_terminated) {
    int count = -1;
    ibv_device** list = ibv_get_device_list(&count);
    EXPECT(list != nullptr && count > 0);
    std::set<std::string> names;
    for (int i = 0; i < count; ++i) {
        EXPECT(list[i] != nullptr);
        names.insert(ibv_get_device_name(list[i]));
    }
    EXPECT(list[count] == nullptr);
    EXPECT(names.size() == static_cast<size_t>(count), "names are unique");
    ibv_free_device_list(list);
    list = ibv_get_device_list(nullptr);
    EXPECT(list != nullptr);
    ibv_free_device_list(list);
}

// A successful call need not change errno, and programs that read it afterwards would see an error.
CASE(device_limits, device_list_leaves_errno_alone) {
    errno = 0;
    ibv_device** list = ibv_get_device_list(nullptr);
    const int after = errno;
    EXPECT(list != nullptr);
    ibv_free_device_list(list);
    EXPECT(after == 0, "errno is %s", strerror(after));
}

// `man ibv_get_device_list`: "Client code should open all the devices it intends to use before calling
// ibv_free_device_list()".
CASE(device_limits, device_stays_open_after_the_list_is_freed) {
    const Device opened = open_device();
    Owned<ibv_context> context(opened.context);
    ibv_device_attr attr;
    EXPECT_OK(ibv_query_device(context, &attr));
    EXPECT(ibv_get_device_name(context->device) != nullptr);
    EXPECT(settings.device.empty() || settings.device == ibv_get_device_name(context->device));
}

CASE(device_limits, device_guid_is_node_guid) {
    EXPECT(device().attr.node_guid != 0);
    EXPECT(ibv_get_device_guid(device().context->device) == device().attr.node_guid);
}

CASE(device_limits, device_is_a_channel_adapter) {
    EXPECT(device().context->device->node_type == IBV_NODE_CA, "%s",
           ibv_node_type_str(device().context->device->node_type));
    EXPECT(device().context->device->transport_type == IBV_TRANSPORT_IB);
    EXPECT(device().context->num_comp_vectors >= 1);
    EXPECT(device().context->async_fd >= 0);
}

// Programs print vendor and part, and select devices by them. 0 is no vendor. (Soft-RoCE has part 0, and its own vendor
// since Linux 5.9.)
CASE(device_limits, vendor_is_named) {
    EXPECT(device().attr.vendor_id != 0);
    const ibv_device_attr first = device().attr;
    ibv_device_attr again;
    EXPECT_OK(ibv_query_device(device().context, &again));
    EXPECT(first.vendor_part_id == again.vendor_part_id && first.hw_ver == again.hw_ver);
}

CASE(device_limits, every_limit_is_positive) {
    const ibv_device_attr& attr = device().attr;
    const int limits[] = {attr.max_qp,
                          attr.max_qp_wr,
                          attr.max_sge,
                          attr.max_cq,
                          attr.max_cqe,
                          attr.max_mr,
                          attr.max_pd,
                          attr.max_ah,
                          attr.max_srq,
                          attr.max_srq_wr,
                          attr.max_srq_sge,
                          attr.max_qp_rd_atom,
                          attr.max_qp_init_rd_atom};
    for (size_t i = 0; i < std::size(limits); ++i) EXPECT(limits[i] > 0, "limit %zu is %d", i, limits[i]);
    EXPECT(attr.max_mr_size > 0 && attr.page_size_cap != 0 && attr.max_pkeys > 0 && attr.phys_port_cnt >= 1);
    EXPECT(attr.local_ca_ack_delay < 32, "it is a 5-bit code, %d", attr.local_ca_ack_delay);
}

CASE(device_limits, query_device_ex_agrees) {
    ibv_device_attr_ex extended;
    std::memset(&extended, 0xff, sizeof(extended));
    EXPECT_OK(ibv_query_device_ex(device().context, nullptr, &extended));
    EXPECT(std::memcmp(&extended.orig_attr, &device().attr, sizeof(device().attr)) == 0);
    EXPECT(static_cast<uint32_t>(extended.device_cap_flags_ex) == device().attr.device_cap_flags);
}

// `man ibv_query_device_ex`: no bit of the input's comp_mask is defined.
CASE(device_limits, query_device_ex_refuses_an_unknown_input) {
    ibv_query_device_ex_input input{1u << 31};
    ibv_device_attr_ex extended;
    EXPECT_ERROR(ibv_query_device_ex(device().context, &input, &extended), EINVAL);
}

CASE(device_limits, query_rt_values_gives_a_clock) {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    const int error = ibv_query_rt_values_ex(device().context, &values);
    // A device without such a clock reports this.
    if (error == EOPNOTSUPP) skip("the device has no clock that can be read");
    EXPECT(error == 0);
    EXPECT((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0);
    const timespec first = values.raw_clock;
    sleep_for(0.002);
    EXPECT_OK(ibv_query_rt_values_ex(device().context, &values));
    EXPECT(first.tv_sec != values.raw_clock.tv_sec || first.tv_nsec != values.raw_clock.tv_nsec, "it stands still");
}

CASE(device_limits, closing_gives_everything_back) {
    device();
    const int before = open_files();
    for (int i = 0; i < 20; ++i) {
        Owned<ibv_context> context(open_device().context);
        Owned<ibv_pd> pd = OWN(ibv_alloc_pd(context));
        Owned<ibv_cq> cq = OWN(ibv_create_cq(context, 4, nullptr, nullptr, 0));
    }
    EXPECT(open_files() <= before, "%d files before, %d after", before, open_files());
}

CASE(device_limits, contexts_are_independent) {
    Owned<ibv_context> other(open_device().context);
    EXPECT(other != device().context);
    Owned<ibv_pd> pd = OWN(ibv_alloc_pd(other));
    EXPECT(pd->context == other);
    Owned<ibv_pd> mine = make_pd();
    EXPECT(mine->context == device().context);
    EXPECT_OK(pd.destroy());
    EXPECT_OK(other.destroy());
    ibv_device_attr attr;
    EXPECT_OK(ibv_query_device(device().context, &attr));
}

CASE(device_limits, max_pd_is_kept) {
    Owned<ibv_context> own(open_device().context);
    limit_is_kept(device().attr.max_pd, [&] { return Owned<ibv_pd>(ibv_alloc_pd(own)); });
}

CASE(device_limits, max_ah_is_kept) {
    Owned<ibv_pd> pd = make_pd();
    limit_is_kept(device().attr.max_ah, [&] {
        ibv_ah_attr attr = address_of(device().gid);
        return Owned<ibv_ah>(ibv_create_ah(pd, &attr));
    });
}

CASE(device_limits, max_cq_is_kept) {
    limit_is_kept(device().attr.max_cq,
                  [&] { return Owned<ibv_cq>(ibv_create_cq(device().context, 1, nullptr, nullptr, 0)); });
}

CASE(device_limits, max_srq_is_kept) {
    Owned<ibv_pd> pd = make_pd();
    limit_is_kept(device().attr.max_srq, [&] {
        ibv_srq_init_attr attr{nullptr, {1, 1, 0}};
        return Owned<ibv_srq>(ibv_create_srq(pd, &attr));
    });
}

CASE(device_limits, max_qp_is_kept) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq(16);
    limit_is_kept(device().attr.max_qp, [&] {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {1, 1, 1, 1, 0};
        attr.qp_type = IBV_QPT_RC;
        return Owned<ibv_qp>(ibv_create_qp(pd, &attr));
    });
}
