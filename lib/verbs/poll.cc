// SPDX-License-Identifier: Apache-2.0
// Polling a CQ: ibv_poll_cq and the extended ibv_start_poll family. With shared progress, polling also drives the
// datapath.
#include <ctime>
#include <mutex>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

// The datapath must run even if a program always finds completions. Polls return at most about 64 entries, and driving
// it at every 8th costs nothing.
constexpr uint32_t kBusyPollsPerProgress = 8;
// The number of successful polls after which an empty one returns at once. A program that polls one completion at a
// time usually continues until a poll is empty, and then works on the results: rsockets copies the data and gives its
// peer new room. With a NIC that happens soon. Here each poll of an empty CQ may receive more, so the program would
// continue until the peer has no room left, and the peer would wait while it works. Measured with rstream, 1 MiB: 48
// instead of 39 Gb/s with cores 500 ns apart, and 68 instead of 60 Gb/s with 110 ns. A program that polls for many
// completions sees by their number that there are no more, and posts between its polls.
constexpr uint32_t kPollsToWorkOn = 2;

int take(Cq& cq, int count, ibv_wc* wc, uint64_t* times_ns) {
    // A thread that drives checks for an empty queue without the lock, whose atomic instruction would wait for the
    // thread's stores. A thread that does not drive gains nothing: it has no such stores, and shares the queue's tail
    // with the worker anyway.
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

// Polls one completion at a time: completions that the program does not read stay for its next poll.
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

// Returns CLOCK_REALTIME minus the runtime's clock, modulo 2^64. Of three measurements it uses the fastest, because a
// preemption between the readings makes a measurement wrong.
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
    // Values for completions without a VLAN tag, a flow tag and a matched tag. rove has no such tags.
    cq.read_cvlan = [](ibv_cq_ex*) { return uint16_t{0}; };
    cq.read_flow_tag = [](ibv_cq_ex*) { return uint32_t{0}; };
    cq.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

}  // namespace rove::verbs
