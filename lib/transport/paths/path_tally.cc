// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/path_tally.h"

namespace rove::transport {

void PathTally::add(const PathTally& other) {
    packets += other.packets;
    on_their_way += other.on_their_way;
    acknowledged += other.acknowledged;
    to_send_again += other.to_send_again;
    marked += other.marked;
    lost += other.lost;
    retransmitted += other.retransmitted;
    acks_to_use += other.acks_to_use;
}

const char* PathTally::state() const {
    if (acknowledged == 0 && acks_to_use == 0) return lost == 0 ? "unknown" : "dead";
    return lost != 0 ? "lossy" : marked != 0 ? "congested" : "good";
}

std::map<uint16_t, PathTally> tally(const Paths& paths, const SendStream& stream) {
    std::map<uint16_t, PathTally> all;
    paths.for_each(stream, [&](Psn psn, const PacketRecord& packet) {
        PathTally& path = all[packet.vp];
        ++path.packets;
        ++(psn < stream.una || packet.acked ? path.acknowledged : packet.lost ? path.to_send_again : path.on_their_way);
        path.marked += packet.marked;
        path.retransmitted += packet.retransmitted;
        if (packet.lost_vp != 0) ++all[packet.lost_vp].lost;
    });
    for (uint32_t i = 0; i < stream.acks.count(); ++i) ++all[stream.acks[i]].acks_to_use;
    return all;
}

}  // namespace rove::transport
