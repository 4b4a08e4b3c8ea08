// SPDX-License-Identifier: Apache-2.0
// A rail: a local device and a device of the peer. The holder of the drive lock owns it. Units: bytes, nanoseconds.
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

// The data that a rail keeps for a slice.
struct RdmaSlice {
    PostMark mark;
    // Neighbours in the list of slices that the rail carries.
    Slice* before;
    Slice* after;
    Rail* rail;    // rail that carries the slice; null: no rail carries it
    uint32_t tag;  // number of the current attempt, so that a completion of an earlier one is not mistaken for it
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
    uint64_t silences = 0;  // times that the connection was closed because of silence
    uint64_t pauses = 0;    // times that the rail was put to rest
    uint64_t probes = 0, connects = 0;
    uint64_t resprayed = 0;  // slices that were moved to other rails
};

struct Rail {
    // A rail is kUp until an error, silence or a broken link. Then its connection is closed, and a new one is made at
    // once and probed with READs of 8 bytes. The first probe that completes takes the rail into use. A single error
    // costs no more than that. rail_error_threshold errors without a success in between, each within
    // rail_error_window_secs of the one before, put the rail to rest, and silence and a broken link do so at once
    // (T-19). The first probe then waits for rail_cooldown_secs, and the next ones wait twice and four times as long.
    enum class State : uint8_t {
        kClosed,      // connects again at `retry_ns`
        kConnecting,  // a job connects it
        kProbing,     // connected; probes at `retry_ns`
        kUp,
        kDraining,  // one of its QPs accepts no more requests; it reconnects when the others have finished
    };
    static constexpr uint32_t kMaxDoublings = 2;  // doublings of the cooldown

    explicit Rail(const RailConfig& keys, RdmaChannel* of = nullptr) : channel(of), config(keys) {}

    RdmaChannel* channel;
    uint32_t id = 0;  // index in the backend's list
    uint8_t local = 0, remote = 0;
    std::string name;  // "rove0-rove1": local and remote device
    // True for a pair of ports that do not belong together. It is connected only while the local port has no other rail
    // to the peer.
    bool is_spare = false;
    State state = State::kClosed;
    bool ever_up = false;
    const RailConfig& config;
    uint32_t errors = 0;     // errors since the last success
    uint32_t doublings = 0;  // doublings of the cooldown since the last success
    uint64_t last_error_ns = 0;
    uint64_t rest_ns = 0;  // end of the rest, before which it is not probed
    uint64_t number = 0;   // number of `connection` in its ConnectionName
    std::unique_ptr<Connection> connection;
    uint64_t retry_ns = 0;
    uint32_t refusals = 0;  // attempts to connect that failed in a row
    uint64_t down_ns = 0;   // when it went down

    // The posted slices, in a list with the oldest first.
    Slice* oldest = nullptr;
    Slice* newest = nullptr;
    std::array<uint64_t, kPriorities> posted_bytes{};  // bytes of slices, by priority
    std::array<uint32_t, kPriorities> posted{};        // number of slices, by priority
    Window window;
    WindowBesideHigher beside;
    // The slice of each priority that was chosen for this rail when it had no room. It is posted next.
    std::array<Slice*, kPriorities> parked{};
    CqCredits* credits = nullptr;   // credits of its device, owned by RdmaBackend
    RecentBytes* recent = nullptr;  // bytes posted below HIGH on its device, for all peers; owned by RdmaBackend
    // Beginning of its silence, if something is posted: the last completion, the first post, or the peer's return from
    // silence on all rails.
    uint64_t answered_ns = 0;
    bool is_excused = false;  // true: the silence before `answered_ns` was excused
    // When the peer was last probed over other rails because of a suspicious silence of this one.
    uint64_t asked_ns = 0;
    uint32_t probes_posted = 0;
    RailCounters counters;

    // Returns the bytes in flight of this priority and of higher ones, so that HIGH waits only for HIGH.
    uint64_t posted_up_to(Priority priority) const {
        uint64_t bytes = 0;
        for (uint8_t i = 0; i <= index(priority); ++i) bytes += posted_bytes[i];
        return bytes;
    }
    // Returns the bytes in flight of the priorities after `first`, up to and including `priority`.
    uint64_t posted_behind(uint8_t first, Priority priority) const {
        uint64_t bytes = 0;
        for (size_t i = first + 1u; i <= index(priority); ++i) bytes += posted_bytes[i];
        return bytes;
    }
    // Returns true if the rail must rest.
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
