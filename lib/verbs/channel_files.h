// SPDX-License-Identifier: Apache-2.0
// The descriptors of completion channels, and how the program sleeps on them. A thread that sleeps where rove sees it
// receives frames itself (runtime/watch.h): in ibv_get_cq_event(), or in poll(), select() and epoll_wait()
// (preload/poll_hooks.cc). For a thread that sleeps elsewhere (a system call of its own, io_uring, an epoll set within
// another) the background thread has to receive them.
#pragma once

#include <cstdint>

namespace rove::verbs::channel_files {

inline constexpr int kMaxFiles = 1 << 20;  // those beyond sleep as elsewhere

void opened(int file);
void closed(int file);

// Returns true if there is a channel at all.
bool exist();
bool is_channel(int file);
// Returns true if `set` is one of epoll's to which a channel was added.
bool is_epoll_set(int set);
void add_to_epoll_set(int set, int file);

// Where the program sleeps: seen() is called when a thread sleeps on the channel where rove sees it, and
// epoll_set_seen() when it sleeps on any set of epoll's that has a channel; not_seen() when the background thread had
// an event for the channel and no such thread slept. As long as is_seen(), arming a CQ of the channel need not wake the
// background thread.
void seen(int file);
void epoll_set_seen();
void not_seen(int file);
bool is_seen(int file);

// Counts the events of all channels, so that a thread notices one without a system call.
void count_event();
uint32_t events();

}  // namespace rove::verbs::channel_files
