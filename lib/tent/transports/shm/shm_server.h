// SPDX-License-Identifier: Apache-2.0
// Hands shared memory to other processes of this machine.
//
// An abstract UNIX socket, whose name is random and part of the segment's description. Such names belong to a network
// namespace: containers that share one reach each other, whatever they see in /dev/shm and whatever their pids are, and
// all others do not. So does a process of another user not get an answer. Whether this socket can be reached is what
// "on the same machine" means.
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

    // `instance`: of this process, which is said to whoever asks. Returns "" or what went wrong.
    std::string start(uint64_t instance);
    void stop();
    // 32 hexadecimal digits.
    const std::string& name() const { return name_; }

    // Memory that is handed out from now on.
    void offer(std::shared_ptr<SharedMemory> memory);
    // It is not handed out any more, and those who have it are told.
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

// The other end. `server`: what a segment says is its server's name; `instance`: of its process.
// Whether that process answers here, and is our user's.
bool is_on_this_machine(const std::string& server, uint64_t instance);

enum class Fetched : uint8_t { kMapped, kNotOffered, kUnreachable };
// Gets memory and maps it. kNotOffered: the process answers, and does not offer it (any more). May block for a second.
Fetched fetch_memory(const std::string& server, uint64_t instance, const ObjectId& id, bool writable,
                     std::shared_ptr<PeerMemory>* out);

}  // namespace rove::tent
