// SPDX-License-Identifier: Apache-2.0
// The sockets of this process's engines. A child that fork() made inherits them. While the child keeps them open, the
// peers do not notice that its parent has ended, and no other process can listen on the parent's ports.
#pragma once

namespace rove::tent {

// Records `fd` as a socket of an engine and returns it. Any thread may call it.
int note_socket(int fd);
// Closes the recorded sockets that are still open. It is called in the child, which has no other thread.
void close_noted_sockets();

}  // namespace rove::tent
