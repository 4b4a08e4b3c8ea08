// SPDX-License-Identifier: Apache-2.0
// The interface of a transport. Each transport has one Backend for each shard, and each Backend has one Channel for
// each peer that it may reach. Requests wait in a channel until the transport has room for their slices. Unless stated
// otherwise, functions are called with the drive lock held (shard.h), whose holder asks all backends level by level.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tent/config/types.h"
#include "tent/engine/priority_queues.h"
#include "tent/engine/segment.h"

namespace rove::tent {

class Peer;
enum class Reason : uint8_t;
struct Task;

class Channel {
  public:
    explicit Channel(const QueueConfig& config) : queues(config) {}
    virtual ~Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // Returns true if it is worth giving the channel a request for `remote` now. Any thread may call it.
    virtual bool available(const BufferDesc& remote) const = 0;
    // Fails all slices, waiting and in flight, without a retry, because the peer's process has ended.
    virtual void abandon(uint64_t now_ns) = 0;
    // Tells the channel that the peer has a process again.
    virtual void revive(uint64_t) {}
    // Begins nothing new, because the peer is closed. The channel can be destroyed once it is idle.
    virtual void shut_down() {}
    virtual bool idle() const { return true; }

    // Returns bit (1 << level) for each level at which slices wait.
    virtual uint8_t levels() const { return queues.levels(); }
    // Moves slices that wait at `level` and whose priority has its bit in `allowed`. `moved` is set if any slice moved.
    // `more` is set if the channel stopped early, to give other channels their turn, although more of this level could
    // move.
    struct Dispatched {
        bool moved = false, more = false;
    };
    virtual Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) = 0;
    // Carries a request of one slice immediately, without queueing it, if nothing else waits. Returns false if the
    // request must wait.
    virtual bool carry_at_once(Task&, uint64_t) { return false; }
    // Prepares for the removal of a request's waiting slices.
    virtual void leave(Task&) {}
    // Returns why a request has been waiting for too long.
    virtual Reason why_nothing_moves() const;

    PriorityQueues queues;

  private:
    friend class Backend;
    bool active_ = false;
};

class Backend {
  public:
    Backend(Transport transport, const QueueConfig& config) : transport_(transport), config_(config) {}
    virtual ~Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    Transport transport() const { return transport_; }
    // Opens a channel to the peer and add()s it. Returns null if this transport can never reach the peer.
    virtual std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) = 0;
    // Forgets an idle channel that is about to be destroyed.
    virtual void forget(Channel& channel) { remove(channel); }

    // --- waiting requests ---

    // Submits a request whose slices are chained. Any thread may call it.
    void submit(Waiting& request) { intake_.submit(request); }
    // Does what submit() does, for a caller that has the drive lock.
    void put(Waiting& request);
    // Does what Channel::carry_at_once() does, for the request's channel.
    bool carry_at_once(Waiting& request, uint64_t now_ns);
    // Makes slices wait again.
    void put_back(Waiting& request, Queued& slice, uint64_t now_ns);
    // Moves submitted requests to their channels, and promotes requests that have waited too long. Returns the levels
    // at which slices wait, as bits.
    uint8_t collect(uint64_t now_ns);
    // Moves slices that wait at a level, as Channel::dispatch() does, with the channels in turn.
    Channel::Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns);
    bool nothing_waits() const { return intake_.empty() && active_.empty(); }
    // Records that slices wait in one of this backend's channels.
    void activate(Channel& channel);
    // Does what PriorityQueues::stuck() does, over all channels.
    Waiting* stuck(uint64_t before_ns) const;
    const std::vector<Channel*>& channels() const { return channels_; }

    // Handles arrivals and advances the transfers in flight. Returns true if there was anything to do.
    virtual bool progress(uint64_t now_ns) = 0;
    // Returns true before a round if nothing has arrived and nothing waits, so that a round would move nothing.
    virtual bool is_idle() { return nothing_waits(); }
    // Returns when progress() must be called again even if no thread submits or polls, or kNever.
    virtual uint64_t next_deadline(uint64_t now_ns) const = 0;
    // Does slow work that needs no lock, such as copying memory. Any thread may call it, without the drive lock.
    // Returns true if it did something that progress() would find.
    virtual bool work() { return false; }

  protected:
    // Adds a channel that was opened, or removes one that is forgotten.
    void add(Channel& channel) { channels_.push_back(&channel); }
    void remove(Channel& channel);

  private:
    void take_in(Waiting& request);

    const Transport transport_;
    const QueueConfig config_;
    Intake intake_;
    std::vector<Channel*> channels_;
    std::vector<Channel*> active_;  // channels at which slices wait
    size_t turn_ = 0;               // index into `active_` of the channel whose turn it is
    uint64_t promoted_ns_ = 0;
};

}  // namespace rove::tent
