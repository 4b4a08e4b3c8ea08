// SPDX-License-Identifier: Apache-2.0
// EAL arguments and start.
#include "datapath/eal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/memfd.h>
#include <linux/vfio.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "datapath/files.h"
#include "datapath/libc.h"
#include "datapath/port_name.h"

// The linker leads calls of nanosleep() to __wrap_nanosleep() (dpdk_archives.py), and so on.
extern "C" {
#pragma GCC visibility push(hidden)
decltype(nanosleep) __wrap_nanosleep;
decltype(dlopen) __wrap_dlopen;
decltype(setsockopt) __wrap_setsockopt;
decltype(ioctl) __wrap_ioctl;
#pragma GCC visibility pop
}

namespace rove::datapath {

namespace {

thread_local bool starts_eal = false;

// What a worker has at hand beside the rings of its ports: an Impairment's shelf, frames for other workers, the pool's
// cache, bursts.
constexpr uint32_t kWorkerMbufs = 4095;

using namespace std::chrono_literals;

// A memif server of 22.11 that has more queues than its client takes rings that are not there for the client's first.
// So that only ends with as many meet, the number is the interface's id, which both must have.
std::string eal_device(const DeviceConfig& device) {
    const bool memif = device.port.rfind("net_memif", 0) == 0, has_id = !argument(device.port, "id").empty();
    return memif && !has_id && device.queues > 1 ? device.port + ",id=" + std::to_string(device.queues) : device.port;
}

// The socket that a vhost or virtio-user port has made stays when its process is killed, and DPDK does not make it
// again. Nobody listens there: whoever connects is refused.
void remove_stale_socket(const std::string& port) {
    std::string path;
    if (port.rfind("net_vhost", 0) == 0 && argument(port, "client") != "1") path = argument(port, "iface");
    if (port.rfind("net_virtio_user", 0) == 0 && argument(port, "server") == "1") path = argument(port, "path");
    sockaddr_un address{};
    if (path.empty() || path.size() >= sizeof address.sun_path) return;
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED)
        unlink(path.c_str());
    close(probe);
}

// The mbufs that a driver keeps of a queue pair that one worker has: its RX ring is filled, its TX ring gives back
// late.
uint32_t queue_mbufs(const std::string& port) {
    // Frames are in rings of their own.
    if (is_udp(port)) return 2 * kDescriptors;
    if (!is_ethdev(port) || port.rfind("net_memif", 0) == 0) return 0;
    if (port.rfind("net_af_xdp", 0) == 0) return 2 * 2048;  // XSK_RING_{CONS,PROD}__DEFAULT_NUM_DESCS
    return (is_pci(port) ? 3 : 2) * kDescriptors;  // a queue of vmxnet3 has two RX rings
}

uint64_t pool_megabytes(const Config& config) {
    // What a driver asks a buffer to hold is known when it runs; none asks for more.
    constexpr uint32_t kDriversMost = 2048;
    const uint64_t room = std::max(frame_room_bytes(largest_mtu(config)), kDriversMost);
    const uint64_t mbuf = sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM + room + 128;
    return (config.workers * pool_mbufs(config) * mbuf >> 20) + 1;
}

uint64_t heap_megabytes(const Config& config) {
    // 64 for EAL's and the drivers' own objects and rings (measured: about 20 with one memif).
    return pool_megabytes(config) * 5 / 4 + 64;
}

struct Hugepages {
    uint64_t page_bytes, free;
};
std::vector<Hugepages> free_hugepages() {
    std::vector<Hugepages> found;
    const std::string folder = "/sys/kernel/mm/hugepages";
    for (const std::string& name : names_in(folder)) {  // hugepages-2048kB
        const uint64_t page =
            name.rfind("hugepages-", 0) == 0 ? std::strtoull(name.c_str() + 10, nullptr, 10) << 10 : 0;
        const std::string count = first_line_of(folder + "/" + name + "/free_hugepages");
        const uint64_t free = std::strtoull(count.c_str(), nullptr, 10);
        if (page != 0 && free != 0) found.push_back({page, free});
    }
    return found;
}

// Whether this process gets so much of hugepages: it takes them, as EAL would, and gives them back. Those that are free
// may not be for us (a container's limit), and EAL that cannot have them has failed for good: it starts only once in a
// process.
bool hugepages_suffice(uint64_t megabytes) {
    uint64_t taken = 0;
    std::vector<int> files;
    for (const auto& [page, free] : free_hugepages()) {
        if (taken >= megabytes << 20) break;
        const uint64_t bytes = std::min(free, ((megabytes << 20) - taken + page - 1) / page) * page;
        const auto size_flag = static_cast<unsigned>(std::countr_zero(page)) << MFD_HUGE_SHIFT;
        files.push_back(memfd_create("rove-probe", MFD_CLOEXEC | MFD_HUGETLB | size_flag));
        if (fallocate(files.back(), 0, 0, static_cast<off_t>(bytes)) == 0) taken += bytes;
    }
    for (const int file : files) close(file);
    return taken >= megabytes << 20;
}

std::vector<unsigned> allowed_cpus() {
    cpu_set_t set;
    std::vector<unsigned> cpus;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    if (cpus.empty()) cpus.push_back(0);
    return cpus;
}

std::string joined(const std::vector<unsigned>& cpus) {
    std::string list;
    for (const unsigned cpu : cpus) {
        if (!list.empty()) list += ',';
        list += std::to_string(cpu);
    }
    return list;
}

// EAL leaves a directory per file prefix behind; those of processes that were killed are swept by the next start.
void sweep_runtime_directories() {
    const std::string own = rte_eal_get_runtime_dir(), parent = own.substr(0, own.rfind('/'));
    for (const std::string& name : names_in(parent)) {
        if (name.rfind("rove-", 0) != 0) continue;
        const long pid = std::strtol(name.c_str() + 5, nullptr, 10);
        if (pid > 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) remove_all(parent + "/" + name);
    }
}

}  // namespace

