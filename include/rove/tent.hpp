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
// progress during the constructor and the destructor, and no call with the same batch during freeBatch(). Arguments are
// used during the call only, except for memory that is registered. Meanwhile no other thread may use an argument that
// the call writes to, or change one that it reads. No function may be called in a signal handler. The engine's own
// threads block all signals.
//
// Processes. A process may create several engines, at any time and in any thread; nothing needs to be initialised
// before. An engine may still exist when the process ends. A child of fork() cannot use its parent's engines and must
// create its own; it may destroy its copy of the object, which leaves the parent's engine alone. Its engines have no
// rove devices if the parent had opened them, and then use TCP and SHM.
//
// Waiting. Functions described as waiting may block their thread for the time that is given. The others return at once,
// but may wait for a lock that another thread holds for a short time. Functions that allocate, register, unregister or
// free memory wait for each other.
//
// Errors. A function that returns a Status may always return two errors, which are not repeated below: the one in
// startStatus() if the engine has not started, and kInternalError in a child of fork(). <rove/tent_status.h> describes
// the codes, and when a call that returned one may be repeated. The text of a Status names the wrong value. Functions
// throw nothing but std::bad_alloc, and std::system_error if the system has no thread or lock left. On an error, output
// arguments have no meaning unless described otherwise.
//
// Configuration. Names in backquotes, such as `merge_requests`, are arguments, fields, or keys of the configuration.
// The manual page rove-tent.toml(5) describes the keys.
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
// process ends: requests in progress become FAILED, new ones get kRpcServiceError, and they succeed again when the
// process has returned with the same name and devices.
using SegmentID = uint64_t;
// The handle of a batch, valid within one engine until freeBatch(). It is not used again. 0 is never a batch.
using BatchID = uint64_t;
// The place of memory: "cpu:N" is NUMA node N of the host that has the memory; "cpu" and "*" are no particular node.
// Other texts, also "", are refused with kInvalidArgument.
using Location = std::string;

// The location of memory on no particular node.
inline const std::string kWildcardLocation = "*";
// The beginning of the segment name of a file; an absolute path follows.
inline const std::string kLocalFileSegmentPrefix = "file://";
// The handle of the engine's own segment, which is always open: every function with a segment handle accepts it without
// openSegment().
#ifndef LOCAL_SEGMENT_ID
#define LOCAL_SEGMENT_ID (0ull)
#endif

// The priority of a request. The engine sends slices of a lower number first. A request of which nothing was sent for
// `priority_promotion_timeout_us` of the configuration (10 ms by default; 0 means never) moves one level up, and
// returns to its own level when a slice of it has been sent. Processes keep this order among each other only if they
// share time slots (`shared_quota_shm_path`).
enum : int { PRIO_HIGH = 0, PRIO_MEDIUM = 1, PRIO_LOW = 2 };

// The transports. rove carries data by RDMA, SHM, IOURING and TCP. The others are Mooncake's and never available:
// policies may name them without effect, and submitTransfer() refuses them as a transport_hint.
enum TransportType : int {
    // The policies of the configuration decide. Without one that names transports, memory uses the first of RDMA, SHM
    // and TCP that is available, and a file uses IOURING.
    UNSPEC = 0,
    RDMA = 1,  // to memory; needs a device with a link at both ends
    MNNVL = 2,
    SHM = 3,  // to memory from allocateLocalMemory() that this process can map
    NVLINK = 4,
    GDS = 5,
    IOURING = 6,  // to files
    TCP = 7,      // to memory
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
// Returns the name of a transport in configurations, such as "rdma" or "io_uring", "unspec" for UNSPEC, or "unknown".
// The string is static. Needs no engine.
const char* transportTypeName(TransportType type);
// Returns the transport with this name, in lower case as in configurations, or UNSPEC if there is no such name. Needs
// no engine.
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

// A transfer between local memory and a segment. The engine copies it at submission, and refuses values that are out of
// range. If the target is this process's own memory, it must not overlap with the source.
struct Request {
    // READ copies from the target to `source`, WRITE from `source` to the target.
    enum OpCode : int { READ = 0, WRITE = 1 };

