// SPDX-License-Identifier: Apache-2.0
// Segments by name: what a metadata store says of them.
#pragma once

#include <memory>
#include <string>

#include "tent/control/secret.h"
#include "tent/metadata/store.h"

namespace rove::tent {

class Names {
  public:
    // `secret` is there as long as this.
    Names(std::unique_ptr<MetadataStore> store, const Secret& secret) : store_(std::move(store)), secret_(secret) {}
    ~Names();  // withdraws what was published, unless another process has the name by now

    // From now on `name` is at `address` (host:port of a control server). kInvalidArgument: a living process has the
    // name.
    Status publish(const std::string& name, const std::string& address);
    // Where the process of a segment is, or was. kInvalidArgument: no such name.
    Status find(const std::string& name, std::string* address);

  private:
    std::unique_ptr<MetadataStore> store_;
    const Secret& secret_;
    std::string name_, address_;  // published
};

}  // namespace rove::tent
