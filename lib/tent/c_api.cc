// SPDX-License-Identifier: Apache-2.0
// The C functions: each calls the C++ class, keeps the text of what went wrong, returns the code.
#include "rove/tent.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "rove/tent.hpp"

using namespace rove::tent;

namespace {

thread_local std::string last_error;
thread_local Settings settings;  // of the next engine

int finish(const Status& status) {
    if (!status.ok()) last_error = status.to_string();
    return static_cast<int>(status.code());
}

int invalid(const char* what) {
    return finish({Code::kInvalidArgument, what});
}

TransferEngine* of(tent_engine_t engine) {
    return static_cast<TransferEngine*>(engine);
}

template <size_t N>
void copy(char (&to)[N], const std::string& from) {
    std::snprintf(to, N, "%s", from.c_str());
}

int copy(char* to, size_t length, const std::string& from) {
    if (to == nullptr || length <= from.size()) return invalid("buffer: no room for the text and its end");
    std::memcpy(to, from.c_str(), from.size() + 1);
    return TENT_OK;
}

MemoryOptions translate(const tent_memory_options_t& options) {
    MemoryOptions translated{.perm = static_cast<Permission>(options.permission)};
    const std::string location(options.location, strnlen(options.location, sizeof(options.location)));
    if (!location.empty()) translated.location = location;
    return translated;
}

bool is_permission(int permission) {
    return permission >= TENT_LOCAL_READ_WRITE && permission <= TENT_GLOBAL_READ_WRITE;
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

}  // namespace

const char* tent_last_error(void) {
    return last_error.c_str();
}

int tent_load_config_from_file(const char* path) {
    if (path == nullptr) return invalid("path: a file is needed");
    settings.file = path;
    return TENT_OK;
}

int tent_set_config(const char* key, const char* value) {
    if (key == nullptr || value == nullptr) return invalid("key and value: text is needed");
    settings.set(key, value);
    return TENT_OK;
}

tent_engine_t tent_create_engine(void) {
    auto* engine = new (std::nothrow) TransferEngine(settings);
    if (engine == nullptr || engine->available()) return engine;
    finish(engine->startStatus());
    delete engine;
    return nullptr;
}

void tent_destroy_engine(tent_engine_t engine) {
    delete of(engine);
}

int tent_available(tent_engine_t engine) {
    return engine != nullptr && of(engine)->available() ? 1 : 0;
}

int tent_segment_name(tent_engine_t engine, char* buffer, size_t length) {
    return copy(buffer, length, of(engine)->getSegmentName());
}

int tent_rpc_server_addr_port(tent_engine_t engine, char* address, size_t length, uint16_t* port) {
    *port = of(engine)->getRpcServerPort();
    return copy(address, length, of(engine)->getRpcServerAddress());
}

int tent_open_segment(tent_engine_t engine, tent_segment_id_t* handle, const char* name) {
    return finish(of(engine)->openSegment(*handle, name));
}

int tent_close_segment(tent_engine_t engine, tent_segment_id_t handle) {
    return finish(of(engine)->closeSegment(handle));
}

int tent_get_segment_info(tent_engine_t engine, tent_segment_id_t handle, tent_segment_info_t* info) {
    SegmentInfo found;
    const int code = finish(of(engine)->getSegmentInfo(handle, found));
    *info = {};
    if (code != TENT_OK) return code;
    info->type = found.type == SegmentInfo::Type::File;
    info->num_buffers = found.buffers.size();
    info->buffers = new tent_buffer_info_t[found.buffers.size()]{};
    for (size_t i = 0; i < found.buffers.size(); ++i) {
        info->buffers[i].base = found.buffers[i].base;
        info->buffers[i].length = found.buffers[i].length;
        copy(info->buffers[i].location, found.buffers[i].location);
    }
    return TENT_OK;
}

void tent_free_segment_info(tent_segment_info_t* info) {
    delete[] info->buffers;
    *info = {};
}

int tent_probe_peer_alive(tent_engine_t engine, tent_segment_id_t handle) {
    return finish(of(engine)->probePeerAliveByID(handle));
}

int tent_allocate_memory(tent_engine_t engine, void** address, size_t size, const char* location) {
    return finish(
        of(engine)->allocateLocalMemory(address, size, Location(location != nullptr ? location : kWildcardLocation)));
}

int tent_allocate_memory_ex(tent_engine_t engine, void** address, size_t size, const tent_memory_options_t* options) {
    if (!is_permission(options->permission)) return invalid("permission: 0, 1 and 2 are allowed");
    return finish(of(engine)->allocateLocalMemory(address, size, translate(*options)));
}

int tent_free_memory(tent_engine_t engine, void* address) {
    return finish(of(engine)->freeLocalMemory(address));
}

int tent_register_memory(tent_engine_t engine, void* address, size_t size) {
    return finish(of(engine)->registerLocalMemory(address, size));
}

int tent_register_memory_with_perm(tent_engine_t engine, void* address, size_t size, int permission) {
    if (!is_permission(permission)) return invalid("permission: 0, 1 and 2 are allowed");
    return finish(of(engine)->registerLocalMemory(address, size, static_cast<Permission>(permission)));
}

int tent_register_memory_ex(tent_engine_t engine, void* address, size_t size, const tent_memory_options_t* options) {
    if (!is_permission(options->permission)) return invalid("permission: 0, 1 and 2 are allowed");
    return finish(of(engine)->registerLocalMemory(address, size, translate(*options)));
}

int tent_register_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count) {
    return finish(of(engine)->registerLocalMemory(std::vector<void*>(addresses, addresses + count),
                                                  std::vector<size_t>(sizes, sizes + count)));
}

