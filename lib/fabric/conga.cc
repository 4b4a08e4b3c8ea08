// SPDX-License-Identifier: Apache-2.0
#include "fabric/conga.h"

#include <algorithm>

namespace rove::fabric {

uint8_t RateEstimator::level(Time now, uint64_t bits_per_s, const CongaConfig& config) {
    const double constant_s = static_cast<double>(config.dre_interval) / static_cast<double>(kSecond) / config.alpha;
    const double full = static_cast<double>(bits_per_s) / 8 * constant_s;
    const double levels = bytes(now, config) / full * config.levels;
    return static_cast<uint8_t>(std::min(levels, static_cast<double>(config.levels - 1)));
}

void Conga::set(Row& row, uint32_t uplink, uint8_t level, Time now) {
    if (row.entries.size() <= uplink) row.entries.resize(uplink + 1);
    Entry& entry = row.entries[uplink];
    entry.changed |= !entry.known || entry.level != level;
    entry.known = true;
    entry.level = level;
    entry.updated = now;
}

void Conga::take(Packet& packet, Time now) {
    if (!packet.tagged || (*leaf_of_)[packet.destination] != self_) return;
    const CongaTag& tag = packet.conga;
    set(from_leaf_[tag.leaf], tag.uplink, tag.congestion, now);
    if (tag.feedback_uplink != CongaTag::kNone) set(to_leaf_[tag.leaf], tag.feedback_uplink, tag.feedback, now);
    packet.tagged = false;
}

void Conga::give(Packet& packet, Time now) {
    const uint32_t leaf = (*leaf_of_)[packet.destination];
    if (packet.tagged || leaf == self_) return;
    packet.tagged = true;
    packet.conga = {.leaf = self_, .uplink = static_cast<uint16_t>(packet.egress)};
    Row& row = from_leaf_[leaf];
    const auto count = static_cast<uint32_t>(row.entries.size());
    uint32_t chosen = count;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t at = (row.turn + i) % count;
        if (!is_young(row.entries[at], now)) continue;
        if (row.entries[at].changed) {
            chosen = at;
            break;
        }
        if (chosen == count) chosen = at;
    }
    if (chosen == count) return;
    row.turn = (chosen + 1) % count;
    row.entries[chosen].changed = false;
    packet.conga.feedback_uplink = static_cast<uint16_t>(chosen);
    packet.conga.feedback = row.entries[chosen].level;
}

void Conga::on_transmit(Packet& packet, uint64_t bits_per_s, Time now) {
    RateEstimator& link = estimator(packet.egress);
    link.add(packet.bytes, now, config_);
    if (packet.tagged)
        packet.conga.congestion = std::max(packet.conga.congestion, link.level(now, bits_per_s, config_));
}

}  // namespace rove::fabric
