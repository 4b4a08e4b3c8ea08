// SPDX-License-Identifier: Apache-2.0
#include "runtime/eal.h"

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
#include <stdarg.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

#include "base/file_descriptor.h"
#include "base/files.h"
#include "base/libc.h"
#include "base/socket_file.h"
#include "port/port.h"
#include "port/port_kind.h"
#include "port/port_name.h"
#include "runtime/runtime_folder.h"

// The linker redirects calls of nanosleep() to __wrap_nanosleep(), and so on (dpdk_archives.py).
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

// The mbufs that a worker needs in addition to its ports' rings: for an Impairment's delayed frames, frames to other
// workers, the pool's cache and bursts. A single worker whose ports keep all frames in rings of their own needs only
// the cache and bursts.
constexpr uint32_t kWorkerMbufs = kImpairedMbufs, kLoneWorkerMbufs = 1023;

using namespace std::chrono_literals;

// A memif server of 22.11 that has more queues than its client uses rings that the first client does not have. The
// interface's id must be equal on both sides, so the number of queues becomes the id: then only ends with equally many
// queues connect.
std::string eal_device(const DeviceConfig& device) {
    const bool memif = device.port.rfind("net_memif", 0) == 0, has_id = !argument(device.port, "id").empty();
    return memif && !has_id && device.queues > 1 ? device.port + ",id=" + std::to_string(device.queues) : device.port;
}

// Returns the socket on which a driver listens, and its type. The path is empty if the port has no socket in the file
// system.
std::pair<std::string, int> server_socket(const std::string& port) {
    const auto is = [&](const char* key, const char* value) { return argument(port, key) == value; };
    if (port.starts_with("net_vhost") && !is("client", "1")) return {argument(port, "iface"), SOCK_STREAM};
    if (port.starts_with("net_virtio_user") && is("server", "1")) return {argument(port, "path"), SOCK_STREAM};
    if (port.starts_with("net_memif") && (is("role", "server") || is("role", "master")) && is("socket-abstract", "no"))
        return {argument(port, "socket"), SOCK_SEQPACKET};
    return {};
}

// Removes a socket that a killed process left, because a driver fails to create its socket there. A driver also removes
// whatever has the socket's name when it ends, so only a socket may have that name.
bool clear_socket(const DeviceConfig& device, std::string* error) {
    const auto [path, type] = server_socket(device.port);
    if (path.empty() || SocketFile::clear(path, type)) return true;
    *error = "port '" + device.port + "': " + path +
             " exists and is not a socket of this user; allowed: the name of a new file";
    return false;
}

// Returns the mbufs that a driver keeps for a queue pair of one worker: its RX ring is full, and its TX ring returns
// mbufs late.
uint32_t queue_mbufs(const std::string& port) {
    // Frames are in rings of their own.
    if (const PortKind* const kind = kind_of(port); kind != nullptr) return kind->queue_mbufs;
    if (port.rfind("net_memif", 0) == 0) return 0;
    if (port.rfind("net_af_xdp", 0) == 0) return 2 * 2048;  // XSK_RING_{CONS,PROD}__DEFAULT_NUM_DESCS
    return (is_pci(port) ? 3 : 2) * kDescriptors;           // a queue of vmxnet3 has two RX rings
}

uint64_t pool_megabytes(const Config& config) {
    // The buffer size that a driver requires is known only when it runs; no driver requires more than this.
    constexpr uint32_t kDriversMost = 2048;
    const uint64_t room = std::max(frame_room_bytes(largest_mtu(config)), kDriversMost);
    const uint64_t mbuf = sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM + room + 128;
    // A pool for fault injection may be added later.
    return (config.workers * std::max(pool_mbufs(config), kLoneWorkerMbufs + kImpairedMbufs) * mbuf >> 20) + 1;
}

