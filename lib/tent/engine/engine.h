// SPDX-License-Identifier: Apache-2.0
// The engine behind the public classes and functions (include/rove): puts the parts together. Calls are any thread's.
// Units: bytes, nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/drive_lock.h"
#include "rove/tent_status.h"
#include "tent/control/server.h"
#include "tent/engine/background.h"
#include "tent/engine/core.h"
#include "tent/engine/peers.h"
#include "tent/engine/thread_lane.h"
#include "tent/memory/memory.h"
#include "tent/transports/shm/shm_server.h"
#include "tent/transports/tcp/tcp_server.h"

namespace rove::tent {

class IoUringBackend;
class Metrics;
class RdmaPorts;

struct NotificationText {
    std::string name, message;
};

struct TaskStatus {
    TransferStatusEnum state = TransferStatusEnum::INITIAL;
    uint64_t transferred = 0;
    Reason reason = Reason::kNone;
};

struct MemorySettings {
    std::string location = "*";
    Permission permission = Permission::kGlobalReadWrite;
};

class Engine {
  public:
    static constexpr size_t kMaxNotificationName = 255, kMaxNotificationMessage = 4095;  // bytes, as documented
    static constexpr size_t kMaxNotifications = 4096;                                    // that wait to be received

    static Status start(const ::rove::tent::Config& config, std::unique_ptr<Engine>* out);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // --- identity ---
    const std::string& segment_name() const { return name_; }
    const std::string& rpc_address() const { return host_; }
    uint16_t rpc_port() const { return server_.port(); }
    std::vector<std::string> device_names() const;
    Core& core() { return core_; }
    RdmaPorts* ports() { return ports_.get(); }  // null without RDMA ports
    Peers& peers() { return peers_; }

    // --- segments ---
    Status open_segment(const std::string& name, uint64_t* handle);
    Status close_segment(uint64_t handle) { return peers_.close(handle); }
    Status segment_info(uint64_t handle, std::shared_ptr<const SegmentDesc>* out);
    Status probe(uint64_t handle);

    // --- memory ---
    Status register_memory(void* address, uint64_t length, const MemorySettings& settings);
    Status unregister_memory(void* address, uint64_t length);
    // Memory that others on this machine can map, registered.
    Status allocate_memory(uint64_t length, const MemorySettings& settings, void** address);
    Status free_memory(void* address);

    // --- transfers ---
    // Returns 0 if there is no room for a batch of this many tasks.
    uint64_t allocate_batch(size_t capacity);
    Status free_batch(uint64_t id);
    Status submit(uint64_t id, std::span<const Request> requests, const NotificationText* notification);
    Status cancel(uint64_t id, size_t task);
    Status task_status(uint64_t id, size_t task, TaskStatus* out);
    // Returns the states of all submitted tasks.
    Status task_statuses(uint64_t id, std::vector<TaskStatus>* out);
    Status overall_status(uint64_t id, TaskStatus* out);

    // --- notifications ---
    Status notify(uint64_t handle, const NotificationText& notification);
    std::vector<NotificationText> take_notifications();

  private:
    static constexpr uint32_t kBatches = 16384;      // limit on existing batches
    static constexpr size_t kMaxBatchTasks = 65536;  // limit on the tasks of one batch

    explicit Engine(const ::rove::tent::Config& config);
    Status open();
    Status open_transports();
    Json answer(MessageType type, const Json& body);
    // A peer that a call needs while it lasts.
    struct UsedPeer {
        std::shared_ptr<Peer> peer;
        ~UsedPeer() {
            if (peer != nullptr) peer->tasks.undo_begin();
        }
    };
    Status use_process(uint64_t handle, UsedPeer* out);
    Json describe() const;
    bool begin_lease(const std::string& owner);
    void end_lease(const std::string& owner);
    std::vector<SocketAddress> port_addresses() const;
    Json close_connection(const Json& body);
    bool receive(const Json& body);

    Status add_memory(std::shared_ptr<LocalBuffer> buffer);
    Status remove_memory(LocalBuffer& buffer);
    Batch* find_batch(uint64_t id) const;
    Batch* take_free_batch(uint32_t lane);  // returns null if the list is empty
    Batch* new_batch();                     // returns null if kBatches exist
    void recycle(Batch& batch);
    void free_dropped_tasks();
    // Lets a task begin at its buffer and its peer, unless it fails. Sets `*waited` if that may have taken long.
    Status prepare(const Request& request, uint64_t now_ns, Task* task, bool* waited);
    Status find_ends(const Request& request, Task* task, bool* waited);
    Status select(const Request& request, uint64_t now_ns, Task* task, bool* waited);
    static void undo(Task& task);
    using DriveGuard = std::unique_lock<DriveLock>;
    Status take_slices(std::span<Task> tasks, DriveGuard* drive, Slice** first);
    static Slice* cut(Task& task, Slice* slice);
    void tell_when_complete(const NotificationText& notification, std::span<Task> tasks);
    void queue(Batch& batch, std::span<Task> tasks, Slice* slice, DriveGuard of_first, uint64_t now_ns, bool waited);
    // The shards that have tasks of the batch.
    void drive(const Batch& batch);
    void announce(const std::shared_ptr<Announcement>& announcement);

    Core core_;
    ControlServer server_;
    std::unique_ptr<Names> names_;  // null with p2p
    Peers peers_;
    Background background_;
    std::shared_ptr<RdmaPorts> ports_;
    IoUringBackend* io_uring_ = nullptr;  // the first shard's
    std::string name_, host_;
    std::string address_;  // host:port of our control server, as others reach it

    // Connections that hold a lease, by owner; only the control server's thread uses it.
    std::map<std::string, uint32_t> leases_;

    LocalMemory memory_;
    TcpServer tcp_server_;
    std::mutex registering_;
    ShmServer shm_server_;
    std::map<void*, std::shared_ptr<SharedMemory>> allocated_;

    std::array<std::atomic<Batch*>, kBatches> batches_{};
    std::mutex batch_mutex_;  // for new ones
    std::vector<std::unique_ptr<Batch>> all_batches_;
    // Recycled batches, by the lane of the thread that allocated them. A thread gets its own batches again, whose tasks
    // remember the ends of its requests, and it writes where other threads seldom do.
    struct alignas(64) FreeBatches {
        // Slot + 1 of the batch that was added last. The upper bits count changes, so that a thread that takes the
        // batch detects any other thread's change.
        std::atomic<uint64_t> last{0};
    };
    std::array<FreeBatches, kThreadLanes> free_batches_;
    static constexpr uint64_t kSlotMask = 0xFFFF, kChange = kSlotMask + 1;
    static_assert(kBatches <= kSlotMask);

    // Unused batches keep the memory of their tasks up to this number of tasks (80 MiB); small batches always keep it.
    static constexpr uint32_t kFewTasks = 16, kMaxKeptTasks = 131'072;
    std::atomic<uint32_t> kept_tasks_{0};
    std::mutex dropped_mutex_;
    std::vector<std::unique_ptr<Task[]>> dropped_;

    std::unique_ptr<Metrics> metrics_;

    std::mutex notification_mutex_;
    std::deque<NotificationText> notifications_;
};

}  // namespace rove::tent
