// SPDX-License-Identifier: Apache-2.0
// Parses commands of <rdma/rdma_user_cm.h> and writes their responses.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "rdmacm/memory.h"

namespace rove::verbs::ucma {

// Returns the command after the header, copied from the program. Members beyond its end are zero: an older librdmacm
// does not have them.
template <class Command>
Command parse(std::span<const uint8_t> in) {
    Command command{};
    std::memcpy(&command, in.data(), std::min(in.size(), sizeof(command)));
    return command;
}

// Writes a response to the address in the command. Returns 0, ENOSPC or EFAULT.
template <class Answer>
int respond(uint64_t response, const rdma_ucm_cmd_hdr& header, const Answer& answer) {
    return header.out < sizeof(answer) ? ENOSPC : copy_out(response, &answer, sizeof(answer));
}

// Writes the part of a response that fits in the caller's buffer, at least `needed` bytes. Returns 0, ENOSPC or EFAULT.
template <class Answer>
int respond_some(uint64_t response, const rdma_ucm_cmd_hdr& header, const Answer& answer, size_t needed) {
    return header.out < needed ? ENOSPC : copy_out(response, &answer, std::min<size_t>(header.out, sizeof(answer)));
}

}  // namespace rove::verbs::ucma
