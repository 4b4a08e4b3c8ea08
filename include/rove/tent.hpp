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
// Threads. Any thread may call any member function of an engine at any time, with two exceptions: no call may be in
// progress during the constructor and the destructor, and no call with the same batch during freeBatch(). A reference
// or pointer argument must not be used by two threads at once. No function may be called in a signal handler. The
// engine's own threads block all signals.
//
// Processes. A process may create several engines, at any time and in any thread; nothing needs to be initialised
// before. An engine may still exist when the process ends. A child of fork() cannot use its parent's engines and must
// create its own; it may destroy its copy of the object, which leaves the parent's engine alone. Its engines have no
// rove devices if the parent had opened them, and then use TCP and SHM.
//
// Waiting. Functions described as waiting may block their thread for the time that is given. The others return at once,
// but may wait for a lock that another thread holds for a short time.
//
// Errors. A function that returns a Status may always return two errors, which are not repeated below: the one in
// startStatus() if the engine has not started, and kInternalError in a child of fork(). <rove/tent_status.h> describes
// the codes, and when a call that returned one may be repeated. The text of a Status names the wrong value. Functions
// throw nothing but std::bad_alloc, and std::system_error if the system has no thread or lock left. On an error, output
// arguments have no meaning unless described otherwise.
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

// The handle of an open segment, valid within one engine until closeSegment(). It stays valid when the segment's
// process ends: requests fail then, and succeed again when the process has returned with the same name and devices.
using SegmentID = uint64_t;
// The handle of a batch, valid within one engine until freeBatch(). 0 is never a batch.
using BatchID = uint64_t;
// The place of memory: "cpu:N" is NUMA node N of this host; "cpu" and "*" are no particular node. Other texts, also "",
// are refused with kInvalidArgument.
using Location = std::string;

// The location of memory on no particular node.
inline const std::string kWildcardLocation = "*";
// The beginning of the segment name of a file; an absolute path follows.
inline const std::string kLocalFileSegmentPrefix = "file://";
// The handle of the engine's own segment, which is always open: requests may use it without openSegment().
#ifndef LOCAL_SEGMENT_ID
#define LOCAL_SEGMENT_ID (0ull)
#endif

// The priority of a request. The engine sends slices of a lower number first. A request of which nothing was sent for
// `priority_promotion_timeout_us` of the configuration (10 ms by default) moves one level up, and returns to its own
// level when a slice of it has been sent. Processes keep this order among each other only if they share time slots
// (`shared_quota_shm_path` of the configuration).
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
    kNumTransportTypes,  // the number of values above, UNSPEC included
};
// Another name for kNumTransportTypes: the size of an array that is indexed by TransportType. It also counts the
// transports that are never available.
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
    void* source = nullptr;   // local memory within one registered buffer; the destination of a READ
    SegmentID target_id = 0;  // the segment, from openSegment(), or LOCAL_SEGMENT_ID
    // The address in the owner's process, or the offset in the file in bytes. [target_offset, target_offset + length)
    // must be within one of the target's buffers. No alignment is needed.
    uint64_t target_offset = 0;
    size_t length = 0;                       // 1 to 2^45 bytes
    int priority = PRIO_HIGH;                // PRIO_HIGH, PRIO_MEDIUM or PRIO_LOW
    std::optional<std::string> policy_name;  // the policy to use; empty or unset for the first that matches
    TransportType transport_hint = UNSPEC;   // the transport of the first attempt; UNSPEC for the policy's choice
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

// A message to the program in another process. Name and text are UTF-8; bytes that are not arrive as U+FFFD, which has
// 3 bytes. A process refuses a notification that is longer than the limits then; no text is cut.
struct Notification {
    std::string name;  // up to 255 bytes
    std::string msg;   // up to 4095 bytes
};

// The options for registering or allocating memory.
struct MemoryOptions {
    // Devices near this node are preferred for the memory. Without a node, registering asks the kernel for that of the
    // pages.
    Location location = kWildcardLocation;
    Permission perm = kGlobalReadWrite;  // one of the three values; another one is not detected
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
    // The buffers that requests may use as their target, sorted by their addresses. A file has one. The list does not
    // show which of them are kGlobalReadOnly: a WRITE to such a buffer is refused when it is submitted.
    std::vector<Buffer> buffers;
};

