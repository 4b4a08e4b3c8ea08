// SPDX-License-Identifier: Apache-2.0
// The names of segments, as a metadata store has them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tent/control/credentials.h"
#include "tent/metadata/store.h"

namespace rove::tent {

class Names {
  public:
    // `credentials` must outlive the object. `ttl_s` is the time to live of the store, in seconds.
    Names(std::unique_ptr<MetadataStore> store, const Credentials& credentials, uint32_t ttl_s)
        : store_(std::move(store)), credentials_(credentials), ttl_s_(ttl_s) {}
    ~Names();  // withdraws the published name, unless another process has taken it

    // Publishes that `name` is at `address` (host:port of a control server); a thread keeps the entry alive. Returns
    // kInvalidArgument if a living process has the name.
    Status publish(const std::string& name, const std::string& address);
    // Finds the address of a segment's process, which may have ended. Returns kInvalidArgument if there is no such
    // name.
    Status find(const std::string& name, std::string* address);
    // Calls `changed` on another thread, if the store reports changes: with the name of a process that may have ended,
    // started or moved, and with "" if that may be true of any process. May be called once.
    void watch(std::function<void(const std::string& name)> changed);

  private:
    Status take(const std::string& name, const std::string& value);
    void keep();

    std::unique_ptr<MetadataStore> store_;
    std::unique_ptr<StoreWatch> watch_;
    const Credentials& credentials_;
    const uint32_t ttl_s_;
    std::string name_, value_;  // published name and value
    std::mutex mutex_;
    std::condition_variable end_;
    bool ends_ = false;
    std::thread keeper_;
};

}  // namespace rove::tent
