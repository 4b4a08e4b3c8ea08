// SPDX-License-Identifier: Apache-2.0
// One stream of class Reorder for the tests. Packets are numbered from 0; their PSNs wrap after packet 39.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "transport/reorder/reorder.h"

namespace rove::test {

using transport::Arrival;
using transport::invalid;
using transport::Psn;
using transport::Reorder;
using transport::ReorderConfig;
using transport::ReorderStream;
using transport::Slot;

struct Receiver {
    explicit Receiver(Reorder& worker, uint32_t peer = 0) : reorder(worker) { reorder.start(stream, psn(0), peer); }
    ~Receiver() { reorder.stop(stream); }

    static Psn psn(uint32_t packet) { return Psn(Psn::kMask - 39) + packet; }
    static uint32_t number(Psn at) { return static_cast<uint32_t>(at - psn(0)); }

    Arrival arrive(uint32_t packet, Slot slot = Slot::kReceived, bool last = false) {
        const Arrival arrival = reorder.classify(stream, psn(packet));
        if (arrival == Arrival::kOutOfOrder) reorder.track(stream, psn(packet), slot, last);
        if (arrival == Arrival::kInOrder) {
            reorder.advance(stream, last, [&](Psn at, Slot tail) {
                visited += std::to_string(number(at)) + (tail == Slot::kTailWithCompletion ? "! " : " ");
                return number(at) != refused;
            });
        }
        return arrival;
    }
    Arrival arrive_last(uint32_t packet) { return arrive(packet, Slot::kTail, true); }
    void arrive_all(uint32_t first, uint32_t end) {
        for (uint32_t packet = first; packet < end; ++packet) arrive(packet);
    }
    // Delivers every second packet before its predecessor, never in order, until packet `end` is expected and the one
    // after it has arrived.
    void arrive_swapped(uint32_t end) {
        arrive(1);
        for (uint32_t packet = 0; packet < end; packet += 2) {
            arrive(packet + 3);
            arrive(packet);
        }
    }

    uint32_t expected() const { return number(stream.expected); }
    bool has(uint32_t packet) const { return reorder.is_received(stream, psn(packet)); }
    uint32_t bytes() const { return reorder.bytes(stream); }
    // Assumes Eunomia's defaults.
    uint32_t blocks() const { return bytes() == 4 ? 0 : (bytes() - 4 - 44) / 4; }

    Reorder& reorder;
    ReorderStream stream;
    std::string visited;            // numbers of the tails that advance() reported, those with completion with a "!"
    uint32_t refused = UINT32_MAX;  // the tail that cannot be taken
};

}  // namespace rove::test
