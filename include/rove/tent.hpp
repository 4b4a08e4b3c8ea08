// SPDX-License-Identifier: Apache-2.0
// The TENT engine for C++ programs: one-sided transfers between the memory of processes (and files), cut into slices
// and sprayed over all ports, with priorities, policies and failover. C programs include <rove/tent.h>. Link with
// librove-tent. All is in namespace mooncake::tent, as in the original, and in rove::tent.
//
// All calls may be made by any thread. Calls that return a Status return what is wrong in words too. Lengths are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rove/tent_status.h"

namespace rove::tent {
class Engine;
}

namespace mooncake::tent {

using SegmentID = uint64_t;
using BatchID = uint64_t;
using Location = std::string;  // "cpu:N": the memory of NUMA node N; "*": not said

inline const std::string kWildcardLocation = "*";
inline const std::string kLocalFileSegmentPrefix = "file://";
#ifndef LOCAL_SEGMENT_ID
#define LOCAL_SEGMENT_ID (0ull)
#endif

// Of a request: what has a lower number goes first.
enum : int { PRIO_HIGH = 0, PRIO_MEDIUM = 1, PRIO_LOW = 2 };

// rove carries data by RDMA, SHM, IOURING and TCP; the others are names that policies may mention, and are never
// available.
enum TransportType : int {
    UNSPEC = 0,  // the policies decide
    RDMA = 1,
    MNNVL = 2,
    SHM = 3,
    NVLINK = 4,
    GDS = 5,
    IOURING = 6,
    TCP = 7,
    AscendDirect = 8,
    SUNRISE_LINK = 9,
    TPU = 10,
    UB = 11,
    MPCOMM = 12,
    kNumTransportTypes,
};
inline constexpr int kSupportedTransportTypes = kNumTransportTypes;
const char* transportTypeName(TransportType type);          // "rdma", "io_uring", "ascend"; "unknown"
TransportType parseTransportType(const std::string& name);  // UNSPEC: no such name

// What a request is for. Mooncake's; without effect here: priorities and policies decide.
enum class IntentType : int {
    INTENT_UNSPEC = 0,
    FOREGROUND_GET,
    BACKGROUND_PREFETCH,
    MIGRATION,
    CHECKPOINT,
    WEIGHT_LOADING,
    STAGING_INTERNAL,
};

struct Request {
    enum OpCode : int { READ = 0, WRITE = 1 };

    OpCode opcode = READ;        // READ: from the target to `source`
    void* source = nullptr;      // local memory, within one registered buffer
    SegmentID target_id = 0;     // of openSegment()
    uint64_t target_offset = 0;  // the address in the owner's process, or the offset in the file
    size_t length = 0;
    int priority = PRIO_HIGH;
    std::optional<std::string> policy_name;  // takes this policy; none or "": the first that matches
    TransportType transport_hint = UNSPEC;   // of the first attempt
    // Of CLOCK_MONOTONIC (std::chrono::steady_clock); 0: none. Then nothing more of it is sent, and it ends as TIMEOUT
    // as soon as what is on its way has come back.
    uint64_t deadline_ns = 0;
    IntentType intent_type = IntentType::INTENT_UNSPEC;
};

// Of a request, and of a batch as a whole.
enum TransferStatusEnum : int {
    INITIAL = 0,
    PENDING = 1,
    INVALID = 2,
    CANCELED = 3,
    COMPLETED = 4,
    TIMEOUT = 5,
    FAILED = 6,
};

struct TransferStatus {
    TransferStatusEnum s = INITIAL;
    size_t transferred_bytes = 0;
    const char* reason = "";  // of TIMEOUT and FAILED, in words; static
};

struct Notification {
    std::string name;  // up to 255 bytes
    std::string msg;   // up to 4095 bytes
};

struct MemoryOptions {
    Location location = kWildcardLocation;
    Permission perm = kGlobalReadWrite;
    // Mooncake's, without effect here: memory is registered for all transports, and shared memory is named by rove.
    TransportType type = UNSPEC;
    std::string shm_path;
    size_t shm_offset = 0;
    bool internal = false;
};

struct SegmentInfo {
    enum Type { Memory, File };
    struct Buffer {
        uint64_t base = 0, length = 0;
        Location location;
    };
    Type type = Memory;
    std::vector<Buffer> buffers;  // that may be read, and mostly written
};

struct NicLoadStats {
    std::string device_name;
    uint64_t inflight_bytes = 0;
    double ewma_bandwidth_bps = 0;  // bytes per second, as learned
};

// A configuration file (TOML or JSON; "": none), or JSON itself, which starts with '{'; and keys that replace or add to
// it: set("transports/rdma/enable_smart_scheduling", "false").
struct Settings {
    std::string file;
    std::vector<std::pair<std::string, std::string>> values;

