// SPDX-License-Identifier: Apache-2.0
// The provider of this process (verbs/process_provider.h), created at first use.
#include <cxxabi.h>
#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "rdmacm/server.h"
#include "verbs/process_provider.h"

namespace rove::verbs {

namespace {

// Never destroyed, because programs may call verbs in their last destructors. stop() ends what must end.
std::atomic<Provider*> made{nullptr};

std::vector<std::string> split(const char* text, char at) {
    std::vector<std::string> words;
    std::istringstream all(text != nullptr ? text : "");
    for (std::string word; std::getline(all, word, at);)
        if (!word.empty()) words.push_back(word);
    return words;
}

// Returns null if there are no rove devices, and "" if rove-run found no file or was given interfaces.
const char* configuration_file() {
    return secure_getenv("ROVE_CONFIG");
}

// Returns false if the process has no free descriptor to read the file, so that a later call may succeed.
bool can_read(const char* file) {
    const FileDescriptor opened(open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    return opened.is_open() || (errno != EMFILE && errno != ENFILE);
}

std::optional<datapath::Config> configuration() {
    const char* file = configuration_file();
    if (file == nullptr) return std::nullopt;
    std::string error;
    std::optional<datapath::Config> config =
        *file == '\0' ? datapath::Config::built_in(split(secure_getenv("ROVE_INTERFACES"), ','))
                      : datapath::Config::load(file, &error);
    if (!config) {
        std::fprintf(stderr, "rove: %s\n", error.c_str());
        return std::nullopt;
    }
    for (const std::string& word : split(secure_getenv("ROVE_EAL"), ' ')) config->eal_args.push_back(word);
    return config;
}

void before_fork() {
    ucma::before_fork();  // first, because commands of rdma_cm take the other locks
    fork_mutex().lock();
    if (Provider* provider = made.load()) provider->before_fork();
}

void after_fork_in_parent() {
    if (Provider* provider = made.load()) provider->after_fork_in_parent();
    fork_mutex().unlock();
    ucma::after_fork_in_parent();
}

void after_fork_in_child() {
    leave_lists_in_child();
    if (Provider* provider = made.load()) provider->after_fork_in_child();
    fork_mutex().unlock();
    ucma::after_fork_in_child();
}

__attribute__((constructor)) void watch_forks() {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void stop(void*) {
    Provider* const provider = made.load();
    if (provider == nullptr || provider->is_forked_child()) return;
    ucma::stop();
    provider->stop();
}

// exit() runs its handlers in reverse order of registration, and a library's destructors are registered after its
// constructors have run. So this handler runs last, and destructors and atexit handlers of other libraries may still
// use devices. It is registered for no library, because a library's unloading would call it.
__attribute__((constructor(kFirstConstructor))) void stop_at_exit() {
    abi::__cxa_atexit(stop, nullptr, nullptr);
}

}  // namespace

std::mutex& fork_mutex() {
    static constinit std::mutex mutex;
    return mutex;
}

Provider& provider() {
    if (Provider* provider = made.load(std::memory_order_acquire)) return *provider;
    const std::lock_guard guard(fork_mutex());
    if (Provider* provider = made.load(std::memory_order_relaxed)) return *provider;
    const char* const file = configuration_file();
    if (file != nullptr && *file != '\0' && !can_read(file)) {
        static Provider& none = *new Provider(std::nullopt);  // until a descriptor is free
        return none;
    }
    made.store(new Provider(configuration()), std::memory_order_release);
    return *made.load(std::memory_order_relaxed);
}

}  // namespace rove::verbs
