// SPDX-License-Identifier: Apache-2.0
// Tests which transport and devices a request gets.
#include "tent/placement/transport_selector.h"

#include <gtest/gtest.h>

#include <set>

#include "tent/config/config.h"

namespace rove::tent {
namespace {

// The complete example of the document.
constexpr const char* kExample = R"([[policy]]
name = "high_priority_local"
segment_type = "memory"
same_machine = true
priority = "high"
transports = ["nvlink", "shm"]

[[policy]]
name = "high_priority_remote"
segment_type = "memory"
same_machine = false
priority = "high"
local_memory = "cuda"
remote_memory = "cuda"
devices = ["mlx5_0", "mlx5_1", "mlx5_2"]
transports = ["rdma"]

[[policy]]
name = "medium_priority"
segment_type = "memory"
priority = "medium"
transports = ["rdma"]

[[policy]]
name = "bulk_transfer"
segment_type = "memory"
priority = "low"
min_size = 104857600
transports = ["rdma", "tcp"]

[[policy]]
name = "file_ops"
segment_type = "file"
transports = ["gds", "io_uring"]
)";

class TransportSelectorTest : public testing::Test {
  protected:
    // The transports that rove has without a GPU.
    std::set<Transport> available_{Transport::RDMA, Transport::SHM, Transport::TCP, Transport::IOURING};
    std::vector<std::string> devices_{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};

    Status create(const std::string& text, std::optional<TransportSelector>* out) {
        Config config;
        const Status status = Config::parse(text, "t.toml", {}, &config);
        if (!status.ok()) return status;
        return TransportSelector::create(std::move(config.policies), devices_, config.strict, out);
    }
    TransportSelector selector(const std::string& text) {
        std::optional<TransportSelector> made;
        const Status status = create(text, &made);
        EXPECT_TRUE(status.ok()) << status.ToString();
        return std::move(*made);
    }
    // Returns "POLICY: TRANSPORT, MASK", or the code of the error.
    std::string chosen(const TransportSelector& selector, SelectionContext request, uint32_t attempt = 0) const {
        for (const Transport transport : available_)
            if (transport != Transport::SHM || request.same_machine)
                request.available |= 1u << static_cast<unsigned>(transport);
        Selection selection;
        const Status status = selector.select(request, attempt, &selection);
        if (!status.ok()) return name(status.code());
        char mask[32];
        std::snprintf(mask, sizeof(mask), "%llx", static_cast<unsigned long long>(selection.device_mask));
        return (selection.policy == nullptr ? "default" : selection.policy->name) + ": " + name(selection.transport) +
               ", " + (selection.device_mask == ~uint64_t{0} ? "all" : mask);
    }
};

TEST_F(TransportSelectorTest, EachPolicyOfTheDocumentsExample) {
    const TransportSelector example = selector(kExample);
    EXPECT_EQ(chosen(example, {.same_machine = true, .bytes = 4096}), "high_priority_local: shm, all");
    EXPECT_EQ(chosen(example, {.local_memory = MemoryKind::kCuda, .remote_memory = MemoryKind::kCuda, .bytes = 4096}),
              "high_priority_remote: rdma, 7");
    EXPECT_EQ(chosen(example, {.bytes = 4096, .priority = Priority::kMedium}), "medium_priority: rdma, all");
    const SelectionContext bulk{.bytes = 104'857'600, .priority = Priority::kLow};
    EXPECT_EQ(chosen(example, bulk), "bulk_transfer: rdma, all");
    EXPECT_EQ(chosen(example, bulk, 1), "bulk_transfer: tcp, all");
    EXPECT_EQ(chosen(example, {.segment_type = SegmentType::kFile}), "file_ops: io_uring, all");
    // No policy matches, so the default order applies.
    EXPECT_EQ(chosen(example, {.bytes = 104'857'599, .priority = Priority::kLow}), "default: rdma, all");
    EXPECT_EQ(chosen(example, {.bytes = 4096}), "default: rdma, all");
    available_.insert(Transport::NVLINK);
    EXPECT_EQ(chosen(example, {.same_machine = true}), "high_priority_local: nvlink, all");
}

TEST_F(TransportSelectorTest, DevicesOfAPolicyAreBitsInTheOrderOfTheDevices) {
    const std::string policy = "[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\ntransports = [\"rdma\"]\n";
    EXPECT_EQ(chosen(selector(policy + "devices = [\"mlx5_0\"]\n"), {}), "p: rdma, 1");
    EXPECT_EQ(chosen(selector(policy + "devices = [\"mlx5_2\", \"mlx5_1\"]\n"), {}), "p: rdma, 6");
    EXPECT_EQ(chosen(selector(policy + "devices = []\n"), {}), "p: rdma, all");
}

TEST_F(TransportSelectorTest, T15_UnknownDevicesAndNamesTwiceAreErrorsOfTheKey) {
    const std::string policy = "[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\n";
    std::optional<TransportSelector> made;
    Status status = create(policy + "devices = [\"mlx5_0\", \"mlx5_9\"]\n", &made);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "t.toml:4: key 'policy[0].devices': got \"mlx5_9\", allowed mlx5_0, mlx5_1, mlx5_2, mlx5_3");
    status = create(policy + policy, &made);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message().rfind("t.toml:5: key 'policy[1].name': got \"p\" again", 0), 0u) << status.message();
    EXPECT_FALSE(made.has_value());
    // A mask has 64 bits.
    for (int i = 4; i < 70; ++i) devices_.push_back("mlx5_" + std::to_string(i));
    EXPECT_TRUE(create(policy + "devices = [\"mlx5_63\"]\n", &made).ok());
    EXPECT_FALSE(create(policy + "devices = [\"mlx5_64\"]\n", &made).ok());
}