    void set(std::string key, std::string value) { values.emplace_back(std::move(key), std::move(value)); }
};

class TransferEngine {
  public:
    // With the file that MC_TENT_CONF names, or the JSON in it, if any. Other variables stand for single keys, for all
    // constructors (config/tent/engine.toml).
    TransferEngine();
    explicit TransferEngine(const std::string& config_path);
    explicit TransferEngine(const Settings& settings);
    // Of what dumps itself as JSON: mooncake::tent::Config (tent/common/config.h).
    template <class Json>
    requires requires(const Json& json) { std::string(json.dump()); }
    explicit TransferEngine(const std::shared_ptr<Json>& config)
        : TransferEngine(Settings{config == nullptr ? std::string() : config->dump(), {}}) {}
    ~TransferEngine();  // what is under way is given up
    TransferEngine(const TransferEngine&) = delete;
    TransferEngine& operator=(const TransferEngine&) = delete;

    // Whether the engine has started. If not, all calls return why, and so does startStatus().
    bool available() const { return engine_ != nullptr; }
    const Status& startStatus() const { return start_; }

    // Under this name others open our segment. Empty if not available.
    std::string getSegmentName() const;
    std::string getRpcServerAddress() const;
    uint16_t getRpcServerPort() const;
    // {"nics": [{"name", "numa_node", "bandwidth_gbps", "up"}]}
    std::string getLocalTopologyString() const;

    // "" or our own name: handle 0. "file:///PATH": a file or block device of this machine, from offset 0 to the end
    // that it has now; getSegmentInfo(), and a request beyond, look again. kInvalidArgument: not a name, or a file that
    // cannot be opened; kRpcServiceError: its process does not answer; kInternalError: the kernel has no io_uring for
    // us.
    Status openSegment(SegmentID& handle, const std::string& name);
    // A text by which another process opens our segment.
    Status exportLocalSegment(std::string& shared_handle);
    Status importRemoteSegment(SegmentID& handle, const std::string& shared_handle) {
        return openSegment(handle, shared_handle);
    }
    Status closeSegment(SegmentID handle);
    Status getSegmentInfo(SegmentID handle, SegmentInfo& info);
    // kRpcServiceError: its process does not answer within a second.
    Status probePeerAliveByID(SegmentID handle);

    // Memory that other processes of this machine can map, registered. They are of the same user, and share our network
    // namespace, as the containers of a pod do.
    Status allocateLocalMemory(void** addr, size_t size, const Location& location = kWildcardLocation);
    Status allocateLocalMemory(void** addr, size_t size, const MemoryOptions& options);
    // kInvalidArgument: it is used by requests under way, or was registered once more and not unregistered.
    Status freeLocalMemory(void* addr);
    // Registering the same range again counts; it is unregistered as often. kInvalidArgument: not a range, used by
    // requests that are under way (unregistering), or registered with another permission. kRdmaError: a device refuses.
    Status registerLocalMemory(void* addr, size_t size, Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(void* addr, size_t size, const MemoryOptions& options);
    // All or none.
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               const MemoryOptions& options);
    // Size 0, or no sizes: what was registered there last.
    Status unregisterLocalMemory(void* addr, size_t size = 0);
    Status unregisterLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes = {});

    // For up to `size` requests; 0: none left.
    BatchID allocateBatch(size_t size);
    // When requests of it are under way, it goes with the last of them.
    Status freeBatch(BatchID batch);

    // Takes all requests or none. kInvalidArgument: a field, a range, the batch, or a transport_hint that is not
    // available; kAddressNotRegistered: not within one registered buffer, here or there; kInvalidEntry: no such segment
    // handle; kTooManyRequests: the batch, or the engine, has no room; kRpcServiceError: the peer's process has gone;
    // kDeviceNotFound: no transport can carry it now.
    Status submitTransfer(BatchID batch, std::span<const Request> requests);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()));
    }
    // The targets receive `notification` when all of `requests` are complete.
    Status submitTransfer(BatchID batch, std::span<const Request> requests, const Notification& notification);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests, const Notification& notification) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()), notification);
    }
    // What is not on its way yet is dropped; if that was anything, the task ends as CANCELED.
    Status cancelTransfer(BatchID batch, size_t task);

    // COMPLETED: it is in the target's memory (WRITE) or in ours (READ), and nothing of it changes either any more.
    // FAILED, TIMEOUT, CANCELED: any part may have been carried. These calls also make progress.
    Status getTransferStatus(BatchID batch, size_t task, TransferStatus& status);
    Status getTransferStatus(BatchID batch, std::vector<TransferStatus>& list);
    // The worst of all tasks, once none is under way.
    Status getTransferStatus(BatchID batch, TransferStatus& overall);
    Status progressBatch(BatchID batch, TransferStatus& overall) { return getTransferStatus(batch, overall); }

    Status sendNotification(SegmentID target, const Notification& notification);
    Status receiveNotification(std::vector<Notification>& list);

    Status getNicLoadStats(std::vector<NicLoadStats>& list) const;
    // "Dev 0: Total=10.5 GB, EWMA BW=45.23 Gbps, Inflight=0 bytes" for each port, to standard output.
    void printTrafficStats() const;

  private:
    std::unique_ptr<::rove::tent::Engine> engine_;
    Status start_;
};

}  // namespace mooncake::tent