// The load of one local RDMA device.
struct NicLoadStats {
    std::string device_name;      // the name in verbs (ibv_get_device_name()), such as "rove0"
    uint64_t inflight_bytes = 0;  // bytes of this engine's requests that are assigned to the device and not completed
    // The learned bandwidth in bytes (not bits) per second. It begins with the speed that the port reports, or with
    // `default_bandwidth_gbps` of the configuration if the port reports none or one outside the configured bounds, and
    // begins again after the link was down. Completed slices of this engine's requests change it, unless they are
    // shorter than `block_size` or `enable_smart_scheduling` is false.
    double ewma_bandwidth_bps = 0;
};

// The configuration of an engine, whose constructor copies and checks it. All keys, with their defaults, are in the
// manual page rove-tent.toml(5), and in share/rove/config/tent/engine.toml of the installation's prefix. This is a
// plain struct, for one thread at a time.
struct Settings {
    // The path of a file (TOML, or JSON if it begins with '{'), or JSON text itself, which begins with '{'. "" means
    // the file or JSON text in the environment's MC_TENT_CONF, which set-user-ID programs ignore, or, without that, the
    // defaults.
    std::string file;
    // Keys and values that override the file's. If a key occurs twice the later entry applies.
    std::vector<std::pair<std::string, std::string>> values;

    // Adds a key and its value. The key is a path of table and key names with '/' or '.' between them. The value is
    // written as in TOML: false, 65536, 0.5, "etcd" in quotes, ["rove0", "rove1"]. A text that is not a TOML value,
    // such as etcd or 10.0.0.1:2379, is a string as it is; a string that could be read as another value needs the
    // quotes. Example: set("transports/rdma/enable_smart_scheduling", "false").
    void set(std::string key, std::string value) { values.emplace_back(std::move(key), std::move(value)); }
};

// An engine of this process: its registered memory, its connections, and the requests in progress.
class TransferEngine {
  public:
    // The constructors start the engine: they open the devices, listen for peers, and start threads. They may wait some
    // seconds for a name server or the metadata store. On failure available() is false and startStatus() has the
    // reason: kMalformedJson (a file that cannot be read or parsed), kInvalidArgument or kInvalidMetadataType (a value,
    // which may also be a `local_segment_name` that a running process has), kRpcServiceError (an address or port that
    // cannot be listened on), kMetadataError (the metadata store), kTooManyRequests (too many processes share the time
    // slots; retry after one has ended) or kInternalError (the system). A device that cannot be used is skipped, with a
    // warning on standard error. An object that has not started stays so; create another one to retry.
    //
    // The first one uses Settings{}, the second one Settings{config_path}. Environment variables such as MC_SLICE_SIZE
    // replace single keys with every constructor; rove-tent.toml(5) lists them.
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
    // are not finished are abandoned, with any part of the data carried, and notifications of submitTransfer() that are
    // not sent are lost. Registered memory may be freed as soon as the destructor has returned. May wait some seconds
    // for the end of calls of the kernel.
    ~TransferEngine();
    TransferEngine(const TransferEngine&) = delete;
    TransferEngine& operator=(const TransferEngine&) = delete;

