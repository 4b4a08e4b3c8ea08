// SPDX-License-Identifier: Apache-2.0
// rdma_cm's kernel half for an unmodified librdmacm. It executes the commands that librdmacm writes to
// /dev/infiniband/rdma_cm (<rdma/rdma_user_cm.h>). lib/cm implements the protocol, and gsi.h the QP for its datagrams.
//
// DESIGN NOTES
// 1. An event channel is a descriptor that hooks.cc recognises, with an EventQueue behind it: readable exactly while
//    events wait. Commands are calls on the program's threads. Only GET_EVENT waits.
// 2. One mutex guards ids, ports and the connection manager. Workers never lock it: they report COMM_EST through a list
//    with its own lock. A thread that holds the mutex may hold a worker, and never waits for the network.
// 3. The thread `rove-cm` sleeps until a MAD arrives, a timer of the connection manager expires, or a neighbour is due
//    for another solicitation. The first command that needs a device starts it.
// 4. Waiting events refer to their ids. Before an id is destroyed its events are removed from the queue under the
//    queue's lock, so pop() never sees an id that no longer exists. Each id counts its waiting events: most ids have no
//    event at that time, and the queue may be long.
// 5. In a forked child of a process whose datapath had started, channels return ENODEV.
// 6. Hardware devices remain usable. If the kernel has an rdma_cm, each channel also opens a kernel channel, and each
//    id has a twin there. An id belongs to the kernel alone once it is bound to an address that no rove device has, or
//    resolves a destination that no rove device reaches. Its commands are forwarded from then on. An id that listens on
//    a wildcard does so in both.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace rove::verbs::ucma {

// Opens an event channel. Returns its descriptor, or -1 and errno. The only open() flag with an effect is O_NONBLOCK.
// The descriptor is closed by exec().
int open_channel(int flags);
// Executes a command on the channel `fd`, as write() would. Returns the number of bytes consumed, or -1 and errno.
ssize_t command(int fd, const void* data, size_t bytes);
// Closes `fd`. The channel's ids are destroyed with its last descriptor.
void close_channel(int fd);
// Records that `copy` is another descriptor of the channel `fd`.
void duplicated(int fd, int copy);
constexpr int kMaxFds = 1 << 20;  // Linux's default limit for a process (fs.nr_open)
// Returns true if `fd` is a channel. Any thread may call it, also in a signal handler. It costs one load.
bool is_channel(int fd);
// Returns true if this process owns the channels, and is not a child of vfork().
bool is_owner();

// Called after a write() of this data failed because its descriptor is not open. Returns, unless the data is a
// GET_EVENT and the process is about to end; then it waits for that end. Programs such as rping destroy a channel that
// one of their threads still uses, and then exit. With the kernel's rdma_cm that thread has no time left to use the
// channel, or memory that was freed. Here it has, while the datapath disconnects from its peers.
void end_with_process(const void* data, size_t bytes);

// Records that a peer's first packet has reached a QP in RTR (IBV_EVENT_COMM_EST). A worker calls it; it does not wait.
void communication_established(uint32_t qpn);

// Fork handlers, so that the child finds a consistent state.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
// Ends connections because the signal that ends the process has arrived. Safe in a signal handler.
void terminate_by_signal(int signal);
// Ends connections at process exit, so that the peers notice. The datapath still runs.
void stop();

}  // namespace rove::verbs::ucma
