// SPDX-License-Identifier: Apache-2.0
// See real.h.
#include "preload/real.h"

#include <link.h>
#include <sys/stat.h>

#include <string>
#include <vector>

namespace rove::verbs {

namespace {

// Calls the C library's dlopen(), and not the hook in dlopen.cc.
void* open_library(const char* file, int mode) {
    static const auto next = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_NEXT, "dlopen"));
    return next != nullptr ? next(file, mode) : nullptr;
}

bool is_file(const char* file, const struct stat& other) {
    struct stat status;
    return stat(file, &status) == 0 && status.st_dev == other.st_dev && status.st_ino == other.st_ino;
}

void* find_installed() {
    Dl_info own{};
    struct stat found;
    // The own link map comes from dladdr1() and not from dlopen(), which would run the constructors of this library's
    // dependencies. One of those may have called this function.
    link_map* handle = nullptr;
    if (dladdr1(reinterpret_cast<void*>(&find_installed), &own, reinterpret_cast<void**>(&handle), RTLD_DL_LINKMAP) ==
        0)
        return nullptr;
    Dl_serinfo size{};
    if (dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) != 0) return nullptr;
    std::vector<uint64_t> room(size.dls_size / sizeof(uint64_t) + 1);
    auto* const folders = reinterpret_cast<Dl_serinfo*>(room.data());
    *folders = size;
    if (dlinfo(handle, RTLD_DI_SERINFO, folders) != 0) return nullptr;
    for (unsigned i = 0; i < folders->dls_cnt; ++i) {
        const std::string file = std::string(folders->dls_serpath[i].dls_name) + "/libibverbs.so.1";
        if (stat(file.c_str(), &found) != 0 || is_file(own.dli_fname, found)) continue;
        // It is opened by its path, because rove's library may have the same name.
        if (void* const library = open_library(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
    return nullptr;
}

}  // namespace

void* installed_libibverbs() {
    static void* const library = find_installed();
    return library;
}

}  // namespace rove::verbs
