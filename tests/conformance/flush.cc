// SPDX-License-Identifier: Apache-2.0
// ATOMIC WRITE and FLUSH: `man ibv_wr_post` of rdma-core 56; IBTA 1.5, annex A19. An older <infiniband/verbs.h> lacks
// the constants, and a member at the end of ibv_qp_ex.
#include <atomic>
#include <functional>
#include <type_traits>

#include "verbs.h"

using namespace conformance;

namespace {

constexpr uint64_t kOpFlush = 1 << 11, kOpAtomicWrite = 1 << 12;             // ibv_qp_create_send_ops_flags
constexpr unsigned kAccessFlushGlobal = 1 << 8, kAccessPersistent = 1 << 9;  // ibv_access_flags
constexpr uint64_t kDeviceFlushGlobal = 1ull << 38, kDevicePersistent = 1ull << 39, kDeviceAtomicWrite = 1ull << 40;
constexpr uint8_t kGlobal = 1, kPersistent = 2;  // ibv_placement_type
constexpr uint8_t kRange = 0, kRegion = 1;       // ibv_selectivity_level
constexpr int kWcFlush = 8, kWcAtomicWrite = 9;  // ibv_wc_opcode
constexpr auto kWrAtomicWrite = static_cast<ibv_wr_opcode>(15);
constexpr unsigned kAccess = kAllAccess | kAccessFlushGlobal;

struct WithFlush : ibv_qp_ex {
    void (*wr_flush)(ibv_qp_ex*, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t placement,
                     uint8_t selectivity);
};
template <class QpEx>
concept HasFlush = requires(QpEx qp) {
    qp.wr_flush;
};
using QpEx = std::conditional_t<HasFlush<ibv_qp_ex>, ibv_qp_ex, WithFlush>;

void need(uint64_t capabilities) {
    ibv_device_attr_ex attr{};
    EXPECT_OK(ibv_query_device_ex(device().context, nullptr, &attr));
    if ((attr.device_cap_flags_ex & capabilities) != capabilities) skip("the device does not offer it");
}

struct Extended {
    Ends ends;
    QpEx* qp;
    Buffer target;

    explicit Extended(unsigned qp_access = kAccess, unsigned access = kAccess)
        : ends({.access = qp_access, .send_ops = kOpFlush | kOpAtomicWrite | IBV_QP_EX_WITH_RDMA_WRITE}),
          qp(static_cast<QpEx*>(ibv_qp_to_qp_ex(ends.a))),
          target(ends.pd, 65536, access) {
        EXPECT(qp != nullptr);
    }
    int try_one(const std::function<void()>& build, unsigned flags = IBV_SEND_SIGNALED) {
        ibv_wr_start(qp);
        qp->wr_id = 3;
        qp->wr_flags = flags;
        build();
        return ibv_wr_complete(qp);
    }
    void one(const std::function<void()>& build, unsigned flags = IBV_SEND_SIGNALED) {
        EXPECT_OK(try_one(build, flags));
    }
    void flush(size_t at, size_t bytes, uint8_t placement = kGlobal, uint8_t selectivity = kRange) {
        one([&] { qp->wr_flush(qp, target.rkey(), target.address(at), bytes, placement, selectivity); });
    }
    void write(size_t at, uint32_t bytes, unsigned flags = 0) {
        one(
            [&] {
                ibv_wr_rdma_write(qp, target.rkey(), target.address(at));
                ibv_wr_set_sge(qp, ends.local.lkey(), ends.local.address(), bytes);
            },
            flags);
    }
    void atomic_write(size_t at, uint64_t word) {
        one([&] { qp->wr_atomic_write(qp, target.rkey(), target.address(at), &word); });
    }
    uint64_t word(size_t at) const {
        return std::atomic_ref(*reinterpret_cast<uint64_t*>(target.at(at))).load(std::memory_order_acquire);
    }
};

}  // namespace

CASE(flush, an_atomic_write_writes_a_word) {
    need(kDeviceAtomicWrite);
    Extended t;
    fill(t.target.at(), 64, 1);
    t.atomic_write(16, 0x0102030405060708);
    const ibv_wc wc = succeeded(t.ends.send_cq);
    EXPECT(wc.opcode == kWcAtomicWrite && wc.wr_id == 3, "opcode %d", wc.opcode);
    EXPECT(t.word(16) == 0x0102030405060708);
    fill(t.ends.local.at(), 64, 1);
    EXPECT(std::memcmp(t.target.at(), t.ends.local.at(), 16) == 0 &&
           std::memcmp(t.target.at(24), t.ends.local.at(24), 40) == 0);
}

CASE(flush, an_atomic_write_by_post_send) {
    need(kDeviceAtomicWrite);
    Extended t;
    fill(t.ends.local.at(), 8, 5);
    post(t.ends.a, {.opcode = kWrAtomicWrite,
                    .sges = {t.ends.local.sge(0, 8)},
                    .to = t.target.address(8),
                    .rkey = t.target.rkey()});
    EXPECT(succeeded(t.ends.send_cq).opcode == kWcAtomicWrite);
    EXPECT(matches(t.target.at(8), 8, 5));
}

