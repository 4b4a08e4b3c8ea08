// SPDX-License-Identifier: Apache-2.0
// Inspects a program's file before it runs: will the dynamic loader preload a library into it?
#pragma once

#include <string>

namespace rove {

// Returns the file that execvp() would run, or "" if it would find none.
std::string find_program(const std::string& name);

struct NotPreloaded {
    std::string why;       // the reason, or "" if the library is preloaded or the file does not tell
    bool refuses = false;  // the program does not even start with the library in LD_PRELOAD
};

// Returns the reason why a library in LD_PRELOAD is not loaded with the program in `file` or, if the file is a script,
// with its interpreter. Programs that such a program starts may still get the library.
NotPreloaded why_not_preloaded(const std::string& file);

}  // namespace rove
