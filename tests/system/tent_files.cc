// SPDX-License-Identifier: Apache-2.0
// Files as segments: written data is read back by other means than the engine's, and vice versa.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "peer.h"
#include "tent_check.h"

namespace check {

using namespace rove::tent;
using peer::fail;

namespace {

constexpr size_t kBytes = (5 << 20) + 123;

struct File {
    explicit File(const char* name, size_t bytes) : path(std::filesystem::current_path() / name) {
        fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail("%s cannot be made", path.c_str());
    }
    ~File() {
        ::close(fd);
        ::unlink(path.c_str());
    }
    std::string segment() const { return "file://" + path.string(); }

    std::filesystem::path path;
    int fd = -1;
};

Request file_request(Request::OpCode opcode, void* source, SegmentID file, uint64_t offset, size_t length) {
    Request one;
    one.opcode = opcode;
    one.source = source;
    one.target_id = file;
    one.target_offset = offset;
    one.length = length;
    return one;
}

TransferStatus carry(TransferEngine& engine, const std::vector<Request>& requests) {
    const BatchID batch = engine.allocateBatch(requests.size());
    expect(engine.submitTransfer(batch, requests), "submitTransfer");
    const TransferStatus status = wait(engine, batch);
    expect(engine.freeBatch(batch), "freeBatch");
    return status;
}

void refuse_names(TransferEngine& engine, const File& file) {
    const auto refused = [&](const char* what, const std::string& name) {
        SegmentID segment;
        expect_code(engine.openSegment(segment, name), Code::kInvalidArgument, what);
    };
    refused("no such file", file.segment() + ".not-there");
    refused("relative path", "file://" + file.path.filename().string());
    refused("directory", "file://" + file.path.parent_path().string());
    refused("character device", "file:///dev/null");
    const File empty("empty", 0);
    refused("empty file", empty.segment());
}

}  // namespace

int files(const Options& options) {
    const auto engine = start(options);
    const File file("file", kBytes);
    refuse_names(*engine, file);
    SegmentID segment;
    expect(engine->openSegment(segment, file.segment()), "openSegment");
    SegmentInfo info;
    expect(engine->getSegmentInfo(segment, info), "getSegmentInfo");
    if (info.type != SegmentInfo::File || info.buffers.size() != 1 || info.buffers[0].base != 0 ||
        info.buffers[0].length != kBytes)
        fail("getSegmentInfo does not describe the file");
    uint8_t* memory = allocate(*engine, kBytes);

    // Unaligned requests of different lengths that cover all of it.
    const auto all = [&](Request::OpCode opcode) {
        std::vector<Request> requests;
        for (size_t at = 0, length = 1; at < kBytes; at += length, length = std::min(length * 3, kBytes - at))
            requests.push_back(file_request(opcode, memory + at, segment, at, length));
        return requests;
    };
    std::vector<uint8_t> seen(kBytes);
    peer::fill(memory, kBytes, 1);
    if (const auto status = carry(*engine, all(Request::WRITE));
        status.s != COMPLETED || status.transferred_bytes != kBytes)
        fail("WRITE: state %d, %zu bytes", status.s, status.transferred_bytes);
    if (pread(file.fd, seen.data(), kBytes, 0) != kBytes || peer::first_difference(seen.data(), kBytes, 1) != kBytes)
        fail("the file has a wrong byte");
    peer::fill(seen.data(), kBytes, 2);
    if (pwrite(file.fd, seen.data(), kBytes, 0) != kBytes) fail("pwrite");
    if (const auto status = carry(*engine, all(Request::READ));
        status.s != COMPLETED || status.transferred_bytes != kBytes)
        fail("READ: state %d, %zu bytes", status.s, status.transferred_bytes);
    if (peer::first_difference(memory, kBytes, 2) != kBytes) fail("READ brought a wrong byte");

    const BatchID batch = engine->allocateBatch(1);
    const auto refused = [&](const char* what, Code code, auto&& change) {
        Request one = file_request(Request::READ, memory, segment, 0, 4096);
        change(one);
        expect_code(engine->submitTransfer(batch, {one}), code, what);
    };
    refused("beyond the end", Code::kAddressNotRegistered, [](Request& r) { r.target_offset = kBytes - 4095; });
    refused("offset wraps around", Code::kAddressNotRegistered, [](Request& r) { r.target_offset = UINT64_MAX - 100; });
    refused("hint of what carries no files", Code::kInvalidArgument,
            [](Request& r) { r.transport_hint = TransportType::TCP; });
    expect_code(engine->probePeerAliveByID(segment), Code::kInvalidArgument, "probe of a file");
    expect_code(engine->sendNotification(segment, {"x", "y"}), Code::kInvalidArgument, "notification to a file");

    // The engine notices that a file grows. A file that is truncated during a request makes it fail.
    if (ftruncate(file.fd, kBytes + 4096) != 0) fail("ftruncate");
    if (carry(*engine, {file_request(Request::READ, memory, segment, kBytes, 4096)}).s != COMPLETED)
        fail("READ of what has grown");
    if (ftruncate(file.fd, 100) != 0) fail("ftruncate");
    if (carry(*engine, {file_request(Request::READ, memory, segment, kBytes, 4096)}).s != FAILED)
        fail("READ of what is gone");

    // A running program can only be read.
    SegmentID program;
    expect(engine->openSegment(program, "file://" + std::filesystem::read_symlink("/proc/self/exe").string()),
           "openSegment of a program");
    if (carry(*engine, {file_request(Request::READ, memory, program, 1, 3)}).s != COMPLETED ||
        std::string(memory, memory + 3) != "ELF")
        fail("READ of a program");
    expect_code(engine->submitTransfer(batch, {file_request(Request::WRITE, memory, program, 1, 3)}),
                Code::kInvalidArgument, "WRITE of what may only be read");

    Options without = options;
    without.set.push_back("transports/io_uring/enable=false");
    const auto other = start(without);
    const File second("second", 4096);
    expect(other->openSegment(segment, second.segment()), "openSegment");
    expect_code(other->submitTransfer(other->allocateBatch(1),
                                      {file_request(Request::READ, allocate(*other, 4096), segment, 0, 4096)}),
                Code::kDeviceNotFound, "without io_uring");
    // Requests in flight at the end of the engine must leave its memory alone.
    expect(engine->openSegment(segment, second.segment()), "openSegment");
    expect(engine->submitTransfer(batch, {file_request(Request::WRITE, memory, segment, 0, 4096)}), "submitTransfer");
    return 0;
}

}  // namespace check
