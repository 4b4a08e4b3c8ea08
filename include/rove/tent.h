/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TENT engine for C programs, under the names of Mooncake's C API; <rove/tent.hpp> says what the calls mean. Link
 * with librove-tent (pkg-config rove-tent).
 *
 * Calls return 0, or the negative of a code (enum tent_code); then tent_last_error() has the text. An argument that is
 * NULL where something is needed is -TENT_INVALID_ARGUMENT. No C++ exception leaves a call. Structs must be
 * zero-initialised: fields that are added later mean what they mean when they are 0. Lengths are bytes. Any thread.
 */
#ifndef ROVE_TENT_H
#define ROVE_TENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tent_code {
    TENT_OK = 0,
    TENT_INVALID_ARGUMENT = 1,
    TENT_TOO_MANY_REQUESTS = 2,
    TENT_ADDRESS_NOT_REGISTERED = 3,
    TENT_DEVICE_NOT_FOUND = 4,
    TENT_INVALID_ENTRY = 5,
    TENT_INVALID_METADATA_TYPE = 6,
    TENT_NEEDS_REFRESH_CACHE = 7,
    TENT_RDMA_ERROR = 100,
    TENT_CUDA_ERROR = 101,
    TENT_METADATA_ERROR = 131,
    TENT_RPC_SERVICE_ERROR = 132,
    TENT_MALFORMED_JSON = 133,
    TENT_INTERNAL_ERROR = 199,
    TENT_NOT_IMPLEMENTED = 200
};

enum tent_opcode { OPCODE_READ = 0, OPCODE_WRITE = 1 };

enum tent_transfer_status {
    STATUS_WAITING = 0, /* nothing was submitted */
    STATUS_PENDING = 1,
    STATUS_INVALID = 2,
    STATUS_CANCELED = 3,
    STATUS_COMPLETED = 4,
    STATUS_TIMEOUT = 5,
    STATUS_FAILED = 6
};

enum tent_permission { PERM_LOCAL_READ_WRITE = 0, PERM_GLOBAL_READ_ONLY = 1, PERM_GLOBAL_READ_WRITE = 2 };

/* rove carries data by RDMA, SHM, IOURING and TCP; the others are never available. */
enum tent_transport {
    TRANSPORT_UNSPEC = 0, /* the policies decide */
    TRANSPORT_RDMA = 1,
    TRANSPORT_MNNVL = 2,
    TRANSPORT_SHM = 3,
    TRANSPORT_NVLINK = 4,
    TRANSPORT_GDS = 5,
    TRANSPORT_IOURING = 6,
    TRANSPORT_TCP = 7,
    TRANSPORT_ASCEND_DIRECT = 8,
    TRANSPORT_SUNRISE_LINK = 9,
    TRANSPORT_TPU = 10,
    TRANSPORT_UB = 11,
    TRANSPORT_MPCOMM = 12
};

enum tent_segment_type { TYPE_MEMORY = 0, TYPE_FILE = 1 };

typedef void* tent_engine_t;
typedef uint64_t tent_segment_id_t;
typedef uint64_t tent_batch_id_t; /* 0: none */

#ifndef LOCAL_SEGMENT_ID
#define LOCAL_SEGMENT_ID (0ull)
#endif

typedef struct tent_request {
    int opcode; /* enum tent_opcode */
    void* source;
    tent_segment_id_t target_id;
    uint64_t target_offset;
    uint64_t length;
    int priority;       /* 0 high, 1 medium, 2 low */
    int transport_hint; /* enum tent_transport */
} tent_request_t;

typedef struct tent_status {
    int status; /* enum tent_transfer_status */
    uint64_t transferred_bytes;
} tent_status_t;

typedef struct tent_memory_options {
    char location[64]; /* "cpu:0"; "": not said */
    int permission;    /* enum tent_permission */
    /* Mooncake's, without effect here: memory is registered for all transports, and shared memory is named by rove. */
    int transport_type;
    char shm_path[256];
    size_t shm_offset;
    int internal;
} tent_memory_options_t;

