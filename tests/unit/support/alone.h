// SPDX-License-Identifier: Apache-2.0
// The proof of a test with one thread that no worker runs.
#pragma once

#include "transport/quiescence.h"

namespace rove::test {

struct Alone final : transport::AllWorkersQuiesced {};

}  // namespace rove::test