// A file that all processes of a machine share, network namespaces or not, and nobody else locks.
HugepageTurn::HugepageTurn() {
    if (free_hugepages().empty()) return;
    file_ = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    for (auto waited = 0ms; flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && waited < 2s; waited += 10ms)
        std::this_thread::sleep_for(10ms);
}

HugepageTurn::~HugepageTurn() {
    if (file_ >= 0) close(file_);
}

uint32_t largest_mtu(const Config& config) {
    uint32_t mtu = 256;
    for (const DeviceConfig& device : config.devices) mtu = std::max(mtu, device.mtu);
    return mtu;
}

uint32_t pool_mbufs(const Config& config) {
    uint32_t mbufs = kWorkerMbufs;
    for (const DeviceConfig& device : config.devices) {
        const uint32_t polled = (std::max<uint32_t>(device.queues, 1) + config.workers - 1) / config.workers;
        mbufs += polled * queue_mbufs(device.port);
    }
    return mbufs;
}

std::vector<std::string> eal_arguments(const Config& config, const std::vector<unsigned>& cpus, bool hugepages,
                                       bool avx512) {
    std::vector<std::string> args{"rove", "--file-prefix", "rove-" + std::to_string(getpid())};
    args.insert(args.end(), {"--log-level", "*:error"});
    if (hugepages)  // virtio-user can tell its peer of 8 files, and without the second argument each page is one
        args.insert(args.end(), {"--in-memory", "--single-file-segments"});
    else  // EAL 22.11 refuses --in-memory beside --no-huge; without shared configuration nothing is left on disk either
        args.insert(args.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(heap_megabytes(config))});
    std::string lcores = "0@(" + joined(cpus) + ")";
    for (size_t i = 0; i < config.lcores.size(); ++i)
        lcores.append(",").append(std::to_string(i + 1)).append("@").append(config.lcores[i]);
    args.insert(args.end(), {"--lcores", lcores, "--main-lcore", "0"});
    // DPDK 22.11 keeps to 256-bit vectors unless told otherwise.
    if (avx512) args.push_back("--force-max-simd-bitwidth=512");
    bool pci = false;
    for (const DeviceConfig& device : config.devices) {
        if (!is_ethdev(device.port)) continue;
        pci |= is_pci(device.port);
        args.insert(args.end(), {is_pci(device.port) ? "--allow" : "--vdev", eal_device(device)});
    }
    if (!pci) args.push_back("--no-pci");
    args.insert(args.end(), config.eal_args.begin(), config.eal_args.end());
    return args;
}