uint64_t heap_megabytes(const Config& config) {
    // 64 MiB are for the objects and rings of EAL and the drivers (measured: about 20 with one memif).
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

// Returns true if this process can get this much memory in hugepages. It allocates them as EAL would, and frees them
// again. Free pages may be out of reach (a container's limit), and if EAL fails to get them it cannot be started again,
// because it starts only once in a process.
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

// Returns an address for EAL's memory. EAL's own default is 4 GiB, an area that programs map without checking (Open
// MPI's OpenSHMEM at 0xff000000). The kernel's choice for a new mapping is high, random, and permitted by sanitizers.
// Hardware may be limited to addresses of 39 bits, so with hardware the address is a random one below that.
uintptr_t base_address(bool hardware) {
    constexpr uintptr_t kHugePage = 1 << 21;
    constexpr uintptr_t kLowest = uintptr_t{128} << 30, kHugePages = (uintptr_t{256} << 30) / kHugePage;
    if (hardware) {
        uint64_t number = 0;
        [[maybe_unused]] const ssize_t bytes = getrandom(&number, sizeof(number), 0);
        return kLowest + number % kHugePages * kHugePage;
    }
    constexpr size_t kRoom = size_t{1} << 30;
    void* const place = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return 0;
    munmap(place, kRoom);
    return (reinterpret_cast<uintptr_t>(place) + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

// Locks a file of this user, which other users cannot lock. EAL may still find hugepages missing that other users took
// meanwhile.
HugepageInitLock::HugepageInitLock() {
    if (free_hugepages().empty()) return;
    const std::string name = "/dev/shm/rove-hugepages-" + std::to_string(geteuid());
    file_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status {};
    // Another user may have created the file in order to hold its lock.
    if (file_ < 0 || fstat(file_, &status) != 0 || status.st_uid != geteuid()) return;
    for (auto waited = 0ms; flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && waited < 2s; waited += 10ms)
        std::this_thread::sleep_for(10ms);
}

HugepageInitLock::~HugepageInitLock() {
    if (file_ >= 0) close(file_);
}

uint32_t largest_mtu(const Config& config) {
    uint32_t mtu = 256;
    for (const DeviceConfig& device : config.devices) mtu = std::max(mtu, device.mtu);
    return mtu;
}

uint32_t pool_mbufs(const Config& config) {
    const bool is_lone = config.workers == 1 && std::ranges::all_of(config.devices, [](const DeviceConfig& device) {
                             const PortKind* const kind = kind_of(device.port);
                             return kind != nullptr && kind->has_links && device.impair.none();
                         });
    if (is_lone) return kLoneWorkerMbufs;
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
    if (hugepages)  // virtio-user can tell its peer of 8 files; without the second argument each page is a file
        args.insert(args.end(), {"--in-memory", "--single-file-segments"});
    else  // EAL 22.11 refuses --in-memory with --no-huge; without shared configuration nothing is left on disk either
        args.insert(args.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(heap_megabytes(config))});
    std::string lcores = "0@(" + joined(cpus) + ")";
    for (size_t i = 0; i < config.lcores.size(); ++i)
        lcores.append(",").append(std::to_string(i + 1)).append("@").append(config.lcores[i]);
    args.insert(args.end(), {"--lcores", lcores, "--main-lcore", "0"});
    // DPDK 22.11 uses 256-bit vectors by default.
    if (avx512) args.push_back("--force-max-simd-bitwidth=512");
    bool pci = false;
    for (const DeviceConfig& device : config.devices) {
        if (!is_ethdev(device.port)) continue;
        pci |= is_pci(device.port);
        args.insert(args.end(), {is_pci(device.port) ? "--allow" : "--vdev", eal_device(device)});
    }
    if (!pci) args.push_back("--no-pci");
    if (const uintptr_t base = base_address(pci); base != 0) args.push_back("--base-virtaddr=" + std::to_string(base));
    args.insert(args.end(), config.eal_args.begin(), config.eal_args.end());
    return args;
}

bool has_descriptors(const Config& config) {
    // EAL uses 10, and 10 more for a moment. A port of rove or of a driver uses about 4.
    const size_t wanted = 24 + 4 * config.devices.size();
    std::vector<FileDescriptor> files;
    while (files.size() < wanted && files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC)).is_open()) continue;
    return files.back().is_open();
}

