// SPDX-License-Identifier: Apache-2.0
// Sends messages between two engines in virtual time, for callgrind to count the instructions. Each case and side is
// one dump of callgrind, whose name is the case and the number of messages: "rc WRITE 8 sending: 4096".
//
// Sending counts the doorbell, the transmission with the building of frames, and the acknowledgements that come back.
// Receiving counts the parsing, the placement into memory, and the transmission of acknowledgements. The counts do not
// depend on the machine: callgrind offers the same instruction set everywhere, and nothing here reads a clock.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "../../bench/micro/transport_side.h"

namespace rove::transport {
namespace {

constexpr uint32_t kWarmUp = 1024, kCounted = 4096;  // messages

// Collects instructions during its life, if this side is the counted one.
class Collected {
  public:
    explicit Collected(bool counted) : counted_(counted) {
        if (counted_) CALLGRIND_TOGGLE_COLLECT;
    }
    Collected(const Collected&) = delete;
    ~Collected() {
        if (counted_) CALLGRIND_TOGGLE_COLLECT;
    }

  private:
    const bool counted_;
};

void deliver(Side& from, Side& to) {
    for (uint32_t i = 0; i < from.sink.count; ++i) {
        wire::ParsedFrame parsed;
        keep_alive(
            wire::parse_headers(std::span<const uint8_t>(from.sink.frames[i].data(), from.sink.bytes[i]), parsed));
        to.engine.receive(parsed, to.qps.find(parsed.headers.bth.dest_qpn), 0, to.now);
    }
    from.sink.count = 0;
}

void count(bool multipath, ibv_wr_opcode opcode, uint32_t bytes, bool sending) {
    Side a(true, multipath), b(true, multipath);
    a.sink.keep = b.sink.keep = true;
    a.qp.remote_qpn = b.qp.qpn;
    b.qp.remote_qpn = a.qp.qpn;
    uint32_t posted = 0, base = 0;
    bool collects = false;
    ibv_wc completions[kBatch];
    const auto message = [&] { return posted - (a.qp.sq.produced() - a.qp.sq.consumed()); };
    while (!collects || message() - base < kCounted) {
        if (!collects && message() >= kWarmUp) {
            collects = true;
            base = message();
            CALLGRIND_ZERO_STATS;
        }
        for (; a.qp.sq.produced() - a.qp.sq.consumed() < 2 * kBatch; ++posted) a.post(opcode, bytes, b.region);
        if (opcode == IBV_WR_SEND)
            while (b.qp.rq.produced() - b.qp.rq.consumed() < 4 * kBatch) b.post_receive(kMtu);
        {
            const Collected collected(collects && sending);
            a.engine.doorbell(a.qp);
            a.engine.transmit(a.now, kBatch);
        }
        {
            const Collected collected(collects && !sending);
            deliver(a, b);
            b.engine.transmit(b.now, kBatch);
        }
        {
            const Collected collected(collects && sending);
            deliver(b, a);
        }
        while (b.cq.poll(completions, kBatch) > 0) {
        }
        a.now += 5000;
        b.now += 5000;
        a.engine.expire(a.now);
        b.engine.expire(b.now);
    }
    const std::string name = std::string(multipath ? "mp " : "rc ") + (opcode == IBV_WR_SEND ? "SEND " : "WRITE ") +
                             std::to_string(bytes) + (sending ? " sending: " : " receiving: ") +
                             std::to_string(message() - base);
    CALLGRIND_DUMP_STATS_AT(name.c_str());
    std::puts(name.c_str());
}

}  // namespace
}  // namespace rove::transport

int main() {
    std::puts("compiler: " __VERSION__);
    for (const bool multipath : {false, true})
        for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE})
            for (const uint32_t bytes : {8u, rove::transport::kMtu})
                for (const bool sending : {true, false}) rove::transport::count(multipath, opcode, bytes, sending);
}
