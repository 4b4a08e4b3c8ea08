// SPDX-License-Identifier: Apache-2.0
// The type 2 memory windows that are bound to a QP, so that they end with it. The links are in the windows (memory.h).
#pragma once

#include <mutex>

#include "base/spin_lock.h"

namespace rove::transport {

class Window;

class WindowList {
  public:
    // Called by the thread that changes the window's binding, with its lock held.
    void add(Window& window);
    void remove(Window& window);
    // Returns one of them, or null. Any thread may call it.
    Window* first() const {
        const std::lock_guard guard(lock_);
        return first_;
    }

  private:
    mutable SpinLock lock_;  // windows of one QP are bound by its worker and deallocated by other threads
    Window* first_ = nullptr;
};

}  // namespace rove::transport
