// SPDX-License-Identifier: Apache-2.0
// The table of states. The test brings a connection into each state, and then applies each message, call and deadline.
// The peer is scripted. A stimulus that the table does not name has no effect: the state stays, no message is sent, no
// event comes, and a call fails.
#include <gtest/gtest.h>

#include <cerrno>

#include "network.h"

namespace rove::cm {
namespace {

using namespace test;

constexpr uint32_t kPeerId = 0x11112222, kPeerQpn = 0x4444, kOurQpn = 0x5555;
constexpr uint64_t kPeerGuid = 0xFE01, kOurGuid = 0xFE02, kPeerTransaction = 0x77;

enum class Stage {
    // The active side, which requested the connection.
    kReqSent,
    kRepReceived,
    kEstablished,
    kDreqSent,
    kTimeWait,
    kRejected,
    // The passive side, which received the request.
    kPassiveReqReceived,
    kPassiveRepSent,
    kPassiveEstablished,
    kPassiveDreqSent,
    kPassiveTimeWait,
    kPassiveRejected,
    kCount,
};

enum class Stimulus {
    kReq,
    kRep,
    kRtu,
    kRej,
    kMra,
    kDreq,
    kDrep,
    kLap,
    kApr,
    kAccept,
    kConfirm,
    kReject,
    kDelay,
    kEstablish,
    kDisconnect,
    kDestroy,
    kDeadline,
    kCount,
};
constexpr bool is_call(Stimulus s) {
    return s >= Stimulus::kAccept && s <= Stimulus::kDestroy;
}

constexpr const char* kStageNames[] = {
    "REQ_SENT",         "REP_RECEIVED",         "ESTABLISHED",      "DREQ_SENT",           "TIMEWAIT",
    "rejected",         "passive REQ_RECEIVED", "passive REP_SENT", "passive ESTABLISHED", "passive DREQ_SENT",
    "passive TIMEWAIT", "passive rejected"};
constexpr const char* kStimulusNames[] = {"REQ",   "REP",       "RTU",        "REJ",     "MRA",     "DREQ",
                                          "DREP",  "LAP",       "APR",        "accept",  "confirm", "reject",
                                          "delay", "establish", "disconnect", "destroy", "deadline"};

struct Effect {
    Stage stage;
    Stimulus stimulus;
    std::optional<State> after;  // nothing if the id no longer exists
    std::optional<size_t> sent;  // index of the message in Message::body
    std::optional<EventKind> event;
};

constexpr std::nullopt_t kNo = std::nullopt;
using enum EventKind;

const Effect kEffects[] = {
    {Stage::kReqSent, Stimulus::kRep, State::kRepReceived, kNo, kConnectResponse},
    {Stage::kReqSent, Stimulus::kRej, State::kClosed, kNo, kRejected},
    {Stage::kReqSent, Stimulus::kDreq, State::kReqSent, kDrep, kNo},  // the answer for any unknown id
    {Stage::kReqSent, Stimulus::kDestroy, kNo, kRej, kNo},
    {Stage::kReqSent, Stimulus::kDeadline, State::kReqSent, kReq, kNo},

    {Stage::kRepReceived, Stimulus::kRep, State::kRepReceived, kMra, kNo},
    {Stage::kRepReceived, Stimulus::kRej, State::kClosed, kNo, kRejected},
    {Stage::kRepReceived, Stimulus::kDreq, State::kTimeWait, kDrep, kDisconnected},
    {Stage::kRepReceived, Stimulus::kLap, State::kRepReceived, kApr, kNo},
    {Stage::kRepReceived, Stimulus::kConfirm, State::kEstablished, kRtu, kNo},
    {Stage::kRepReceived, Stimulus::kReject, State::kClosed, kRej, kNo},
    {Stage::kRepReceived, Stimulus::kDelay, State::kRepReceived, kMra, kNo},
    {Stage::kRepReceived, Stimulus::kDestroy, kNo, kRej, kNo},

    {Stage::kEstablished, Stimulus::kRep, State::kEstablished, kRtu, kNo},
    {Stage::kEstablished, Stimulus::kRej, State::kTimeWait, kNo, kDisconnected},
    {Stage::kEstablished, Stimulus::kDreq, State::kTimeWait, kDrep, kDisconnected},
    {Stage::kEstablished, Stimulus::kLap, State::kEstablished, kApr, kNo},
    {Stage::kEstablished, Stimulus::kEstablish, State::kEstablished, kNo, kNo},
    {Stage::kEstablished, Stimulus::kDisconnect, State::kDreqSent, kDreq, kNo},
    {Stage::kEstablished, Stimulus::kDestroy, kNo, kDreq, kNo},

    {Stage::kDreqSent, Stimulus::kRej, State::kTimeWait, kNo, kDisconnected},
    {Stage::kDreqSent, Stimulus::kDreq, State::kTimeWait, kDrep, kDisconnected},
    {Stage::kDreqSent, Stimulus::kDrep, State::kTimeWait, kNo, kDisconnected},
    {Stage::kDreqSent, Stimulus::kLap, State::kDreqSent, kApr, kNo},
    {Stage::kDreqSent, Stimulus::kDisconnect, State::kDreqSent, kNo, kNo},
    {Stage::kDreqSent, Stimulus::kDestroy, kNo, kNo, kNo},
    {Stage::kDreqSent, Stimulus::kDeadline, State::kDreqSent, kDreq, kNo},

    {Stage::kTimeWait, Stimulus::kDreq, State::kTimeWait, kDrep, kNo},
    {Stage::kTimeWait, Stimulus::kLap, State::kTimeWait, kApr, kNo},
    {Stage::kTimeWait, Stimulus::kDisconnect, State::kTimeWait, kNo, kNo},
    {Stage::kTimeWait, Stimulus::kDestroy, kNo, kNo, kNo},
    {Stage::kTimeWait, Stimulus::kDeadline, State::kClosed, kNo, kTimeWaitExit},

    {Stage::kRejected, Stimulus::kRep, State::kClosed, kRej, kNo},
    {Stage::kRejected, Stimulus::kRtu, State::kClosed, kRej, kNo},
    {Stage::kRejected, Stimulus::kDreq, State::kClosed, kDrep, kNo},
    {Stage::kRejected, Stimulus::kLap, State::kClosed, kApr, kNo},
    {Stage::kRejected, Stimulus::kDisconnect, State::kClosed, kNo, kNo},
    {Stage::kRejected, Stimulus::kDestroy, kNo, kNo, kNo},

    {Stage::kPassiveReqReceived, Stimulus::kReq, State::kReqReceived, kMra, kNo},
    {Stage::kPassiveReqReceived, Stimulus::kRej, State::kClosed, kNo, kRejected},
    {Stage::kPassiveReqReceived, Stimulus::kLap, State::kReqReceived, kApr, kNo},
    {Stage::kPassiveReqReceived, Stimulus::kAccept, State::kRepSent, kRep, kNo},
    {Stage::kPassiveReqReceived, Stimulus::kReject, State::kClosed, kRej, kNo},
    {Stage::kPassiveReqReceived, Stimulus::kDelay, State::kReqReceived, kMra, kNo},
    {Stage::kPassiveReqReceived, Stimulus::kDestroy, kNo, kRej, kNo},

    {Stage::kPassiveRepSent, Stimulus::kReq, State::kRepSent, kRep, kNo},
    {Stage::kPassiveRepSent, Stimulus::kRtu, State::kEstablished, kNo, kEstablished},
    {Stage::kPassiveRepSent, Stimulus::kRej, State::kClosed, kNo, kRejected},
    {Stage::kPassiveRepSent, Stimulus::kDreq, State::kTimeWait, kDrep, kDisconnected},
    {Stage::kPassiveRepSent, Stimulus::kLap, State::kRepSent, kApr, kNo},
    {Stage::kPassiveRepSent, Stimulus::kReject, State::kClosed, kRej, kNo},
    {Stage::kPassiveRepSent, Stimulus::kEstablish, State::kEstablished, kNo, kEstablished},
    {Stage::kPassiveRepSent, Stimulus::kDestroy, kNo, kRej, kNo},
    {Stage::kPassiveRepSent, Stimulus::kDeadline, State::kRepSent, kRep, kNo},

    {Stage::kPassiveEstablished, Stimulus::kRej, State::kTimeWait, kNo, kDisconnected},
    {Stage::kPassiveEstablished, Stimulus::kDreq, State::kTimeWait, kDrep, kDisconnected},
    {Stage::kPassiveEstablished, Stimulus::kLap, State::kEstablished, kApr, kNo},
    {Stage::kPassiveEstablished, Stimulus::kEstablish, State::kEstablished, kNo, kNo},
    {Stage::kPassiveEstablished, Stimulus::kDisconnect, State::kDreqSent, kDreq, kNo},
    {Stage::kPassiveEstablished, Stimulus::kDestroy, kNo, kDreq, kNo},

    {Stage::kPassiveDreqSent, Stimulus::kRej, State::kTimeWait, kNo, kDisconnected},
    {Stage::kPassiveDreqSent, Stimulus::kDreq, State::kTimeWait, kDrep, kDisconnected},
    {Stage::kPassiveDreqSent, Stimulus::kDrep, State::kTimeWait, kNo, kDisconnected},
    {Stage::kPassiveDreqSent, Stimulus::kLap, State::kDreqSent, kApr, kNo},
    {Stage::kPassiveDreqSent, Stimulus::kDisconnect, State::kDreqSent, kNo, kNo},
    {Stage::kPassiveDreqSent, Stimulus::kDestroy, kNo, kNo, kNo},
    {Stage::kPassiveDreqSent, Stimulus::kDeadline, State::kDreqSent, kDreq, kNo},

    {Stage::kPassiveTimeWait, Stimulus::kReq, State::kTimeWait, kRej, kNo},  // an old REQ, which is stale
    {Stage::kPassiveTimeWait, Stimulus::kDreq, State::kTimeWait, kDrep, kNo},
    {Stage::kPassiveTimeWait, Stimulus::kLap, State::kTimeWait, kApr, kNo},
    {Stage::kPassiveTimeWait, Stimulus::kDisconnect, State::kTimeWait, kNo, kNo},
    {Stage::kPassiveTimeWait, Stimulus::kDestroy, kNo, kNo, kNo},
    {Stage::kPassiveTimeWait, Stimulus::kDeadline, State::kClosed, kNo, kTimeWaitExit},

    {Stage::kPassiveRejected, Stimulus::kReq, State::kClosed, kRej, kNo},
    {Stage::kPassiveRejected, Stimulus::kRep, State::kClosed, kRej, kNo},
    {Stage::kPassiveRejected, Stimulus::kRtu, State::kClosed, kRej, kNo},
    {Stage::kPassiveRejected, Stimulus::kDreq, State::kClosed, kDrep, kNo},
    {Stage::kPassiveRejected, Stimulus::kLap, State::kClosed, kApr, kNo},
    {Stage::kPassiveRejected, Stimulus::kDisconnect, State::kClosed, kNo, kNo},
    {Stage::kPassiveRejected, Stimulus::kDestroy, kNo, kNo, kNo},
    {Stage::kPassiveRejected, Stimulus::kDeadline, State::kClosed, kRej, kNo},  // an MRA made the peer wait
};

// One host, and a peer that sends what the test scripts.
class Scene {
  public:
    explicit Scene(Stage stage) : stage_(stage), host_(network_.add(ipv4(1))) {
        path_.flow.src = ipv4(2);
        path_.flow.dst = ipv4(1);
        stage >= Stage::kPassiveReqReceived ? enter_passive() : enter_active();
    }

