// SPDX-License-Identifier: Apache-2.0
// Atomics over RC: IBTA 9.4.5.
#include <thread>

#include "verbs.h"

using namespace conformance;

namespace {

struct Counter {
    Ends ends;
    uint64_t& value = *reinterpret_cast<uint64_t*>(ends.remote.at(64));
    const uint64_t& before = *reinterpret_cast<uint64_t*>(ends.local.at());

    Counter() {
        if (device().attr.atomic_cap == IBV_ATOMIC_NONE) skip("no atomics");
    }
    Work add(uint64_t amount, size_t offset = 64) {
        return {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                .sges = {ends.local.sge(0, 8)},
                .to = ends.remote.address(offset),
                .rkey = ends.remote.rkey(),
                .compare_add = amount};
    }
    Work swap(uint64_t compare, uint64_t with) {
        return {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                .sges = {ends.local.sge(0, 8)},
                .to = ends.remote.address(64),
                .rkey = ends.remote.rkey(),
                .compare_add = compare,
                .swap = with};
    }
};

}  // namespace

CASE(rc_atomic, fetch_and_add_returns_what_was_there) {
    Counter t;
    t.value = 0xfffffffffffffff0;
    post(t.ends.a, t.add(0x20));
    succeeded(t.ends.send_cq);
    EXPECT(t.before == 0xfffffffffffffff0 && t.value == 0x10, "%#lx, %#lx", t.before, t.value);
    EXPECT(all_bytes(t.ends.remote.at(), 64, 0) && all_bytes(t.ends.remote.at(72), 64, 0));
}

CASE(rc_atomic, compare_and_swap_swaps_if_equal) {
    Counter t;
    t.value = 77;
    post(t.ends.a, t.swap(77, 99));
    succeeded(t.ends.send_cq);
    EXPECT(t.before == 77 && t.value == 99);
}

CASE(rc_atomic, compare_and_swap_leaves_another_value) {
    Counter t;
    t.value = 78;
    post(t.ends.a, t.swap(77, 99));
    succeeded(t.ends.send_cq);
    EXPECT(t.before == 78 && t.value == 78);
}

// IBTA 9.4.5, C9-..: the address must be a multiple of 8. Otherwise the request is invalid.
CASE(rc_atomic, a_misaligned_address_is_an_invalid_request) {
    Counter t;
    t.value = 5;
    post(t.ends.a, t.add(1, 68));
    const ibv_wc_status status = next(t.ends.send_cq).status;
    EXPECT(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
    EXPECT(t.value == 5);
}

CASE(rc_atomic, many_are_each_done_once) {
    Counter t;
    for (uint64_t i = 0; i < 2000; ++i) {
        post(t.ends.a, t.add(3));
        succeeded(t.ends.send_cq);
        EXPECT(t.before == 3 * i, "%lu of %lu", t.before, 3 * i);
    }
    EXPECT(t.value == 6000);
}

// Atomic among the QPs of a device (IBV_ATOMIC_HCA).
CASE(rc_atomic, two_qps_count_together) {
    Counter t;
    constexpr uint64_t kEach = 500;
    auto count = [&] {
        Owned<ibv_cq> cq = make_cq(), other = make_cq();
        Buffer local(t.ends.pd, 4096);
        Owned<ibv_qp> a = make_qp(t.ends.pd, cq, cq), b = make_qp(t.ends.pd, other, other);
        connect(a, b, {});
        for (uint64_t i = 0; i < kEach; ++i) {
            post(a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                     .sges = {local.sge(0, 8)},
                     .to = t.ends.remote.address(64),
                     .rkey = t.ends.remote.rkey(),
                     .compare_add = 1});
            succeeded(cq);
        }
    };
    std::string failed;
    std::thread second([&] {
        try {
            count();
        } catch (const std::exception& error) {
            failed = error.what();
        }
    });
    try {
        count();
    } catch (...) {
        second.join();
        throw;
    }
    second.join();
    EXPECT(failed.empty(), "%s", failed.c_str());
    EXPECT(t.value == 2 * kEach, "%lu", t.value);
}

PAIR(rc_atomic, two_processes_count_together) {
    if (device().attr.atomic_cap == IBV_ATOMIC_NONE) skip("no atomics");
    Half half(peer);
    for (int i = 0; i < 300; ++i) {
        post(half.qp, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                       .sges = {half.memory.sge(8, 8)},
                       .to = half.theirs.address,
                       .rkey = half.theirs.rkey,
                       .compare_add = 2});
        succeeded(half.send_cq);
        EXPECT(*reinterpret_cast<uint64_t*>(half.memory.at(8)) == static_cast<uint64_t>(2 * i));
    }
    peer.barrier();
    EXPECT(*reinterpret_cast<uint64_t*>(half.memory.at()) == 600);
    peer.barrier();
}
