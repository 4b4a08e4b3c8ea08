// SPDX-License-Identifier: Apache-2.0
// Implements rove-run, which runs a verbs program with rove's devices by preloading librove-verbs.so.
//
// The exit status is the program's own, 2 after a wrong command line or configuration, 126 if the program cannot be
// run, and 127 if it is not found, like in a shell.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "program_file.h"
#include "runtime/config.h"
#include "runtime/config_file.h"

namespace {

namespace fs = std::filesystem;

constexpr int kBadUsage = 2, kCannotRun = 126, kNotFound = 127;
constexpr const char* kLibrary = "librove-verbs.so";
constexpr const char* kLibibverbs = "libibverbs.so.1";

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "rove-run: %s\n", why.c_str());
    std::exit(kBadUsage);
}

// Returns the path of the configuration, or "" for the built-in one.
fs::path find_config(const std::string& given) {
    std::error_code failure;
    if (given.empty()) {
        std::string error;
        const auto found = rove::datapath::find_config_file("rove-run", &error);
        if (!found) refuse(error);
        return *found;
    }
    if (!fs::exists(given, failure)) refuse("no configuration file " + given);
    if (!fs::is_regular_file(given, failure)) refuse("the configuration " + given + " is not a regular file");
    return fs::absolute(given);
}

// Returns the path of the library to preload: in the build tree it lies next to the folder of this program, and after
// an installation in the library folder of the same prefix.
fs::path find_library(bool libibverbs) {
    std::error_code ignored;
    const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    const fs::path built = libibverbs ? fs::path("ibverbs") / kLibibverbs : fs::path(kLibrary);
    const fs::path installed = libibverbs ? fs::path("rove/ibverbs") / kLibibverbs : fs::path(kLibrary);
    const fs::path candidates[] = {here / "../lib/preload" / built, here / ".." / ROVE_LIBDIR / installed};
    for (const fs::path& candidate : candidates) {
        if (fs::is_regular_file(candidate, ignored)) return fs::canonical(candidate);
    }
    refuse("neither " + candidates[0].lexically_normal().string() + " nor " +
           candidates[1].lexically_normal().string() + " exists");
}

// Appends the library to LD_PRELOAD. Sanitizers' runtimes and allocators that are named there must come first, and need
// no libibverbs.
void append_to_preload(const std::string& library) {
    // Blanks and colons separate the libraries that LD_PRELOAD names, and ld.so expands the words after a '$'.
    if (library.find_first_of(" :$") != std::string::npos)
        refuse("LD_PRELOAD cannot name " + library + ": it lies in a folder with a blank, ':' or '$' in its name");
    const char* present = std::getenv("LD_PRELOAD");
    const std::string value = present != nullptr && *present != '\0' ? present + (":" + library) : library;
    setenv("LD_PRELOAD", value.c_str(), 1);
    // A program built with gcc's -fsanitize=address refuses to run if its runtime comes after another library. The
    // check is unnecessary here, because rove replaces no function of the allocator. The user's own options come last
    // and win.
    const char* options = std::getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS",
           (std::string("verify_asan_link_order=0") + (options != nullptr ? ":" : "") +
            (options != nullptr ? options : ""))
               .c_str(),
           1);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "Runs a verbs program with rove's devices: rove0, rove1, ... appear in addition to hardware devices. Without\n"
        "a configuration there is one, rove0, and all programs that you run this way are hosts on one network.\n"
        "rove-run [--config FILE | --interface NAME] [--eal \"ARGS\"] -- PROGRAM [ARGS...]"};
    std::string config_file, eal;
    std::vector<std::string> interfaces;
    app.add_option("--config", config_file,
                   "TOML configuration; default: ./rove.toml, then /etc/rove/rove.toml, then a mesh");
    app.add_option("--interface", interfaces,
                   "network interface to share with the kernel, with its addresses; repeat for more devices")
        ->allow_extra_args(false)
        ->excludes("--config");
    app.add_option("--eal", eal, "further EAL arguments, separated by blanks");
    bool libibverbs = false;
    app.add_flag("--libibverbs", libibverbs,
                 "replace libibverbs.so.1 instead of preceding it, for plug-ins that are opened with RTLD_DEEPBIND");
    // The words after our own options are the program and its arguments, and must stay unchanged. An option of CLI11
    // that takes several values would split "[a,b]" in two.
    app.prefix_command();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kBadUsage;
    }
    std::vector<std::string> command = app.remaining();
    const bool is_marked = !command.empty() && command.front() == "--";
    if (is_marked) command.erase(command.begin());
    if (command.empty()) refuse("PROGRAM is required");
    if (!is_marked && command.front().starts_with('-')) refuse("unknown option " + command.front());

    const fs::path config = interfaces.empty() ? find_config(config_file) : fs::path();
    std::string error;
    if (!config.empty() && !rove::datapath::Config::load(config.string(), &error)) refuse(error);
    setenv("ROVE_CONFIG", config.c_str(), 1);
    setenv("ROVE_INTERFACES", CLI::detail::join(interfaces, ",").c_str(), 1);
    if (!eal.empty()) setenv("ROVE_EAL", eal.c_str(), 1);
    const auto [why, refuses] = rove::why_not_preloaded(rove::find_program(command[0]));
    if (!why.empty()) std::fprintf(stderr, "rove-run: %s: it has no rove devices\n", why.c_str());
    if (!refuses) append_to_preload(find_library(libibverbs).string());

    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const int reason = errno;
    std::fprintf(stderr, "rove-run: %s: %s\n", command[0].c_str(), std::strerror(reason));
    return reason == ENOENT ? kNotFound : kCannotRun;
}
