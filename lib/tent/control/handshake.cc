// SPDX-License-Identifier: Apache-2.0
// See handshake.h.
#include "tent/control/handshake.h"

#include <algorithm>
#include <cstring>

#include "tent/control/address.h"
#include "tent/control/frame.h"

namespace rove::tent {

namespace {

template <typename T>
std::string_view bytes_of(const T& message) {
    return {reinterpret_cast<const char*>(&message), sizeof(message)};
}

Mac proof(const Secret& secret, const char* of, const Hello& hello, const Welcome& welcome) {
    return secret.mac(std::string("rove-tent ") + of + '\0' + std::string(bytes_of(hello)) +
                      std::string(bytes_of(welcome)));
}

// Returns false if the message is not complete yet.
template <typename T>
bool take_from(std::string& in, T& message) {
    if (in.size() < sizeof(message)) return false;
    std::memcpy(&message, in.data(), sizeof(message));
    in.erase(0, sizeof(message));
    return true;
}

// Returns true if an alert of TLS came instead of a Welcome (TlsSession::take).
bool speaks_tls(const Welcome& welcome) {
    constexpr uint8_t kAlertRecord = 21;  // ContentType of RFC 8446, B.1
    return static_cast<uint8_t>(welcome.magic) == kAlertRecord;
}

}  // namespace

Acceptor::State Acceptor::take(std::string& in, std::string& out) {
    // A peer that speaks another protocol is refused before it has sent as many bytes as a Hello has.
    const uint32_t magic = Hello::kMagic;
    if (state_ == State::kHello && std::memcmp(in.data(), &magic, std::min(in.size(), sizeof(magic))) != 0)
        return state_ = State::kRefused;
    if (state_ == State::kHello && take_from(in, hello_)) {
        const bool is_hello = hello_.magic == Hello::kMagic && hello_.version == Hello::kVersion &&
                              (hello_.purpose == Purpose::kControl || hello_.purpose == Purpose::kData) &&
                              hello_.has_secret <= 1;
        if (!is_hello) return state_ = State::kRefused;
        welcome_.has_secret = secret_->empty() ? 0 : 1;
        fill_random(welcome_.nonce, sizeof(welcome_.nonce));
        out += bytes_of(welcome_);
        state_ = hello_.has_secret != welcome_.has_secret ? State::kRefused
                 : secret_->empty()                       ? State::kOpen
                                                          : State::kProof;
    }
    Mac theirs;
    if (state_ == State::kProof && take_from(in, theirs)) {
        const bool is_right = equal(theirs, proof(*secret_, "initiator", hello_, welcome_));
        if (is_right) out += bytes_of(proof(*secret_, "acceptor", hello_, welcome_));
        state_ = is_right ? State::kOpen : State::kRefused;
    }
    return state_;
}

Stream open_connection(const std::string& address, Purpose purpose, const Credentials& credentials,
                       uint64_t deadline_ns, std::string* why) {
    const Secret& secret = credentials.secret;
    Stream stream(connect_to(address, deadline_ns));
    *why = "no answer";
    if (!stream.is_open()) return {};
    if (credentials.tls != nullptr && !stream.start_tls(*credentials.tls, "", deadline_ns, why)) return {};
    *why = "no answer";
    Hello hello;
    hello.purpose = purpose;
    hello.has_secret = secret.empty() ? 0 : 1;
    fill_random(hello.nonce, sizeof(hello.nonce));
    const auto shake_hands = [&] {
        Welcome welcome{.magic = 0};
        if (!stream.send(&hello, sizeof(hello), deadline_ns) ||
            !stream.receive(&welcome, sizeof(welcome), deadline_ns)) {
            if (speaks_tls(welcome)) *why = "the peer requires TLS, and this engine has no certificate";
            return false;
        }
        *why = "the peer uses another protocol";
        if (welcome.magic != Hello::kMagic || welcome.version != Hello::kVersion) return false;
        *why = secret.empty() ? "the peer has a secret, and this engine has no secret"
                              : "the peer has no secret, and this engine has a secret";
        if (welcome.has_secret != hello.has_secret) return false;
        if (secret.empty()) return true;
        *why = "the peer's secret differs from this engine's";
        const Mac ours = proof(secret, "initiator", hello, welcome);
        Mac theirs;
        return stream.send(&ours, sizeof(ours), deadline_ns) && stream.receive(&theirs, sizeof(theirs), deadline_ns) &&
               equal(theirs, proof(secret, "acceptor", hello, welcome));
    };
    if (shake_hands()) return stream;
    // Since TLS 1.3 an acceptor only now reports whether it accepts our certificate.
    char byte;
    (void)stream.receive_some(&byte, 1);
    if (!stream.tls_error().empty()) *why = "TLS: " + stream.tls_error();
    return {};
}

}  // namespace rove::tent
