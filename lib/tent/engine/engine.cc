// SPDX-License-Identifier: Apache-2.0
// Starting and stopping, segments, and the answers of the control plane. Memory: engine_memory.cc; transfers:
// engine_transfer.cc.
#include "tent/engine/engine.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "tent/control/address.h"
#include "tent/control/connection_name.h"
#include "tent/control/place.h"
#include "tent/engine/shard.h"
#include "tent/metadata/names.h"
#include "tent/observability/log.h"
#include "tent/observability/metrics.h"
#include "tent/observability/telemetry.h"
#include "tent/transports/io_uring/file.h"
#include "tent/transports/io_uring/io_uring_backend.h"
#include "tent/transports/rdma/rdma_backend.h"
#include "tent/transports/shm/shm_backend.h"
#include "tent/transports/tcp/tcp_backend.h"

namespace rove::tent {

namespace {

constexpr uint64_t kProbeNs = 1'000'000'000, kNotifyNs = 3'000'000'000;

std::string made_up_name() {
    std::random_device random;
    std::string name = "segment_noname_";
    for (int i = 0; i < 8; ++i) name += static_cast<char>('a' + random() % 26);
    return name;
}

bool is_ok(const std::optional<Json>& answer) {
    bool ok = false;
    return answer && get(*answer, "ok", &ok) && ok;
}

void say_lost(const Announcement& announcement, const Peer& target) {
    static LogLimit limit;
    log(limit, LogLevel::kWarning, "notification '%s' was lost: segment '%s' did not accept it",
        announcement.name.c_str(), target.name().c_str());
}

}  // namespace

Engine::Engine(const ::rove::tent::Config& config)
    : core_(config),
      server_(core_.jobs(), core_.credentials(),
              {.answer = [this](MessageType type, const Json& body) { return answer(type, body); },
               .ended = [this](const Json& lease) { end_lease(parse_owner(lease)); },
               .take_data =
                   [this](Stream stream) {
                       if (core_.config().enable_tcp) tcp_server_.take(std::move(stream));
                   }}),
      names_(config.metadata_type == MetadataType::kP2p
                 ? nullptr
                 : std::make_unique<Names>(MetadataStore::create(config), core_.credentials(), config.store.ttl_s)),
      peers_(core_, server_, names_.get()),
      background_(core_),
      tcp_server_(memory_) {}

Status Engine::start(const ::rove::tent::Config& config, std::unique_ptr<Engine>* out) {
    set_log_level(config.log_level);
    // OpenSSL must not clean up at exit: a program may end while its engine exists, whose threads use TLS until the
    // process ends.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    std::unique_ptr<Engine> engine(new Engine(config));
    Status status = engine->open();
    if (status.ok()) *out = std::move(engine);
    return status;
}

Status Engine::open() {
    std::random_device random;
    core_.set_instance(uint64_t{random()} << 31 | random());  // fits what JSON readers elsewhere take for a number
    core_.recycle = [this](Batch& batch) { recycle(batch); };
    core_.refresh = [this](Task& task) { peers_.refresh_refused(task); };
    core_.announce = [this](std::shared_ptr<Announcement> announcement) { announce(announcement); };
    const ::rove::tent::Config& config = core_.config();
    Credentials credentials;
    Status status = Credentials::load(config, &credentials);
    if (!status.ok()) return status;
    core_.set_credentials(std::move(credentials));
    status = open_transports();
    if (!status.ok()) return status;
    if (config.enable_io_uring) {
        auto io_uring = std::make_unique<IoUringBackend>(core_.shard(0));
        io_uring_ = io_uring.get();
        core_.shard(0).add_backend(std::move(io_uring));
    }
    for (const auto& shard : core_.shards()) {
        if (ports_ != nullptr) shard->add_backend(std::make_unique<RdmaBackend>(*shard, ports_));
        if (config.enable_shm) shard->add_backend(std::make_unique<ShmBackend>(*shard));
        if (config.enable_tcp) shard->add_backend(std::make_unique<TcpBackend>(*shard));
    }
    Place place;
    status = choose_place(config, !core_.credentials().empty(), port_addresses(), &place);
    if (!status.ok()) return status;
    std::string error = shm_server_.start(core_.instance());
    if (!error.empty()) return {Code::kInternalError, error};
    error = server_.listen(place.listen, config.rpc_server_port);
    if (!error.empty()) {
        return {Code::kRpcServiceError, "rpc_server_hostname '" + config.rpc_server_hostname + "', " + error +
                                            " (a name or address of this host, and a free port or 0 are allowed)"};
    }
    if (!place.note.empty()) log(LogLevel::kWarning, "port %u: %s", server_.port(), place.note.c_str());
    host_ = place.host;
    address_ = join_address(host_, place.port != 0 ? place.port : server_.port());
    if (names_ == nullptr) {
        name_ = address_;  // like Mooncake's p2p: the name suffices to ask this engine
    } else {
        name_ = config.local_segment_name.empty() ? made_up_name() : config.local_segment_name;
    }
    server_.start();  // its answers contain everything set above
    if (names_ != nullptr) status = names_->publish(name_, address_);
    if (!status.ok()) return status;
    peers_.set_local(name_, address_);
    if (names_ != nullptr) names_->watch([this](const std::string& name) { peers_.changed(name); });
    background_.start([this] {
        peers_.tidy();
        free_dropped_tasks();
    });
    show_in_telemetry(*this);
    if (config.metrics.enabled) status = Metrics::start(config.metrics, *this, &metrics_);
    return status;
}

Status Engine::open_transports() {
    const ::rove::tent::Config& config = core_.config();
    std::unique_ptr<Slots> slots;
    Status status = Slots::open(config.slots, &slots);
    if (!status.ok()) return status;
    core_.set_slots(std::move(slots));
    std::vector<std::unique_ptr<VerbsDevice>> devices;
    if (config.rdma.enable) status = VerbsDevice::open_all(config, &devices);
    if (!status.ok()) return status;
    std::vector<std::string> names;
    for (const auto& device : devices) names.push_back(device->name());
    if (!devices.empty()) status = RdmaPorts::create(config, std::move(devices), &ports_);
    if (!status.ok()) return status;
    std::optional<TransportSelector> selector;
    status = TransportSelector::create(config.policies, names, config.strict, &selector);
    if (status.ok()) core_.set_selector(std::move(*selector));
    return status;
}

Engine::~Engine() {
    metrics_.reset();
    hide_from_telemetry(*this);
    background_.stop();
    names_.reset();
    server_.stop();
    for (const auto& peer : peers_.all()) peer->control().hang_up();  // so that no job waits for an answer
    core_.jobs().stop();
    peers_.clear();  // from here on we change no memory of others, and the next line sees to ours
    tcp_server_.stop();
    shm_server_.stop();
    if (ports_ != nullptr)
        for (const auto& buffer : memory_.all()) ports_->remove_memory(*buffer);
    for (const auto& [address, memory] : allocated_) memory->withdraw();
}

std::vector<std::string> Engine::device_names() const {
    std::vector<std::string> names;
    if (ports_ == nullptr) return names;
    for (const auto& device : ports_->devices()) names.push_back(device->name());
    return names;
}

Status Engine::open_segment(const std::string& name, uint64_t* handle) {
    if (name.empty() || name == name_) {
        *handle = Peers::kLocal;
        return {};
    }
    if (name.starts_with(kFileScheme)) {
        Status status;
        if (io_uring_ != nullptr) core_.shard(0).with_lock([&] { status = io_uring_->start(); });
        return status.ok() ? peers_.open(name, handle) : status;
    }
    if (names_ != nullptr) return peers_.open(name, handle);
    if (!split_address(name)) {
        return {Code::kInvalidArgument,
                "segment '" + name + "': HOST:PORT of its engine (metadata_type p2p) and file:///PATH are allowed"};
    }
    return peers_.open(name, handle);
}

Status Engine::segment_info(uint64_t handle, std::shared_ptr<const SegmentDesc>* out) {
    UsedPeer used;
    uint64_t change = 0;
    Status status = peers_.acquire(handle, &used.peer, &change);
    if (status.ok()) status = peers_.refresh(*used.peer);
    if (status.ok()) *out = used.peer->segment();
    return status;
}

Status Engine::use_process(uint64_t handle, UsedPeer* out) {
    uint64_t change = 0;
    Status status = peers_.acquire(handle, &out->peer, &change);
    if (status.ok() && out->peer->is_file())
        return {Code::kInvalidArgument, "segment '" + out->peer->name() + "' is a file, not a process"};
    return status;
}

Status Engine::probe(uint64_t handle) {
    UsedPeer used;
    Status status = use_process(handle, &used);
    if (!status.ok()) return status;
    if (used.peer->control().call(MessageType::kProbe, Json::object(), kProbeNs)) return {};
    return {Code::kRpcServiceError,
            "segment '" + used.peer->name() + "': no answer within " + std::to_string(kProbeNs / 1'000'000) + " ms"};
}

Json Engine::describe() const {
    SegmentDesc segment;
    segment.name = name_;
    segment.instance = core_.instance();
    segment.shm_server = shm_server_.name();
    if (core_.config().enable_tcp) segment.data_address = address_;
    if (ports_ != nullptr) {
        for (const auto& device : ports_->devices()) {
            DeviceDesc& one = segment.devices.emplace_back();
            one.name = device->name();
            std::copy_n(device->gid().raw, one.gid.size(), one.gid.begin());
            one.mtu = device->mtu();
        }
    }
    for (const auto& buffer : memory_.all()) {
        if (buffer->permission == Permission::kLocalReadWrite) continue;
        BufferDesc& one = segment.buffers.emplace_back();
        one.address = buffer->address;
        one.length = buffer->length;
        one.location = buffer->location;
        one.writable = buffer->permission == Permission::kGlobalReadWrite;
        one.shared = buffer->shared;
        if (ports_ != nullptr) ports_->describe(*buffer, &one);
    }
    return to_json(segment);
}

Json Engine::answer(MessageType type, const Json& body) {
    switch (type) {
        case MessageType::kDescribe:
            return describe();
        case MessageType::kConnect:
            if (ports_ == nullptr) break;
            return ports_->passive().connect(body);
        case MessageType::kClose:
            return close_connection(body);
        case MessageType::kNotify:
            return {{"ok", receive(body)}};
        case MessageType::kLease:
            return {{"ok", begin_lease(parse_owner(body))}};
        case MessageType::kProbe:
            return {{"ok", true}, {"instance", core_.instance()}};
        case MessageType::kReply:
            break;
    }
    return {{"ok", false}, {"error", "not offered"}};
}

bool Engine::begin_lease(const std::string& owner) {
    if (owner.empty()) return false;
    if (++leases_[owner] != 1) return true;
    if (ports_ != nullptr) ports_->passive().admit(owner);
    tcp_server_.admit(owner);
    return true;
}

void Engine::end_lease(const std::string& owner) {
    const auto at = leases_.find(owner);
    if (at == leases_.end() || --at->second != 0) return;
    leases_.erase(at);
    if (ports_ != nullptr) ports_->passive().forget(owner);
    tcp_server_.forget(owner);
}

std::vector<SocketAddress> Engine::port_addresses() const {
    std::vector<SocketAddress> addresses;
    if (ports_ == nullptr) return addresses;
    for (const auto& device : ports_->devices()) addresses.push_back(address_of(device->gid().raw));
    return addresses;
}

Json Engine::close_connection(const Json& body) {
    ConnectionName name;
    if (name.parse(body) && name.rail == TcpServer::kRail) {
        tcp_server_.close_connection(name.owner, name.number);
        return {{"ok", true}};
    }
    if (ports_ == nullptr) return {{"ok", false}, {"error", "not offered"}};
    return ports_->passive().close(body);
}

bool Engine::receive(const Json& body) {
    NotificationText text;
    if (!get(body, "name", &text.name) || !get(body, "message", &text.message)) return false;
    if (text.name.size() > kMaxNotificationName || text.message.size() > kMaxNotificationMessage) return false;
    const std::lock_guard lock(notification_mutex_);
    if (notifications_.size() >= kMaxNotifications) {
        static LogLimit limit;
        log(limit, LogLevel::kWarning, "notification '%s' was lost: %zu already wait for receiveNotification()",
            text.name.c_str(), notifications_.size());
        return false;
    }
    notifications_.push_back(std::move(text));
    return true;
}

Status Engine::notify(uint64_t handle, const NotificationText& notification) {
    if (notification.name.size() > kMaxNotificationName || notification.message.size() > kMaxNotificationMessage) {
        return {Code::kInvalidArgument, "notification: a name of up to " + std::to_string(kMaxNotificationName) +
                                            " bytes and a message of up to " + std::to_string(kMaxNotificationMessage) +
                                            " are allowed"};
    }
    UsedPeer used;
    Status status = use_process(handle, &used);
    if (!status.ok()) return status;
    const Json body{{"name", notification.name}, {"message", notification.message}};
    if (is_ok(used.peer->control().call(MessageType::kNotify, body, kNotifyNs))) return {};
    return {Code::kRpcServiceError, "segment '" + used.peer->name() + "' did not accept the notification"};
}

void Engine::announce(const std::shared_ptr<Announcement>& announcement) {
    for (const auto& target : announcement->targets) {
        bool is_full = false;
        const bool begins = target->outbox.add(announcement, &is_full);
        if (is_full) say_lost(*announcement, *target);
        if (!begins) continue;
        core_.jobs().add(target->name(), [target] {
            while (const auto one = target->outbox.next()) {
                const Json body{{"name", one->name}, {"message", one->message}};
                if (target->gone.load() || !is_ok(target->control().call(MessageType::kNotify, body, kNotifyNs)))
                    say_lost(*one, *target);
            }
        });
    }
}

std::vector<NotificationText> Engine::take_notifications() {
    const std::lock_guard lock(notification_mutex_);
    std::vector<NotificationText> taken(std::make_move_iterator(notifications_.begin()),
                                        std::make_move_iterator(notifications_.end()));
    notifications_.clear();
    return taken;
}

}  // namespace rove::tent
