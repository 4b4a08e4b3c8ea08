// SPDX-License-Identifier: Apache-2.0
// The event loop of the virtual network, and its effects on frames.
#include "transport/virtual_network.h"

#include <algorithm>

template class rove::transport::Engine<rove::test::TestSink>;

namespace rove::test {

namespace {

constexpr uint32_t kTransmitBudget = 64;
// After this number of events at one instant the engine must be asking for the same time again and again.
constexpr uint32_t kLivelock = 1'000'000;

}  // namespace

void mark_ce(std::vector<uint8_t>& frame) {
    const size_t l3 = frame[12] == 0x81 ? 18 : 14;
    if (frame[l3] >> 4 == 6) {
        frame[l3 + 1] |= wire::kEcnCe << 4;
        return;
    }
    frame[l3 + 1] |= wire::kEcnCe;
    frame[l3 + 10] = frame[l3 + 11] = 0;
    uint32_t sum = 0;
    for (size_t i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(frame[l3 + i] << 8 | frame[l3 + i + 1]);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = ~(sum + (sum >> 16)) & 0xFFFF;
    frame[l3 + 10] = static_cast<uint8_t>(sum >> 8);
    frame[l3 + 11] = static_cast<uint8_t>(sum);
}

Network::Network(uint64_t seed, const std::vector<transport::Config>& hosts)
    : egress(hosts.size()),
      random_(seed),
      departures_(hosts.size()),
      wake_pending_(hosts.size()),
      burst_until_(hosts.size()),
      stalled_until_(hosts.size()) {
    for (uint32_t i = 0; i < hosts.size(); ++i) {
        hosts_.push_back(std::make_unique<Host>(i, hosts[i]));
        hosts_[i]->sink.room = [this, i] { return has_room(i); };
        hosts_[i]->sink.transmit = [this, i](const Path& path, const wire::Headers& headers,
                                             std::vector<uint8_t>&& frame) {
            on_sent(i, path, headers, std::move(frame));
        };
    }
}

bool Network::has_room(uint32_t from) {
    auto& ring = departures_[from];
    while (!ring.empty() && ring.front() <= now_) ring.pop_front();
    const bool full = egress[from].room_packets != 0 && ring.size() >= egress[from].room_packets;
    if (!full && !random_.chance(egress[from].refuse)) return true;
    if (!wake_pending_[from]) {
        wake_pending_[from] = true;
        at(full ? ring.front() : now_ + 1'000, [this, from] { wake_pending_[from] = false; });
    }
    return false;
}

void Network::on_sent(uint32_t from, const Path& path, const wire::Headers& headers, std::vector<uint8_t>&& frame) {
    Observed seen{now_, from, headers, 0};
    // Missing headers were never set, and filters may read them before they check the opcode.
    if (!(wire::opcode_info(headers.bth.opcode).extensions & wire::kHasMpeth)) seen.headers.mp = {};
    const size_t overhead = wire::frame_bytes(path.headers, headers.bth.opcode, 0);
    seen.payload_bytes = static_cast<uint32_t>(frame.size() - overhead);  // with pad
    if (keep_trace) trace.push_back(seen);
    switch (filter ? filter(seen) : Verdict::kPass) {
        case Verdict::kDrop:
            return;
        case Verdict::kHold:
            held_.push_back({from, path.flow.dst_mac, std::move(frame)});
            return;
        case Verdict::kTwice:
            carry(from, path.flow.dst_mac, frame);
            break;
        case Verdict::kMarkCe:
            mark_ce(frame);
            break;
        case Verdict::kDamage:
            frame[frame.size() - wire::kIcrcBytes - 1] ^= 1;
            break;
        case Verdict::kPass:
            break;
    }
    carry(from, path.flow.dst_mac, std::move(frame));
}

void Network::carry(uint32_t from, const wire::MacAddress& to, std::vector<uint8_t> frame) {
    const Impairment& link = egress[from];
    uint64_t time = now_;
    if (link.bytes_per_s != 0) {
        auto& ring = departures_[from];
        while (!ring.empty() && ring.front() <= now_) ring.pop_front();
        if (!ring.empty()) time = ring.back();
        time += frame.size() * 1'000'000'000 / link.bytes_per_s + 1;
        ring.push_back(time);
    }
    for (const auto& [begin, end] : link.down) {
        if (now_ >= begin && now_ < end) return;
    }
    if (link.loss > 0 && random_.chance(link.loss)) return;
    if (link.bursts.begin > 0) {
        if (now_ >= burst_until_[from] && random_.chance(link.bursts.begin))
            burst_until_[from] = now_ + random_.between(1, 2 * link.bursts.mean_ns);
        if (now_ < burst_until_[from] && random_.chance(link.bursts.loss)) return;
    }
    if (link.mark_ce > 0 && random_.chance(link.mark_ce)) mark_ce(frame);
    if (!link.lanes.empty()) {
        const size_t l3 = frame[12] == 0x81 ? 18 : 14, udp = l3 + (frame[l3] >> 4 == 6 ? 40 : 20);
        uint32_t port = static_cast<uint32_t>(frame[udp] << 8 | frame[udp + 1]);
        if (link.lane_hash != 0) port = (port ^ link.lane_hash) * 2654435761u >> 16;
        const Lane& lane = link.lanes[port % link.lanes.size()];
        if (random_.chance(lane.loss)) return;
        for (const auto& [begin, end] : lane.dark) {
            if (now_ >= begin && now_ < end) return;
        }
        time += lane.delay_ns;
    }
    time += link.delay_ns;
    if (link.duplicate > 0 && random_.chance(link.duplicate)) {
        schedule(to, time + random_.below(link.reorder_ns), frame);
    }
    if (link.reorder > 0 && random_.chance(link.reorder)) time += random_.below(link.reorder_ns);
    if (link.corrupt > 0 && random_.chance(link.corrupt)) {
        for (uint64_t flips = random_.between(1, 3); flips > 0; --flips) {
            frame[random_.below(frame.size())] ^= static_cast<uint8_t>(1u << random_.below(8));
        }
    }
    schedule(to, time, frame);
}

void Network::schedule(const wire::MacAddress& to, uint64_t time, const std::vector<uint8_t>& frame) {
    const bool multicast = (to[0] & 1) != 0;
    for (auto& host : hosts_) {
        if (host->mac() == to || multicast) events_.insert({time, Event{host->index(), frame, nullptr}});
    }
}

void Network::stall(uint32_t host, uint64_t time) {
    stalled_until_[host] = std::max(time, stalled_until_[host]);
    at(time, [] {});  // then it checks for packets to send
}

void Network::at(uint64_t time, std::function<void()> action) {
    events_.insert({std::max(time, now_), Event{0, {}, std::move(action)}});
}

void Network::pump(Host& host) {
    if (guard == nullptr) [[likely]] {
        while (host.engine.transmit(now_, kTransmitBudget) > 0) {
        }
        return;
    }
    for (bool sent = true; sent;) transmit(host, [&] { sent = host.engine.transmit(now_, kTransmitBudget) > 0; });
}

bool Network::run(uint64_t horizon, const std::function<bool()>& done) {
    pump();
    uint32_t at_once = 0;
    while (!done || !done()) {
        uint64_t next = events_.empty() ? transport::kNever : events_.begin()->first;
        Host* timer = nullptr;
        for (auto& host : hosts_) {
            uint64_t deadline = host->engine.next_deadline();
            if (deadline != transport::kNever) deadline = std::max(deadline, stalled_until_[host->index()]);
            if (deadline < next) {
                next = deadline;
                timer = host.get();
            }
        }
        if (next == transport::kNever) return true;
        if (next > horizon) return false;
        at_once = next > now_ ? 0 : at_once + 1;
        if (at_once > kLivelock) {
            ADD_FAILURE() << "time stands still at " << now_;
            return false;
        }
        now_ = std::max(now_, next);
        if (timer != nullptr) {
            transmit(*timer, [&] { timer->engine.expire(now_); });
            pump(*timer);
            continue;
        }
        Event event = std::move(events_.extract(events_.begin()).mapped());
        if (event.action) {
            event.action();
            pump();
        } else if (is_stalled(event.host)) {
            const uint64_t until = stalled_until_[event.host];
            events_.insert({until, std::move(event)});
        } else {
            deliver(*hosts_[event.host], event.frame);
            pump(*hosts_[event.host]);
        }
    }
    return true;
}

void Network::release(bool reversed) {
    std::vector<WorkerQuiesced> held = std::move(held_);
    held_.clear();
    if (reversed) std::reverse(held.begin(), held.end());
    for (WorkerQuiesced& packet : held) carry(packet.from, packet.to, std::move(packet.frame));
}

void Network::inject(uint32_t to, const Path& path, const wire::Headers& headers, const std::vector<uint8_t>& payload) {
    const uint32_t bytes = static_cast<uint32_t>(payload.size());
    std::vector<uint8_t> frame(wire::frame_bytes(path.headers, headers.bth.opcode, bytes));
    const wire::Segment segment{payload.data(), bytes};
    wire::build_frame(frame.data(), path.headers, headers, {&segment, 1});
    deliver(*hosts_[to], frame);
    pump(*hosts_[to]);
}

void Network::deliver(Host& host, std::span<const uint8_t> frame) {
    wire::ParsedFrame parsed;
    wire::ParseError error = wire::parse_headers(frame, parsed);
    QueuePair* const qp = host.qps.find(parsed.headers.bth.dest_qpn);
    bool done = error != wire::ParseError::kNone;
    const auto step = [&] {
        if (!done && !host.engine.receive(parsed, qp, 0, now_)) error = wire::ParseError::kIcrc;
    };
    if (guard)
        guard(host, step, [&] { done = !host.engine.recover_receive(parsed, qp); });
    else
        step();
    ++host.parse_errors[static_cast<size_t>(error)];
}

Connection connect(Network& network, Host& a, Host& b, const QpOptions& options_a, const QpOptions& options_b,
                   bool ipv6) {
    QueuePair& qa = a.create(options_a);
    QueuePair& qb = b.create(options_b);
    a.bring_up(qa, options_a, a.path_to(b, ipv6), qb.qpn, options_b.psn, network.now());
    b.bring_up(qb, options_b, b.path_to(a, ipv6), qa.qpn, options_a.psn, network.now());
    return {qa, qb};
}

}  // namespace rove::test
