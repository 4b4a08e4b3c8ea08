// SPDX-License-Identifier: Apache-2.0
// See stream.h.
#include "tent/metadata/stream.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "tent/control/address.h"
#include "tent/control/frame.h"

namespace rove::tent {

namespace {

std::string tls_error(SSL* tls) {
    const long verified = SSL_get_verify_result(tls);
    if (verified != X509_V_OK) return X509_verify_cert_error_string(verified);
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != nullptr ? reason : "it does not speak TLS";
}

}  // namespace

Stream::~Stream() {
    if (fd_ >= 0) close(fd_);
}

bool Stream::open(const std::string& address, bool with_tls, const StoreConfig& config, uint64_t deadline_ns,
                  std::string* error) {
    const auto parts = split_address(address);
    *error = "HOST:PORT is allowed";
    if (!parts) return false;
    fd_ = connect_to(address, deadline_ns);
    *error = "no connection";
    return fd_ >= 0 && (!with_tls || start_tls(parts->host, config, deadline_ns, error));
}

bool Stream::start_tls(const std::string& host, const StoreConfig& config, uint64_t deadline_ns, std::string* error) {
    ERR_clear_error();
    context_.reset(SSL_CTX_new(TLS_client_method()));
    *error = "TLS: no memory";
    if (context_ == nullptr) return false;
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    const bool trusts = config.ca_file.empty()
                            ? SSL_CTX_set_default_verify_paths(context_.get()) == 1
                            : SSL_CTX_load_verify_locations(context_.get(), config.ca_file.c_str(), nullptr) == 1;
    const bool has_key =
        config.cert_file.empty() ||
        (SSL_CTX_use_certificate_chain_file(context_.get(), config.cert_file.c_str()) == 1 &&
         SSL_CTX_use_PrivateKey_file(context_.get(), config.key_file.c_str(), SSL_FILETYPE_PEM) == 1);
    *error = "metadata_ca_file, metadata_cert_file or metadata_key_file cannot be used";
    if (!trusts || !has_key) return false;
    tls_.reset(SSL_new(context_.get()));
    *error = "TLS: no memory";
    if (tls_ == nullptr) return false;
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), host.c_str()) != 1) {  // it is a name
        SSL_set1_host(tls_.get(), host.c_str());
        SSL_set_tlsext_host_name(tls_.get(), host.c_str());
    }
    SSL_set_fd(tls_.get(), fd_);
    int result;
    while ((result = SSL_connect(tls_.get())) != 1) {
        if (wait_for_tls(result, deadline_ns)) continue;
        *error = "TLS: " + tls_error(tls_.get());
        return false;
    }
    return true;
}

bool Stream::wait_for_tls(int result, uint64_t deadline_ns) {
    switch (SSL_get_error(tls_.get(), result)) {
        case SSL_ERROR_WANT_READ:
            return wait_for(fd_, POLLIN, deadline_ns);
        case SSL_ERROR_WANT_WRITE:
            return wait_for(fd_, POLLOUT, deadline_ns);
        default:
            return false;
    }
}

bool Stream::write(const std::string& bytes, uint64_t deadline_ns) {
    if (tls_ == nullptr) return send_all(fd_, bytes.data(), bytes.size(), deadline_ns);
    int result;
    while ((result = SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()))) <= 0)
        if (!wait_for_tls(result, deadline_ns)) return false;
    return true;  // without SSL_MODE_ENABLE_PARTIAL_WRITE it is all of them
}

std::string Stream::read(size_t most, uint64_t deadline_ns) {
    std::string bytes(most, '\0');
    while (true) {
        const ssize_t got = tls_ != nullptr ? SSL_read(tls_.get(), bytes.data(), static_cast<int>(most))
                                            : recv(fd_, bytes.data(), most, MSG_DONTWAIT);
        if (got > 0) {
            bytes.resize(static_cast<size_t>(got));
            return bytes;
        }
        const bool waits = tls_ != nullptr ? wait_for_tls(static_cast<int>(got), deadline_ns)
                                           : got < 0 && (errno == EINTR || errno == EAGAIN) &&
                                                 wait_for(fd_, POLLIN, deadline_ns);
        if (!waits) return {};
    }
}

}  // namespace rove::tent
