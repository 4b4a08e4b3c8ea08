// SPDX-License-Identifier: Apache-2.0
// See figures.h.
#include "tent/figures.h"

#include <algorithm>
#include <array>
#include <set>

#include "tent/clock.h"
#include "tent/engine.h"
#include "tent/transports/rdma/rdma_backend.h"

namespace rove::tent {

namespace {

constexpr bool kNow = false;  // of Figure::counts

std::vector<FigureRow> read_devices(Engine& engine) {
    std::vector<FigureRow> rows;
    if (engine.rdma() == nullptr) return rows;
    const DeviceSelector& selector = engine.rdma()->selector();
    const std::vector<DeviceLoad> loads = selector.load();
    for (uint8_t i = 0; i < loads.size(); ++i) {
        rows.push_back({loads[i].name,
                        {{"up", selector.up_mask() >> i & 1, kNow},
                         {"completed_bytes", selector.completed_bytes(i)},
                         {"inflight_bytes", loads[i].inflight_bytes, kNow},
                         {"allotted_slices", engine.rdma()->allotments[i].allotted},
                         {"placed_anew_slices", engine.rdma()->allotments[i].placed_anew},
                         {"ewma_bytes_per_s", static_cast<uint64_t>(loads[i].ewma_bandwidth), kNow}}});
    }
    return rows;
}

std::vector<FigureRow> read_rails(Engine& engine) {
    std::vector<FigureRow> rows;
    if (engine.rdma() == nullptr) return rows;
    for (Channel* one : engine.rdma()->channels()) {
        auto* channel = static_cast<RdmaChannel*>(one);
        for (const auto& rail : channel->rails()) {
            const RailCounters& c = rail->counters;
            const auto& posted = rail->posted_bytes;
            rows.push_back({channel->peer().name() + "/" + rail->name,
                            {{"state", static_cast<uint64_t>(rail->state), kNow},
                             {"read_bytes", c.read_bytes},
                             {"write_bytes", c.write_bytes},
                             {"slices", c.slices},
                             {"errors", c.errors},
                             {"silences", c.silences},
                             {"probes", c.probes},
                             {"connects", c.connects},
                             {"resprayed", c.resprayed},
                             {"posted_bytes", posted[0] + posted[1] + posted[2], kNow},
                             {"window_bytes", rail->window.bytes(), kNow},
                             {"pauses", c.pauses}}});
        }
    }
    return rows;
}

std::vector<FigureRow> read_priorities(Engine& engine) {
    std::array<uint64_t, kPriorities> waiting{}, promoted{};
    std::set<const Peer*> seen;  // who is open twice is listed twice
    for (const auto& peer : engine.peers().all()) {
        if (!seen.insert(peer.get()).second) continue;
        for (size_t i = 0; i < kTransports; ++i) {
            Channel* channel = peer->channel(static_cast<Transport>(i));
            for (uint8_t p = 0; channel != nullptr && p < kPriorities; ++p) {
                waiting[p] += channel->queues.depth(static_cast<Priority>(p));
                promoted[p] += channel->queues.promoted(static_cast<Priority>(p));
            }
        }
    }
    std::vector<FigureRow> rows;
    for (uint8_t p = 0; p < kPriorities; ++p) {
        const PriorityCounters& c = engine.core().priorities[p];
        rows.push_back({name(static_cast<Priority>(p)),
                        {{"completed_requests", c.requests},
                         {"completed_bytes", c.bytes},
                         {"failed_requests", c.failed},
                         {"timed_out_requests", c.timed_out},
                         {"canceled_requests", c.canceled},
                         {"waiting_slices", waiting[p], kNow},
                         {"promoted_requests", promoted[p]}}});
    }
    return rows;
}

std::vector<FigureRow> read_slots(Engine& engine) {
    std::vector<FigureRow> rows;
    const Slots* slots = engine.core().slots();
    if (slots == nullptr) return rows;
    for (uint32_t slot = 0; slot < kPriorities; ++slot) {
        const SlotCounters& c = engine.core().slot_counters[slot];
        rows.push_back({std::to_string(slot),
                        {{"open", slots->current_slot() == slot, kNow}, {"slices", c.slices}, {"bytes", c.bytes}}});
    }
    const uint8_t allowed = engine.core().allowed(monotonic_ns());
    const auto may = [&](Priority p) { return uint64_t{allowed} >> static_cast<uint8_t>(p) & 1; };
    rows.push_back({"all",
                    {{"rotating", slots->rotating(), kNow},
                     {"rotations", slots->rotations()},
                     {"takeovers", slots->takeovers()},
                     {"high_may_send", may(Priority::kHigh), kNow},
                     {"medium_may_send", may(Priority::kMedium), kNow},
                     {"low_may_send", may(Priority::kLow), kNow}}});
    return rows;
}

std::vector<FigureRow> read_transports(Engine& engine) {
    std::vector<FigureRow> rows;
    for (size_t i = 0; i < kTransports; ++i) {
        if (engine.core().backends()[i] == nullptr) continue;
        const TransportCounters& c = engine.core().transports[i];
        rows.push_back({name(static_cast<Transport>(i)),
                        {{"read_bytes", c.read_bytes},
                         {"write_bytes", c.write_bytes},
                         {"slices", c.slices},
                         {"retried_slices", c.retries},
                         {"failed_over_slices", c.failovers}}});
    }
    return rows;
}

constexpr FigureTable kTables[] = {
    {"devices", "device", "Devices of the TENT engine: load and learned bandwidth", read_devices},
    {"rails", "rail", "Rails of the TENT engine: state and counters", read_rails},
    {"priorities", "priority", "Requests of the TENT engine by priority", read_priorities},
    {"slots", "slot", "What the TENT engine completed by slot, and who rotates the slots", read_slots},
    {"transports", "transport", "Bytes of the TENT engine by transport", read_transports},
};

}  // namespace

std::span<const FigureTable> figure_tables() {
    return kTables;
}

std::vector<FigureRow> SteadyFigures::read(const FigureTable& table, Engine& engine) {
    std::vector<FigureRow> rows;
    for (FigureRow& found : table.read(engine)) {
        const auto same =
            std::find_if(rows.begin(), rows.end(), [&](const FigureRow& row) { return row.of == found.of; });
        if (same == rows.end()) {
            rows.push_back(std::move(found));
            continue;
        }
        for (size_t i = 0; i < found.figures.size(); ++i) same->figures[i].value += found.figures[i].value;
    }
    for (FigureRow& row : rows) {
        for (Figure& figure : row.figures) {
            if (!figure.counts) continue;
            Count& count = counts_[std::string(table.name) + "/" + row.of + "/" + figure.name];
            if (figure.value < count.last) count.gone += count.last - figure.value;
            count.last = figure.value;
            figure.value += count.gone;
        }
    }
    return rows;
}

std::vector<HistogramRow> read_histograms(Engine& engine) {
    std::vector<HistogramRow> rows;
    for (uint8_t priority = 0; priority < kPriorities; ++priority) {
        for (uint8_t transport = 0; transport < kTransports; ++transport) {
            const RequestHistograms& seen = engine.core().histograms[priority][transport];
            if (seen.bytes.count() == 0) continue;
            rows.push_back({name(static_cast<Priority>(priority)), name(static_cast<Transport>(transport)), seen});
        }
    }
    return rows;
}

}  // namespace rove::tent