    // Returns the result of the call.
    int apply(Stimulus stimulus) {
        switch (stimulus) {
            case Stimulus::kReq:
                receive(req());
                break;
            case Stimulus::kRep:
                receive(rep());
                break;
            case Stimulus::kRtu:
                receive(Rtu{.local_comm_id = kPeerId, .remote_comm_id = our_id_});
                break;
            case Stimulus::kRej:
                receive(
                    Rej{.local_comm_id = kPeerId, .remote_comm_id = our_id_, .reason = RejReason::kConsumerDefined});
                break;
            case Stimulus::kMra:
                receive(Mra{.local_comm_id = kPeerId,
                            .remote_comm_id = our_id_,
                            .answered = passive() ? Answered::kRep : Answered::kReq,
                            .service_timeout = 20});
                break;
            case Stimulus::kDreq:
                receive(Dreq{.local_comm_id = kPeerId, .remote_comm_id = our_id_, .remote_qpn = our_qpn_});
                break;
            case Stimulus::kDrep:
                receive(Drep{.local_comm_id = kPeerId, .remote_comm_id = our_id_});
                break;
            case Stimulus::kLap:
                receive(Lap{.local_comm_id = kPeerId, .remote_comm_id = our_id_});
                break;
            case Stimulus::kApr:
                receive(Apr{.local_comm_id = kPeerId, .remote_comm_id = our_id_});
                break;
            case Stimulus::kAccept:
                return accept();
            case Stimulus::kConfirm:
                return cm().confirm(now(), id_, {});
            case Stimulus::kReject:
                return cm().reject(now(), id_, {});
            case Stimulus::kDelay:
                return cm().delay(now(), id_, 0, {});
            case Stimulus::kEstablish:
                return cm().establish(now(), id_);
            case Stimulus::kDisconnect:
                return cm().disconnect(now(), id_, {});
            case Stimulus::kDestroy:
                return cm().destroy(now(), id_);
            case Stimulus::kDeadline:
                if (cm().next_deadline() != UINT64_MAX) network_.run_until(cm().next_deadline());
                break;
            case Stimulus::kCount:
                break;
        }
        return 0;
    }

