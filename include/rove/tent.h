/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TENT engine for C programs, with the names of Mooncake's C API. Link with librove-tent (pkg-config rove-tent).
 * <rove/tent.hpp> has the same calls for C++, and in addition deadlines and names of policies for requests, and the
 * causes of requests that fail.
 *
 * RETURN VALUES. Unless described otherwise, a function returns 0, or the negative of an error code (enum tent_code),
 * and then tent_last_error() returns the text. Every function may return these two errors, so that they are not
 * repeated below:
 *   -TENT_INVALID_ARGUMENT   a required pointer is NULL, the engine's handle included
 *   -TENT_INTERNAL_ERROR     there is no memory or no thread, or the engine belongs to the process that called fork()
 * Pointers are required unless described otherwise, also with a count of 0. Arguments are used during the call only,
 * except for memory that is registered. On an error, output arguments have no meaning unless described otherwise.
 * Functions check the handles of segments and batches, but the handle of a destroyed engine must not be used. No C++
 * exception leaves a function.
 *
 * THREADS. Any thread may call any function at any time, with these exceptions. tent_destroy_engine() must be the last
 * call with that engine. No other call with the same batch may be in progress during tent_free_batch(). A struct is
 * used by one thread at a time. tent_load_config_from_file(), tent_set_config(), tent_create_engine() and
 * tent_last_error() work on data of the calling thread. No function may be called in a signal handler. The engine's own
 * threads block all signals.
 *
 * WAITING. Functions described as waiting may block their thread for the time that is given. The others return at once,
 * but may wait for a lock that another thread holds for a short time. Functions that allocate, register, unregister or
 * free memory wait for each other.
 *
 * PROCESSES. A process may create several engines, at any time; nothing needs to be initialised before. An engine may
 * still exist when the process ends. A child of fork() cannot use its parent's engines and must create its own. It may
 * call tent_destroy_engine(), which leaves the parent's engine alone. Its engines have no rove devices if the parent
 * had opened them, and then use TCP and SHM.
 *
 * CONFIGURATION. Names in backquotes, such as `merge_requests`, are arguments, fields, or keys of the configuration.
 * The manual page rove-tent.toml(5) describes the keys.
 *
 * UNITS. Lengths and sizes are in bytes.
 *
 * STRUCTS. Initialise every struct with zeros. Later versions may add fields, for which 0 means the behaviour before.
 */
#ifndef ROVE_TENT_H
#define ROVE_TENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Error codes. Functions return them negated. The numbers are part of the ABI. Unless a function says otherwise, a call
 * that returns an error has changed nothing. A repeated call may succeed only after the event that "retry" names;
 * without a "retry" it fails again until the program or the configuration is changed.
 */
enum tent_code {
    TENT_OK = 0, /* success */
    /* A wrong value, an unknown key or object, or a combination that is not allowed. Some functions also return it for
       a state that ends, such as memory that is in use; they say so, and when to retry. */
    TENT_INVALID_ARGUMENT = 1,
    /* A limit is reached; the function says which one, and when to retry. */
    TENT_TOO_MANY_REQUESTS = 2,
    /* A range is not within one registered buffer, here or at the peer, or is beyond the file's end. Retry after it has
       been registered, or the file has grown. From a function that unregisters or frees: there is no such registration
       or memory. */
    TENT_ADDRESS_NOT_REGISTERED = 3,
    /* No transport can carry the request now. Retry when a port has a link again or another transport is available. */
    TENT_DEVICE_NOT_FOUND = 4,
    TENT_INVALID_ENTRY = 5,         /* a segment handle that is not open */
    TENT_INVALID_METADATA_TYPE = 6, /* an unknown `metadata_type` in the configuration */
    /* The peer's process was restarted with other devices. Close all handles of its segment, open it again, and retry
       with the new handle. */
    TENT_NEEDS_REFRESH_CACHE = 7,
    TENT_RDMA_ERROR = 100, /* a device refused to register memory, for example because it is not mapped */
    TENT_CUDA_ERROR = 101, /* Mooncake's; rove does not return it */
    /* The metadata store refused, or did not answer. Retry when it is reachable. */
    TENT_METADATA_ERROR = 131,
    /* The peer's process has ended, does not answer, has another version of the protocol, or refuses this engine, for
       example because of another secret; the text has the reason. Retry when it is running. From tent_create_engine():
       this engine cannot listen. */
    TENT_RPC_SERVICE_ERROR = 132,
    TENT_MALFORMED_JSON = 133, /* a configuration (TOML or JSON) that cannot be read or parsed */
    /* The system lacks memory, a thread, a socket, or io_uring: retry when it has them. Or the engine belongs to the
       process that called fork(). */
    TENT_INTERNAL_ERROR = 199,
    TENT_NOT_IMPLEMENTED = 200 /* Mooncake's; rove does not return it */
};

