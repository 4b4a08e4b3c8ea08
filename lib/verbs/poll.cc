// SPDX-License-Identifier: Apache-2.0
// Polling a CQ: ibv_poll_cq and the extended ibv_start_poll family. With shared progress this is also what drives the
// datapath.
#include <ctime>
#include <mutex>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

// A program that always finds completions must still move traffic. Polls of at most 64 entries or so: every 8th costs
// nothing.
constexpr uint32_t kBusyPollsPerProgress = 8;
// Who takes one completion at a time polls until he finds nothing, and then works on what he has found (rsockets copies
// it, and tells its peer of the room). With a NIC he soon finds nothing; here each poll of an empty CQ may receive
// more, so that he would go on until the peer has no room left, and it would wait while he works. So after a few polls
// that found something, one that finds nothing says so at once. rstream, 1 MiB: 48 instead of 39 Gb/s (cores 500 ns
// apart), 68 for 60 (110 ns). Who takes many sees by their number that there are no more, and posts between his polls.
constexpr uint32_t kPollsToWorkOn = 2;

int take(Cq& cq, int count, ibv_wc* wc, uint64_t* times_ns) {
    // Who does not drive shares the queue's tail with the worker, and has no stores to wait for.
    const bool drives = cq.runtime->config().progress == datapath::Progress::kShared;
    if (drives && cq.queue.empty()) return 0;
    const std::lock_guard guard(cq.lock);
    return cq.queue.poll(wc, count, times_ns);
}

[[gnu::always_inline]] inline int poll(Cq& cq, int count, ibv_wc* wc, uint64_t* times_ns) {
    const int found = take(cq, count, wc, times_ns);
    const uint32_t before = cq.busy_polls.load(std::memory_order_relaxed), busy = found != 0 ? before + 1 : 0;
    cq.busy_polls.store(busy, std::memory_order_relaxed);
    if (found != 0 ? busy % kBusyPollsPerProgress != 0 : count == 1 && before >= kPollsToWorkOn) return found;
    cq.runtime->progress();
    return found != 0 ? found : take(cq, count, wc, times_ns);
}

// One at a time: what a program does not look at stays for its next poll.
int next_poll(ibv_cq_ex* handle) {
    Cq& cq = from(handle);
    if (cq.runtime->in_forked_child()) [[unlikely]]
        return ENOENT;
    if (poll(cq, 1, &cq.current, &cq.current_ns) == 0) return ENOENT;
    cq.wr_id = cq.current.wr_id;
    cq.status = cq.current.status;
    return 0;
}

int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) {
    if (attr->comp_mask != 0) return EINVAL;
    Cq& cq = from(handle);
    if (cq.runtime->in_forked_child()) [[unlikely]]
        return ENOENT;
    cq.current_lock.lock();
    const int error = next_poll(handle);
    if (error != 0) cq.current_lock.unlock();
    return error;
}

void end_poll(ibv_cq_ex* cq) {
    from(cq).current_lock.unlock();
}

// Returns CLOCK_REALTIME less the runtime's clock, modulo 2^64: the one of three measurements that took least time,
// because a preemption between its readings makes one wrong.
uint64_t measure_wall_clock(const datapath::Runtime& runtime) {
    uint64_t best_ns = UINT64_MAX, difference_ns = 0;
    for (int i = 0; i < 3; ++i) {
        timespec wall{};
        const uint64_t before_ns = runtime.now_ns();
        clock_gettime(CLOCK_REALTIME, &wall);
        const uint64_t took_ns = runtime.now_ns() - before_ns;
        if (took_ns >= best_ns) continue;
        best_ns = took_ns;
        difference_ns = static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec) -
                        (before_ns + took_ns / 2);
    }
    return difference_ns;
}

// Returns the time of the current completion by CLOCK_REALTIME. All CQs share one measured difference between the
// clocks, so that times of different CQs can be compared.
uint64_t read_wallclock_ns(ibv_cq_ex* handle) {
    static WallClock wall_clock;
    Cq& cq = from(handle);
    const datapath::Runtime& runtime = *cq.runtime;
    return cq.wall_times.of(cq.current_ns, [&runtime](uint64_t runtime_ns) {
        return wall_clock.convert(runtime_ns, runtime.now_ns(), [&runtime] { return measure_wall_clock(runtime); });
    });
}

}  // namespace

int poll_cq(ibv_cq* handle, int count, ibv_wc* wc) {
    return poll(from(handle), count, wc, nullptr);
}

void set_poll_functions(ibv_cq_ex& cq) {
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
    cq.read_opcode = [](ibv_cq_ex* cq) { return from(cq).current.opcode; };
    cq.read_vendor_err = [](ibv_cq_ex* cq) { return from(cq).current.vendor_err; };
    cq.read_byte_len = [](ibv_cq_ex* cq) { return from(cq).current.byte_len; };
    cq.read_imm_data = [](ibv_cq_ex* cq) { return from(cq).current.imm_data; };
    cq.read_qp_num = [](ibv_cq_ex* cq) { return from(cq).current.qp_num; };
    cq.read_src_qp = [](ibv_cq_ex* cq) { return from(cq).current.src_qp; };
    cq.read_wc_flags = [](ibv_cq_ex* cq) { return from(cq).current.wc_flags; };
    cq.read_slid = [](ibv_cq_ex* cq) { return static_cast<uint32_t>(from(cq).current.slid); };
    cq.read_sl = [](ibv_cq_ex* cq) { return from(cq).current.sl; };
    cq.read_completion_ts = [](ibv_cq_ex* cq) { return from(cq).current_ns; };
    cq.read_completion_wallclock_ns = read_wallclock_ns;
    cq.read_dlid_path_bits = [](ibv_cq_ex* cq) { return from(cq).current.dlid_path_bits; };
    // Values of completions without a VLAN tag, a tag of flow steering and a matched tag, which rove does not have.
    cq.read_cvlan = [](ibv_cq_ex*) { return uint16_t{0}; };
    cq.read_flow_tag = [](ibv_cq_ex*) { return uint32_t{0}; };
    cq.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

}  // namespace rove::verbs
