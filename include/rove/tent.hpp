// SPDX-License-Identifier: Apache-2.0
// The TENT engine for C++ programs: one-sided transfers between the memory of processes, and files. The engine cuts
// them into slices and sprays these over all ports, with priorities, policies and failover. Link with librove-tent
// (pkg-config rove-tent). Everything is in Mooncake's namespace, mooncake::tent, and also in rove::tent. C programs
// include <rove/tent.h>.
//
// How to transfer: create a TransferEngine in each process, register memory, open the peer's segment, allocate a batch,
// submit requests, and poll their status until it is final.
//
// Terms. A segment is the registered memory of a process, or a file. A batch is a set of requests that are submitted
// together or one after another; the n-th request of a batch, from 0, is its task n.
//
// Threads. Any thread may call any member function of an engine at any time, except its constructor and destructor. A
// reference or pointer argument must not be used by two threads at once.
//
// Errors. A function that returns a Status may always return two errors, which are not repeated below: the one in
// startStatus() if the engine has not started, and kInternalError in a child of fork(), which cannot use its parent's
// engine and must create its own (it may destroy the object, which leaves the parent's engine alone). The text of a
// Status names the wrong value. Functions throw nothing but std::bad_alloc, and std::system_error if the system has no
// thread or lock left. On an error, output arguments have no meaning unless described otherwise.
//
// Units. Lengths and sizes are in bytes.
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

// The handle of an open segment, valid within one engine until closeSegment().
using SegmentID = uint64_t;
// The handle of a batch, valid within one engine until freeBatch(). 0 is never a batch.
using BatchID = uint64_t;
// A place of memory: "cpu:N" is NUMA node N of this host; "cpu" and "*" are no particular node.
using Location = std::string;

// The location of memory on no particular node.
inline const std::string kWildcardLocation = "*";
// The beginning of the segment name of a file; an absolute path follows.
inline const std::string kLocalFileSegmentPrefix = "file://";
// The handle of the engine's own segment, which is always open.
#ifndef LOCAL_SEGMENT_ID
#define LOCAL_SEGMENT_ID (0ull)
#endif

// The priority of a request. Slices of a request with a lower number are sent first.
enum : int { PRIO_HIGH = 0, PRIO_MEDIUM = 1, PRIO_LOW = 2 };

// The transports. rove carries data by RDMA, SHM, IOURING (files) and TCP. Policies may name the others, which are
// never available.
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
// Returns the name of a transport in configurations, such as "rdma" or "io_uring", or "unknown". The string is static.
const char* transportTypeName(TransportType type);
// Returns the transport with this name, or UNSPEC if there is no such name.
TransportType parseTransportType(const std::string& name);

// The purpose of a request. Mooncake has this; rove ignores it: priorities and policies decide.
enum class IntentType : int {
    INTENT_UNSPEC = 0,
    FOREGROUND_GET,
    BACKGROUND_PREFETCH,
    MIGRATION,
    CHECKPOINT,
    WEIGHT_LOADING,
    STAGING_INTERNAL,
};

// A transfer between local memory and a segment. The engine copies it at submission.
struct Request {
    // READ copies from the target to `source`, WRITE from `source` to the target.
    enum OpCode : int { READ = 0, WRITE = 1 };

    OpCode opcode = READ;
    void* source = nullptr;      // local memory within one registered buffer
    SegmentID target_id = 0;     // the segment, from openSegment()
    uint64_t target_offset = 0;  // the address in the owner's process, or the offset in the file in bytes
    size_t length = 0;           // 1 to 2^45 bytes
    int priority = PRIO_HIGH;
    std::optional<std::string> policy_name;  // the policy to use; empty or unset, the first that matches the request
    TransportType transport_hint = UNSPEC;   // the transport of the first attempt; UNSPEC, the policy's choice
    // The time in nanoseconds of CLOCK_MONOTONIC (std::chrono::steady_clock) after which no more of the request is
    // sent. It then ends as TIMEOUT as soon as the slices in flight have completed. 0 means no deadline.
    uint64_t deadline_ns = 0;
    IntentType intent_type = IntentType::INTENT_UNSPEC;
};

// The state of a request, or of a batch as a whole. INITIAL and PENDING are not final. A request keeps its final state.
enum TransferStatusEnum : int {
    INITIAL = 0,    // the value before a call writes it; no call reports it
    PENDING = 1,    // submitted and not finished
    INVALID = 2,    // Mooncake's; rove does not report it
    CANCELED = 3,   // cancelTransfer() stopped a part of it
    COMPLETED = 4,  // all bytes are at their destination
    TIMEOUT = 5,    // its deadline passed, or it moved no data for `max_timeout_ns` of the configuration
    FAILED = 6,     // the peer refused or disappeared, or no transport is left
};