bool start_eal(const Config& config, std::string* error) {
    const bool hugepages = hugepages_suffice(pool_megabytes(config) + 32);
    const std::vector<std::string> args =
        eal_arguments(config, allowed_cpus(), hugepages, __builtin_cpu_supports("avx512f") != 0);
    std::vector<std::string> copies = args;  // EAL permutes and may write to them
    std::vector<char*> argv;
    for (std::string& arg : copies) argv.push_back(arg.data());
    argv.push_back(nullptr);
    for (const DeviceConfig& device : config.devices) remove_stale_socket(device.port);
    rte_openlog_stream(stderr);  // the default would also write to syslog
    starts_eal = true;
    const int taken = rte_eal_init(static_cast<int>(argv.size() - 1), argv.data());
    starts_eal = false;
    if (taken < 0) {
        std::string line;
        for (const std::string& arg : args) line += " " + arg;
        *error = config.file + ": DPDK's EAL did not start (" + rte_strerror(rte_errno) + ") with:" + line;
        leave_eal();
        return false;
    }
    if (const char* rest = argv[static_cast<size_t>(taken) + 1]; rest != nullptr) {  // EAL itself ignores it
        *error = config.file + ": '" + rest + "' is no option of DPDK's EAL";
        leave_eal();
        return false;
    }
    // A memif client complains at every attempt while its peer is not there.
    rte_log_set_level_pattern("pmd.net.memif*", RTE_LOG_CRIT);
    // And a tap at every start, of secondary processes that there are not.
    rte_log_set_level_pattern("pmd.net.tap*", RTE_LOG_CRIT);
    sweep_runtime_directories();
    return true;
}

void leave_eal() {
    remove_all(rte_eal_get_runtime_dir());
}

}  // namespace rove::datapath

// Where the CPU does not tell its TSC's rate, EAL counts for 100 ms: a third of a program's start. It takes the nearest
// 10 MHz, and 5 ms tell that as well.
int __wrap_nanosleep(const timespec* duration, timespec* left) {
    static constexpr timespec kLongEnough{0, 5'000'000};
    return rove::libc::nanosleep(rove::datapath::starts_eal && rte_get_tsc_hz() == 0 ? &kLongEnough : duration, left);
}

// net_af_packet makes a group of a port's sockets, whose number is the PID XOR the interface's. Neighbours on one host,
// as an MPI job's ranks are, often have the same, and the kernel has no group across interfaces: then another number.
// (All sockets of a port come to the same.)
int __wrap_setsockopt(int file, int level, int name, const void* value, socklen_t bytes) noexcept {
    constexpr uint32_t kNumber = 0xFFFF, kStep = 0x9E37;
    constexpr int kTries = 16;
    int result = rove::libc::setsockopt(file, level, name, value, bytes);
    uint32_t group;
    if (!rove::datapath::starts_eal || level != SOL_PACKET || name != PACKET_FANOUT || bytes != sizeof(group))
        return result;
    std::memcpy(&group, value, sizeof(group));
    for (int tries = 0; result != 0 && errno == EINVAL && tries < kTries; ++tries) {
        group = (group & ~kNumber) | ((group + kStep) & kNumber);
        result = rove::libc::setsockopt(file, level, name, &group, sizeof(group));
    }
    return result;
}

// EAL asks whether the program has a shared one of its own, to load drivers for it. If so, they are the program's. It
// is not asked either: another thread may hold the dynamic loader's lock, whose constructor waits for a device.
void* __wrap_dlopen(const char* file, int mode) noexcept {
    static const auto own = reinterpret_cast<decltype(&dlopen)>(rove::libc::find("dlopen"));
    const bool is_eal = rove::datapath::starts_eal && file != nullptr && std::strncmp(file, "librte_eal.so", 13) == 0;
    return is_eal ? nullptr : own(file, mode);
}

// vfio says of a NIC without MSI-X vectors, too, that they could signal an eventfd. EAL then takes that mode, in which
// no interrupt ever comes, and writes an error at each start and end of the port. It takes the next mode, MSI or INTx,
// if the answer is no.
int __wrap_ioctl(int file, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    const int result = rove::libc::ioctl(file, request, argument);
    if (request == VFIO_DEVICE_GET_IRQ_INFO && result == 0)
        if (auto* const info = static_cast<vfio_irq_info*>(argument); info->count == 0)
            info->flags &= ~uint32_t{VFIO_IRQ_INFO_EVENTFD};
    return result;
}
