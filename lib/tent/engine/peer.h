// SPDX-License-Identifier: Apache-2.0
// An opened segment: its owner, the content that the owner publishes, and the channels to it.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tent/config/types.h"
#include "tent/control/client.h"
#include "tent/engine/backend.h"
#include "tent/engine/outbox.h"
#include "tent/engine/refused_tasks.h"
#include "tent/engine/segment.h"
#include "tent/engine/task_count.h"
#include "tent/engine/withdrawn.h"

namespace rove::tent {

class Peer {
  public:
    // `address` is the control server's, if it is known already. It is unused for a file, where there is no process to
    // ask.
    Peer(std::string name, std::string address, const Credentials& credentials);
    ~Peer() { set_lease(-1); }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    const std::string& name() const { return name_; }
    bool is_file() const { return is_file_; }
    // Returns the random text under which the peer knows our connections. No other process learns it.
    const std::string& owner() const { return owner_; }
    ControlClient& control() { return control_; }
    // Returns the shard that owns the peer's tasks (shard.h).
    uint8_t shard() const { return shard_; }
    void set_shard(uint8_t shard) { shard_ = shard; }  // called before other threads know the peer

    // Returns the description, which is not null once the peer was described. Any thread may call it.
    std::shared_ptr<const SegmentDesc> segment() const {
        const std::lock_guard lock(mutex_);
        return segment_;
    }
    void set_segment(std::shared_ptr<const SegmentDesc> segment) {
        const std::lock_guard lock(mutex_);
        segment_ = std::move(segment);
        current_.store(segment_.get());
    }
    // Replaces the description by a newer one of the same process.
    void update_segment(std::shared_ptr<const SegmentDesc> segment, uint64_t now_ns) {
        const std::lock_guard lock(mutex_);
        withdrawn_.note(*segment_, *segment, now_ns);
        segment_ = std::move(segment);
        current_.store(segment_.get());
    }
    // Whether memory that it does not publish may soon be published again (withdrawn.h).
    bool may_return(uint64_t address, uint64_t length, uint64_t now_ns) const {
        const std::lock_guard lock(mutex_);
        return withdrawn_.may_return(address, length, now_ns);
    }
    // Returns true if segment() would return this one, without taking the lock. The caller's reference keeps another
    // description from reusing its address.
    bool is_current(const std::shared_ptr<const SegmentDesc>& segment) const {
        return segment != nullptr && segment.get() == current_.load(std::memory_order_acquire);
    }
    // Returns true once the peer is described and its channels are open.
    bool known() const { return known_.load(std::memory_order_acquire); }
    void set_known() {
        for (size_t i = 0; i < kTransports; ++i)
            if (channels_[i] != nullptr) reaching_ |= 1u << i;
        known_.store(true, std::memory_order_release);
    }
    // Its process, as far as we know.
    bool is_there() const { return known() && !gone.load(std::memory_order_relaxed); }

    // Ends the connection that tells us and the peer that the other lives, and takes another one (-1: none).
    void set_lease(int fd) {
        const std::lock_guard lock(mutex_);
        if (lease_ >= 0) {
            shutdown(lease_, SHUT_RDWR);
            ::close(lease_);
        }
        lease_ = fd;
    }
    bool has_lease() const {
        const std::lock_guard lock(mutex_);
        return lease_ >= 0;
    }

    // Returns the channel, or null if the transport does not reach the peer. Channels stay while a task has begun
    // (Peers::acquire) with a known peer; the holder of the drive lock sees all of them, too.
    Channel* channel(Transport transport) const { return channels_[static_cast<size_t>(transport)].get(); }
    std::unique_ptr<Channel>& slot(size_t transport) { return channels_[transport]; }
    // Returns the transports, as bits (1 << id), that can be tried for a request to `remote` now.
    uint32_t available(const BufferDesc& remote) const {
        uint32_t transports = 0;
        for (uint32_t rest = reaching_; rest != 0; rest &= rest - 1)
            if (channels_[static_cast<size_t>(std::countr_zero(rest))]->available(remote)) transports |= rest & -rest;
        return transports;
    }

    // True if the process is known to have ended: requests fail until the segment is opened again.
    std::atomic<bool> gone{false};
    TaskCount tasks;  // tasks in progress, and calls that are about to use its channels
    Outbox outbox;
    RefusedTasks refused;
    std::atomic<uint32_t> handles{0};  // open handles that the program has
    // Used by Peers. Held during a question for the process's description, which may take seconds.
    std::mutex asking;
    std::atomic<uint64_t> asked{0};      // number of questions
    uint64_t answered = 0;               // number of the last question that it answered
    uint64_t failed_ns = 0;              // time of the last failed attempt to open it
    Status failure;                      // the reason for that failure
    std::atomic<uint64_t> sought_ns{0};  // time of the last search for the process after it ended
    std::atomic<bool> is_sought{false};  // true while a job searches for it
    std::atomic<bool> is_other{false};   // the process has returned with other devices, so its handles stay invalid

  private:
    const std::string name_;
    const bool is_file_;
    const std::string owner_;
    ControlClient control_;
    mutable std::mutex mutex_;
    std::shared_ptr<const SegmentDesc> segment_;
    Withdrawn withdrawn_;
    std::atomic<const SegmentDesc*> current_{nullptr};  // `segment_`
    std::atomic<bool> known_{false};
    uint8_t shard_ = 0;
    int lease_ = -1;
    std::array<std::unique_ptr<Channel>, kTransports> channels_;
    uint32_t reaching_ = 0;  // transports (1 << id) that have a channel
};

}  // namespace rove::tent
