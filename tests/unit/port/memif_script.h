// SPDX-License-Identifier: Apache-2.0
// A scripted memif peer for tests: the messages that it sends, and the resources of this process that must be unchanged
// after it has left.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "port/memif/memif_connection.h"

namespace rove::datapath {

using Role = MemifConnection::Role;
using State = MemifConnection::State;
constexpr uint32_t kRegionBytes = 1 << 16;
constexpr uint8_t kLog2Slots = 4;

inline size_t open_files() {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

inline size_t mapped_memories() {
    size_t count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) count += line.find("/memfd:") != std::string::npos;
    return count;
}

inline std::array<FileDescriptor, 2> socket_pair() {
    std::array<int, 2> ends;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

inline FileDescriptor make_memory(uint64_t bytes, int seals = F_SEAL_SHRINK) {
    FileDescriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
    return memory;
}

inline FileDescriptor make_doorbell() {
    return FileDescriptor(eventfd(0, EFD_CLOEXEC));
}

inline void send_bytes(int socket, const void* bytes, size_t count, const std::vector<int>& files = {}) {
    iovec data{const_cast<void*>(bytes), count};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
    if (!files.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
        std::memcpy(CMSG_DATA(rights), files.data(), files.size() * sizeof(int));
    }
    sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

inline std::optional<MemifMessage> receive(int socket) {
    MemifMessage message;
    return recv(socket, &message, sizeof(message), MSG_DONTWAIT) == ssize_t{sizeof(message)} ? std::optional(message)
                                                                                             : std::nullopt;
}

// A message that the scripted peer sends.
struct Sent {
    MemifMessage message{};
    size_t bytes = sizeof(MemifMessage);
    std::vector<int> files{};
};

// The memory and the messages of a client like DPDK's. A test changes some of them.
struct Script {
    Script() {
        for (const uint32_t at : {0u, 1024u}) {
            auto* const ring = reinterpret_cast<MemifRing*>(address + at);
            ring->cookie = kMemifCookie;
        }
        Sent init;
        init.message.type = MemifType::kInit;
        init.message.init.version = kMemifVersion;
        std::strcpy(init.message.init.name, "peer");
        Sent region;
        region.message.type = MemifType::kAddRegion;
        region.message.add_region.bytes = kRegionBytes;
        region.files = {memory.get()};
        Sent to_server;
        to_server.message.type = MemifType::kAddRing;
        to_server.message.add_ring.flags = kMemifClientToServer;
        to_server.message.add_ring.log2_slots = kLog2Slots;
        to_server.files = {doorbell.get()};
        Sent to_client = to_server;
        to_client.message.add_ring.flags = 0;
        to_client.message.add_ring.offset = 1024;
        Sent connect;
        connect.message.type = MemifType::kConnect;
        messages = {init, region, to_server, to_client, connect};
    }
    ~Script() { munmap(address, kRegionBytes); }
    Script(const Script&) = delete;
    Script& operator=(const Script&) = delete;

    MemifMessage& init() { return messages[0].message; }
    MemifMessage& region() { return messages[1].message; }
    MemifMessage& to_server() { return messages[2].message; }
    MemifMessage& to_client() { return messages[3].message; }

    FileDescriptor memory = make_memory(kRegionBytes), doorbell = make_doorbell();
    uint8_t* address =
        static_cast<uint8_t*>(mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0));
    std::vector<Sent> messages;
};

inline MemifConnection::Settings client_settings() {
    return {.role = Role::kClient, .name = "client", .buffer_bytes = 4352};
}
inline MemifConnection::Settings server_settings() {
    return {.role = Role::kServer, .name = "server"};
}

}  // namespace rove::datapath
