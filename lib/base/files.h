// SPDX-License-Identifier: Apache-2.0
// Small files and folders. C++ streams and <filesystem> would call the C library by its global names, which a preloaded
// library may have replaced (libc.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rove {

// Returns everything that the file contains. Returns nothing and sets errno if it cannot be read.
std::optional<std::string> content_of(const std::string& file);
// Returns the first line of the file without its line end, or "" if the file cannot be read.
std::string first_line_of(const std::string& file);
// Returns the names of the entries of the folder except "." and "..", or no names if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);
// Returns the target of the symbolic link, or "" if it is not a symbolic link.
std::string target_of(const std::string& link);
bool is_directory(const std::string& path);

// Makes the folder and its parents where they do not exist.
void make_folders(const std::string& folder);
// Removes the file, or the folder and everything in it. Symbolic links are not followed.
void remove_all(const std::string& path);

}  // namespace rove
