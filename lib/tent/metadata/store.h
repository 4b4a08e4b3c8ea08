// SPDX-License-Identifier: Apache-2.0
// Where processes find each other by name when there are more than a handful of hosts (T-22): etcd or redis. A store
// knows only which address a segment's process has; what the segment consists of, the process itself is asked, so that
// a store is never out of date about memory. Calls block, for a few seconds at most.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tent/config.h"
#include "tent/status.h"

namespace rove::tent {

class MetadataStore {
  public:
    virtual ~MetadataStore() = default;

    // Of the configured type and servers; null for p2p, which needs none.
    static std::unique_ptr<MetadataStore> create(const Config& config);

    // kMetadataError: no server does what it is asked for. The message names the last of them, and says why.
    virtual Status put(const std::string& key, const std::string& value) = 0;
    virtual Status get(const std::string& key, std::optional<std::string>* value) = 0;  // nothing: there is no such key
    virtual Status remove(const std::string& key) = 0;

  protected:
    static constexpr long kCallMs = 2000;
};

std::unique_ptr<MetadataStore> open_etcd(std::vector<std::string> servers);
std::unique_ptr<MetadataStore> open_redis(std::vector<std::string> servers);

// RFC 4648, as etcd's JSON has keys and values. decode: nothing if it is none.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace rove::tent