// The state of a request, or of a batch as a whole.
struct TransferStatus {
    TransferStatusEnum s = INITIAL;
    size_t transferred_bytes = 0;  // bytes carried until now; of a batch, the sum
    // The cause of TIMEOUT or FAILED as a sentence, else "". The string is static. For a batch it is the cause of the
    // first request in the batch's state. The list form of getTransferStatus() sets it to "".
    const char* reason = "";
};

// A message to the program in another process.
struct Notification {
    std::string name;  // up to 255 bytes
    std::string msg;   // up to 4095 bytes
};

// The options for registering or allocating memory.
struct MemoryOptions {
    Location location = kWildcardLocation;  // the place of the memory; without a node, its pages decide
    Permission perm = kGlobalReadWrite;     // the access that others have
    // Mooncake has these; rove ignores them. Memory is registered for all transports, and rove names shared memory.
    TransportType type = UNSPEC;
    std::string shm_path;
    size_t shm_offset = 0;
    bool internal = false;
};

// The description of a segment.
struct SegmentInfo {
    enum Type { Memory, File };
    struct Buffer {
        // The address in the owner's process (0 for a file), and the bytes from there.
        uint64_t base = 0, length = 0;
        Location location;
    };
    Type type = Memory;
    // The buffers that this process may READ, sorted by their addresses. A file has one. The list does not show which
    // of them are kGlobalReadOnly: a WRITE to such a buffer is refused when it is submitted.
    std::vector<Buffer> buffers;
};

// The load of one local RDMA device.
struct NicLoadStats {
    std::string device_name;
    uint64_t inflight_bytes = 0;    // this engine's bytes that were assigned to the device and are not completed
    double ewma_bandwidth_bps = 0;  // the learned bandwidth in bytes (not bits) per second
};

// The configuration of an engine, whose constructor copies and checks it. config/tent/engine.toml lists all keys. This
// is a plain struct, for one thread at a time.
struct Settings {
    // The path of a file (TOML, or JSON if it begins with '{'), or JSON text itself, which begins with '{'. "" means
    // the file or JSON text in the environment's MC_TENT_CONF, which set-user-ID programs ignore, or, without that, the
    // defaults.
    std::string file;
    // Keys and values that override the file's. If a key occurs twice the later entry applies.
    std::vector<std::pair<std::string, std::string>> values;

    // Adds a key and its value as text: set("transports/rdma/enable_smart_scheduling", "false").
    void set(std::string key, std::string value) { values.emplace_back(std::move(key), std::move(value)); }
};

// An engine of this process: its registered memory, its connections, and the requests in progress.
class TransferEngine {
  public:
    // The constructors start the engine: they open the devices, listen for peers, and start threads. On failure
    // available() is false and startStatus() has the reason: kMalformedJson (a file that cannot be read or parsed),
    // kInvalidArgument or kInvalidMetadataType (a value), kRpcServiceError (an address or port that cannot be listened
    // on), kMetadataError (the metadata store), kTooManyRequests (too many processes share the slots of the priorities)
    // or kInternalError (the system). A device that cannot be used is left out, with a warning on standard error.
    //
    // The first one uses Settings{}, the second one Settings{config_path}. Environment variables such as MC_SLICE_SIZE
    // replace single keys with every constructor; config/tent/engine.toml lists them.
    TransferEngine();
    explicit TransferEngine(const std::string& config_path);
    explicit TransferEngine(const Settings& settings);
    // Uses the JSON text that config->dump() returns; null means Settings{}. For mooncake::tent::Config
    // (<tent/common/config.h>).
    template <class Json>
    requires requires(const Json& json) { std::string(json.dump()); }
    explicit TransferEngine(const std::shared_ptr<Json>& config)
        : TransferEngine(Settings{config == nullptr ? std::string() : config->dump(), {}}) {}
    // Stops the engine. Frees its batches, its segment handles, and memory from allocateLocalMemory(). Requests that
    // are not finished are abandoned, with any part of the data carried. Registered memory may be freed as soon as the
    // destructor has returned. No other call may be in progress.
    ~TransferEngine();
    TransferEngine(const TransferEngine&) = delete;
    TransferEngine& operator=(const TransferEngine&) = delete;

    // Returns true if the engine has started and belongs to this process.
    bool available() const { return engine_ != nullptr; }
    // Returns the reason why the engine is not available, or kOk.
    const Status& startStatus() const { return start_; }

    // Returns the name under which other processes open this engine's segment: HOST:PORT if `metadata_type` is "p2p",
    // else the name in the metadata store. Empty if the engine is not available.
    std::string getSegmentName() const;
    // Returns the host, a name or address, at which peers reach the engine. Empty if the engine is not available.
    std::string getRpcServerAddress() const;
    // Returns the TCP port on which the engine listens, in host byte order, or 0 if the engine is not available.
    uint16_t getRpcServerPort() const;
    // Returns the local RDMA devices as JSON: {"nics": [{"name", "numa_node", "bandwidth_gbps", "up"}]}. numa_node is
    // -1 if unknown. The list is empty if the engine is not available.
    std::string getLocalTopologyString() const;

