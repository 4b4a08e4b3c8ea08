// SPDX-License-Identifier: Apache-2.0
// Receives SENDs and WRITEs packet by packet, for rc and uc. Units: bytes.
#pragma once

#include "transport/executor.h"

namespace rove::transport {

// The packets of a message are consecutive, and only the first one of a WRITE names its destination.
template <class S>
class MessageReceiver {
  public:
    MessageReceiver(Core<S>& core, QueuePair& qp, MessageInProgress& message) : m_(message), executor_(core, qp) {}

    [[gnu::always_inline]] inline Outcome execute_send(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline Outcome execute_write(const wire::ParsedFrame& frame, wire::Op op);

  private:
    using Kind = MessageInProgress::Kind;

    MessageInProgress& m_;
    Executor<S> executor_;
};

template <class S>
Outcome MessageReceiver<S>::execute_send(const wire::ParsedFrame& frame, wire::Op op) {
    if (is_first(op) != (m_.kind == Kind::kNone)) return Outcome::kInvalidRequest;
    if (!is_first(op) && m_.kind != Kind::kSend) return Outcome::kInvalidRequest;
    if (!executor_.payload_fits(frame, op)) return Outcome::kInvalidRequest;
    if (is_first(op)) {
        if (executor_.take_receive() != Outcome::kDone) return Outcome::kNoReceive;
        m_.offset = 0;
    }
    const Outcome placed = executor_.place_send(frame, m_.offset);
    if (placed != Outcome::kDone) return placed;
    m_.offset += frame.payload_bytes;
    m_.kind = is_last(op) ? Kind::kNone : Kind::kSend;
    return is_last(op) ? executor_.finish_send(frame.headers, op, m_.offset) : Outcome::kDone;
}

template <class S>
Outcome MessageReceiver<S>::execute_write(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    if (is_first(op) != (m_.kind == Kind::kNone)) return Outcome::kInvalidRequest;
    if (!is_first(op) && m_.kind != Kind::kWrite) return Outcome::kInvalidRequest;
    if (!executor_.payload_fits(frame, op)) return Outcome::kInvalidRequest;
    if (is_first(op)) {
        if (!executor_.may_write() || !executor_.is_length_valid(h.reth.length)) return Outcome::kInvalidRequest;
        m_.offset = 0;
        m_.write_va = h.reth.va;
        m_.write_rkey = h.reth.rkey;
        m_.write_length = h.reth.length;
    }
    const uint32_t left = m_.write_length - m_.offset;
    if (is_last(op) ? frame.payload_bytes != left : frame.payload_bytes >= left) return Outcome::kInvalidRequest;
    // The receive is taken before the key is checked: if the key is wrong, the receive fails with the request.
    if (has_immediate(op) && executor_.take_receive() != Outcome::kDone) return Outcome::kNoReceive;
    // The first packet checks the whole message; the others check again, since the region may have vanished meanwhile.
    uint8_t* const target = executor_.write_target(m_.write_rkey, m_.write_va + m_.offset,
                                                   is_first(op) ? m_.write_length : frame.payload_bytes);
    if (target == nullptr) return Outcome::kRemoteAccess;
    wire::copy(target, frame.payload, frame.payload_bytes);
    m_.offset += frame.payload_bytes;
    m_.kind = is_last(op) ? Kind::kNone : Kind::kWrite;
    if (is_last(op)) executor_.finish_write(h, op, m_.write_length);
    return Outcome::kDone;
}

}  // namespace rove::transport