    Cm& cm() { return host_.cm; }
    Host& host() { return host_; }
    Network& network() { return network_; }
    Id id() const { return id_; }
    uint32_t our_id() const { return our_id_; }
    std::optional<State> state() { return cm().state(id_); }
    uint64_t now() const { return network_.now; }
    void receive(auto body) {
        network_.inject(path_, Message{transaction_, body});
        network_.run(0);
    }

  private:
    bool passive() const { return stage_ >= Stage::kPassiveReqReceived; }
    int accept() {
        our_qpn_ = kOurQpn;
        return cm().accept(now(), id_, {.local = {.qpn = kOurQpn, .ca_guid = kOurGuid}});
    }
    Req req() const {
        Req req{.local_comm_id = kPeerId,
                .service_id = kService,
                .ca_guid = kPeerGuid,
                .qpn = kPeerQpn,
                .local_response_timeout = 20,
                .path_mtu = 3,
                .max_cm_retries = 15};
        req.primary.local_gid = path_.flow.src;
        req.primary.remote_gid = path_.flow.dst;
        build_cma_header({.src_port = 1, .src = path_.flow.src, .dst = path_.flow.dst}, req.private_data);
        return req;
    }
    Rep rep() const {
        return {.local_comm_id = kPeerId, .remote_comm_id = our_id_, .qpn = kPeerQpn, .ca_guid = kPeerGuid};
    }

