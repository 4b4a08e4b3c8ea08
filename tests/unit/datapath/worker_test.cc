// SPDX-License-Identifier: Apache-2.0
// Rounds of a worker whose port has a full burst of frames each time.
#include <gtest/gtest.h>
#include <unistd.h>

#include "datapath/runtime.h"
#include "datapath/worker_core.h"

namespace rove::datapath {
namespace {

class NobodyListens : public Listener {
    void notify(transport::CompletionQueue&) override {}
    void event(ibv_event_type, transport::QueuePair&) override {}
    void event(ibv_event_type, transport::CompletionQueue&) override {}
    void event(ibv_event_type, transport::SharedRecvQueue&) override {}
    void port_event(ibv_event_type, const Device&) override {}
};

// Twins beside what the port gave, or what has waited: more than a port gives at once.
TEST(WorkerTest, TakesAllThatAnImpairmentGives) {
    static NobodyListens listener;
    static Runtime* runtime;  // never destroyed
    Config config;
    config.file = "worker_test";
    DeviceConfig device;
    device.port = "net_null0";  // its frames are no RoCE
    device.addresses = {"10.9.0.1/24"};
    device.impair.device.duplicate = 1;
    config.devices.push_back(device);
    std::string error;
    runtime = Runtime::start(config, listener, &error);
    ASSERT_NE(runtime, nullptr) << error;
    for (const char* changes : {"duplicate=1", "delay_us=100"}) {
        EXPECT_EQ(runtime->impair(*runtime->devices()[0], std::nullopt, changes), "");
        Worker& worker = *runtime->workers()[0];
        const Worker::Hold hold(worker);
        const uint64_t& taken = worker.core().counters().parse[static_cast<size_t>(wire::ParseError::kNotRoce)];
        const uint64_t before = taken, until_ns = runtime->now_ns() + 5'000'000'000;
        uint32_t most = 0;
        for (uint32_t i = 1; taken < before + 10'000 && runtime->now_ns() < until_ns; ++i) {
            most = std::max(most, worker.core().round());
            if (i % 16 == 0) usleep(200);  // what the rounds before left waiting is due at once
        }
        EXPECT_GE(taken, before + 10'000) << changes;
        EXPECT_GT(most, WorkerCore::kRxBurst) << changes;
    }
    runtime->stop();
}

}  // namespace
}  // namespace rove::datapath
