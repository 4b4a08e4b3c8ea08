// SPDX-License-Identifier: Apache-2.0
// The segments that the program has opened, by handle. Finds their owners, and detects that a process ended or
// returned.
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

    // Sets our own segment, at `address`.
    void set_local(std::string name, std::string address);
    // Opens a segment and returns its handle. Errors: kRpcServiceError (no valid answer from there), kInvalidArgument
    // (no such name or file), kMetadataError.
    Status open(const std::string& name, uint64_t* handle);
    // Closes a handle; requests in progress continue. Error: kInvalidEntry (no such handle).
    Status close(uint64_t handle);
    // Returns the peer of a handle whose process is alive as far as known; a job looks for one that ended. A task
    // begins with the call: the peer's channels stay until the task is finished or its beginning undone. Sets `*change`
    // to change() at the time of the lookup. Errors: kInvalidEntry (no such handle), kRpcServiceError (the process has
    // ended).
    Status acquire(uint64_t handle, std::shared_ptr<Peer>* out, uint64_t* change);
    // Returns a number that changes whenever a handle is opened or closed. A caller that has begun a task with a peer,
    // and sees the number of its lookup again, holds the peer like after acquire().
    uint64_t change() const { return change_.load(); }
    // Fetches the peer's current description. Sends no question if the peer has answered one that began after this
    // call.
    Status refresh(Peer& peer);
    // Does the same, and repeats it while memory of [address, address + length) may return. Sets `*segment` to the
    // result.
    Status refresh_for(Peer& peer, uint64_t address, uint64_t length, std::shared_ptr<const SegmentDesc>* segment);
    // Lets a job refresh the peer for refused tasks, and then call Shard::refreshed(). Needs the drive lock.
    void refresh_refused(Task& task);
    // Handles a message of the store that the process with this name may have ended, appeared or moved; "" means any
    // process. A job informs the peers that have opened it.
    void changed(const std::string& name);
    // Frees peers that are closed and idle. The background thread calls it at intervals.
    void tidy();
    std::vector<std::shared_ptr<Peer>> all() const;
    // Closes all channels with the requests on them, when the engine ends.
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
