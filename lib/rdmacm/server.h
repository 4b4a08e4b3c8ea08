// SPDX-License-Identifier: Apache-2.0
// rdma_cm's kernel half for an unmodified librdmacm: what the kernel does with the commands that librdmacm writes to
// /dev/infiniband/rdma_cm (<rdma/rdma_user_cm.h>). The protocol is lib/cm's, the QP that its datagrams go by is
// gsi.h's.
//
// DESIGN NOTES
// 1. An event channel is a descriptor whose number we know (ucma_hooks.cc) with an EventQueue behind it: readable
//    exactly while events wait. Commands are calls on the program's threads. Only GET_EVENT waits.
// 2. One mutex guards ids, ports and the connection manager. Workers never take it: what they have to say (COMM_EST)
//    goes through a list with a lock of its own. Whoever holds it may take a worker, and never waits for the network.
// 3. The thread `rove-cm` sleeps until a MAD comes, a timer of the connection manager is due, or a neighbour is to be
//    asked again. It starts with the first command that needs a device.
// 4. Waiting events refer to their ids. An id is destroyed after its events were taken out of the queue under the
//    queue's lock, so pop() never sees one that is gone. Each id counts those that wait: most have none then, and the
//    queue may be long.
// 5. In a forked child of a process whose datapath had started, channels answer ENODEV.
// 6. Hardware is reached beside our devices: where the kernel has an rdma_cm, each channel has one of its channels
//    behind it, and each id a twin there. An id is the kernel's alone from the bind or the resolution on whose address
//    no device of ours has or reaches, and is forwarded from then on; who listens on a wildcard does so in both.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace rove::verbs::ucma {

// A new event channel's descriptor, or -1 and errno; of the flags of open(), O_NONBLOCK counts. It does not survive
// exec().
int open_channel(int flags);
// A command to the channel `fd`, as by write(): the bytes taken, or -1 and errno.
ssize_t command(int fd, const void* data, size_t bytes);
// Closes `fd`. The last descriptor of a channel takes its ids along.
void close_channel(int fd);
// `copy` is another descriptor of the same channel.
void duplicated(int fd, int copy);
constexpr int kMaxFds = 1 << 20;  // Linux's default for a process (fs.nr_open)
// Whether `fd` is a channel; any thread, also in a signal's handler. One load.
bool is_channel(int fd);
// Whether this is the process whose channels they are, and not a child of vfork().
bool is_owner();

// A write of this failed, for its descriptor is not open. Returns, unless it was a GET_EVENT and the process is about
// to end: programs (rping) destroy a channel that a thread of theirs still uses, and end. In the kernel's world that
// thread has no time left to come back to its channel, or to what was in its memory; here the datapath takes leave of
// its peers meanwhile.
void end_with_process(const void* data, size_t bytes);

// The peer's first packet has come to a QP in RTR (IBV_EVENT_COMM_EST). On a worker: does not wait.
void communication_established(uint32_t qpn);

// A fork finds the state whole.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
// The signal came that ends the process. Safe in its handler.
void terminate_by_signal(int signal);
// At process exit: connections are ended, so that peers learn of it. The datapath still runs.
void stop();

}  // namespace rove::verbs::ucma
