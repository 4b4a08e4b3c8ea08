// SPDX-License-Identifier: Apache-2.0
// Tests wrong calls of the C functions: they return an error with a text, never crash, and throw no exception.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "rove/tent.h"

namespace {

class TentCApiTest : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(tent_set_config("rpc_server_hostname", "127.0.0.1"), 0);
        ASSERT_EQ(tent_set_config("transports/rdma/enable", "false"), 0);
        engine_ = tent_create_engine();
        ASSERT_NE(engine_, nullptr) << tent_last_error();
    }
    void TearDown() override { tent_destroy_engine(engine_); }

    tent_engine_t engine_ = nullptr;
    alignas(4096) char memory_[8192] = {};
};

void is_missing(int code, const char* name) {
    EXPECT_EQ(code, -TENT_INVALID_ARGUMENT) << name;
    EXPECT_EQ(tent_last_error(), "InvalidArgument: " + std::string(name) + " is NULL");
}

TEST(TentCApiWithoutEngineTest, EveryFunctionSaysThatThereIsNone) {
    char text[64], memory[64];
    void* address = memory;
    size_t count = 1, size = sizeof(memory);
    uint16_t port = 0;
    tent_segment_id_t handle = 0;
    tent_segment_info_t info{};
    tent_notifi_info notifications{};
    tent_request_t request{};
    tent_status_t status{};
    tent_memory_options_t options{};
    tent_nic_load_stat_t load{};
    const int codes[] = {
        tent_segment_name(nullptr, text, sizeof(text)),
        tent_rpc_server_addr_port(nullptr, text, sizeof(text), &port),
        tent_open_segment(nullptr, &handle, "x"),
        tent_close_segment(nullptr, 0),
        tent_get_segment_info(nullptr, 0, &info),
        tent_probe_peer_alive(nullptr, 0),
        tent_allocate_memory(nullptr, &address, 1, "*"),
        tent_allocate_memory_ex(nullptr, &address, 1, &options),
        tent_free_memory(nullptr, memory),
        tent_register_memory(nullptr, memory, 1),
        tent_register_memory_with_perm(nullptr, memory, 1, PERM_GLOBAL_READ_ONLY),
        tent_register_memory_ex(nullptr, memory, 1, &options),
        tent_register_memory_batch(nullptr, &address, &size, 1, PERM_GLOBAL_READ_ONLY),
        tent_register_memory_batch_ex(nullptr, &address, &size, 1, &options),
        tent_unregister_memory(nullptr, memory, 1),
        tent_unregister_memory_batch(nullptr, &address, &size, 1),
        tent_free_batch(nullptr, 1),
        tent_submit(nullptr, 1, &request, 1),
        tent_submit_notif(nullptr, 1, &request, 1, "a", "b"),
        tent_cancel_task(nullptr, 1, 0),
        tent_task_status(nullptr, 1, 0, &status),
        tent_task_status_list(nullptr, 1, &status, &count),
        tent_overall_status(nullptr, 1, &status),
        tent_send_notifs(nullptr, 0, "a", "b"),
        tent_recv_notifs(nullptr, &notifications),
        tent_get_nic_load_stats(nullptr, &load, &count),
    };
    for (const int code : codes) is_missing(code, "engine");
    EXPECT_EQ(tent_allocate_batch(nullptr, 1), 0u);
    EXPECT_EQ(tent_available(nullptr), 0);
    tent_destroy_engine(nullptr);
    tent_free_notifs(nullptr);
    tent_free_segment_info(nullptr);
}

