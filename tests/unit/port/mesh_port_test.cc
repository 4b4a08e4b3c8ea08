// SPDX-License-Identifier: Apache-2.0
// Tests members of a mesh that find each other, die and are replaced, and members that lie about themselves.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "memif_script.h"
#include "port/memif/link_queues.h"
#include "port/mesh/mesh.h"

namespace rove::datapath {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

bool within(std::chrono::seconds time, auto&& holds) {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
        if (holds()) return true;
        std::this_thread::sleep_for(1ms);
    }
    return holds();
}

// A member with a thread that serves its sockets.
class Member : public LinkObserver {
  public:
    explicit Member(const std::string& folder, const std::string& address = "", bool bridge = false)
        : port_(0, PortEnvironment{event_loop_, *this, nullptr, 4352}) {
        DeviceConfig config;
        config.port = "mesh:" + folder;
        if (!address.empty()) config.addresses = {address + "/16"};
        std::string error;
        const bool open =
            bridge ? port_.open_as_bridge(folder, wire::MacAddress{2}, 4096, &error) : port_.open(config, &error);
        EXPECT_TRUE(open) << error;
        if (!bridge) address_ = *parse_address(config.addresses.front().substr(0, config.addresses.front().find('/')));
        thread_ = std::jthread([this](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                if (paused_)
                    std::this_thread::sleep_for(1ms);
                else
                    event_loop_.wait(10'000'000);
            }
        });
        port_.start();
    }
    ~Member() override {
        thread_ = {};
        port_.close();
    }

    // Stops or resumes serving the sockets, like a process that waits for a core.
    void pause(bool paused) { paused_ = paused; }
    MeshPort& port() { return port_; }
    const wire::Gid& address() const { return address_; }
    std::optional<Port::ResolvedNextHop> find(const Member& other, int timeout_ms = 5000) {
        return port_.find(other.address(), timeout_ms);
    }
    // Sends a frame with this text to one TX target, or to all.
    void send(std::optional<uint16_t> outlet, std::string_view text) {
        const std::lock_guard lock(mutex_);
        for (const LinkRings& link : links_) {
            if (link.sender == nullptr || (outlet && link.outlet != *outlet)) continue;
            std::memcpy(link.sender->next(64), text.data(), text.size());
            link.sender->took(static_cast<uint32_t>(text.size()));
            link.sender->publish();
        }
    }
    // Waits for a frame with this text.
    bool receives(std::string_view text) {
        return within(5s, [&] {
            const std::lock_guard lock(mutex_);
            std::array<rte_mbuf*, RxQueue::kBurst> frames;
            bool found = false;
            for (const LinkRings& link : links_) {
                if (link.receiver == nullptr) continue;
                for (uint16_t i = 0, count = link.receiver->burst(frames.data()); i < count; ++i)
                    found |= std::string_view(rte_pktmbuf_mtod(frames[i], const char*), frames[i]->data_len) == text;
                link.receiver->release();
            }
            return found;
        });
    }
    size_t senders() const {
        const std::lock_guard lock(mutex_);
        return static_cast<size_t>(
            std::ranges::count_if(links_, [](const auto& one) { return one.sender != nullptr; }));
    }
    size_t receivers() const {
        const std::lock_guard lock(mutex_);
        return links_.size() - static_cast<size_t>(std::ranges::count_if(
                                   links_, [](const auto& one) { return one.sender != nullptr; }));
    }
    size_t pages_of_bells() const {
        const std::lock_guard lock(mutex_);
        std::set<const BellPage*> pages;
        for (const LinkRings& link : links_)
            if (link.receiver != nullptr) pages.insert(link.receiver->bells());
        return pages.size();
    }
    size_t outlets() const {
        const std::lock_guard lock(mutex_);
        return outlets_.size();
    }
    uint16_t highest_outlet() const {
        const std::lock_guard lock(mutex_);
        return highest_;
    }

  private:
    std::optional<uint16_t> new_outlet() override {
        const std::lock_guard lock(mutex_);
        uint16_t outlet = 1;
        while (outlets_.contains(outlet)) ++outlet;
        outlets_.insert(outlet);
        highest_ = std::max(highest_, outlet);
        return outlet;
    }
    void free_outlet(uint16_t outlet) override {
        const std::lock_guard lock(mutex_);
        EXPECT_EQ(outlets_.erase(outlet), 1u);
    }
    void attach(Port&, const LinkRings& link) override {
        const std::lock_guard lock(mutex_);
        links_.push_back(link);
    }
    void detach(Port&, const LinkRings& link) override {
        const std::lock_guard lock(mutex_);
        std::erase_if(links_,
                      [&](const LinkRings& one) { return one.sender == link.sender && one.receiver == link.receiver; });
    }
    void ports_changed() override {}

    mutable std::mutex mutex_;
    std::vector<LinkRings> links_;
    std::set<uint16_t> outlets_;
    uint16_t highest_ = 0;
    EventLoop event_loop_;
    MeshPort port_;
    wire::Gid address_{};
    std::atomic<bool> paused_{false};
    std::jthread thread_;
};

