// SPDX-License-Identifier: Apache-2.0
// The C functions (T-23). Each one checks its pointers, calls the C++ class, keeps the text of the error, and returns
// the code. Exceptions from below (no memory, no thread) are caught here.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "rove/tent.h"
#include "rove/tent.hpp"

using namespace rove::tent;

// C has its own enumerations with the same numbers.
static_assert(TENT_OK == static_cast<int>(Code::kOk) &&
              TENT_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument) &&
              TENT_TOO_MANY_REQUESTS == static_cast<int>(Code::kTooManyRequests) &&
              TENT_ADDRESS_NOT_REGISTERED == static_cast<int>(Code::kAddressNotRegistered) &&
              TENT_DEVICE_NOT_FOUND == static_cast<int>(Code::kDeviceNotFound) &&
              TENT_INVALID_ENTRY == static_cast<int>(Code::kInvalidEntry) &&
              TENT_INVALID_METADATA_TYPE == static_cast<int>(Code::kInvalidMetadataType) &&
              TENT_NEEDS_REFRESH_CACHE == static_cast<int>(Code::kNeedsRefreshCache) &&
              TENT_RDMA_ERROR == static_cast<int>(Code::kRdmaError) &&
              TENT_CUDA_ERROR == static_cast<int>(Code::kCudaError) &&
              TENT_METADATA_ERROR == static_cast<int>(Code::kMetadataError) &&
              TENT_RPC_SERVICE_ERROR == static_cast<int>(Code::kRpcServiceError) &&
              TENT_MALFORMED_JSON == static_cast<int>(Code::kMalformedJson) &&
              TENT_INTERNAL_ERROR == static_cast<int>(Code::kInternalError) &&
              TENT_NOT_IMPLEMENTED == static_cast<int>(Code::kNotImplemented));
static_assert(OPCODE_READ == int{Request::READ} && OPCODE_WRITE == int{Request::WRITE});
static_assert(STATUS_WAITING == int{INITIAL} && STATUS_PENDING == int{PENDING} && STATUS_INVALID == int{INVALID} &&
              STATUS_CANCELED == int{CANCELED} && STATUS_COMPLETED == int{COMPLETED} &&
              STATUS_TIMEOUT == int{TIMEOUT} && STATUS_FAILED == int{FAILED});
static_assert(PERM_LOCAL_READ_WRITE == int{kLocalReadWrite} && PERM_GLOBAL_READ_ONLY == int{kGlobalReadOnly} &&
              PERM_GLOBAL_READ_WRITE == int{kGlobalReadWrite});
static_assert(TRANSPORT_UNSPEC == int{UNSPEC} && TRANSPORT_RDMA == int{RDMA} && TRANSPORT_MNNVL == int{MNNVL} &&
              TRANSPORT_SHM == int{SHM} && TRANSPORT_NVLINK == int{NVLINK} && TRANSPORT_GDS == int{GDS} &&
              TRANSPORT_IOURING == int{IOURING} && TRANSPORT_TCP == int{TCP} &&
              TRANSPORT_ASCEND_DIRECT == int{AscendDirect} && TRANSPORT_SUNRISE_LINK == int{SUNRISE_LINK} &&
              TRANSPORT_TPU == int{TPU} && TRANSPORT_UB == int{UB} && TRANSPORT_MPCOMM == int{MPCOMM});
static_assert(TYPE_MEMORY == int{SegmentInfo::Memory} && TYPE_FILE == int{SegmentInfo::File});