    // Returns true if the engine has started and belongs to this process.
    bool available() const { return engine_ != nullptr; }
    // Returns the reason why the engine is not available, or kOk. The reference is valid as long as this object.
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
    // machine, or "" or the own name for the own segment, whose handle is LOCAL_SEGMENT_ID. Each success returns
    // another handle, also for a segment that is open already (except the own one), and each handle needs one
    // closeSegment(). The first open waits for the peer, for up to about 7 s, and for the metadata store, for up to 2 s
    // per server.
    //
    // A file must exist. If this process may only read it, it is opened for READs, and WRITEs get kInvalidArgument when
    // they are submitted. It is used from offset 0 to the end that it has at this time; getSegmentInfo(), and a request
    // beyond that end, open the path again, and later requests use the file and the length that they find.
    //
    // Errors: kInvalidArgument (the name has a wrong form or is not in the store: retry when the process has started;
    // the file cannot be opened, is empty, or is neither a regular file nor a block device), kRpcServiceError (the peer
    // does not answer, or refuses this engine), kMetadataError (the metadata store failed), kInternalError (the kernel
    // offers no io_uring, which files need).
    Status openSegment(SegmentID& handle, const std::string& name);
    // Writes a text with which another process can import this engine's segment: its name. Has no errors of its own.
    Status exportLocalSegment(std::string& shared_handle);
    // Opens the segment whose text another process exported. Waits and fails as openSegment() does.
    Status importRemoteSegment(SegmentID& handle, const std::string& shared_handle) {
        return openSegment(handle, shared_handle);
    }
    // Closes a handle, which becomes invalid; openSegment() may return its number again. Other handles of the segment
    // stay open, and requests in progress continue to their end. LOCAL_SEGMENT_ID is accepted and stays open. Error:
    // kInvalidEntry (the handle is not open).
    Status closeSegment(SegmentID handle);
    // Asks the segment's process, or the file, for its buffers. Those with kLocalReadWrite are not listed. Waits for
    // the answer for up to about 3 s. Threads that ask the same process at the same time wait one after another, up to
    // 3 s each if it does not answer. Errors: kInvalidEntry (the handle is not open), kRpcServiceError (the process
    // does not answer or has ended, or has registered too many buffers), kNeedsRefreshCache (it was restarted with
    // other devices), kInvalidArgument (the file cannot be opened any more, or is empty). On an error `info` is
    // unchanged.
    Status getSegmentInfo(SegmentID handle, SegmentInfo& info);
    // Asks the segment's process whether it is alive. Waits for up to one second. Errors: kRpcServiceError (no answer
    // within a second), kInvalidEntry (the handle is not open), kInvalidArgument (the segment is a file),
    // kNeedsRefreshCache (the process was restarted with other devices).
    Status probePeerAliveByID(SegmentID handle);

