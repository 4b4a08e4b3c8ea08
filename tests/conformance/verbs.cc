// SPDX-License-Identifier: Apache-2.0
// Implements verbs.h.
#include "verbs.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <ctime>

namespace conformance {

Settings settings;

double now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void sleep_for(double seconds) {
    for (const double end = now() + seconds;;) {  // a signal may interrupt the sleep
        const double left = end - now();
        if (left <= 0) return;
        timespec time{static_cast<time_t>(left),
                      static_cast<long>((left - static_cast<double>(static_cast<time_t>(left))) * 1e9)};
        nanosleep(&time, nullptr);
    }
}

// --- device ----------------------------------------------------------------------------------------------------------

namespace {

// Returns the index of the first RoCE v2 GID that holds an IPv4 address, else of the first RoCE v2 GID, else 0.
int choose_gid(ibv_context* context, uint8_t port, int count) {
    int chosen = -1;
    for (int i = 0; i < count; ++i) {
        ibv_gid_entry entry;
        if (ibv_query_gid_ex(context, port, static_cast<uint32_t>(i), &entry, 0) != 0 ||
            entry.gid_type != IBV_GID_TYPE_ROCE_V2)
            continue;
        static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        if (std::memcmp(entry.gid.raw, kMapped, sizeof(kMapped)) == 0) return i;
        if (chosen < 0) chosen = i;
    }
    return std::max(chosen, 0);
}

}  // namespace

ibv_device* find_device(ibv_device** list) {
    for (; *list != nullptr; ++list) {
        if (settings.device.empty() || settings.device == ibv_get_device_name(*list)) return *list;
    }
    return nullptr;
}

Device open_device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) fail("ibv_get_device_list: %s", std::strerror(errno));
    ibv_device* found = find_device(list);
    if (found == nullptr) fail("no device %s", settings.device.c_str());
    Device device{};
    device.context = ibv_open_device(found);
    if (device.context == nullptr) fail("ibv_open_device(%s): %s", ibv_get_device_name(found), std::strerror(errno));
    ibv_free_device_list(list);
    device.port = settings.port;
    EXPECT_OK(ibv_query_device(device.context, &device.attr));
    EXPECT_OK(ibv_query_port(device.context, device.port, &device.port_attr));
    device.gid_index = static_cast<uint8_t>(
        settings.gid_index >= 0 ? settings.gid_index
                                : choose_gid(device.context, device.port, device.port_attr.gid_tbl_len));
    EXPECT(ibv_query_gid(device.context, device.port, device.gid_index, &device.gid) == 0);
    return device;
}

Device& device() {
    static Device device = open_device();
    return device;
}

// --- objects ---------------------------------------------------------------------------------------------------------

std::string& leftovers() {
    static std::string text;
    return text;
}

void note_leftover(int error) {
    leftovers() += std::string(leftovers().empty() ? "" : ", ") + std::strerror(error < 0 ? errno : error);
}

Owned<ibv_pd> make_pd() {
    return OWN(ibv_alloc_pd(device().context));
}

Owned<ibv_comp_channel> make_channel() {
    return OWN(ibv_create_comp_channel(device().context));
}

Owned<ibv_cq> make_cq(int entries, ibv_comp_channel* channel, void* context) {
    return OWN(ibv_create_cq(device().context, entries, context, channel, 0));
}

Owned<ibv_srq> make_srq(ibv_pd* pd, uint32_t requests, uint32_t sges) {
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = requests, .max_sge = sges, .srq_limit = 0}};
    return OWN(ibv_create_srq(pd, &attr));
}

Owned<ibv_mr> make_mr(ibv_pd* pd, void* address, size_t bytes, unsigned access) {
    return OWN(ibv_reg_mr(pd, address, bytes, static_cast<int>(access)));
}

ibv_ah_attr address_of(const ibv_gid& gid) {
    ibv_ah_attr attr{};
    attr.grh.dgid = gid;
    attr.grh.sgid_index = device().gid_index;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = device().port;
    return attr;
}

Owned<ibv_ah> make_ah(ibv_pd* pd, const ibv_gid& gid) {
    ibv_ah_attr attr = address_of(gid);
    return OWN(ibv_create_ah(pd, &attr));
}

Owned<ibv_ah> make_ah(ibv_pd* pd) {
    return make_ah(pd, device().gid);
}

Memory::Memory(size_t bytes) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) fail("mmap of %zu bytes: %s", bytes, std::strerror(errno));
    data_ = static_cast<uint8_t*>(data);
}

Memory::~Memory() {
    munmap(data_, bytes_);
}

namespace {
uint8_t pattern(size_t place, uint32_t seed) {
    const uint64_t mixed = (place + 1) * 0x9E3779B97F4A7C15ull ^ (seed + 1ull) * 0xD1B54A32D192ED03ull;
    return static_cast<uint8_t>((mixed * 0x9E3779B97F4A7C15ull) >> 56);
}
}  // namespace

