// SPDX-License-Identifier: Apache-2.0
// See figures.h.
#include "tent/observability/figures.h"

#include <algorithm>
#include <array>

#include "tent/engine/clock.h"
#include "tent/engine/engine.h"
#include "tent/engine/shard.h"
#include "tent/transports/rdma/rdma_backend.h"

namespace rove::tent {

namespace {

constexpr bool kNow = false;  // Figure::counts of a gauge

void for_each_shard(Engine& engine, auto&& read) {
    for (const auto& shard : engine.core().shards()) shard->with_lock([&] { read(*shard); });
}

RdmaBackend* rdma_of(Shard& shard) {
    return static_cast<RdmaBackend*>(shard.backend(Transport::RDMA));
}

std::vector<FigureRow> read_devices(Engine& engine) {
    std::vector<FigureRow> rows;
    if (engine.ports() == nullptr) return rows;
    std::array<AllotmentCounters, DeviceSelector::kMaxDevices> allotments{};
    const DeviceSelector& selector = engine.ports()->selector();
    const std::vector<DeviceLoad> loads = selector.load();
    for_each_shard(engine, [&](Shard& shard) {
        for (size_t i = 0; i < loads.size(); ++i) {
            allotments[i].allotted += rdma_of(shard)->allotments[i].allotted;
            allotments[i].placed_anew += rdma_of(shard)->allotments[i].placed_anew;
        }
    });
    for (uint8_t i = 0; i < loads.size(); ++i) {
        rows.push_back({loads[i].name,
                        {{"up", selector.up_mask() >> i & 1, kNow},
                         {"completed_bytes", selector.completed_bytes(i)},
                         {"inflight_bytes", loads[i].inflight_bytes, kNow},
                         {"allotted_slices", allotments[i].allotted},
                         {"placed_anew_slices", allotments[i].placed_anew},
                         {"ewma_bytes_per_s", static_cast<uint64_t>(loads[i].ewma_bandwidth), kNow}}});
    }
    return rows;
}

FigureRow read_rail(const Peer& peer, const Rail& rail) {
    const RailCounters& c = rail.counters;
    const auto& posted = rail.posted_bytes;
    return {peer.name() + "/" + rail.name,
            {{"state", static_cast<uint64_t>(rail.state), kNow},
             {"read_bytes", c.read_bytes},
             {"write_bytes", c.write_bytes},
             {"slices", c.slices},
             {"errors", c.errors},
             {"silences", c.silences},
             {"probes", c.probes},
             {"connects", c.connects},
             {"resprayed", c.resprayed},
             {"posted_bytes", posted[0] + posted[1] + posted[2], kNow},
             {"window_bytes", rail.window.bytes(), kNow},
             {"pauses", c.pauses}}};
}

std::vector<FigureRow> read_rails(Engine& engine) {
    std::vector<FigureRow> rows;
    if (engine.ports() == nullptr) return rows;
    for_each_shard(engine, [&](Shard& shard) {
        for (Channel* one : rdma_of(shard)->channels()) {
            auto* channel = static_cast<RdmaChannel*>(one);
            for (const auto& rail : channel->rails()) rows.push_back(read_rail(channel->peer(), *rail));
        }
    });
    return rows;
}

std::vector<FigureRow> read_priorities(Engine& engine) {
    std::array<uint64_t, kPriorities> waiting{}, promoted{};
    std::array<PriorityCounters, kPriorities> ended{};
    for_each_shard(engine, [&](Shard& shard) {
        for (uint8_t p = 0; p < kPriorities; ++p) {
            const PriorityCounters& c = shard.priorities[p];
            ended[p].requests += c.requests;
            ended[p].bytes += c.bytes;
            ended[p].failed += c.failed;
            ended[p].timed_out += c.timed_out;
            ended[p].canceled += c.canceled;
            for (const auto& backend : shard.backends()) {
                for (const Channel* channel : backend->channels()) {
                    waiting[p] += channel->queues.depth(static_cast<Priority>(p));
                    promoted[p] += channel->queues.promoted(static_cast<Priority>(p));
                }
            }
        }
    });
    std::vector<FigureRow> rows;
    for (uint8_t p = 0; p < kPriorities; ++p) {
        rows.push_back({name(static_cast<Priority>(p)),
                        {{"completed_requests", ended[p].requests},
                         {"completed_bytes", ended[p].bytes},
                         {"failed_requests", ended[p].failed},
                         {"timed_out_requests", ended[p].timed_out},
                         {"canceled_requests", ended[p].canceled},
                         {"waiting_slices", waiting[p], kNow},
                         {"promoted_requests", promoted[p]}}});
    }
    return rows;
}

std::vector<FigureRow> read_slots(Engine& engine) {
    std::vector<FigureRow> rows;
    const Slots* slots = engine.core().slots();
    if (slots == nullptr) return rows;
    std::array<SlotCounters, kPriorities> done{};
    for_each_shard(engine, [&](Shard& shard) {
        for (size_t slot = 0; slot < kPriorities; ++slot) {
            done[slot].slices += shard.slot_counters[slot].slices;
            done[slot].bytes += shard.slot_counters[slot].bytes;
        }
    });
    for (uint32_t slot = 0; slot < kPriorities; ++slot) {
        rows.push_back({std::to_string(slot),
                        {{"open", slots->current_slot() == slot, kNow},
                         {"slices", done[slot].slices},
                         {"bytes", done[slot].bytes}}});
    }
    const uint64_t now_ns = monotonic_ns();
    const auto may = [&](Priority priority) { return uint64_t{slots->can_send(priority, now_ns)}; };
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
    std::vector<FigureRow> rows;  // one for each shard; SteadyFigures adds them up
    for_each_shard(engine, [&](Shard& shard) {
        for (const auto& backend : shard.backends()) {
            const TransportCounters& c = shard.transports[static_cast<size_t>(backend->transport())];
            rows.push_back({name(backend->transport()),
                            {{"read_bytes", c.read_bytes},
                             {"write_bytes", c.write_bytes},
                             {"slices", c.slices},
                             {"retried_slices", c.retries},
                             {"failed_over_slices", c.failovers}}});
        }
    });
    return rows;
}

std::vector<FigureRow> read_locks(Engine& engine) {
    std::vector<FigureRow> rows;
    for_each_shard(engine, [&](Shard& shard) {
        const Histogram &held = shard.held_ns, &ran = shard.ran_ns;
        rows.push_back({"shard" + std::to_string(shard.number()),
                        {{"holds", held.count()},
                         {"contended", shard.contended()},
                         {"held_ns", held.sum()},
                         {"p50_ns", held.quantile(0.5), kNow},
                         {"p99_ns", held.quantile(0.99), kNow},
                         {"p999_ns", held.quantile(0.999), kNow},
                         {"longest_ns", held.greatest(), kNow},
                         {"sampled", ran.count()},
                         {"slept", shard.slept},
                         {"ran_p50_ns", ran.quantile(0.5), kNow},
                         {"ran_p99_ns", ran.quantile(0.99), kNow},
                         {"ran_p999_ns", ran.quantile(0.999), kNow},
                         {"ran_longest_ns", ran.greatest(), kNow}}});
    });
    return rows;
}

constexpr FigureTable kTables[] = {
    {"devices", "device", "Devices of the TENT engine: load and learned bandwidth", read_devices},
    {"rails", "rail", "Rails of the TENT engine: state and counters", read_rails},
    {"priorities", "priority", "Requests of the TENT engine by priority", read_priorities},
    {"slots", "slot", "Completed bytes by slot, and the process that rotates the slots", read_slots},
    {"transports", "transport", "Bytes of the TENT engine by transport", read_transports},
    {"locks", "lock", "Times for which the TENT engine's shards were locked", read_locks},
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
    std::array<std::array<RequestHistograms, kTransports>, kPriorities> all{};
    for_each_shard(engine, [&](Shard& shard) {
        for (size_t priority = 0; priority < kPriorities; ++priority)
            for (size_t transport = 0; transport < kTransports; ++transport)
                all[priority][transport].add(shard.histograms[priority][transport]);
    });
    std::vector<HistogramRow> rows;
    for (uint8_t priority = 0; priority < kPriorities; ++priority) {
        for (uint8_t transport = 0; transport < kTransports; ++transport) {
            const RequestHistograms& seen = all[priority][transport];
            if (seen.bytes.count() == 0) continue;
            rows.push_back({name(static_cast<Priority>(priority)), name(static_cast<Transport>(transport)), seen});
        }
    }
    return rows;
}

}  // namespace rove::tent
