// SPDX-License-Identifier: Apache-2.0
// Registered memory that vanishes, in the places of the protocol that are hard to reach: held packets, packets in the
// middle, multicast, retransmissions. Everything ends as with a wrong key. (tests/unit/verbs/fault_test.cc has the
// others.)
#include <sys/mman.h>

#include <functional>
#include <vector>

#include "runtime/fault_guard.h"
#include "transport/multipath.h"

namespace rove::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kPage = 4096, kPages = 4;

// Registered pages of a host that can be unmapped.
class Vanishing {
  public:
    explicit Vanishing(Host& host) : host_(host) {
        void* const at = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        region_.host = static_cast<uint8_t*>(at);
        region_.iova = reinterpret_cast<uint64_t>(at);
        region_.length = kPages * kPage;
        region_.access = kAllAccess;
        region_.pd = &host;
        EXPECT_TRUE(host.memory.insert(region_));
    }
    ~Vanishing() {
        EXPECT_TRUE(host_.memory.remove(region_));
        munmap(region_.host, kPages * kPage);
    }
    // Unmaps the pages from `first` on.
    void vanish(size_t first = 0) { munmap(region_.host + first * kPage, (kPages - first) * kPage); }
    ibv_sge sge(size_t offset, uint32_t bytes) const { return {region_.iova + offset, bytes, region_.key}; }
    // Returns a request to this memory, or from it.
    Send aimed(Send send, size_t offset) const {
        send.remote_addr = region_.iova + offset;
        send.rkey = region_.key;
        return send;
    }
    Send taken(Send send, size_t offset) const {
        for (ibv_sge& one : send.sges) one = sge(offset, one.length);
        return send;
    }
    const uint8_t* data() const { return region_.host; }

  private:
    Host& host_;
    Region region_;
};

// Makes the network call engines as workers do.
struct Guarded {
    explicit Guarded(Network& net) {
        datapath::FaultGuard::install();
        testing::internal::CaptureStderr();
        net.guard = [this](Host& host, const auto& step, const auto& recover) {
            datapath::FaultGuard guard(host.memory);
            guard.run(step, [&] {
                ++faults;
                recover();
            });
        };
    }
    ~Guarded() { testing::internal::GetCapturedStderr(); }
    int faults = 0;
};

struct MpFaults : Multipath, Guarded {
    MpFaults() : Guarded(net) {}
    Vanishing gone{b};
};

// An early packet is placed when the packets before it have arrived, while another packet is received.
TEST_F(MpFaults, APacketThatWasHeld) {
    delay(0);
    post(write(1, 0, 512, 0));
    post(gone.aimed(write(2, 1024, 8, 0), 0));
    post(write(3, 0, 8, 4096));
    net.pump();
    run_briefly();
    ASSERT_EQ(b.engine.multipath()->early_count(), 2u);
    gone.vanish();
    net.release();
    ASSERT_TRUE(run());
    EXPECT_EQ(faults, 1);
    const auto wcs = sent();
    EXPECT_THAT(ids(wcs), ElementsAre(1, 2, 3));
    EXPECT_THAT(statuses(wcs), ElementsAre(IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(arrived(0, 512, 0));
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
    EXPECT_EQ(b.engine.multipath()->early_count(), 1u) << "what was behind it";
    b.destroy(*qb);
    EXPECT_EQ(b.engine.multipath()->early_count(), 0u);
}

// The receive of a held SEND.
TEST_F(MpFaults, AHeldSend) {
    ASSERT_TRUE(b.post_recv(*qb, 7, {gone.sge(0, 1000)}));
    delay(0);
    post(write(1, 0, 512, 0));
    post(send(2, 0, 100));
    net.pump();
    run_briefly();
    gone.vanish();
    net.release();
    ASSERT_TRUE(run());
    EXPECT_EQ(faults, 1);
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_REM_OP_ERR));
    EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_LOC_PROT_ERR));
}

struct Faults : Pair, Guarded {
    Faults() : Guarded(net) {}
    Vanishing mine{a}, theirs{b};
};