    // Allocates `size` bytes, at least 1, registers them, and writes their address to `*addr`, which must not be null.
    // Processes of the same user and network namespace on this machine, such as the containers of a pod, can map the
    // memory, which makes the SHM transport possible; with kLocalReadWrite no other process can. The first form
    // registers with kGlobalReadWrite. The memory is zeroed and aligned to a page (a huge page with `huge_pages` of the
    // configuration), and all its pages are allocated during the call, from another NUMA node if the node of the
    // location is full. Free it with freeLocalMemory(), or with the engine. Errors: kInvalidArgument (size 0, or the
    // location), kInternalError (no memory), kRdmaError (a device does not register it).
    Status allocateLocalMemory(void** addr, size_t size, const Location& location = kWildcardLocation);
    Status allocateLocalMemory(void** addr, size_t size, const MemoryOptions& options);
    // Unregisters and unmaps memory from allocateLocalMemory(). `addr` is its start. Ends the access of peers as
    // unregisterLocalMemory() does; a copy over SHM that completes later affects no memory of this process. Errors:
    // kAddressNotRegistered (this engine did not allocate it), kInvalidArgument (it is in use, as for
    // unregisterLocalMemory(): retry after the requests have ended; or the program has registered it or a part of it
    // itself and not unregistered that). After an error the memory stays as it is.
    Status freeLocalMemory(void* addr);
    // Registers [addr, addr + size), so that it may be the source of requests and, with its permission, their target.
    // The program must keep it mapped until it has unregistered it. The same range may be registered again, with the
    // same permission, and is then unregistered as often; its location stays that of the first time. Different ranges
    // may overlap; a request uses the buffer with the highest address that contains its range. A process may register
    // 100 000 buffers for others: with more, opening its segment fails.
    //
    // A read-only mapping needs kGlobalReadOnly. Devices refuse it with another permission (kRdmaError); an engine
    // without devices does not check it. The call waits for the devices, which takes longer for larger ranges. Errors:
    // kInvalidArgument (null, size 0, a range beyond the address space, an unknown location, or a range that is
    // registered with another permission), kRdmaError (a device refuses, for example because the range is not mapped).
    Status registerLocalMemory(void* addr, size_t size, Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(void* addr, size_t size, const MemoryOptions& options);
    // Registers several ranges, addrs[i] with sizes[i] bytes. If one fails, the others are unregistered again and its
    // error is returned. Further error: kInvalidArgument (vectors of different lengths).
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               const MemoryOptions& options);
    // Takes back one registration of exactly [addr, addr + size). For a range from allocateLocalMemory() this may be
    // the engine's own one; the memory stays allocated. Size 0 means the range that was registered last at `addr`.
    //
    // The end of a range's last registration ends the access of peers. Their requests to it, also those in progress,
    // end as FAILED, unless another registration contains them. When the call returns, no device and no connection
    // accesses the memory, so the program may unmap or reuse it. There is one exception: a peer that has begun to copy
    // to or from memory of allocateLocalMemory() over SHM completes that copy after the return.
    //
    // The call does not wait for requests. Errors: kAddressNotRegistered (exactly this range is not registered),
    // kInvalidArgument (it is the source of a request in progress, or a peer transfers to or from it over TCP at this
    // moment: it stays registered, retry after these have ended).
    Status unregisterLocalMemory(void* addr, size_t size = 0);
    // Does the same for several ranges. No sizes mean that all are 0. Every range is tried; the first error is
    // returned. Further error, after which nothing was done: kInvalidArgument (vectors of different lengths).
    Status unregisterLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes = {});

    // Creates a batch for 1 to 65 536 requests. Returns its handle, or 0 if `size` is out of range, the engine is not
    // available, or 16 384 batches exist: then retry after a batch was freed and its requests have ended. Free the
    // batch with freeBatch(). Handles are not used again.
    BatchID allocateBatch(size_t size);
    // Frees a batch. Its handle becomes invalid at once, and no other call with it may be in progress. Its requests in
    // progress continue, unobserved, and their memory must stay until they end: ask for the status first. Error:
    // kInvalidArgument (the batch does not exist).
    Status freeBatch(BatchID batch);

    // Submits requests, all of them or, on an error, none. The memory at `source` must stay registered and, for a
    // WRITE, unchanged until the request is final. A batch holds its size in requests in all, across calls; finished
    // ones do not make room. Requests are numbered in the order of submission, but are independent and may finish in
    // any order, with one exception: with `merge_requests` of the configuration (the default) the engine may join
    // requests of one call that adjoin both at their sources and at their targets. Joined requests end together, and if
    // one of them fails, all are FAILED. An empty list does nothing. Usually returns at once. If the target's buffers
    // must be asked for, waits for the peer as getSegmentInfo() does.
    //
    // Errors:
    //   kInvalidArgument       a field is out of range, the batch does not exist, the target may only be read, the
    //                          source of a READ is a read-only mapping, the transport_hint is not available now, the
    //                          policy_name is unknown, or no policy matches although `strict` is true in the
    //                          configuration
    //   kTooManyRequests       the batch has less room than requests, and never gets more: use another batch. Or the
    //                          engine lacks slices: retry after a request has ended, or with fewer requests at once.
    //                          It has 262 144. A call with a PRIO_MEDIUM request is refused if more than 229 376 would
    //                          be in use, and one with a PRIO_LOW request if more than 196 608 would be. A request
    //                          below 512 GiB needs up to 512. The text tells which of the two. A program that counts
    //                          the requests of its batches meets the second one only.
    //   kAddressNotRegistered  the source, or the target, is not within one registered buffer, or beyond the file's end
    //   kInvalidEntry          the segment handle is not open
    //   kRpcServiceError       the peer's process has ended or does not answer
    //   kNeedsRefreshCache     the peer's process was restarted with other devices
    //   kDeviceNotFound        no transport can carry a request now
    Status submitTransfer(BatchID batch, std::span<const Request> requests);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()));
    }
    // Does the same, and notifies the target processes after the data. When all of these requests are COMPLETED, the
    // engine sends one copy of `notification` to each process that is the target of one or more of them, and none for
    // files. If one of the requests ends otherwise, no process is notified. Notifications to one process keep the order
    // in which their requests completed. A thread of the engine sends them after the requests have become COMPLETED:
    // this state does not mean that they have arrived, and the destructor loses those that are not sent. A notification
    // that a process does not accept (see sendNotification()), or that finds 4096 others waiting to be sent to its
    // process, is lost, with a warning on this process's standard error. Further error: kInvalidArgument (the
    // notification is too long).
    Status submitTransfer(BatchID batch, std::span<const Request> requests, const Notification& notification);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests, const Notification& notification) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()), notification);
    }
    // Asks to stop a request. Returns before it ends: slices in flight still complete, the rest is dropped. It ends as
    // CANCELED, or as COMPLETED if nothing was left to drop. Its memory must stay until then. A request that is final
    // stays as it is, and the call returns kOk. Error: kInvalidArgument (the batch or the task does not exist).
    Status cancelTransfer(BatchID batch, size_t task);

    // Reports the state of one request. Does not wait. The call also drives the transfer: a program that polls in a
    // loop gets the lowest latency; without calls a thread of the engine does it. After COMPLETED all bytes are in the
    // target's memory (WRITE) or in this process's (READ); those of a file are in the kernel's cache, and fsync(2) puts
    // them on the disk. After FAILED, TIMEOUT or CANCELED any part of them may be. After each final state the engine no
    // longer accesses the memory for this request. Error: kInvalidArgument (the batch or the task does not exist).
    Status getTransferStatus(BatchID batch, size_t task, TransferStatus& status);
    // Replaces `list` by the states of all requests submitted to the batch, by task, in the same way. Error:
    // kInvalidArgument (the batch does not exist).
    Status getTransferStatus(BatchID batch, std::vector<TransferStatus>& list);
    // Reports the state of the batch in the same way: PENDING while a request is, then the worst state in the order
    // FAILED, TIMEOUT, CANCELED, COMPLETED. A batch without requests is COMPLETED. Error: kInvalidArgument (the batch
    // does not exist).
    Status getTransferStatus(BatchID batch, TransferStatus& overall);
    // Another name for the call above.
    Status progressBatch(BatchID batch, TransferStatus& overall) { return getTransferStatus(batch, overall); }

    // Sends a notification to the segment's process and waits for its answer, for up to 3 s. Errors: kInvalidArgument
    // (too long, or the segment is a file), kInvalidEntry (the handle is not open), kRpcServiceError (no answer, after
    // which the notification may still arrive; or 4096 notifications wait there: retry after the peer has received
    // them; or it is too long with U+FFFD: a retry fails again), kNeedsRefreshCache (the process was restarted with
    // other devices).
    Status sendNotification(SegmentID target, const Notification& notification);
    // Replaces `list` by all received notifications, in the order of arrival. Does not wait: the list may be empty. The
    // engine keeps up to 4096 until they are received, and refuses more. Has no errors of its own; on an error `list`
    // is empty.
    Status receiveNotification(std::vector<Notification>& list);

    // Replaces `list` by the load of each local RDMA device, sorted by name. Has no errors of its own; on an error
    // `list` is empty.
    Status getNicLoadStats(std::vector<NicLoadStats>& list) const;
    // Writes a heading and a line for each local RDMA device to standard output (std::cout), such as "Dev 0: Total=10.5
    // GB, EWMA BW=45.23 Gbps, Inflight=0 bytes": the bytes of this engine's requests that the device has carried since
    // the engine's start, in units of 10^9, and the learned bandwidth in Gb/s. The number is the device's place in the
    // list of getNicLoadStats(). Writes nothing without a device or an engine.
    void printTrafficStats() const;

  private:
    std::unique_ptr<::rove::tent::Engine> engine_;
    Status start_;
};

}  // namespace mooncake::tent
