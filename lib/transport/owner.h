// SPDX-License-Identifier: Apache-2.0
// The layer above's object behind a queue of the transport, which passes it back with events and never uses it
// otherwise.
#pragma once

namespace rove::transport {

// The base of the owners of QueuePair, CompletionQueue and SharedRecvQueue.
struct Owner {};

}  // namespace rove::transport
