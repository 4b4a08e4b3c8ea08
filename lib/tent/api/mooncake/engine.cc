// SPDX-License-Identifier: Apache-2.0
// The Python module `mooncake.engine`: the calls of Mooncake's classic TransferEngine that connectors of vLLM, SGLang
// and LMCache make, over the TENT engine. Each call names its target, addresses are integers, and calls return 0 or a
// negative number. The logger "mooncake.engine" has the reason. Other Python threads run meanwhile.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "rove/tent.hpp"

namespace py = pybind11;
using namespace rove::tent;

namespace {

using Addresses = std::vector<uintptr_t>;
using Lengths = std::vector<size_t>;
using Clock = std::chrono::steady_clock;

void* pointer(uintptr_t address) {
    return reinterpret_cast<void*>(address);
}

void warn(const std::string& text) {
    const py::gil_scoped_acquire acquire;
    py::module_::import("logging").attr("getLogger")("mooncake.engine").attr("warning")("%s", text);
}

// Returns 0, or warns and returns -1.
int result(const char* call, const Status& status) {
    if (status.ok()) return 0;
    warn(std::string(call) + ": " + status.ToString());
    return -1;
}

// Returns the host of "10.0.0.1:12345" or "[fe80::1]:12345", or the text itself if it is a host alone.
std::string host_of(const std::string& name) {
    if (name.starts_with('[')) return name.substr(1, name.find(']') - 1);
    const size_t colon = name.find(':');
    return colon == name.rfind(':') ? name.substr(0, colon) : name;
}

std::string quoted_list(const std::string& names) {
    std::string list;
    for (size_t begin = 0; begin < names.size();) {
        const size_t end = std::min(names.find(',', begin), names.size());
        if (end > begin) list += (list.empty() ? "\"" : ", \"") + names.substr(begin, end - begin) + "\"";
        begin = end + 1;
    }
    return "[" + list + "]";
}

struct Notify {
    std::string name, msg;
};

class Classic {
  public:
    enum class OpCode { Read, Write };

    Classic() {
        const char* seconds = secure_getenv("MC_TRANSFER_TIMEOUT");
        if (seconds != nullptr) timeout_ = std::chrono::seconds(std::max(5, std::atoi(seconds)));
    }
    Classic(const Classic&) = delete;
    ~Classic() {
        const py::gil_scoped_release release;
        engine_.reset();
    }

    // With "P2PHANDSHAKE", names are HOST:PORT, with the port of get_rpc_port(). With "etcd://SERVERS" or
    // "redis://SERVERS", `name` is the name of this engine. Protocol "tcp" excludes RDMA; "rdma" uses every available
    // transport. `devices` is a list such as "rove0,rove1", or "" or None for all.
    int initialize(const std::string& name, const std::string& metadata, const std::string& protocol,
                   const std::optional<std::string>& devices) {
        const size_t scheme = metadata.find("://");
        if (scheme == std::string::npos) return initialize_ext(name, metadata, protocol, devices, "etcd");
        return initialize_ext(name, metadata.substr(scheme + 3), protocol, devices, metadata.substr(0, scheme));
    }

    int initialize_ext(const std::string& name, const std::string& metadata, const std::string& protocol,
                       const std::optional<std::string>& devices, const std::string& metadata_type) {
        if (protocol != "rdma" && protocol != "tcp")
            return result("initialize", Status::InvalidArgument("protocol " + protocol + ": rdma and tcp are allowed"));
        Settings settings;
        settings.set("rpc_server_hostname", host_of(name));
        if (metadata != "P2PHANDSHAKE") {
            settings.set("metadata_type", metadata_type);
            settings.set("metadata_servers", metadata);
            settings.set("local_segment_name", name);
        }
        if (protocol == "tcp") settings.set("transports/rdma/enable", "false");
        if (devices && !devices->empty()) settings.set("topology/rdma_whitelist", quoted_list(*devices));
        auto engine = std::make_unique<TransferEngine>(settings);
        const int code = result("initialize", engine->startStatus());
        if (code == 0) engine_ = std::move(engine);
        return code;
    }

    TransferEngine& engine() const {
        if (engine_ == nullptr) throw std::runtime_error("initialize() must be called first, and must return 0");
        return *engine_;
    }