    void enter_active() {
        Connect connect;
        connect.path = path_;
        std::swap(connect.path.flow.src, connect.path.flow.dst);
        connect.service_id = kService;
        connect.local = {.qpn = our_qpn_ = kOurQpn, .ca_guid = kOurGuid};
        EXPECT_EQ(cm().connect(now(), connect, nullptr, id_), 0);
        our_id_ = std::get<Req>(host_.sent.back().body).local_comm_id;
        transaction_ = host_.sent.back().transaction_id;
        if (stage_ == Stage::kReqSent) return;
        receive(rep());
        if (stage_ == Stage::kRejected) {
            EXPECT_EQ(apply(Stimulus::kReject), 0);
        }
        if (stage_ == Stage::kRepReceived || stage_ == Stage::kRejected) return;
        EXPECT_EQ(apply(Stimulus::kConfirm), 0);
        if (stage_ == Stage::kDreqSent) {
            EXPECT_EQ(apply(Stimulus::kDisconnect), 0);
        }
        if (stage_ == Stage::kTimeWait) apply(Stimulus::kDreq);
    }

    void enter_passive() {
        Id listener;
        EXPECT_EQ(cm().listen({.service_id = kService}, nullptr, listener), 0);
        receive(req());
        id_ = host_.last(kConnectRequest).id;
        // Our communication id is visible only in a message.
        EXPECT_EQ(apply(Stimulus::kDelay), 0);
        our_id_ = std::get<Mra>(host_.sent.back().body).local_comm_id;
        if (stage_ == Stage::kPassiveRejected) {
            EXPECT_EQ(apply(Stimulus::kReject), 0);
        }
        if (stage_ == Stage::kPassiveReqReceived || stage_ == Stage::kPassiveRejected) return;
        EXPECT_EQ(accept(), 0);
        if (stage_ == Stage::kPassiveRepSent) return;
        apply(Stimulus::kRtu);
        if (stage_ == Stage::kPassiveDreqSent) {
            EXPECT_EQ(apply(Stimulus::kDisconnect), 0);
        }
        if (stage_ == Stage::kPassiveTimeWait) apply(Stimulus::kDreq);
    }

