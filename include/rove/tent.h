/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TENT engine for C programs; <rove/tent.hpp> says what the calls mean. Link with librove-tent.
 *
 * Calls return 0, or a code (enum tent_code); then tent_last_error() has the text. Structs must be zero-initialised:
 * fields that are added later mean what they mean when they are 0. Lengths are bytes. Any thread.
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

enum tent_state {
    TENT_STATE_INITIAL = 0,
    TENT_STATE_PENDING = 1,
    TENT_STATE_INVALID = 2,
    TENT_STATE_CANCELED = 3,
    TENT_STATE_COMPLETED = 4,
    TENT_STATE_TIMEOUT = 5,
    TENT_STATE_FAILED = 6
};

enum tent_permission { TENT_LOCAL_READ_WRITE = 0, TENT_GLOBAL_READ_ONLY = 1, TENT_GLOBAL_READ_WRITE = 2 };

typedef void* tent_engine_t;
typedef uint64_t tent_segment_id_t;
typedef uint64_t tent_batch_id_t; /* 0: none */

typedef struct tent_request {
    int opcode; /* enum tent_opcode */
    void* source;
    tent_segment_id_t target_id;
    uint64_t target_offset;
    uint64_t length;
    int priority;       /* 0 high, 1 medium, 2 low */
    int transport_hint; /* 0: the policies decide; 1 rdma, 3 shm, 6 io_uring, 7 tcp */
} tent_request_t;

typedef struct tent_status {
    int state; /* enum tent_state */
    uint64_t transferred_bytes;
} tent_status_t;

typedef struct tent_memory_options {
    char location[64]; /* "cpu:0"; "": not said */
    int permission;    /* enum tent_permission */
} tent_memory_options_t;

typedef struct tent_buffer_info {
    uint64_t base, length;
    char location[64];
} tent_buffer_info_t;

typedef struct tent_segment_info {
    int type; /* 0 memory, 1 file */
    size_t num_buffers;
    tent_buffer_info_t* buffers; /* of tent_free_segment_info() */
} tent_segment_info_t;

typedef struct tent_notification {
    char name[256];
    char message[4096];
} tent_notification_t;

typedef struct tent_nic_load {
    char name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps; /* bytes per second */
} tent_nic_load_t;

/* The text of this thread's last error. */
const char* tent_last_error(void);

/* For engines that this thread creates later: a TOML file, and keys that replace or add to it. */
int tent_load_config_from_file(const char* path);
int tent_set_config(const char* key, const char* value);

/* NULL on failure. */
tent_engine_t tent_create_engine(void);
void tent_destroy_engine(tent_engine_t engine);
int tent_available(tent_engine_t engine); /* 1 or 0 */
int tent_segment_name(tent_engine_t engine, char* buffer, size_t length);
int tent_rpc_server_addr_port(tent_engine_t engine, char* address, size_t length, uint16_t* port);

int tent_open_segment(tent_engine_t engine, tent_segment_id_t* handle, const char* name);
int tent_close_segment(tent_engine_t engine, tent_segment_id_t handle);
int tent_get_segment_info(tent_engine_t engine, tent_segment_id_t handle, tent_segment_info_t* info);
void tent_free_segment_info(tent_segment_info_t* info);
int tent_probe_peer_alive(tent_engine_t engine, tent_segment_id_t handle);

int tent_allocate_memory(tent_engine_t engine, void** address, size_t size, const char* location);
int tent_allocate_memory_ex(tent_engine_t engine, void** address, size_t size, const tent_memory_options_t* options);
int tent_free_memory(tent_engine_t engine, void* address);
int tent_register_memory(tent_engine_t engine, void* address, size_t size);
int tent_register_memory_with_perm(tent_engine_t engine, void* address, size_t size, int permission);
int tent_register_memory_ex(tent_engine_t engine, void* address, size_t size, const tent_memory_options_t* options);
int tent_register_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count);
int tent_unregister_memory(tent_engine_t engine, void* address, size_t size);
int tent_unregister_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count);

tent_batch_id_t tent_allocate_batch(tent_engine_t engine, size_t size);
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
/* All that have come: *list of *count, NULL if none; free it with tent_free_notifs(). */
int tent_recv_notifs(tent_engine_t engine, tent_notification_t** list, size_t* count);
void tent_free_notifs(tent_notification_t* list);

/* In: room for *count; out: the number of devices. */
int tent_get_nic_load_stats(tent_engine_t engine, tent_nic_load_t* list, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
