// SPDX-License-Identifier: Apache-2.0
// Tests the handshake of a memif, with a peer of our own and with peers that send wrong messages.
#include "port/memif/memif_connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memif_script.h"

namespace rove::datapath {
namespace {

// Returns the reason in the last message that `socket` has received, or "" if that is no DISCONNECT.
std::string told(int socket) {
    std::string reason;
    while (const auto message = receive(socket))
        reason = message->type == MemifType::kDisconnect ? message->disconnect.reason : "";
    return reason;
}
// The state of a server after `script`, and the reasons that it records and sends.
struct Outcome {
    State state;
    std::string why, told;
};
Outcome play(const Script& script, const std::string& secret = "") {
    auto [ours, peers] = socket_pair();
    MemifConnection server(ours.release(), {.role = Role::kServer, .name = "server", .secret = secret});
    for (const Sent& sent : script.messages) {
        send_bytes(peers.get(), &sent.message, sent.bytes, sent.files);
        server.advance();
    }
    return {server.advance(), server.why(), told(peers.get())};
}

class Pair {
  public:
    Pair(MemifConnection::Settings client, MemifConnection::Settings server) {
        auto [ours, theirs] = socket_pair();
        client.role = Role::kClient;
        server.role = Role::kServer;
        client_ = std::make_unique<MemifConnection>(ours.release(), std::move(client));
        server_ = std::make_unique<MemifConnection>(theirs.release(), std::move(server));
        for (int i = 0; i < 10; ++i) client_->advance(), server_->advance();
    }
    MemifConnection& client() { return *client_; }
    MemifConnection& server() { return *server_; }
    void end_client() { client_.reset(); }

