// SPDX-License-Identifier: Apache-2.0
// The Python module `tent`. Addresses are integers; what a Status would say is raised. Calls let other Python threads
// run.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>

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

// `call()` without the interpreter's lock; its Status raised.
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

uintptr_t allocate(TransferEngine& engine, size_t size, const MemoryOptions& options) {
    void* address = nullptr;
    run([&] { return engine.allocateLocalMemory(&address, size, options); });
    return reinterpret_cast<uintptr_t>(address);
}

// with engine.allocate_memory_guard(size) as address: ...
struct MemoryGuard {
    TransferEngine& engine;
    size_t size;
    MemoryOptions options;
    uintptr_t address = 0;

    uintptr_t enter() { return address = allocate(engine, size, options); }
    void exit(const py::args&) {
        run([&] { return engine.freeLocalMemory(pointer(address)); });
    }
};

struct BatchGuard {
    TransferEngine& engine;
    size_t size;
    BatchID batch = 0;

    BatchID enter() { return batch = engine.allocateBatch(size); }
    void exit(const py::args&) { check(engine.freeBatch(batch)); }
};

void add_exceptions(py::module_& m) {
    const auto add = [&](const char* name, PyObject* base) {
        PyObject* made = PyErr_NewException((std::string("tent.") + name).c_str(), base, nullptr);
        m.add_object(name, py::reinterpret_steal<py::object>(made).inc_ref());
        return made;
    };
    base_exception = add("TentException", PyExc_Exception);
    const std::pair<Code, const char*> kNames[] = {
        {Code::kInvalidArgument, "InvalidArgumentError"}, {Code::kTooManyRequests, "TooManyRequestsError"},
        {Code::kAddressNotRegistered, "AddressNotRegisteredError"}, {Code::kDeviceNotFound, "DeviceNotFoundError"},
        {Code::kInvalidEntry, "InvalidEntryError"}, {Code::kNeedsRefreshCache, "NeedsRefreshCacheError"},
        {Code::kRdmaError, "RdmaError"}, {Code::kCudaError, "CudaError"}, {Code::kMetadataError, "MetadataError"},
        {Code::kRpcServiceError, "RpcServiceError"}, {Code::kInternalError, "InternalError"},
        {Code::kNotImplemented, "NotImplementedError"},
    };
    for (const auto& [code, name] : kNames) exceptions[code] = add(name, base_exception);
}