    int register_memory(const Addresses& addresses, const Lengths& lengths, const std::string& location) {
        return result("register_memory",
                      engine().registerLocalMemory(pointers(addresses), lengths, MemoryOptions{.location = location}));
    }
    int unregister_memory(const Addresses& addresses) {
        return result("unregister_memory", engine().unregisterLocalMemory(pointers(addresses)));
    }
    uintptr_t allocate(size_t length) {
        void* address = nullptr;
        (void)result("allocate_managed_buffer", engine().allocateLocalMemory(&address, length));
        return reinterpret_cast<uintptr_t>(address);
    }
    int free(uintptr_t address) { return result("free_managed_buffer", engine().freeLocalMemory(pointer(address))); }

    // Returns a batch in progress, or 0 if it was refused.
    BatchID submit(const std::string& target, const Addresses& buffers, const Addresses& peers, const Lengths& lengths,
                   OpCode opcode, const Notify* notify, const std::string& hint) {
        BatchID batch = 0;
        Status status = try_submit(target, buffers, peers, lengths, opcode, notify, hint, &batch);
        if (status.ok()) return batch;
        forget(target);  // its published description may be out of date
        result("transfer", status);
        return 0;
    }

    int transfer(const std::string& target, const Addresses& buffers, const Addresses& peers, const Lengths& lengths,
                 OpCode opcode, const Notify* notify, const std::string& hint) {
        if (buffers.empty() && peers.empty() && lengths.empty()) return 0;
        const BatchID batch = submit(target, buffers, peers, lengths, opcode, notify, hint);
        return batch == 0 ? -1 : wait({batch});
    }

    // Waits until all batches are complete, one has failed, or their time is over. Frees the batches. Returns 0 or -1.
    int wait(const std::vector<BatchID>& batches) {
        int code = 0;
        for (const BatchID batch : batches) {
            int state = 0;
            while (code == 0 && (state = poll(batch)) == 0) std::this_thread::yield();
            if (state < 0) code = -1;
            if (state == 0) end(batch);  // another batch has failed
        }
        return code;
    }

    // Returns 1 if the batch is complete, 0 if it is in progress, -1 if it has failed, and -2 if its time is over.
    // Frees the batch, unless it is in progress.
    int poll(BatchID batch) {
        TransferStatus status;
        if (!engine().getTransferStatus(batch, status).ok()) return -1;
        const bool late = status.s == TIMEOUT || (status.s == PENDING && Clock::now() > until(batch));
        if (status.s == PENDING && !late) return 0;
        if (late) warn("transfer: not complete within the timeout");
        if (status.s == FAILED) warn("transfer: failed");
        end(batch);
        return status.s == COMPLETED ? 1 : late ? -2 : -1;
    }

    uintptr_t first_buffer(const std::string& segment) {
        SegmentID handle = 0;
        SegmentInfo info;
        Status status = open(segment, &handle);
        if (status.ok()) status = engine().getSegmentInfo(handle, info);
        (void)result("get_first_buffer_address", status);
        return info.buffers.empty() ? 0 : info.buffers[0].base;
    }

    int probe(const std::string& peer) {
        SegmentID handle = 0;
        Status status = open(peer, &handle);
        return result("send_probe", status.ok() ? engine().probePeerAliveByID(handle) : status);
    }

    std::vector<Notify> notifications() {
        std::vector<Notification> received;
        (void)result("get_notifies", engine().receiveNotification(received));
        std::vector<Notify> list;
        for (Notification& one : received) list.push_back({std::move(one.name), std::move(one.msg)});
        return list;
    }

    static std::vector<void*> pointers(const Addresses& addresses) {
        std::vector<void*> list;
        for (const uintptr_t address : addresses) list.push_back(pointer(address));
        return list;
    }

  private:
    Status open(const std::string& name, SegmentID* handle) {
        {
            const std::lock_guard lock(mutex_);
            if (const auto at = handles_.find(name); at != handles_.end()) {
                *handle = at->second;
                return {};
            }
        }
        Status status = engine().openSegment(*handle, name);
        if (!status.ok()) return status;
        const std::lock_guard lock(mutex_);
        const auto [at, is_new] = handles_.emplace(name, *handle);
        if (!is_new) (void)engine().closeSegment(*handle);  // another thread was first
        *handle = at->second;
        return {};
    }

    void forget(const std::string& name) {
        std::optional<SegmentID> handle;
        {
            const std::lock_guard lock(mutex_);
            const auto at = handles_.find(name);
            if (at == handles_.end()) return;
            handle = at->second;
            handles_.erase(at);
        }
        (void)engine().closeSegment(*handle);
    }

