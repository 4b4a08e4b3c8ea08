// SPDX-License-Identifier: Apache-2.0
// See tls.h.
#include "tent/control/tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

namespace rove::tent {

namespace {

constexpr uint8_t kHandshakeRecord = 22;  // ContentType of RFC 8446, B.1
constexpr size_t kMaxPlain = 16'384;      // bytes of the largest record
// The alert is of TLS 1.2 and has two bytes: fatal, protocol_version (RFC 8446, B.2). OpenSSL itself does not answer
// bytes that are not TLS.
constexpr std::string_view kNoTlsAlert{"\x15\x03\x03\x00\x02\x02\x46", 7};

Status refuse_certificate(const std::string& key, const std::string& file) {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    return {Code::kInvalidArgument,
            "key '" + key + "': '" + file + "': " + (reason != nullptr ? reason : "it cannot be used")};
}

}  // namespace

Status TlsContext::load(const TlsFiles& files, const std::string& prefix, std::shared_ptr<const TlsContext>* out) {
    ERR_clear_error();
    auto made = std::make_shared<TlsContext>();
    made->context_.reset(SSL_CTX_new(TLS_method()));
    SSL_CTX* const context = made->get();
    if (context == nullptr) return {Code::kInternalError, "TLS: no memory"};
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // Connections are few and long, so no session is resumed.
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    const bool trusts = files.ca_file.empty()
                            ? SSL_CTX_set_default_verify_paths(context) == 1
                            : SSL_CTX_load_verify_locations(context, files.ca_file.c_str(), nullptr) == 1;
    if (!trusts) return refuse_certificate(prefix + "ca_file", files.ca_file);
    if (!files.cert_file.empty()) {
        if (SSL_CTX_use_certificate_chain_file(context, files.cert_file.c_str()) != 1)
            return refuse_certificate(prefix + "cert_file", files.cert_file);
        if (SSL_CTX_use_PrivateKey_file(context, files.key_file.c_str(), SSL_FILETYPE_PEM) != 1)
            return refuse_certificate(prefix + "key_file", files.key_file);
    }
    *out = std::move(made);
    return {};
}

TlsSession::TlsSession(const TlsContext& context, End end, const std::string& host)
    : session_(SSL_new(context.get())),
      in_(BIO_new(BIO_s_mem())),
      out_(BIO_new(BIO_s_mem())),
      is_acceptor_(end == End::kAcceptor) {
    SSL_set_bio(session_.get(), in_, out_);
    if (is_acceptor_) {
        SSL_set_accept_state(session_.get());
        return;
    }
    SSL_set_connect_state(session_.get());
    if (host.empty() || X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_.get()), host.c_str()) == 1) return;
    SSL_set1_host(session_.get(), host.c_str());
    SSL_set_tlsext_host_name(session_.get(), host.c_str());
}

bool TlsSession::take(std::string_view came, std::string* plain, std::string* wire) {
    if (!error_.empty()) return false;
    if (!has_begun_ && !came.empty()) {
        has_begun_ = true;
        if (is_acceptor_ && static_cast<uint8_t>(came[0]) != kHandshakeRecord) {
            *wire += kNoTlsAlert;
            error_ = "the peer does not use TLS";
            return false;
        }
    }
    if (!came.empty()) BIO_write(in_, came.data(), static_cast<int>(came.size()));
    const bool goes_on = advance(plain);
    drain(wire);
    return goes_on;
}

bool TlsSession::advance(std::string* plain) {
    ERR_clear_error();
    if (!is_open_) {
        const int result = SSL_do_handshake(session_.get());
        if (result != 1) return fail(result);
        is_open_ = true;
    }
    char record[kMaxPlain];
    int got;
    while ((got = SSL_read(session_.get(), record, sizeof(record))) > 0)
        plain->append(record, static_cast<size_t>(got));
    return fail(got);
}

void TlsSession::drain(std::string* wire) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out_, &bytes);
    if (size > 0) wire->append(bytes, static_cast<size_t>(size));
    (void)BIO_reset(out_);
}

// Returns true if the session continues after this result of OpenSSL.
bool TlsSession::fail(int result) {
    const int error = SSL_get_error(session_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return true;
    const long verified = SSL_get_verify_result(session_.get());
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    if (error == SSL_ERROR_ZERO_RETURN) {
        error_ = "the peer has closed the connection";
    } else if (verified != X509_V_OK) {
        error_ = X509_verify_cert_error_string(verified);
    } else {
        error_ = reason != nullptr ? reason : "the peer does not use TLS";
    }
    ERR_clear_error();
    return false;
}

bool TlsSession::seal(std::string_view plain, std::string* wire) {
    if (!is_open_ || !error_.empty()) return false;
    ERR_clear_error();
    // A write to memory is never partial.
    const bool sealed = plain.empty() || SSL_write(session_.get(), plain.data(), static_cast<int>(plain.size())) > 0;
    drain(wire);
    return sealed;
}

}  // namespace rove::tent
