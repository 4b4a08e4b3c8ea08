// SPDX-License-Identifier: Apache-2.0
// XRC: `man ibv_open_xrcd`, ibv_create_srq_ex, ibv_create_qp_ex, ibv_open_qp, ibv_get_srq_num; IBTA annex A14.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "verbs.h"

using namespace conformance;

namespace {

constexpr QpOptions kIni{.type = IBV_QPT_XRC_SEND}, kTgt{.type = IBV_QPT_XRC_RECV};

ibv_xrcd* try_open(int fd, int oflags, ibv_context* context = device().context) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = oflags;
    return ibv_open_xrcd(context, &attr);
}

Owned<ibv_xrcd> make_xrcd(int fd = -1) {
    if ((device().attr.device_cap_flags & IBV_DEVICE_XRC) == 0) skip("the device has no XRC");
    return own(try_open(fd, O_CREAT), "ibv_open_xrcd");
}

ibv_srq* try_srq(ibv_xrcd* xrcd, ibv_pd* pd, ibv_cq* cq) {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 64, .max_sge = 4, .srq_limit = 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd;
    attr.xrcd = xrcd;
    attr.cq = cq;
    return ibv_create_srq_ex(pd->context, &attr);
}

uint32_t number_of(ibv_srq* srq) {
    uint32_t number = 0;
    EXPECT_OK(ibv_get_srq_num(srq, &number));
    return number;
}

Owned<ibv_qp> make_target(ibv_xrcd* xrcd) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    return OWN(ibv_create_qp_ex(xrcd->context, &attr));
}

Owned<ibv_qp> open_target(ibv_xrcd* xrcd, uint32_t qpn) {
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = qpn;
    attr.xrcd = xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    return OWN(ibv_open_qp(xrcd->context, &attr));
}

Owned<ibv_qp> make_initiator(ibv_pd* pd, ibv_cq* cq) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_SEND;
    attr.send_cq = cq;
    attr.cap = {.max_send_wr = 64, .max_recv_wr = 0, .max_send_sge = 4, .max_recv_sge = 0, .max_inline_data = 64};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
    return OWN(ibv_create_qp_ex(pd->context, &attr));
}

void connect(ibv_qp* ini, ibv_qp* tgt) {
    to_init(ini, kIni);
    to_init(tgt, kTgt);
    to_rtr(ini, kIni, device().gid, tgt->qp_num);
    to_rtr(tgt, kTgt, device().gid, ini->qp_num);
    to_rts(ini, kIni);
}

void post(ibv_qp* qp, uint32_t srqn, const Work& work) {
    ibv_send_wr wr = request(work), *bad = nullptr;
    wr.qp_type.xrc.remote_srqn = srqn;
    EXPECT_OK(ibv_post_send(qp, &wr, &bad));
}

// An SRQ of a domain, with its own protection domain and CQ.
struct Queue {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    Buffer memory{pd, 65536};
    Owned<ibv_srq> srq;
    uint32_t number;

    explicit Queue(ibv_xrcd* xrcd) : srq(own(try_srq(xrcd, pd, cq), "an SRQ of XRC")), number(number_of(srq)) {}
};

// An INI QP and a TGT QP of this process that are connected.
struct Connected {
    Owned<ibv_xrcd> xrcd = make_xrcd();
    Queue one{xrcd}, two{xrcd};
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    Buffer local{pd, 65536};
    Owned<ibv_qp> tgt = make_target(xrcd), ini = make_initiator(pd, cq);

    Connected() { ::connect(ini, tgt); }
    void is_refused() {
        next_is(cq, IBV_WC_REM_ACCESS_ERR);
        EXPECT(state_of(ini) == IBV_QPS_ERR && state_of(tgt) == IBV_QPS_ERR);
        EXPECT(event_comes(device().context, IBV_EVENT_QP_ACCESS_ERR, tgt));
    }
};

// A temporary file that has no other use.
struct File {
    FILE* file = std::tmpfile();
    ~File() { std::fclose(file); }
    int fd() const { return fileno(file); }
};

}  // namespace

CASE(xrc, receives_come_from_the_srq_that_is_named) {
    Connected t;
    for (uint32_t i = 0; i < 4; ++i) {
        Queue& queue = i % 2 == 0 ? t.one : t.two;
        post_recv(queue.srq, {queue.memory.sge(5000 * i, 5000)}, i);
        fill(t.local.at(), 4500, i);
        post(t.ini, queue.number, {.sges = {t.local.sge(0, 4500)}});
        const ibv_wc wc = succeeded(queue.cq);
        EXPECT(wc.wr_id == i && wc.byte_len == 4500 && wc.qp_num == t.tgt->qp_num);
        EXPECT(matches(queue.memory.at(5000 * i), 4500, i));
        succeeded(t.cq);
    }
}