    Status try_submit(const std::string& target, const Addresses& buffers, const Addresses& peers,
                      const Lengths& lengths, OpCode opcode, const Notify* notify, const std::string& hint,
                      BatchID* batch) {
        if (buffers.size() != peers.size() || buffers.size() != lengths.size())
            return Status::InvalidArgument("buffers, peer_buffer_addresses and lengths must have the same length");
        const TransportType transport = parseTransportType(hint);
        if (transport == UNSPEC && !hint.empty() && hint != "unspec")
            return Status::InvalidArgument("transport_hint " + hint + ": no such transport");
        SegmentID handle = 0;
        Status status = open(target, &handle);
        if (!status.ok()) return status;
        std::vector<Request> requests(buffers.size());
        size_t bytes = 0;
        for (size_t i = 0; i < requests.size(); ++i) {
            requests[i] = {.opcode = opcode == OpCode::Write ? Request::WRITE : Request::READ,
                           .source = pointer(buffers[i]),
                           .target_id = handle,
                           .target_offset = peers[i],
                           .length = lengths[i],
                           .transport_hint = transport};
            bytes += lengths[i];
        }
        *batch = engine().allocateBatch(requests.size());
        if (*batch == 0) return Status::TooManyRequests("no room for a batch");
        status = notify == nullptr ? engine().submitTransfer(*batch, requests)
                                   : engine().submitTransfer(*batch, requests, Notification{notify->name, notify->msg});
        if (!status.ok()) {
            (void)engine().freeBatch(*batch);
            return status;
        }
        const std::lock_guard lock(mutex_);
        until_[*batch] = Clock::now() + timeout_ + std::chrono::nanoseconds(bytes);  // at 1 GB/s
        return {};
    }

    Clock::time_point until(BatchID batch) {
        const std::lock_guard lock(mutex_);
        const auto at = until_.find(batch);
        return at == until_.end() ? Clock::time_point::max() : at->second;
    }

    void end(BatchID batch) {
        (void)engine().freeBatch(batch);
        const std::lock_guard lock(mutex_);
        until_.erase(batch);
    }

    Clock::duration timeout_ = std::chrono::seconds(30);
    std::unique_ptr<TransferEngine> engine_;
    std::mutex mutex_;
    std::map<std::string, SegmentID> handles_;
    std::map<BatchID, Clock::time_point> until_;
};

using Released = py::call_guard<py::gil_scoped_release>;
using Class = py::class_<Classic>;

// Adds the calls for one buffer, and for lists of buffers.
void add_transfers(Class& engine, const char* one, const char* list, const char* async, Classic::OpCode opcode) {
    const auto b = py::arg("buffer"), p = py::arg("peer_buffer_address"), l = py::arg("length");
    const auto bs = py::arg("buffers"), ps = py::arg("peer_buffer_addresses"), ls = py::arg("lengths");
    const auto target = py::arg("target_hostname");
    engine
        .def(
            one,
            [opcode](Classic& e, const std::string& to, uintptr_t buffer, uintptr_t peer, size_t length,
                     const std::string& hint) {
                return e.transfer(to, {buffer}, {peer}, {length}, opcode, nullptr, hint);
            },
            target, b, p, l, py::arg("transport_hint") = "", Released())
        .def(
            list,
            [opcode](Classic& e, const std::string& to, const Addresses& buffers, const Addresses& peers,
                     const Lengths& lengths, const std::string& hint) {
                return e.transfer(to, buffers, peers, lengths, opcode, nullptr, hint);
            },
            target, bs, ps, ls, py::arg("transport_hint") = "", Released())
        .def(
            async,
            [opcode](Classic& e, const std::string& to, const Addresses& buffers, const Addresses& peers,
                     const Lengths& lengths,
                     const std::string& hint) { return e.submit(to, buffers, peers, lengths, opcode, nullptr, hint); },
            target, bs, ps, ls, py::arg("transport_hint") = "", Released());
}

void add_general_transfers(Class& engine) {
    const auto target = py::arg("target_hostname"), opcode = py::arg("opcode");
    const auto bs = py::arg("buffers"), ps = py::arg("peer_buffer_addresses"), ls = py::arg("lengths");
    engine
        .def(
            "transfer_sync",
            [](Classic& e, const std::string& to, uintptr_t buffer, uintptr_t peer, size_t length, Classic::OpCode code,
               const Notify* notify,
               const std::string& hint) { return e.transfer(to, {buffer}, {peer}, {length}, code, notify, hint); },
            target, py::arg("buffer"), py::arg("peer_buffer_address"), py::arg("length"), opcode,
            py::arg("notify") = nullptr, py::arg("transport_hint") = "", Released())
        .def("batch_transfer_sync", &Classic::transfer, target, bs, ps, ls, opcode, py::arg("notify") = nullptr,
             py::arg("transport_hint") = "", Released())
        .def(
            "batch_transfer_async",
            [](Classic& e, const std::string& to, const Addresses& buffers, const Addresses& peers,
               const Lengths& lengths, Classic::OpCode code,
               const std::string& hint) { return e.submit(to, buffers, peers, lengths, code, nullptr, hint); },
            target, bs, ps, ls, opcode, py::arg("transport_hint") = "", Released())
        .def(
            "transfer_submit_write",
            [](Classic& e, const std::string& to, uintptr_t buffer, uintptr_t peer, size_t length,
               const std::string& hint) {
                return e.submit(to, {buffer}, {peer}, {length}, Classic::OpCode::Write, nullptr, hint);
            },
            target, py::arg("buffer"), py::arg("peer_buffer_address"), py::arg("length"),
            py::arg("transport_hint") = "", Released())
        .def("transfer_check_status", &Classic::poll, Released())
        .def("get_batch_transfer_status", &Classic::wait, Released());
}

void add_memory(Class& engine) {
    engine
        .def(
            "register_memory",
            [](Classic& e, uintptr_t address, size_t length, const std::string& location) {
                return e.register_memory({address}, {length}, location);
            },
            py::arg("buffer_addr"), py::arg("capacity"), py::arg("location") = kWildcardLocation, Released())
        .def(
            "unregister_memory", [](Classic& e, uintptr_t address) { return e.unregister_memory({address}); },
            Released())
        .def("batch_register_memory", &Classic::register_memory, py::arg("buffer_addresses"), py::arg("capacities"),
             py::arg("location") = kWildcardLocation, Released())
        .def("batch_unregister_memory", &Classic::unregister_memory, Released())
        .def("allocate_managed_buffer", &Classic::allocate, Released())
        .def(
            "free_managed_buffer", [](Classic& e, uintptr_t address, size_t) { return e.free(address); }, Released())
        .def("get_first_buffer_address", &Classic::first_buffer, Released())
        .def("write_bytes_to_buffer",
             [](Classic&, uintptr_t address, const py::bytes& bytes, size_t length) {
                 const std::string_view data = bytes;
                 if (length > data.size())
                     throw std::invalid_argument("length: greater than the number of bytes given");
                 std::memcpy(pointer(address), data.data(), length);
                 return 0;
             })
        .def("read_bytes_from_buffer", [](Classic&, uintptr_t address, size_t length) {
            return py::bytes(static_cast<const char*>(pointer(address)), length);
        });
}

}  // namespace