/* The direction of a request: READ copies from the target to `source`, WRITE from `source` to the target. */
enum tent_opcode { OPCODE_READ = 0, OPCODE_WRITE = 1 };

/* The state of a request. WAITING and PENDING are not final. A request keeps its final state; to repeat it, submit it
   again. */
enum tent_transfer_status {
    STATUS_WAITING = 0,   /* the value before a call writes it; no function reports it */
    STATUS_PENDING = 1,   /* submitted and not finished */
    STATUS_INVALID = 2,   /* Mooncake's; rove does not report it */
    STATUS_CANCELED = 3,  /* tent_cancel_task() stopped a part of it */
    STATUS_COMPLETED = 4, /* all bytes are at their destination */
    STATUS_TIMEOUT = 5,   /* it moved no data for `max_timeout_ns` of the configuration (10 s by default) */
    /* The memory is no longer registered, the peer's process has ended, reading or writing the file failed, or no
       transport is left. */
    STATUS_FAILED = 6
};

/* The access to a registered buffer as the target of requests, both of other processes and of its own process with
   LOCAL_SEGMENT_ID. A buffer of any permission can be the source of its own process's requests. */
enum tent_permission {
    /* No access: requests get -TENT_ADDRESS_NOT_REGISTERED when they are submitted. It takes nothing away from another
       buffer that contains the range (see tent_register_memory()). */
    PERM_LOCAL_READ_WRITE = 0,
    PERM_GLOBAL_READ_ONLY = 1, /* READ; a WRITE gets -TENT_INVALID_ARGUMENT when it is submitted */
    PERM_GLOBAL_READ_WRITE = 2 /* READ and WRITE */
};

/* The transports. rove carries data by RDMA, SHM, IOURING and TCP. The others are Mooncake's and never available:
   tent_submit() refuses them as a transport_hint. */
enum tent_transport {
    /* The policies of the configuration decide. Without one that names transports, memory uses the first of RDMA,
       SHM and TCP that is available, and a file uses IOURING. */
    TRANSPORT_UNSPEC = 0,
    TRANSPORT_RDMA = 1, /* to memory; needs a device with a link at both ends */
    TRANSPORT_MNNVL = 2,
    TRANSPORT_SHM = 3, /* to memory from tent_allocate_memory() that this process can map */
    TRANSPORT_NVLINK = 4,
    TRANSPORT_GDS = 5,
    TRANSPORT_IOURING = 6, /* to files */
    TRANSPORT_TCP = 7,     /* to memory */
    TRANSPORT_ASCEND_DIRECT = 8,
    TRANSPORT_SUNRISE_LINK = 9,
    TRANSPORT_TPU = 10,
    TRANSPORT_UB = 11,
    TRANSPORT_MPCOMM = 12
};

/* A segment is the registered memory of a process, or a file (a regular file or a block device). */
enum tent_segment_type { TYPE_MEMORY = 0, TYPE_FILE = 1 };

/* An engine of this process, from tent_create_engine() until tent_destroy_engine(). NULL is no engine. */
typedef void* tent_engine_t;
/* The handle of an open segment, valid within one engine until tent_close_segment(). It stays valid when the segment's
   process ends: requests in progress become FAILED, new ones get -TENT_RPC_SERVICE_ERROR, and they succeed again when
   the process has returned with the same name and devices. */
typedef uint64_t tent_segment_id_t;
/* The handle of a batch, valid within one engine until tent_free_batch(). It is not used again. 0 is never a batch. */
typedef uint64_t tent_batch_id_t;

/* The handle of the engine's own segment, which is always open: every function with a segment handle accepts it without
   tent_open_segment(). */
#ifndef LOCAL_SEGMENT_ID
#define LOCAL_SEGMENT_ID (0ull)
#endif

/* A transfer between local memory and a segment. tent_submit() refuses values that are out of range. If the target
   is this process's own memory, it must not overlap with the source. */
