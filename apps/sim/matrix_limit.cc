// SPDX-License-Identifier: Apache-2.0
#include "matrix_limit.h"

#include <algorithm>
#include <cmath>

#include "transport/core.h"

namespace rove::sim {
namespace {

using Condition = MatrixCell::Condition;
using Pattern = MatrixCell::Pattern;
using Signal = MatrixCell::Signal;

}  // namespace

uint32_t messages_in_flight(const MatrixCell& cell) {
    const uint32_t bytes = cell.message_bytes;
    if (cell.qps > 1000) return 1;
    if (cell.qps > 128) return bytes <= 64 ? 4 : 2;
    if (bytes <= 64) return 32;
    const bool few = cell.qps <= 12;
    if (bytes <= 4096) return few ? 16 : 8;
    if (bytes <= 65536) return few ? 8 : 4;
    return few ? 4 : 2;
}

double matrix_loss(const MatrixCell& cell) {
    const bool loses = cell.condition == Condition::kLoss || cell.condition == Condition::kBurst;
    return loses ? 1.0 / cell.degree : 0;
}

// A loss keeps the window from moving for one more round trip, and a loss of the repetition for yet another: with the
// probability p of a loss, a window of w packets takes the sum of 1 - (1 - p^r)^w over r >= 0 round trips.
MatrixShape matrix_shape(const MatrixCell& cell, bool mp, double bottleneck, fabric::Time round_trip) {
    MatrixShape shape{};
    shape.packets = (cell.message_bytes + kMatrixMtu - 1) / kMatrixMtu;
    shape.payload = std::min(cell.message_bytes, kMatrixMtu);
    // Ethernet with preamble, gap and FCS, IP, UDP, BTH, ICRC; MPETH and RETH in each packet of mp.
    constexpr double kHeaders = 82, kReth = 16, kMpHeaders = 24;
    const double headers = mp ? shape.packets * (kHeaders + kMpHeaders) : shape.packets * kHeaders + kReth;
    shape.wire_by_payload = 1 + headers / cell.message_bytes;
    const transport::Config defaults;
    const uint32_t window =
        mp ? std::min(defaults.paths.max_window, defaults.reorder.cap_slots) : defaults.window_packets;
    const double by_window = static_cast<double>(window) * shape.payload;
    const double by_messages = static_cast<double>(messages_in_flight(cell)) * cell.message_bytes;
    const double last_packet = (cell.message_bytes - shape.payload) * shape.wire_by_payload * 8 / bottleneck;
    const double p = matrix_loss(cell);
    const auto trips = [&](double bytes) {
        double sum = 1, power = cell.condition == Condition::kBurst ? p / kMatrixLossBurst : p;
        for (; power > 1e-9; power *= p) sum += 1 - std::pow(1 - power, bytes / shape.payload);
        return sum;
    };
    const double trip = static_cast<double>(round_trip) / static_cast<double>(fabric::kSecond);
    const double payload_rate = std::min(by_window * 8 / (trip * trips(by_window)),
                                         by_messages * 8 / ((trip + last_packet) * trips(by_messages)));
    shape.window_bytes = std::min(by_window, by_messages);
    shape.cap = payload_rate * shape.wire_by_payload;
    return shape;
}

// The common level rises until the paths are full; rc flows of a path that is full earlier stop there.
PathShares fair_path_shares(const std::array<double, kMatrixPaths>& rc_rates,
                            const std::array<double, kMatrixPaths>& mp_rates,
                            const std::array<uint32_t, kMatrixPaths>& rc_flows, uint32_t mp_flows, double rc_cap,
                            double mp_cap) {
    const auto rc_share = [&](size_t path, double level) {
        if (rc_flows[path] == 0) return 0.0;
        return std::min({level, rc_cap, rc_rates[path] / rc_flows[path]});
    };
    double low = 0, high = mp_cap;
    for (int i = 0; i < 60 && mp_flows != 0; ++i) {
        const double level = (low + high) / 2;
        double left = 0;
        for (size_t path = 0; path < kMatrixPaths; ++path)
            left += std::max(0.0, mp_rates[path] - rc_flows[path] * rc_share(path, level));
        (left >= mp_flows * level ? low : high) = level;
    }
    PathShares limits;
    limits.mp = low;
    // Flows of rc may rise on where mp is at its cap.
    const double level = mp_flows == 0 || low > mp_cap * 0.999 ? rc_cap : low;
    for (size_t path = 0; path < kMatrixPaths; ++path) limits.rc[path] = rc_share(path, level);
    return limits;
}

std::array<double, 2> fair_link_shares(double rate, const std::array<double, 2>& flows,
                                       const std::array<double, 2>& caps) {
    const double fair = rate / (flows[0] + flows[1]);
    std::array<double, 2> shares{};
    for (size_t i = 0; i < 2; ++i) {
        const double others = flows[1 - i] * std::min(caps[1 - i], fair);
        if (flows[i] != 0) shares[i] = std::min(caps[i], (rate - others) / flows[i]);
    }
    return shares;
}

double goodput_bar(const MatrixCell& cell) {
    switch (cell.condition) {
        case Condition::kLoss:
        case Condition::kBurst:
            if (cell.degree >= 1000) return 0.9;
            if (cell.degree >= 100) return 0.8;
            return cell.degree >= 20 ? 0.65 : 0.4;
        case Condition::kDead:
        case Condition::kDying:
        case Condition::kFlap:
            return 0.95;
        default:
            return cell.pattern == Pattern::kIncast && cell.senders == 16 && cell.signal == Signal::kNone ? 0.95 : 0.9;
    }
}

std::vector<std::string> misses(const MatrixCell& cell, const Values& values) {
    std::vector<std::string> missed;
    const double bar = goodput_bar(cell);
    if (values.at("by limit") < bar)
        missed.push_back(format("goodput %.3f", values.at("by limit")) + format(" < %.2f", bar));
    const bool intact = cell.condition == Condition::kHealthy || cell.condition == Condition::kSlow;
    // Where the switches drop packets, because they have no other signal, some are repeated.
    const double repeated = values.at("dropped") == 0 ? 0.001 : 0.01;
    if (intact && values.at("repeated") > repeated)
        missed.push_back(format("repeated %.2f %%", values.at("repeated") * 100) + format(" > %g %%", repeated * 100));
    if (const auto jain = values.find("jain"); jain != values.end() && jain->second < 0.95)
        missed.push_back(format("Jain %.3f < 0.95", jain->second));
    const bool drops = cell.pattern == Pattern::kIncast && cell.signal == Signal::kNone;
    if (const auto least = values.find("least"); drops && intact && least != values.end() && least->second < 0.5)
        missed.push_back(format("least share %.2f < 0.5", least->second));
    if (values.at("errors") != 0) missed.push_back(format("%.0f in error", values.at("errors")));
    return missed;
}

}  // namespace rove::sim
