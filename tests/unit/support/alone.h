// SPDX-License-Identifier: Apache-2.0
// The proof of quiescence for a test that has one thread and no worker.
#pragma once

#include "transport/quiescence.h"

namespace rove::test {

struct Alone final : transport::AllWorkersQuiesced {};

}  // namespace rove::test