// UC drops the rest of a message and is ready for the next one.
TEST_F(Faults, TheMiddleOfAUcMessage) {
    connect({.type = IBV_QPT_UC, .mtu = 1024});
    theirs.vanish(1);
    post(theirs.aimed(write(1, 0, 8 * 1024, 0), 0));
    post(write(2, 0, 4 * 1024, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(faults, 1);
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS)) << "UC knows of nothing";
    EXPECT_EQ(std::vector<uint8_t>(theirs.data(), theirs.data() + kPage), ma.bytes(0, kPage)) << "what was before it";
    EXPECT_EQ(mb.bytes(0, 4 * 1024), ma.bytes(0, 4 * 1024));
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
}

TEST_F(Faults, OneOfTheMembersOfAGroup) {
    QpOptions options;
    options.type = IBV_QPT_UD;
    connect(options);
    Connection second = test::connect(net, a, b, options, options), third = test::connect(net, a, b, options, options);
    const wire::Gid group{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 1, 1};
    Path path = a.path_to(b);
    path.flow.dst = group;
    path.flow.dst_mac = {0x01, 0x00, 0x5E, 1, 1, 1};
    path.headers = wire::make_template(path.flow);
    for (QueuePair* member : {qb, &second.b, &third.b}) ASSERT_TRUE(b.qps.groups().attach(group, *member));
    receive(1, 0, 1000);
    ASSERT_TRUE(b.post_recv(second.b, 2, {theirs.sge(0, 1000)}));
    ASSERT_TRUE(b.post_recv(third.b, 3, {mb.sge(4000, 1000)}));
    theirs.vanish();
    Send datagram = send(1, 0, 100);
    datagram.path = &path;
    datagram.remote_qpn = wire::kMulticastQpn;
    datagram.remote_qkey = options.qkey;
    post(datagram);
    ASSERT_TRUE(run());
    EXPECT_EQ(faults, 1);
    expect_sent(IBV_WC_SUCCESS);
    const auto first_got = received(), third_got = b.poll(*third.b.recv_cq);
    EXPECT_THAT(ids(first_got), ElementsAre(1)) << "once";
    EXPECT_THAT(statuses(first_got), ElementsAre(IBV_WC_SUCCESS));
    EXPECT_THAT(statuses(b.poll(*second.b.recv_cq)), ElementsAre(IBV_WC_LOC_PROT_ERR));
    EXPECT_THAT(ids(third_got), ElementsAre(3)) << "once";
    EXPECT_THAT(statuses(third_got), ElementsAre(IBV_WC_SUCCESS));
    EXPECT_EQ(mb.bytes(4040, 100), ma.bytes(0, 100));
    for (QueuePair* member : {qb, &second.b, &third.b}) ASSERT_TRUE(b.qps.groups().detach(group, *member));
}

struct TailProbes : Faults, testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Mode, TailProbes, testing::Bool(), [](const auto& mode) { return mode.param ? "mp" : "rc"; });

// A lost packet is retransmitted from memory that has vanished meanwhile; earlier requests are unaffected.
TEST_P(TailProbes, WhatTheySend) {
    connect({.multipath = GetParam()});
    bool silent = false;
    net.filter = [&](const Observed&) { return silent ? Verdict::kDrop : Verdict::kPass; };
    post(write(1, 0, 100, 0));
    ASSERT_TRUE(run());
    silent = true;
    post(mine.taken(write(2, 0, 3000, 0), 0));
    net.run_for(100 * kMicrosecond);
    mine.vanish();
    silent = false;
    ASSERT_TRUE(run());
    EXPECT_EQ(faults, 1);
    const auto wcs = sent();
    EXPECT_THAT(ids(wcs), ElementsAre(1, 2));
    EXPECT_THAT(statuses(wcs), ElementsAre(IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR));
    EXPECT_EQ(qa->state, IBV_QPS_ERR);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u) << "the probe came before the timeout";
}

// The data of a READ, which the responder sends again.
TEST_P(TailProbes, WhatAReadBrings) {
    connect({.multipath = GetParam()});
    bool silent = true;
    net.filter = [&](const Observed& p) { return silent && p.from == b.index() ? Verdict::kDrop : Verdict::kPass; };
    post(theirs.aimed(read(1, 0, 3000, 0), 0));
    net.run_for(100 * kMicrosecond);
    theirs.vanish();
    silent = false;
    ASSERT_TRUE(run());
    EXPECT_GE(faults, 1);
    expect_sent(IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
}

}  // namespace
}  // namespace rove::test