    const Stage stage_;
    Network network_;
    Host& host_;
    Path path_;  // from the peer to us
    uint64_t transaction_ = kPeerTransaction;
    uint32_t our_id_ = 0, our_qpn_ = 0;
    Id id_ = Id::kNone;
};

TEST(CmStates, Table) {
    size_t used = 0;
    for (int stage = 0; stage < static_cast<int>(Stage::kCount); ++stage) {
        for (int stimulus = 0; stimulus < static_cast<int>(Stimulus::kCount); ++stimulus) {
            const Stimulus what{stimulus};
            const bool passive = Stage{stage} >= Stage::kPassiveReqReceived;
            if (what == Stimulus::kReq && !passive) continue;  // a new request without a listener
            SCOPED_TRACE(std::string(kStageNames[stage]) + ", " + kStimulusNames[stimulus]);
            Scene scene{Stage{stage}};
            const std::optional<State> before = scene.state();
            ASSERT_TRUE(before);
            const size_t sent = scene.host().sent.size(), events = scene.host().events.size();
            const int result = scene.apply(what);

            const Effect* effect = nullptr;
            for (const Effect& e : kEffects)
                if (e.stage == Stage{stage} && e.stimulus == what) effect = &e;
            used += effect != nullptr;
            EXPECT_EQ(result, effect == nullptr && is_call(what) ? EINVAL : 0);
            const std::optional<State> after = effect != nullptr ? effect->after : before;
            ASSERT_EQ(scene.state().has_value(), after.has_value());
            if (after) {
                EXPECT_STREQ(to_string(*scene.state()), to_string(*after));
            }
            const bool sends = effect != nullptr && effect->sent;
            ASSERT_EQ(scene.host().sent.size() - sent, sends ? 1 : 0);
            if (sends) {
                EXPECT_EQ(scene.host().sent.back().body.index(), *effect->sent);
            }
            const bool tells = effect != nullptr && effect->event;
            ASSERT_EQ(scene.host().events.size() - events, tells ? 1 : 0);
            if (!tells) continue;
            EXPECT_STREQ(to_string(scene.host().events.back().kind), to_string(*effect->event));
            EXPECT_EQ(scene.host().events.back().id, scene.id());
        }
    }
    EXPECT_EQ(used, std::size(kEffects));
}

// In every state, a destroyed id leaves no state behind and causes no event.
TEST(CmStates, DestroyedIdsLeaveNothing) {
    for (int stage = 0; stage < static_cast<int>(Stage::kCount); ++stage) {
        SCOPED_TRACE(kStageNames[stage]);
        Scene scene{Stage{stage}};
        const size_t events = scene.host().events.size();
        EXPECT_EQ(scene.apply(Stimulus::kDestroy), 0);
        EXPECT_EQ(scene.apply(Stimulus::kDestroy), EINVAL);
        EXPECT_EQ(scene.cm().usage().connections, 0u);
        EXPECT_LE(scene.cm().usage().lingering, 1u);
        scene.network().run(100 * kSecond);
        EXPECT_EQ(scene.cm().usage().lingering, 0u);
        EXPECT_EQ(scene.cm().usage().names, 0u);
        EXPECT_EQ(scene.cm().next_deadline(), UINT64_MAX);
        EXPECT_EQ(scene.host().events.size(), events);
    }
}

std::vector<uint64_t> times_sent(Scene& scene, uint64_t for_ns) {
    std::vector<uint64_t> times;
    const uint64_t start = scene.now();
    scene.network().filter = [&](const Path&, const Mad&) {
        times.push_back(scene.now() - start);
        return false;
    };
    scene.network().run(for_ns);
    return times;
}

TEST(CmStates, ARequestIsRepeatedAtGrowingGapsUpTo39s) {
    Scene scene(Stage::kReqSent);
    const std::vector<uint64_t> times = times_sent(scene, 100 * kSecond);
    std::vector<uint64_t> expected;
    uint64_t at = 0;
    for (int i = 0; i < 16; ++i)
        expected.push_back(at += timeout_ns(static_cast<uint8_t>(std::min(12 + i, 20))));  // the last is a REJ
    EXPECT_EQ(times, expected);
    EXPECT_NEAR(static_cast<double>(times[0]), 16.8e6, 1e5);
    EXPECT_NEAR(static_cast<double>(times.back()), 38.6e9, 1e8);
    const Seen& seen = scene.host().last(kUnreachable);
    EXPECT_EQ(seen.reason, RejReason::kTimeout);
    EXPECT_EQ(scene.state(), State::kClosed);
    const Rej rej = std::get<Rej>(scene.host().sent.back().body);
    EXPECT_EQ(rej.reason, RejReason::kTimeout);
    EXPECT_EQ(rej.remote_comm_id, 0u);
    EXPECT_EQ(rej.ari_bytes, 8);
    EXPECT_EQ(wire::load_be64(rej.ari.data()), kOurGuid);
    EXPECT_EQ(scene.host().counter(Counter::kTimedOut), 1u);
    EXPECT_EQ(scene.host().counter(Counter::kRetransmitted), 15u);
}

TEST(CmStates, AResponseIsRepeatedAsLongAsTheRequestAllows) {
    Scene scene(Stage::kPassiveRepSent);
    EXPECT_EQ(times_sent(scene, 100 * kSecond).size(),
              15u + 5u);  // with five REJs, because an MRA made the peer wait
    EXPECT_EQ(scene.host().last(kUnreachable).reason, RejReason::kTimeout);
    EXPECT_EQ(std::get<Rej>(scene.host().sent.back().body).reason, RejReason::kTimeout);
}

// The peer still assumes a connection that we have closed, so it receives a REJ.
TEST(CmStates, AReadyToUseThatComesTooLateIsRejected) {
    Scene scene(Stage::kPassiveRepSent);
    scene.network().weather.cut = true;
    scene.network().run(40 * kSecond);
    ASSERT_EQ(scene.state(), State::kClosed);
    const size_t sent = scene.host().sent.size();
    scene.receive(Rtu{.local_comm_id = kPeerId, .remote_comm_id = scene.our_id()});
    ASSERT_EQ(scene.host().sent.size(), sent + 1);
    EXPECT_EQ(std::get<Rej>(scene.host().sent.back().body).reason, RejReason::kTimeout);
}

TEST(CmStates, ADisconnectThatNobodyAnswersEndsAfter4s) {
    Scene scene(Stage::kEstablished);
    const uint64_t start = scene.now();
    EXPECT_EQ(scene.apply(Stimulus::kDisconnect), 0);
    EXPECT_EQ(times_sent(scene, 10 * kSecond).size(), 7u);
    const Seen& seen = scene.host().last(kDisconnected);
    EXPECT_EQ(seen.reason, RejReason::kTimeout);
    EXPECT_NEAR(static_cast<double>(seen.at_ns - start), 4.28e9, 1e8);
    EXPECT_EQ(scene.host().last(kTimeWaitExit).at_ns - seen.at_ns, timeout_ns(17));
}

// An MRA extends the wait, by at most 69 s each, and at most 16 times.
TEST(CmStates, AnMraIsWaitedFor) {
    Scene scene(Stage::kReqSent);
    scene.receive(Mra{.local_comm_id = kPeerId, .remote_comm_id = scene.our_id(), .service_timeout = 21});
    EXPECT_EQ(scene.cm().next_deadline() - scene.now(), timeout_ns(21) + timeout_ns(20));
    scene.receive(Mra{.local_comm_id = kPeerId, .remote_comm_id = scene.our_id(), .service_timeout = 31});
    EXPECT_EQ(scene.cm().next_deadline() - scene.now(), timeout_ns(24) + timeout_ns(20));
    for (int i = 0; i < 20; ++i)
        scene.receive(Mra{.local_comm_id = kPeerId, .remote_comm_id = scene.our_id(), .service_timeout = 10});
    EXPECT_EQ(scene.host().counter(Counter::kDropState), 6u);
    EXPECT_EQ(times_sent(scene, 600 * kSecond).size(), 16u);
    EXPECT_EQ(scene.host().count(kUnreachable), 1u);

    Scene passive(Stage::kPassiveRepSent);
    passive.apply(Stimulus::kMra);
    EXPECT_EQ(passive.cm().next_deadline() - passive.now(), 2 * timeout_ns(20));
    // An MRA for another message is dropped.
    passive.receive(Mra{.local_comm_id = kPeerId, .remote_comm_id = passive.our_id(), .answered = Answered::kOther});
    EXPECT_EQ(passive.host().counter(Counter::kDropState), 1u);
}

// A REJ for an abandoned REQ does not contain our id. The GUID of the sender identifies the request.
TEST(CmStates, AGivenUpRequestIsWithdrawn) {
    for (const Stage stage : {Stage::kPassiveReqReceived, Stage::kPassiveRepSent}) {
        Scene scene(stage);
        Rej rej{.local_comm_id = kPeerId, .answered = Answered::kOther, .reason = RejReason::kTimeout, .ari_bytes = 8};
        wire::store_be64(rej.ari.data(), kPeerGuid + 1);
        scene.receive(rej);
        EXPECT_EQ(scene.host().counter(Counter::kDropUnknownId), 1u);
        wire::store_be64(rej.ari.data(), kPeerGuid);
        scene.receive(rej);
        EXPECT_EQ(scene.state(), State::kClosed);
        EXPECT_EQ(scene.host().last(kRejected).reason, RejReason::kTimeout);
        scene.apply(Stimulus::kReq);  // a late duplicate causes no new request
        EXPECT_EQ(scene.host().count(kConnectRequest), 1u);
    }
}

}  // namespace
}  // namespace rove::cm