typedef struct tent_request {
    int opcode;                  /* enum tent_opcode */
    void* source;                /* local memory within one registered buffer; the destination of a READ */
    tent_segment_id_t target_id; /* the segment, from tent_open_segment(), or LOCAL_SEGMENT_ID */
    /* The address in the owner's process, or the offset in the file in bytes. [target_offset, target_offset + length)
       must be within one of the target's buffers. No alignment is needed. */
    uint64_t target_offset;
    uint64_t length; /* 1 to 2^45 bytes */
    /* 0 high, 1 medium, 2 low. The engine sends slices of a lower number first. A request of which nothing was sent for
       `priority_promotion_timeout_us` of the configuration (10 ms by default; 0 means never) moves one level up, and
       returns to its own level when a slice of it has been sent. Processes keep this order among each other only if
       they share time slots (`shared_quota_shm_path`). */
    int priority;
    /* enum tent_transport: the transport to try first, which must be available for this request, or TRANSPORT_UNSPEC.
       After it has failed the request continues over the policy's transports. */
    int transport_hint;
} tent_request_t;

/* The state of a request, or of a batch. */
typedef struct tent_status {
    int status; /* enum tent_transfer_status */
    /* The bytes carried until now, which may be any part of the request. It never decreases, and is the request's
       length after COMPLETED. For a batch it is the sum. */
    uint64_t transferred_bytes;
} tent_status_t;

/* The options for registering or allocating memory. */
typedef struct tent_memory_options {
    /* "cpu:N" for NUMA node N of this host, or "cpu", "*" or "" for no particular node; NUL-terminated. Devices near
       the node are preferred for the memory. Without a node, registering asks the kernel for that of the pages; pages
       that were never written have none. */
    char location[64];
    int permission; /* enum tent_permission; 0 gives no access as a target */
    /* Mooncake has these; rove ignores them. Memory is registered for all transports, and rove names shared memory. */
    int transport_type;
    char shm_path[256];
    size_t shm_offset;
    int internal;
} tent_memory_options_t;

/* A buffer of a segment that requests may use as their target. */
struct tent_buffer_info {
    uint64_t base, length; /* the address in the owner's process (0 for a file), and the bytes from there */
    char location[64]; /* the owner's tent_memory_options::location, with a node of its host; "*" for "" and a file */
};
typedef struct tent_buffer_info tent_buffer_info_t;

/* The description of a segment at the time of the call. Free it with tent_free_segment_info(). */
typedef struct tent_segment_info {
    int type;        /* enum tent_segment_type */
    int num_buffers; /* the number of elements of `buffers`, 0 to 100 000; 1 for a file */
    /* The buffers, sorted by address and allocated by tent_get_segment_info(). A range that is registered several times
       occurs once. The pointer may be non-NULL without elements. The list does not show which buffers are
       PERM_GLOBAL_READ_ONLY: a WRITE to such a buffer is refused when it is submitted. */
    struct tent_buffer_info* buffers;
} tent_segment_info_t;

/* A received notification. A NUL character in the sender's text ends it here. No text is cut: one that does not fit
   was refused (see tent_send_notifs()). */
struct tent_notifi_record {
    tent_segment_id_t handle; /* always 0: the sender is not reported */
    char name[256];           /* a NUL-terminated string */
    char msg[4096];           /* a NUL-terminated string */
};
typedef struct tent_notifi_record tent_notifi_record_t;

/* Received notifications. Free them with tent_free_notifs(). */
typedef struct tent_notifi_info {
    int num_records;                    /* the number of elements of `records`, 0 to 4096 */
    struct tent_notifi_record* records; /* allocated by tent_recv_notifs(); NULL if num_records is 0 */
} tent_notifi_info;

/* The load of one local device, over all transfers of this engine in both directions. */
typedef struct tent_nic_load_stat {
    char device_name[64];    /* the name in verbs (ibv_get_device_name()), such as "rove0"; NUL-terminated */
    uint64_t inflight_bytes; /* bytes of this engine's requests that are assigned to the device and not completed */
    /* The learned bandwidth in bytes (not bits) per second. It begins with `bandwidth_gbps` in `topology.nics` of the
       configuration, else with the speed that the port reported when the engine started, or with
       `default_bandwidth_gbps` if that value is missing or outside the configured bounds. It begins again with the same
       value whenever the link or a connection over the device comes up. Completed slices of this engine's requests
       change it, unless they are shorter than `block_size` or `enable_smart_scheduling` is false. */
    double ewma_bandwidth_bps;
} tent_nic_load_stat_t;

/* ---- Errors ---- */

