// SPDX-License-Identifier: Apache-2.0
// The parts that cases share: the device under test, objects that are destroyed at the end of a scope, connected QPs,
// and waiting. Everything uses <infiniband/verbs.h>. Times are in seconds.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "case.h"

namespace conformance {

// The device under test, from the command line.
struct Settings {
    std::string device;  // the first device if empty
    uint8_t port = 1;
    int gid_index = -1;  // if negative: the first RoCE v2 GID of an IPv4 address, else the first GID
};
extern Settings settings;

struct Device {
    ibv_context* context;
    uint8_t port;
    uint8_t gid_index;
    ibv_gid gid;
    ibv_device_attr attr;
    ibv_port_attr port_attr;
};
ibv_device* find_device(ibv_device** list);  // returns NULL if there is no such device
Device open_device();                        // the caller closes it
Device& device();                            // the device of this process: opened by the first call, never closed

inline constexpr unsigned kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr uint32_t kQkey = 0x11223344;

double now();
void sleep_for(double seconds);

// --- objects ---------------------------------------------------------------------------------------------------------

inline int destroy(ibv_context* object) {
    return ibv_close_device(object);
}
inline int destroy(ibv_pd* object) {
    return ibv_dealloc_pd(object);
}
inline int destroy(ibv_mr* object) {
    return ibv_dereg_mr(object);
}
inline int destroy(ibv_mw* object) {
    return ibv_dealloc_mw(object);
}
inline int destroy(ibv_cq* object) {
    return ibv_destroy_cq(object);
}
inline int destroy(ibv_cq_ex* object) {
    return ibv_destroy_cq(ibv_cq_ex_to_cq(object));
}
inline int destroy(ibv_comp_channel* object) {
    return ibv_destroy_comp_channel(object);
}
inline int destroy(ibv_srq* object) {
    return ibv_destroy_srq(object);
}
inline int destroy(ibv_xrcd* object) {
    return ibv_close_xrcd(object);
}
inline int destroy(ibv_qp* object) {
    return ibv_destroy_qp(object);
}
inline int destroy(ibv_ah* object) {
    return ibv_destroy_ah(object);
}

// Returns the objects that destructors could not destroy during a case.
std::string& leftovers();
void note_leftover(int error);

template <typename T>
class Owned {
  public:
    Owned() = default;
    explicit Owned(T* object) : object_(object) {}
    Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Owned() {
        if (object_ == nullptr) return;
        if (const int error = conformance::destroy(object_); error != 0) note_leftover(error);
    }
    operator T*() const { return object_; }
    T* operator->() const { return object_; }
    // Destroys the object now. It stays if that fails.
    int destroy() {
        const int error = conformance::destroy(object_);
        if (error == 0) object_ = nullptr;
        return error;
    }
    T* release() { return std::exchange(object_, nullptr); }

  private:
    T* object_ = nullptr;
};

// Takes ownership of `object`. The case fails if it is NULL.
template <typename T>
Owned<T> own(T* object, const char* what) {
    if (object == nullptr) fail("%s: %s", what, std::strerror(errno));
    return Owned<T>(object);
}
#define OWN(call) conformance::own((call), #call)

Owned<ibv_pd> make_pd();
Owned<ibv_comp_channel> make_channel();
Owned<ibv_cq> make_cq(int entries = 256, ibv_comp_channel* channel = nullptr, void* context = nullptr);
Owned<ibv_srq> make_srq(ibv_pd* pd, uint32_t requests = 64, uint32_t sges = 4);
Owned<ibv_mr> make_mr(ibv_pd* pd, void* address, size_t bytes, unsigned access = kAllAccess);
ibv_ah_attr address_of(const ibv_gid& gid);
Owned<ibv_ah> make_ah(ibv_pd* pd, const ibv_gid& gid);
Owned<ibv_ah> make_ah(ibv_pd* pd);  // our own address

// Zeroed pages of this process.
class Memory {
  public:
    explicit Memory(size_t bytes);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    uint8_t* at(size_t offset = 0) const { return data_ + offset; }
    size_t bytes() const { return bytes_; }

  private:
    uint8_t* data_;
    size_t bytes_;
};

// Fills memory with bytes that depend on their place and on `seed`; matches() checks them.
void fill(uint8_t* data, size_t bytes, uint32_t seed);
bool matches(const uint8_t* data, size_t bytes, uint32_t seed);
bool all_bytes(const uint8_t* data, size_t bytes, uint8_t value);

// Registered memory.
class Buffer {
  public:
    Buffer(ibv_pd* pd, size_t bytes, unsigned access = kAllAccess)
        : memory_(bytes), mr(make_mr(pd, memory_.at(), bytes, access)) {}

    uint8_t* at(size_t offset = 0) const { return memory_.at(offset); }
    uint64_t address(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(at(offset)); }
    size_t bytes() const { return memory_.bytes(); }
    uint32_t lkey() const { return mr->lkey; }
    uint32_t rkey() const { return mr->rkey; }
    ibv_sge sge(size_t offset, uint32_t length) const { return {address(offset), length, lkey()}; }

  private:
    Memory memory_;

