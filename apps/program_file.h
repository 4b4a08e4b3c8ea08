// SPDX-License-Identifier: Apache-2.0
// What the file of a program tells before it is run: whether the dynamic loader will preload a library into it.
#pragma once

#include <string>

namespace rove {

// The file that execvp() would run; "" if it would find none.
std::string find_program(const std::string& name);

struct NotPreloaded {
    std::string why;       // "": it is preloaded, or this cannot be told
    bool refuses = false;  // the program does not even start with the library in LD_PRELOAD
};

// Why a library of ours in LD_PRELOAD is not loaded with the program in `file` or, if that is a script, with its
// interpreter. What such a program starts may still get the library.
NotPreloaded why_not_preloaded(const std::string& file);

}  // namespace rove
