// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace rove {

namespace {

std::vector<std::string> names_of(DIR* folder) {
    std::vector<std::string> names;
    while (const dirent* const entry = readdir(folder)) {
        std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(std::move(name));
    }
    return names;
}

void remove_in(int parent, const char* name) {
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return;
    const int file = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) return;
    DIR* const folder = fdopendir(file);
    if (folder == nullptr) {
        close(file);
        return;
    }
    for (const std::string& inner : names_of(folder)) remove_in(file, inner.c_str());
    closedir(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

}  // namespace

std::optional<std::string> content_of(const std::string& file) {
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return std::nullopt;
    std::string content;
    std::array<char, 4096> part;
    ssize_t bytes;
    while ((bytes = read(descriptor, part.data(), part.size())) > 0 || (bytes < 0 && errno == EINTR))
        if (bytes > 0) content.append(part.data(), static_cast<size_t>(bytes));
    const int reason = errno;
    close(descriptor);
    errno = reason;
    return bytes < 0 ? std::nullopt : std::optional(std::move(content));
}

std::string first_line_of(const std::string& file) {
    const std::string content = content_of(file).value_or("");
    return content.substr(0, content.find('\n'));
}

std::vector<std::string> names_in(const std::string& folder) {
    DIR* const opened = opendir(folder.c_str());
    if (opened == nullptr) return {};
    std::vector<std::string> names = names_of(opened);
    closedir(opened);
    return names;
}

std::string target_of(const std::string& link) {
    std::array<char, PATH_MAX> target;
    const ssize_t bytes = readlink(link.c_str(), target.data(), target.size());
    return bytes < 0 ? std::string() : std::string(target.data(), static_cast<size_t>(bytes));
}

bool is_directory(const std::string& path) {
    struct stat status;
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

void make_folders(const std::string& folder) {
    for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
        mkdir(folder.substr(0, end).c_str(), 0777);
        if (end == folder.npos) return;
    }
}

void remove_all(const std::string& path) {
    remove_in(AT_FDCWD, path.c_str());
}

}  // namespace rove