// A client that connects to a member's socket and claims an arbitrary name.
class Stranger {
  public:
    Stranger(const std::string& folder, const std::string& member, const std::string& card) {
        std::string error;
        auto opened = MeshFolder::open(folder, &error);
        const int socket = opened->connect(member);
        if (socket < 0) return;
        connection_ = std::make_unique<MemifConnection>(
            socket,
            MemifConnection::Settings{
                .role = Role::kClient, .name = card, .secret = "rove mesh 2", .buffer_bytes = 4352, .mesh = true});
    }
    bool connects() {
        if (connection_ == nullptr) return false;
        State state;
        while ((state = connection_->advance()) == State::kConnecting)
            if (pollfd socket{connection_->socket(), POLLIN, 0}; poll(&socket, 1, 5000) != 1) return false;
        return state == State::kConnected;
    }
    // Returns the name that the connected member sent.
    std::string members_card() {
        within(5s, [&] { return connection_->advance(), !connection_->peer_name().empty(); });
        return connection_->peer_name();
    }
    const MemifConnection& connection() const { return *connection_; }

  private:
    std::unique_ptr<MemifConnection> connection_;
};

class MeshPortTest : public testing::Test {
  protected:
    MeshPortTest() {
        std::string name = "/tmp/rove-mesh-port-XXXXXX";
        folder_ = mkdtemp(name.data());
    }
    ~MeshPortTest() override { fs::remove_all(folder_); }

    std::string folder_;
};

TEST_F(MeshPortTest, MembersThatFindEachOtherSendByALinkOfTheirOwn) {
    Member a(folder_), b(folder_);
    const auto to_b = a.find(b), to_a = b.find(a);
    ASSERT_TRUE(to_b && to_a);
    a.send(to_b->outlet, "from a");
    EXPECT_TRUE(b.receives("from a"));
    b.send(to_a->outlet, "from b");
    EXPECT_TRUE(a.receives("from b"));
    EXPECT_EQ(a.senders(), 1u);
    EXPECT_TRUE(within(5s, [&] { return a.receivers() == 1 && b.receivers() == 1; }));
}

TEST_F(MeshPortTest, AMemberThatIsFoundConnectsBack) {
    Member a(folder_), b(folder_);
    ASSERT_TRUE(a.find(b));
    EXPECT_TRUE(within(5s, [&] { return b.senders() == 1; }));
}

TEST_F(MeshPortTest, WhoeverSaysAnotherMembersNameGetsNothingOfIt) {
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    const std::string card = Stranger(folder_, "10.77.0.2", "x").members_card();
    ASSERT_FALSE(card.empty());
    Stranger stranger(folder_, "10.77.0.1", card);
    ASSERT_TRUE(stranger.connects());
    const auto way = a.find(b);
    ASSERT_TRUE(way);
    a.send(std::nullopt, "for b alone");
    EXPECT_TRUE(b.receives("for b alone"));
    const MemifConnection::Region& region = stranger.connection().regions().front();
    const std::string_view memory(reinterpret_cast<const char*>(region.address), region.bytes);
    EXPECT_EQ(memory.find("for b alone"), std::string_view::npos);
    EXPECT_EQ(a.senders(), 1u);
}