CASE(xrc, the_wr_api_names_the_srq_too) {
    Connected t;
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(t.ini);
    EXPECT(ex != nullptr);
    fill(t.local.at(), 3000, 7);
    for (Queue* queue : {&t.two, &t.one}) {
        post_recv(queue->srq, {queue->memory.sge(0, 5000)});
        ibv_wr_start(ex);
        ex->wr_id = 5;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        ibv_wr_set_xrc_srqn(ex, queue->number);
        ibv_wr_set_sge(ex, t.local.lkey(), t.local.address(), 3000);
        EXPECT_OK(ibv_wr_complete(ex));
        EXPECT(succeeded(t.cq).wr_id == 5);
        EXPECT(succeeded(queue->cq).byte_len == 3000 && matches(queue->memory.at(), 3000, 7));
    }
}

// A14: keys and receives belong to the protection domain of the SRQ. The TGT QP has no protection domain.
CASE(xrc, keys_are_of_the_srqs_protection_domain) {
    {
        Connected t;
        fill(t.local.at(), 5000, 1);
        post(t.ini, t.two.number,
             {.opcode = IBV_WR_RDMA_WRITE,
              .sges = {t.local.sge(0, 5000)},
              .to = t.two.memory.address(),
              .rkey = t.two.memory.rkey()});
        succeeded(t.cq);
        EXPECT(matches(t.two.memory.at(), 5000, 1));
        post(t.ini, t.two.number,
             {.opcode = IBV_WR_RDMA_READ,
              .sges = {t.local.sge(10000, 5000)},
              .to = t.two.memory.address(),
              .rkey = t.two.memory.rkey()});
        succeeded(t.cq);
        EXPECT(matches(t.local.at(10000), 5000, 1));
        *reinterpret_cast<uint64_t*>(t.one.memory.at(64)) = 40;
        post(t.ini, t.one.number,
             {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
              .sges = {t.local.sge(0, 8)},
              .to = t.one.memory.address(64),
              .rkey = t.one.memory.rkey(),
              .compare_add = 2});
        succeeded(t.cq);
        EXPECT(*reinterpret_cast<uint64_t*>(t.one.memory.at(64)) == 42);
    }
    Connected t;
    post(t.ini, t.one.number,
         {.opcode = IBV_WR_RDMA_WRITE,
          .sges = {t.local.sge(0, 8)},
          .to = t.two.memory.address(),
          .rkey = t.two.memory.rkey()});
    t.is_refused();
}

CASE(xrc, an_empty_srq_is_not_ready) {
    Connected t;
    post(t.ini, t.one.number, {.sges = {t.local.sge(0, 100)}});
    stays_empty(t.cq);
    post_recv(t.one.srq, {t.one.memory.sge(0, 1000)});
    succeeded(t.cq);
    succeeded(t.one.cq);
}

// Devices report the fault like ib_core's drivers: an access error, also at the requester.
CASE(xrc, a_number_that_no_srq_has_is_refused) {
    Connected t;
    post(t.ini, t.one.number ^ 0x7F0000, {.sges = {t.local.sge(0, 100)}});
    t.is_refused();
}

CASE(xrc, an_srq_of_another_domain_is_refused) {
    Owned<ibv_xrcd> other = make_xrcd();
    Queue foreign(other);
    Connected t;
    post_recv(foreign.srq, {foreign.memory.sge(0, 1000)});
    post(t.ini, foreign.number, {.sges = {t.local.sge(0, 100)}});
    t.is_refused();
    stays_empty(foreign.cq, 0.02);
}

CASE(xrc, an_srq_that_was_destroyed_is_refused) {
    Connected t;
    post_recv(t.one.srq, {t.one.memory.sge(0, 1000)});
    const uint32_t number = t.one.number;
    EXPECT_OK(t.one.srq.destroy());
    post(t.ini, number, {.sges = {t.local.sge(0, 100)}});
    t.is_refused();
}

CASE(xrc, neither_end_takes_what_is_the_others) {
    Connected t;
    ibv_sge sge = t.local.sge(0, 8);
    ibv_recv_wr recv{1, nullptr, &sge, 1}, *bad_recv = nullptr;
    EXPECT(ibv_post_recv(t.tgt, &recv, &bad_recv) != 0);
    EXPECT(try_post(t.tgt, {.sges = {sge}}) != 0);
}