void add_types(py::module_& m) {
    py::enum_<Request::OpCode>(m, "OpCode").value("READ", Request::READ).value("WRITE", Request::WRITE);
    py::enum_<TransferStatusEnum>(m, "TransferStatusEnum")
        .value("INITIAL", INITIAL).value("PENDING", PENDING).value("INVALID", INVALID).value("CANCELED", CANCELED)
        .value("COMPLETED", COMPLETED).value("TIMEOUT", TIMEOUT).value("FAILED", FAILED);
    py::enum_<Permission>(m, "Permission")
        .value("LOCAL_READ_WRITE", Permission::kLocalReadWrite).value("GLOBAL_READ_ONLY", Permission::kGlobalReadOnly)
        .value("GLOBAL_READ_WRITE", Permission::kGlobalReadWrite);
    py::enum_<TransportType>(m, "TransportType")
        .value("UNSPEC", TransportType::UNSPEC)
        .value("RDMA", TransportType::RDMA)
        .value("SHM", TransportType::SHM)
        .value("TCP", TransportType::TCP)
        .value("IOURING", TransportType::IOURING)
        .value("NVLINK", TransportType::NVLINK)
        .value("GDS", TransportType::GDS)
        .value("MNNVL", TransportType::MNNVL);
    m.attr("PRIO_HIGH") = static_cast<int>(PRIO_HIGH);
    m.attr("PRIO_MEDIUM") = static_cast<int>(PRIO_MEDIUM);
    m.attr("PRIO_LOW") = static_cast<int>(PRIO_LOW);
    py::class_<Request>(m, "Request")
        .def(py::init([](Request::OpCode opcode, uintptr_t source, SegmentID target_id, uint64_t target_offset,
                         size_t length, int priority, const std::string& policy_name, TransportType transport_hint) {
                 return Request{opcode, pointer(source), target_id,   target_offset,
                                length, priority,        policy_name, transport_hint};
             }),
             py::kw_only(), py::arg("opcode"), py::arg("source"), py::arg("target_id"), py::arg("target_offset"),
             py::arg("length"), py::arg("priority") = static_cast<int>(PRIO_HIGH), py::arg("policy_name") = "",
             py::arg("transport_hint") = TransportType::UNSPEC)
        .def_readwrite("opcode", &Request::opcode)
        .def_property(
            "source", [](const Request& r) { return reinterpret_cast<uintptr_t>(r.source); },
            [](Request& r, uintptr_t address) { r.source = pointer(address); })
        .def_readwrite("target_id", &Request::target_id)
        .def_readwrite("target_offset", &Request::target_offset)
        .def_readwrite("length", &Request::length)
        .def_readwrite("priority", &Request::priority)
        .def_readwrite("policy_name", &Request::policy_name)
        .def_readwrite("transport_hint", &Request::transport_hint);
    py::class_<TransferStatus>(m, "TransferStatus")
        .def_readonly("state", &TransferStatus::s)
        .def_readonly("transferred_bytes", &TransferStatus::transferred_bytes);
    py::class_<Notification>(m, "Notification")
        .def(py::init<std::string, std::string>(), py::arg("name"), py::arg("msg"))
        .def_readwrite("name", &Notification::name).def_readwrite("msg", &Notification::msg);
    py::class_<MemoryOptions>(m, "MemoryOptions")
        .def(py::init([](const std::string& location, Permission perm) { return MemoryOptions{location, perm}; }),
             py::arg("location") = kWildcardLocation, py::arg("perm") = Permission::kGlobalReadWrite)
        .def_readwrite("location", &MemoryOptions::location).def_readwrite("perm", &MemoryOptions::perm);
    py::class_<SegmentInfo::Buffer>(m, "SegmentBuffer")
        .def_readonly("base", &SegmentInfo::Buffer::base).def_readonly("length", &SegmentInfo::Buffer::length)
        .def_readonly("location", &SegmentInfo::Buffer::location);
    py::class_<SegmentInfo>(m, "SegmentInfo").def_readonly("buffers", &SegmentInfo::buffers);
    py::class_<MemoryGuard>(m, "MemoryGuard").def("__enter__", &MemoryGuard::enter).def("__exit__", &MemoryGuard::exit);
    py::class_<BatchGuard>(m, "BatchGuard").def("__enter__", &BatchGuard::enter).def("__exit__", &BatchGuard::exit);
}

using Tent = TransferEngine;

void add_memory_calls(py::class_<Tent>& engine) {
    engine
        .def(
            "allocate_local_memory",
            [](Tent& e, size_t size, const std::string& location) { return allocate(e, size, {.location = location}); },
            py::arg("size"), py::arg("location") = kWildcardLocation)
        .def("allocate_local_memory_ex", &allocate)
        .def("free_local_memory",
             [](Tent& e, uintptr_t address) { run([&] { return e.freeLocalMemory(pointer(address)); }); })
        .def(
            "allocate_memory_guard",
            [](Tent& e, size_t size, const std::string& location) {
                return MemoryGuard{e, size, {.location = location}};
            },
            py::keep_alive<0, 1>(), py::arg("size"), py::arg("location") = kWildcardLocation)
        .def(
            "allocate_memory_guard_ex",
            [](Tent& e, size_t size, const MemoryOptions& options) {
                return MemoryGuard{e, size, options};
            },
            py::keep_alive<0, 1>())
        .def(
            "register_local_memory",
            [](Tent& e, uintptr_t address, size_t size, Permission permission) {
                run([&] { return e.registerLocalMemory(pointer(address), size, permission); });
            },
            py::arg("addr"), py::arg("size"), py::arg("permission") = Permission::kGlobalReadWrite)
        .def("register_local_memory_ex",
             [](Tent& e, uintptr_t address, size_t size, const MemoryOptions& options) {
                 run([&] { return e.registerLocalMemory(pointer(address), size, options); });
             })
        .def("register_local_memory_batch",
             [](Tent& e, const std::vector<uintptr_t>& addresses, const std::vector<size_t>& sizes) {
                 run([&] { return e.registerLocalMemory(pointers(addresses), sizes); });
             })
        .def("register_local_memory_batch_ex",
             [](Tent& e, const std::vector<uintptr_t>& addresses, const std::vector<size_t>& sizes,
                const MemoryOptions& options) {
                 run([&] { return e.registerLocalMemory(pointers(addresses), sizes, options); });
             })
        .def("unregister_local_memory",
             [](Tent& e, uintptr_t address, size_t size) {
                 run([&] { return e.unregisterLocalMemory(pointer(address), size); });
             })
        .def("unregister_local_memory_batch",
             [](Tent& e, const std::vector<uintptr_t>& addresses, const std::vector<size_t>& sizes) {
                 run([&] { return e.unregisterLocalMemory(pointers(addresses), sizes); });
             });
}

