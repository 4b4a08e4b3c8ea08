// SPDX-License-Identifier: Apache-2.0
// Tests calls that rdma-core 44 lacks, calls that rove refuses, and the errno after calls.
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "fixture.h"
#include "verbs/rate.h"

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_dmah;

namespace rove::verbs {
namespace {

// The declarations of rdma-core 65, independent of the installed headers.
struct MrInitAttr {
    size_t length;
    int access;
    uint64_t comp_mask, iova;
    void* addr;
    int fd;
    uint64_t fd_offset;
    ibv_dmah* dmah;
    ibv_buf* buf;
};
extern "C" {
ibv_dmah* alloc_dmah(ibv_context*, void*) asm("ibv_alloc_dmah");
ibv_mr* reg_mr_ex(ibv_pd*, MrInitAttr*) asm("ibv_reg_mr_ex");
int query_port_speed(ibv_context*, uint32_t, uint64_t*) asm("ibv_query_port_speed");
void* alloc_buf(ibv_pd*, size_t, ibv_buf**) asm("ibv_alloc_buf");
ibv_mr* reg_buf_mr(ibv_pd*, ibv_buf*, void*, size_t, int) asm("ibv_reg_buf_mr");
void free_buf(ibv_buf*) asm("ibv_free_buf");
int export_buf_dmabuf_fd(ibv_buf*) asm("ibv_export_buf_dmabuf_fd");
int query_comp_cntr_caps(ibv_context*, void*, size_t) asm("_ibv_query_comp_cntr_caps");
ibv_comp_cntr* create_comp_cntr(ibv_context*, void*) asm("ibv_create_comp_cntr");
int qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*, void*) asm("ibv_qp_attach_comp_cntr");
}

// Returns the errno that `call` leaves.
template <class Call>
int errno_after(Call call) {
    errno = 0;
    call();
    return errno;
}

TEST_F(VerbsTest, CallsOfNewerLibrariesAreRefused) {
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(alloc_dmah(context_, nullptr), nullptr); }), EOPNOTSUPP);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(create_comp_cntr(context_, nullptr), nullptr); }), EOPNOTSUPP);
    EXPECT_EQ(query_comp_cntr_caps(context_, nullptr, 0), EOPNOTSUPP);
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    EXPECT_EQ(qp_attach_comp_cntr(qp, nullptr, nullptr), EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsTest, PortSpeedIsThatOfThePort) {
    uint64_t speed = 0;
    EXPECT_EQ(query_port_speed(context_, 1, &speed), 0);
    EXPECT_EQ(speed, 1000u) << "100 Gb/s, as ibv_query_port's width and speed say";
    EXPECT_EQ(query_port_speed(context_, 2, &speed), EINVAL);
}

TEST(Rate, IsTheNextStepAbove) {
    for (const auto& [mbps, gbps] : {std::pair{1'000u, 2.5},
                                     {10'000u, 10.0},
                                     {25'000u, 25.0},
                                     {40'000u, 40.0},
                                     {50'000u, 50.0},
                                     {56'000u, 100.0},
                                     {100'000u, 100.0},
                                     {200'000u, 200.0},
                                     {400'000u, 400.0},
                                     {800'000u, 800.0}}) {
        const Rate rate = rate_of(mbps);
        const double lanes = rate.width == 16 ? 2 : rate.width == 4 ? 8 : rate.width == 2 ? 4 : 1;
        constexpr double kLane[] = {2.5, 5, 10, 10, 14, 25, 50, 100};
        EXPECT_EQ(lanes * kLane[std::countr_zero(rate.speed)], gbps) << mbps;
        EXPECT_EQ(std::atof(rate.text), gbps) << mbps;
    }
}

TEST_F(VerbsTest, RegisteringByAttributes) {
    MrInitAttr attr{.length = 4096, .access = IBV_ACCESS_LOCAL_WRITE, .comp_mask = 2, .addr = buffer_.data()};
    ibv_mr* mr = reg_mr_ex(pd_, &attr);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, buffer_.data());
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    attr.comp_mask = 0;  // no address
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EINVAL);
    attr.comp_mask = 2 | 4;  // an address and a dma-buf
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EINVAL);
    attr.comp_mask = 2 | 8;  // an offset without a dma-buf
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EINVAL);
    attr.comp_mask = 1 | 4 | 8;  // a file that is no dma-buf: errors are the same as those from ibv_reg_dmabuf_mr
    attr.fd = -1;                // asks whether GPU memory can be registered
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EOPNOTSUPP);
    attr.fd = (1 << 20) - 1;
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EBADF);
    attr.fd = context_->cmd_fd;
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EINVAL);
    attr.comp_mask = 2 | 16;  // a DMA handle
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EOPNOTSUPP);
}

// man ibv_alloc_buf
TEST_F(VerbsTest, BuffersAreMemoryOfTheProcess) {
    ibv_buf* buf = nullptr;
    auto* const memory = static_cast<uint8_t*>(alloc_buf(pd_, 10000, &buf));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    ibv_mr* mr = reg_buf_mr(pd_, buf, memory + 4096, 10000 - 4096, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_TRUE(mr->addr == memory + 4096 && mr->length == 10000 - 4096);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    const auto refused = [&](ibv_pd* pd, uint8_t* address, size_t length) {
        return errno_after([&] { EXPECT_EQ(reg_buf_mr(pd, buf, address, length, 0), nullptr); });
    };
    EXPECT_EQ(refused(pd_, memory + 4096, 10001 - 4096), EINVAL) << "beyond its end";
    EXPECT_EQ(refused(pd_, memory - 1, 10), EINVAL) << "before it";
    ibv_pd* other = ibv_alloc_pd(context_);
    EXPECT_EQ(refused(other, memory, 10), EINVAL) << "another domain";
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    MrInitAttr attr{.length = 100, .access = 0, .comp_mask = 32 | 2 | 1, .iova = 77, .addr = memory, .buf = buf};
    mr = reg_mr_ex(pd_, &attr);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    attr.comp_mask = 32;  // no address
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EINVAL);
    attr.comp_mask = 32 | 2 | 8;  // an offset into a dma-buf
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(reg_mr_ex(pd_, &attr), nullptr); }), EINVAL);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(export_buf_dmabuf_fd(buf), -1); }), ENODATA);
    free_buf(buf);
    EXPECT_EQ(refused(pd_, memory, 10), EINVAL) << "it was freed";
}