// man ibv_open_qp: any process with the domain may open the QP. The QP lives as long as any process has it open.
CASE(xrc, a_target_outlives_the_handle_that_created_it) {
    Connected t;
    Owned<ibv_qp> opened = open_target(t.xrcd, t.tgt->qp_num);
    EXPECT(opened->qp_num == t.tgt->qp_num && opened->qp_type == IBV_QPT_XRC_RECV);
    EXPECT_OK(t.tgt.destroy());
    post_recv(t.one.srq, {t.one.memory.sge(0, 1000)});
    post(t.ini, t.one.number, {.sges = {t.local.sge(0, 100)}});
    succeeded(t.cq);
    EXPECT(succeeded(t.one.cq).qp_num == opened->qp_num);
    // The other handles can be used like the first.
    EXPECT(state_of(opened) == IBV_QPS_RTR);
    to_state(opened, IBV_QPS_ERR);
    const uint32_t number = opened->qp_num;
    EXPECT_OK(opened.destroy());
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = t.xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    EXPECT_REFUSED(ibv_open_qp(device().context, &attr), EINVAL, ENOENT);
}

CASE(xrc, every_handle_hears_of_an_error) {
    Connected t;
    Owned<ibv_qp> opened = open_target(t.xrcd, t.tgt->qp_num);
    post(t.ini, t.one.number ^ 0x7F0000, {.sges = {t.local.sge(0, 100)}});
    next_is(t.cq, IBV_WC_REM_ACCESS_ERR);
    bool first = false, second = false;
    for (int i = 0; i < 2; ++i) {
        ibv_async_event event;
        EXPECT(ibv_get_async_event(device().context, &event) == 0);
        EXPECT(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
        first |= event.element.qp == t.tgt;
        second |= event.element.qp == opened;
        ibv_ack_async_event(&event);
    }
    EXPECT(first && second);
}

// man ibv_open_xrcd: one inode is one domain. With -1 the domain is private.
CASE(xrc, a_file_stands_for_a_domain) {
    make_xrcd();
    File file, other;
    errno = 0;
    EXPECT(try_open(file.fd(), 0) == nullptr, "there is none that could be opened");
    Owned<ibv_xrcd> first = make_xrcd(file.fd());
    Owned<ibv_xrcd> second = OWN(try_open(file.fd(), 0));
    EXPECT(try_open(file.fd(), O_CREAT | O_EXCL) == nullptr);
    Owned<ibv_xrcd> third = make_xrcd(other.fd());
    Device again = open_device();
    {
        Owned<ibv_xrcd> fourth = OWN(try_open(file.fd(), 0, again.context));
        Owned<ibv_qp> tgt = make_target(first);
        const uint32_t number = tgt->qp_num;
        Owned<ibv_qp> by_second = open_target(second, number), by_fourth = open_target(fourth, number);
        ibv_qp_open_attr attr{};
        attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        attr.qp_num = number;
        attr.xrcd = third;
        attr.qp_type = IBV_QPT_XRC_RECV;
        EXPECT_REFUSED(ibv_open_qp(device().context, &attr), EINVAL, ENOENT);
    }
    EXPECT_OK(ibv_close_device(again.context));
    EXPECT_OK(first.destroy());
    EXPECT_OK(second.destroy());
    Owned<ibv_xrcd> anew = make_xrcd(file.fd());
    EXPECT(try_open(-2, O_CREAT) == nullptr, "no file");
}

CASE(xrc, a_domain_in_use_stays_open) {
    Owned<ibv_xrcd> xrcd = make_xrcd();
    {
        Queue queue(xrcd);
        EXPECT_ERROR(ibv_close_xrcd(xrcd), EBUSY);
        EXPECT_ERROR(ibv_destroy_cq(queue.cq), EBUSY);
        Owned<ibv_qp> tgt = make_target(xrcd);
        EXPECT_OK(queue.srq.destroy());
        EXPECT_ERROR(ibv_close_xrcd(xrcd), EBUSY);
    }
    EXPECT_OK(xrcd.destroy());
}

CASE(xrc, what_is_missing_is_refused) {
    Owned<ibv_xrcd> xrcd = make_xrcd();
    ibv_xrcd_init_attr no_flags{};
    no_flags.comp_mask = IBV_XRCD_INIT_ATTR_FD;
    no_flags.fd = -1;
    EXPECT(ibv_open_xrcd(device().context, &no_flags) == nullptr);
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    ibv_srq_init_attr_ex srq{};
    srq.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
    srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD;
    srq.srq_type = IBV_SRQT_XRC;
    srq.pd = pd;
    srq.xrcd = xrcd;
    EXPECT(ibv_create_srq_ex(device().context, &srq) == nullptr, "no CQ");
    ibv_qp_init_attr_ex qp{};
    qp.qp_type = IBV_QPT_XRC_RECV;
    qp.comp_mask = IBV_QP_INIT_ATTR_PD;
    qp.pd = pd;
    EXPECT(ibv_create_qp_ex(device().context, &qp) == nullptr, "no domain");
}

CASE(xrc, srqs_have_numbers_of_their_own) {
    Owned<ibv_xrcd> xrcd = make_xrcd();
    Queue one(xrcd), two(xrcd);
    EXPECT(one.number != two.number && one.number < 1u << 24 && two.number < 1u << 24);
}

CASE(xrc, both_ends_reset_and_connect_again) {
    Connected t;
    for (int round = 0; round < 3; ++round) {
        post_recv(t.one.srq, {t.one.memory.sge(0, 1000)});
        post(t.ini, t.one.number, {.sges = {t.local.sge(0, 100)}});
        succeeded(t.cq);
        succeeded(t.one.cq);
        to_state(t.ini, IBV_QPS_RESET);
        to_state(t.tgt, IBV_QPS_RESET);
        ::connect(t.ini, t.tgt);
    }
}

// Annex A14: an INI QP is no responder, and a TGT QP no requester. Programs set one mask for all types, and the kernel
// removes the attributes that a type ignores (uverbs_cmd.c: modify_qp_mask), even if their values would be refused.
CASE(xrc, attributes_of_the_half_that_is_missing_are_ignored) {
    Owned<ibv_xrcd> xrcd = make_xrcd();
    Queue queue(xrcd);
    Owned<ibv_cq> cq = make_cq();
    Buffer local(queue.pd, 65536);
    Owned<ibv_qp> tgt = make_target(xrcd), ini = make_initiator(queue.pd, cq);
    to_init(ini, kIni);
    to_init(tgt, kTgt);
    const int rtr = rtr_mask(IBV_QPT_RC), rts = rts_mask(IBV_QPT_RC);
    for (const auto& [qp, peer] : {std::pair{&ini, &tgt}, std::pair{&tgt, &ini}}) {
        ibv_qp_attr attr = rtr_attr({}, device().gid, (*peer)->qp_num);
        if (qp == &ini) attr.min_rnr_timer = 77;
        EXPECT_OK(modify(*qp, attr, rtr));
    }
    for (Owned<ibv_qp>* qp : {&ini, &tgt}) {
        ibv_qp_attr attr = rts_attr({});
        if (qp == &tgt) attr.retry_cnt = 77;
        EXPECT_OK(modify(*qp, attr, rts));
    }
    post_recv(queue.srq, {queue.memory.sge(0, 1000)});
    fill(local.at(), 100, 5);
    post(ini, queue.number, {.sges = {local.sge(0, 100)}});
    succeeded(cq);
    succeeded(queue.cq);
    EXPECT(matches(queue.memory.at(), 100, 5));
}

// Two processes, each with an INI QP, a TGT QP and an SRQ.
PAIR(xrc, two_processes) {
    struct Where {
        ibv_gid gid;
        uint32_t ini, tgt, srqn;
    };
    Owned<ibv_xrcd> xrcd = make_xrcd();
    Queue queue(xrcd);
    Owned<ibv_cq> cq = make_cq();
    Owned<ibv_qp> tgt = make_target(xrcd), ini = make_initiator(queue.pd, cq);
    const Where theirs = peer.exchange(Where{device().gid, ini->qp_num, tgt->qp_num, queue.number});
    to_init(ini, kIni);
    to_init(tgt, kTgt);
    to_rtr(ini, kIni, theirs.gid, theirs.tgt);
    to_rtr(tgt, kTgt, theirs.gid, theirs.ini);
    for (uint64_t i = 0; i < 16; ++i) post_recv(queue.srq, {queue.memory.sge(0, 30000)}, i);
    peer.barrier();
    to_rts(ini, kIni);
    for (uint32_t i = 0; i < 50; ++i) {
        const uint32_t seed = 2 * i + (peer.first ? 0 : 1), other = 2 * i + (peer.first ? 1 : 0);
        fill(queue.memory.at(30000), 20000 + i, seed);
        post(ini, theirs.srqn, {.sges = {queue.memory.sge(30000, 20000 + i)}});
        succeeded(cq);
        const ibv_wc wc = succeeded(queue.cq);
        EXPECT(wc.byte_len == 20000 + i && wc.qp_num == tgt->qp_num && wc.src_qp == theirs.ini);
        EXPECT(matches(queue.memory.at(), 20000 + i, other));
        post_recv(queue.srq, {queue.memory.sge(0, 30000)}, i);
        peer.barrier();
    }
}
