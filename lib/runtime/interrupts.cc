// SPDX-License-Identifier: Apache-2.0
// Replaces the rte_intr_callback_* functions.
#define ALLOW_INTERNAL_API  // because the functions replaced here belong to drivers
#include "runtime/interrupts.h"

#include <rte_interrupts.h>
#include <rte_pause.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

// EAL's own functions (the linker's --wrap). All other calls of these names go to the functions below.
extern "C" {
decltype(rte_intr_callback_register) __real_rte_intr_callback_register;
decltype(rte_intr_callback_unregister) __real_rte_intr_callback_unregister;
decltype(rte_intr_callback_unregister_pending) __real_rte_intr_callback_unregister_pending;
}

namespace rove::datapath {

namespace {

// One registration with the values that the driver passed. EAL gets its address as the argument.
struct Registration {
    const rte_intr_handle* handle;
    rte_intr_callback_fn function;
    void* argument;
    bool silenced = false;  // EAL no longer knows it
    rte_intr_unregister_callback_fn released = nullptr;
    bool releasing = false;  // EAL will call release() later; changes only while no thread is inside a driver
    int file = -1;
    ino_t inode = 0;  // inode of `file` at registration
};

// Returns the inode of a file, or 0 if the file is closed.
ino_t inode_of(int file) {
    struct stat found;
    return fstat(file, &found) == 0 ? found.st_ino : 0;
}

thread_local std::vector<Registration*>* made = nullptr;  // registrations made by the callback that is running

class Registrations {
  public:
    Registration& add(const rte_intr_handle* handle, rte_intr_callback_fn function, void* argument) {
        const std::lock_guard lock(mutex_);
        return all_.emplace_back(Registration{handle, function, argument});
    }
    std::vector<Registration*> all() {
        const std::lock_guard lock(mutex_);
        std::vector<Registration*> all;
        for (Registration& one : all_)
            if (!one.releasing) all.push_back(&one);
        return all;
    }
    // Drivers may pass -1 to mean any argument.
    std::vector<Registration*> find(rte_intr_callback_fn function, const void* argument) {
        const std::lock_guard lock(mutex_);
        std::vector<Registration*> found;
        for (Registration& one : all_)
            if (one.function == function && !one.releasing &&
                (argument == reinterpret_cast<void*>(-1) || one.argument == argument))
                found.push_back(&one);
        return found;
    }
    void remove(Registration* registration) {
        if (made != nullptr) std::erase(*made, registration);
        const std::lock_guard lock(mutex_);
        all_.remove_if([&](const Registration& one) { return &one == registration; });
    }

  private:
    std::mutex mutex_;
    std::list<Registration> all_;
};

Registrations& registrations() {
    static Registrations& all = *new Registrations;  // never destroyed: EAL's thread may outlive static objects
    return all;
}

std::mutex guard_mutex;                        // held while a driver's callback runs
WhilePaused& while_paused = *new WhilePaused;  // under guard_mutex; never destroyed, like registrations()
bool silenced = false;                         // under guard_mutex

void call(void* argument);

int unregister(const rte_intr_handle* handle, Registration& registration) {
    return __real_rte_intr_callback_unregister(handle, call, &registration);
}

// Runs the driver's callback, and then unregisters callbacks whose file it has closed. When a peer connects and leaves
// at once, net_memif of 22.11 closes the connection that it has just registered, and frees the argument of its
// callback. EAL's thread would panic because of the closed file.
void run(const Registration& registration) {
    std::vector<Registration*> registered;
    made = &registered;
    registration.function(registration.argument);
    made = nullptr;
    for (Registration* one : registered) {
        if (inode_of(one->file) == one->inode) continue;
        // The driver has freed its own handle.
        rte_intr_handle* const handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
        rte_intr_fd_set(handle, one->file);
        if (unregister(handle, *one) > 0) registrations().remove(one);
        rte_intr_instance_free(handle);
    }
}

void call(void* argument) {
    const auto* registration = static_cast<Registration*>(argument);
    const std::lock_guard lock(guard_mutex);
    if (silenced) return;
    if (!while_paused) {
        run(*registration);
        return;
    }
    while_paused([registration] {
        // If it is being released, a restart of the port came first, and the driver no longer has it.
        if (!registration->releasing) run(*registration);
    });
}

void release(rte_intr_handle* handle, void* argument) {
    auto* registration = static_cast<Registration*>(argument);
    if (registration->released != nullptr) registration->released(handle, registration->argument);
    registrations().remove(registration);
}

}  // namespace

void guard_interrupts(WhilePaused how) {
    const std::lock_guard lock(guard_mutex);
    while_paused = std::move(how);
}

void silence_interrupts() {
    {
        const std::lock_guard lock(guard_mutex);
        silenced = true;
    }
    for (Registration* registration : registrations().all()) {
        int result;
        while ((result = unregister(registration->handle, *registration)) == -EAGAIN) rte_pause();
        registration->silenced = result > 0;
    }
}

}  // namespace rove::datapath

using namespace rove::datapath;

#pragma GCC visibility push(hidden)
extern "C" {

int __wrap_rte_intr_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn function, void* argument) {
    Registration& registration = registrations().add(handle, function, argument);
    registration.file = rte_intr_fd_get(handle);
    registration.inode = inode_of(registration.file);
    const int result = __real_rte_intr_callback_register(handle, call, &registration);
    if (result < 0) {
        registrations().remove(&registration);
    } else if (made != nullptr) {
        made->push_back(&registration);
    }
    return result;
}

int __wrap_rte_intr_callback_unregister(const rte_intr_handle*, rte_intr_callback_fn function, void* argument) {
    int removed = 0;
    for (Registration* registration : registrations().find(function, argument)) {
        const int result = registration->silenced ? 1 : unregister(registration->handle, *registration);
        if (result < 0 && removed == 0) return result;
        if (result > 0) registrations().remove(registration);
        removed += result > 0 ? result : 0;
    }
    return removed;
}

int __wrap_rte_intr_callback_unregister_sync(const rte_intr_handle* handle, rte_intr_callback_fn function,
                                             void* argument) {
    int result;
    while ((result = __wrap_rte_intr_callback_unregister(handle, function, argument)) == -EAGAIN) rte_pause();
    return result;
}

int __wrap_rte_intr_callback_unregister_pending(const rte_intr_handle* handle, rte_intr_callback_fn function,
                                                void* argument, rte_intr_unregister_callback_fn released) {
    int marked = 0;
    for (Registration* registration : registrations().find(function, argument)) {
        registration->released = released;
        if (registration->silenced) {
            release(const_cast<rte_intr_handle*>(handle), registration);
            ++marked;
            continue;
        }
        registration->releasing = true;  // release() removes it
        const int result = __real_rte_intr_callback_unregister_pending(handle, call, registration, release);
        if (result <= 0) registration->releasing = false;
        if (result < 0 && marked == 0) return result;
        marked += result > 0 ? result : 0;
    }
    return marked;
}

}  // extern "C"
#pragma GCC visibility pop