/*
 * Returns the text of the last error of the calling thread, over all engines: the name of the code and the value that
 * is wrong, such as "InvalidArgument: length 0: 1 to 2^45 bytes are allowed". If there was no memory or no thread it is
 * the system's text alone, or "". Returns "" if there was no error. A call that succeeds leaves the text as it is. The
 * string belongs to the library and is valid until the thread's next error, or its end.
 */
const char* tent_last_error(void);

/* ---- Configuration, by thread ---- */

/*
 * Names the configuration for engines that the calling thread creates later. `path` is a file (TOML, or JSON if it
 * begins with '{'), or JSON text itself, which begins with '{'. "" means the default: the file, or JSON, in the
 * environment's MC_TENT_CONF, if any, which set-user-ID programs ignore. Keys that tent_set_config() has set are kept.
 * The string is copied. Every tent_create_engine() reads the file and the environment again, and reports errors in
 * them; a relative path then begins at the working directory. A new thread begins with "" and no keys.
 */
int tent_load_config_from_file(const char* path);

/*
 * Sets a key for engines that the calling thread creates later. `key` is a path of table and key names with '/' or '.'
 * between them, such as "transports/rdma/enable_smart_scheduling". `value` is written as in TOML: false, 65536, 0.5,
 * "etcd" in quotes, ["rove0", "rove1"]. A text that is not a TOML value, such as etcd or 10.0.0.1:2379, is a string as
 * it is; a string that could be read as another value needs the quotes. It replaces the value in the file and that of
 * an earlier call, and is itself replaced by an environment variable for the same key. A key that was set can be set
 * again, but not removed. Both strings are copied. tent_create_engine() checks them, and refuses unknown keys. Keys of
 * Mooncake that have no meaning in rove are accepted, without effect and with a warning on standard error. All keys,
 * with their defaults and the environment variables, are in the manual page rove-tent.toml(5), and in
 * share/rove/config/tent/engine.toml of the installation's prefix.
 */
int tent_set_config(const char* key, const char* value);

/* ---- Engines ---- */

/*
 * Creates and starts an engine with the configuration that the calling thread has at this time. Opens the devices,
 * listens for peers, and starts threads. May wait up to 5 s for a name server, and some seconds for the metadata store.
 * Free the engine with tent_destroy_engine().
 *
 * Without a secret (`secret_file`, ROVE_TENT_SECRET) and certificates the engine listens only on the loopback and on
 * the addresses of its own ports, so that other hosts reach it only through these ports. It does so with a warning on
 * standard error. A device that cannot be used is skipped, also with a warning. Without a device the engine uses the
 * other transports.
 *
 * Returns NULL on failure, and tent_last_error() returns the reason, which begins with the name of the code: the
 * configuration cannot be read or has an invalid value (which may also be a `local_segment_name` that a running process
 * has), a port or address cannot be listened on, the metadata store fails, too many processes share the time slots
 * (retry after one has ended), or the system lacks resources.
 */
tent_engine_t tent_create_engine(void);

/*
 * Stops an engine and frees it, with its batches, its segment handles, and memory from tent_allocate_memory(). NULL is
 * allowed. Requests that are not finished are abandoned, with any part of the data carried. Notifications of
 * tent_submit_notif() that are not sent are lost, and so are those that were not received. Peers see that the process
 * has ended. Registered memory may be freed as soon as the function returns. No other call with this engine may be in
 * progress or follow. Waits for the kernel to finish the reads and writes of files that it has begun, without a limit,
 * and may wait some seconds for the metadata store and for connections that are being opened. In a child of fork() it
 * returns at once, and memory from tent_allocate_memory() stays mapped there until the child ends or calls exec().
 */
void tent_destroy_engine(tent_engine_t engine);

/* Returns 1 if the engine can be used, else 0: it is NULL, or the process is a child of the one that created it. */
int tent_available(tent_engine_t engine);

/*
 * Writes the name of the engine's segment, for tent_open_segment() in other processes, to `buffer` of `length` bytes,
 * with a NUL at its end. It is HOST:PORT if `metadata_type` is "p2p" (the default), else `local_segment_name` or a
 * random name, and does not change. Fails with -TENT_INVALID_ARGUMENT if it does not fit; 256 bytes are enough unless
 * the configuration sets a longer name. In a child of fork() it succeeds and writes "".
 */
int tent_segment_name(tent_engine_t engine, char* buffer, size_t length);

