// SPDX-License-Identifier: Apache-2.0
// The descriptors of completion channels, and the ways in which a program sleeps on them. A thread receives frames
// itself (runtime/watch.h) if it sleeps where rove sees it: in ibv_get_cq_event(), or in poll(), select() and
// epoll_wait() (preload/poll_hooks.cc). For a thread that sleeps elsewhere (a system call of its own, io_uring, an
// epoll set within another) the progress thread must receive them.
#pragma once

#include <cstdint>

namespace rove::verbs::channel_files {

inline constexpr int kMaxFiles = 1 << 20;  // higher descriptors count as sleeping elsewhere

void opened(int file);
void closed(int file);

// Returns true if there is any channel.
bool exist();
bool is_channel(int file);
// Returns true if `set` is an epoll set to which a channel was added.
bool is_epoll_set(int set);
void add_to_epoll_set(int set, int file);

// Track where the program sleeps. seen() is called when a thread sleeps on the channel where rove sees it, and
// epoll_set_seen() when it sleeps on any epoll set with a channel. not_seen() is called when the progress thread had an
// event for the channel while no such thread slept. While is_seen() is true, arming a CQ of the channel need not wake
// the progress thread.
void seen(int file);
void epoll_set_seen();
void not_seen(int file);
bool is_seen(int file);

// Counts the events of all channels, so that a thread notices an event without a system call.
void count_event();
uint32_t events();

}  // namespace rove::verbs::channel_files
