// SPDX-License-Identifier: Apache-2.0
// One way to a peer: a local device and a device of the peer. Belongs to the holder of the drive lock. Units: bytes,
// nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "tent/config/config.h"
#include "tent/engine/task.h"
#include "tent/qos/recent_bytes.h"
#include "tent/transports/rdma/connection.h"
#include "tent/transports/rdma/cq_credits.h"
#include "tent/transports/rdma/window.h"

namespace rove::tent {

class RdmaChannel;
struct Rail;

// What a rail remembers of a slice.
struct RdmaSlice {
    PostMark mark;
    // Neighbours among those that the rail carries.
    Slice* before;
    Slice* after;
    Rail* rail;    // that carries it; null: none does
    uint32_t tag;  // of the current attempt: a completion of an earlier one is not taken for it
    uint8_t device;
};
inline RdmaSlice& rdma(Slice& slice) {
    static_assert(sizeof(RdmaSlice) <= sizeof(Slice::notes) && std::is_trivially_copyable_v<RdmaSlice>);
    return *std::launder(reinterpret_cast<RdmaSlice*>(slice.notes.data()));
}
inline const RdmaSlice& rdma(const Slice& slice) {
    return rdma(const_cast<Slice&>(slice));
}

struct RailCounters {
    uint64_t read_bytes = 0, write_bytes = 0, slices = 0;
    uint64_t errors = 0;    // completions with an error
    uint64_t silences = 0;  // times that it was given up because nothing came back
    uint64_t pauses = 0;    // times that it was put to rest
    uint64_t probes = 0, connects = 0;
    uint64_t resprayed = 0;  // slices that were taken from it
};

struct Rail {
    // kUp until an error, silence or a broken link: then its connection is closed, another one is made at once, and
    // probed with READs of 8 bytes, the first of which that comes back takes the rail into use. An error alone costs no
    // more than that. Errors without a success in between, rail_error_threshold of them, each within
    // rail_error_window_secs of the one before, put the rail to rest, as silence and a broken link do at once (T-19):
    // then the first probe waits for rail_cooldown_secs. Between probes it is twice and four times that.
    enum class State : uint8_t {
        kClosed,      // `retry_ns` says when to connect again
        kConnecting,  // a job is at it
        kProbing,     // connected; `retry_ns` says when to probe
        kUp,
        kDraining,  // one of its QPs takes nothing any more; when the others are through it is connected anew
    };
    static constexpr uint32_t kMaxDoublings = 2;  // of the cooldown

    explicit Rail(const RailConfig& keys, RdmaChannel* of = nullptr) : channel(of), config(keys) {}

    RdmaChannel* channel;
    uint32_t id = 0;  // in the backend's list
    uint8_t local = 0, remote = 0;
    std::string name;  // "rove0-rove1": local and remote device
    // Of ports that do not belong together: connected while the local one has no other way to the peer.
    bool is_spare = false;
    State state = State::kClosed;
    bool ever_up = false;
    const RailConfig& config;
    uint32_t errors = 0;     // without a success
    uint32_t doublings = 0;  // of the cooldown, since the last success
    uint64_t last_error_ns = 0;
    uint64_t rest_ns = 0;  // until then it is not probed
    uint64_t number = 0;   // of `connection`; ConnectionName
    std::unique_ptr<Connection> connection;
    uint64_t retry_ns = 0;
    uint32_t refusals = 0;  // attempts to connect that failed, one after the other
    uint64_t down_ns = 0;   // since when it is not up

    // Slices posted, oldest first.
    Slice* oldest = nullptr;
    Slice* newest = nullptr;
    std::array<uint64_t, kPriorities> posted_bytes{};  // by priority
    std::array<uint32_t, kPriorities> posted{};        // by priority, with probes
    Window window;
    WindowBesideHigher beside;
    // By priority: chosen for this rail when it had no room, and goes next.
    std::array<Slice*, kPriorities> parked{};
    CqCredits* credits = nullptr;   // of its device: RdmaBackend's
    RecentBytes* recent = nullptr;  // ... posted below HIGH, for all peers
    // Since when it is silent, if something is posted: the last completion, the first post, or when the peer answered
    // again.
    uint64_t answered_ns = 0;
    bool is_excused = false;  // what it was silent before `answered_ns` does not count
    uint64_t asked_ns = 0;    // when the peer was last asked over other rails, as this one was suspiciously silent
    uint32_t probes_posted = 0;
    RailCounters counters;

    // What is under way of this priority and of those that go first: only that has HIGH wait.
    uint64_t posted_up_to(Priority priority) const {
        uint64_t bytes = 0;
        for (uint8_t i = 0; i <= index(priority); ++i) bytes += posted_bytes[i];
        return bytes;
    }
    // The same without `first` and what goes before that.
    uint64_t posted_behind(uint8_t first, Priority priority) const {
        uint64_t bytes = 0;
        for (size_t i = first + 1u; i <= index(priority); ++i) bytes += posted_bytes[i];
        return bytes;
    }
    // Returns whether it is to rest.
    bool count_error(uint64_t now_ns) {
        if (errors > 0 && now_ns - last_error_ns > config.error_window_ns) errors = 0;
        last_error_ns = now_ns;
        return ++errors >= config.error_threshold;
    }
    uint64_t next_pause_ns() {
        const uint64_t pause_ns = config.cooldown_ns << doublings;
        doublings = std::min(doublings + 1, kMaxDoublings);
        return pause_ns;
    }
    void put_to_rest(uint64_t now_ns) {
        ++counters.pauses;
        rest_ns = now_ns + next_pause_ns();
    }
    void wait_from(uint64_t now_ns) {
        answered_ns = now_ns;
        is_excused = false;
    }
    void succeeded() { errors = doublings = 0; }

    bool is_idle() const { return oldest == nullptr && probes_posted == 0; }

    void append(Slice& slice) {
        RdmaSlice& notes = rdma(slice);
        notes.rail = this;
        notes.before = newest;
        notes.after = nullptr;
        (newest != nullptr ? rdma(*newest).after : oldest) = &slice;
        newest = &slice;
        const uint8_t priority = index(slice.task->priority);
        posted_bytes[priority] += slice.length;
        ++posted[priority];
        credits->post();
        if (priority != 0) recent->add(slice.task->priority, slice.length, notes.mark.post_ns);
    }

    void remove(Slice& slice) {
        RdmaSlice& notes = rdma(slice);
        (notes.before != nullptr ? rdma(*notes.before).after : oldest) = notes.after;
        (notes.after != nullptr ? rdma(*notes.after).before : newest) = notes.before;
        notes.rail = nullptr;
        const uint8_t priority = index(slice.task->priority);
        posted_bytes[priority] -= slice.length;
        --posted[priority];
        credits->complete();
        if (priority != 0) recent->remove(slice.task->priority, slice.length, notes.mark.post_ns);
    }
};

}  // namespace rove::tent
