// SPDX-License-Identifier: Apache-2.0
#include "tent_report.h"

#include <rte_eal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

namespace rove::testpmd {

namespace {

constexpr size_t kMaxHello = 1024, kMaxAnswer = 65536;  // bytes; answers of DPDK 22.11 have up to 16384

std::string receive(int fd, size_t most) {
    std::string text(most, '\0');
    const ssize_t bytes = recv(fd, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return text;
}

}  // namespace

datapath::Report report_tent(const char* what) {
    const std::string command = std::string("/tent/") + what;
    sockaddr_un address{AF_UNIX, {}};
    const std::string path = std::string(rte_eal_get_runtime_dir()) + "/dpdk_telemetry.v2";
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    std::string answer;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
        !receive(fd, kMaxHello).empty() && send(fd, command.data(), command.size(), MSG_NOSIGNAL) > 0)
        answer = receive(fd, kMaxAnswer);
    close(fd);
    const auto report = datapath::Report::parse(answer, nullptr, false);
    return report.is_object() ? report.value(command, datapath::Report()) : datapath::Report();
}

}  // namespace rove::testpmd
