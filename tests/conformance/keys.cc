// SPDX-License-Identifier: Apache-2.0
// Keys and QP numbers. IBTA only requires that a valid key names one region. rove also promises that keys are hard to
// guess (many NICs count up), so these cases are skipped on other devices.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "verbs.h"

using namespace conformance;

namespace {

void only_of_rove() {
    if (std::strncmp(ibv_get_device_name(device().context->device), "rove", 4) != 0) skip("a promise of rove alone");
}

}  // namespace

CASE(keys, keys_of_live_regions_differ) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    std::vector<Owned<ibv_mr>> regions;
    std::set<uint32_t> lkeys, rkeys;
    for (int i = 0; i < 1000; ++i) {
        regions.push_back(make_mr(pd, memory.at(), 4096));
        lkeys.insert(regions.back()->lkey);
        rkeys.insert(regions.back()->rkey);
    }
    EXPECT(lkeys.size() == 1000 && rkeys.size() == 1000);
}

// A peer that still holds the key of a destroyed region must not reach a later region.
CASE(keys, a_stale_key_stays_dead) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(8192);
    std::set<uint32_t> seen;
    for (int i = 0; i < 3000; ++i) {
        Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
        EXPECT(seen.insert(mr->rkey).second, "key %#x came back after %d registrations", mr->rkey, i);
    }
}

// The keys of consecutive regions. If a peer can derive the step between keys from a few of them, the next key is no
// secret.
CASE(keys, the_next_key_cannot_be_told_from_the_last_ones) {
    only_of_rove();
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    std::vector<Owned<ibv_mr>> regions;
    std::map<uint32_t, int> steps;
    std::array<int, 32> ones{};
    constexpr int kRegions = 400;
    for (int i = 0; i < kRegions; ++i) {
        regions.push_back(make_mr(pd, memory.at(), 4096));
        const uint32_t key = regions.back()->rkey;
        if (i > 0) ++steps[key - regions[static_cast<size_t>(i - 1)]->rkey];
        for (size_t bit = 0; bit < ones.size(); ++bit) ones[bit] += (key >> bit) & 1;
    }
    for (const auto& [step, times] : steps) EXPECT(times <= 3, "%d of %d steps are %#x", times, kRegions, step);
    // In 400 coin tosses, 140 to 260 are heads, except once in a billion cases. At least 24 bits must look like this.
    const auto random = std::count_if(ones.begin(), ones.end(), [](int n) { return n >= 140 && n <= 260; });
    EXPECT(random >= 24, "%td bits of 32 look random", random);
}

PAIR(keys, keys_and_qp_numbers_differ_between_processes) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    Buffer buffer(pd, 4096);
    Owned<ibv_qp> qp = make_qp(pd, cq, cq);
    struct Numbers {
        uint32_t rkey, qpn;
    };
    const Numbers mine{buffer.rkey(), qp->qp_num}, theirs = peer.exchange(mine);
    EXPECT(mine.qpn != theirs.qpn, "both %u", mine.qpn);
    EXPECT(mine.rkey != theirs.rkey, "both %#x", mine.rkey);
}

CASE(keys, qp_numbers_are_of_24_bits_and_unique) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    std::vector<Owned<ibv_qp>> qps;
    std::set<uint32_t> numbers;
    for (int i = 0; i < 200; ++i) {
        qps.push_back(make_qp(pd, cq, cq));
        EXPECT(qps.back()->qp_num > 1 && qps.back()->qp_num < 0xffffff, "QP number %#x",
               qps.back()->qp_num);  // 0, 1: IBTA 3.5.10
        numbers.insert(qps.back()->qp_num);
    }
    EXPECT(numbers.size() == 200);
}

// A packet in flight to a destroyed QP must not reach a QP created immediately afterwards.
CASE(keys, a_qp_number_is_not_reused_at_once) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    uint32_t last = 0;
    for (int i = 0; i < 50; ++i) {
        Owned<ibv_qp> qp = make_qp(pd, cq, cq);
        EXPECT(qp->qp_num != last, "%u twice", last);
        last = qp->qp_num;
    }
}
