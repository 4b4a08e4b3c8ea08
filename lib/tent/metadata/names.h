// SPDX-License-Identifier: Apache-2.0
// Segments by name: what a metadata store says of them.
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
    // `credentials` are there as long as this. `ttl_s`: as the store has it.
    Names(std::unique_ptr<MetadataStore> store, const Credentials& credentials, uint32_t ttl_s)
        : store_(std::move(store)), credentials_(credentials), ttl_s_(ttl_s) {}
    ~Names();  // withdraws what was published, unless another process has the name by now

    // From now on `name` is at `address` (host:port of a control server); a thread keeps it so. kInvalidArgument: a
    // living process has the name.
    Status publish(const std::string& name, const std::string& address);
    // Where the process of a segment is, or was. kInvalidArgument: no such name.
    Status find(const std::string& name, std::string* address);
    // From now on `changed` is called, on another thread, with names whose process may have gone, come or moved, and
    // with "" when any may have: if the store tells. Once.
    void watch(std::function<void(const std::string& name)> changed);

  private:
    Status take(const std::string& name, const std::string& value);
    void keep();

    std::unique_ptr<MetadataStore> store_;
    std::unique_ptr<StoreWatch> watch_;
    const Credentials& credentials_;
    const uint32_t ttl_s_;
    std::string name_, value_;  // published
    std::mutex mutex_;
    std::condition_variable end_;
    bool ends_ = false;
    std::thread keeper_;
};

}  // namespace rove::tent