TEST_F(TentCApiTest, EveryPointerThatIsNeededIsAskedFor) {
    char text[64];
    void* address = memory_;
    size_t count = 1, size = 4096;
    uint16_t port = 0;
    tent_segment_id_t handle = 0;
    tent_request_t request{};
    const tent_batch_id_t batch = tent_allocate_batch(engine_, 1);
    ASSERT_NE(batch, 0u);
    is_missing(tent_load_config_from_file(nullptr), "path");
    is_missing(tent_set_config(nullptr, "x"), "key");
    is_missing(tent_set_config("x", nullptr), "value");
    is_missing(tent_segment_name(engine_, nullptr, 64), "buffer");
    is_missing(tent_rpc_server_addr_port(engine_, nullptr, 64, &port), "address");
    is_missing(tent_rpc_server_addr_port(engine_, text, 64, nullptr), "port");
    is_missing(tent_open_segment(engine_, nullptr, ""), "handle");
    is_missing(tent_open_segment(engine_, &handle, nullptr), "name");
    is_missing(tent_get_segment_info(engine_, 0, nullptr), "info");
    is_missing(tent_allocate_memory(engine_, nullptr, 1, "*"), "address");
    is_missing(tent_allocate_memory_ex(engine_, &address, 1, nullptr), "options");
    is_missing(tent_free_memory(engine_, nullptr), "address");
    is_missing(tent_register_memory_ex(engine_, memory_, 1, nullptr), "options");
    is_missing(tent_register_memory_batch(engine_, nullptr, &size, 1, 0), "addresses");
    is_missing(tent_register_memory_batch(engine_, &address, nullptr, 1, 0), "sizes");
    is_missing(tent_unregister_memory_batch(engine_, nullptr, &size, 1), "addresses");
    is_missing(tent_submit(engine_, batch, nullptr, 1), "requests");
    is_missing(tent_submit_notif(engine_, batch, &request, 1, nullptr, "b"), "name");
    is_missing(tent_submit_notif(engine_, batch, &request, 1, "a", nullptr), "message");
    is_missing(tent_task_status(engine_, batch, 0, nullptr), "status");
    is_missing(tent_task_status_list(engine_, batch, nullptr, &count), "list");
    is_missing(tent_overall_status(engine_, batch, nullptr), "status");
    is_missing(tent_send_notifs(engine_, 0, nullptr, "b"), "name");
    is_missing(tent_send_notifs(engine_, 0, "a", nullptr), "message");
    is_missing(tent_recv_notifs(engine_, nullptr), "info");
    is_missing(tent_get_nic_load_stats(engine_, nullptr, nullptr), "count");
    EXPECT_EQ(tent_get_nic_load_stats(engine_, nullptr, &count), -TENT_INVALID_ARGUMENT);
    EXPECT_EQ(tent_free_batch(engine_, batch), 0);
}

TEST_F(TentCApiTest, MisuseHasANegativeCode) {
    char text[4];
    tent_status_t status{};
    EXPECT_EQ(tent_segment_name(engine_, text, sizeof(text)), -TENT_INVALID_ARGUMENT);
    EXPECT_EQ(tent_register_memory(engine_, nullptr, 4096), -TENT_INVALID_ARGUMENT);
    EXPECT_EQ(tent_register_memory(engine_, memory_, 0), -TENT_INVALID_ARGUMENT);
    EXPECT_EQ(tent_register_memory_with_perm(engine_, memory_, 4096, 3), -TENT_INVALID_ARGUMENT);
    EXPECT_EQ(tent_unregister_memory(engine_, memory_, 4096), -TENT_ADDRESS_NOT_REGISTERED);
    EXPECT_EQ(tent_close_segment(engine_, 1234), -TENT_INVALID_ENTRY);
    EXPECT_LT(tent_overall_status(engine_, 1234, &status), 0);
    EXPECT_LT(tent_free_batch(engine_, 0), 0);
    EXPECT_EQ(tent_allocate_batch(engine_, ~size_t{0}), 0u);
}

TEST_F(TentCApiTest, AnEmptyLocationIsNoParticularNode) {
    for (const char* location : {"", "*", "cpu", static_cast<const char*>(nullptr)}) {
        void* address = nullptr;
        ASSERT_EQ(tent_allocate_memory(engine_, &address, 1, location), 0) << tent_last_error();
        EXPECT_EQ(tent_free_memory(engine_, address), 0) << tent_last_error();
    }
}

