// SPDX-License-Identifier: Apache-2.0
// Opens and closes a bridge, tracks its members, and decides when it sleeps. bridge_frames.cc handles the frames.
#include "bridge/bridge.h"

#include <rte_mbuf.h>
#include <rte_pause.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <random>

#include "port/ethdev/ethdev.h"
#include "port/factory/open_port.h"
#include "port/port_name.h"
#include "runtime/eal.h"
#include "runtime/interrupts.h"
#include "runtime/runtime_folder.h"

namespace rove::bridge {

using datapath::RingReceiver;
using datapath::RingSender;

namespace {

constexpr uint64_t kFirstNapNs = 20'000;  // the shortest sleep that is worth two system calls
// The intervals at which a port without a doorbell is polled, at first and after some time without frames. They cost 2
// % and 0.5 % of a core.
constexpr uint64_t kNapNs = 500'000, kLongNapNs = 2'000'000, kLongIdleNs = 100'000'000;
// How long the bridge polls without a frame before it sleeps; a member's program may answer in this time.
constexpr uint64_t kIdleNs = 20'000;
constexpr uint64_t kLookNs = 1'000'000;        // between two checks of sockets while frames move
constexpr uint64_t kCareNs = 50'000'000;       // between two checks of a port that does not report changes of its link
constexpr uint64_t kSeldomNs = 1'000'000'000;  // between two checks of a port that does report them
constexpr uint64_t kRestartNs = 500'000'000;   // how long a restarted memif client may take to shake hands

// Returns a locally administered MAC for a port without one. Hosts at the uplink learn it from announcements, like any
// changed MAC.
wire::MacAddress random_mac() {
    std::random_device random;
    wire::MacAddress mac;
    for (uint8_t& byte : mac) byte = static_cast<uint8_t>(random());
    mac[0] = static_cast<uint8_t>((mac[0] & 0xFC) | 0x02);
    return mac;
}

}  // namespace

Bridge::Bridge(const Settings& settings) {
    config_.file = "rove-bridge";
    config_.eal_args = settings.eal_args;
    config_.devices.push_back(settings.uplink);
    config_.devices.front().queues = 1;
}

std::unique_ptr<Bridge> Bridge::open(const Settings& settings, std::string* error) {
    std::unique_ptr<Bridge> bridge(new Bridge(settings));
    // EAL's threads inherit a mask that blocks all signals, so that the program's signals reach other threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    *error = bridge->open_ports(settings);
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);  // a tap's driver uses a signal of its own
    for (int signal = 1; signal < NSIG; ++signal)
        if (sigismember(&now, signal) == 0) sigdelset(&before, signal);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return error->empty() ? std::move(bridge) : nullptr;
}