    OpCode opcode = READ;
    void* source = nullptr;   // local memory within one registered buffer; the destination of a READ
    SegmentID target_id = 0;  // the segment, from openSegment(), or LOCAL_SEGMENT_ID
    // The address in the owner's process, or the offset in the file in bytes. [target_offset, target_offset + length)
    // must be within one of the target's buffers. No alignment is needed.
    uint64_t target_offset = 0;
    size_t length = 0;         // 1 to 2^45 bytes
    int priority = PRIO_HIGH;  // PRIO_HIGH, PRIO_MEDIUM or PRIO_LOW
    // The policy to use, one for this type of segment; its other conditions are not checked. Empty or unset for the
    // first policy that matches.
    std::optional<std::string> policy_name;
    // The transport to try first, which must be available for this request, or UNSPEC. After it has failed the request
    // continues over the policy's transports.
    TransportType transport_hint = UNSPEC;
    // The time in nanoseconds of CLOCK_MONOTONIC (std::chrono::steady_clock) after which no more of the request is
    // sent. It then ends as TIMEOUT as soon as the slices in flight have completed, or as COMPLETED if these were the
    // last ones. The engine checks deadlines about every millisecond. A deadline that has passed is accepted. 0 means
    // no deadline.
    uint64_t deadline_ns = 0;
    // The purpose, which rove ignores.
    IntentType intent_type = IntentType::INTENT_UNSPEC;
};

// The state of a request, or of a batch as a whole. INITIAL and PENDING are not final. A request keeps its final state;
// to repeat it, submit it again.
enum TransferStatusEnum : int {
    INITIAL = 0,    // the value before a call writes it; no call reports it
    PENDING = 1,    // submitted and not finished
    INVALID = 2,    // Mooncake's; rove does not report it
    CANCELED = 3,   // cancelTransfer() stopped a part of it
    COMPLETED = 4,  // all bytes are at their destination
    // Its deadline passed, or it moved no data for `max_timeout_ns` of the configuration (10 s by default).
    TIMEOUT = 5,
    // The memory is no longer registered, the peer's process has ended, reading or writing the file failed, or no
    // transport is left. See TransferStatus::reason.
    FAILED = 6,
};

// The state of a request, or of a batch as a whole.
struct TransferStatus {
    TransferStatusEnum s = INITIAL;
    // The bytes carried until now, which may be any part of the request. It never decreases, and is the request's
    // length after COMPLETED. For a batch it is the sum.
    size_t transferred_bytes = 0;
    // The cause of TIMEOUT or FAILED as a sentence, else "". The string is static. For a batch it is the cause of the
    // first request in the batch's state. The list form of getTransferStatus() sets it to "".
    const char* reason = "";
};

// A message to the program in another process. Name and text are UTF-8; bytes that are not arrive as U+FFFD, which has
// 3 bytes. A process refuses a notification that is longer than the limits then; no text is cut. Both may be empty, and
// may contain NUL characters, at which a C program's text ends.
struct Notification {
    std::string name;  // up to 255 bytes
    std::string msg;   // up to 4095 bytes
};

// The options for registering or allocating memory.
struct MemoryOptions {
    // Devices near this node are preferred for the memory. Without a node, registering asks the kernel for that of the
    // pages; pages that were never written have none.
    Location location = kWildcardLocation;
    Permission perm = kGlobalReadWrite;  // one of the three values; another one is not detected
    // Mooncake has these; rove ignores them. Memory is registered for all transports, and rove names shared memory.
    TransportType type = UNSPEC;
    std::string shm_path;
    size_t shm_offset = 0;
    bool internal = false;
};

// The description of a segment at the time of the call.
struct SegmentInfo {
    enum Type { Memory, File };
    struct Buffer {
        // The address in the owner's process (0 for a file), and the bytes from there.
        uint64_t base = 0, length = 0;
        Location location;  // the owner's, with a node of its host; "*" for a file
    };
    Type type = Memory;
    // The buffers that requests may use as their target, sorted by their addresses; up to 100 000. A file has one. A
    // range that is registered several times occurs once. The list does not show which buffers are kGlobalReadOnly: a
    // WRITE to such a buffer is refused when it is submitted.
    std::vector<Buffer> buffers;
};

// The load of one local RDMA device, over all transfers of this engine in both directions.
struct NicLoadStats {
    std::string device_name;      // the name in verbs (ibv_get_device_name()), such as "rove0"
    uint64_t inflight_bytes = 0;  // bytes of this engine's requests that are assigned to the device and not completed
    // The learned bandwidth in bytes (not bits) per second. It begins with `bandwidth_gbps` in `topology.nics` of the
    // configuration, else with the speed that the port reported when the engine started, or with
    // `default_bandwidth_gbps` if that value is missing or outside the configured bounds. It begins again with the same
    // value whenever the link or a connection over the device comes up. Completed slices of this engine's requests
    // change it, unless they are shorter than `block_size` or `enable_smart_scheduling` is false.
    double ewma_bandwidth_bps = 0;
};

// The configuration of an engine, whose constructor copies and checks it. All keys, with their defaults, are in the
// manual page rove-tent.toml(5), and in share/rove/config/tent/engine.toml of the installation's prefix. This is a
// plain struct, for one thread at a time.
struct Settings {
    // The path of a file (TOML, or JSON if it begins with '{'), or JSON text itself, which begins with '{'. "" means
    // the file or JSON text in the environment's MC_TENT_CONF, which set-user-ID programs ignore, or, without that, the
    // defaults. The constructor of an engine reads the file; a relative path then begins at the working directory.
    std::string file;
    // Keys and values, as set() describes them, that override the file's. If a key occurs twice the later entry
    // applies. Environment variables override both.
    std::vector<std::pair<std::string, std::string>> values;

