// SPDX-License-Identifier: Apache-2.0
// See store.h.
#include "tent/metadata/store.h"

#include <sstream>

namespace rove::tent {

std::unique_ptr<MetadataStore> MetadataStore::create(const Config& config) {
    std::vector<std::string> servers;
    std::istringstream list(config.metadata_servers);
    for (std::string one; std::getline(list, one, ',');) servers.push_back(one);
    switch (config.metadata_type) {
        case MetadataType::kEtcd:
            return open_etcd(std::move(servers), config.store);
        case MetadataType::kRedis:
            return open_redis(std::move(servers), config.store);
        case MetadataType::kHttp:
            return open_http(std::move(servers), config.store);
        case MetadataType::kP2p:
            break;
    }
    return nullptr;
}

}  // namespace rove::tent
