// SPDX-License-Identifier: Apache-2.0
// The care for a channel's rails: silence, probes, reconnecting. See notes 3 and 4 in rdma_channel.h.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tent/engine/clock.h"
#include "tent/observability/log.h"
#include "tent/transports/rdma/rdma_backend.h"

namespace rove::tent {

namespace {

constexpr uint64_t kSilentNs = 25'000'000;      // half of the 50 ms in which throughput must be back (T-19)
constexpr uint64_t kSuspiciousNs = 8'000'000;   // after this silence the peer is probed over its other rails
constexpr uint64_t kAllSilentNs = 150'000'000;  // the peer's process may be off its core for some time slices
constexpr uint64_t kTimesExpected = 4;  // added to the limits, in multiples of the oldest slice's predicted time
// Time between the starts of two attempts to connect. It doubles from kRetryNs to kMaxRetryNs. In mp mode an attempt
// over a dead rail lasts a second, in which it asks the peer's device all the time. The next attempt follows at once,
// since the rail may return in between (T-19).
constexpr uint64_t kRetryNs = 5'000'000, kMaxRetryNs = 640'000'000;
constexpr uint64_t kComeUpNs = 100'000'000;         // time that slices wait for a rail that was up
constexpr uint64_t kFirstComeUpNs = 3'000'000'000;  // time that slices wait for the first rail to come up
constexpr uint64_t kSpareNs = 50'000'000;           // a port without a rail for this long tries the peer's other ports
constexpr size_t kSparesAtOnce = 2;                 // spare rails that are being connected
// Replaces kSpareNs for a port that never had a rail, or while other ports have one.
constexpr uint64_t kLongSpareNs = 1'000'000'000;
constexpr uint64_t kCallNs = 2'000'000'000;  // deadline of a call of the control plane
constexpr uint64_t kProbeBytes = 8;

}  // namespace

bool RdmaChannel::may_come_up(uint64_t device_mask, uint64_t now_ns) const {
    if (peer_.gone.load(std::memory_order_relaxed)) return false;
    for (const auto& rail : rails_) {
        if ((device_mask & uint64_t{1} << rail->local) == 0) continue;
        if (rail->state == Rail::State::kUp || rail->state == Rail::State::kDraining) return true;
        if (rail->is_spare) continue;
        if (now_ns - rail->down_ns < (rail->ever_up ? kComeUpNs : kFirstComeUpNs)) return true;
    }
    return false;
}

bool RdmaChannel::may_return() const {
    if (peer_.gone.load(std::memory_order_relaxed) || usable_devices() != 0) return false;
    return std::any_of(rails_.begin(), rails_.end(), [](const auto& rail) { return rail->ever_up; });
}

void RdmaChannel::note_answer(Rail& rail, uint64_t now_ns) {
    if (now_ns - answered_ns_ > kSilentNs) excuse_others(now_ns);
    answered_ns_ = now_ns;
    rail.wait_from(now_ns);
}

// Gives the other rails time from now on. The peer was silent on all rails, like a process that has lost its core, and
// it answers on one of them first. Each rail is excused only once, since the peer may lose its core repeatedly while
// one of the rails is dead.
void RdmaChannel::excuse_others(uint64_t now_ns) {
    for (const auto& rail : rails_) {
        if (rail->is_excused || now_ns - rail->answered_ns <= kSilentNs) continue;
        rail->wait_from(now_ns);
        rail->is_excused = true;
    }
}

bool RdmaChannel::is_silent(const Rail& rail, uint64_t now_ns) const {
    const uint64_t silence = now_ns - rail.answered_ns;
    if (silence < kSilentNs) return false;
    uint64_t patience = 0;
    if (rail.oldest != nullptr) {
        const uint64_t bandwidth = std::max<uint64_t>(backend_.bandwidth(rail.local), 1'000'000);
        patience = kTimesExpected * (rail.oldest->length * 1000 / (bandwidth / 1'000'000));
    }
    const bool others_answer = answered_ns_ > rail.answered_ns + kSuspiciousNs && now_ns - answered_ns_ < kSilentNs;
    return silence > (others_answer ? kSilentNs : kAllSilentNs) + patience;
}

uint64_t RdmaChannel::cut_off(uint64_t now_ns) const {
    const auto is_up = [](const auto& rail) {
        return rail->state == Rail::State::kUp || rail->state == Rail::State::kDraining;
    };
    const auto pairs = std::span(rails_).first(pairs_);
    // While other rails carry the traffic, there is no hurry.
    const uint64_t patience_ns = std::any_of(pairs.begin(), pairs.end(), is_up) ? kLongSpareNs : kSpareNs;
    uint64_t mask = 0, connected = 0;
    for (const auto& rail : pairs) {
        if (is_up(rail) || now_ns - rail->down_ns < (rail->ever_up ? patience_ns : kLongSpareNs))
            connected |= uint64_t{1} << rail->local;
        else
            mask |= uint64_t{1} << rail->local;
    }
    return mask & ~connected;
}

// Returns true if the slice does not complete although its rail is alive, and no other slice of its request completes
// either.
bool RdmaChannel::is_lost(const Slice& slice, uint64_t now_ns) const {
    const uint64_t since_ns = std::max(slice.task->progress_ns, rdma(slice).mark.post_ns);
    return now_ns > since_ns + shard_.max_timeout_ns() + kAllSilentNs;
}

void RdmaChannel::ask_others(Rail& rail, uint64_t now_ns) {
    if (now_ns - std::max(rail.asked_ns, rail.answered_ns) < kSuspiciousNs) return;
    rail.asked_ns = now_ns;
    for (const auto& other : rails_)
        if (other.get() != &rail && other->state == Rail::State::kUp && other->is_idle()) send_probe(*other, now_ns);
}

void RdmaChannel::look_after(uint64_t now_ns, uint64_t unpolled_ns) {
    const uint64_t cut_off = closing_ || peer_.gone.load(std::memory_order_relaxed) ? 0 : this->cut_off(now_ns);
    const auto rails = cut_off != 0 ? std::span<const std::unique_ptr<Rail>>(rails_) : in_use();
    spares_open_ = false;
    size_t connecting = 0;  // counts spare rails, which must not delay connecting the usual ones
    for (const auto& owned : rails) {
        Rail& rail = *owned;
        rail.answered_ns += std::min(unpolled_ns, now_ns - rail.answered_ns);
        if (rail.is_spare) {
            const bool is_wanted = (cut_off >> rail.local & 1) != 0;
            if (!is_wanted && rail.connection != nullptr && rail.oldest == nullptr) close(rail, now_ns);
            if (is_wanted || rail.state != Rail::State::kClosed) spares_open_ = true;
            if (rail.state == Rail::State::kConnecting) ++connecting;
            if (rail.state == Rail::State::kClosed && (!is_wanted || connecting >= kSparesAtOnce)) continue;
        }
        switch (rail.state) {
            case Rail::State::kUp:
            case Rail::State::kDraining:
                if (rail.is_idle()) break;
                ask_others(rail, now_ns);
                if (is_silent(rail, now_ns)) {
                    ++rail.counters.silences;
                } else if (rail.oldest != nullptr && is_lost(*rail.oldest, now_ns)) {
                    ++rail.counters.errors;
                    shard_.time_out(*rail.oldest->task, Reason::kNoProgress);
                } else {
                    break;
                }
                rail.put_to_rest(now_ns);
                give_up(rail, now_ns);
                break;
            case Rail::State::kProbing:
                if (now_ns >= rail.retry_ns) send_probe(rail, now_ns);
                break;
            case Rail::State::kClosed:
                if (closing_ || peer_.gone.load(std::memory_order_relaxed) || now_ns < rail.retry_ns) break;
                connect(rail, {});
                if (rail.is_spare) ++connecting;
                break;
            case Rail::State::kConnecting:
                break;
        }
    }
    if (!peer_.gone.load(std::memory_order_relaxed))
        available_.store(may_come_up(~uint64_t{0}, now_ns), std::memory_order_relaxed);
}

uint64_t RdmaChannel::next_deadline(uint64_t now_ns) const {
    constexpr uint64_t kSoonNs = 2'000'000;
    uint64_t deadline_ns = kNever;
    for (const auto& rail : in_use()) {
        if (!rail->is_idle() || rail->state == Rail::State::kProbing) return now_ns + kSoonNs;
        if (rail->state == Rail::State::kClosed && !closing_ && !peer_.gone.load(std::memory_order_relaxed))
            deadline_ns = std::min(deadline_ns, std::max(now_ns + kSoonNs, rail->retry_ns));
    }
    return deadline_ns;
}

void RdmaChannel::send_probe(Rail& rail, uint64_t now_ns) {
    const VerbsDevice& device = *backend_.devices()[rail.local];
    ibv_sge sge{.addr = device.probe_address() + 64, .length = kProbeBytes, .lkey = device.probe_region()->lkey};
    ibv_send_wr wr{};
    wr.wr_id = RdmaBackend::probe_wr(rail);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = rail.connection->remote().probe_address;
    wr.wr.rdma.rkey = rail.connection->remote().probe_rkey;
    ibv_send_wr* bad = nullptr;
    if (rail.state == Rail::State::kProbing) rail.retry_ns = now_ns + rail.next_pause_ns();
    if (rail.is_idle()) rail.wait_from(now_ns);
    if (ibv_post_send(rail.connection->qp(Priority::kHigh), &wr, &bad) != 0) return;
    ++rail.counters.probes;
    ++rail.probes_posted;
    rail.credits->post();
}

void RdmaChannel::probe_completed(Rail& rail, ibv_wc_status status, uint64_t now_ns) {
    if (rail.state == Rail::State::kClosed || rail.state == Rail::State::kConnecting) return;
    --rail.probes_posted;
    rail.credits->complete();
    if (rail.state == Rail::State::kDraining) {
        finish_draining(rail, now_ns);
        return;
    }
    if (status != IBV_WC_SUCCESS) {
        ++rail.counters.errors;
        if (rail.count_error(now_ns)) rail.put_to_rest(now_ns);
        give_up(rail, now_ns);
        return;
    }
    note_answer(rail, now_ns);
    if (rail.state == Rail::State::kUp) return;
    rail.state = Rail::State::kUp;
    if (rail.ever_up)
        log(LogLevel::kInfo, "segment '%s': rail %s is up again", peer_.name().c_str(), rail.name.c_str());
    rail.ever_up = true;
    rail.refusals = 0;
    backend_.selector().set_up(rail.local, true);
    available_.store(true, std::memory_order_relaxed);
}

void RdmaChannel::link_changed(uint8_t local, bool up, uint64_t now_ns) {
    for (const auto& rail : rails_) {
        if (rail->local != local) continue;
        if (!up && (rail->state == Rail::State::kUp || rail->state == Rail::State::kDraining)) {
            rail->put_to_rest(now_ns);
            give_up(*rail, now_ns);
        }
        if (up && rail->state == Rail::State::kClosed) rail->retry_ns = now_ns;
    }
}

void RdmaChannel::drop_probes(Rail& rail) {
    rail.credits->leave(rail.probes_posted);
    for (; rail.probes_posted != 0; --rail.probes_posted) rail.credits->complete();
}

void RdmaChannel::give_up(Rail& rail, uint64_t now_ns) {
    if (rail.state == Rail::State::kUp || rail.state == Rail::State::kDraining) {
        rail.down_ns = now_ns;
        static LogLimit limit;
        if (!closing_)
            log(limit, LogLevel::kWarning, "segment '%s': rail %s is down", peer_.name().c_str(), rail.name.c_str());
    }
    rail.connection.reset();  // from here on nothing is sent or received
    drop_probes(rail);
    std::vector<Task*> fenced;
    while (Slice* slice = rail.oldest) {
        rail.remove(*slice);
        rail.credits->leave(1);
        backend_.selector().release(rdma(*slice).device, slice->length);
        ++rail.counters.resprayed;
        if (slice->task->is_write) {
            shard_.add_fence(*slice->task);
            fenced.push_back(slice->task);
        }
        shard_.retry(*slice, now_ns);
    }
    take_back_parked(rail, now_ns);
    connect(rail, std::move(fenced));
}

void RdmaChannel::close(Rail& rail, uint64_t now_ns) {
    rail.state = Rail::State::kClosed;
    rail.connection.reset();
    drop_probes(rail);
    rail.down_ns = now_ns;
    take_back_parked(rail, now_ns);
    ++jobs_;
    shard_.jobs().add(peer_.name(), [this, name = ConnectionName{peer_.owner(), rail.name, rail.number}] {
        peer_.control().call(MessageType::kClose, name.to_json(), kCallNs);
        shard_.with_lock([&] { --jobs_; });
    });
}

void RdmaChannel::take_back_parked(Rail& rail, uint64_t now_ns) {
    for (uint8_t i = 0; i < kPriorities; ++i) {
        Slice* slice = rail.parked[i];
        if (slice == nullptr) continue;
        rail.parked[i] = nullptr;
        --parked_[i];
        backend_.selector().release(rdma(*slice).device, slice->length);
        backend_.put_back(*slice->task, *slice, now_ns);
    }
}

void RdmaChannel::connect(Rail& rail, std::vector<Task*> fenced) {
    rail.state = Rail::State::kConnecting;
    const ConnectionName before{peer_.owner(), rail.name, rail.number};
    rail.number = shard_.next_number();
    rail.retry_ns = monotonic_ns() + std::min(kRetryNs << std::min(rail.refusals, 7u), kMaxRetryNs);
    ++rail.counters.connects;
    ++jobs_;
    const ConnectionName name{peer_.owner(), rail.name, rail.number};
    const std::string remote = peer_.segment()->devices[rail.remote].name;
    shard_.jobs().add(peer_.name(), [this, &rail, name, before, remote, fenced = std::move(fenced)] {
        if (before.number != 0) {
            const auto closed = peer_.control().call(MessageType::kClose, before.to_json(), kCallNs);
            bool sure = false;
            if (closed) get(*closed, "ok", &sure);
            if (!fenced.empty())
                shard_.with_lock([&] {
                    for (Task* task : fenced) shard_.drop_fence(*task, sure);
                });
        }
        std::unique_ptr<Connection> connection;
        if (!closing_ && !peer_.gone.load())
            connection = Connection::create(*backend_.devices()[rail.local], shard_.config().rdma.endpoint,
                                            shard_.config().rdma.num_lanes, shard_.number());
        if (connection != nullptr) {
            Json request = name.to_json();
            request["device"] = remote;
            request["endpoint"] = to_json(connection->local());
            const auto answer = peer_.control().call(MessageType::kConnect, request, kFirstComeUpNs);
            const auto endpoint = answer && answer->contains("endpoint") && (*answer)["endpoint"].is_object()
                                      ? parse_endpoint((*answer)["endpoint"])
                                      : std::nullopt;
            if (!endpoint || connection->connect(*endpoint, true) != 0) connection.reset();
            // The next attempt would close the peer's end, but a spare rail may have no next attempt.
            if (connection == nullptr && rail.is_spare)
                peer_.control().call(MessageType::kClose, name.to_json(), kCallNs);
        }
        shard_.with_lock([&] { connected(rail, std::move(connection)); });
    });
}

void RdmaChannel::connected(Rail& rail, std::unique_ptr<Connection> connection) {
    const uint64_t now_ns = monotonic_ns();
    --jobs_;
    rail.connection = std::move(connection);
    if (rail.connection != nullptr) {
        rail.state = Rail::State::kProbing;
        rail.retry_ns = std::max(now_ns, rail.rest_ns);
        return;
    }
    rail.state = Rail::State::kClosed;
    rail.retry_ns = std::max(rail.retry_ns, now_ns + kRetryNs);
    ++rail.refusals;
}

}  // namespace rove::tent
