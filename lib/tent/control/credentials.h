// SPDX-License-Identifier: Apache-2.0
// By what engines believe each other: a secret, certificates, or both.
#pragma once

#include <memory>

#include "tent/config/config.h"
#include "tent/control/secret.h"
#include "tent/control/tls.h"

namespace rove::tent {

struct Credentials {
    Secret secret;
    std::shared_ptr<const TlsContext> tls;  // null: connections are not encrypted

    // Neither: everybody who can connect is believed.
    bool empty() const { return secret.empty() && tls == nullptr; }
    // kInvalidArgument: a file cannot be used.
    static Status load(const Config& config, Credentials* out) {
        Status status = Secret::load(config.secret_file, &out->secret);
        if (!status.ok() || config.tls.cert_file.empty()) return status;
        return TlsContext::load(config.tls, "tls_", &out->tls);
    }
};

}  // namespace rove::tent
