// SPDX-License-Identifier: Apache-2.0
// SENDs and WRITEs as rc and uc receive them, packet by packet. Units: bytes.
#pragma once

#include "transport/executor.h"

namespace rove::transport {

// The packets of a message follow each other, and only the first of a WRITE says where it goes.
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
    // Before the key is looked at: if it is wrong, the receive fails with the request.
    if (has_immediate(op) && executor_.take_receive() != Outcome::kDone) return Outcome::kNoReceive;
    // Of the first packet, the whole message; of the others once more, since the region may have gone meanwhile.
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
