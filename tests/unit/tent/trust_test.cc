// SPDX-License-Identifier: Apache-2.0
// Tests trust: secrets, handshakes, and a control server with strangers, over the loopback interface.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tent/control/client.h"
#include "tent/control/handshake.h"
#include "tent/control/secret.h"
#include "tent/control/server.h"
#include "tent/engine/clock.h"

namespace rove::tent {

namespace {

constexpr uint64_t kPatience = 10'000'000'000;  // ns, enough for a busy machine
const std::string kWord = "a secret of 24 characters";

struct SecretFile : testing::Test {
    SecretFile() { EXPECT_NE(mkdtemp(folder.data()), nullptr); }
    ~SecretFile() override { std::filesystem::remove_all(folder); }
    std::string write(const std::string& text, mode_t mode) {
        const std::string name = folder + "/secret";
        std::filesystem::remove(name);
        std::ofstream(name) << text;
        EXPECT_EQ(chmod(name.c_str(), mode), 0);
        return name;
    }
    std::string folder = "/tmp/rove-secret-XXXXXX";
};

}  // namespace

TEST_F(SecretFile, IsReadIfOthersCannot) {
    unsetenv("ROVE_TENT_SECRET");
    Secret secret;
    EXPECT_TRUE(Secret::load("", &secret).ok());
    EXPECT_TRUE(secret.empty());
    for (const mode_t mode : {0600, 0400, 0640}) {
        ASSERT_TRUE(Secret::load(write(kWord + " \n", mode), &secret).ok()) << std::oct << mode;
        EXPECT_EQ(secret.mac("x"), Secret(kWord).mac("x"));
    }
    for (const mode_t mode : {0644, 0604, 0602, 0620, 0666}) {
        const Status status = Secret::load(write(kWord, mode), &secret);
        EXPECT_EQ(status.code(), Code::kInvalidArgument) << std::oct << mode;
        EXPECT_NE(status.message().find("chmod 600"), std::string::npos) << status.message();
    }
    for (const std::string& name : {write("too short\n", 0600), folder, folder + "/none", std::string("/dev/zero")})
        EXPECT_EQ(Secret::load(name, &secret).code(), Code::kInvalidArgument) << name;
}

TEST_F(SecretFile, IsWeakerThanTheEnvironment) {
    Secret secret;
    setenv("ROVE_TENT_SECRET", "another one of the environment", 1);
    EXPECT_TRUE(Secret::load(write(kWord, 0600), &secret).ok());
    EXPECT_EQ(secret.mac("x"), Secret("another one of the environment").mac("x"));
    setenv("ROVE_TENT_SECRET", "short", 1);
    EXPECT_EQ(Secret::load("", &secret).code(), Code::kInvalidArgument);
    unsetenv("ROVE_TENT_SECRET");
}

// RFC 4231, test case 2.
TEST(Secret, IsTheKeyOfHmacSha256) {
    const Mac mac = Secret("Jefe").mac("what do ya want for nothing?");
    const uint8_t expected[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                                0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                                0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    EXPECT_EQ(std::memcmp(mac.data(), expected, sizeof(expected)), 0);
}

TEST(Handshake, AProofOfOneSideIsNoneOfTheOther) {
    const Secret secret(kWord);
    Acceptor first(secret), second(secret);
    Hello hello;
    hello.has_secret = 1;
    const std::string greeting(reinterpret_cast<const char*>(&hello), sizeof(hello));
    std::string in = greeting, out;
    EXPECT_EQ(first.take(in, out), Acceptor::State::kProof);
    EXPECT_EQ(out.size(), sizeof(Welcome)) << "nothing is proved to a stranger";
    // Without the secret, a stranger can only send back received bytes: the peer's nonce and, if there were one, the
    // peer's proof.
    Welcome welcome;
    std::memcpy(&welcome, out.data(), sizeof(welcome));
    std::memcpy(hello.nonce, welcome.nonce, sizeof(hello.nonce));
    in.assign(reinterpret_cast<const char*>(&hello), sizeof(hello));
    out.clear();
    EXPECT_EQ(second.take(in, out), Acceptor::State::kProof);
    in.assign(sizeof(Mac), 'x');
    out.clear();
    EXPECT_EQ(first.take(in, out), Acceptor::State::kRefused);
    EXPECT_TRUE(out.empty());
}

TEST(Handshake, IsOfWhatWasSaid) {
    const Secret secret(kWord);
    const auto refuses = [&](Hello hello) {
        Acceptor acceptor(secret);
        std::string in(reinterpret_cast<const char*>(&hello), sizeof(hello)), out;
        return acceptor.take(in, out) == Acceptor::State::kRefused;
    };
    Hello good;
    good.has_secret = 1;
    EXPECT_FALSE(refuses(good));
    Hello hello = good;
    hello.magic = 0x544E4554;
    EXPECT_TRUE(refuses(hello)) << "a frame of JSON";
    hello = good;
    hello.version = 1;
    EXPECT_TRUE(refuses(hello));
    hello = good;
    hello.purpose = Purpose{9};
    EXPECT_TRUE(refuses(hello));
    hello = good;
    hello.has_secret = 0;
    EXPECT_TRUE(refuses(hello)) << "it has none";
}

namespace {

struct ServerTest : testing::Test {
    explicit ServerTest(std::string word = kWord) : credentials{Secret(std::move(word)), nullptr} {
        const uint64_t soon = monotonic_ns() + kPatience;
        EXPECT_EQ(server.listen(resolve("127.0.0.1", 0, soon), 0), "");
        server.start();
        address = join_address("127.0.0.1", server.port());
    }
    // Opens a connection as a stranger.
    int stranger() { return connect_to(address, monotonic_ns() + kPatience); }
    bool is_served() {
        ControlClient client(address, credentials);
        return client.call(MessageType::kProbe, Json::object(), kPatience).has_value();
    }
    static bool is_closed(int fd, int patience_ms) {
        pollfd one{fd, POLLIN, 0};
        char bytes[256];
        while (poll(&one, 1, patience_ms) > 0)
            if (recv(fd, bytes, sizeof(bytes), 0) <= 0) return true;
        return false;
    }

    const Credentials credentials;
    Jobs jobs;
    std::atomic<int> asked{0}, ended{0};
    std::mutex busy;  // while it is locked, the server answers no request
    ControlServer server{jobs,
                         credentials,
                         {.answer =
                              [this](MessageType type, const Json&) {
                                  ++asked;
                                  if (type == MessageType::kConnect) usleep(50'000);
                                  const std::lock_guard lock(busy);
                                  if (type == MessageType::kDescribe) {
                                      usleep(1000);
                                      return Json{{"ok", true}};
                                  }
                                  return Json{{"ok", true}, {"answer", std::string(30'000, 'y')}};
                              },
                          .ended = [this](const Json&) { ++ended; },
                          .take_data = [](Stream) {}}};
    std::string address;
};

struct OpenServerTest : ServerTest {
    OpenServerTest() : ServerTest("") {}
};

// Lowers the limit of open files while the server starts. The process may then open as many as other tests need.
struct FewFiles {
    FewFiles() {
        getrlimit(RLIMIT_NOFILE, &before);
        rlimit few = before;
        few.rlim_cur = 2 * kConnections;
        setrlimit(RLIMIT_NOFILE, &few);
    }
    static constexpr size_t kConnections = 50;
    rlimit before{};
};
struct FewConnectionsTest : FewFiles, ServerTest {
    FewConnectionsTest() : ServerTest("") { setrlimit(RLIMIT_NOFILE, &before); }
    // Opens a connection from `host`, a loopback address, and completes the handshake.
    int connect_from(const char* host) {
        const SocketAddress here = resolve(host, 0, 0).front(), to = resolve("127.0.0.1", server.port(), 0).front();
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const Hello hello;
        Welcome welcome;
        const uint64_t deadline = monotonic_ns() + kPatience;
        EXPECT_EQ(bind(fd, here.get(), here.size), 0);
        EXPECT_EQ(connect(fd, to.get(), to.size), 0);
        EXPECT_TRUE(send_all(fd, &hello, sizeof(hello), deadline));
        EXPECT_TRUE(receive_all(fd, &welcome, sizeof(welcome), deadline));
        return fd;
    }
};

}  // namespace

TEST_F(FewConnectionsTest, WhoHasMostLosesItsOwn) {
    std::vector<int> modest, greedy;
    for (int i = 0; i < 5; ++i) modest.push_back(connect_from("127.0.0.2"));
    for (size_t i = 0; i < 2 * kConnections; ++i) greedy.push_back(connect_from("127.0.0.3"));
    EXPECT_TRUE(is_served());
    size_t closed = 0;
    for (const int fd : greedy) closed += is_closed(fd, 0) ? 1 : 0;
    EXPECT_GE(closed, kConnections);
    EXPECT_FALSE(is_closed(greedy.back(), 0)) << "those that were idle for longest are closed";
    for (const int fd : modest) EXPECT_FALSE(is_closed(fd, 0));
    for (const auto* list : {&modest, &greedy})
        for (const int fd : *list) close(fd);
}

TEST_F(FewConnectionsTest, LeasesAreKeptButNobodyHasThemAll) {
    const uint64_t deadline = monotonic_ns() + kPatience;
    std::vector<int> leases, idle;
    size_t given = 0;
    for (size_t i = 0; i < kConnections; ++i) {
        leases.push_back(connect_from("127.0.0.3"));
        Stream stream(dup(leases.back()));
        const auto answer = exchange(stream, 1, MessageType::kLease, {{"owner", "x"}}, deadline);
        given += answer && !answer->contains("error") ? 1 : 0;
    }
    EXPECT_EQ(given, kConnections / 2);
    for (size_t i = 0; i < 2 * kConnections; ++i) idle.push_back(connect_from("127.0.0.4"));
    for (size_t i = 0; i < given; ++i) EXPECT_FALSE(is_closed(leases[i], 0)) << "lease " << i;
    EXPECT_EQ(ended.load(), 0);
    EXPECT_TRUE(is_served());
    for (const auto* list : {&leases, &idle})
        for (const int fd : *list) close(fd);
}

TEST_F(FewConnectionsTest, WhoAsksMostHasItsTurnOnly) {
    std::string questions;
    for (uint32_t i = 0; i < 1000; ++i) questions += encode(MessageType::kDescribe, i, Json::object());
    std::vector<int> greedy;
    for (size_t i = 0; i < 20; ++i) {
        greedy.push_back(connect_from("127.0.0.3"));
        EXPECT_TRUE(send_all(greedy.back(), questions.data(), questions.size(), monotonic_ns() + kPatience));
    }
    int between = INT_MAX;  // requests of the greedy host; the machine may delay our own for some time
    for (int i = 0; i < 5; ++i) {
        const int before = asked.load();
        EXPECT_TRUE(is_served());
        between = std::min(between, asked.load() - before);
    }
    EXPECT_LT(between, 200);
    EXPECT_LT(asked.load(), 20'000);
    for (const int fd : greedy) close(fd);
}

TEST_F(FewConnectionsTest, ConnectionsOfAHostTakeTurnsToo) {
    std::string questions;
    for (uint32_t i = 0; i < 2000; ++i) questions += encode(MessageType::kDescribe, i, Json::object());
    const int greedy = connect_from("127.0.0.1");
    EXPECT_TRUE(send_all(greedy, questions.data(), questions.size(), monotonic_ns() + kPatience));
    EXPECT_TRUE(is_served());
    EXPECT_LT(asked.load(), 2000);
    close(greedy);
}

TEST_F(ServerTest, WhoHasAnotherSecretOrNoneIsToldSo) {
    std::string why;
    const auto call = [&](Secret secret) {
        const Credentials ours{std::move(secret), nullptr};
        return ControlClient(address, ours).call(MessageType::kProbe, Json::object(), kPatience, &why).has_value();
    };
    EXPECT_TRUE(call(Secret(kWord)));
    EXPECT_FALSE(call(Secret("another secret of ours")));
    EXPECT_EQ(why, "the peer's secret differs from this engine's");
    EXPECT_FALSE(call(Secret()));
    EXPECT_EQ(why, "the peer has a secret, and this engine has no secret");
    EXPECT_EQ(asked.load(), 1);
}

TEST_F(ServerTest, AQuestionBeforeTheProofIsNotRead) {
    const int fd = stranger();
    const std::string frame = encode(MessageType::kDescribe, 1, Json::object());
    ASSERT_TRUE(send_all(fd, frame.data(), frame.size(), monotonic_ns() + kPatience));
    EXPECT_TRUE(is_closed(fd, 10000));
    EXPECT_EQ(asked.load(), 0);
    close(fd);
}

// ThreadSanitizer detects a write of the answer to freed memory.
TEST_F(ServerTest, AnAnswerMayComeAfterItsEnd) {
    std::thread client([this] {
        EXPECT_FALSE(ControlClient(address, credentials).call(MessageType::kConnect, Json::object(), kPatience));
    });
    while (asked.load() == 0) usleep(100);
    server.stop();
    client.join();
    jobs.stop();
}

TEST_F(ServerTest, WhatIsWatchedAfterItsEndIsClosed) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    server.stop();
    server.watch(pair[0], [] { ADD_FAILURE() << "nobody waits for it"; });
    EXPECT_TRUE(is_closed(pair[1], 0));
    close(pair[1]);
}

TEST_F(ServerTest, SilentStrangersKeepNobodyOut) {
    std::vector<int> strangers;
    for (size_t i = 0; i < 2 * ControlServer::kMaxProving; ++i) strangers.push_back(stranger());
    EXPECT_TRUE(is_served());
    size_t closed = 0;
    for (const int fd : strangers) closed += is_closed(fd, 0) ? 1 : 0;
    EXPECT_GE(closed, ControlServer::kMaxProving);
    for (const int fd : strangers) close(fd);
}

TEST_F(ServerTest, WithoutDescriptorsItWaitsForSome) {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const int last = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(last) + 1;
    const SocketAddress to = resolve("127.0.0.1", server.port(), 0).front();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    rusage begun{}, now{};
    getrusage(RUSAGE_SELF, &begun);
    (void)connect(last, to.get(), to.size);
    usleep(300'000);
    getrusage(RUSAGE_SELF, &now);
    setrlimit(RLIMIT_NOFILE, &before);
    const auto us = [](const timeval& time) { return time.tv_sec * 1'000'000 + time.tv_usec; };
    EXPECT_LT(us(now.ru_utime) + us(now.ru_stime) - us(begun.ru_utime) - us(begun.ru_stime), 100'000) << "it spins";
    EXPECT_TRUE(is_served());
    close(last);
}

TEST_F(OpenServerTest, JunkOfAnyShapeEndsItsOwnConnectionOnly) {
    const uint64_t deadline = monotonic_ns() + kPatience;
    std::string why;
    const auto send_question = [&](const std::string& bytes) {
        Stream stream = open_connection(address, Purpose::kControl, credentials, deadline, &why);
        EXPECT_TRUE(stream.send(bytes.data(), bytes.size(), deadline));
        return stream.release();
    };
    FrameHeader header;
    const auto framed = [&](const std::string& text) {
        header.length = static_cast<uint32_t>(text.size());
        return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + text;
    };
    for (const std::string& text : {std::string("[]"), std::string("{"), std::string("null"), std::string(1000, '['),
                                    std::string("\xFF\0{}", 4)}) {
        const int fd = send_question(framed(text));
        EXPECT_TRUE(is_closed(fd, 10000)) << text;
        close(fd);
    }
    header.length = FrameHeader::kMaxQuestion + 1;
    const int fd = send_question(std::string(reinterpret_cast<const char*>(&header), sizeof(header)));
    EXPECT_TRUE(is_closed(fd, 10000)) << "too long";
    close(fd);
    EXPECT_TRUE(is_served());
}

TEST_F(OpenServerTest, AskingWithoutTakingAnswersDelaysNobody) {
    const uint64_t deadline = monotonic_ns() + kPatience;
    std::string why;
    const int fd = open_connection(address, Purpose::kControl, credentials, deadline, &why).release();
    const std::string frame = encode(MessageType::kProbe, 1, {{"question", std::string(30'000, 'x')}});
    const int small = 4096;
    for (const int buffer : {SO_SNDBUF, SO_RCVBUF}) setsockopt(fd, SOL_SOCKET, buffer, &small, sizeof(small));
    // Sends until the connection's buffers are full.
    for (int idle = 0; idle < 20;) {
        if (send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
            idle = 0;
        } else {
            ++idle;
            usleep(2'000);
        }
    }
    EXPECT_TRUE(is_served());
    close(fd);
}

TEST_F(OpenServerTest, NobodyWaitsForAnAnswerAfterHangingUp) {
    ControlClient client(address, credentials);
    busy.lock();
    std::thread hangs_up([&] {
        while (asked.load() == 0) usleep(1000);
        client.hang_up();
    });
    EXPECT_FALSE(client.call(MessageType::kProbe, Json::object(), 600 * kPatience));
    hangs_up.join();
    EXPECT_FALSE(client.call(MessageType::kProbe, Json::object(), 600 * kPatience)) << "nor later";
    EXPECT_EQ(asked.load(), 1);
    busy.unlock();
}

TEST_F(OpenServerTest, ALeaseEndsWithItsConnection) {
    const uint64_t deadline = monotonic_ns() + kPatience;
    std::string why;
    Stream stream = open_connection(address, Purpose::kControl, credentials, deadline, &why);
    EXPECT_TRUE(exchange(stream, 1, MessageType::kLease, {{"owner", "x"}}, deadline));
    const auto second = exchange(stream, 2, MessageType::kLease, {{"owner", "y"}}, deadline);
    ASSERT_TRUE(second);
    EXPECT_EQ((*second)["ok"], false) << "one a connection";
    EXPECT_EQ(ended.load(), 0);
    stream.close();
    for (int i = 0; i < 10000 && ended.load() == 0; ++i) usleep(1000);
    EXPECT_EQ(ended.load(), 1);
}

}  // namespace rove::tent
