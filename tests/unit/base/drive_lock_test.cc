// SPDX-License-Identifier: Apache-2.0
#include "base/drive_lock.h"

#include <gtest/gtest.h>

namespace rove::datapath {
namespace {

TEST(DriveLock, KeepsDriversOutForGoodAndLetsControlCallsIn) {
    DriveLock lock;
    ASSERT_TRUE(lock.try_lock());
    lock.block_drivers();
    EXPECT_TRUE(lock.wanted());  // so a dedicated lcore releases the lock
    EXPECT_TRUE(lock.held());
    lock.unlock();
    for (int i = 0; i < 2; ++i) {
        EXPECT_FALSE(lock.try_lock());
        lock.lock();
        EXPECT_TRUE(lock.held());
        lock.unlock();
        EXPECT_FALSE(lock.held());
    }
}

}  // namespace
}  // namespace rove::datapath