TEST_F(VerbsTest, AnOperationThatNobodyKnowsDoesNotCrash) {
    // Calls of a later libibverbs reach these operations, because rove does not export them.
    const auto* operations = reinterpret_cast<void* (*const*)()>(verbs_get_ctx(context_)->priv);
    ASSERT_NE(operations, nullptr);
    for (const int index : {0, 3, 97, 511})
        EXPECT_EQ(errno_after([&] { EXPECT_EQ(operations[index](), nullptr); }), EOPNOTSUPP);
}

TEST_F(VerbsTest, NothingIsImported) {
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_import_device(context_->cmd_fd), nullptr); }), EOPNOTSUPP);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_import_pd(context_, pd_->handle), nullptr); }), EOPNOTSUPP);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_import_mr(pd_, mr_->handle), nullptr); }), EOPNOTSUPP);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_import_dm(context_, 1), nullptr); }), EOPNOTSUPP);
    ibv_unimport_mr(mr_);
    ibv_unimport_pd(pd_);
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_import_device(pipe_ends[0]), nullptr); }), EINVAL);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

TEST_F(VerbsTest, CallsThatReturnAnErrorAlsoLeaveItInErrno) {
    ibv_port_attr port;
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_query_port(context_, 2, &port), EINVAL); }), EINVAL);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_resize_cq(cq_, 0), EINVAL); }), EINVAL);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY); }), EBUSY);
    ibv_gid_entry entry;
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_query_gid_ex(context_, 1, 99, &entry, 0), EINVAL); }), EINVAL);
    ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_destroy_cq(cq_), EBUSY); }), EBUSY);
    ibv_qp_attr to = attr_for(IBV_QPS_INIT, 0);
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), EINVAL); }), EINVAL);
    EXPECT_EQ(ibv_modify_qp(qp, &to, kInitMask), 0);
    to = attr_for(IBV_QPS_RTR, 1);
    to.ah_attr.grh.dgid.raw[15] = 99;  // an address that no host has
    // The call fails after 3 s. Time that this process spends off its core does not count, because its neighbours may
    // also be off their cores.
    std::chrono::steady_clock::time_point on_its_core;
    std::thread busy_machine([&on_its_core] {
        const char* const command =
            "for i in $(seq 25); do kill -STOP $PPID; sleep 0.05; kill -CONT $PPID; sleep 0.005; done";
        EXPECT_EQ(std::system(command), 0);
        on_its_core = std::chrono::steady_clock::now();
    });
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_modify_qp(qp, &to, kRtrMask), EHOSTUNREACH); }), EHOSTUNREACH);
    const auto ended = std::chrono::steady_clock::now();
    busy_machine.join();
    EXPECT_GT(ended - on_its_core, std::chrono::milliseconds(2300));
    ibv_gid group{};
    EXPECT_EQ(errno_after([&] { EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), EINVAL); }), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsTest, AListOfDevicesLeavesErrnoAlone) {
    // The real library finds no kernel support for RDMA and sets ENOSYS.
    EXPECT_EQ(errno_after([] { ibv_free_device_list(ibv_get_device_list(nullptr)); }), 0);
}

}  // namespace
}  // namespace rove::verbs