    // Adds a key and its value to `values`, without a check. The key is a path of table and key names with '/' or '.'
    // between them. The value is written as in TOML: false, 65536, 0.5, "etcd" in quotes, ["rove0", "rove1"]. A text
    // that is not a TOML value, such as etcd or 10.0.0.1:2379, is a string as it is; a string that could be read as
    // another value needs the quotes. Example: set("transports/rdma/enable_smart_scheduling", "false").
    void set(std::string key, std::string value) { values.emplace_back(std::move(key), std::move(value)); }
};

// An engine of this process: its registered memory, its connections, and the requests in progress. The object cannot be
// copied or moved.
class TransferEngine {
  public:
    // The constructors start the engine: they open the devices, listen for peers, and start threads. They may wait up
    // to 5 s for a name server, and some seconds for the metadata store.
    //
    // Without a secret (`secret_file`, ROVE_TENT_SECRET) and certificates the engine listens only on the loopback and
    // on the addresses of its own ports, so that other hosts reach it only through these ports. It does so with a
    // warning on standard error. A device that cannot be used is skipped, also with a warning. Without a device the
    // engine uses the other transports.
    //
    // On failure available() is false and startStatus() has the reason: kMalformedJson (a file that cannot be read or
    // parsed), kInvalidArgument or kInvalidMetadataType (a value, which may also be a `local_segment_name` that a
    // running process has), kRpcServiceError (an address or port that cannot be listened on), kMetadataError (the
    // metadata store), kTooManyRequests (too many processes share the time slots; retry after one has ended) or
    // kInternalError (the system). An object that has not started stays so; create another one to retry. If there is no
    // memory or no thread, a constructor throws std::bad_alloc or std::system_error.
    //
    // The first one uses Settings{}, the second one Settings{config_path}, which may also be JSON text. Environment
    // variables such as MC_SLICE_SIZE replace single keys with every constructor; rove-tent.toml(5) lists them.
    TransferEngine();
    explicit TransferEngine(const std::string& config_path);
    explicit TransferEngine(const Settings& settings);
    // Does the same with the JSON text that config->dump() returns; null means Settings{}. `config` is not used later.
    // For mooncake::tent::Config (<tent/common/config.h>).
    template <class Json>
    requires requires(const Json& json) { std::string(json.dump()); }
    explicit TransferEngine(const std::shared_ptr<Json>& config)
        : TransferEngine(Settings{config == nullptr ? std::string() : config->dump(), {}}) {}
    // Stops the engine. Frees its batches, its segment handles, and memory from allocateLocalMemory(). Requests that
    // are not finished are abandoned, with any part of the data carried. Notifications of submitTransfer() that are not
    // sent are lost, and so are those that were not received. Peers see that the process has ended. Registered memory
    // may be freed as soon as the destructor has returned. Waits for the kernel to finish the reads and writes of files
    // that it has begun, without a limit, and may wait some seconds for the metadata store and for connections that are
    // being opened. In a child of fork() it returns at once, and memory from allocateLocalMemory() stays mapped there
    // until the child ends or calls exec().
    ~TransferEngine();
    TransferEngine(const TransferEngine&) = delete;
    TransferEngine& operator=(const TransferEngine&) = delete;