PYBIND11_MODULE(engine, m) {
    m.doc() = "Mooncake's classic TransferEngine over rove's TENT engine.";
    for (const char* name :
         {"SUPPORT_EFA", "SUPPORT_HIP", "SUPPORT_MNNVL", "SUPPORT_MUSA", "SUPPORT_INTRA_NVLINK", "SUPPORT_CUDA"})
        m.attr(name) = false;
    auto opcode = py::enum_<Classic::OpCode>(m, "TransferOpcode", py::arithmetic());
    opcode.value("Read", Classic::OpCode::Read).value("Write", Classic::OpCode::Write).export_values();
    py::class_<Notify>(m, "TransferNotify")
        .def(py::init<>())
        .def(py::init<std::string, std::string>(), py::arg("name"), py::arg("msg"))
        .def_readwrite("name", &Notify::name)
        .def_readwrite("msg", &Notify::msg);
    Class engine(m, "TransferEngine");
    engine.def(py::init<>())
        .def("initialize", &Classic::initialize, Released())
        .def("initialize_ext", &Classic::initialize_ext, Released())
        .def("get_rpc_port", [](Classic& e) { return e.engine().getRpcServerPort(); })
        .def(
            "get_local_topology", [](Classic& e, const py::object&) { return e.engine().getLocalTopologyString(); },
            py::arg("device_name") = py::none())
        .def("get_notifies", &Classic::notifications, Released())
        .def("send_probe", &Classic::probe, py::arg("peer_server_name"), Released());
    engine.attr("TransferOpcode") = opcode;
    add_memory(engine);
    add_transfers(engine, "transfer_sync_write", "batch_transfer_sync_write", "batch_transfer_async_write",
                  Classic::OpCode::Write);
    add_transfers(engine, "transfer_sync_read", "batch_transfer_sync_read", "batch_transfer_async_read",
                  Classic::OpCode::Read);
    add_general_transfers(engine);
}