namespace {

thread_local std::string last_error;
thread_local Settings settings;  // settings for the next engine

// An argument that must not be null.
struct Needed {
    const void* pointer;
    const char* name;
};

Status invalid(const char* what) {
    return {Code::kInvalidArgument, what};
}

int finish(const Status& status) {
    if (!status.ok()) last_error = status.ToString();
    return -static_cast<int>(status.code());
}

// Returns the negative code of the Status that `call()` returns, or an error if a needed argument is null.
int answer(std::initializer_list<Needed> needs, auto&& call) {
    try {
        for (const Needed& need : needs)
            if (need.pointer == nullptr) return finish({Code::kInvalidArgument, std::string(need.name) + " is NULL"});
        return finish(call());
    } catch (const std::exception& error) {
        try {
            last_error = error.what();
        } catch (const std::exception&) {
            last_error.clear();
        }
        return -TENT_INTERNAL_ERROR;
    }
}

TransferEngine* of(tent_engine_t engine) {
    return static_cast<TransferEngine*>(engine);
}

template <size_t N>
void copy(char (&to)[N], const std::string& from) {
    std::snprintf(to, N, "%s", from.c_str());
}

Status copy(char* to, size_t length, const std::string& from) {
    if (length <= from.size()) return invalid("buffer: too small for the text and its terminating NUL");
    std::memcpy(to, from.c_str(), from.size() + 1);
    return {};
}

Status check_permission(int permission) {
    if (permission >= PERM_LOCAL_READ_WRITE && permission <= PERM_GLOBAL_READ_WRITE) return {};
    return invalid("permission: 0, 1 and 2 are allowed");
}

MemoryOptions translate(const tent_memory_options_t& options) {
    MemoryOptions translated{.perm = static_cast<Permission>(options.permission)};
    const std::string location(options.location, strnlen(options.location, sizeof(options.location)));
    if (!location.empty()) translated.location = location;
    return translated;
}

std::vector<Request> translate(const tent_request_t* requests, size_t count) {
    std::vector<Request> translated(count);
    for (size_t i = 0; i < count; ++i) {
        translated[i].opcode = static_cast<Request::OpCode>(requests[i].opcode);
        translated[i].source = requests[i].source;
        translated[i].target_id = requests[i].target_id;
        translated[i].target_offset = requests[i].target_offset;
        translated[i].length = requests[i].length;
        translated[i].priority = requests[i].priority;
        translated[i].transport_hint = static_cast<TransportType>(requests[i].transport_hint);
    }
    return translated;
}

tent_status_t translate(const TransferStatus& status) {
    return {status.s, status.transferred_bytes};
}

// Returns as many sizes as addresses. They are all 0 if `sizes` is null.
std::vector<size_t> sizes_of(const size_t* sizes, size_t count) {
    return sizes == nullptr ? std::vector<size_t>(count) : std::vector<size_t>(sizes, sizes + count);
}

}  // namespace

const char* tent_last_error(void) {
    return last_error.c_str();
}

int tent_load_config_from_file(const char* path) {
    return answer({{path, "path"}}, [&] {
        settings.file = path;
        return Status();
    });
}

int tent_set_config(const char* key, const char* value) {
    return answer({{key, "key"}, {value, "value"}}, [&] {
        settings.set(key, value);
        return Status();
    });
}

tent_engine_t tent_create_engine(void) {
    std::unique_ptr<TransferEngine> engine;
    const int code = answer({}, [&] {
        engine = std::make_unique<TransferEngine>(settings);
        return engine->startStatus();
    });
    return code == TENT_OK ? engine.release() : nullptr;
}

void tent_destroy_engine(tent_engine_t engine) {
    delete of(engine);
}

int tent_available(tent_engine_t engine) {
    return engine != nullptr && of(engine)->available() ? 1 : 0;
}

int tent_segment_name(tent_engine_t engine, char* buffer, size_t length) {
    return answer({{engine, "engine"}, {buffer, "buffer"}},
                  [&] { return copy(buffer, length, of(engine)->getSegmentName()); });
}

int tent_rpc_server_addr_port(tent_engine_t engine, char* address, size_t length, uint16_t* port) {
    return answer({{engine, "engine"}, {address, "address"}, {port, "port"}}, [&] {
        *port = of(engine)->getRpcServerPort();
        return copy(address, length, of(engine)->getRpcServerAddress());
    });
}

int tent_open_segment(tent_engine_t engine, tent_segment_id_t* handle, const char* name) {
    return answer({{engine, "engine"}, {handle, "handle"}, {name, "name"}},
                  [&] { return of(engine)->openSegment(*handle, name); });
}