void fill(uint8_t* data, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; ++i) data[i] = pattern(i, seed);
}

bool matches(const uint8_t* data, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; ++i) {
        if (data[i] != pattern(i, seed)) return false;
    }
    return true;
}

bool all_bytes(const uint8_t* data, size_t bytes, uint8_t value) {
    return std::all_of(data, data + bytes, [value](uint8_t byte) { return byte == value; });
}

// --- queue pairs -----------------------------------------------------------------------------------------------------

Owned<ibv_qp> make_qp(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, const QpOptions& options) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = recv_cq;
    attr.srq = options.srq;
    attr.cap = {options.send_wr, options.srq != nullptr ? 0 : options.recv_wr, options.send_sge,
                options.srq != nullptr ? 0 : options.recv_sge, options.inline_bytes};
    attr.qp_type = options.type;
    attr.sq_sig_all = options.sq_sig_all;
    attr.pd = pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (options.send_ops != 0) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = options.send_ops;
        return OWN(ibv_create_qp_ex(pd->context, &attr));
    }
    ibv_qp_init_attr plain{};
    std::memcpy(&plain, &attr, sizeof(plain));  // the extended structure begins like the plain one
    return OWN(ibv_create_qp(pd, &plain));
}

ibv_qp_attr init_attr(const QpOptions& options) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = device().port;
    attr.qkey = kQkey;
    attr.qp_access_flags = options.access;
    return attr;
}

ibv_qp_attr rtr_attr(const QpOptions& options, const ibv_gid& gid, uint32_t qpn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = std::min(options.mtu, device().port_attr.active_mtu);
    attr.rq_psn = options.psn;
    attr.dest_qp_num = qpn;
    attr.ah_attr = address_of(gid);
    attr.ah_attr.sl = options.sl;
    attr.max_dest_rd_atomic = static_cast<uint8_t>(std::min<int>(options.rd_atomic, device().attr.max_qp_rd_atom));
    attr.min_rnr_timer = options.min_rnr_timer;
    return attr;
}

ibv_qp_attr rts_attr(const QpOptions& options) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = options.psn;
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retry;
    attr.rnr_retry = options.rnr_retry;
    attr.max_rd_atomic = static_cast<uint8_t>(std::min<int>(options.rd_atomic, device().attr.max_qp_init_rd_atom));
    return attr;
}

int init_mask(ibv_qp_type type) {
    return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

int rtr_mask(ibv_qp_type type) {
    if (type == IBV_QPT_UD) return IBV_QP_STATE;
    const int connected = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const bool answers = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
    return answers ? connected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : connected;
}

int rts_mask(ibv_qp_type type) {
    const int all = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type == IBV_QPT_XRC_RECV) return all | IBV_QP_TIMEOUT;
    const bool asks = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    return asks ? all | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : all;
}

int modify(ibv_qp* qp, ibv_qp_attr attr, int mask) {
    return ibv_modify_qp(qp, &attr, mask);
}

void to_init(ibv_qp* qp, const QpOptions& options) {
    EXPECT_OK(modify(qp, init_attr(options), init_mask(qp->qp_type)));
}

void to_rtr(ibv_qp* qp, const QpOptions& options, const ibv_gid& gid, uint32_t qpn) {
    EXPECT_OK(modify(qp, rtr_attr(options, gid, qpn), rtr_mask(qp->qp_type)));
}

void to_rts(ibv_qp* qp, const QpOptions& options) {
    EXPECT_OK(modify(qp, rts_attr(options), rts_mask(qp->qp_type)));
}

void bring_up(ibv_qp* qp, const QpOptions& options, const ibv_gid& gid, uint32_t qpn) {
    to_init(qp, options);
    to_rtr(qp, options, gid, qpn);
    to_rts(qp, options);
}

void connect(ibv_qp* a, ibv_qp* b, const QpOptions& options) {
    to_init(a, options);
    to_init(b, options);
    to_rtr(a, options, device().gid, b->qp_num);
    to_rtr(b, options, device().gid, a->qp_num);
    to_rts(a, options);
    to_rts(b, options);
}

void to_state(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    EXPECT_OK(modify(qp, attr, IBV_QP_STATE));
}

ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

Ends::Ends(const QpOptions& options)
    : options(options),
      pd(make_pd()),
      send_cq(make_cq()),
      recv_cq(make_cq()),
      peer_send_cq(make_cq()),
      peer_recv_cq(make_cq()),
      local(pd, 65536),
      remote(pd, 65536),
      a(make_qp(pd, send_cq, recv_cq, options)),
      b(make_qp(pd, peer_send_cq, peer_recv_cq, options)) {
    connect(a, b, options);
}

