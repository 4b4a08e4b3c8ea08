// SPDX-License-Identifier: Apache-2.0
// Tests programs that were written for Mooncake's TENT: the names that they forward-declare, include, use and call all
// exist.
namespace mooncake::tent {
class TransferEngine;
enum class IntentType : int;
}  // namespace mooncake::tent

#include <gtest/gtest.h>

#include <sstream>

#include "tent/common/config.h"
#include "tent/common/status.h"
#include "tent/common/types.h"
#include "tent/transfer_engine.h"

namespace mooncake {

struct Request {};  // names of another namespace do not conflict
struct Status {};

namespace tent {
namespace {

TEST(MooncakeNames, ConfigKeepsWhatIsSet) {
    Config config;
    config.set("transports/rdma/enable", false);
    config.set("transports/rdma/workers/block_size", 131072);
    config.set("topology/rdma_whitelist", std::vector<std::string>{"rove0"});
    config.set("local_segment_name", "a");
    EXPECT_FALSE(config.get("transports/rdma/enable", true));
    EXPECT_EQ(config.get("transports/rdma/workers/block_size", 1), 131072);
    EXPECT_EQ(config.getArray<std::string>("topology/rdma_whitelist"), std::vector<std::string>{"rove0"});
    EXPECT_EQ(config.get("local_segment_name", "b"), "a");
    EXPECT_EQ(config.get("nobody/set/this", "b"), "b");
    EXPECT_EQ(config.get("local_segment_name", 7), 7) << "not a number";
    EXPECT_TRUE(config.contains("transports/rdma"));
    EXPECT_FALSE(config.contains("transports/tcp"));
    std::string text;
    EXPECT_TRUE(config.dumpSubtree("transports/rdma/workers", &text));
    EXPECT_EQ(text, R"({"block_size":131072})");
    for (const auto& [given, expected] : {std::pair("TRUE", "true"), {"12", "12"}, {"12x", "\"12x\""}, {"", "\"\""}}) {
        config.setFromString("key", given);
        EXPECT_TRUE(config.dumpSubtree("key", &text));
        EXPECT_EQ(text, expected);
    }
}

TEST(MooncakeNames, ConfigReadsJson) {
    Config config;
    ASSERT_TRUE(config.load(R"({"a": {"b": 1}, "a/c": 2, "d": null})").ok());
    EXPECT_EQ(config.get("a/b", 0), 1);
    EXPECT_EQ(config.get("a/c", 0), 2) << "a path as a key";
    EXPECT_FALSE(config.contains("d"));
    EXPECT_TRUE(config.load("{").IsInvalidArgument());
    EXPECT_EQ(config.get("a/b", 0), 1) << "as it was";
    EXPECT_TRUE(config.loadFile("/nowhere").IsInvalidArgument());
}

TEST(MooncakeNames, AnEngineTakesAConfig) {
    auto config = std::make_shared<Config>();
    config->set("rpc_server_hostname", "127.0.0.1");
    config->set("transports/rdma/enable", false);
    config->set("transports/nvlink/enable", false);
    TransferEngine engine(config);
    ASSERT_TRUE(engine.available()) << engine.startStatus();
    EXPECT_EQ(engine.getSegmentName().rfind("127.0.0.1:", 0), 0u);

    void* memory = nullptr;
    MemoryOptions options;
    options.location = kWildcardLocation;
    options.perm = kGlobalReadWrite;
    options.type = UNSPEC;
    ASSERT_TRUE(engine.allocateLocalMemory(&memory, 8192, options).ok());
    std::string handle;
    SegmentID segment = 99;
    ASSERT_TRUE(engine.exportLocalSegment(handle).ok());
    ASSERT_TRUE(engine.importRemoteSegment(segment, handle).ok());
    EXPECT_EQ(segment, LOCAL_SEGMENT_ID);
    SegmentInfo info;
    ASSERT_TRUE(engine.getSegmentInfo(segment, info).ok());
    EXPECT_EQ(info.type, SegmentInfo::Memory);

    tent::Request request{};
    request.opcode = tent::Request::WRITE;
    request.source = memory;
    request.target_id = segment;
    request.target_offset = info.buffers[0].base + 4096;
    request.length = 4096;
    request.priority = PRIO_LOW;
    request.transport_hint = SHM;
    request.intent_type = IntentType::CHECKPOINT;
    EXPECT_FALSE(request.policy_name.has_value());
    const BatchID batch = engine.allocateBatch(1);
    ASSERT_TRUE(engine.submitTransfer(batch, {request}).ok());
    TransferStatus status;
    do ASSERT_TRUE(engine.progressBatch(batch, status).ok());
    while (status.s == PENDING);
    EXPECT_EQ(status.s, TransferStatusEnum::COMPLETED);
    EXPECT_TRUE(engine.freeBatch(batch).ok());
    EXPECT_TRUE(engine.freeLocalMemory(memory).ok());

    config->set("no_such_key", 1);
    const TransferEngine refused(config);
    EXPECT_FALSE(refused.available());
    EXPECT_TRUE(refused.startStatus().IsInvalidArgument());
}

TEST(MooncakeNames, StatusesAndTransportsHaveNames) {
    const tent::Status status = tent::Status::TooManyRequests("full");
    EXPECT_EQ(status.code(), tent::Status::Code::kTooManyRequests);
    EXPECT_TRUE(status.IsTooManyRequests() && !status.IsRdmaError());
    EXPECT_EQ(status.ToString(), "TooManyRequests: full");
    EXPECT_EQ(tent::Status::OK(), tent::Status());
    std::ostringstream out;
    out << status;
    EXPECT_EQ(out.str(), status.ToString());
    for (int i = 0; i < kSupportedTransportTypes; ++i)
        EXPECT_EQ(parseTransportType(transportTypeName(static_cast<TransportType>(i))), i);
    EXPECT_STREQ(transportTypeName(AscendDirect), "ascend");
    EXPECT_EQ(parseTransportType("pigeon"), UNSPEC);
    EXPECT_EQ(static_cast<int>(MPCOMM), static_cast<int>(TRANSPORT_MPCOMM));
    EXPECT_EQ(static_cast<int>(FAILED), static_cast<int>(STATUS_FAILED));
}

}  // namespace
}  // namespace tent
}  // namespace mooncake