    // Returns true if the engine has started and belongs to this process. Only fork() changes it, in the child.
    bool available() const { return engine_ != nullptr; }
    // Returns the reason why the engine is not available, or kOk: the constructor's failure, or kInternalError in a
    // child of fork(). The reference is valid as long as this object.
    const Status& startStatus() const { return start_; }

    // Returns the name under which other processes open this engine's segment: HOST:PORT if `metadata_type` is "p2p"
    // (the default), else `local_segment_name` or a random name. It does not change. Empty if the engine is not
    // available.
    std::string getSegmentName() const;
    // Returns the host, a name or address without brackets, at which peers reach the engine: that of
    // `advertised_address`, if it is configured. It does not change. Empty if the engine is not available.
    std::string getRpcServerAddress() const;
    // Returns the TCP port on which the engine listens, in host byte order, or 0 if the engine is not available. The
    // port of `advertised_address` is only in the name of a "p2p" segment or in the metadata store.
    uint16_t getRpcServerPort() const;
    // Returns the local RDMA devices that the engine has opened as JSON, sorted by name:
    // {"nics": [{"name", "numa_node", "bandwidth_gbps", "up"}]}. numa_node is -1 if unknown. bandwidth_gbps, in 10^9
    // bits per second, is the speed that the port reported when the engine started (0 if none), or that of the
    // configuration. "up" is false after the port has reported that it lost its link, until the link returns; it is
    // true before the first report. The list is empty if the engine is not available.
    std::string getLocalTopologyString() const;

