// SPDX-License-Identifier: Apache-2.0
// Tests the output of lib/runtime's report.h and capture.h for a device that has been used.
#include "runtime/report.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "fixture.h"
#include "runtime/runtime.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

using datapath::Report;

class ReportTest : public ConnectedTest {
  protected:
    datapath::Runtime& runtime() const { return *static_cast<Device*>(context_->device)->runtime; }
    const datapath::RdmaInterface& device() const { return *datapath::find_interface(runtime(), "rove0"); }
};

TEST_F(ReportTest, DevicesAndPorts) {
    const Report device = datapath::report_devices(runtime())["rove0"];
    EXPECT_EQ(device["mtu"], 4096u);
    EXPECT_EQ(device["gids"].size(), 3u);
    EXPECT_EQ(device["gids"][1], "10.9.0.1");
    EXPECT_TRUE(datapath::report_ports(runtime())["rove0"]["tx_frames"].is_number_unsigned());
    const Report neighbours = datapath::report_neighbours(runtime())["rove0"]["table"];
    EXPECT_NE(std::find(neighbours.begin(), neighbours.end(), "10.9.0.2 02:00:00:00:00:02 static"), neighbours.end());
    EXPECT_EQ(datapath::find_interface(runtime(), "rove9"), nullptr);
    EXPECT_EQ(datapath::device_names(runtime()), " rove0");
}

TEST_F(ReportTest, CountersOfWorkersAreNumbersUnderTheirNames) {
    const Report before = datapath::report_workers(runtime())["worker0"];
    ibv_sge piece = sge(0, 100);
    ibv_send_wr write{}, *bad = nullptr;
    write.sg_list = &piece;
    write.num_sge = 1;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.send_flags = IBV_SEND_SIGNALED;
    write.wr.rdma = {reinterpret_cast<uintptr_t>(buffer_.data()) + 1000, mr_->rkey};
    ASSERT_EQ(ibv_post_send(a_, &write, &bad), 0);
    ASSERT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    const Report after = datapath::report_workers(runtime())["worker0"];
    EXPECT_GT(after["tx_bytes"], before["tx_bytes"]);
    for (const Report& reports : {after, datapath::report_drops(runtime())["worker0"]})
        for (const auto& [name, value] : reports.items()) EXPECT_TRUE(value.is_number()) << name;
    EXPECT_TRUE(datapath::report_drops(runtime())["worker0"].contains("icrc"));
}

TEST_F(ReportTest, QueuePairs) {
    const Report qps = datapath::report_qps(runtime(), 0, 16);
    for (const ibv_qp* qp : {a_, b_}) EXPECT_NE(std::find(qps.begin(), qps.end(), qp->qp_num), qps.end());
    EXPECT_EQ(datapath::report_qps(runtime(), 0, 1).size(), 1u);
    const Report qp = datapath::report_qp(runtime(), a_->qp_num);
    EXPECT_EQ(qp["state"], "RTS");
    EXPECT_EQ(qp["mode"], "rc");
    EXPECT_EQ(qp["remote_qpn"], b_->qp_num);
    const Report paths = datapath::report_paths(runtime(), a_->qp_num)["requests"];
    ASSERT_EQ(paths.size(), 1u) << paths;
    EXPECT_EQ(paths.begin().key(), qp["udp_src"].dump());
    EXPECT_EQ(paths.front()["state"], "unknown");
    EXPECT_EQ(paths.front()["on_their_way"], 0u);
    EXPECT_EQ(datapath::report_port_paths(runtime(), 8), Report({{"rove0", Report::object()}}));  // no QP is in mp mode
    for (const auto report : {datapath::report_qp, datapath::report_paths, datapath::report_packets})
        EXPECT_TRUE(report(runtime(), 0xFFFFFF).is_null());
}

TEST_F(ReportTest, Impairments) {
    EXPECT_NE(runtime().impair(device(), std::nullopt, "loss=2").find("loss"), std::string::npos);
    EXPECT_EQ(runtime().impair(device(), std::nullopt, "loss=0.5,delay_us=7"), "");
    const Report paths = datapath::report_impairments(runtime(), device());
    EXPECT_EQ(paths["device"]["loss"], "0.5");
    EXPECT_EQ(paths["device"]["delay_us"], "7");
    EXPECT_EQ(paths["device"]["frames"], 0u);
    EXPECT_EQ(runtime().impair(device(), std::nullopt, "loss=0,delay_us=0"), "");
}

TEST_F(ReportTest, CaptureHasWhatAPortSends) {
    EXPECT_NE(runtime().capture("/nonexistent/capture"), "");
    const std::string file = "/tmp/rove-capture-test-" + std::to_string(getpid()) + ".pcapng";
    ASSERT_EQ(runtime().capture(file), "");
    EXPECT_EQ(runtime().capture(file), "a capture is already being written");

    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    start_ud(qp);
    ibv_ah_attr address = own_address();
    address.grh.dgid.raw[15] = 2;
    ibv_ah* neighbour = ibv_create_ah(pd_, &address);
    ASSERT_NE(neighbour, nullptr);
    constexpr char kWords[] = "words that somebody will look for";
    std::copy(std::begin(kWords), std::end(kWords), buffer_.begin());
    ibv_sge piece = sge(0, sizeof(kWords));
    ibv_send_wr send{}, *bad = nullptr;
    send.sg_list = &piece;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.ud = {neighbour, 7, 0x1234};
    const uint64_t sent = datapath::report_ports(runtime())["rove0"]["tx_frames"];
    ASSERT_EQ(ibv_post_send(qp, &send, &bad), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_GE(datapath::report_ports(runtime())["rove0"]["tx_frames"], sent + 1) << "beside reports of groups";

    std::ifstream in(file, std::ios::binary);
    const std::string captured(std::istreambuf_iterator<char>(in), {});
    EXPECT_EQ(captured.substr(0, 4), "\x0A\x0D\x0D\x0A");  // pcapng's section header block
    EXPECT_NE(captured.find(kWords), std::string::npos);
    EXPECT_EQ(ibv_destroy_ah(neighbour), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    std::filesystem::remove(file);
}

}  // namespace
}  // namespace rove::verbs
