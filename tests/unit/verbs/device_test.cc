// SPDX-License-Identifier: Apache-2.0
// Tests devices, ports and their tables, and the object lifetimes that verbs promises.
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fixture.h"
#include "verbs/objects.h"
#include "verbs/provider.h"

namespace rove::verbs {
namespace {

TEST_F(VerbsTest, PortAndTables) {
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
    EXPECT_EQ(port.gid_tbl_len, 3);
    EXPECT_EQ(ibv_query_port(context_, 2, &port), EINVAL);

    ibv_gid gid;
    ASSERT_EQ(ibv_query_gid(context_, 1, 1, &gid), 0);
    const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 9, 0, 1};
    EXPECT_EQ(std::memcmp(gid.raw, mapped, sizeof(mapped)), 0);
    EXPECT_EQ(ibv_query_gid(context_, 1, 3, &gid), -1);

    ibv_gid_entry entries[4];
    EXPECT_EQ(ibv_query_gid_table(context_, entries, 4, 0), 3);
    EXPECT_EQ(entries[2].gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
    EXPECT_EQ(ibv_query_gid_table(context_, entries, 1, 0), -EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, 7, entries, 0), EINVAL);

    __be16 pkey;
    ASSERT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, htobe16(0xFFFF));
    EXPECT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), -1);
    EXPECT_EQ(ibv_get_pkey_index(context_, 1, htobe16(0xFFFF)), 0);
    EXPECT_EQ(ibv_get_pkey_index(context_, 1, htobe16(0x8001)), -1);
}

TEST_F(VerbsTest, DeviceAttributes) {
    ibv_device_attr attr;
    ASSERT_EQ(ibv_query_device(context_, &attr), 0);
    EXPECT_EQ(attr.phys_port_cnt, 1);
    EXPECT_EQ(attr.node_guid, ibv_get_device_guid(context_->device));
    ibv_device_attr_ex extended;
    ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &extended), 0);
    EXPECT_EQ(extended.orig_attr.max_qp_wr, attr.max_qp_wr);
    EXPECT_EQ(ibv_get_device_index(context_->device), -1);
}