TEST_F(TentCApiTest, APermissionLimitsTheOwnProcessToo) {
    ASSERT_EQ(tent_register_memory_with_perm(engine_, memory_, 4096, PERM_LOCAL_READ_WRITE), 0);
    ASSERT_EQ(tent_register_memory_with_perm(engine_, memory_ + 4096, 4096, PERM_GLOBAL_READ_ONLY), 0);
    const tent_batch_id_t batch = tent_allocate_batch(engine_, 1);
    tent_request_t request{OPCODE_WRITE, memory_, LOCAL_SEGMENT_ID, reinterpret_cast<uint64_t>(memory_), 8, 0, 0};
    EXPECT_EQ(tent_submit(engine_, batch, &request, 1), -TENT_ADDRESS_NOT_REGISTERED) << tent_last_error();
    request.target_offset += 4096;
    EXPECT_EQ(tent_submit(engine_, batch, &request, 1), -TENT_INVALID_ARGUMENT) << tent_last_error();
    request.opcode = OPCODE_READ;
    EXPECT_EQ(tent_submit(engine_, batch, &request, 1), 0) << tent_last_error();
    tent_status_t status{};
    do ASSERT_EQ(tent_task_status(engine_, batch, 0, &status), 0);
    while (status.status == STATUS_PENDING);
    EXPECT_EQ(status.status, STATUS_COMPLETED);
    EXPECT_EQ(tent_free_batch(engine_, batch), 0);
}

// A running program's file cannot be opened for writing.
TEST_F(TentCApiTest, EachOpenReturnsAnotherHandleOfAFileThatMayOnlyBeRead) {
    tent_segment_id_t first = 0, second = 0;
    const int opened = tent_open_segment(engine_, &first, "file:///proc/self/exe");
    if (opened == -TENT_INTERNAL_ERROR) GTEST_SKIP() << tent_last_error();
    ASSERT_EQ(opened, 0) << tent_last_error();
    ASSERT_EQ(tent_open_segment(engine_, &second, "file:///proc/self/exe"), 0) << tent_last_error();
    EXPECT_NE(first, second);
    EXPECT_EQ(tent_close_segment(engine_, first), 0);
    ASSERT_EQ(tent_register_memory(engine_, memory_, 4096), 0);
    const tent_batch_id_t batch = tent_allocate_batch(engine_, 1);
    tent_request_t request{OPCODE_WRITE, memory_, first, 0, 4, 0, 0};
    EXPECT_EQ(tent_submit(engine_, batch, &request, 1), -TENT_INVALID_ENTRY);
    request.target_id = second;
    EXPECT_EQ(tent_submit(engine_, batch, &request, 1), -TENT_INVALID_ARGUMENT);
    request.opcode = OPCODE_READ;
    ASSERT_EQ(tent_submit_notif(engine_, batch, &request, 1, "a file", "has no process"), 0) << tent_last_error();
    tent_status_t status{};
    do ASSERT_EQ(tent_task_status(engine_, batch, 0, &status), 0);
    while (status.status == STATUS_PENDING);
    EXPECT_EQ(status.status, STATUS_COMPLETED);
    EXPECT_EQ(std::memcmp(memory_, "\177ELF", 4), 0);
    EXPECT_EQ(tent_close_segment(engine_, second), 0);
    EXPECT_EQ(tent_free_batch(engine_, batch), 0);
}

TEST_F(TentCApiTest, MemoryIsUnregisteredByItsAddress) {
    void* addresses[] = {memory_, memory_ + 4096};
    const size_t sizes[] = {4096, 4096};
    ASSERT_EQ(tent_register_memory_batch(engine_, addresses, sizes, 2, PERM_GLOBAL_READ_WRITE), 0);
    ASSERT_EQ(tent_register_memory(engine_, memory_, 8192), 0);
    EXPECT_EQ(tent_unregister_memory(engine_, memory_, 0), 0) << "the range of 8192 bytes";
    EXPECT_EQ(tent_unregister_memory(engine_, memory_, 8192), -TENT_ADDRESS_NOT_REGISTERED);
    EXPECT_EQ(tent_unregister_memory_batch(engine_, addresses, nullptr, 2), 0);
    EXPECT_EQ(tent_unregister_memory(engine_, memory_, 0), -TENT_ADDRESS_NOT_REGISTERED);
}

TEST_F(TentCApiTest, NotificationsComeWithTheirText) {
    ASSERT_EQ(tent_send_notifs(engine_, LOCAL_SEGMENT_ID, "name", "text"), 0) << tent_last_error();
    tent_notifi_info info{};
    for (int i = 0; i < 1000 && info.num_records == 0; ++i) ASSERT_EQ(tent_recv_notifs(engine_, &info), 0);
    ASSERT_EQ(info.num_records, 1);
    EXPECT_STREQ(info.records[0].name, "name");
    EXPECT_STREQ(info.records[0].msg, "text");
    tent_free_notifs(&info);
    EXPECT_EQ(info.records, nullptr);
}

}  // namespace