/*
 * Writes the host, a name or address without brackets, at which peers reach the engine to `address` of `length` bytes,
 * with a NUL at its end, and the TCP port on which it listens to *port, in host byte order. Neither changes. The
 * host is that of `advertised_address`, if it is configured; its port is only in the name of a "p2p" segment or in the
 * metadata store. Fails with -TENT_INVALID_ARGUMENT if the host does not fit. In a child of fork() it succeeds and
 * writes "" and 0.
 */
int tent_rpc_server_addr_port(tent_engine_t engine, char* address, size_t length, uint16_t* port);

/* ---- Segments ---- */

/*
 * Opens a segment and writes its handle to *handle. `name` is the name of another engine's segment (HOST:PORT if
 * `metadata_type` is "p2p", else its name in the metadata store), "file:///PATH" for a file or block device of this
 * machine, or "" or the own name for the own segment, whose handle is LOCAL_SEGMENT_ID. Each success returns another
 * handle, also for a segment that is open already (except the own one), and each handle needs one tent_close_segment().
 * The first open waits for the peer, for up to about 7 s, and for the metadata store, for up to 2 s per server (4 s for
 * etcd with a password). Threads that open the same segment meanwhile wait for that and get its result.
 *
 * A file must exist. If this process may only read it, it is opened for READs, and WRITEs get -TENT_INVALID_ARGUMENT
 * when they are submitted. It is used from offset 0 to the end that it has at this time, and no WRITE makes it longer.
 * tent_get_segment_info(), and a request beyond that end, open the path again, and later requests use the file and the
 * length that they find.
 *
 * Errors: -TENT_INVALID_ARGUMENT (the name has a wrong form or is not in the store: retry when the process has started;
 * the file cannot be opened, is empty, or is neither a regular file nor a block device), -TENT_RPC_SERVICE_ERROR (the
 * peer does not answer, refuses this engine, or has registered too many buffers), -TENT_METADATA_ERROR (the metadata
 * store failed), -TENT_INTERNAL_ERROR (the kernel offers no io_uring, which files need).
 */
int tent_open_segment(tent_engine_t engine, tent_segment_id_t* handle, const char* name);

/*
 * Closes a handle, which becomes invalid; tent_open_segment() may return its number again. Other handles of the segment
 * stay open. Requests in progress continue to their end; a call with the handle in another thread either uses it still
 * or gets -TENT_INVALID_ENTRY. After the last handle and request the connections to the process are closed.
 * LOCAL_SEGMENT_ID is accepted and stays open. Fails with -TENT_INVALID_ENTRY if the handle is not open.
 */
int tent_close_segment(tent_engine_t engine, tent_segment_id_t handle);

/*
 * Asks a segment's process (or the file) for its buffers and writes them to *info, which the caller frees with
 * tent_free_segment_info(). Buffers with PERM_LOCAL_READ_WRITE are not listed. Waits for the answer, for up to about 3
 * seconds. Threads that ask the same process at the same time wait one after another, up to 3 seconds each if it does
 * not answer. The old content of *info is not freed. On failure *info is empty, or unchanged if `engine` is NULL.
 * Errors: -TENT_INVALID_ENTRY (handle not open), -TENT_RPC_SERVICE_ERROR (the process does not answer or has ended, or
 * has registered too many buffers), -TENT_NEEDS_REFRESH_CACHE (it was restarted with other devices),
 * -TENT_INVALID_ARGUMENT (the file cannot be opened any more, or is empty).
 */
int tent_get_segment_info(tent_engine_t engine, tent_segment_id_t handle, tent_segment_info_t* info);

/* Frees the buffers of *info and sets it to zeros, so that a second call does nothing. NULL is allowed. No engine is
   needed. */
void tent_free_segment_info(tent_segment_info_t* info);

/*
 * Asks a segment's process whether it is alive. Waits for the answer, for up to one second. A thread of that process's
 * engine answers: the program itself may hang, and ports may have no link. Errors: -TENT_RPC_SERVICE_ERROR (the process
 * has ended, or no answer within a second), -TENT_INVALID_ENTRY (handle not open), -TENT_INVALID_ARGUMENT (the segment
 * is a file), -TENT_NEEDS_REFRESH_CACHE (the process was restarted with other devices).
 */
int tent_probe_peer_alive(tent_engine_t engine, tent_segment_id_t handle);

/* ---- Memory ---- */

