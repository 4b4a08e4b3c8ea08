// SPDX-License-Identifier: Apache-2.0
// The Python module `tent`, with Mooncake's names. Addresses are integers, and an error in a Status is raised as an
// exception. Calls that may wait let other Python threads run.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>

#include "rove/tent.hpp"

namespace py = pybind11;
using namespace rove::tent;

namespace {

std::map<Code, PyObject*> exceptions;
PyObject* base_exception = nullptr;

void check(const Status& status) {
    if (status.ok()) return;
    const auto at = exceptions.find(status.code());
    PyErr_SetString(at == exceptions.end() ? base_exception : at->second, status.message().c_str());
    throw py::error_already_set();
}

// Runs `call()` without the interpreter's lock, and raises its Status.
void run(auto&& call) {
    Status status;
    {
        const py::gil_scoped_release release;
        status = call();
    }
    check(status);
}

void* pointer(uintptr_t address) {
    return reinterpret_cast<void*>(address);
}

std::vector<void*> pointers(const std::vector<uintptr_t>& addresses) {
    std::vector<void*> list;
    for (const uintptr_t address : addresses) list.push_back(pointer(address));
    return list;
}

// Deletes an engine without the interpreter's lock, since that waits for the engine's threads and its peers.
struct WithoutTheLock {
    void operator()(TransferEngine* engine) const {
        const py::gil_scoped_release release;
        delete engine;
    }
};
using Held = std::unique_ptr<TransferEngine, WithoutTheLock>;

Held make_engine(const Settings& settings) {
    Held engine;
    run([&] {
        engine.reset(new TransferEngine(settings));
        return engine->startStatus();
    });
    return engine;
}

uintptr_t allocate(TransferEngine& engine, size_t size, const MemoryOptions& options) {
    void* address = nullptr;
    run([&] { return engine.allocateLocalMemory(&address, size, options); });
    return reinterpret_cast<uintptr_t>(address);
}

BatchID allocate_batch(TransferEngine& engine, size_t size) {
    const BatchID batch = engine.allocateBatch(size);
    if (batch == 0) check({Code::kTooManyRequests, "no room for a batch of " + std::to_string(size) + " requests"});
    return batch;
}

// Usage: with engine.allocate_memory_guard(size) as address: ... The memory exists from this call until the block or
// the guard ends.
class MemoryGuard {
  public:
    MemoryGuard(TransferEngine& engine, size_t size, const MemoryOptions& options)
        : engine_(engine), size_(size), address_(allocate(engine, size, options)) {}
    MemoryGuard(const MemoryGuard&) = delete;
    ~MemoryGuard() {
        const py::gil_scoped_release release;
        if (address_ != 0) (void)engine_.freeLocalMemory(pointer(address_));
    }

    uintptr_t address() const { return address_; }
    size_t size() const { return size_; }
    void release() {
        if (address_ == 0) return;
        run([&] { return engine_.freeLocalMemory(pointer(address_)); });
        address_ = 0;
    }

  private:
    TransferEngine& engine_;
    size_t size_;
    uintptr_t address_;
};

class BatchGuard {
  public:
    BatchGuard(TransferEngine& engine, size_t size) : engine_(engine), id_(allocate_batch(engine, size)) {}
    BatchGuard(const BatchGuard&) = delete;
    ~BatchGuard() {
        if (id_ != 0) (void)engine_.freeBatch(id_);
    }

    BatchID id() const { return id_; }
    void release() {
        if (id_ == 0) return;
        run([&] { return engine_.freeBatch(id_); });
        id_ = 0;
    }

