// SPDX-License-Identifier: Apache-2.0
// Small files and folders. The streams and <filesystem> of C++ would reach the C library by its global names, which a
// program may have preloaded something for (libc.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rove {

// All that the file contains. Nothing and errno if it cannot be read.
std::optional<std::string> content_of(const std::string& file);
// The first line of the file, without its end; "" if it cannot be read.
std::string first_line_of(const std::string& file);
// The names of what is in the folder, but for "." and ".."; none if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);
// Where the symbolic link leads; "" if it is none.
std::string target_of(const std::string& link);
bool is_directory(const std::string& path);

// Makes the folder and those above it, as far as they are not there.
void make_folders(const std::string& folder);
// Removes the file, or the folder and all that is in it. Symbolic links are not followed.
void remove_all(const std::string& path);

}  // namespace rove
