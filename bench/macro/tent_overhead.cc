// SPDX-License-Identifier: Apache-2.0
// Measures the overhead of the TENT engine: WRITEs of one process to another, through the engine and without it, in
// alternating turns of kTurnNs, so that both meet the same machine states. A turn without it uses ibv_post_send() and
// ibv_poll_cq(), or with --shm, where the engine copies to memory that both processes map, memcpy().
//
//     tent_overhead [--shm] --port TCP_PORT                                    the target
//     tent_overhead [--shm] --peer HOST:TCP_PORT [--size BYTES] [--outstanding N] [--seconds S]
//
// Both ways use one port, the same memory, MTU and QP attributes (the engine's own Connection), no order between
// WRITEs, a completion for each, and the same number outstanding, each at a place of its own. A verbs turn posts again
// after each completion that it polls; an engine turn asks for the status of its batches one after the other. A WRITE's
// time includes all calls that the API requires: it is outstanding divided by the rate. Rates are per second, times in
// us; the ratio and the difference are medians over pairs of turns.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <rove/tent.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tent/control/frame.h"
#include "tent/engine/clock.h"
#include "tent/transports/rdma/connection.h"

namespace {

using namespace rove::tent;

constexpr size_t kMemoryBytes = 64 << 20;
// A turn has thousands of WRITEs, and is short compared with the seconds for which the machine stays in one state.
constexpr uint64_t kTurnNs = 100'000'000;
constexpr int kBatch = 32;  // completions polled at once
constexpr uint64_t kPatienceNs = 10'000'000'000;

struct Options {
    std::string peer;
    uint16_t port = 0;
    size_t size = 65'536, outstanding = 1;
    double seconds = 1;
    bool shm = false;
};

void check(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.ToString());
}

