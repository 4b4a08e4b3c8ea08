// SPDX-License-Identifier: Apache-2.0
// The rails to one peer, and the slices that wait for them. Units: bytes, nanoseconds of CLOCK_MONOTONIC.
//
// 1. Time of the choice. A slice is given to a device when it can be posted, not when it is submitted. Until then it
//    waits in the priority queues, so HIGH overtakes LOW, and a rail that slows down or dies has few slices that must
//    be moved. The rail's window (window.h) decides whether it has room. It counts the bytes in flight of the slice's
//    priority and of higher ones.
// 2. Choice of the device. A request of many slices is allotted, when its first slice is placed, to all devices that
//    are up, in proportion to 1 / score, as documented (batch_allocation_policy). Any of its slices counts for any
//    share. A device with room uses its own share first. If no device with a share has room, a slice goes to another
//    device if the selector chooses that one now: in this way the share of a device that has fallen behind moves to
//    others. For a single slice, and for each slice with `per_slice`, the selector chooses among all devices that are
//    up, with or without room. If the chosen one has no room, one slice of each priority may wait for it there, and
//    further slices use the best device with room. Round-robin waits for the device whose turn it is, as documented: it
//    does not adapt. The devices that a priority may use now (T-9) are determined whenever a slice is posted, out of
//    all devices that are up. They depend on neither room nor shares.
// 3. Silence. A rail on which nothing came back for too long, although something is posted, is closed (connection.h),
//    and its slices are sprayed over the others. The limit is kSilentNs if the peer answered over another rail
//    meanwhile, for which it is probed there. Otherwise it is kAllSilentNs, because a process that has lost its core is
//    silent on all rails. In both cases a multiple of the predicted time of the oldest slice is added. Time in which
//    this process did not poll does not count. A silence of all rails that ends with an answer on one of them does not
//    count either.
// 4. Reconnecting. A rail that was closed is connected again over TCP at once, and then probed (rail.h). A refused
//    access costs less: its QP is no longer usable, but the other QPs of the rail first finish their requests. If no
//    rail is up for long, the waiting slices move to another transport. If there is no other, they wait while the
//    peer's process exists, up to max_timeout_ns: a process may be stopped for a while, or have no core.
// 5. Spares. Ports of equal names, or else of equal places, make rails. If all rails of a local port are down, it tries
//    the peer's other ports. Any two ports that reach each other are used until the usual pair is back.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "tent/engine/backend.h"
#include "tent/engine/shard.h"
#include "tent/transports/rdma/rail.h"

namespace rove::tent {

class RdmaBackend;

class RdmaChannel : public Channel {
  public:
    RdmaChannel(RdmaBackend& backend, Shard& shard, Peer& peer, uint64_t now_ns);
    ~RdmaChannel() override;

    bool available(const BufferDesc&) const override { return available_.load(std::memory_order_relaxed); }
    void abandon(uint64_t now_ns) override;
    void revive(uint64_t now_ns) override;
    void shut_down() override { closing_ = true; }
    bool idle() const override;

    uint8_t levels() const override;
    Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) override;
    bool carry_at_once(Task& task, uint64_t now_ns) override;
    void leave(Task& task) override;
    Reason why_nothing_moves() const override;
    // Handles silence, probes and connections. `unpolled_ns` is the time in which no thread polled.
    void look_after(uint64_t now_ns, uint64_t unpolled_ns);
    uint64_t next_deadline(uint64_t now_ns) const;

    void completed(Slice& slice, uint64_t now_ns);
    void failed(Slice& slice, ibv_wc_status status, uint64_t now_ns);
    void probe_completed(Rail& rail, ibv_wc_status status, uint64_t now_ns);
    void link_changed(uint8_t local, bool up, uint64_t now_ns);

    const std::vector<std::unique_ptr<Rail>>& rails() const { return rails_; }
    Peer& peer() { return peer_; }

  private:
    enum class Fate : uint8_t { kPosted, kParked, kWaits, kNowhere };
    Fate place(Task& task, Slice& slice, uint64_t now_ns);
    uint32_t dispatch_parked(uint8_t priority, uint64_t now_ns);
    // Lets the selector choose and charge one of the devices. Returns false if it cannot.
    bool choose(Slice& slice, uint64_t devices, uint64_t among, uint64_t now_ns);
    // Writes the peer's ranks of the memory to `by_device`, indexed by local device. Returns that, or null if all
    // devices are near to the memory.
    const uint8_t* ranks_there(const BufferDesc& remote, uint8_t* by_device) const;
    void allot(Task& task, uint64_t devices, uint64_t now_ns);
    // Counts the slice against the share of its `device`, and charges its true length.
    void take_share(Task& task, const Slice& slice);
    // Takes one slice from the share with the most bytes left, and returns that share's device. There must be one.
    uint8_t give_back_share(Task& task);
    void drop_shares(Task& task, uint64_t devices);
    void take_back_parked(Rail& rail, uint64_t now_ns);
    uint64_t devices_with_room(uint8_t priority) const;
    bool has_room(const Rail& rail, uint8_t priority) const;
    bool post(Rail& rail, Slice& slice, uint64_t now_ns);
    Rail* rail_of(uint8_t device) const;
    uint64_t usable_devices() const;
    // Returns true if slices for one of these devices should wait for a rail, because one is up or may soon be.
    bool may_come_up(uint64_t device_mask, uint64_t now_ns) const;
    // Returns true if no rail is up, but one was, and the peer is there. Slices that no other transport can carry then
    // wait for it, up to max_timeout_ns.
    bool may_return() const;
    void note_answer(Rail& rail, uint64_t now_ns);
    void excuse_others(uint64_t now_ns);
    void finish_draining(Rail& rail, uint64_t now_ns);
    bool is_silent(const Rail& rail, uint64_t now_ns) const;
    bool is_lost(const Slice& slice, uint64_t now_ns) const;
    void ask_others(Rail& rail, uint64_t now_ns);
    void send_probe(Rail& rail, uint64_t now_ns);
    // Drops the probes of a rail whose connection is closed.
    static void drop_probes(Rail& rail);
    // Closes the rail's connection and moves its slices to other rails. The rail is used again after a probe has
    // completed.
    void give_up(Rail& rail, uint64_t now_ns);
    // Closes a spare rail that is idle.
    void close(Rail& rail, uint64_t now_ns);
    // Returns the local devices, as bits (1 << device), that have had no rail up for some time.
    uint64_t cut_off(uint64_t now_ns) const;
    // Returns the rails in use. They include the spare rails only while any of these is wanted or open.
    std::span<const std::unique_ptr<Rail>> in_use() const {
        return std::span(rails_).first(spares_open_ ? rails_.size() : pairs_);
    }
    void connect(Rail& rail, std::vector<Task*> fenced);
    void connected(Rail& rail, std::unique_ptr<Connection> connection);

    RdmaBackend& backend_;
    Shard& shard_;
    Peer& peer_;
    std::vector<std::unique_ptr<Rail>> rails_;  // `pairs_` usual rails, then the spare ones
    size_t pairs_ = 0;
    bool spares_open_ = false;
    std::array<uint32_t, kPriorities> parked_{};  // slices parked at a rail, by priority
    const uint64_t opened_ns_;
    uint64_t answered_ns_ = 0;  // last answer on any rail
    std::atomic<bool> available_{true};
    std::atomic<bool> closing_{false};
    uint32_t jobs_ = 0;  // jobs that refer to this channel
};

}  // namespace rove::tent
