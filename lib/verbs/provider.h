// SPDX-License-Identifier: Apache-2.0
// The devices of a configuration, and the datapath behind them. The datapath starts when the first device is opened and
// stops when the process exits. The provider passes its events to the objects that they concern.
//
// A forked child inherits the datapath's memory without its threads. Two processes must not both touch what the
// datapath shares with the outside: the ports' rings and the packet pool. So the child of a process whose datapath has
// started has no devices, and every call on an inherited object fails at once. A child that was forked before the start
// may open the devices itself.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verbs/objects.h"

namespace rove::verbs {

class Provider final : public datapath::Listener {
  public:
    // Creates the devices of `config`; there are no devices without one.
    explicit Provider(std::optional<datapath::Config> config);

    // Returns the devices that can be opened. The list is empty after the datapath has failed for good, in a forked
    // child, and while another process uses the port of one of them. The last case is reported on stderr once.
    std::span<const std::unique_ptr<Device>> devices() const;
    // Returns the devices whose properties can be read. As with hardware, it does not matter which process has them
    // open.
    std::span<const std::unique_ptr<Device>> described() const;
    bool owns(const ibv_device* device) const;

    // Starts the datapath unless it runs. Any thread may call it. Returns false in a forked child, or if the start
    // fails, which prints one line with the reason on stderr. A later call tries again, unless DPDK's EAL has been
    // started: that works only once.
    bool start();
    // Returns the runtime if threads of the program receive frames themselves while they sleep (Runtime::can_watch()),
    // else null.
    datapath::Runtime* watchable() const;
    // Stops the datapath at process exit, after the program's own destructors. The program's threads may still run, and
    // a library's destructor may still destroy verbs objects.
    void stop();

    void opened(Context& context);
    void closed(Context& context);

    // A function that a worker calls with the number of an RC or UC QP whose peer has sent its first packet; null if
    // unused.
    std::atomic<void (*)(uint32_t qpn)> communication_established{nullptr};

    // Handlers for pthread_atfork().
    void before_fork() { contexts_mutex_.lock(); }
    void after_fork_in_parent() { contexts_mutex_.unlock(); }
    void after_fork_in_child();
    // Returns true in a child that must not touch what its parent had, however it was made: a raw clone() runs no
    // handlers of pthread_atfork(). In a child made like that the operations of inherited contexts are not disabled.
    bool is_forked_child() const {
        if (state_.load(std::memory_order_relaxed) == State::kForkedChild) return true;
        const std::atomic<bool>* const is_starter = is_starter_.load(std::memory_order_acquire);
        return is_starter != nullptr && !is_starter->load(std::memory_order_relaxed);
    }

    void notify(transport::CompletionQueue& cq) override;
    void event(ibv_event_type event, transport::QueuePair& qp) override;
    void event(ibv_event_type event, transport::CompletionQueue& cq) override;
    void event(ibv_event_type event, transport::SharedRecvQueue& srq) override;
    void port_event(ibv_event_type event, const datapath::RdmaInterface& interface) override;

  private:
    enum class State : int { kIdle, kStarting, kRunning, kFailed, kForkedChild };

    std::string run();
    // Returns the reason why no device can be opened because another process uses a port, or "" if all are free.
    std::string taken() const;

    const std::optional<datapath::Config> config_;
    std::vector<std::unique_ptr<Device>> devices_;
    mutable std::atomic_flag is_taken_said_;
    std::string said_;  // the last reason of a failed start
    // kStarting ends with a release store, after start()'s writes. This is not a mutex, because a mutex that is held
    // during a fork stays held in the child.
    std::atomic<State> state_{State::kIdle};
    datapath::Runtime* runtime_ = nullptr;
    pid_t pid_ = 0;  // the process that started it
    // True in the process that started it, and null until then. The kernel clears it in children with memory of their
    // own (Linux 4.14 and later).
    std::atomic<const std::atomic<bool>*> is_starter_{nullptr};
    std::mutex contexts_mutex_;
    std::vector<Context*> contexts_;  // all open contexts, for port events and forks
};

}  // namespace rove::verbs