/*
 * Allocates `size` bytes (at least 1) and registers them with PERM_GLOBAL_READ_WRITE. The address goes to *address.
 * Processes of the same user and network namespace on this machine can map the memory, which makes the SHM transport
 * possible. The memory is zeroed and aligned to a page (a huge page with `huge_pages` of the configuration).
 * `location` is as in tent_memory_options; NULL means no particular node. All pages are allocated during the call, from
 * another node if that one is full, so it takes longer for larger sizes. A child of fork() shares the memory with its
 * parent. Free the memory with tent_free_memory(), or with the engine, never with free() or munmap().
 * Errors: -TENT_INVALID_ARGUMENT (size 0, or the location), -TENT_INTERNAL_ERROR (no memory), -TENT_RDMA_ERROR (a
 * device does not register it).
 */
int tent_allocate_memory(tent_engine_t engine, void** address, size_t size, const char* location);

/* Does the same with the location and permission of *options. With PERM_LOCAL_READ_WRITE no other process can map it,
   and with PERM_GLOBAL_READ_ONLY others can only read it; this process can always write to it. Further error:
   -TENT_INVALID_ARGUMENT (an unknown permission). */
int tent_allocate_memory_ex(tent_engine_t engine, void** address, size_t size, const tent_memory_options_t* options);

/*
 * Unregisters and unmaps memory from tent_allocate_memory(). `address` is its start. Ends the access of peers as
 * tent_unregister_memory() does; a copy over SHM that completes later affects no memory of this process.
 * Errors: -TENT_ADDRESS_NOT_REGISTERED (this engine did not allocate it), -TENT_INVALID_ARGUMENT (it is in use, as for
 * tent_unregister_memory(): retry after the requests have ended; or the program has registered it or a part of it
 * itself and not unregistered that). After an error the memory stays as it is.
 */
int tent_free_memory(tent_engine_t engine, void* address);

/*
 * Registers [address, address + size) with PERM_GLOBAL_READ_WRITE, so that it may be the source of requests, and their
 * target. No alignment is needed. The program must keep it mapped until it has unregistered it or destroyed the engine.
 * The same range may be registered again, with the same permission, and is then unregistered as often; its location
 * stays that of the first time. The call waits for the devices, which takes longer for larger ranges.
 *
 * Different ranges may overlap. A request uses the buffer with the highest address that contains its range, or the one
 * that was registered last if several have this address, and the permission of that buffer. The search for a target
 * skips buffers with PERM_LOCAL_READ_WRITE: they do not protect a range that another buffer contains, too. Over TCP the
 * target's process searches again for each slice, skips none, and refuses a slice without permission. The request then
 * ends as FAILED.
 *
 * An engine may have 100 000 buffers that are not PERM_LOCAL_READ_WRITE: with more, opening its segment fails. Beyond
 * four devices they are fewer: the description of a segment has up to 16 MiB, of which a buffer takes about 110 bytes
 * and another 13 for each device.
 *
 * Errors: -TENT_INVALID_ARGUMENT  NULL, size 0, a range beyond the address space, an unknown permission or location, or
 *                                 a range that is registered with another permission
 *         -TENT_RDMA_ERROR        a device refuses, for example because the range is not mapped
 */
int tent_register_memory(tent_engine_t engine, void* address, size_t size);

/* Does the same with `permission` (enum tent_permission). A read-only mapping needs PERM_GLOBAL_READ_ONLY. Devices
   refuse it with another permission (-TENT_RDMA_ERROR); an engine without devices does not check it, and a transfer
   into it may then end the process with SIGSEGV. */
int tent_register_memory_with_perm(tent_engine_t engine, void* address, size_t size, int permission);

/* Does the same with the location and permission of *options. */
int tent_register_memory_ex(tent_engine_t engine, void* address, size_t size, const tent_memory_options_t* options);

/*
 * Registers `count` ranges, addresses[i] with sizes[i] bytes, as tent_register_memory_with_perm() does. If one fails,
 * the ones before it are unregistered again, later ones are not tried, and its error is returned. Both arrays are
 * needed. A count of 0 does nothing.
 */
int tent_register_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count,
                               int permission);

/* Does the same with the location and permission of *options. */
int tent_register_memory_batch_ex(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count,
                                  const tent_memory_options_t* options);

/*
 * Takes back one registration of exactly [address, address + size). For a range from tent_allocate_memory() this may be
 * the engine's own one; the memory stays allocated, and tent_free_memory() is still needed. Size 0 means the range with
 * this start, or the last one that was registered if there are several.
 *
 * The end of a range's last registration ends the access of peers. Their requests to it, also those in progress, end as
 * FAILED, unless another registration contains them. When the call returns, no device and no connection accesses the
 * memory, so the program may unmap or reuse it. There is one exception: a peer that has begun to copy to or from memory
 * of tent_allocate_memory() over SHM completes that copy after the return.
 *
 * The call does not wait for requests. Errors: -TENT_ADDRESS_NOT_REGISTERED (exactly this range is not registered),
 * -TENT_INVALID_ARGUMENT (it is the source of a request in progress, or a peer transfers to or from it over TCP at this
 * moment: it stays registered, retry after these have ended).
 */
