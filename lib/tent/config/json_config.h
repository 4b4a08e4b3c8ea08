// SPDX-License-Identifier: Apache-2.0
// Configurations in JSON, as TENT's documents have them: read into the table that TOML gives, lines included, so that
// one reader checks both and says the same about both.
#pragma once

#include <toml++/toml.h>

#include <string>

#include "rove/tent_status.h"

namespace rove::tent {

// TOML never starts with '{'.
bool is_json(const std::string& text);

// `name` is what messages call the text. Keys of the outermost object may be paths ("transports/rdma/enable"), and the
// documented keys of transports/rdma may stand there alone, as the documents' shorter examples have them; what stands
// in its own place is stronger. A null is no value. kMalformedJson: not JSON, or a key that is there twice.
Status read_json(const std::string& text, const std::string& name, toml::table* out);

}  // namespace rove::tent
