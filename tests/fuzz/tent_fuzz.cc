// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: packets of strangers and peers to a TENT engine. The first byte chooses: a connection from its
// first byte on, with or without a secret, JSON of the control plane, or frames of the tcp transport to a real server.
// Memory of that server outside registered regions must stay unchanged. Run by tests/fuzz/run.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "tent/control/connection_name.h"
#include "tent/control/frame.h"
#include "tent/control/handshake.h"
#include "tent/engine/segment.h"
#include "tent/memory/memory.h"
#include "tent/transports/rdma/connection.h"
#include "tent/transports/tcp/tcp_server.h"

namespace {

using namespace rove::tent;

void require(bool holds) {
    if (!holds) std::abort();
}

// Calls every reader of the control plane's JSON. An accepted object has the same content when it is sent again.
void read_all(const Json& body) {
    if (const auto segment = parse_segment(body)) {
        const Json sent = to_json(*segment);
        const auto again = parse_segment(sent);
        require(again && to_json(*again) == sent);
    }
    if (const auto endpoint = parse_endpoint(body)) {
        const auto again = parse_endpoint(to_json(*endpoint));
        require(again && to_json(*again) == to_json(*endpoint));
    }
    ConnectionName name;
    if (name.parse(body)) require(!parse_owner(body).empty());
    const std::string frame = encode(MessageType::kReply, 7, body);
    require(frame.size() > sizeof(FrameHeader));
}

// Feeds the bytes to a connection as the server does, in pieces: first the handshake, then questions.
void connect(const Secret& secret, std::string bytes, size_t piece) {
    Acceptor acceptor(secret);
    std::string in, out;
    while (!bytes.empty() && acceptor.state() != Acceptor::State::kRefused) {
        in += bytes.substr(0, piece);
        bytes.erase(0, piece);
        if (acceptor.state() != Acceptor::State::kOpen) acceptor.take(in, out);
        require(out.size() <= sizeof(Welcome) + sizeof(Mac));
        if (acceptor.state() != Acceptor::State::kOpen) continue;
        require(secret.empty());  // the input cannot guess the secret
        size_t at = 0;
        FrameHeader header;
        Json body;
        Taken taken;
        while ((taken = take_question(in, &at, &header, &body)) == Taken::kQuestion) read_all(body);
        require(at <= in.size());
        if (taken == Taken::kBroken) return;
        in.erase(0, at);
    }
}

// Registered memory with a page of ours on both sides.
struct Memory {
    static constexpr size_t kPage = 4096;

    Memory() {
        std::memset(bytes, 'r', sizeof(bytes));
        for (const bool is_writable : {true, false}) {
            auto buffer = std::make_shared<LocalBuffer>();
            buffer->address = reinterpret_cast<uint64_t>(bytes) + (is_writable ? 1 : 3) * kPage;
            buffer->length = kPage;
            buffer->permission = is_writable ? Permission::kGlobalReadWrite : Permission::kGlobalReadOnly;
            local.add(buffer);
        }
    }
    bool is_whole() const {
        return std::all_of(bytes, bytes + kPage, [](char c) { return c == 'r'; }) &&
               std::all_of(bytes + 2 * kPage, bytes + sizeof(bytes), [](char c) { return c == 'r'; });
    }

    alignas(kPage) char bytes[5 * kPage];
    LocalMemory local;
};

// Sends requests of the tcp transport. An address is a byte of `memory` in 16 bits, so that many addresses are nearly
// right.
void carry(const uint8_t* data, size_t size) {
    static Memory memory;
    int pair[2];
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    TcpServer server(memory.local);
    TcpHello hello;
    server.admit(to_hex(hello.owner));
    std::string bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
    if (size != 0 && (*data & 1) != 0) {
        while (size >= 6) {
            TcpRequest request;
            request.operation = data[0] & 3;
            uint16_t offset, length;
            std::memcpy(&offset, data + 1, 2);
            std::memcpy(&length, data + 3, 2);
            request.address = reinterpret_cast<uint64_t>(memory.bytes) + offset;
            request.length = data[0] & 4 ? ~uint64_t{0} - length : length & 0x1FFF;
            bytes.append(reinterpret_cast<const char*>(&request), sizeof(request));
            if (request.operation == TcpRequest::kWrite) bytes.append(std::min<uint64_t>(request.length, 8192), 'w');
            data += 6;
            size -= 6;
        }
    } else {
        bytes.append(reinterpret_cast<const char*>(data), size);
    }
    const int big = 1 << 20;
    for (const int fd : pair) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
    (void)!send(pair[0], bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(pair[0], SHUT_WR);
    server.take(Stream(pair[1]));
    char answers[65536];
    while (read(pair[0], answers, sizeof(answers)) > 0) {
    }
    server.stop();
    close(pair[0]);
    require(memory.is_whole());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    static const Secret secret("a secret of 24 characters"), none;
    const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
    const size_t piece = 1 + data[1];
    switch (data[0] % 5) {
        case 0:
            connect(secret, bytes, piece);
            break;
        case 1:
            connect(none, bytes, piece);
            break;
        case 2: {  // past the handshake, with a valid header
            Hello hello;
            FrameHeader header;
            header.length = static_cast<uint32_t>(bytes.size());
            connect(none,
                    std::string(reinterpret_cast<const char*>(&hello), sizeof(hello)) +
                        std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + bytes,
                    64 * piece);
            break;
        }
        case 3:
            if (const auto body = parse_object(bytes)) read_all(*body);
            break;
        default:
            carry(data + 1, size - 1);
            break;
    }
    return 0;
}
