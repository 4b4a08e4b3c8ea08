// SPDX-License-Identifier: Apache-2.0
// The segments that the program has opened, by handle: finding their owners, noticing that they have gone or are back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tent/control/server.h"
#include "tent/engine/core.h"
#include "tent/engine/peer.h"

namespace rove::tent {

class Names;

class Peers {
  public:
    static constexpr uint64_t kLocal = 0;  // the handle of our own segment

    // `names`: null if a segment's name is its address.
    Peers(Core& core, ControlServer& server, Names* names) : core_(core), server_(server), names_(names) {}

    // Our own segment, at `address`.
    void set_local(std::string name, std::string address);
    // A handle. kRpcServiceError: nobody answers there, or not as they must; kInvalidArgument: no such name or file;
    // kMetadataError.
    Status open(const std::string& name, uint64_t* handle);
    // kInvalidEntry: no such handle. Requests under way go on.
    Status close(uint64_t handle);
    // The peer of a handle, with its process there as far as we know. One that has gone is looked for, by a job. A task
    // has begun with it: its channels stay until that is finished, or its beginning undone. `*change` is change() when
    // it was found. kInvalidEntry: no such handle; kRpcServiceError: it has gone.
    Status acquire(uint64_t handle, std::shared_ptr<Peer>* out, uint64_t* change);
    // Another number after a handle was opened or closed. Whoever has begun a task with a peer, and sees the number
    // with which it was found, has it as with acquire().
    uint64_t change() const { return change_.load(); }
    // Fetches what it publishes now: asks, unless it has answered somebody who began to after this call.
    Status refresh(Peer& peer);
    // The same, and again while memory of [address, address + length) may return. `*segment`: what it is then.
    Status refresh_for(Peer& peer, uint64_t address, uint64_t length, std::shared_ptr<const SegmentDesc>* segment);
    // Has a job do so for tasks that the peer refuses, and calls Shard::refreshed(). With the drive lock.
    void refresh_refused(Task& task);
    // The store says that the process of this name may have gone, come or moved; "": any may have. Whoever has opened
    // it learns so, by a job.
    void changed(const std::string& name);
    // Ends what is closed and idle. The background thread calls it every now and then.
    void tidy();
    std::vector<std::shared_ptr<Peer>> all() const;
    // The engine ends: all channels with what is under way on them.
    void clear();

  private:
    Status address_of(const std::string& name, std::string* address);
    Status connect(const std::shared_ptr<Peer>& peer);
    Status make_present(const std::shared_ptr<Peer>& peer);
    void seek(const std::shared_ptr<Peer>& peer);
    void refresh_all_refused(Peer& peer);
    Status describe(Peer& peer, std::shared_ptr<const SegmentDesc>* out);
    bool lease(const std::shared_ptr<Peer>& peer);
    void lost(const std::shared_ptr<Peer>& peer);
    void look_again(const std::shared_ptr<Peer>& peer);
    static bool is_same_process(Peer& peer);
    void set_gone(Peer& peer);

    Core& core_;
    ControlServer& server_;
    Names* const names_;
    mutable std::shared_mutex mutex_;
    std::atomic<uint64_t> change_{1};
    std::vector<std::shared_ptr<Peer>> handles_;  // null: closed
    std::vector<std::shared_ptr<Peer>> closing_;
    std::vector<std::shared_ptr<Peer>> opening_;  // that have no handle yet
};

}  // namespace rove::tent