  private:
    TransferEngine& engine_;
    BatchID id_;
};

void add_exceptions(py::module_& m) {
    const auto add = [&](const char* name, PyObject* base) {
        PyObject* made = PyErr_NewException((std::string("tent.") + name).c_str(), base, nullptr);
        m.add_object(name, py::reinterpret_steal<py::object>(made).inc_ref());
        return made;
    };
    base_exception = add("TentException", PyExc_Exception);
    const std::pair<Code, const char*> kNames[] = {
        {Code::kInvalidArgument, "InvalidArgumentError"},
        {Code::kTooManyRequests, "TooManyRequestsError"},
        {Code::kAddressNotRegistered, "AddressNotRegisteredError"},
        {Code::kDeviceNotFound, "DeviceNotFoundError"},
        {Code::kInvalidEntry, "InvalidEntryError"},
        {Code::kNeedsRefreshCache, "NeedsRefreshCacheError"},
        {Code::kRdmaError, "RdmaError"},
        {Code::kCudaError, "CudaError"},
        {Code::kMetadataError, "MetadataError"},
        {Code::kRpcServiceError, "RpcServiceError"},
        {Code::kInternalError, "InternalError"},
        {Code::kNotImplemented, "NotImplementedError"},
    };
    for (const auto& [code, name] : kNames) exceptions[code] = add(name, base_exception);
}

void add_enumerations(py::module_& m) {
    py::enum_<Request::OpCode>(m, "OpCode").value("READ", Request::READ).value("WRITE", Request::WRITE).export_values();
    py::enum_<TransferStatusEnum>(m, "TransferStatusEnum")
        .value("INITIAL", INITIAL)
        .value("PENDING", PENDING)
        .value("INVALID", INVALID)
        .value("CANCELED", CANCELED)
        .value("COMPLETED", COMPLETED)
        .value("TIMEOUT", TIMEOUT)
        .value("FAILED", FAILED)
        .export_values();
    py::enum_<Permission>(m, "Permission")
        .value("LocalReadWrite", kLocalReadWrite)
        .value("GlobalReadOnly", kGlobalReadOnly)
        .value("GlobalReadWrite", kGlobalReadWrite)
        .export_values();
    py::enum_<TransportType>(m, "TransportType")
        .value("UNSPEC", UNSPEC)
        .value("RDMA", RDMA)
        .value("MNNVL", MNNVL)
        .value("SHM", SHM)
        .value("NVLINK", NVLINK)
        .value("GDS", GDS)
        .value("IOURING", IOURING)
        .value("TCP", TCP)
        .value("AscendDirect", AscendDirect)
        .value("SUNRISE_LINK", SUNRISE_LINK)
        .value("TPU", TPU)
        .value("UB", UB)
        .value("MPCOMM", MPCOMM)
        .export_values();
    py::enum_<IntentType>(m, "IntentType")
        .value("INTENT_UNSPEC", IntentType::INTENT_UNSPEC)
        .value("FOREGROUND_GET", IntentType::FOREGROUND_GET)
        .value("BACKGROUND_PREFETCH", IntentType::BACKGROUND_PREFETCH)
        .value("MIGRATION", IntentType::MIGRATION)
        .value("CHECKPOINT", IntentType::CHECKPOINT)
        .value("WEIGHT_LOADING", IntentType::WEIGHT_LOADING)
        .value("STAGING_INTERNAL", IntentType::STAGING_INTERNAL)
        .export_values();
    py::enum_<SegmentInfo::Type>(m, "SegmentInfoType")
        .value("Memory", SegmentInfo::Memory)
        .value("File", SegmentInfo::File)
        .export_values();
    m.attr("LOCAL_SEGMENT_ID") = LOCAL_SEGMENT_ID;
    m.attr("kWildcardLocation") = kWildcardLocation;
    m.attr("PRIO_HIGH") = static_cast<int>(PRIO_HIGH);
    m.attr("PRIO_MEDIUM") = static_cast<int>(PRIO_MEDIUM);
    m.attr("PRIO_LOW") = static_cast<int>(PRIO_LOW);
}

void add_request(py::module_& m) {
    py::class_<Request>(m, "Request")
        .def(py::init<>())
        .def(py::init([](Request::OpCode opcode, uintptr_t source, SegmentID target_id, uint64_t target_offset,
                         size_t length, int priority, TransportType hint, std::optional<std::string> policy_name,
                         uint64_t deadline_ns, IntentType intent_type) {
                 return Request{.opcode = opcode,
                                .source = pointer(source),
                                .target_id = target_id,
                                .target_offset = target_offset,
                                .length = length,
                                .priority = priority,
                                .policy_name = std::move(policy_name),
                                .transport_hint = hint,
                                .deadline_ns = deadline_ns,
                                .intent_type = intent_type};
             }),
             py::arg("opcode"), py::arg("source"), py::arg("target_id"), py::arg("target_offset"), py::arg("length"),
             py::arg("priority") = static_cast<int>(PRIO_HIGH), py::arg("transport_hint") = UNSPEC,
             py::arg("policy_name") = py::none(), py::arg("deadline_ns") = 0,
             py::arg("intent_type") = IntentType::INTENT_UNSPEC)
        .def_readwrite("opcode", &Request::opcode)
        .def_property(
            "source", [](const Request& r) { return reinterpret_cast<uintptr_t>(r.source); },
            [](Request& r, uintptr_t address) { r.source = pointer(address); })
        .def_readwrite("target_id", &Request::target_id)
        .def_readwrite("target_offset", &Request::target_offset)
        .def_readwrite("length", &Request::length)
        .def_readwrite("priority", &Request::priority)
        .def_readwrite("policy_name", &Request::policy_name)
        .def_readwrite("transport_hint", &Request::transport_hint)
        .def_readwrite("deadline_ns", &Request::deadline_ns)
        .def_readwrite("intent_type", &Request::intent_type);
}

void add_types(py::module_& m) {
    py::class_<TransferStatus>(m, "TransferStatus")
        .def(py::init<>())
        .def_readwrite("state", &TransferStatus::s)
        .def_readwrite("bytes", &TransferStatus::transferred_bytes)
        .def_readonly("reason", &TransferStatus::reason);
    py::class_<Notification>(m, "Notification")
        .def(py::init<>())
        .def(py::init<std::string, std::string>(), py::arg("name"), py::arg("msg"))
        .def_readwrite("name", &Notification::name)
        .def_readwrite("msg", &Notification::msg);
    py::class_<MemoryOptions>(m, "MemoryOptions")
        .def(py::init([](const std::string& location, Permission perm) {
                 return MemoryOptions{location, perm};
             }),
             py::arg("location") = kWildcardLocation, py::arg("perm") = kGlobalReadWrite)
        .def_readwrite("location", &MemoryOptions::location)
        .def_readwrite("perm", &MemoryOptions::perm)
        .def_readwrite("type", &MemoryOptions::type)
        .def_readwrite("shm_path", &MemoryOptions::shm_path)
        .def_readwrite("shm_offset", &MemoryOptions::shm_offset)
        .def_readwrite("internal", &MemoryOptions::internal);
    py::class_<SegmentInfo::Buffer>(m, "SegmentInfoBuffer")
        .def(py::init<>())
        .def_readwrite("base", &SegmentInfo::Buffer::base)
        .def_readwrite("length", &SegmentInfo::Buffer::length)
        .def_readwrite("location", &SegmentInfo::Buffer::location);
    py::class_<SegmentInfo>(m, "SegmentInfo")
        .def(py::init<>())
        .def_readwrite("type", &SegmentInfo::type)
        .def_readwrite("buffers", &SegmentInfo::buffers);
    py::class_<MemoryGuard>(m, "MemoryGuard")
        .def("address", &MemoryGuard::address)
        .def("size", &MemoryGuard::size)
        .def("release", &MemoryGuard::release)
        .def("__enter__", &MemoryGuard::address)
        .def("__exit__", [](MemoryGuard& guard, const py::args&) { guard.release(); });
    py::class_<BatchGuard>(m, "BatchGuard")
        .def("id", &BatchGuard::id)
        .def("release", &BatchGuard::release)
        .def("__enter__", &BatchGuard::id)
        .def("__exit__", [](BatchGuard& guard, const py::args&) { guard.release(); });
}

using Tent = TransferEngine;
using Class = py::class_<Tent, Held>;
using Addresses = std::vector<uintptr_t>;
using Sizes = std::vector<size_t>;

void add_segment_calls(Class& engine) {
    engine
        .def(py::init([](const std::string& config_path, const std::map<std::string, std::string>& settings) {
                 return make_engine({config_path, {settings.begin(), settings.end()}});
             }),
             py::arg("config_path") = "", py::arg("settings") = std::map<std::string, std::string>{})
        .def("available", &Tent::available)
        .def("get_segment_name", &Tent::getSegmentName)
        .def("get_rpc_server_address", &Tent::getRpcServerAddress)
        .def("get_rpc_server_port", &Tent::getRpcServerPort)
        .def("get_local_topology", &Tent::getLocalTopologyString, py::call_guard<py::gil_scoped_release>())
        .def("export_local_segment",
             [](Tent& e) {
                 std::string handle;
                 run([&] { return e.exportLocalSegment(handle); });
                 return handle;
             })
        .def(
            "import_remote_segment",
            [](Tent& e, const std::string& shared_handle) {
                SegmentID handle = 0;
                run([&] { return e.importRemoteSegment(handle, shared_handle); });
                return handle;
            },
            py::arg("shared_handle"))
        .def(
            "open_segment",
            [](Tent& e, const std::string& name) {
                SegmentID handle = 0;
                run([&] { return e.openSegment(handle, name); });
                return handle;
            },
            py::arg("segment_name"))
        .def(
            "close_segment", [](Tent& e, SegmentID handle) { run([&] { return e.closeSegment(handle); }); },
            py::arg("handle"))
        .def(
            "get_segment_info",
            [](Tent& e, SegmentID handle) {
                SegmentInfo info;
                run([&] { return e.getSegmentInfo(handle, info); });
                return info;
            },
            py::arg("handle"))
        .def(
            "probe_peer_alive", [](Tent& e, SegmentID handle) { run([&] { return e.probePeerAliveByID(handle); }); },
            py::arg("handle"))
        .def(
            "send_notifi",
            [](Tent& e, SegmentID target, const Notification& notification) {
                run([&] { return e.sendNotification(target, notification); });
            },
            py::arg("target_id"), py::arg("notifi"))
        .def("recv_notifi", [](Tent& e) {
            std::vector<Notification> list;
            run([&] { return e.receiveNotification(list); });
            return list;
        });
}

void add_memory_calls(Class& engine) {
    engine
        .def(
            "allocate_local_memory",
            [](Tent& e, size_t size, const std::string& location) { return allocate(e, size, {.location = location}); },
            py::arg("size"), py::arg("location") = kWildcardLocation)
        .def("allocate_local_memory_ex", &allocate, py::arg("size"), py::arg("options"))
        .def(
            "free_local_memory",
            [](Tent& e, uintptr_t address) { run([&] { return e.freeLocalMemory(pointer(address)); }); },
            py::arg("addr"))
        .def(
            "allocate_memory_guard",
            [](Tent& e, size_t size, const std::string& location) {
                return std::make_unique<MemoryGuard>(e, size, MemoryOptions{.location = location});
            },
            py::keep_alive<0, 1>(), py::arg("size"), py::arg("location") = kWildcardLocation)
        .def(
            "allocate_memory_guard_ex",
            [](Tent& e, size_t size, const MemoryOptions& options) {
                return std::make_unique<MemoryGuard>(e, size, options);
            },
            py::keep_alive<0, 1>(), py::arg("size"), py::arg("options"))
        .def(
            "register_local_memory",
            [](Tent& e, uintptr_t address, size_t size, Permission permission) {
                run([&] { return e.registerLocalMemory(pointer(address), size, permission); });
            },
            py::arg("addr"), py::arg("size"), py::arg("permission") = kGlobalReadWrite)
        .def(
            "register_local_memory_ex",
            [](Tent& e, uintptr_t address, size_t size, const MemoryOptions& options) {
                run([&] { return e.registerLocalMemory(pointer(address), size, options); });
            },
            py::arg("addr"), py::arg("size"), py::arg("options"))
        .def(
            "register_local_memory_batch",
            [](Tent& e, const Addresses& addresses, const Sizes& sizes, Permission permission) {
                run([&] { return e.registerLocalMemory(pointers(addresses), sizes, permission); });
            },
            py::arg("addr_list"), py::arg("size_list"), py::arg("permission") = kGlobalReadWrite)
        .def(
            "register_local_memory_batch_ex",
            [](Tent& e, const Addresses& addresses, const Sizes& sizes, const MemoryOptions& options) {
                run([&] { return e.registerLocalMemory(pointers(addresses), sizes, options); });
            },
            py::arg("addr_list"), py::arg("size_list"), py::arg("options"))
        .def(
            "unregister_local_memory",
            [](Tent& e, uintptr_t address, size_t size) {
                run([&] { return e.unregisterLocalMemory(pointer(address), size); });
            },
            py::arg("addr"), py::arg("size") = 0)
        .def(
            "unregister_local_memory_batch",
            [](Tent& e, const Addresses& addresses, const Sizes& sizes) {
                run([&] { return e.unregisterLocalMemory(pointers(addresses), sizes); });
            },
            py::arg("addr_list"), py::arg("size_list") = Sizes{});
}

void submit(Tent& e, BatchID batch, const std::vector<Request>& requests, const Notification& notification) {
    run([&] { return e.submitTransfer(batch, requests, notification); });
}

void add_transfer_calls(Class& engine) {
    engine.def("allocate_transfer_batch", &allocate_batch, py::arg("batch_size"))
        .def(
            "free_transfer_batch", [](Tent& e, BatchID batch) { run([&] { return e.freeBatch(batch); }); },
            py::arg("batch_id"))
        .def(
            "allocate_batch_guard", [](Tent& e, size_t size) { return std::make_unique<BatchGuard>(e, size); },
            py::keep_alive<0, 1>(), py::arg("batch_size"))
        .def(
            "submit_transfer",
            [](Tent& e, BatchID batch, const std::vector<Request>& requests) {
                run([&] { return e.submitTransfer(batch, requests); });
            },
            py::arg("batch_id"), py::arg("request_list"))
        .def("submit_transfer", &submit, py::arg("batch_id"), py::arg("request_list"), py::arg("notifi"))
        .def(
            "submit_transfer_notif",
            [](Tent& e, BatchID batch, const std::vector<Request>& requests, const std::string& name,
               const std::string& message) {
                submit(e, batch, requests, {name, message});
            },
            py::arg("batch_id"), py::arg("request_list"), py::arg("name"), py::arg("message"))
        .def(
            "cancel_transfer",
            [](Tent& e, BatchID batch, size_t task) { run([&] { return e.cancelTransfer(batch, task); }); },
            py::arg("batch_id"), py::arg("task_id"))
        .def(
            "get_transfer_status",
            [](Tent& e, BatchID batch, size_t task) {
                TransferStatus status;
                run([&] { return e.getTransferStatus(batch, task, status); });
                return status;
            },
            py::arg("batch_id"), py::arg("task_id"))
        .def(
            "get_transfer_status_list",
            [](Tent& e, BatchID batch) {
                std::vector<TransferStatus> list;
                run([&] { return e.getTransferStatus(batch, list); });
                return list;
            },
            py::arg("batch_id"))
        .def(
            "get_transfer_status_overall",
            [](Tent& e, BatchID batch) {
                TransferStatus status;
                run([&] { return e.getTransferStatus(batch, status); });
                return status;
            },
            py::arg("batch_id"));
}

}  // namespace

PYBIND11_MODULE(tent, m) {
    m.doc() = "The TENT engine; include/rove/tent.hpp describes the calls.";
    add_exceptions(m);
    add_enumerations(m);
    add_request(m);
    add_types(m);
    Class engine(m, "TransferEngine");
    add_segment_calls(engine);
    add_memory_calls(engine);
    add_transfer_calls(engine);
}