int tent_close_segment(tent_engine_t engine, tent_segment_id_t handle) {
    return answer({{engine, "engine"}}, [&] { return of(engine)->closeSegment(handle); });
}

int tent_get_segment_info(tent_engine_t engine, tent_segment_id_t handle, tent_segment_info_t* info) {
    return answer({{engine, "engine"}, {info, "info"}}, [&] {
        *info = {};
        SegmentInfo found;
        Status status = of(engine)->getSegmentInfo(handle, found);
        if (!status.ok()) return status;
        info->type = found.type == SegmentInfo::File ? TYPE_FILE : TYPE_MEMORY;
        info->buffers = new tent_buffer_info_t[found.buffers.size()]{};
        info->num_buffers = static_cast<int>(found.buffers.size());
        for (size_t i = 0; i < found.buffers.size(); ++i) {
            info->buffers[i].base = found.buffers[i].base;
            info->buffers[i].length = found.buffers[i].length;
            copy(info->buffers[i].location, found.buffers[i].location);
        }
        return status;
    });
}

void tent_free_segment_info(tent_segment_info_t* info) {
    if (info == nullptr) return;
    delete[] info->buffers;
    *info = {};
}

int tent_probe_peer_alive(tent_engine_t engine, tent_segment_id_t handle) {
    return answer({{engine, "engine"}}, [&] { return of(engine)->probePeerAliveByID(handle); });
}

int tent_allocate_memory(tent_engine_t engine, void** address, size_t size, const char* location) {
    return answer({{engine, "engine"}, {address, "address"}}, [&] {
        const bool is_any = location == nullptr || *location == 0;
        return of(engine)->allocateLocalMemory(address, size, is_any ? kWildcardLocation : location);
    });
}

int tent_allocate_memory_ex(tent_engine_t engine, void** address, size_t size, const tent_memory_options_t* options) {
    return answer({{engine, "engine"}, {address, "address"}, {options, "options"}}, [&] {
        Status status = check_permission(options->permission);
        return status.ok() ? of(engine)->allocateLocalMemory(address, size, translate(*options)) : status;
    });
}

int tent_free_memory(tent_engine_t engine, void* address) {
    return answer({{engine, "engine"}, {address, "address"}}, [&] { return of(engine)->freeLocalMemory(address); });
}

int tent_register_memory(tent_engine_t engine, void* address, size_t size) {
    return tent_register_memory_with_perm(engine, address, size, PERM_GLOBAL_READ_WRITE);
}

int tent_register_memory_with_perm(tent_engine_t engine, void* address, size_t size, int permission) {
    tent_memory_options_t options{};
    options.permission = permission;
    return tent_register_memory_ex(engine, address, size, &options);
}

int tent_register_memory_ex(tent_engine_t engine, void* address, size_t size, const tent_memory_options_t* options) {
    return tent_register_memory_batch_ex(engine, &address, &size, 1, options);
}

int tent_register_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count,
                               int permission) {
    tent_memory_options_t options{};
    options.permission = permission;
    return tent_register_memory_batch_ex(engine, addresses, sizes, count, &options);
}

int tent_register_memory_batch_ex(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count,
                                  const tent_memory_options_t* options) {
    return answer({{engine, "engine"}, {addresses, "addresses"}, {sizes, "sizes"}, {options, "options"}}, [&] {
        Status status = check_permission(options->permission);
        if (!status.ok()) return status;
        return of(engine)->registerLocalMemory(std::vector<void*>(addresses, addresses + count), sizes_of(sizes, count),
                                               translate(*options));
    });
}

int tent_unregister_memory(tent_engine_t engine, void* address, size_t size) {
    return tent_unregister_memory_batch(engine, &address, &size, 1);
}

int tent_unregister_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count) {
    return answer({{engine, "engine"}, {addresses, "addresses"}}, [&] {
        return of(engine)->unregisterLocalMemory(std::vector<void*>(addresses, addresses + count),
                                                 sizes_of(sizes, count));
    });
}