std::string Bridge::open_ports(const Settings& settings) {
    std::string error;
    datapath::DeviceConfig& device = config_.devices.front();
    std::optional<datapath::PortClaim> claim = datapath::PortClaim::take(device, &error);
    if (!claim) return error;
    claim_.emplace(std::move(*claim));
    {
        const datapath::HugepageInitLock turn;
        if (!datapath::prepare_eal(config_, &error) || !datapath::start_eal(config_, &error)) return error;
        eal_started_ = true;
        clock_.start();
        const uint32_t buffer_bytes =
            std::max(datapath::frame_room_bytes(device.mtu), datapath::least_buffer_bytes(config_.devices));
        pool_ = rte_pktmbuf_pool_create("rove-bridge", datapath::pool_mbufs(config_), datapath::kPoolCacheMbufs, 0,
                                        static_cast<uint16_t>(buffer_bytes + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY);
    }
    if (pool_ == nullptr) return "no memory for packets; allowed: more by EAL's -m";
    const datapath::PortEnvironment environment{event_loop_, *this, pool_, datapath::frame_room_bytes(device.mtu),
                                                true};
    uplink_ = datapath::open_port(0, device, environment, {pool_}, &error);
    if (uplink_ == nullptr) return error;
    wire::MacAddress mac = device.mac.value_or(uplink_->mac());
    if (mac == wire::MacAddress{}) mac = random_mac();
    path_mtu_ = std::min({settings.mtu.value_or(device.mtu), device.mtu, uplink_->path_mtu()});
    forwarding_.emplace(
        Forwarding::Settings{mac, device.vlan, path_mtu_ + wire::kMaxOverheadBytes - kLinkBytes, settings.gateways});
    neighbours_.emplace(mac, device.vlan, std::vector<datapath::Subnet>{{datapath::link_local_gid(mac), 64}},
                        std::nullopt, std::nullopt);
    outlet_.emplace(*uplink_, pool_, counters_);
    for (uint16_t queue = 0; queue < uplink_->queues(); ++queue) {
        uplink_queues_.push_back(uplink_->make_rx_queue(queue));
        if (uplink_queues_.back() != nullptr) uplink_rx_.push_back(uplink_queues_.back().get());
    }
    bounce_.resize(kLinkBytes + UINT16_MAX);
    auto mesh = std::make_unique<datapath::MeshPort>(1, environment);
    if (!mesh->open_as_bridge(settings.folder, mac, path_mtu_, &error)) return error;
    mesh_ = std::move(mesh);
    return {};
}

Bridge::~Bridge() {
    if (!eal_started_) return;
    datapath::silence_interrupts();
    // The mesh closes first, so that no member receives further frames.
    for (datapath::Port* const port : {static_cast<datapath::Port*>(mesh_.get()), uplink_.get()})
        if (port != nullptr) port->close();
    for (Unresolved& one : unresolved_) one.free_frames();
    outlet_.reset();
    datapath::remove_runtime_folder();
}

// --- members ---------------------------------------------------------------------------------------------------------

void Bridge::attach(datapath::Port& port, const datapath::LinkRings& link) {
    const std::lock_guard lock(mutex_);
    if (&port == uplink_.get()) {
        outlet_->set_ring(link.sender);
        uplink_rx_.push_back(link.receiver);
        return;
    }
    // A member links to us after our link to it exists (mesh.h).
    if (link.sender != nullptr) return add_member(link);
    Peer& member = **peer_of(link.peer.name);
    member.receivers.push_back(link.receiver);
    members_rx_.add(*link.receiver);
    senders_[link.receiver] = &member;
}

void Bridge::detach(datapath::Port& port, const datapath::LinkRings& link) {
    const std::lock_guard lock(mutex_);
    if (&port == uplink_.get()) {
        outlet_->set_ring(nullptr);
        std::erase(uplink_rx_, link.receiver);
        return;
    }
    const auto found = peer_of(link.peer.name);
    Peer& member = **found;
    if (link.receiver != nullptr) {
        now_ns_ = clock_.now_ns();
        // A program may have sent frames before it ended, at most as many as its ring holds.
        constexpr int kMaxBursts = 64;
        for (int bursts = 0; bursts < kMaxBursts && outlet_->has_room(); ++bursts) {
            if (receive_from(member, *link.receiver) == 0) break;
            outlet_->flush();
        }
        publish();
        members_rx_.remove(*link.receiver);
        senders_.erase(link.receiver);
        std::erase(member.receivers, link.receiver);
    } else {
        publish();
        member.sender = nullptr;
        forwarding_->remove(member.number);
        member.addresses.clear();
        members_changed();
    }
    if (member.sender == nullptr && member.receivers.empty()) found->reset();
}

// Returns the place of the member of this name, or the end of peers_.
std::vector<std::unique_ptr<Bridge::Peer>>::iterator Bridge::peer_of(const std::string& name) {
    return std::ranges::find_if(peers_, [&](const auto& one) { return one != nullptr && one->peer.name == name; });
}

void Bridge::add_member(const datapath::LinkRings& link) {
    auto found = peer_of(link.peer.name);
    if (found == peers_.end()) found = std::find(peers_.begin(), peers_.end(), nullptr);
    if (found == peers_.end()) found = peers_.insert(peers_.end(), nullptr);
    if (*found == nullptr) *found = std::make_unique<Peer>();
    Peer& member = **found;
    member.number = static_cast<Member>(found - peers_.begin());
    member.peer = link.peer;
    member.sender = link.sender;
    member.addresses = mesh_->addresses_of(link.peer.name);
    member.addresses.push_back(datapath::link_local_gid(link.peer.mac));
    forwarding_->remove(member.number);
    forwarding_->add(member.number, member.addresses);
    members_changed();
    announce(member.addresses);
}

void Bridge::members_changed() {
    std::set<wire::Gid> hosts;
    for (const auto& member : peers_)
        if (member != nullptr) hosts.insert(member->addresses.begin(), member->addresses.end());
    neighbours_->set_proxied(std::move(hosts));
}

// --- the loop --------------------------------------------------------------------------------------------------------

void Bridge::run() {
    prctl(PR_SET_TIMERSLACK, 1);  // ns; the default of 50 us would double the shorter naps
    datapath::guard_interrupts([this](const std::function<void()>& callback) {
        {
            const std::lock_guard control(control_);
            const std::lock_guard lock(mutex_);
            callback();
        }
        ports_changed();
    });
    uplink_->start();
    restarted_ns_ = clock_.now_ns();
    mesh_->start();
    uint64_t idle_since_ns = clock_.now_ns(), looked_ns = 0, nap_ns = kFirstNapNs;
    while (!stopped_.load(std::memory_order_relaxed)) {
        schedule_port_check();
        uint32_t moved = 0;
        bool member_was_full = false;
        {
            const std::lock_guard lock(mutex_);
            moved = round();
            member_was_full = member_was_full_;
        }
        const uint64_t now_ns = clock_.now_ns();
        if (moved != 0) {
            idle_since_ns = now_ns;
            nap_ns = kFirstNapNs;
        }
        if (now_ns - looked_ns >= kLookNs) {
            looked_ns = now_ns;
            event_loop_.wait(0);
        }
        if (now_ns - idle_since_ns < kIdleNs) {
            // The member that does not read may need this core. sched_yield() would not help: a polling process would
            // keep the core for a time slice, while a sleeper that wakes up gets it back at once.
            if (member_was_full) event_loop_.wait(kFirstNapNs);
            rte_pause();
            continue;
        }
        sleep(nap_ns);
        looked_ns = clock_.now_ns();
        nap_ns = std::min(2 * nap_ns, now_ns - idle_since_ns < kLongIdleNs ? kNapNs : kLongNapNs);
    }
}

void Bridge::stop() {
    stopped_.store(true, std::memory_order_relaxed);
    event_loop_.wake();
}

void Bridge::sleep(uint64_t nap_ns) {
    uint64_t until_ns = 0;
    {
        const std::lock_guard lock(mutex_);
        until_ns = deadline_ns();
        if (!arm()) return;
    }
    const uint64_t now_ns = clock_.now_ns();
    const uint64_t poll_interval_ns = uplink_->needs_polling() ? kCareNs : kSeldomNs;
    const uint64_t most_ns = uplink_->rings() ? poll_interval_ns : nap_ns;
    if (until_ns > now_ns && !ports_changed_.load(std::memory_order_relaxed))
        event_loop_.wait(std::min(until_ns - now_ns, most_ns));
    const std::lock_guard lock(mutex_);
    disarm();
}

bool Bridge::arm() {
    bool nothing_came = members_rx_.arm();
    for (datapath::RxQueue* const queue : uplink_rx_) nothing_came &= queue->arm();
    if (!nothing_came) disarm();
    return nothing_came;
}

void Bridge::disarm() {
    for (datapath::RxQueue* const queue : uplink_rx_) queue->disarm();
    members_rx_.disarm();
}

void Bridge::ports_changed() {
    ports_changed_.store(true, std::memory_order_relaxed);
    event_loop_.wake();
}

void Bridge::schedule_port_check() {
    const uint64_t now_ns = clock_.now_ns();
    const uint64_t poll_interval_ns = uplink_->needs_polling() ? kCareNs : kSeldomNs;
    if (now_ns - looked_after_ns_ < poll_interval_ns && !ports_changed_.load(std::memory_order_relaxed)) return;
    ports_changed_.store(false, std::memory_order_relaxed);
    looked_after_ns_ = now_ns;
    const std::lock_guard control(control_);
    if (uplink_->wants_restart(now_ns - restarted_ns_ >= kRestartNs)) {
        uplink_->restart();
        restarted_ns_ = now_ns;
    }
    mesh_->poll_link();
    if (!uplink_->poll_link() || !uplink_->ready() || uplink_->resolves_neighbours()) return;
    const std::lock_guard lock(mutex_);
    for (const auto& member : peers_)
        if (member != nullptr) announce(member->addresses);
    outlet_->flush();
}

// --- statistics
// --------------------------------------------------------------------------------------------------------

std::vector<Bridge::MemberState> Bridge::members() const {
    const std::lock_guard lock(mutex_);
    std::vector<MemberState> states;
    for (const auto& member : peers_) {
        if (member == nullptr) continue;
        MemberState& state = states.emplace_back();
        state.name = member->peer.name;
        state.mac = member->peer.mac;
        state.addresses = member->addresses;
        state.rx_drops = member->rx_drops;
        state.tx_drops = member->tx_drops;
        for (const RingReceiver* const receiver : member->receivers) {
            state.rx_frames += receiver->frames();
            state.rx_bytes += receiver->bytes();
        }
        if (member->sender == nullptr) continue;
        state.tx_frames = member->sender->frames();
        state.tx_bytes = member->sender->bytes();
    }
    return states;
}

Counters Bridge::counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
}

}  // namespace rove::bridge