TEST_F(MeshPortTest, NamesWithoutEndLeaveNothing) {
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    const auto way = a.find(b);
    ASSERT_TRUE(way);
    ASSERT_TRUE(within(5s, [&] { return a.receivers() == 1; }));
    const std::string card = Stranger(folder_, "10.77.0.1", "x").members_card();
    const size_t files = open_files(), memories = mapped_memories();
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef";
    const char* const names = std::getenv("ROVE_MESH_NAMES");  // up to 1048576 distinct names
    for (uint32_t name = 0; name < (names == nullptr ? 2000 : std::strtoul(names, nullptr, 10)); ++name) {
        std::string other = card;
        for (uint32_t digit = 0; digit < 4; ++digit) other[20 + digit] = kDigits[name >> (5 * digit) & 31];
        EXPECT_TRUE(Stranger(folder_, "10.77.0.1", other).connects()) << name;
    }
    EXPECT_TRUE(within(5s, [&] { return a.receivers() == 1; })) << a.receivers();
    EXPECT_EQ(a.outlets(), 1u);
    EXPECT_EQ(a.highest_outlet(), 1u);
    EXPECT_TRUE(within(5s, [&] { return open_files() <= files && mapped_memories() <= memories; }));
    a.send(way->outlet, "as before");
    EXPECT_TRUE(b.receives("as before"));
}

TEST_F(MeshPortTest, OutletsOfMembersThatHaveGoneComeBack) {
    Member a(folder_, "10.77.0.1");
    for (int i = 0; i < 100; ++i) {
        Member b(folder_, "10.77.1." + std::to_string(i + 1));
        ASSERT_TRUE(a.find(b)) << i;
    }
    EXPECT_TRUE(within(5s, [&] { return a.outlets() == 0; })) << a.outlets();
    EXPECT_LE(a.highest_outlet(), 3u);
}

TEST_F(MeshPortTest, APathLeadsToWhoeverTakesTheAddressNext) {
    Member a(folder_, "10.77.0.1");
    std::optional<Port::ResolvedNextHop> way;
    {
        Member b(folder_, "10.77.0.2");
        ASSERT_TRUE(way = a.find(b));
    }
    ASSERT_TRUE(within(5s, [&] { return a.senders() == 0; }));
    Member next(folder_, "10.77.0.2");
    ASSERT_TRUE(within(5s, [&] {
        a.port().poll_link();  // housekeeping
        return a.senders() == 1;
    }));
    a.send(way->outlet, "for who has it now");
    EXPECT_TRUE(next.receives("for who has it now"));
}

TEST_F(MeshPortTest, HandshakesThatAreNotFinishedKeepNobodyOut) {
    const pid_t silent = fork();  // before a member's thread runs; see FileSizeLimit
    if (silent == 0) {
        std::string error;
        auto folder = MeshFolder::open(folder_, &error);
        std::vector<int> sockets;
        for (int i = 0; i < 500; ++i) sockets.push_back(folder->connect("10.77.0.1"));
        for (;;) {  // when one of them is closed, another takes its place
            for (int& socket : sockets) {
                char byte;
                if (socket >= 0 && recv(socket, &byte, 1, MSG_DONTWAIT) != 0) continue;
                close(socket);
                socket = folder->connect("10.77.0.1");
            }
            usleep(1000);
        }
    }
    Member a(folder_, "10.77.0.1");
    const size_t files = open_files();
    std::this_thread::sleep_for(300ms);
    for (int i = 0; i < 20; ++i) {
        Member b(folder_, "10.77.0.2");
        const auto to_a = b.find(a), to_b = a.find(b);
        EXPECT_TRUE(to_a && to_b) << i;
    }
    EXPECT_LE(open_files(), files + 80);
    kill(silent, SIGKILL);
    waitpid(silent, nullptr, 0);
}

