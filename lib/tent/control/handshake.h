// SPDX-License-Identifier: Apache-2.0
// The first messages of every connection between engines, control or data. With a secret, each end proves that it has
// the secret before the other end trusts it or does anything for it:
//
//   initiator -> Hello    a nonce
//   acceptor  -> Welcome  a nonce
//   initiator -> Proof    HMAC(secret, "initiator", Hello, Welcome)
//   acceptor  -> Proof    HMAC(secret, "acceptor", Hello, Welcome)
//
// Both nonces are new, so that no message can be replayed. The words keep a proof from being reflected to its sender,
// also over a second connection. The initiator, which may be any stranger, proves itself first: so a stranger gets
// nothing from which to guess the secret. If neither end has a secret, only Hello and Welcome are exchanged. The
// handshake proves which processes are connected when a connection begins; it neither encrypts nor authenticates later
// bytes. TLS does: with certificates it comes before Hello.
#pragma once

#include <cstdint>
#include <string>

#include "tent/control/credentials.h"
#include "tent/control/stream.h"

namespace rove::tent {

enum class Purpose : uint8_t { kControl = 1, kData };

// All fields are as on the wire, little-endian.
struct Hello {
    static constexpr uint32_t kMagic = 0x45564F52;  // "ROVE"
    static constexpr uint16_t kVersion = 2;

    uint32_t magic = kMagic;
    uint16_t version = kVersion;
    Purpose purpose = Purpose::kControl;
    uint8_t has_secret = 0;
    uint8_t nonce[32] = {};
};
static_assert(sizeof(Hello) == 40);

struct Welcome {
    uint32_t magic = Hello::kMagic;
    uint16_t version = Hello::kVersion;
    uint8_t has_secret = 0;
    uint8_t reserved = 0;
    uint8_t nonce[32] = {};
};
static_assert(sizeof(Welcome) == 40);

// The acceptor's side of the handshake, without I/O.
class Acceptor {
  public:
    enum class State : uint8_t { kHello, kProof, kOpen, kRefused };

    explicit Acceptor(const Secret& secret) : secret_(&secret) {}
    // Consumes the message that it expects from the front of `in` once it is complete, and appends answers to `out`.
    // After a refusal the caller sends `out`, which tells the initiator the reason, and closes the connection.
    State take(std::string& in, std::string& out);
    State state() const { return state_; }
    Purpose purpose() const { return hello_.purpose; }

  private:
    const Secret* secret_;
    State state_ = State::kHello;
    Hello hello_;
    Welcome welcome_;
};

// Opens a connection to "host:port" and finishes the handshake. On failure it returns a stream that is not open, and
// `*why` has the reason.
Stream open_connection(const std::string& address, Purpose purpose, const Credentials& credentials,
                       uint64_t deadline_ns, std::string* why);

}  // namespace rove::tent