int tent_unregister_memory(tent_engine_t engine, void* address, size_t size);

/*
 * Does the same for `count` ranges. If `sizes` is NULL all sizes are 0. Every range is tried; the first error is
 * returned, and only its text tells which range it belongs to. A count of 0 does nothing.
 */
int tent_unregister_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count);

/* ---- Transfers ---- */

/*
 * Creates a batch for `size` requests, 1 to 65 536, to any segments. Returns its handle, or 0 on failure: `size` is out
 * of range, `engine` is NULL or belongs to the process that called fork(), there is no memory, or the engine has 16 384
 * batches: then retry after a batch was freed and its requests have ended. tent_last_error() returns the same text for
 * a wrong size, a child of fork(), and too many batches. Free the batch with tent_free_batch(), or with the engine.
 * Handles are not used again.
 */
tent_batch_id_t tent_allocate_batch(tent_engine_t engine, size_t size);

/*
 * Frees a batch. Its handle becomes invalid at once, and no other call with it may be in progress. Its requests in
 * progress continue unobserved: their memory must stay until they end, and their notifications are still sent. To know
 * when they have ended, ask for the status first. Fails with -TENT_INVALID_ARGUMENT if the batch does not exist.
 */
int tent_free_batch(tent_engine_t engine, tent_batch_id_t batch);

/*
 * Submits `count` requests, all of them or, on an error, none. The requests are copied. Until a request is final, the
 * memory at `source` must stay registered, and must not be written to (WRITE) or used at all (READ).
 *
 * Requests of a batch are numbered from 0 in the order of submission, across calls: these numbers are the `task` of the
 * functions below. A batch holds its size in requests in all; finished ones do not make room. Requests are independent:
 * they may begin and finish in any order, and the bytes of a request arrive in any order, too. A request that depends
 * on another one is submitted after that is COMPLETED. The target's program learns of the data by a notification.
 *
 * With `merge_requests` of the configuration (the default) the engine may join requests of one call that adjoin both at
 * their sources and at their targets. Joined requests end together, and if one of them fails, all are FAILED.
 *
 * A count of 0 does nothing, but `requests` must not be NULL. Usually returns at once. If the target's buffers must be
 * asked for, waits for the peer as tent_get_segment_info() does; other threads that submit to the same batch then wait,
 * too.
 *
 * Errors:
 *   -TENT_INVALID_ARGUMENT        a field is out of range, the batch does not exist, the target may only be read, the
 *                                 source of a READ is a read-only mapping, the transport_hint is not available now
 *                                 (retry later, or without it), or no policy matches although `strict` is true in the
 *                                 configuration
 *   -TENT_TOO_MANY_REQUESTS       the batch has less room than `count`, and never gets more: use another batch. Or the
 *                                 engine lacks slices: retry after a request has ended, or with fewer requests at once.
 *                                 It has 262 144. A call with a medium request is refused if more than 229 376 would be
 *                                 in use, and one with a low request if more than 196 608 would be. A request below 512
 *                                 GiB needs up to 512. The text tells which of the two. A program that counts the
 *                                 requests of its batches meets the second one only.
 *   -TENT_ADDRESS_NOT_REGISTERED  the source, or the target, is not within one registered buffer, or beyond the file's
 *                                 end
 *   -TENT_INVALID_ENTRY           the segment handle is not open
 *   -TENT_RPC_SERVICE_ERROR       the peer's process has ended or does not answer
 *   -TENT_NEEDS_REFRESH_CACHE     the peer's process was restarted with other devices
 *   -TENT_DEVICE_NOT_FOUND        no transport of the policy can carry a request now
 */
int tent_submit(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count);

/*
 * Does the same, and notifies the target processes after the data. When all of these requests are COMPLETED, the engine
 * sends one notification to each process that is the target of one or more of them, which may be its own, and none for
 * files. If one of the requests ends otherwise, or `count` is 0, no process is notified. Notifications of this function
 * to one process keep the order in which their requests completed. A thread of the engine sends them after the requests
 * have become COMPLETED: this state does not mean that they have arrived, and tent_destroy_engine() loses those that
 * are not sent. A notification that a process does not accept (see tent_send_notifs()), or that finds 4096 others
 * waiting to be sent to its process, is lost, with a warning on this process's standard error. `name` has up to 255
 * bytes, `message` up to 4095 (else -TENT_INVALID_ARGUMENT, and nothing is submitted). Both are copied.
 */