TEST_F(VerbsTest, CompletionQueueArguments) {
    EXPECT_EQ(ibv_create_cq(context_, 0, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context_, 16, nullptr, nullptr, 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context_, 1 << 30, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_resize_cq(cq_, 1000), 0);
    EXPECT_GE(cq_->cqe, 1000);
    EXPECT_EQ(ibv_resize_cq(cq_, 0), EINVAL);
    ibv_cq_init_attr_ex attr{.cqe = 16, .wc_flags = uint64_t{1} << 40};  // a field of a later libibverbs
    EXPECT_EQ(ibv_create_cq_ex(context_, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(VerbsTest, AChannelOfAnotherContextIsRefused) {
    ibv_context* other = ibv_open_device(context_->device);
    ibv_comp_channel* channel = ibv_create_comp_channel(other);
    EXPECT_EQ(ibv_create_cq(context_, 16, nullptr, channel, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_cq_init_attr_ex attr{.cqe = 16, .channel = channel};
    EXPECT_EQ(ibv_create_cq_ex(context_, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_close_device(other), 0);
}

// The device creates as many objects as ibv_query_device reports, and then fails with ENOMEM. All but the last object
// only take a quota here.
TEST_F(VerbsTest, LimitsOfTheDeviceAreKept) {
    ibv_device_attr limits;
    ASSERT_EQ(ibv_query_device(context_, &limits), 0);
    Device& device = from(context_->device);
    const auto check = [](ObjectQuota& count, int limit, auto create, auto destroy) {
        std::vector<ObjectQuota::Ticket> others;
        while (count.taken() + 1 < static_cast<uint32_t>(limit)) others.push_back(count.take());
        auto* last = create();
        ASSERT_NE(last, nullptr);
        errno = 0;
        EXPECT_EQ(create(), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(destroy(last), 0);
        last = create();
        EXPECT_NE(last, nullptr) << "its place was given back";
        EXPECT_EQ(destroy(last), 0);
    };
    check(
        device.cqs, limits.max_cq, [&] { return ibv_create_cq(context_, 1, nullptr, nullptr, 0); }, ibv_destroy_cq);
    ibv_srq_init_attr shared{.srq_context = nullptr, .attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0}};
    check(
        device.srqs, limits.max_srq, [&] { return ibv_create_srq(pd_, &shared); }, ibv_destroy_srq);
    ibv_ah_attr address = own_address();
    check(
        device.ahs, limits.max_ah, [&] { return ibv_create_ah(pd_, &address); }, ibv_destroy_ah);
    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    check(
        device.qps, limits.max_qp, [&] { return ibv_create_qp(pd_, &init); }, ibv_destroy_qp);
}

// All devices of a process share one table of QP numbers.
TEST(Devices, ShareTheNumbersOfQueuePairs) {
    datapath::Config config;
    for (const char* address : {"10.8.0.1/24", "10.8.1.1/24", "10.8.2.1/24"})
        config.devices.push_back({.port = "net_null1", .addresses = {address}});
    const Provider provider(config);
    ASSERT_EQ(provider.devices().size(), 3u);
    uint32_t all = 0;
    for (const auto& device : provider.devices()) {
        EXPECT_GT(device->max_qps, 20'000u);
        all += device->max_qps;
    }
    EXPECT_LE(all, transport::QueuePairTable::kCapacity);
}

TEST_F(VerbsTest, ObjectsInUseAreBusy) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context_);
    ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, channel, 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    attr.send_cq = cq;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsTest, AnEmptyChannelIsNotReadable) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context_);
    pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0);
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    ibv_cq* cq;
    void* cq_context;
    EXPECT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsTest, AddressHandles) {
    ibv_ah_attr attr = own_address();
    ibv_ah* ah = ibv_create_ah(pd_, &attr);
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    attr.is_global = 0;
    EXPECT_EQ(ibv_create_ah(pd_, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr = own_address();
    attr.grh.sgid_index = 9;
    EXPECT_EQ(ibv_create_ah(pd_, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr = own_address();
    attr.grh.sgid_index = 2;  // IPv6 source with IPv4 destination
    EXPECT_EQ(ibv_create_ah(pd_, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsTest, AddressesFromCompletions) {
    ibv_wc wc{.wc_flags = IBV_WC_GRH};
    ibv_grh grh{};
    const uint8_t ipv4[20] = {0x45, 8, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 7, 10, 9, 0, 1};
    std::memcpy(reinterpret_cast<uint8_t*>(&grh) + 20, ipv4, sizeof ipv4);
    ibv_ah_attr attr;
    ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), 0);
    EXPECT_EQ(attr.port_num, 1);
    EXPECT_EQ(attr.grh.sgid_index, kGidIndex);
    EXPECT_EQ(attr.grh.dgid.raw[15], 7);
    EXPECT_EQ(attr.grh.traffic_class, 8);
    EXPECT_EQ(ibv_init_ah_from_wc(context_, 2, &wc, &grh, &attr), -1) << "there is one port";
    wc.wc_flags = 0;
    EXPECT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr), -1);
}

TEST_F(VerbsTest, SharedReceiveQueueArguments) {
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ASSERT_NE(srq, nullptr);
    ibv_srq_attr set{.max_wr = 0, .max_sge = 0, .srq_limit = 9};
    EXPECT_EQ(ibv_modify_srq(srq, &set, IBV_SRQ_LIMIT), EINVAL);
    EXPECT_EQ(ibv_modify_srq(srq, &set, 1 << 5), EINVAL);
    ibv_recv_wr recv{}, *bad;
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
    set.srq_limit = 4;
    EXPECT_EQ(ibv_modify_srq(srq, &set, IBV_SRQ_LIMIT), 0);
    EXPECT_EQ(ibv_query_srq(srq, &set), 0);
    EXPECT_EQ(set.srq_limit, 4u);
    EXPECT_EQ(set.max_wr, 8u);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    attr.attr.max_wr = 1 << 20;
    EXPECT_EQ(ibv_create_srq(pd_, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

// Each reading is bracketed by two readings of the kernel's clock, so the test holds however long the thread waits for
// a core.
TEST_F(VerbsTest, TheClockRunsAtItsRate) {
    constexpr double kTolerance = 0.01;
    const auto ns = [](const timespec& time) { return static_cast<double>(time.tv_sec) * 1e9 + time.tv_nsec; };
    struct Reading {
        double before, raw, after;
    };
    const auto read = [&] {
        timespec before, after;
        ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
        clock_gettime(CLOCK_MONOTONIC, &before);
        EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
        clock_gettime(CLOCK_MONOTONIC, &after);
        return Reading{ns(before), ns(values.raw_clock), ns(after)};
    };
    const Reading first = read();
    usleep(50'000);
    const Reading second = read();
    EXPECT_GT(second.raw - first.raw, (second.before - first.after) * (1 - kTolerance));
    EXPECT_LT(second.raw - first.raw, (second.after - first.before) * (1 + kTolerance));
}

}  // namespace
}  // namespace rove::verbs