void add_transfer_calls(py::class_<Tent>& engine) {
    engine.def("allocate_transfer_batch", &Tent::allocateBatch)
        .def("free_transfer_batch", [](Tent& e, BatchID batch) { run([&] { return e.freeBatch(batch); }); })
        .def(
            "allocate_batch_guard",
            [](Tent& e, size_t size) {
                return BatchGuard{e, size};
            },
            py::keep_alive<0, 1>())
        .def("submit_transfer",
             [](Tent& e, BatchID batch, const std::vector<Request>& requests) {
                 run([&] { return e.submitTransfer(batch, requests); });
             })
        .def("submit_transfer_notif",
             [](Tent& e, BatchID batch, const std::vector<Request>& requests, const Notification& notification) {
                 run([&] { return e.submitTransfer(batch, requests, notification); });
             })
        .def("cancel_transfer",
             [](Tent& e, BatchID batch, size_t task) { run([&] { return e.cancelTransfer(batch, task); }); })
        .def("get_transfer_status",
             [](Tent& e, BatchID batch, size_t task) {
                 TransferStatus status;
                 run([&] { return e.getTransferStatus(batch, task, status); });
                 return status;
             })
        .def("get_transfer_status_list",
             [](Tent& e, BatchID batch) {
                 std::vector<TransferStatus> list;
                 run([&] { return e.getTransferStatus(batch, list); });
                 return list;
             })
        .def("get_transfer_status_overall", [](Tent& e, BatchID batch) {
            TransferStatus status;
            run([&] { return e.getTransferStatus(batch, status); });
            return status;
        });
}

}  // namespace

PYBIND11_MODULE(tent, m) {
    m.doc() = "The TENT engine; include/rove/tent.hpp says what the calls mean.";
    add_exceptions(m);
    add_types(m);
    py::class_<Tent> engine(m, "TransferEngine");
    engine
        .def(py::init([](const std::string& config_path, const std::map<std::string, std::string>& settings) {
                 Settings all{config_path, {settings.begin(), settings.end()}};
                 auto made = std::make_unique<Tent>(all);
                 check(made->startStatus());
                 return made;
             }),
             py::arg("config_path") = "", py::arg("settings") = std::map<std::string, std::string>{})
        .def("available", &Tent::available)
        .def("get_segment_name", &Tent::getSegmentName)
        .def("get_rpc_server_address", &Tent::getRpcServerAddress)
        .def("get_rpc_server_port", &Tent::getRpcServerPort)
        .def("get_local_topology", &Tent::getLocalTopologyString)
        .def("open_segment",
             [](Tent& e, const std::string& name) {
                 SegmentID handle = 0;
                 run([&] { return e.openSegment(handle, name); });
                 return handle;
             })
        .def("close_segment", [](Tent& e, SegmentID handle) { run([&] { return e.closeSegment(handle); }); })
        .def("get_segment_info",
             [](Tent& e, SegmentID handle) {
                 SegmentInfo info;
                 run([&] { return e.getSegmentInfo(handle, info); });
                 return info;
             })
        .def("send_notifi", [](Tent& e, SegmentID target,
                               const Notification& n) { run([&] { return e.sendNotification(target, n); }); })
        .def("recv_notifi", [](Tent& e) {
            std::vector<Notification> list;
            check(e.receiveNotification(list));
            return list;
        });
    add_memory_calls(engine);
    add_transfer_calls(engine);
}