    // Opens a segment. `name` is another engine's getSegmentName(), "file:///PATH" for a file or block device of this
    // machine, or "" or the own name for the own segment, whose handle is LOCAL_SEGMENT_ID. Each success returns
    // another handle, also for a segment that is open already (except the own one), and each handle needs one
    // closeSegment(). The first open waits for the peer, for up to about 7 s, and for the metadata store, for up to 2 s
    // per server (4 s for etcd with a password). Threads that open the same segment meanwhile wait for that and get its
    // result.
    //
    // A file must exist. If this process may only read it, it is opened for READs, and WRITEs get kInvalidArgument when
    // they are submitted. It is used from offset 0 to the end that it has at this time, and no WRITE makes it longer.
    // getSegmentInfo(), and a request beyond that end, open the path again, and later requests use the file and the
    // length that they find.
    //
    // Errors: kInvalidArgument (the name has a wrong form or is not in the store: retry when the process has started;
    // the file cannot be opened, is empty, or is neither a regular file nor a block device), kRpcServiceError (the peer
    // does not answer, refuses this engine, or has registered too many buffers), kMetadataError (the metadata store
    // failed), kInternalError (the kernel offers no io_uring, which files need).
    Status openSegment(SegmentID& handle, const std::string& name);
    // Writes a text with which another process can import this engine's segment: getSegmentName(). Has no errors of its
    // own; on an error `shared_handle` is unchanged.
    Status exportLocalSegment(std::string& shared_handle);
    // Opens the segment whose text another process exported. Waits and fails as openSegment() does.
    Status importRemoteSegment(SegmentID& handle, const std::string& shared_handle) {
        return openSegment(handle, shared_handle);
    }
    // Closes a handle, which becomes invalid; openSegment() may return its number again. Other handles of the segment
    // stay open. Requests in progress continue to their end; a call with the handle in another thread either uses it
    // still or gets kInvalidEntry. After the last handle and request the connections to the process are closed.
    // LOCAL_SEGMENT_ID is accepted and stays open. Error: kInvalidEntry (the handle is not open).
    Status closeSegment(SegmentID handle);
    // Asks the segment's process, or the file, for its buffers, and replaces the content of `info`. Buffers with
    // kLocalReadWrite are not listed. Waits for the answer for up to about 3 s. Threads that ask the same process at
    // the same time wait one after another, up to 3 s each if it does not answer. Errors: kInvalidEntry (the handle is
    // not open), kRpcServiceError (the process does not answer or has ended, or has registered too many buffers),
    // kNeedsRefreshCache (it was restarted with other devices), kInvalidArgument (the file cannot be opened any more,
    // or is empty). On an error `info` is unchanged.
    Status getSegmentInfo(SegmentID handle, SegmentInfo& info);
    // Asks the segment's process whether it is alive. Waits for the answer, for up to one second. A thread of that
    // process's engine answers: the program itself may hang, and ports may have no link. Errors: kRpcServiceError (the
    // process has ended, or no answer within a second), kInvalidEntry (the handle is not open), kInvalidArgument (the
    // segment is a file), kNeedsRefreshCache (the process was restarted with other devices).
    Status probePeerAliveByID(SegmentID handle);

    // Allocates `size` bytes, at least 1, registers them, and writes their address to `*addr`, which must not be null.
    // Processes of the same user and network namespace on this machine, such as the containers of a pod, can map the
    // memory, which makes the SHM transport possible; with kLocalReadWrite no other process can, and with
    // kGlobalReadOnly others can only read it. The first form registers with kGlobalReadWrite. The memory is zeroed and
    // aligned to a page (a huge page with `huge_pages` of the configuration). All its pages are allocated during the
    // call, from another NUMA node if the node of the location is full, so it takes longer for larger sizes. A child of
    // fork() shares the memory with its parent. Free it with freeLocalMemory(), or with the engine, never with free()
    // or munmap(). Errors: kInvalidArgument (size 0, or the location), kInternalError (no memory), kRdmaError (a device
    // does not register it).
    Status allocateLocalMemory(void** addr, size_t size, const Location& location = kWildcardLocation);
    Status allocateLocalMemory(void** addr, size_t size, const MemoryOptions& options);
    // Unregisters and unmaps memory from allocateLocalMemory(). `addr` is its start. Ends the access of peers as
    // unregisterLocalMemory() does; a copy over SHM that completes later affects no memory of this process. Errors:
    // kAddressNotRegistered (this engine did not allocate it), kInvalidArgument (it is in use, as for
    // unregisterLocalMemory(): retry after the requests have ended; or the program has registered it or a part of it
    // itself and not unregistered that). After an error the memory stays as it is.
    Status freeLocalMemory(void* addr);
    // Registers [addr, addr + size), so that it may be the source of requests and, with its permission, their target.
    // No alignment is needed. The program must keep it mapped until it has unregistered it or destroyed the engine. The
    // same range may be registered again, with the same permission, and is then unregistered as often; its location
    // stays that of the first time.
    //
    // Different ranges may overlap. A request uses the buffer with the highest address that contains its range, or the
    // one that was registered last if several have this address, and the permission of that buffer. The search for a
    // target skips buffers with kLocalReadWrite: they do not protect a range that another buffer contains, too. Over
    // TCP the target's process searches again for each slice, skips none, and refuses a slice without permission. The
    // request then ends as FAILED.
    //
    // An engine may have 100 000 buffers that are not kLocalReadWrite: with more, opening its segment fails. Beyond
    // four devices they are fewer: the description of a segment has up to 16 MiB, of which a buffer takes about 110
    // bytes and another 13 for each device.
    //
    // A read-only mapping needs kGlobalReadOnly. Devices refuse it with another permission (kRdmaError); an engine
    // without devices does not check it, and a transfer into it may then end the process with SIGSEGV. The call waits
    // for the devices, which takes longer for larger ranges. Errors: kInvalidArgument (null, size 0, a range beyond the
    // address space, an unknown location, or a range that is registered with another permission), kRdmaError (a device
    // refuses, for example because the range is not mapped).
    Status registerLocalMemory(void* addr, size_t size, Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(void* addr, size_t size, const MemoryOptions& options);
    // Registers several ranges, addrs[i] with sizes[i] bytes. If one fails, the ones before it are unregistered again,
    // later ones are not tried, and its error is returned. Empty vectors do nothing. Further error: kInvalidArgument
    // (vectors of different lengths).
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               Permission permission = kGlobalReadWrite);
    Status registerLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes,
                               const MemoryOptions& options);
    // Takes back one registration of exactly [addr, addr + size). For a range from allocateLocalMemory() this may be
    // the engine's own one; the memory stays allocated, and freeLocalMemory() is still needed. Size 0 means the range
    // with this start, or the last one that was registered if there are several.
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
    // returned, and only its text tells which range it belongs to. Further error, after which nothing was done:
    // kInvalidArgument (vectors of different lengths).
    Status unregisterLocalMemory(const std::vector<void*>& addrs, const std::vector<size_t>& sizes = {});

