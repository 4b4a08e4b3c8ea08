// SPDX-License-Identifier: Apache-2.0
// See sysfs.h. The files and their formats follow Linux's Documentation/ABI/stable/sysfs-class-infiniband.
#include "verbs/sysfs.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/files.h"
#include "link/address.h"
#include "port/port_name.h"
#include "verbs/objects.h"
#include "verbs/provider.h"
#include "verbs/rate.h"

namespace rove::verbs {

namespace {

constexpr std::string_view kClass = "/sys/class/infiniband", kDevices = "/dev/infiniband";
constexpr const char* kPrefix = "rove-sysfs-";

// The absolute path that a program means.
struct Name {
    std::string path;         // "" if it cannot be one of rove's
    bool is_private = false;  // the path is relative to a private folder, where the kernel resolves it
};

bool is_below(std::string_view path) {
    return path.starts_with(kClass) || path.starts_with(kDevices);
}

// Removes empty parts of a path and parts that are ".".
std::string squeezed(std::string_view path) {
    std::string result;
    for (size_t at = 0; at < path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        if (const std::string_view part = path.substr(at, end - at); !part.empty() && part != ".")
            (result += '/') += part;
        at = end + 1;
    }
    return path.ends_with('/') ? result + '/' : result;
}

// Removes the first part of `path` if it is "..". Returns true if it was.
bool take_upwards(std::string_view& path) {
    if (!path.starts_with("..") || (path.size() > 2 && path[2] != '/')) return false;
    path.remove_prefix(std::min(path.size(), path.find_first_not_of('/', 2)));
    return true;
}

Name name_of(int folder, std::string_view path) {
    if (path.starts_with('/')) {
        std::string whole = squeezed(path);
        return is_below(whole) ? Name{std::move(whole)} : Name{};
    }
    const bool upwards = path.starts_with("..");
    std::string base = target_of(folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(folder));
    if (!base.starts_with('/')) return {};
    const size_t ours = base.find(std::string("/") + kPrefix);
    if (ours != base.npos) base.erase(0, std::min(base.find('/', ours + 1), base.size()));
    while (take_upwards(path)) base.erase(std::min(base.rfind('/'), base.size()));
    Name name{squeezed((base += '/') += path)};
    name.is_private = ours != base.npos;
    return is_below(name.path) || (name.is_private && upwards) ? name : Name{};
}

// Returns bytes as groups of four hex digits: "fe80:0000:0000:0000:..." for 16 bytes, "0200:00ff:fe00:0001" for 8.
std::string in_groups(const uint8_t* bytes, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; i += 2) {
        char group[8];
        std::snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
        text += group;
    }
    return text;
}

void make_folder_of(const std::string& file) {
    make_folders(file.substr(0, file.rfind('/')));
}

void write(const std::string& file, const std::string& line) {
    make_folder_of(file);
    // A program that reads at this moment finds the old content or the new.
    const std::string temporary = file + ".new", text = line + "\n";
    const int made = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (made < 0) return;
    const bool whole = ::write(made, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(made);
    if (whole) rename(temporary.c_str(), file.c_str());
}

// Makes a symbolic link. A file that exists stays.
void link(const std::string& target, const std::string& file) {
    make_folder_of(file);
    [[maybe_unused]] const int failed = symlink(target.c_str(), file.c_str());
}

// Returns the GID table as the runtime makes it (datapath::RdmaInterface). The first GID is zero until the datapath
// runs if only the driver knows the MAC.
std::vector<wire::Gid> gids_of(const Device& device) {
    if (device.interface != nullptr) return device.interface->gids();
    const auto mac = datapath::mac_before_start(*device.config);
    std::vector<wire::Gid> gids{mac ? datapath::link_local_gid(*mac) : wire::Gid{}};
    for (const std::string& address : device.config->addresses)
        gids.push_back(datapath::parse_subnet(address)->address);
    return gids;
}

bool is_up(const Device& device) {
    return device.interface == nullptr || device.interface->link_up();
}

uint32_t rate_mbps(const Device& device) {
    return device.interface != nullptr ? device.interface->rate_mbps() : datapath::known_rate_mbps(*device.config);
}

// Returns the state that may change while the process lives, as a text to compare.
std::string state_of(const Provider& provider) {
    std::string state;
    for (const auto& device : provider.described()) {
        (state += is_up(*device) ? 'u' : 'd').append(std::to_string(rate_mbps(*device)));
        for (const wire::Gid& gid : gids_of(*device)) state += in_groups(gid.data(), gid.size());
    }
    return state;
}

void write_port(const std::string& port, const Device& device) {
    const bool up = is_up(device);
    write(port + "/state", up ? "4: ACTIVE" : "1: DOWN");
    write(port + "/phys_state", up ? "5: LinkUp" : "3: Disabled");
    write(port + "/rate", rate_of(rate_mbps(device)).text);
    write(port + "/link_layer", "Ethernet");
    write(port + "/cap_mask", "0x04010000");
    write(port + "/lid", "0x0");
    write(port + "/lid_mask_count", "0");
    write(port + "/sm_lid", "0x0");
    write(port + "/sm_sl", "0");
    write(port + "/pkeys/0", "0xffff");
    const std::string interface = datapath::kernel_interface(*device.config);
    const std::vector<wire::Gid> gids = gids_of(device);
    for (size_t i = 0; i < gids.size(); ++i) {
        const std::string index = std::to_string(i);
        write(port + "/gids/" + index, in_groups(gids[i].data(), gids[i].size()));
        if (gids[i] == wire::Gid{}) {  // an empty entry has no attributes
            for (const char* attribute : {"types", "ndevs"})
                unlink((port + "/gid_attrs/" + attribute + "/" + index).c_str());
            continue;
        }
        write(port + "/gid_attrs/types/" + index, "RoCE v2");
        // The kernel has no name here either for a GID without an interface.
        if (!interface.empty()) write(port + "/gid_attrs/ndevs/" + index, interface);
    }
    make_folders(port + "/gid_attrs/ndevs");
}

// Returns the folder of a device without hardware. Programs read the last part of `device`'s real path as a PCI
// address, and libfabric warns if it is not one. This address is in a PCI domain of its own, so no PCI bus has it.
std::string place_without_hardware(const std::string& root, size_t index) {
    char name[32];
    std::snprintf(name, sizeof name, "ffff:%02zx:00.0", index & 0xFF);
    return root + "/sys/devices/" + name;
}

void write_device(const std::string& root, const Device& device, size_t index) {
    const std::string name = device.name, uverbs = uverbs_name(name);
    const std::string folder = root + "/sys/class/infiniband/" + name;
    const __be64 guid = device.guid;
    const std::string guid_text = in_groups(reinterpret_cast<const uint8_t*>(&guid), sizeof guid);
    write(folder + "/node_type", "1: CA");
    write(folder + "/node_guid", guid_text);
    write(folder + "/sys_image_guid", guid_text);
    write(folder + "/node_desc", name);
    write(folder + "/fw_ver", "rove");
    write(folder + "/hca_type", "rove");
    write(folder + "/hw_rev", "0");
    write_port(folder + "/ports/1", device);

    const std::string verbs = root + "/sys/class/infiniband_verbs/" + uverbs;
    write(verbs + "/ibdev", name);
    write(verbs + "/abi_version", "1");
    if (const std::string hardware = datapath::sysfs_device(*device.config); !hardware.empty()) {
        link(hardware, folder + "/device");
    } else {
        const std::string place = place_without_hardware(root, index);
        write(place + "/numa_node", std::to_string(device.config->numa_node));
        link(place, folder + "/device");
    }
    link(folder + "/device", verbs + "/device");
    link("/dev/null", root + "/dev/infiniband/" + uverbs);
}

// Links the entries of the real folder, so that listings show the hardware too.
void link_others(const std::string& real, const std::string& folder) {
    for (const std::string& name : names_in(real)) link(real + "/" + name, folder + "/" + name);
}

// Returns true if the process that made the folder `name` has become another program whose working directory is in it.
bool is_working_directory(const std::string& name) {
    const size_t begin = std::string_view(kPrefix).size();
    const std::string pid = name.substr(begin, name.find('-', begin) - begin);
    return target_of("/proc/" + pid + "/cwd").find("/" + name) != std::string::npos;
}

// Removes the folders of processes that have ended, which show by their free lock.
void sweep(const std::string& parent) {
    for (const std::string& name : names_in(parent)) {
        if (!name.starts_with(kPrefix) || is_working_directory(name)) continue;
        const std::string folder = parent + "/" + name;
        const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (file < 0) continue;
        struct stat status;
        if (fstat(file, &status) == 0 && status.st_uid == geteuid() && flock(file, LOCK_EX | LOCK_NB) == 0)
            remove_all(folder);
        close(file);
    }
}

// Returns the folder that std::filesystem::temp_directory_path() would return.
std::string temporary_folder() {
    for (const char* const name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})
        if (const char* const value = std::getenv(name); value != nullptr) return value;
    return "/tmp";
}

}  // namespace

