// SPDX-License-Identifier: Apache-2.0
// The limit of a cell of the matrix, and the share of it that a transport must reach. Rates are in bits per second on
// the wire.
#pragma once

#include <array>
#include <cstdint>

#include "fabric/units.h"
#include "matrix.h"

namespace rove::sim {

inline constexpr uint32_t kMatrixPaths = 8, kMatrixMtu = 4096;
inline constexpr double kMatrixLossBurst = 8;  // packets

// Returns the messages of a QP that are posted and not completed.
uint32_t messages_in_flight(const MatrixCell& cell);
// Returns the probability that a packet is lost.
double matrix_loss(const MatrixCell& cell);

// Describes the flows of a cell that share a class: rc flows of one path, or mp flows.
struct MatrixShape {
    uint32_t packets;        // in a message
    uint32_t payload;        // in its packets
    double wire_by_payload;  // bytes on the wire for each byte of payload
    double window_bytes;     // payload that a QP may have in flight, by its window and by its messages
    double cap;              // the highest rate that these allow
};
// Returns the class of mp or rc flows, whose slowest link has the rate `bottleneck`. `trip` is the time of a packet and
// its ACK in an empty network.
MatrixShape matrix_shape(const MatrixCell& cell, bool mp, double bottleneck, fabric::Time trip);

struct PathShares {
    std::array<double, kMatrixPaths> rc{};  // for an rc flow of each path
    double mp = 0;                          // for an mp flow
};
// Returns the max-min fair shares of flows over parallel paths. rc flows keep to a path, mp flows use all of them.
PathShares fair_path_shares(const std::array<double, kMatrixPaths>& rc_rates,
                            const std::array<double, kMatrixPaths>& mp_rates,
                            const std::array<uint32_t, kMatrixPaths>& rc_flows, uint32_t mp_flows, double rc_cap,
                            double mp_cap);
// Returns the max-min fair share of a flow of each class on one link: of rc, and of mp.
std::array<double, 2> fair_link_shares(double rate, const std::array<double, 2>& flows,
                                       const std::array<double, 2>& caps);

}  // namespace rove::sim
