// SPDX-License-Identifier: Apache-2.0
// The stores with which processes find each other by name when there are more than a handful of hosts (T-22): etcd,
// redis or an HTTP server. A store knows only the address of a segment's process. The process itself describes the
// segment, so that a store is never out of date about memory. Calls block for a few seconds at most.
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

// While this object exists, the store reports changes.
class StoreWatch {
  public:
    virtual ~StoreWatch() = default;
};

class MetadataStore {
  public:
    static constexpr long kCallMs = 2000;
    using Changed = std::function<void(const std::string& key)>;

    virtual ~MetadataStore() = default;

    // Creates the store with the configured type and servers. Returns null for p2p, which needs no store.
    static std::unique_ptr<MetadataStore> create(const Config& config);

    // Calls return kMetadataError if no server does the operation. The message names the last server and the reason.
    virtual Status get(const std::string& key, std::optional<std::string>* value) = 0;  // empty if there is no such key
    // Takes the key with this value, if the key does not exist (`instead` is empty) or if it has the value `instead`.
    // `*taken` is true if that succeeded. Except for http, this is one step, and the key expires when it is not kept
    // for metadata_ttl_secs.
    virtual Status take(const std::string& key, const std::string& value, const std::optional<std::string>& instead,
                        bool* taken) = 0;
    // Renews the time to live of a key that was taken. `*kept` is false if the key has expired or another process has
    // it.
    virtual Status keep(const std::string& key, const std::string& value, bool* kept) = 0;
    // Removes a key that was taken, unless another process has it now.
    virtual Status give_back(const std::string& key, const std::string& value) = 0;
    // Calls `changed` on a thread of the watch with keys that begin with `prefix`, after they were taken or given back
    // or have expired, and with "" when any key may have changed. Returns null if the store reports no changes.
    virtual std::unique_ptr<StoreWatch> watch(const std::string& prefix, Changed changed) {
        (void)prefix, (void)changed;
        return nullptr;
    }
};

std::unique_ptr<MetadataStore> open_etcd(std::vector<std::string> servers, const StoreConfig& config);
std::unique_ptr<MetadataStore> open_redis(std::vector<std::string> servers, const StoreConfig& config);
std::unique_ptr<MetadataStore> open_http(std::vector<std::string> servers, const StoreConfig& config);

// Base64 of RFC 4648, as in the keys and values of etcd's JSON. base64_decode() returns nothing if the text is not
// valid.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace rove::tent
