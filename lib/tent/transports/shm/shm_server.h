// SPDX-License-Identifier: Apache-2.0
// Hands shared memory to other processes of this machine.
//
// The server listens on an abstract UNIX socket. Its name is random and is part of the segment's description. Such
// names belong to a network namespace: containers that share one reach each other, whatever they see in /dev/shm and
// whatever their pids are, and all others do not. A process of another user gets no answer either. "On the same
// machine" means that this socket can be reached.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tent/memory/shared_memory.h"

namespace rove::tent {

class ShmServer {
  public:
    ~ShmServer() { stop(); }

    // Starts the server. `instance` identifies this process and is part of every answer. Returns "" or an error text.
    std::string start(uint64_t instance);
    void stop();
    // 32 hexadecimal digits.
    const std::string& name() const { return name_; }

    // Hands out the memory from now on.
    void offer(std::shared_ptr<SharedMemory> memory);
    // No longer hands out the memory, and marks it for the processes that have it.
    void withdraw(const ObjectId& id);

  private:
    void run();
    void answer(int fd);

    std::string name_;
    uint64_t instance_ = 0;
    int listener_ = -1;
    std::atomic<bool> stopped_{false};
    std::thread thread_;
    std::mutex mutex_;
    std::map<ObjectId, std::shared_ptr<SharedMemory>> offered_;
};

// The client's side. Returns true if the process answers on this machine and runs as the same user. `server` is the
// name of its server according to its segment, and `instance` identifies the process.
bool is_on_this_machine(const std::string& server, uint64_t instance);

enum class Fetched : uint8_t { kMapped, kNotOffered, kUnreachable };
// Gets memory and maps it. Returns kNotOffered if the process answers and does not, or no longer, offer it. May block
// for a second.
Fetched fetch_memory(const std::string& server, uint64_t instance, const ObjectId& id, bool writable,
                     std::shared_ptr<PeerMemory>* out);

}  // namespace rove::tent
