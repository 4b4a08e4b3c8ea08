// SPDX-License-Identifier: Apache-2.0
// The one datapath of this process: started when a program first asks for devices, stopped when the process exits. Its
// events reach the objects they belong to here.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "verbs/objects.h"

namespace rove::verbs {

class Process final : public datapath::Listener {
  public:
    static Process& instance();

    // Starts the datapath that ROVE_CONFIG describes (with ROVE_EAL's further EAL arguments) unless that was tried
    // before. Without ROVE_CONFIG, or when it fails (one line on stderr says why), there are no devices.
    std::span<const std::unique_ptr<Device>> devices();
    bool owns(const ibv_device* device);

    void opened(Context& context);
    void closed(Context& context);

    // Stops the datapath. At process exit, after the program's own destructors: its threads may go on, and a library's
    // destructor may still destroy verbs objects.
    void stop();

    void notify(transport::CompletionQueue& cq) override;
    void event(ibv_event_type event, transport::QueuePair& qp) override;
    void event(ibv_event_type event, transport::CompletionQueue& cq) override;
    void event(ibv_event_type event, transport::SharedRecvQueue& srq) override;
    void port_event(ibv_event_type event, const datapath::Device& device) override;

  private:
    std::string start();

    std::once_flag once_;
    datapath::Runtime* runtime_ = nullptr;
    std::vector<std::unique_ptr<Device>> devices_;
    int pid_ = 0;  // a forked child has no workers to stop
    std::mutex contexts_mutex_;
    std::vector<Context*> contexts_;  // open ones, for port events
};

}  // namespace rove::verbs