CASE(flush, an_atomic_write_is_eight_bytes_long) {
    need(kDeviceAtomicWrite);
    Extended t;
    for (const uint32_t bytes : {4u, 16u})
        EXPECT(try_post(t.ends.a, {.opcode = kWrAtomicWrite,
                                   .sges = {t.ends.local.sge(0, bytes)},
                                   .to = t.target.address(),
                                   .rkey = t.target.rkey()}) != 0);
}

CASE(flush, an_atomic_write_is_aligned) {
    need(kDeviceAtomicWrite);
    Extended t;
    t.atomic_write(4, 1);
    next_is(t.ends.send_cq, IBV_WC_REM_INV_REQ_ERR);
    EXPECT(t.word(0) == 0 && t.word(8) == 0);
}

// An ATOMIC WRITE needs the right to write, at the QP and at the region.
CASE(flush, an_atomic_write_needs_the_right_to_write) {
    need(kDeviceAtomicWrite);
    {
        Extended t(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
        t.atomic_write(0, 1);
        const ibv_wc_status status = next(t.ends.send_cq).status;
        EXPECT(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
        EXPECT(t.word(0) == 0);
    }
    Extended t(kAccess, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    t.atomic_write(0, 1);
    next_is(t.ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT(t.word(0) == 0);
}

CASE(flush, a_flush_follows_the_writes_before_it) {
    need(kDeviceFlushGlobal);
    Extended t;
    for (uint32_t i = 0; i < 20; ++i) {
        fill(t.ends.local.at(), 20000, i);
        t.write(0, 20000);
        t.flush(0, 20000);
        const ibv_wc wc = succeeded(t.ends.send_cq);
        EXPECT(wc.opcode == kWcFlush && wc.wr_id == 3, "opcode %d", wc.opcode);
        EXPECT(matches(t.target.at(), 20000, i));
    }
}

CASE(flush, a_flush_of_a_whole_region) {
    need(kDeviceFlushGlobal);
    Extended t;
    t.flush(0, 0, kGlobal, kRegion);
    succeeded(t.ends.send_cq);
}

CASE(flush, a_flush_beyond_the_region_is_refused) {
    need(kDeviceFlushGlobal);
    Extended t;
    t.flush(65000, 1000);
    next_is(t.ends.send_cq, IBV_WC_REM_ACCESS_ERR);
}

CASE(flush, a_flush_needs_its_right) {
    need(kDeviceFlushGlobal);
    {
        Extended t(kAllAccess);
        t.flush(0, 100);
        const ibv_wc_status status = next(t.ends.send_cq).status;
        EXPECT(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
    }
    Extended t(kAccess, kAllAccess);
    t.flush(0, 100);
    next_is(t.ends.send_cq, IBV_WC_REM_ACCESS_ERR);
}

// A device that cannot tell which memory is persistent must grant no right to persistent flushes.
CASE(flush, persistence_is_offered_or_refused) {
    need(kDeviceFlushGlobal);
    ibv_device_attr_ex attr{};
    EXPECT_OK(ibv_query_device_ex(device().context, nullptr, &attr));
    if ((attr.device_cap_flags_ex & kDevicePersistent) != 0) skip("the device offers it");
    Extended t;
    Memory memory(4096);
    EXPECT_REFUSED(ibv_reg_mr(t.ends.pd, memory.at(), 4096, kAllAccess | kAccessPersistent), EINVAL, EOPNOTSUPP);
    t.flush(0, 100, kPersistent);
    const ibv_wc_status status = next(t.ends.send_cq).status;
    EXPECT(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
}

// A log as in A19: data is written and flushed, then the word that makes it valid. A reader that sees the word also
// sees the data.
PAIR(flush, a_word_follows_flushed_data) {
    need(kDeviceFlushGlobal | kDeviceAtomicWrite);
    Half half(peer, {.access = kAccess, .send_ops = kOpFlush | kOpAtomicWrite | IBV_QP_EX_WITH_RDMA_WRITE});
    Buffer log(half.pd, 65536, kAccess);
    struct Where {
        uint64_t address;
        uint32_t rkey;
    };
    const Where theirs = peer.exchange(Where{log.address(), log.rkey()});
    auto* const qp = static_cast<QpEx*>(ibv_qp_to_qp_ex(half.qp));
    const std::atomic_ref word(*reinterpret_cast<uint64_t*>(log.at()));
    for (uint32_t i = 1; i <= 50; ++i) {
        if (peer.first) {
            fill(half.memory.at(), 30000, i);
            const uint64_t value = i;
            ibv_wr_start(qp);
            qp->wr_flags = 0;
            ibv_wr_rdma_write(qp, theirs.rkey, theirs.address + 1024);
            ibv_wr_set_sge(qp, half.memory.lkey(), half.memory.address(), 30000);
            qp->wr_flush(qp, theirs.rkey, theirs.address + 1024, 30000, kGlobal, kRange);
            qp->wr_flags = IBV_SEND_SIGNALED;
            qp->wr_atomic_write(qp, theirs.rkey, theirs.address, &value);
            EXPECT_OK(ibv_wr_complete(qp));
            succeeded(half.send_cq);
        } else {
            ibv_wc wc;
            EXPECT(poll_until([&] {
                ibv_poll_cq(half.recv_cq, 1, &wc);
                return word.load(std::memory_order_acquire) == i;
            }));
            EXPECT(matches(log.at(1024), 30000, i));
        }
        peer.barrier();
    }
}