    // Opens a segment. `name` is another engine's getSegmentName(), "file:///PATH" for a file or block device of this
    // machine, or "" or the own name for the own segment, whose handle is LOCAL_SEGMENT_ID. Each success needs one
    // closeSegment(). Waits for the peer's answer for up to some seconds. A file is used from offset 0 to the end that
    // it has at this time; getSegmentInfo(), and a request beyond that end, ask for its length again.
    // Errors: kInvalidArgument (the name has a wrong form or is not in the store; the file cannot be opened, is empty,
    // or is neither a regular file nor a block device), kRpcServiceError (the peer does not answer, or refuses this
    // engine), kMetadataError (the metadata store failed), kInternalError (the kernel offers no io_uring, which files
    // need).
    Status openSegment(SegmentID& handle, const std::string& name);
    // Writes a text with which another process can import this engine's segment: its name. Has no errors of its own.
    Status exportLocalSegment(std::string& shared_handle);
    // Opens the segment whose text another process exported. Waits and fails as openSegment() does.
    Status importRemoteSegment(SegmentID& handle, const std::string& shared_handle) {
        return openSegment(handle, shared_handle);
    }
    // Closes a segment. Its handle becomes invalid; requests in progress continue to their end. LOCAL_SEGMENT_ID is
    // accepted and stays open. Error: kInvalidEntry (the handle is not open).
    Status closeSegment(SegmentID handle);
    // Asks the segment's process, or the file, for its buffers. Those with kLocalReadWrite are not listed. Waits for
    // the answer for up to some seconds. Errors: kInvalidEntry (the handle is not open), kRpcServiceError (the process
    // does not answer or has ended), kNeedsRefreshCache (it was restarted with other devices), kInvalidArgument (the
    // file cannot be opened any more).
    Status getSegmentInfo(SegmentID handle, SegmentInfo& info);
    // Asks the segment's process whether it is alive. Waits for up to one second. Errors: kRpcServiceError (no answer
    // within a second), kInvalidEntry (the handle is not open), kInvalidArgument (the segment is a file),
    // kNeedsRefreshCache (the process was restarted with other devices).
    Status probePeerAliveByID(SegmentID handle);

