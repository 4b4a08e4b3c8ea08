// SPDX-License-Identifier: Apache-2.0
// Configurations in JSON, as in TENT's documents. They are read into the table that TOML gives, with line numbers, so
// that one reader checks both formats and reports the same errors.
#pragma once

#include <toml++/toml.h>

#include <string>

#include "rove/tent_status.h"

namespace rove::tent {

// Returns true if the text is JSON: TOML never starts with '{'.
bool is_json(const std::string& text);

// `name` is the name of the text in messages. Keys of the outermost object may be paths ("transports/rdma/enable"). The
// documented keys of transports/rdma may be there without a path, as in the documents' shorter examples; a value at the
// full path overrides them. A null is no value. Returns kMalformedJson if the text is not JSON, or a key is there
// twice.
Status read_json(const std::string& text, const std::string& name, toml::table* out);

}  // namespace rove::tent
