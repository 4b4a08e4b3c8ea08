// SPDX-License-Identifier: Apache-2.0
// The devices of a configuration and the datapath behind them, which starts when the first device is opened and stops
// when the process exits. Its events reach the objects that they belong to here.
//
// A forked child inherits the memory of the datapath, but none of its threads, and what it shares with the parent (the
// ports' rings, the packet pool) must not be touched by two. So in the child of a process whose datapath had started
// there are no devices, and every call on an inherited object fails at once. A child that forked before may open the
// devices itself.
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
    // Without a configuration there are no devices.
    explicit Provider(std::optional<datapath::Config> config);

    // Returns the devices that can be opened: none once the datapath has failed for good, none in a forked child, and
    // none as long as another process has one's port, which is said on stderr once.
    std::span<const std::unique_ptr<Device>> devices() const;
    // Those that can be read about: as with hardware, who has them open does not matter.
    std::span<const std::unique_ptr<Device>> described() const;
    bool owns(const ibv_device* device) const;

    // Starts the datapath unless it runs; any thread. Returns false if this is a forked child, or if the start fails:
    // one line on stderr says why. Another call tries again, unless DPDK's EAL was already started, which works only
    // once.
    bool start();
    // Returns the runtime if threads of the program receive frames themselves when they sleep (Runtime::can_watch()),
    // else null.
    datapath::Runtime* watchable() const;
    // At process exit, after the program's own destructors: its threads may go on, and a library's destructor may still
    // destroy verbs objects.
    void stop();

    void opened(Context& context);
    void closed(Context& context);

    // Called with the number of an RC or UC QP whose peer has sent its first packet, on a worker. Null: nobody wants to
    // know.
    std::atomic<void (*)(uint32_t qpn)> communication_established{nullptr};

    // For pthread_atfork().
    void before_fork() { contexts_mutex_.lock(); }
    void after_fork_in_parent() { contexts_mutex_.unlock(); }
    void after_fork_in_child();
    // Returns true if this is a child that must leave alone what its parent had, whatever made it: a raw clone() runs
    // no handlers of pthread_atfork(). (In such a child, the operations of inherited contexts are not disabled.)
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
    std::string taken() const;  // why no device can be opened: another process has a port; "" if all are free

    const std::optional<datapath::Config> config_;
    std::vector<std::unique_ptr<Device>> devices_;
    mutable std::atomic_flag is_taken_said_;
    std::string said_;  // the last failure of a start
    // kStarting is left with release, after what start() wrote. Not a mutex: one that is held during a fork would stay
    // held in the child.
    std::atomic<State> state_{State::kIdle};
    datapath::Runtime* runtime_ = nullptr;
    pid_t pid_ = 0;  // that started it
    // True in the process that started it. Null until it starts. The kernel clears it in children that have memory of
    // their own, on Linux from 4.14 on.
    std::atomic<const std::atomic<bool>*> is_starter_{nullptr};
    std::mutex contexts_mutex_;
    std::vector<Context*> contexts_;  // that exist, for port events and forks
};

}  // namespace rove::verbs