Half::Half(Peer& peer, const QpOptions& options)
    : pd(make_pd()),
      send_cq(make_cq()),
      recv_cq(make_cq()),
      memory(pd, 65536),
      qp(make_qp(pd, send_cq, recv_cq, options)) {
    to_init(qp, options);
    theirs = peer.exchange(Address{device().gid, qp->qp_num, memory.rkey(), memory.address()});
    to_rtr(qp, options, theirs.gid, theirs.qpn);
    to_rts(qp, options);
    peer.barrier();
}

// --- requests and completions ----------------------------------------------------------------------------------------

ibv_send_wr request(const Work& work) {
    ibv_send_wr wr{};
    wr.wr_id = work.id;
    wr.sg_list = const_cast<ibv_sge*>(work.sges.data());
    wr.num_sge = static_cast<int>(work.sges.size());
    wr.opcode = work.opcode;
    wr.send_flags = work.flags;
    if (work.opcode == IBV_WR_SEND_WITH_INV || work.opcode == IBV_WR_LOCAL_INV)
        wr.invalidate_rkey = work.imm;
    else
        wr.imm_data = htonl(work.imm);
    if (work.ah != nullptr) {
        wr.wr.ud.ah = work.ah;
        wr.wr.ud.remote_qpn = work.qpn;
        wr.wr.ud.remote_qkey = work.qkey;
    } else if (work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = work.to;
        wr.wr.atomic.rkey = work.rkey;
        wr.wr.atomic.compare_add = work.compare_add;
        wr.wr.atomic.swap = work.swap;
    } else {
        wr.wr.rdma.remote_addr = work.to;
        wr.wr.rdma.rkey = work.rkey;
    }
    return wr;
}

int try_post(ibv_qp* qp, const Work& work) {
    ibv_send_wr wr = request(work), *bad = nullptr;
    const int error = ibv_post_send(qp, &wr, &bad);
    if (error != 0 && bad != &wr) fail("ibv_post_send: %s, but bad_wr is not the request", std::strerror(error));
    return error;
}

void post(ibv_qp* qp, const Work& work) {
    EXPECT_OK(try_post(qp, work));
}

int try_post_recv(ibv_qp* qp, std::vector<ibv_sge> sges, uint64_t id) {
    ibv_recv_wr wr{id, nullptr, sges.data(), static_cast<int>(sges.size())}, *bad = nullptr;
    const int error = ibv_post_recv(qp, &wr, &bad);
    if (error != 0 && bad != &wr) fail("ibv_post_recv: %s, but bad_wr is not the request", std::strerror(error));
    return error;
}

void post_recv(ibv_qp* qp, std::vector<ibv_sge> sges, uint64_t id) {
    EXPECT_OK(try_post_recv(qp, std::move(sges), id));
}

void post_recv(ibv_srq* srq, std::vector<ibv_sge> sges, uint64_t id) {
    ibv_recv_wr wr{id, nullptr, sges.data(), static_cast<int>(sges.size())}, *bad = nullptr;
    EXPECT_OK(ibv_post_srq_recv(srq, &wr, &bad));
}

ibv_wc next(ibv_cq* cq, double patience) {
    ibv_wc wc{};
    for (const double end = now() + patience;;) {
        const int got = ibv_poll_cq(cq, 1, &wc);
        if (got < 0) fail("ibv_poll_cq: %d", got);
        if (got == 1) return wc;
        if (now() > end) fail("no completion in %.1f s", patience);
    }
}

ibv_wc next_is(ibv_cq* cq, ibv_wc_status status, double patience) {
    const ibv_wc wc = next(cq, patience);
    if (wc.status != status)
        fail("expected a completion with '%s', got '%s'", ibv_wc_status_str(status), ibv_wc_status_str(wc.status));
    return wc;
}

void stays_empty(ibv_cq* cq, double seconds) {
    ibv_wc wc;
    for (const double end = now() + seconds; now() < end;) {
        const int got = ibv_poll_cq(cq, 1, &wc);
        if (got != 0)
            fail("expected no completion, got %d: '%s'", got, got > 0 ? ibv_wc_status_str(wc.status) : "an error");
    }
}

// --- asynchronous events ---------------------------------------------------------------------------------------------

bool event_comes(ibv_context* context, ibv_event_type type, const void* element, double patience) {
    pollfd readable{context->async_fd, POLLIN, 0};
    for (const double end = now() + patience; now() < end;) {
        if (poll(&readable, 1, 5) != 1) continue;
        ibv_async_event event;
        EXPECT(ibv_get_async_event(context, &event) == 0);
        ibv_ack_async_event(&event);
        if (event.event_type == type && (element == nullptr || event.element.qp == element)) return true;
    }
    return false;
}

int pending_events(ibv_context* context) {
    pollfd readable{context->async_fd, POLLIN, 0};
    return poll(&readable, 1, 0);
}

void drop_events(ibv_context* context) {
    while (pending_events(context) == 1) {
        ibv_async_event event;
        EXPECT(ibv_get_async_event(context, &event) == 0);
        ibv_ack_async_event(&event);
    }
}

}  // namespace conformance