  public:
    Owned<ibv_mr> mr;
};

// --- queue pairs -----------------------------------------------------------------------------------------------------

struct QpOptions {
    ibv_qp_type type = IBV_QPT_RC;
    uint32_t send_wr = 64, recv_wr = 64, send_sge = 4, recv_sge = 4, inline_bytes = 64;
    ibv_srq* srq = nullptr;
    int sq_sig_all = 0;
    unsigned access = kAllAccess;
    ibv_mtu mtu = IBV_MTU_1024;
    uint32_t psn = 0x000111;                    // for both directions
    uint8_t timeout = 14, retry = 7;            // 67 ms
    uint8_t rnr_retry = 7, min_rnr_timer = 12;  // forever; 0.64 ms
    uint8_t rd_atomic = 8;
    uint8_t sl = 0;
    uint64_t send_ops = 0;  // IBV_QP_EX_WITH_..., for ibv_create_qp_ex
};

// The address of a QP and its memory, for the other process.
struct Address {
    ibv_gid gid;
    uint32_t qpn;
    uint32_t rkey;
    uint64_t address;
};

Owned<ibv_qp> make_qp(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, const QpOptions& options = {});
// The attributes and the mask that a QP of this kind needs for a transition.
ibv_qp_attr init_attr(const QpOptions& options);
ibv_qp_attr rtr_attr(const QpOptions& options, const ibv_gid& gid, uint32_t qpn);
ibv_qp_attr rts_attr(const QpOptions& options);
int init_mask(ibv_qp_type type);
int rtr_mask(ibv_qp_type type);
int rts_mask(ibv_qp_type type);
int modify(ibv_qp* qp, ibv_qp_attr attr, int mask);
void to_init(ibv_qp* qp, const QpOptions& options = {});
void to_rtr(ibv_qp* qp, const QpOptions& options, const ibv_gid& gid, uint32_t qpn);
void to_rts(ibv_qp* qp, const QpOptions& options);
void bring_up(ibv_qp* qp, const QpOptions& options, const ibv_gid& gid, uint32_t qpn);
void connect(ibv_qp* a, ibv_qp* b, const QpOptions& options);
void to_state(ibv_qp* qp, ibv_qp_state state);
ibv_qp_state state_of(ibv_qp* qp);

// Two QPs of this process that are connected to each other. Each has its own CQs and 64 KiB, in one PD.
struct Ends {
    explicit Ends(const QpOptions& options = {});

    QpOptions options;
    Owned<ibv_pd> pd;
    Owned<ibv_cq> send_cq, recv_cq, peer_send_cq, peer_recv_cq;
    Buffer local, remote;
    Owned<ibv_qp> a, b;  // a has send_cq, recv_cq and `local`; b has the others
};

// This process's half of a connection with the other process of a PAIR.
struct Half {
    explicit Half(Peer& peer, const QpOptions& options = {});

    Owned<ibv_pd> pd;
    Owned<ibv_cq> send_cq, recv_cq;
    Buffer memory;
    Owned<ibv_qp> qp;
    Address theirs;
};

// --- requests and completions ----------------------------------------------------------------------------------------

struct Work {
    ibv_wr_opcode opcode = IBV_WR_SEND;
    std::vector<ibv_sge> sges;
    uint64_t to = 0;  // remote address
    uint32_t rkey = 0;
    unsigned flags = IBV_SEND_SIGNALED;
    uint32_t imm = 0;  // in host order; or the key that a SEND with invalidate invalidates
    uint64_t compare_add = 0, swap = 0;
    ibv_ah* ah = nullptr;
    uint32_t qpn = 0, qkey = kQkey;
    uint64_t id = 1;
};
ibv_send_wr request(const Work& work);  // refers to `work`
int try_post(ibv_qp* qp, const Work& work);
void post(ibv_qp* qp, const Work& work);
void post_recv(ibv_qp* qp, std::vector<ibv_sge> sges, uint64_t id = 1);
int try_post_recv(ibv_qp* qp, std::vector<ibv_sge> sges, uint64_t id = 1);
void post_recv(ibv_srq* srq, std::vector<ibv_sge> sges, uint64_t id = 1);

// Returns the next completion. The case fails if no completion arrives in time.
ibv_wc next(ibv_cq* cq, double patience = 4);
// Returns the next completion. The case also fails if its status differs.
ibv_wc next_is(ibv_cq* cq, ibv_wc_status status, double patience = 4);
inline ibv_wc succeeded(ibv_cq* cq, double patience = 4) {
    return next_is(cq, IBV_WC_SUCCESS, patience);
}
void stays_empty(ibv_cq* cq, double seconds = 0.05);
// Polls `cq` until `done()`, so that a device that relies on its program's calls makes progress.
template <typename Done>
bool poll_until(Done done, double patience = 4) {
    for (const double end = now() + patience; !done();) {
        if (now() > end) return false;
    }
    return true;
}
// Waits for an asynchronous event, and acknowledges it and all events before it. If `element` is NULL, an event of any
// object matches.
bool event_comes(ibv_context* context, ibv_event_type type, const void* element = nullptr, double patience = 3);
void drop_events(ibv_context* context);
int pending_events(ibv_context* context);

}  // namespace conformance
