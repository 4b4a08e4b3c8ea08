// SPDX-License-Identifier: Apache-2.0
// What the layer above has behind a queue of the transport, which hands it back with events and otherwise never looks.
#pragma once

namespace rove::transport {

// Whoever owns a QueuePair, a CompletionQueue or a SharedRecvQueue derives from it.
struct Owner {};

}  // namespace rove::transport