std::string uverbs_name(std::string_view device) {
    return "uverbs_" + std::string(device);
}

bool Sysfs::exists() const {
    struct stat status;
    return !folder_.empty() && stat(folder_.c_str(), &status) == 0;
}

bool Sysfs::make() {
    const std::string parent = temporary_folder();
    if (!is_directory(parent)) return false;
    sweep(parent);
    std::string folder;
    if (file_ >= 0 && pid_ == getpid()) close(file_);
    // Another process may sweep the folder away before it is locked. Then the lock is busy, or the folder does not
    // exist.
    for (bool ours = false; !ours;) {
        folder = parent + "/" + kPrefix + std::to_string(getpid()) + "-XXXXXX";
        if (mkdtemp(folder.data()) == nullptr) return false;
        file_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat status;
        if (file_ < 0 && errno != ENOENT) return false;
        // On a file system without locks no process sweeps.
        const bool swept = file_ < 0 || (flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
        ours = !swept && fstat(file_, &status) == 0 && status.st_nlink != 0;
        if (!ours && file_ >= 0) close(file_);
    }
    chmod(folder.c_str(), 0755);  // a process that drops its privileges can still read
    folder_ = folder;
    pid_ = getpid();
    written_.clear();
    for (const std::string_view listed : {kClass, kDevices})
        link_others(std::string(listed), folder_ + std::string(listed));
    link("/dev/null", folder_ + kRdmaCmDevice);
    return true;
}

bool Sysfs::is_rdma_cm(int folder, std::string_view path) {
    return path.ends_with("rdma_cm") && name_of(folder, path).path == kRdmaCmDevice;
}

std::string Sysfs::instead(Provider& (*provider)(), int folder, std::string_view path) {
    const int before = errno;
    Name name = name_of(folder, path);
    errno = before;
    if (name.path.empty()) return {};
    if (!name.is_private) return instead(provider(), name.path);
    return is_below(name.path) ? std::string() : std::move(name.path);
}

std::string Sysfs::instead(Provider& provider, const std::string& path) {
    const auto devices = provider.described();
    if (devices.empty()) return {};
    const std::string_view whole = path;
    // Splits "/sys/class/infiniband/rove0/ports" into the folder and the device's name.
    const size_t begin = whole.starts_with(kClass) ? whole.find('/', kClass.size()) : whole.find('/', kDevices.size());
    const std::string_view folder = whole.substr(0, begin);
    const bool verbs = folder == "/sys/class/infiniband_verbs";
    if (folder != kClass && folder != kDevices && !verbs) return {};
    std::string_view name = begin == whole.npos ? std::string_view() : whole.substr(begin + 1);
    while (name.starts_with('/')) name.remove_prefix(1);
    name = name.substr(0, name.find('/'));
    bool ours = name.empty() && !verbs;  // libibverbs lists infiniband_verbs, and would find devices without a driver
    for (const auto& device : devices)
        ours |= folder == kClass ? name == device->name : name == uverbs_name(device->name);
    ours |= whole == kRdmaCmDevice && !provider.devices().empty();
    if (!ours) return {};

    // While this function runs, its own file accesses see the real files.
    static thread_local bool inside = false;
    if (inside) return {};
    inside = true;
    const int before = errno;
    const std::lock_guard guard(mutex_);
    std::string found;
    if (exists() || make()) {
        if (const std::string state = state_of(provider); state != written_) {
            for (size_t i = 0; i < devices.size(); ++i) write_device(folder_, *devices[i], i);
            written_ = state;
        }
        found = folder_ + path;
    }
    errno = before;
    inside = false;
    return found;
}

void Sysfs::remove() {
    if (pid_ != getpid()) return;  // a child that ran no fork handlers may find the mutex held
    const std::lock_guard guard(mutex_);
    if (folder_.empty()) return;
    remove_all(folder_);
    folder_.clear();
}

}  // namespace rove::verbs
