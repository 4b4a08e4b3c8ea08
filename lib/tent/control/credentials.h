// SPDX-License-Identifier: Apache-2.0
// The credentials by which engines trust each other: a secret, certificates, or both.
#pragma once

#include <memory>

#include "tent/config/config.h"
#include "tent/control/secret.h"
#include "tent/control/tls.h"

namespace rove::tent {

struct Credentials {
    Secret secret;
    std::shared_ptr<const TlsContext> tls;  // null if connections are not encrypted

    // Returns true if there is neither. Then every process that can connect is trusted.
    bool empty() const { return secret.empty() && tls == nullptr; }
    // Returns kInvalidArgument if a file cannot be used.
    static Status load(const Config& config, Credentials* out) {
        Status status = Secret::load(config.secret_file, &out->secret);
        if (!status.ok() || config.tls.cert_file.empty()) return status;
        return TlsContext::load(config.tls, "tls_", &out->tls);
    }
};

}  // namespace rove::tent
