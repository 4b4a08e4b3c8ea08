// SPDX-License-Identifier: Apache-2.0
// What a transport has to do. One Backend a transport and shard; one Channel for each peer that it may reach, where
// requests wait until the transport has room for their slices. Except where said, calls come with the drive lock held
// (shard.h), which asks all backends level by level.
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

    // Whether it is worth giving a request for `remote` to it now. Any thread.
    virtual bool available(const BufferDesc& remote) const = 0;
    // The process at the other end has gone: all slices fail, here and in flight, and none is tried again.
    virtual void abandon(uint64_t now_ns) = 0;
    // There is a process again.
    virtual void revive(uint64_t) {}
    // The peer is closed: nothing new is begun. When it is idle, it can be destroyed.
    virtual void shut_down() {}
    virtual bool idle() const { return true; }

    // Bit (1 << level) for each level at which something waits.
    virtual uint8_t levels() const { return queues.levels(); }
    // Moves what waits at `level`, of priorities with their bit in `allowed`. `moved`: whether anything did; `more`: it
    // left off though more of this level could go, so that other channels have their turn.
    struct Dispatched {
        bool moved = false, more = false;
    };
    virtual Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns) = 0;
    // Of a request of one slice, which waits nowhere while nothing else does: carries it now. False: it is to wait.
    virtual bool carry_at_once(Task&, uint64_t) { return false; }
    // What waits of a request is about to be taken away.
    virtual void leave(Task&) {}
    // Of a request that waits for too long.
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
    // Null if this transport can never reach the peer. The channel is add()ed.
    virtual std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) = 0;
    // It is idle, and is about to be destroyed.
    virtual void forget(Channel& channel) { remove(channel); }

    // --- what waits ---
    // A request whose slices are chained. Any thread.
    void submit(Waiting& request) { intake_.submit(request); }
    // The same for who has the drive lock.
    void put(Waiting& request);
    // As Channel::carry_at_once().
    bool carry_at_once(Waiting& request, uint64_t now_ns);
    // Slices wait again.
    void put_back(Waiting& request, Queued& slice, uint64_t now_ns);
    // Takes what was submitted to its channels, and promotes what has waited too long. Returns the levels at which
    // something waits, as bits.
    uint8_t collect(uint64_t now_ns);
    // Moves what waits at a level, as Channel::dispatch(), channel after channel in turn.
    Channel::Dispatched dispatch(uint8_t level, uint8_t allowed, uint64_t now_ns);
    bool nothing_waits() const { return intake_.empty() && active_.empty(); }
    // Of a channel of ours: something waits there.
    void activate(Channel& channel);
    // As PriorityQueues::stuck(), of all channels.
    Waiting* stuck(uint64_t before_ns) const;
    const std::vector<Channel*>& channels() const { return channels_; }

    // Takes what has come, and looks after what is under way. Returns whether anything had.
    virtual bool progress(uint64_t now_ns) = 0;
    // Before a round: nothing has come and nothing waits, so that a round would move nothing.
    virtual bool is_idle() { return nothing_waits(); }
    // When it must be called again though nobody submits or polls; kNever: not.
    virtual uint64_t next_deadline(uint64_t now_ns) const = 0;
    // Any thread, without the drive lock: does what takes long and needs no lock, as copying memory. Returns whether
    // something was done that progress() would find.
    virtual bool work() { return false; }

  protected:
    // A channel that was opened, and one that is forgotten.
    void add(Channel& channel) { channels_.push_back(&channel); }
    void remove(Channel& channel);

  private:
    void take_in(Waiting& request);

    const Transport transport_;
    const QueueConfig config_;
    Intake intake_;
    std::vector<Channel*> channels_;
    std::vector<Channel*> active_;  // at which something waits
    size_t turn_ = 0;               // of `active_`: whose it is
    uint64_t promoted_ns_ = 0;
};

}  // namespace rove::tent
