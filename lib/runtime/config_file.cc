// SPDX-License-Identifier: Apache-2.0
#include "runtime/config_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace rove::datapath {

namespace {

namespace fs = std::filesystem;

// Returns why another user may change the file at `path`, or "" if no other user may.
std::string fault_of(const fs::path& path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) return path.string() + " cannot be read";
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return path.string() + " belongs to user " + std::to_string(status.st_uid);
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return path.string() + " can be written to by others";
    return {};
}

}  // namespace

std::optional<std::string> find_config_file(const char* program, std::string* error) {
    for (const char* const name : {"rove.toml", "/etc/rove/rove.toml"}) {
        std::error_code failure;
        const fs::path path = fs::absolute(name, failure);
        // A link may lead to another folder. A user who can write to either folder can change the configuration.
        const fs::path real = fs::canonical(name, failure);
        if (failure == std::errc::no_such_file_or_directory || failure == std::errc::permission_denied) continue;
        std::string fault;
        if (failure)
            fault = path.string() + ": " + failure.message();
        else
            for (const fs::path& part : {real, real.parent_path(), path.parent_path()})
                if (fault.empty()) fault = fault_of(part);
        if (fault.empty() && !fs::is_regular_file(real, failure)) fault = path.string() + " is not a regular file";
        if (!fault.empty()) {
            *error = fault + ": it is not taken for a configuration; --config " + path.string() + " takes it";
            return std::nullopt;
        }
        std::fprintf(stderr, "%s: the configuration is %s\n", program, path.c_str());
        return path;
    }
    return "";
}

}  // namespace rove::datapath
