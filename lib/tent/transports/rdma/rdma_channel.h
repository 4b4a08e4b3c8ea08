// SPDX-License-Identifier: Apache-2.0
// The rails to one peer, and the slices that wait for them. Units: bytes, nanoseconds of CLOCK_MONOTONIC.
//
// 1. A slice is given to a device when it can be posted, not when it is submitted: what waits, waits in the priority
//    queues, so HIGH overtakes LOW, and a rail that slows down or dies has little that must be moved. What has room,
//    the rail's window says (window.h), which counts what is under way of the slice's priority and of higher ones.
// 2. The device is the selector's choice among all that are up, with room or without. If it has none, one slice may
//    park there; others take, in smart mode, the best that has room. Round robin waits, as documented: it does not
//    adapt.
// 3. Silence. A rail from which nothing came back for long, though something is posted, is given up: its connection is
//    closed (connection.h), its slices are sprayed over the others. How long: kSilentNs, if the peer was heard over
//    another rail meanwhile, which it is asked for; else kAllSilentNs, because a process that has lost its core to
//    others is silent on all rails. In both cases plus a few times what the oldest slice should take. When we did not
//    listen ourselves, that time does not count.
// 4. A rail that was given up is connected again over TCP at once, and then probed with READs of 8 bytes: the first
//    that comes back takes it into use.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tent/backend.h"
#include "tent/core.h"
#include "tent/transports/rdma/rail.h"

namespace rove::tent {

class RdmaBackend;

class RdmaChannel : public Channel {
  public:
    RdmaChannel(RdmaBackend& backend, Core& core, Peer& peer, uint64_t now_ns);
    ~RdmaChannel() override;

    bool available(const BufferDesc&) const override { return available_.load(std::memory_order_relaxed); }
    void abandon(uint64_t now_ns) override;
    void revive(uint64_t now_ns) override;
    void shut_down() override { closing_ = true; }
    bool idle() const override;

    // Whether slices wait, here or in the queues.
    bool wants() const;
    // Posts what has room, of priorities in `allowed`. Returns whether anything was.
    bool dispatch(uint8_t allowed, uint64_t now_ns);
    // Silence, probes, connections. `deaf_ns`: how long nobody has polled.
    void look_after(uint64_t now_ns, uint64_t deaf_ns);
    uint64_t next_deadline(uint64_t now_ns) const;

    void completed(Slice& slice, uint64_t now_ns);
    void failed(Slice& slice, ibv_wc_status status, uint64_t now_ns);
    void probe_completed(Rail& rail, ibv_wc_status status, uint64_t now_ns);
    void link_changed(uint8_t local, bool up, uint64_t now_ns);

    const std::vector<std::unique_ptr<Rail>>& rails() const { return rails_; }
    Peer& peer() { return peer_; }

  private:
    Slice* next(uint8_t allowed, uint64_t now_ns);
    enum class Fate : uint8_t { kPosted, kGone, kWaits };
    Fate place(Slice& slice, uint64_t now_ns);
    // Has the selector choose and charge one of the devices. False: it has none.
    bool choose(Slice& slice, uint64_t devices, uint64_t now_ns);
    void stop_waiting_if_down(Slice& slice);
    uint64_t devices_with_room(const Slice& slice) const;
    bool has_room(const Rail& rail, const Slice& slice) const;
    bool post(Rail& rail, Slice& slice, uint64_t now_ns);
    Rail* rail_of(uint8_t device) const;
    uint64_t usable_devices() const;
    bool is_hopeful(uint64_t device_mask, uint64_t now_ns) const;
    void hear(Rail& rail, uint64_t now_ns);
    bool is_silent(const Rail& rail, uint64_t now_ns) const;
    void ask_others(Rail& rail, uint64_t now_ns);
    void send_probe(Rail& rail, uint64_t now_ns);
    // Closes the rail's connection; its slices go elsewhere. It is used again when a probe came back.
    void give_up(Rail& rail, uint64_t now_ns);
    void connect(Rail& rail, std::vector<Task*> fenced);
    void connected(Rail& rail, std::unique_ptr<Connection> connection);

    RdmaBackend& backend_;
    Core& core_;
    Peer& peer_;
    std::vector<std::unique_ptr<Rail>> rails_;
    std::array<Slice*, kPriorities> held_{};  // taken from the queue and not yet placed
    const uint64_t opened_ns_;
    std::atomic<bool> available_{true};
    std::atomic<bool> closing_{false};
    uint32_t jobs_ = 0;  // that know of us
};

}  // namespace rove::tent