TEST_F(MeshPortTest, LinksOfOneUserAreBounded) {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    if (before.rlim_max < 12'000) GTEST_SKIP() << "needs more descriptors";
    const rlimit raised{.rlim_cur = std::min<rlim_t>(before.rlim_max, 20'000), .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
    Member a(folder_, "10.77.0.1");
    const std::string card = Stranger(folder_, "10.77.0.1", "x").members_card();
    std::vector<std::unique_ptr<Stranger>> strangers;
    for (size_t i = 0; i < BellPage::kBells + 50u; ++i) {
        strangers.push_back(std::make_unique<Stranger>(folder_, "10.77.0.1", card));
        if (!strangers.back()->connects()) break;
    }
    EXPECT_GE(strangers.size(), BellPage::kBells - 1u);
    EXPECT_LE(strangers.size(), BellPage::kBells + 1u);
    EXPECT_LE(a.receivers(), size_t{BellPage::kBells});
    strangers.resize(10);
    EXPECT_TRUE(within(10s, [&] { return Stranger(folder_, "10.77.0.1", card).connects(); }));
    setrlimit(RLIMIT_NOFILE, &before);
}

// A user that clears all bells within its reach silences only its own links.
TEST_F(MeshPortTest, UsersHaveBellsOfTheirOwn) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    constexpr uid_t kOther = 65534;
    ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    ASSERT_TRUE(b.find(a));
    const std::string card = Stranger(folder_, "10.77.0.1", "x").members_card();
    const pid_t other = fork();
    if (other == 0) {
        if (setgid(kOther) != 0 || setuid(kOther) != 0) _exit(1);
        std::vector<std::unique_ptr<Stranger>> strangers;
        for (int i = 0; i < 200; ++i) {
            strangers.push_back(std::make_unique<Stranger>(folder_, "10.77.0.1", card));
            if (!strangers.back()->connects()) _exit(2);
        }
        pause();
    }
    EXPECT_TRUE(within(20s, [&] { return a.receivers() == 201; })) << a.receivers();
    EXPECT_EQ(a.pages_of_bells(), 2u);
    const auto way = b.find(a);
    ASSERT_TRUE(way);
    b.send(way->outlet, "beside another user");
    EXPECT_TRUE(a.receives("beside another user"));
    kill(other, SIGKILL);
    int status = 0;
    waitpid(other, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
}

// Limits the size of files of this process. A child would not do: ASan's allocator may be locked while a member's
// thread runs, and stays so in the child.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  private:
    rlimit before_{};
};

TEST_F(MeshPortTest, WhatThisProcessLacksForALinkIsSaid) {
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    const FileSizeLimit limit(4096);
    EXPECT_FALSE(a.find(b));
    EXPECT_EQ(errno, EFBIG);
}

TEST_F(MeshPortTest, ALimitOnFilesMakesRingsSmaller) {
    const FileSizeLimit limit(1 << 20);
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    EXPECT_TRUE(a.find(b));
}

// A member's frames reach the bridge only after the bridge can send to that member.
TEST_F(MeshPortTest, TheBridgeConnectsToEachMemberFirst) {
    Member bridge(folder_, "", true);
    Member a(folder_, "10.77.0.1");
    EXPECT_TRUE(within(5s, [&] { return bridge.senders() == 1 && bridge.receivers() == 1 && a.senders() == 1; }));
    const std::string card = Stranger(folder_, "10.77.0.1", "x").members_card();
    std::string nobodys = card;
    nobodys[21] = nobodys[21] == 'A' ? 'B' : 'A';
    Stranger(folder_, "bridge", nobodys).connects();
    EXPECT_TRUE(within(5s, [&] { return bridge.receivers() == 1; }));
}

// Links end on one thread while another thread is about to serve their sockets.
TEST_F(MeshPortTest, APortIsStoppedAndStartedWhileOthersConnect) {
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    const std::string card = Stranger(folder_, "10.77.0.1", "x").members_card();
    std::atomic<bool> done{false};
    std::jthread strangers([&] {
        while (!done) Stranger(folder_, "10.77.0.1", card).members_card();
    });
    for (int i = 0; i < 100; ++i) {
        b.find(a, 10);
        a.port().stop();
        a.port().start();
    }
    done = true;
    strangers.join();
    EXPECT_TRUE(b.find(a));
}

TEST_F(MeshPortTest, AMemberThatWaitsForACoreIsFoundLater) {
    Member a(folder_, "10.77.0.1"), b(folder_, "10.77.0.2");
    b.pause(true);
    std::this_thread::sleep_for(20ms);
    std::jthread resumes([&] {
        std::this_thread::sleep_for(400ms);
        b.pause(false);
    });
    EXPECT_TRUE(a.find(b, 100));
    // No member has this address.
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_FALSE(a.port().find(*parse_address("10.77.0.9"), 100));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 900ms);
}

}  // namespace
}  // namespace rove::datapath
