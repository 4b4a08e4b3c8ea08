// SPDX-License-Identifier: Apache-2.0
// Where processes find each other by name when there are more than a handful of hosts (T-22): etcd, redis or an HTTP
// server. A store knows only which address a segment's process has; what the segment consists of, the process itself is
// asked, so that a store is never out of date about memory. Calls block, for a few seconds at most.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rove/tent_status.h"
#include "tent/config/config.h"

namespace rove::tent {

// While it is there, a store tells of changes.
class StoreWatch {
  public:
    virtual ~StoreWatch() = default;
};

class MetadataStore {
  public:
    static constexpr long kCallMs = 2000;
    using Changed = std::function<void(const std::string& key)>;

    virtual ~MetadataStore() = default;

    // Of the configured type and servers; null for p2p, which needs none.
    static std::unique_ptr<MetadataStore> create(const Config& config);

    // kMetadataError: no server does what it is asked for. The message names the last of them, and says why.
    virtual Status get(const std::string& key, std::optional<std::string>* value) = 0;  // nothing: there is no such key
    // The key is ours, with this value, if nobody has it (`instead` is nothing) or if it has the value `instead`:
    // `*taken` says so. In one step, but for http. It goes by itself when it is not kept for metadata_ttl_secs, but for
    // http.
    virtual Status take(const std::string& key, const std::string& value, const std::optional<std::string>& instead,
                        bool* taken) = 0;
    // What was taken is ours for as long again. `*kept` is false: it has gone, or is another's.
    virtual Status keep(const std::string& key, const std::string& value, bool* kept) = 0;
    // Removes what was taken, unless it is another's by now.
    virtual Status give_back(const std::string& key, const std::string& value) = 0;
    // From now on `changed` is called, on a thread of the watch, with keys that begin with `prefix` after they were
    // taken, given back, or have gone by themselves, and with "" when any may have. Null: the store does not tell.
    virtual std::unique_ptr<StoreWatch> watch(const std::string& prefix, Changed changed) {
        (void)prefix, (void)changed;
        return nullptr;
    }
};

std::unique_ptr<MetadataStore> open_etcd(std::vector<std::string> servers, const StoreConfig& config);
std::unique_ptr<MetadataStore> open_redis(std::vector<std::string> servers, const StoreConfig& config);
std::unique_ptr<MetadataStore> open_http(std::vector<std::string> servers, const StoreConfig& config);

// RFC 4648, as etcd's JSON has keys and values. decode: nothing if it is none.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace rove::tent
