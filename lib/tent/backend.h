// SPDX-License-Identifier: Apache-2.0
// What a transport has to do. One Backend a transport and engine; one Channel for each peer that it may reach, where
// slices wait until the transport has room for them. Except where said, calls come with the drive lock held (core.h).
#pragma once

#include <cstdint>
#include <memory>

#include "tent/memory.h"
#include "tent/priority_queues.h"
#include "tent/segment.h"
#include "tent/status.h"
#include "tent/types.h"

namespace rove::tent {

class Peer;

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

    PriorityQueues queues;
};

class Backend {
  public:
    virtual ~Backend() = default;

    // Registering memory, and what others must know of it. Any thread, one at a time, without the drive lock.
    virtual Status add_memory(LocalBuffer&) { return {}; }
    virtual void remove_memory(LocalBuffer&) {}
    virtual void describe(const LocalBuffer&, BufferDesc*) const {}

    // Null if this transport can never reach the peer.
    virtual std::unique_ptr<Channel> open(Peer& peer, uint64_t now_ns) = 0;
    // It is idle, and is about to be destroyed.
    virtual void forget(Channel& channel) = 0;

    // Moves what can be moved. Returns whether anything did.
    virtual bool progress(uint64_t now_ns) = 0;
    // Something was queued: moves what can be moved without looking for what has come.
    virtual bool dispatch(uint64_t now_ns) { return progress(now_ns); }
    // Before a round: nothing has come and nothing waits, so that progress() would move nothing.
    virtual bool quiet() { return false; }
    // When it must be called again though nobody submits or polls; kNever: not.
    virtual uint64_t next_deadline(uint64_t now_ns) const = 0;
};

}  // namespace rove::tent