tent_batch_id_t tent_allocate_batch(tent_engine_t engine, size_t size) {
    tent_batch_id_t batch = 0;
    answer({{engine, "engine"}}, [&] {
        batch = of(engine)->allocateBatch(size);
        return batch != 0 ? Status() : Status(Code::kTooManyRequests, "no room for a batch of this size");
    });
    return batch;
}

int tent_free_batch(tent_engine_t engine, tent_batch_id_t batch) {
    return answer({{engine, "engine"}}, [&] { return of(engine)->freeBatch(batch); });
}

int tent_submit(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count) {
    return answer({{engine, "engine"}, {requests, "requests"}},
                  [&] { return of(engine)->submitTransfer(batch, translate(requests, count)); });
}

int tent_submit_notif(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count,
                      const char* name, const char* message) {
    return answer({{engine, "engine"}, {requests, "requests"}, {name, "name"}, {message, "message"}}, [&] {
        return of(engine)->submitTransfer(batch, translate(requests, count), Notification{name, message});
    });
}

int tent_cancel_task(tent_engine_t engine, tent_batch_id_t batch, size_t task) {
    return answer({{engine, "engine"}}, [&] { return of(engine)->cancelTransfer(batch, task); });
}

int tent_task_status(tent_engine_t engine, tent_batch_id_t batch, size_t task, tent_status_t* status) {
    return answer({{engine, "engine"}, {status, "status"}}, [&] {
        TransferStatus found;
        Status result = of(engine)->getTransferStatus(batch, task, found);
        if (result.ok()) *status = translate(found);
        return result;
    });
}

int tent_task_status_list(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* list, size_t* count) {
    return answer({{engine, "engine"}, {list, "list"}, {count, "count"}}, [&] {
        std::vector<TransferStatus> found;
        Status result = of(engine)->getTransferStatus(batch, found);
        if (!result.ok()) return result;
        for (size_t i = 0; i < std::min(*count, found.size()); ++i) list[i] = translate(found[i]);
        *count = found.size();
        return result;
    });
}

int tent_overall_status(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* status) {
    return answer({{engine, "engine"}, {status, "status"}}, [&] {
        TransferStatus found;
        Status result = of(engine)->getTransferStatus(batch, found);
        if (result.ok()) *status = translate(found);
        return result;
    });
}

int tent_send_notifs(tent_engine_t engine, tent_segment_id_t target, const char* name, const char* message) {
    return answer({{engine, "engine"}, {name, "name"}, {message, "message"}}, [&] {
        return of(engine)->sendNotification(target, {name, message});
    });
}

int tent_recv_notifs(tent_engine_t engine, tent_notifi_info* info) {
    return answer({{engine, "engine"}, {info, "info"}}, [&] {
        *info = {};
        std::vector<Notification> received;
        Status status = of(engine)->receiveNotification(received);
        if (received.empty()) return status;
        info->records = new tent_notifi_record_t[received.size()]{};
        info->num_records = static_cast<int>(received.size());
        for (size_t i = 0; i < received.size(); ++i) {
            copy(info->records[i].name, received[i].name);
            copy(info->records[i].msg, received[i].msg);
        }
        return status;
    });
}

void tent_free_notifs(tent_notifi_info* info) {
    if (info == nullptr) return;
    delete[] info->records;
    *info = {};
}

int tent_get_nic_load_stats(tent_engine_t engine, tent_nic_load_stat_t* list, size_t* count) {
    return answer({{engine, "engine"}, {count, "count"}}, [&] {
        if (list == nullptr && *count != 0) return invalid("list is NULL");
        std::vector<NicLoadStats> found;
        Status status = of(engine)->getNicLoadStats(found);
        if (!status.ok()) return status;
        for (size_t i = 0; i < std::min(*count, found.size()); ++i) {
            list[i] = {};
            copy(list[i].device_name, found[i].device_name);
            list[i].inflight_bytes = found[i].inflight_bytes;
            list[i].ewma_bandwidth_bps = found[i].ewma_bandwidth_bps;
        }
        *count = found.size();
        return status;
    });
}