TEST_F(TransportSelectorTest, SizesAreInclusiveAndPrioritiesExact) {
    const TransportSelector made = selector(
        "[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\nmin_size = 10\nmax_size = 20\npriority = \"medium\"\n"
        "transports = [\"tcp\"]\n");
    const auto of = [&](uint64_t bytes, Priority priority) {
        return chosen(made, {.bytes = bytes, .priority = priority}).substr(0, 2) == "p:";
    };
    EXPECT_FALSE(of(9, Priority::kMedium));
    EXPECT_TRUE(of(10, Priority::kMedium));
    EXPECT_TRUE(of(20, Priority::kMedium));
    EXPECT_FALSE(of(21, Priority::kMedium));
    EXPECT_FALSE(of(15, Priority::kHigh));
    EXPECT_FALSE(of(15, Priority::kLow));
}

TEST_F(TransportSelectorTest, FirstPolicyThatMatchesDecidesEvenIfItHasNothingAvailable) {
    const TransportSelector made = selector(
        "[[policy]]\nname = \"a\"\nsegment_type = \"memory\"\ntransports = [\"gds\"]\n"
        "[[policy]]\nname = \"b\"\nsegment_type = \"memory\"\ntransports = [\"tcp\"]\n");
    Selection selection;
    const Status status = made.select({}, 0, &selection);
    EXPECT_EQ(status.code(), Code::kDeviceNotFound);
    EXPECT_EQ(status.message(), "policy \"a\": attempt 1: no transport is available in gds");
}

TEST_F(TransportSelectorTest, T16_WithoutAPolicyTheDefaultOrderOfTheSegmentType) {
    const TransportSelector made = selector("");
    EXPECT_EQ(chosen(made, {.same_machine = true}, 0), "default: rdma, all");
    EXPECT_EQ(chosen(made, {.same_machine = true}, 1), "default: shm, all");
    EXPECT_EQ(chosen(made, {.same_machine = true}, 2), "default: tcp, all");
    EXPECT_EQ(chosen(made, {.same_machine = false}, 1), "default: tcp, all");
    EXPECT_EQ(chosen(made, {.same_machine = false}, 2), "DeviceNotFound");
    EXPECT_EQ(chosen(made, {.segment_type = SegmentType::kFile}, 0), "default: io_uring, all");
    EXPECT_EQ(chosen(made, {.segment_type = SegmentType::kFile}, 1), "default: rdma, all");
    // A policy without transports sets the devices and keeps the default order.
    EXPECT_EQ(chosen(selector("[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\ndevices = [\"mlx5_1\"]\n"), {}),
              "p: rdma, 2");
}

