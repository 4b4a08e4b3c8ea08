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

namespace rove::verbs::ucma {

// What follows the header. Members behind what was written are zero: an older librdmacm does not know them.
template <class Command>
Command parse(std::span<const uint8_t> in) {
    Command command{};
    std::memcpy(&command, in.data(), std::min(in.size(), sizeof(command)));
    return command;
}

// The answer goes where the command says. 0 or ENOSPC.
template <class Answer>
int respond(uint64_t response, const rdma_ucm_cmd_hdr& header, const Answer& answer) {
    if (header.out < sizeof(answer)) return ENOSPC;
    std::memcpy(reinterpret_cast<void*>(response), &answer, sizeof(answer));
    return 0;
}

}  // namespace rove::verbs::ucma