struct tent_buffer_info {
    uint64_t base, length;
    char location[64];
};
typedef struct tent_buffer_info tent_buffer_info_t;

typedef struct tent_segment_info {
    int type; /* enum tent_segment_type */
    int num_buffers;
    struct tent_buffer_info* buffers; /* of tent_free_segment_info() */
} tent_segment_info_t;

struct tent_notifi_record {
    tent_segment_id_t handle; /* 0: who sent it is not known */
    char name[256];
    char msg[4096];
};
typedef struct tent_notifi_record tent_notifi_record_t;

typedef struct tent_notifi_info {
    int num_records;
    struct tent_notifi_record* records; /* of tent_free_notifs(); NULL if there are none */
} tent_notifi_info;

typedef struct tent_nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps; /* bytes per second */
} tent_nic_load_stat_t;

/* The text of this thread's last error; it is the same until the thread's next error. */
const char* tent_last_error(void);

/* For engines that this thread creates later: a file (TOML or JSON), and keys that replace or add to it. */
int tent_load_config_from_file(const char* path);
int tent_set_config(const char* key, const char* value);

/* NULL on failure. */
tent_engine_t tent_create_engine(void);
void tent_destroy_engine(tent_engine_t engine); /* NULL is fine */
int tent_available(tent_engine_t engine);       /* 1 or 0 */
int tent_segment_name(tent_engine_t engine, char* buffer, size_t length);
int tent_rpc_server_addr_port(tent_engine_t engine, char* address, size_t length, uint16_t* port);

int tent_open_segment(tent_engine_t engine, tent_segment_id_t* handle, const char* name);
int tent_close_segment(tent_engine_t engine, tent_segment_id_t handle);
int tent_get_segment_info(tent_engine_t engine, tent_segment_id_t handle, tent_segment_info_t* info);
void tent_free_segment_info(tent_segment_info_t* info);
int tent_probe_peer_alive(tent_engine_t engine, tent_segment_id_t handle);

int tent_allocate_memory(tent_engine_t engine, void** address, size_t size, const char* location); /* NULL: anywhere */
int tent_allocate_memory_ex(tent_engine_t engine, void** address, size_t size, const tent_memory_options_t* options);
int tent_free_memory(tent_engine_t engine, void* address);
int tent_register_memory(tent_engine_t engine, void* address, size_t size);
int tent_register_memory_with_perm(tent_engine_t engine, void* address, size_t size, int permission);
int tent_register_memory_ex(tent_engine_t engine, void* address, size_t size, const tent_memory_options_t* options);
int tent_register_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count,
                               int permission);
int tent_register_memory_batch_ex(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count,
                                  const tent_memory_options_t* options);
/* Size 0, or sizes NULL: what was registered there last. */
int tent_unregister_memory(tent_engine_t engine, void* address, size_t size);
int tent_unregister_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count);

tent_batch_id_t tent_allocate_batch(tent_engine_t engine, size_t size); /* 0 on failure */
int tent_free_batch(tent_engine_t engine, tent_batch_id_t batch);
int tent_submit(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count);
int tent_submit_notif(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count,
                      const char* name, const char* message);
int tent_cancel_task(tent_engine_t engine, tent_batch_id_t batch, size_t task);
int tent_task_status(tent_engine_t engine, tent_batch_id_t batch, size_t task, tent_status_t* status);
/* In: room for *count; out: the tasks of the batch, of which as many as there is room for are written. */
int tent_task_status_list(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* list, size_t* count);
int tent_overall_status(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* status);

int tent_send_notifs(tent_engine_t engine, tent_segment_id_t target, const char* name, const char* message);
/* All that have come; free them with tent_free_notifs(). */
int tent_recv_notifs(tent_engine_t engine, tent_notifi_info* info);
void tent_free_notifs(tent_notifi_info* info);

/* In: room for *count; out: the number of devices. `list` may be NULL where *count is 0. */
int tent_get_nic_load_stats(tent_engine_t engine, tent_nic_load_stat_t* list, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