int tent_unregister_memory(tent_engine_t engine, void* address, size_t size) {
    return finish(of(engine)->unregisterLocalMemory(address, size));
}

int tent_unregister_memory_batch(tent_engine_t engine, void** addresses, const size_t* sizes, size_t count) {
    return finish(of(engine)->unregisterLocalMemory(std::vector<void*>(addresses, addresses + count),
                                                    std::vector<size_t>(sizes, sizes + count)));
}

tent_batch_id_t tent_allocate_batch(tent_engine_t engine, size_t size) {
    return of(engine)->allocateBatch(size);
}

int tent_free_batch(tent_engine_t engine, tent_batch_id_t batch) {
    return finish(of(engine)->freeBatch(batch));
}

int tent_submit(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count) {
    return finish(of(engine)->submitTransfer(batch, translate(requests, count)));
}

int tent_submit_notif(tent_engine_t engine, tent_batch_id_t batch, const tent_request_t* requests, size_t count,
                      const char* name, const char* message) {
    return finish(of(engine)->submitTransfer(batch, translate(requests, count), Notification{name, message}));
}

int tent_cancel_task(tent_engine_t engine, tent_batch_id_t batch, size_t task) {
    return finish(of(engine)->cancelTransfer(batch, task));
}

int tent_task_status(tent_engine_t engine, tent_batch_id_t batch, size_t task, tent_status_t* status) {
    TransferStatus found;
    const int code = finish(of(engine)->getTransferStatus(batch, task, found));
    if (code == TENT_OK) *status = translate(found);
    return code;
}

int tent_task_status_list(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* list, size_t* count) {
    std::vector<TransferStatus> found;
    const int code = finish(of(engine)->getTransferStatus(batch, found));
    if (code != TENT_OK) return code;
    for (size_t i = 0; i < std::min(*count, found.size()); ++i) list[i] = translate(found[i]);
    *count = found.size();
    return TENT_OK;
}

int tent_overall_status(tent_engine_t engine, tent_batch_id_t batch, tent_status_t* status) {
    TransferStatus found;
    const int code = finish(of(engine)->getTransferStatus(batch, found));
    if (code == TENT_OK) *status = translate(found);
    return code;
}

int tent_send_notifs(tent_engine_t engine, tent_segment_id_t target, const char* name, const char* message) {
    return finish(of(engine)->sendNotification(target, {name, message}));
}

int tent_recv_notifs(tent_engine_t engine, tent_notification_t** list, size_t* count) {
    std::vector<Notification> received;
    const int code = finish(of(engine)->receiveNotification(received));
    *count = received.size();
    *list = received.empty() ? nullptr : new tent_notification_t[received.size()]{};
    for (size_t i = 0; i < received.size(); ++i) {
        copy((*list)[i].name, received[i].name);
        copy((*list)[i].message, received[i].msg);
    }
    return code;
}

void tent_free_notifs(tent_notification_t* list) {
    delete[] list;
}

int tent_get_nic_load_stats(tent_engine_t engine, tent_nic_load_t* list, size_t* count) {
    std::vector<NicLoadStats> found;
    const int code = finish(of(engine)->getNicLoadStats(found));
    if (code != TENT_OK) return code;
    for (size_t i = 0; i < std::min(*count, found.size()); ++i) {
        list[i] = {};
        copy(list[i].name, found[i].name);
        list[i].inflight_bytes = found[i].inflight_bytes;
        list[i].ewma_bandwidth_bps = found[i].ewma_bandwidth_bps;
    }
    *count = found.size();
    return TENT_OK;
}
