// SPDX-License-Identifier: Apache-2.0
// See secret.h.
#include "tent/control/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace rove::tent {

namespace {

Status refuse_secret(const std::string& file, const std::string& why) {
    return {Code::kInvalidArgument, "key 'secret_file': '" + file + "': " + why};
}

}  // namespace

Secret::~Secret() {
    OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

Status Secret::load(const std::string& file, Secret* out) {
    const std::string length_allowed = std::to_string(kMinBytes) + " to " + std::to_string(kMaxBytes) + " bytes";
    if (const char* text = secure_getenv("ROVE_TENT_SECRET"); text != nullptr && *text != 0) {
        const size_t size = std::strlen(text);
        if (size < kMinBytes || size > kMaxBytes)
            return {Code::kInvalidArgument, "ROVE_TENT_SECRET: " + length_allowed + " are allowed"};
        *out = Secret(text);
        return {};
    }
    if (file.empty()) return {};
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return refuse_secret(file, std::strerror(errno));
    struct stat about {};
    std::string bytes(kMaxBytes + 1, '\0');
    ssize_t got = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? read(fd, bytes.data(), bytes.size()) : -1;
    close(fd);
    if (got < 0) return refuse_secret(file, "a regular file is allowed");
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return refuse_secret(file, "its owner must be this user or root");
    if ((about.st_mode & (S_IWGRP | S_IRWXO)) != 0)
        return refuse_secret(file, "its group must not have write access, and others no access: chmod 600");
    while (got > 0 && std::strchr(" \t\r\n", bytes[static_cast<size_t>(got) - 1]) != nullptr) --got;
    if (static_cast<size_t>(got) < kMinBytes || static_cast<size_t>(got) > kMaxBytes)
        return refuse_secret(file, length_allowed + " are allowed");
    *out = Secret(bytes.substr(0, static_cast<size_t>(got)));
    OPENSSL_cleanse(bytes.data(), bytes.size());
    return {};
}

Mac Secret::mac(std::string_view message) const {
    Mac mac{};
    unsigned size = mac.size();
    HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
         reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(), &size);
    return mac;
}

bool equal(const Mac& a, const Mac& b) {
    return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(void* bytes, size_t size) {
    auto* at = static_cast<uint8_t*>(bytes);
    while (size != 0) {
        const ssize_t got = getrandom(at, size, 0);
        if (got < 0) continue;  // interrupted by a signal
        at += got;
        size -= static_cast<size_t>(got);
    }
}

}  // namespace rove::tent
