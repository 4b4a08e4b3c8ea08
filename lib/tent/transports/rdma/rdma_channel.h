// SPDX-License-Identifier: Apache-2.0
// The rails to one peer, and the slices that wait for them. Units: bytes, nanoseconds of CLOCK_MONOTONIC.
//
// 1. A slice is given to a device when it can be posted, not when it is submitted: what waits, waits in the priority
//    queues, so HIGH overtakes LOW, and a rail that slows down or dies has little that must be moved. What has room,
//    the rail's window says (window.h), which counts what is under way of the slice's priority and of higher ones.
// 2. Which device. A request of many slices is allotted to all devices that are up when it is first looked at, in
//    proportion to 1 / score, as documented (batch_allocation_policy); any of its slices counts for any share. A device
//    that has room takes from its own share first. Without one, it takes from others' if it is the selector's choice
//    now: what was allotted to a device that has fallen behind is placed anew so. A single slice, and each of
//    `per_slice`, is the selector's choice among all that are up, with room or without: if it has none, one slice of
//    each priority may wait for it there, and others take the best that has room. Round robin waits for the device
//    whose turn it is, as documented: it does not adapt.
//    Which devices a priority may use now (T-9) is asked whenever a slice is posted, of all devices that are up:
//    neither rooms nor shares change it.
// 3. Silence. A rail from which nothing came back for long, though something is posted, is given up: its connection is
//    closed (connection.h), its slices are sprayed over the others. How long: kSilentNs, if the peer answered over
//    another rail meanwhile, which it is asked for; else kAllSilentNs, because a process that has lost its core to
//    others is silent on all rails. In both cases plus a few times what the oldest slice should take. When we did not
//    listen ourselves, that time does not count, nor does a silence of all rails that an answer on one of them ends.
// 4. A rail that was given up is connected again over TCP at once, and then probed (rail.h). A refused access costs
//    less: its QP is of no more use, but the rail's others first finish what they have. When none is up for long, what
//    waits goes to another transport. If there is none it waits on, while the peer's process is there, up to
//    max_timeout_ns: a process may be stopped for a while, or have no core.
// 5. Ports of equal names, or places, make rails. When those of one of our ports are all down, it tries the peer's
//    other ports: any two that reach each other will do, until the usual pair is back.
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
    // Silence, probes, connections. `unpolled_ns`: how long nobody has polled.
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
    // Has the selector choose and charge one of the devices. False: it has none.
    bool choose(Slice& slice, uint64_t devices, uint64_t among, uint64_t now_ns);
    // The peer's ranks of the memory by our devices, which it writes to `by_device`; null: near to all.
    const uint8_t* ranks_there(const BufferDesc& remote, uint8_t* by_device) const;
    void allot(Task& task, uint64_t devices, uint64_t now_ns);
    // The slice is one of the share of its `device`, and is charged to that.
    void take_share(Task& task, const Slice& slice);
    // One slice less is to be carried by the device that has the most left, which is returned. There is one.
    uint8_t give_back_share(Task& task);
    void drop_shares(Task& task, uint64_t devices);
    void take_back_parked(Rail& rail, uint64_t now_ns);
    uint64_t devices_with_room(uint8_t priority) const;
    bool has_room(const Rail& rail, uint8_t priority) const;
    bool post(Rail& rail, Slice& slice, uint64_t now_ns);
    Rail* rail_of(uint8_t device) const;
    uint64_t usable_devices() const;
    // Whether slices for one of these devices are to wait for a rail, as one is up or may soon be.
    bool may_come_up(uint64_t device_mask, uint64_t now_ns) const;
    // Whether none is up, but one was, and the peer is there: what nothing else can carry waits for that, up to
    // max_timeout_ns.
    bool may_return() const;
    void note_answer(Rail& rail, uint64_t now_ns);
    void excuse_others(uint64_t now_ns);
    void finish_draining(Rail& rail, uint64_t now_ns);
    bool is_silent(const Rail& rail, uint64_t now_ns) const;
    bool is_lost(const Slice& slice, uint64_t now_ns) const;
    void ask_others(Rail& rail, uint64_t now_ns);
    void send_probe(Rail& rail, uint64_t now_ns);
    // Their connection is closed.
    static void drop_probes(Rail& rail);
    // Closes the rail's connection; its slices go elsewhere. It is used again when a probe came back.
    void give_up(Rail& rail, uint64_t now_ns);
    // A spare one that is idle.
    void close(Rail& rail, uint64_t now_ns);
    // Of our devices, those none of whose rails is up, for some time: bits (1 << device).
    uint64_t cut_off(uint64_t now_ns) const;
    // Spare rails only while there are any.
    std::span<const std::unique_ptr<Rail>> in_use() const {
        return std::span(rails_).first(spares_open_ ? rails_.size() : pairs_);
    }
    void connect(Rail& rail, std::vector<Task*> fenced);
    void connected(Rail& rail, std::unique_ptr<Connection> connection);

    RdmaBackend& backend_;
    Shard& shard_;
    Peer& peer_;
    std::vector<std::unique_ptr<Rail>> rails_;  // spare ones behind `pairs_` others
    size_t pairs_ = 0;
    bool spares_open_ = false;
    std::array<uint32_t, kPriorities> parked_{};  // slices that wait at a rail
    const uint64_t opened_ns_;
    uint64_t answered_ns_ = 0;  // when an answer came, on any rail
    std::atomic<bool> available_{true};
    std::atomic<bool> closing_{false};
    uint32_t jobs_ = 0;  // that know of us
};

}  // namespace rove::tent