    // Allocates `size` bytes, at least 1, and registers them. Processes of the same user and network namespace on this
    // machine, such as the containers of a pod, can map the memory, which makes the SHM transport possible; with
    // kLocalReadWrite none can. The first form registers with kGlobalReadWrite. The memory is zeroed and aligned to a
    // page; it comes from another NUMA node if the node of the location is full. Free it with freeLocalMemory(), or
    // with the engine. Errors: kInvalidArgument (size 0, or the location), kInternalError (no memory), kRdmaError (a
    // device does not register it).
    Status allocateLocalMemory(void** addr, size_t size, const Location& location = kWildcardLocation);
    Status allocateLocalMemory(void** addr, size_t size, const MemoryOptions& options);
    // Unregisters and unmaps memory from allocateLocalMemory(). `addr` is its start. Errors: kAddressNotRegistered
    // (this engine did not allocate it), kInvalidArgument (requests in progress use it, or the program has registered
    // it or a part of it itself and not unregistered that). After an error the memory stays as it is.
    Status freeLocalMemory(void* addr);
    // Registers [addr, addr + size), so that it may be the source of requests and, with its permission, the target of
    // others. The program must keep it mapped until it has unregistered it. The same range may be registered again,
    // with the same permission, and is then unregistered as often. Different ranges may overlap. A read-only mapping
    // needs kGlobalReadOnly; devices refuse it with another permission (kRdmaError). Errors: kInvalidArgument (null,
    // size 0, a range beyond the address space, an unknown location, or a range that is registered with another
    // permission), kRdmaError (a device refuses, for example because the range is not mapped).
    Status registerLocalMemory(void* addr, size_t size, Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(void* addr, size_t size, const MemoryOptions& options);
    // Registers several ranges, addrs[i] with sizes[i] bytes. If one fails, the others are unregistered again and its
    // error is returned. Vectors of different lengths are kInvalidArgument.
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               const MemoryOptions& options);
    // Takes back one registration of [addr, addr + size), also that of allocateLocalMemory(), which leaves the memory
    // itself. Size 0 means the range that was registered last at `addr`. The call does not wait for requests of other
    // processes, which fail from then on.
    // Errors: kAddressNotRegistered (exactly this range is not registered), kInvalidArgument (requests in progress use
    // it; then it stays).
    Status unregisterLocalMemory(void* addr, size_t size = 0);
    // Does the same for several ranges. No sizes mean that all are 0. Every range is tried; the first error is
    // returned. Vectors of different lengths are kInvalidArgument.
    Status unregisterLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes = {});

    // Creates a batch for 1 to 65 536 requests. Returns its handle, or 0 if `size` is out of range, 16 384 batches
    // exist, or the engine is not available. Free it with freeBatch().
    BatchID allocateBatch(size_t size);
    // Frees a batch. Its handle becomes invalid at once. Requests in progress continue, unobserved, and their memory
    // must stay until they end: ask for the status first. Error: kInvalidArgument (the batch does not exist).
    Status freeBatch(BatchID batch);

    // Submits requests, all of them or, on an error, none. The memory at `source` must stay registered and, for a
    // WRITE, unchanged until the request is final. A batch holds its size in requests in all, across calls; finished
    // ones do not make room. Requests are independent and may finish in any order. Usually returns at once; waits for
    // the peer if the target's buffers must be asked for.
    // Errors: kInvalidArgument (a field is out of range, the batch does not exist, the target may only be read, the
    // source of a READ is a read-only mapping, the transport_hint is not available, the policy_name is unknown, or no
    // policy matches although the configuration says strict = true), kAddressNotRegistered (the source or the target is
    // not within one registered buffer), kInvalidEntry (the segment handle is not open), kTooManyRequests (the batch or
    // the engine has no room), kRpcServiceError (the peer's process has ended or does not answer), kNeedsRefreshCache
    // (it was restarted with other devices), kDeviceNotFound (no transport can carry a request now).
    Status submitTransfer(BatchID batch, std::span<const Request> requests);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()));
    }
    // Does the same, and sends `notification`, which is copied, to each target process once all of these requests are
    // COMPLETED. If one ends otherwise, nothing is sent. A notification that the target cannot take is lost, with a
    // warning on this process's standard error. Further error: kInvalidArgument (the notification is too long).
    Status submitTransfer(BatchID batch, std::span<const Request> requests, const Notification& notification);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests, const Notification& notification) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()), notification);
    }
    // Asks to stop a request. Returns before it ends: slices in flight still complete, the rest is dropped. It ends as
    // CANCELED, or as COMPLETED if nothing was left to drop. Its memory must stay until then. Error: kInvalidArgument
    // (the batch or the task does not exist).
    Status cancelTransfer(BatchID batch, size_t task);

    // Reports the state of one request. Does not wait. The call also drives the transfer: a program that polls in a
    // loop gets the lowest latency; without calls a thread of the engine does it. After COMPLETED all bytes are in the
    // target's memory (WRITE) or in this process's (READ); after FAILED, TIMEOUT or CANCELED any part of them may be.
    // After each final state the engine no longer accesses the memory for this request. Error: kInvalidArgument (the
    // batch or the task does not exist).
    Status getTransferStatus(BatchID batch, size_t task, TransferStatus& status);
    // Reports the states of all requests submitted to the batch, by task, in the same way.
    Status getTransferStatus(BatchID batch, std::vector<TransferStatus>& list);
    // Reports the state of the batch in the same way: PENDING while a request is, then the worst state in the order
    // FAILED, TIMEOUT, CANCELED, COMPLETED. A batch without requests is COMPLETED.
    Status getTransferStatus(BatchID batch, TransferStatus& overall);
    // Another name for the call above.
    Status progressBatch(BatchID batch, TransferStatus& overall) { return getTransferStatus(batch, overall); }

    // Sends a notification to the segment's process and waits for its answer, for up to 3 s. Errors: kInvalidArgument
    // (too long, or the segment is a file), kInvalidEntry (the handle is not open), kRpcServiceError (no answer, or
    // 4096 notifications wait there), kNeedsRefreshCache (the process was restarted with other devices).
    Status sendNotification(SegmentID target, const Notification& notification);
    // Replaces `list` by all received notifications, in the order of arrival. Does not wait: the list may be empty. The
    // engine keeps up to 4096 until they are received, and refuses more. Has no errors of its own.
    Status receiveNotification(std::vector<Notification>& list);

    // Replaces `list` by the load of each local RDMA device. Has no errors of its own.
    Status getNicLoadStats(std::vector<NicLoadStats>& list) const;
    // Writes a line for each local RDMA device to standard output, such as "Dev 0: Total=10.5 GB, EWMA BW=45.23 Gbps,
    // Inflight=0 bytes": the bytes carried in units of 10^9, and the learned bandwidth in Gb/s. Writes nothing without
    // a device or an engine.
    void printTrafficStats() const;

  private:
    std::unique_ptr<::rove::tent::Engine> engine_;
    Status start_;
};

}  // namespace mooncake::tent
