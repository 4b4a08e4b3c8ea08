// SPDX-License-Identifier: Apache-2.0
// The sockets of this process's engines. A child that fork() made has them, too: while it does, the peers do not notice
// that its parent has ended, and nobody else can listen at the parent's ports.
#pragma once

namespace rove::tent {

// This is one. Any thread. Returns `fd`.
int note_socket(int fd);
// In the child, where no other thread is: closes those that are still open.
void close_noted_sockets();

}  // namespace rove::tent