TEST_F(TransportSelectorTest, T16_StrictMakesItAnError) {
    const TransportSelector made = selector(std::string("strict = true\n") + kExample);
    EXPECT_EQ(chosen(made, {.bytes = 4096, .priority = Priority::kLow}), "InvalidArgument");
    EXPECT_EQ(chosen(made, {.priority = Priority::kMedium}), "medium_priority: rdma, all");
}

TEST_F(TransportSelectorTest, TransportIndexCountsWhatIsAvailable) {
    const TransportSelector made = selector(
        "[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\ntransports = [\"nvlink\", \"rdma\", \"shm\", \"tcp\"]\n");
    EXPECT_EQ(chosen(made, {}, 0), "p: rdma, all");
    EXPECT_EQ(chosen(made, {}, 1), "p: tcp, all");
    available_.erase(Transport::RDMA);
    EXPECT_EQ(chosen(made, {}, 0), "p: tcp, all");
}

TEST_F(TransportSelectorTest, T17_HintIsTheFirstAttemptAndNoLaterOne) {
    const TransportSelector made = selector(
        "[[policy]]\nname = \"p\"\nsegment_type = \"memory\"\ndevices = [\"mlx5_3\"]\ntransports = [\"rdma\", "
        "\"tcp\"]\n");
    const SelectionContext to_tcp{.hint = Transport::TCP};
    EXPECT_EQ(chosen(made, to_tcp, 0), "p: tcp, 8");
    EXPECT_EQ(chosen(made, to_tcp, 1), "p: rdma, 8");
    EXPECT_EQ(chosen(made, to_tcp, 2), "DeviceNotFound");
    // The hint need not be in the policy's list.
    const SelectionContext to_shm{.same_machine = true, .hint = Transport::SHM};
    EXPECT_EQ(chosen(made, to_shm, 0), "p: shm, 8");
    EXPECT_EQ(chosen(made, to_shm, 1), "p: rdma, 8");
    EXPECT_EQ(chosen(made, to_shm, 2), "p: tcp, 8");
    Selection selection;
    const Status status = made.select({.hint = Transport::NVLINK}, 0, &selection);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), "transport_hint: nvlink is not available for this request");
}

TEST_F(TransportSelectorTest, PolicyByNameBypassesItsFilters) {
    const TransportSelector example = selector(kExample);
    EXPECT_EQ(chosen(example, {.bytes = 1, .policy_name = "bulk_transfer"}), "bulk_transfer: rdma, all");
    EXPECT_EQ(chosen(example, {.policy_name = "high_priority_remote"}), "high_priority_remote: rdma, 7");
    EXPECT_EQ(chosen(example, {.policy_name = "file_ops"}), "InvalidArgument") << "of another segment type";
    EXPECT_EQ(chosen(example, {.policy_name = "bulk"}), "InvalidArgument");
}

TEST(Types, NamesAndNumbersAreTheDocumentedOnes) {
    EXPECT_EQ(static_cast<int>(Transport::RDMA), 1);
    EXPECT_EQ(static_cast<int>(Transport::TCP), 7);
    EXPECT_EQ(static_cast<int>(Transport::MPCOMM), 12);
    for (uint8_t id = 1; id < kTransports; ++id) {
        const auto transport = static_cast<Transport>(id);
        EXPECT_EQ(parse_transport(name(transport)), transport);
    }
    EXPECT_STREQ(name(Transport::IOURING), "io_uring");
    EXPECT_EQ(parse_transport("unspec"), std::nullopt);
    EXPECT_EQ(parse_priority("Medium"), Priority::kMedium);
    EXPECT_EQ(to_priority(3), std::nullopt);
    EXPECT_EQ(to_priority(-1), std::nullopt);
    EXPECT_EQ(Status(Code::kTooManyRequests, "full").ToString(), "TooManyRequests: full");
    EXPECT_EQ(Status().ToString(), "Ok");
    EXPECT_EQ(static_cast<int>(Code::kRpcServiceError), 132);
    EXPECT_STREQ(name(TransferStatusEnum::TIMEOUT), "TIMEOUT");
}

}  // namespace
}  // namespace rove::tent