int tent_submit_notif(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count,
                      const char* name, const char* message);

/*
 * Asks to stop request `task` of a batch. Returns before it ends: slices in flight still complete, the rest is dropped.
 * It ends as CANCELED, as COMPLETED if nothing was left to drop, or as FAILED or TIMEOUT if that happened before. Its
 * memory must stay until then. Slices that it shares with a joined request (see tent_submit()) are carried. A request
 * that is final stays as it is, and the call returns 0. Fails with -TENT_INVALID_ARGUMENT if the batch or the task does
 * not exist.
 */
int tent_cancel_task(tent_engine_t engine, tent_batch_id_t batch, size_t task);

/*
 * Writes the state of request `task` of a batch to *status. Does not wait. The call also drives the transfer: a program
 * that polls in a loop gets the lowest latency; without calls a thread of the engine does it. After COMPLETED all bytes
 * are at their destination; a file has them in the kernel's cache, and fsync(2) puts them on the disk. After
 * FAILED, TIMEOUT or CANCELED any part of them may be, and after FAILED a part may still arrive at a target that has
 * stopped answering. After each final state the engine no longer accesses this process's memory for the request. Fails
 * with -TENT_INVALID_ARGUMENT if the batch or the task does not exist.
 */
int tent_task_status(tent_engine_t engine, tent_batch_id_t batch, size_t task, tent_status_t* status);

/*
 * Does the same for all requests of a batch, in the order of `task`. On entry *count is the room in `list`, in
 * elements; on return it is the number of requests submitted to the batch, of which at most the first (room) are
 * written. `list` must not be NULL. On an error *count is unchanged.
 */
int tent_task_status_list(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* list, size_t* count);

/*
 * Does the same for a batch as a whole: PENDING while a request is, then the worst state in the order FAILED, TIMEOUT,
 * CANCELED, COMPLETED. transferred_bytes is the sum. A batch without requests is COMPLETED, and a batch that is not
 * full becomes PENDING again when more is submitted.
 */
int tent_overall_status(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* status);

/* ---- Notifications ---- */

/*
 * Sends a notification to the process of segment `target` and waits for the answer of that process's engine, for up to
 * 3 s. It does not wait until the program receives it. Notifications of one thread to a process keep their order.
 * `name` has up to 255 bytes, `message` up to 4095. Both are UTF-8; bytes that are not arrive as U+FFFD, which has 3
 * bytes, and the limits hold for the text with them, too. Errors: -TENT_INVALID_ARGUMENT (too long, or the segment is a
 * file), -TENT_INVALID_ENTRY (handle not open), -TENT_RPC_SERVICE_ERROR (no answer, after which the notification may
 * still arrive; or 4096 notifications wait there: retry after the peer has received them; or too long with U+FFFD: a
 * retry fails again), -TENT_NEEDS_REFRESH_CACHE (the process was restarted with other devices).
 */
int tent_send_notifs(tent_engine_t engine, tent_segment_id_t target, const char* name, const char* message);

/*
 * Moves all received notifications, from all processes and in the order of arrival, to *info; free them with
 * tent_free_notifs(). If several threads call it, each notification goes to one of them. The old content of *info is
 * not freed. Does not wait: without notifications it returns 0 and num_records is 0. On failure *info is empty, or
 * unchanged if `engine` is NULL; if there was no memory, the notifications are lost. The engine keeps up to 4096 until
 * they are received and refuses more.
 */
int tent_recv_notifs(tent_engine_t engine, tent_notifi_info* info);

/* Frees the records of *info and sets it to zeros, so that a second call does nothing. NULL is allowed. No engine is
   needed. */
void tent_free_notifs(tent_notifi_info* info);

/* ---- Load ---- */

/*
 * Writes the load of each local RDMA device that the engine has opened, sorted by name, also of those without a link.
 * On entry *count is the room in `list`, in elements; on return it is the number of devices, which does not change
 * during the engine's life, and of which at most the first (room) are written. `list` may be NULL if *count is 0. On an
 * error *count is unchanged.
 */
int tent_get_nic_load_stats(tent_engine_t engine, tent_nic_load_stat_t* list, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