  private:
    std::unique_ptr<MemifConnection> client_, server_;
};

TEST(MemifConnection, BothEndsHaveTheSameRings) {
    const size_t files = open_files(), memories = mapped_memories();
    {
        Pair pair(client_settings(), server_settings());
        ASSERT_EQ(pair.client().advance(), State::kConnected) << pair.client().why();
        ASSERT_EQ(pair.server().advance(), State::kConnected) << pair.server().why();
        EXPECT_EQ(pair.client().peer_name(), "server");
        EXPECT_EQ(pair.server().peer_name(), "client");
        for (const auto ring_of : {&MemifConnection::to_server, &MemifConnection::to_client}) {
            const auto &client = (pair.client().*ring_of)(), &server = (pair.server().*ring_of)();
            ASSERT_NE(client.ring, server.ring) << "mapped twice";
            EXPECT_EQ(client.log2_slots, 8);
            EXPECT_EQ(server.log2_slots, 8);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(server.ring) % 64, 0u);
            EXPECT_EQ(server.ring->cookie, kMemifCookie);
            EXPECT_EQ(server.ring->flags, kMemifMaskInterrupt);
            EXPECT_EQ(server.ring->tail, 0);
            client.ring->flags = 77;
            EXPECT_EQ(server.ring->flags, 77);
            for (uint32_t slot = 0; slot < 256; ++slot) {
                const MemifDescriptor& descriptor = server.ring->descriptors[slot];
                EXPECT_EQ(descriptor.length, 4352u);
                EXPECT_EQ(pair.client().regions()[descriptor.region].address + descriptor.offset,
                          client.buffers + size_t{slot} * client.buffer_bytes);
                EXPECT_EQ(descriptor.offset % 64, 0u);
            }
            const uint64_t one = 1;
            EXPECT_EQ(write(client.doorbell, &one, sizeof(one)), ssize_t{sizeof(one)});
            uint64_t rung = 0;
            EXPECT_EQ(read(server.doorbell, &rung, sizeof(rung)), ssize_t{sizeof(rung)});
            EXPECT_EQ(read(server.doorbell, &rung, sizeof(rung)), -1) << "does not block";
            EXPECT_EQ(errno, EAGAIN);
        }
        EXPECT_EQ(pair.server().to_server().ring->head, 0);
        EXPECT_EQ(pair.server().to_client().ring->head, 256) << "the server has all buffers";
        EXPECT_EQ(pair.server().to_server().buffers, nullptr);
    }
    EXPECT_EQ(open_files(), files);
    EXPECT_EQ(mapped_memories(), memories);
}

TEST(MemifConnection, MemoryIsThereOnlyWhenItIsUsed) {
    Pair pair(client_settings(), server_settings());
    ASSERT_EQ(pair.client().advance(), State::kConnected);
    const auto& region = pair.client().regions().front();
    const size_t pages = (region.bytes + 4095) / 4096;
    EXPECT_GT(pages, 500u);
    std::vector<unsigned char> resident(pages);
    ASSERT_EQ(mincore(region.address, region.bytes, resident.data()), 0);
    size_t used = 0;
    for (const unsigned char page : resident) used += page & 1;
    EXPECT_LE(used, 3u) << "two rings of 128 + 4096 bytes";
}

TEST(MemifConnection, NobodyCanShrinkOrGrowTheMemory) {
    auto [ours, peers] = socket_pair();
    MemifConnection client(ours.release(), client_settings());
    for (const MemifType type : {MemifType::kHello, MemifType::kAck}) {
        MemifMessage message{};
        message.type = type;
        if (type == MemifType::kHello) {
            message.hello.min_version = message.hello.max_version = kMemifVersion;
            message.hello.max_log2_slots = 6;
        }
        send_bytes(peers.get(), &message, sizeof(message));
        EXPECT_EQ(client.advance(), State::kConnecting);
    }
    EXPECT_EQ(receive(peers.get())->type, MemifType::kInit);
    MemifMessage message;
    iovec data{&message, sizeof(message)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ASSERT_EQ(recvmsg(peers.get(), &header, MSG_CMSG_CLOEXEC), ssize_t{sizeof(message)});
    ASSERT_EQ(message.type, MemifType::kAddRegion);
    ASSERT_NE(CMSG_FIRSTHDR(&header), nullptr);
    int number;
    std::memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(number));
    const FileDescriptor memory(number);
    const uint64_t bytes = message.add_region.bytes;
    EXPECT_EQ(lseek(number, 0, SEEK_END), static_cast<off_t>(bytes));
    EXPECT_EQ(bytes, 2 * (128 + 64 * 16) + 2 * 64 * 4352u) << "the server has 2^6 slots at most";
    EXPECT_EQ(ftruncate(number, 4096), -1);
    EXPECT_EQ(ftruncate(number, 1 << 30), -1);
    EXPECT_EQ(fcntl(number, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(MemifConnection, SecretAndIdAreTheServers) {
    const auto outcome = [](uint32_t id, const std::string& clients, const std::string& servers) {
        auto client = client_settings(), server = server_settings();
        client.id = id;
        server.id = 3;
        client.secret = clients;
        server.secret = servers;
        Pair pair(client, server);
        return pair.client().advance() == State::kConnected ? "" : pair.client().why();
    };
    EXPECT_EQ(outcome(3, "", ""), "");
    EXPECT_EQ(outcome(3, "anything", ""), "");
    EXPECT_EQ(outcome(3, "twenty-four bytes of it!", "twenty-four bytes of it!"), "");
    EXPECT_EQ(outcome(3, "twenty-four bytes of it?", "twenty-four bytes of it!"), "the peer disconnects: wrong secret");
    EXPECT_EQ(outcome(3, "", "secret"), "the peer disconnects: wrong secret");
    EXPECT_EQ(outcome(3, "secre", "secret"), "the peer disconnects: wrong secret");
    EXPECT_EQ(outcome(4, "", ""), "the peer disconnects: no interface has this id");
}

TEST(MemifConnection, TooMuchMemoryIsRefused) {
    auto client = client_settings();
    client.log2_slots = 14;
    client.buffer_bytes = 1 << 18;
    Pair pair(client, server_settings());
    EXPECT_EQ(pair.client().advance(), State::kClosed);
    EXPECT_NE(pair.client().why().find("4 GiB"), std::string::npos) << pair.client().why();
}

TEST(MemifConnection, TheEndIsSeen) {
    {
        Pair pair(client_settings(), server_settings());
        pair.client().disconnect("enough\n");
        EXPECT_EQ(pair.client().advance(), State::kClosed);
        EXPECT_EQ(pair.client().why(), "enough\n");
        pollfd readable{pair.server().socket(), POLLIN, 0};
        EXPECT_EQ(poll(&readable, 1, 0), 1);
        EXPECT_EQ(pair.server().advance(), State::kClosed);
        EXPECT_EQ(pair.server().why(), "the peer disconnects: enough?") << "nothing that a terminal would obey";
        EXPECT_EQ(pair.server().to_server().ring->cookie, kMemifCookie) << "stays mapped";
    }
    {
        Pair pair(client_settings(), server_settings());
        pair.end_client();
        EXPECT_EQ(pair.server().advance(), State::kClosed);
        EXPECT_EQ(pair.server().why(), "the peer has closed the connection");
        EXPECT_EQ(pair.server().to_server().ring->cookie, kMemifCookie) << "stays mapped";
    }
    {
        Pair pair(client_settings(), server_settings());
        const MemifMessage ack{.type = MemifType::kAck, .bytes = {}};
        send_bytes(pair.client().socket(), &ack, sizeof(ack));
        EXPECT_EQ(pair.server().advance(), State::kClosed);
        EXPECT_EQ(pair.client().advance(), State::kClosed);
        EXPECT_EQ(pair.client().why(), "the peer disconnects: unexpected message");
    }
}

TEST(MemifConnection, AScriptAsItShouldBeConnects) {
    const Outcome outcome = play(Script());
    EXPECT_EQ(outcome.state, State::kConnected) << outcome.why;
}

// Two additional pairs of rings, and a second region that contains one.
TEST(MemifConnection, MoreRingsAndRegionsConnect) {
    Script script;
    script.messages.insert(script.messages.begin() + 2, script.messages[1]);
    script.messages[2].message.add_region.index = 1;
    for (uint16_t index = 1; index < 3; ++index)
        for (const uint16_t flags : {kMemifClientToServer, uint16_t{0}}) {
            Sent ring = script.messages[3];
            ring.message.add_ring.flags = flags;
            ring.message.add_ring.index = index;
            ring.message.add_ring.region = flags;
            ring.message.add_ring.offset = 4096u * index + 1024u * flags;
            reinterpret_cast<MemifRing*>(script.address + ring.message.add_ring.offset)->cookie = kMemifCookie;
            script.messages.insert(script.messages.end() - 1, ring);
        }
    const Outcome outcome = play(script);
    EXPECT_EQ(outcome.state, State::kConnected) << outcome.why;
}

struct Wrong {
    std::string reason;
    std::function<void(Script&)> change;
};

// Returns everything that a server must refuse. Each case is the only fault of its handshake.
std::vector<Wrong> wrongs() {
    std::vector<Wrong> all;
    const auto add = [&](const char* reason, std::function<void(Script&)> change) {
        all.push_back({reason, std::move(change)});
    };
    add("another version", [](Script& s) { s.init().init.version = 0x100; });
    add("only Ethernet", [](Script& s) { s.init().init.mode = 1; });
    add("no interface", [](Script& s) { s.init().init.id = 1; });
    for (const size_t bytes : {0, 1, 2, 127})
        for (size_t at = 0; at < 5; ++at)
            if (bytes != 0) add("wrong size", [=](Script& s) { s.messages[at].bytes = bytes; });
    for (size_t at = 0; at < 5; ++at) {
        // Leaves one message out. Without the last one, the client simply stays silent.
        if (at < 4)
            add(at == 3   ? "without a ring"
                : at == 1 ? "in no region"
                : at == 2 ? "without a ring"
                          : "unexpected",
                [=](Script& s) { s.messages.erase(s.messages.begin() + static_cast<ptrdiff_t>(at)); });
        add(at == 1   ? "out of order"
            : at == 2 ? "out of order"
            : at == 3 ? "out of order"
                      : "unexpected",
            [=](Script& s) { s.messages.insert(s.messages.begin() + static_cast<ptrdiff_t>(at), s.messages[at]); });
        for (const uint16_t type : {0, 1, 2, 7, 9, 0xffff})
            add(at == 1 || at == 2 || at == 3 ? "file descriptors" : "unexpected",
                [=](Script& s) { s.messages[at].message.type = static_cast<MemifType>(type); });
        const bool has_file = at >= 1 && at <= 3;
        for (const size_t files : {0, 1, 2, 3, 9})
            if (files != (has_file ? 1 : 0))
                add(files > 2 ? "too many file descriptors" : "file descriptors",
                    [=](Script& s) { s.messages[at].files.assign(files, s.memory.get()); });
    }
    add("rings that overlap", [](Script& s) { s.to_client().add_ring.offset = 0; });
    add("rings that overlap", [](Script& s) { s.to_client().add_ring.offset = 320; });
    add("rings that overlap", [](Script& s) {
        s.to_server().add_ring.offset = 1024 + 320;
        s.to_server().add_ring.log2_slots = 1;
    });
    add("a ring out of order", [](Script& s) { s.to_server().add_ring.index = 1; });
    add("a ring in no region", [](Script& s) { s.to_server().add_ring.region = 1; });
    add("private headers", [](Script& s) { s.to_server().add_ring.private_header_bytes = 8; });
    for (const uint8_t log2_slots : {0, 15, 16, 31, 32, 63, 64, 255})
        add("a ring of the wrong size", [=](Script& s) { s.to_server().add_ring.log2_slots = log2_slots; });
    for (const uint32_t offset : {1u, 8u, 32u, kRegionBytes - 1})
        add("not aligned", [=](Script& s) { s.to_server().add_ring.offset = offset; });
    for (const uint32_t offset : {kRegionBytes - 320, kRegionBytes, 0xffffffc0u, 0x80000000u})
        add("beyond its region", [=](Script& s) { s.to_server().add_ring.offset = offset; });
    add("beyond its region", [](Script& s) { s.to_client().add_ring.log2_slots = 12; });
    add("without its cookie", [](Script& s) { reinterpret_cast<MemifRing*>(s.address)->cookie = 1; });
    add("without its cookie", [](Script& s) { s.to_client().add_ring.offset = 2048; });
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{kRegionBytes} + 1, ~uint64_t{0}, uint64_t{1} << 63})
        add("larger than its file", [=](Script& s) { s.region().add_region.bytes = bytes; });
    add("a region out of order", [](Script& s) { s.region().add_region.index = 1; });
    add("beyond its region", [](Script& s) { s.region().add_region.bytes = 64; });
    add("file descriptors", [](Script& s) { s.messages[0].files = {s.doorbell.get()}; });
    add("can shrink", [](Script& s) { s.messages[1].files = {s.doorbell.get()}; });
    add("not an eventfd", [](Script& s) { s.messages[2].files = {s.memory.get()}; });
    add("too many regions", [](Script& s) {
        for (uint16_t index = 1; index <= 16; ++index) {
            s.messages.insert(s.messages.begin() + 1 + index, s.messages[1]);
            s.messages[1 + index].message.add_region.index = index;
        }
    });
    add("too many rings", [](Script& s) {
        for (uint16_t index = 1; index <= 8; ++index) {
            s.messages.insert(s.messages.end() - 1, s.messages[2]);
            MemifAddRing& ring = s.messages[s.messages.size() - 2].message.add_ring;
            ring.index = index;
            ring.offset = 2048u + 1024u * index;
        }
    });
    return all;
}

TEST(MemifConnection, WhatIsWrongIsRefusedWithAReasonAndLeavesNothing) {
    for (const Wrong& wrong : wrongs()) {
        const size_t files = open_files(), memories = mapped_memories();
        {
            Script script;
            wrong.change(script);
            const Outcome outcome = play(script);
            EXPECT_EQ(outcome.state, State::kClosed) << wrong.reason;
            EXPECT_NE(outcome.why.find(wrong.reason), std::string::npos) << wrong.reason << ", but: " << outcome.why;
            EXPECT_EQ(outcome.why, outcome.told);
        }
        EXPECT_EQ(open_files(), files) << wrong.reason;
        EXPECT_EQ(mapped_memories(), memories) << wrong.reason;
    }
}

TEST(MemifConnection, OnlySealedMemoryIsMapped) {
    std::array<char, 32> path{"/tmp/rove-memif-test-XXXXXX"};
    const FileDescriptor file(mkstemp(path.data()));
    unlink(path.data());
    ASSERT_EQ(ftruncate(file.get(), kRegionBytes), 0);
    const FileDescriptor growing = make_memory(kRegionBytes, F_SEAL_GROW);
    const FileDescriptor read_only = make_memory(kRegionBytes, F_SEAL_SHRINK | F_SEAL_WRITE);
    const FileDescriptor huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    ASSERT_EQ(ftruncate(huge.get(), 1 << 30), 0);
    ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (const auto& [memory, reason] : {std::pair(&file, "can shrink"), std::pair(&growing, "can shrink"),
                                         std::pair(&read_only, "cannot map"), std::pair(&huge, "huge pages")}) {
        Script script;
        script.messages[1].files = {memory->get()};
        const Outcome outcome = play(script);
        EXPECT_EQ(outcome.state, State::kClosed);
        EXPECT_NE(outcome.told.find(reason), std::string::npos) << outcome.told;
    }
}

TEST(MemifConnection, APeerThatReadsNoAnswersIsLeft) {
    auto [ours, peers] = socket_pair();
    const int small = 1;
    ASSERT_EQ(setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    MemifConnection server(ours.release(), server_settings());
    const Script script;
    send_bytes(peers.get(), &script.messages[0].message, sizeof(MemifMessage));
    for (uint16_t index = 0; index < 16; ++index) {
        Sent region = script.messages[1];
        region.message.add_region.index = index;
        send_bytes(peers.get(), &region.message, region.bytes, region.files);
    }
    EXPECT_EQ(server.advance(), State::kClosed);
    EXPECT_NE(server.why().find("cannot send"), std::string::npos) << server.why();
}

// A client must refuse each of these scripts. It receives the messages of a script in order.
TEST(MemifConnection, AClientRefusesWhatAServerShouldNotSay) {
    const auto of = [](MemifType type) {
        Sent sent;
        sent.message.type = type;
        if (type == MemifType::kHello) {
            sent.message.hello.min_version = sent.message.hello.max_version = kMemifVersion;
            sent.message.hello.max_log2_slots = kMemifMaxLog2Slots;
        }
        return sent;
    };
    const Sent hello = of(MemifType::kHello), ack = of(MemifType::kAck), connected = of(MemifType::kConnected);
    Sent old = hello, none = hello, short_ack = ack, with_file = ack;
    old.message.hello.max_version = 0x1ff;
    none.message.hello.max_log2_slots = 0;
    short_ack.bytes = 2;
    with_file.files = {0};
    const std::vector<std::pair<const char*, std::vector<Sent>>> scripts = {
        {"unexpected", {ack}},
        {"unexpected", {connected}},
        {"unexpected", {hello, hello}},
        {"unexpected", {hello, connected}},
        {"unexpected", {hello, ack, ack, ack, connected}},
        {"unexpected", {hello, ack, ack, ack, ack, ack}},
        {"unexpected", {hello, ack, ack, ack, ack, connected, connected}},
        {"unexpected", {hello, of(MemifType::kAddRing)}},
        {"another version", {old}},
        {"no ring", {none}},
        {"wrong size", {hello, short_ack}},
        {"file descriptors", {hello, with_file}},
    };
    for (const auto& [reason, messages] : scripts) {
        const size_t files = open_files(), memories = mapped_memories();
        {
            auto [ours, peers] = socket_pair();
            MemifConnection client(ours.release(), client_settings());
            for (const Sent& sent : messages) send_bytes(peers.get(), &sent.message, sent.bytes, sent.files);
            EXPECT_EQ(client.advance(), State::kClosed) << reason;
            EXPECT_EQ(client.why(), told(peers.get()));
            EXPECT_NE(client.why().find(reason), std::string::npos) << reason << ", but: " << client.why();
        }
        EXPECT_EQ(open_files(), files) << reason;
        EXPECT_EQ(mapped_memories(), memories) << reason;
    }
}

}  // namespace
}  // namespace rove::datapath