    // Creates a batch for `size` requests, 1 to 65 536, to any segments. Returns its handle, or 0 if `size` is out of
    // range, the engine is not available, or it has 16 384 batches: then retry after a batch was freed and its requests
    // have ended. Free the batch with freeBatch(), or with the engine. Handles are not used again.
    BatchID allocateBatch(size_t size);
    // Frees a batch. Its handle becomes invalid at once, and no other call with it may be in progress. Its requests in
    // progress continue unobserved: their memory must stay until they end, and their notifications are still sent. To
    // know when they have ended, ask for the status first. Error: kInvalidArgument (the batch does not exist).
    Status freeBatch(BatchID batch);

    // Submits requests, all of them or, on an error, none. Until a request is final, the memory at `source` must stay
    // registered, and must not be written to (WRITE) or used at all (READ).
    //
    // A batch holds its size in requests in all, across calls; finished ones do not make room. Requests are numbered in
    // the order of submission, but are independent: they may begin and finish in any order, and the bytes of a request
    // arrive in any order, too. A request that depends on another one is submitted after that is COMPLETED. The
    // target's program learns of the data by a notification.
    //
    // With `merge_requests` of the configuration (the default) the engine may join requests of one call that adjoin
    // both at their sources and at their targets. Joined requests end together, and if one of them fails, all are
    // FAILED.
    //
    // An empty list does nothing. Usually returns at once. If the target's buffers must be asked for, waits for the
    // peer as getSegmentInfo() does; other threads that submit to the same batch then wait, too.
    //
    // Errors:
    //   kInvalidArgument       a field is out of range, the batch does not exist, the target may only be read, the
    //                          source of a READ is a read-only mapping, the transport_hint is not available now
    //                          (retry later, or without it), no policy for this type of segment has the policy_name,
    //                          or no policy matches although `strict` is true in the configuration
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
    //   kDeviceNotFound        no transport of the policy can carry a request now
    Status submitTransfer(BatchID batch, std::span<const Request> requests);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()));
    }
    // Does the same, and notifies the target processes after the data. When all of these requests are COMPLETED, the
    // engine sends one copy of `notification` to each process that is the target of one or more of them, which may be
    // its own, and none for files. If one of the requests ends otherwise, or the list is empty, no process is notified.
    // Notifications of this function to one process keep the order in which their requests completed. A thread of the
    // engine sends them after the requests have become COMPLETED: this state does not mean that they have arrived, and
    // the destructor loses those that are not sent. A notification that a process does not accept (see
    // sendNotification()), or that finds 4096 others waiting to be sent to its process, is lost, with a warning on this
    // process's standard error. Further error: kInvalidArgument (the notification is too long).
    Status submitTransfer(BatchID batch, std::span<const Request> requests, const Notification& notification);
    Status submitTransfer(BatchID batch, std::initializer_list<Request> requests, const Notification& notification) {
        return submitTransfer(batch, std::span(requests.begin(), requests.size()), notification);
    }
    // Asks to stop a request. Returns before it ends: slices in flight still complete, the rest is dropped. It ends as
    // CANCELED, as COMPLETED if nothing was left to drop, or as FAILED or TIMEOUT if that happened before. Its memory
    // must stay until then. Slices that it shares with a joined request (see submitTransfer()) are carried. A request
    // that is final stays as it is, and the call returns kOk. Error: kInvalidArgument (the batch or the task does not
    // exist).
    Status cancelTransfer(BatchID batch, size_t task);

    // Reports the state of one request. Does not wait. The call also drives the transfer: a program that polls in a
    // loop gets the lowest latency; without calls a thread of the engine does it. After COMPLETED all bytes are in the
    // target's memory (WRITE) or in this process's (READ); a file has them in the kernel's cache, and fsync(2) puts
    // them on the disk. After FAILED, TIMEOUT or CANCELED any part of them may be, and after FAILED a part may still
    // arrive at a target that has stopped answering. After each final state the engine no longer accesses this
    // process's memory for the request. Error: kInvalidArgument (the batch or the task does not exist).
    Status getTransferStatus(BatchID batch, size_t task, TransferStatus& status);
    // Replaces `list` by the states of all requests submitted to the batch, in the order of `task`, in the same way.
    // Error: kInvalidArgument (the batch does not exist).
    Status getTransferStatus(BatchID batch, std::vector<TransferStatus>& list);
    // Reports the state of the batch in the same way: PENDING while a request is, then the worst state in the order
    // FAILED, TIMEOUT, CANCELED, COMPLETED. A batch without requests is COMPLETED, and a batch that is not full becomes
    // PENDING again when more is submitted. Error: kInvalidArgument (the batch does not exist).
    Status getTransferStatus(BatchID batch, TransferStatus& overall);
    // Another name for the call above.
    Status progressBatch(BatchID batch, TransferStatus& overall) { return getTransferStatus(batch, overall); }

    // Sends a notification to the segment's process and waits for the answer of that process's engine, for up to 3 s.
    // It does not wait until the program receives it. Notifications of one thread to a process keep their order.
    // Errors: kInvalidArgument (too long, or the segment is a file), kInvalidEntry (the handle is not open),
    // kRpcServiceError (no answer, after which the notification may still arrive; or 4096 notifications wait there:
    // retry after the peer has received them; or it is too long with U+FFFD: a retry fails again), kNeedsRefreshCache
    // (the process was restarted with other devices).
    Status sendNotification(SegmentID target, const Notification& notification);
    // Replaces `list` by all received notifications, from all processes and in the order of arrival. If several
    // threads call it, each notification goes to one of them. Does not wait: the list may be empty. The engine keeps up
    // to 4096 until they are received, and refuses more. Has no errors of its own; on an error `list` is empty. If it
    // throws, notifications may be lost.
    Status receiveNotification(std::vector<Notification>& list);

    // Replaces `list` by the load of each local RDMA device that the engine has opened, sorted by name, also of those
    // without a link. Has no errors of its own; on an error `list` is empty.
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
