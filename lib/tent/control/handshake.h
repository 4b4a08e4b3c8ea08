// SPDX-License-Identifier: Apache-2.0
// The first messages of every connection between engines, control or data. With a secret each end proves that it has it
// before the other believes, or does, anything:
//
//   initiator -> Hello    a nonce
//   acceptor  -> Welcome  a nonce
//   initiator -> Proof    HMAC(secret, "initiator", Hello, Welcome)
//   acceptor  -> Proof    HMAC(secret, "acceptor", Hello, Welcome)
//
// Both nonces are new, so that nothing can be played back; the words keep a proof from being sent back to whom it came
// from, also over a second connection. The initiator, whom anybody may be, goes first: a stranger gets nothing to guess
// the secret with. Without a secret at both ends it is Hello and Welcome. This proves who is there when a connection
// begins; it neither encrypts nor seals what follows. Certificates do: with them TLS comes before Hello.
#pragma once

#include <cstdint>
#include <string>

#include "tent/control/credentials.h"
#include "tent/control/stream.h"

namespace rove::tent {

enum class Purpose : uint8_t { kControl = 1, kData };

// All as on the wire, little-endian.
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

// The acceptor's end, without I/O.
class Acceptor {
  public:
    enum class State : uint8_t { kHello, kProof, kOpen, kRefused };

    explicit Acceptor(const Secret& secret) : secret_(&secret) {}
    // Takes what it waits for from the front of `in` as far as it is there, and appends answers to `out`. When it has
    // refused, what is in `out` says why, and the connection is to be closed.
    State take(std::string& in, std::string& out);
    State state() const { return state_; }
    Purpose purpose() const { return hello_.purpose; }

  private:
    const Secret* secret_;
    State state_ = State::kHello;
    Hello hello_;
    Welcome welcome_;
};

// A connection to "host:port" that has proved itself, or one that is not open: then `*why` says why.
Stream open_connection(const std::string& address, Purpose purpose, const Credentials& credentials,
                       uint64_t deadline_ns, std::string* why);

}  // namespace rove::tent