bool prepare_eal(const Config& config, std::string* error) {
    for (const DeviceConfig& device : config.devices) {
        if (clear_socket(device, error)) continue;
        *error = config.file + ": " + *error;
        return false;
    }
    const size_t bytes = heap_megabytes(config) << 20;
    void* const heap = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap == MAP_FAILED) {
        *error = config.file + ": no memory for a start, " + std::to_string(bytes >> 20) + " MiB: ulimit -v";
        return false;
    }
    munmap(heap, bytes);
    return true;
}

bool start_eal(const Config& config, std::string* error) {
    const bool hugepages = hugepages_suffice(pool_megabytes(config) + 32);
    const std::vector<std::string> args =
        eal_arguments(config, allowed_cpus(), hugepages, __builtin_cpu_supports("avx512f") != 0);
    std::vector<std::string> copies = args;  // EAL permutes them and may write to them
    std::vector<char*> argv;
    for (std::string& arg : copies) argv.push_back(arg.data());
    argv.push_back(nullptr);
    rte_openlog_stream(stderr);  // the default would also write to syslog
    starts_eal = true;
    const int taken = rte_eal_init(static_cast<int>(argv.size() - 1), argv.data());
    starts_eal = false;
    if (taken < 0) {
        std::string line;
        for (const std::string& arg : args) line += " " + arg;
        *error = config.file + ": DPDK's EAL did not start (" + rte_strerror(rte_errno) + ") with:" + line;
        remove_runtime_folder();
        return false;
    }
    if (const char* rest = argv[static_cast<size_t>(taken) + 1]; rest != nullptr) {  // EAL itself ignores it
        *error = config.file + ": '" + rest + "' is no option of DPDK's EAL";
        remove_runtime_folder();
        return false;
    }
    // A memif client logs an error at every attempt while its peer is not there.
    rte_log_set_level_pattern("pmd.net.memif*", RTE_LOG_CRIT);
    // A tap logs errors about secondary processes, which do not exist, at every start.
    rte_log_set_level_pattern("pmd.net.tap*", RTE_LOG_CRIT);
    keep_runtime_folder();
    return true;
}

}  // namespace rove::datapath

// Shortens EAL's measurement of the TSC. If the CPU does not report its rate, EAL measures for 100 ms, a third of a
// program's start. EAL rounds the result to 10 MHz, and 5 ms suffice for that.
int __wrap_nanosleep(const timespec* duration, timespec* left) {
    static constexpr timespec kLongEnough{0, 5'000'000};
    return rove::libc::nanosleep(rove::datapath::starts_eal && rte_get_tsc_hz() == 0 ? &kLongEnough : duration, left);
}

// Resolves conflicts of fanout groups. net_af_packet makes one group of a port's sockets, whose number is the PID XOR
// the interface's number. Neighbouring processes on one host, such as the ranks of an MPI job, often get the same
// number, and the kernel has no groups across interfaces. Then this function tries other numbers, in the same order for
// all sockets of a port.
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

// Hides a shared librte_eal of the program. EAL calls dlopen() to find one and would load drivers for it, but they
// belong to the program. The call is not passed on either, because another thread may hold the dynamic loader's lock
// while a constructor waits for a device.
void* __wrap_dlopen(const char* file, int mode) noexcept {
    static const auto own = reinterpret_cast<decltype(&dlopen)>(rove::libc::find("dlopen"));
    const bool is_eal = rove::datapath::starts_eal && file != nullptr && std::strncmp(file, "librte_eal.so", 13) == 0;
    return is_eal ? nullptr : own(file, mode);
}

// Corrects vfio's answer for a NIC without MSI-X vectors, which claims that they could signal an eventfd. EAL would
// choose that mode, in which no interrupt ever comes, and log an error whenever the port starts or stops. With the
// corrected answer it chooses the next mode, MSI or INTx.
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
