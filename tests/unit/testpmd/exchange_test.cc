// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace rove::testpmd {
namespace {

// Interrupts the calling thread repeatedly.
class Signals {
  public:
    Signals() {
        struct sigaction action {};
        action.sa_handler = [](int) {};
        sigaction(SIGUSR1, &action, &before_);
        thread_ = std::thread([this, target = pthread_self()] {
            while (!ended_) {
                pthread_kill(target, SIGUSR1);
                std::this_thread::sleep_for(std::chrono::microseconds(1));
            }
        });
    }
    ~Signals() {
        ended_ = true;
        thread_.join();
        sigaction(SIGUSR1, &before_, nullptr);
    }

  private:
    struct sigaction before_ {};
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

class ConnectionTest : public testing::Test {
  protected:
    void SetUp() override {
        int fds[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        ours_ = std::make_unique<Connection>(fds[0]);
        theirs_ = std::make_unique<Connection>(fds[1]);
    }
    std::unique_ptr<Connection> ours_, theirs_;
};

TEST_F(ConnectionTest, ASignalIsNoMessage) {
    const Signals signals;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < until) ASSERT_FALSE(ours_->readable());
    theirs_->send(Account{1, 0});
    EXPECT_TRUE(ours_->readable());
}

TEST_F(ConnectionTest, ASignalEndsNoWait) {
    const Signals signals;
    std::thread peer([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        theirs_->send(Account{7, 3});
    });
    EXPECT_NO_THROW({
        const Account account = ours_->receive_account();
        EXPECT_EQ(account.messages, 7u);
        EXPECT_EQ(account.errors, 3u);
    });
    peer.join();
}

}  // namespace
}  // namespace rove::testpmd