// An engine, and a device and connection of our own; both have registered `memory`.
class Node {
  public:
    explicit Node(const Options& options) : options_(options), engine_(settings(options)) {
        check(engine_.startStatus());
        check(engine_.allocateLocalMemory(&memory_, kMemoryBytes));
        if (options.shm) {
            check(engine_.allocateLocalMemory(&copy_, kMemoryBytes));
            return;
        }
        ::rove::tent::Config config;
        check(VerbsDevice::open_all(config, &devices_));
        if (devices_.empty()) throw std::runtime_error("no RDMA device");
        const VerbsDevice& device = *devices_.front();
        region_ = ibv_reg_mr(device.pd(), memory_, kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        connection_ = Connection::create(device, config.rdma.endpoint, 1);
        if (region_ == nullptr || connection_ == nullptr) throw std::runtime_error("no room on the device");
    }
    ~Node() {
        connection_.reset();
        if (region_ != nullptr) ibv_dereg_mr(region_);
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Serves until the initiator is done.
    void serve() {
        for (std::string from; (from = meet()) != "";) {
            SegmentID initiator;
            check(engine_.openSegment(initiator, from));
            greet(initiator);
        }
    }

    void measure() {
        check(engine_.openSegment(target_, options_.peer));
        greet(target_);
        meet();
        std::vector<double> ratios, added_us, rates[2];
        const auto write_without = [&] { return options_.shm ? write_by_memcpy(kTurnNs) : write_by_verbs(kTurnNs); };
        write_by_engine(kTurnNs);
        write_without();
        const uint64_t until = monotonic_ns() + static_cast<uint64_t>(options_.seconds * 1e9);
        do {
            const double engine = write_by_engine(kTurnNs), without = write_without();
            const auto us = [&](double rate) { return 1e6 * static_cast<double>(options_.outstanding) / rate; };
            ratios.push_back(engine / without);
            added_us.push_back(us(engine) - us(without));
            rates[0].push_back(engine);
            rates[1].push_back(without);
        } while (monotonic_ns() < until);
        std::printf(
            "tent_overhead size=%zu outstanding=%zu pairs=%zu engine_rate=%.0f without_rate=%.0f ratio=%.3f "
            "added_us=%.3f\n",
            options_.size, options_.outstanding, ratios.size(), median(rates[0]), median(rates[1]), median(ratios),
            median(added_us));
        check(engine_.sendNotification(target_, {"done", ""}));
    }

  private:
    static Settings settings(const Options& options) {
        Settings settings;
        settings.set("rpc_server_hostname", "127.0.0.1");
        settings.set("rpc_server_port", std::to_string(options.port));
        settings.set(options.shm ? "transports/rdma/enable" : "transports/shm/enable", "false");
        settings.set("transports/tcp/enable", "false");
        return settings;
    }
    static double median(std::vector<double>& values) {
        std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
        return values[values.size() / 2];
    }

    // Exchanges the addresses of QPs and memory with the peer.
    void greet(SegmentID to) {
        const Json hello{{"from", engine_.getSegmentName()},
                         {"address", reinterpret_cast<uint64_t>(memory_)},
                         {"rkey", options_.shm ? 0 : region_->rkey},
                         {"endpoint", options_.shm ? Json() : to_json(connection_->local())}};
        check(engine_.sendNotification(to, {"hello", hello.dump()}));
    }
    // Returns the name of the segment that has greeted us, once our connection is connected to it, or "" when it is
    // done.
    std::string meet() {
        std::vector<Notification> come;
        for (const uint64_t until = monotonic_ns() + kPatienceNs;
             come.empty() && (options_.peer.empty() || monotonic_ns() < until);) {
            usleep(1000);
            check(engine_.receiveNotification(come));
        }
        if (come.empty()) throw std::runtime_error("the target does not answer");
        if (come[0].name == "done") return "";
        const Json hello = Json::parse(come[0].msg);
        const auto endpoint = options_.shm ? std::nullopt : parse_endpoint(hello.at("endpoint"));
        if (!options_.shm && (!endpoint || connection_->connect(*endpoint, !options_.peer.empty()) != 0))
            throw std::runtime_error("cannot connect");
        remote_ = hello.at("address");
        rkey_ = hello.at("rkey");
        return hello.at("from");
    }

    // Returns WRITEs per second, each in a batch of its own.
    double write_by_engine(uint64_t turn_ns) {
        std::vector<BatchID> places(options_.outstanding);
        for (size_t i = 0; i < places.size(); ++i) places[i] = submit(i);
        const uint64_t begin = monotonic_ns();
        uint64_t completed = 0, now = begin;
        for (size_t open = places.size(); open != 0;) {
            for (size_t i = 0; i < places.size(); ++i) {
                if (places[i] == 0) continue;
                TransferStatus status;
                check(engine_.getTransferStatus(places[i], status));
                if (status.s == PENDING) continue;
                if (status.s != COMPLETED) throw std::runtime_error("a request failed");
                check(engine_.freeBatch(places[i]));
                if (++completed % 16 == 0) now = monotonic_ns();
                const bool more = now - begin < turn_ns;
                places[i] = more ? submit(i) : 0;
                if (!more) --open;
            }
        }
        return static_cast<double>(completed) * 1e9 / static_cast<double>(monotonic_ns() - begin);
    }
    BatchID submit(size_t place) {
        const BatchID batch = engine_.allocateBatch(1);
        const Request request{.opcode = Request::WRITE,
                              .source = static_cast<uint8_t*>(memory_) + place * options_.size,
                              .target_id = target_,
                              .target_offset = remote_ + place * options_.size,
                              .length = options_.size};
        check(engine_.submitTransfer(batch, {request}));
        return batch;
    }

    double write_by_memcpy(uint64_t turn_ns) {
        const uint64_t begin = monotonic_ns();
        uint64_t completed = 0, now = begin;
        for (; now - begin < turn_ns; now = monotonic_ns()) {
            const size_t at = completed++ % options_.outstanding * options_.size;
            std::memcpy(static_cast<uint8_t*>(copy_) + at, static_cast<uint8_t*>(memory_) + at, options_.size);
        }
        return static_cast<double>(completed) * 1e9 / static_cast<double>(now - begin);
    }

    double write_by_verbs(uint64_t turn_ns) {
        for (size_t i = 0; i < options_.outstanding; ++i) post(i);
        const uint64_t begin = monotonic_ns();
        uint64_t completed = 0, now = begin;
        for (size_t open = options_.outstanding; open != 0;) {
            ibv_wc wcs[kBatch];
            const int found = ibv_poll_cq(devices_.front()->cq(), kBatch, wcs);
            for (int i = 0; i < found; ++i) {
                if (wcs[i].status != IBV_WC_SUCCESS) throw std::runtime_error("a WRITE failed");
                if (++completed % 16 == 0) now = monotonic_ns();
                if (now - begin < turn_ns) {
                    post(wcs[i].wr_id);
                } else {
                    --open;
                }
            }
        }
        return static_cast<double>(completed) * 1e9 / static_cast<double>(monotonic_ns() - begin);
    }
    void post(size_t place) {
        ibv_sge sge{.addr = reinterpret_cast<uint64_t>(memory_) + place * options_.size,
                    .length = static_cast<uint32_t>(options_.size),
                    .lkey = region_->lkey};
        ibv_send_wr wr{}, *bad = nullptr;
        wr.wr_id = place;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = remote_ + place * options_.size;
        wr.wr.rdma.rkey = rkey_;
        if (ibv_post_send(connection_->qp(Priority::kHigh), &wr, &bad) != 0)
            throw std::runtime_error("ibv_post_send failed");
    }

    const Options& options_;
    TransferEngine engine_;
    void* memory_ = nullptr;
    void* copy_ = nullptr;  // with --shm: our copy of the data that the engine copies
    std::vector<std::unique_ptr<VerbsDevice>> devices_;
    ibv_mr* region_ = nullptr;
    std::unique_ptr<Connection> connection_;
    SegmentID target_ = 0;
    uint64_t remote_ = 0;
    uint32_t rkey_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
    Options options;
    CLI::App app("What the TENT engine costs on top of verbs, or of memcpy()");
    app.add_option("--peer", options.peer, "HOST:PORT of the target; without it this is the target");
    app.add_option("--port", options.port, "TCP port of the engine; 0: any");
    app.add_option("--size", options.size, "WRITE, bytes")->check(CLI::Range(size_t{1}, size_t{1} << 20));
    app.add_option("--outstanding", options.outstanding, "WRITEs under way")->check(CLI::Range(1, 64));
    app.add_flag("--shm", options.shm, "over shared memory, beside memcpy()");
    app.add_option("--seconds", options.seconds, "how long to measure")->check(CLI::Range(0.1, 3600.0));
    CLI11_PARSE(app, argc, argv);
    Node node(options);
    options.peer.empty() ? node.serve() : node.measure();
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "tent_overhead: %s\n", error.what());
    return 1;
}
