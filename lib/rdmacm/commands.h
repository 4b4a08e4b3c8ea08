// SPDX-License-Identifier: Apache-2.0
// Reading commands of <rdma/rdma_user_cm.h> and writing their answers.
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

// What follows the header, copied from the program. Members behind what was written are zero: an older librdmacm does
// not know them.
template <class Command>
Command parse(std::span<const uint8_t> in) {
    Command command{};
    std::memcpy(&command, in.data(), std::min(in.size(), sizeof(command)));
    return command;
}

// The answer goes where the command says. 0, ENOSPC or EFAULT.
template <class Answer>
int respond(uint64_t response, const rdma_ucm_cmd_hdr& header, const Answer& answer) {
    return header.out < sizeof(answer) ? ENOSPC : copy_out(response, &answer, sizeof(answer));
}

// As much of an answer as its reader knows of, at least `needed` bytes.
template <class Answer>
int respond_some(uint64_t response, const rdma_ucm_cmd_hdr& header, const Answer& answer, size_t needed) {
    return header.out < needed ? ENOSPC : copy_out(response, &answer, std::min<size_t>(header.out, sizeof(answer)));
}

}  // namespace rove::verbs::ucma
