// SPDX-License-Identifier: Apache-2.0
// See sysfs.h. The files are those of Documentation/ABI/stable/sysfs-class-infiniband of Linux, in its formats.
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

// An absolute path as the program means it.
struct Name {
    std::string path;         // "" if it can be none of ours
    bool is_private = false;  // the path is relative to a private folder, in which the kernel looks for it
};

bool is_below(std::string_view path) {
    return path.starts_with(kClass) || path.starts_with(kDevices);
}

// Removes empty parts of a path and those that are ".".
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

// Returns whether the first part of `path` is "..", and removes it.
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

// "fe80:0000:0000:0000:..." of 16 bytes, "0200:00ff:fe00:0001" of 8.
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
    // A program that reads meanwhile finds the old content or the new one.
    const std::string temporary = file + ".new", text = line + "\n";
    const int made = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (made < 0) return;
    const bool whole = ::write(made, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(made);
    if (whole) rename(temporary.c_str(), file.c_str());
}

// A file that is there already stays.
void link(const std::string& target, const std::string& file) {
    make_folder_of(file);
    [[maybe_unused]] const int failed = symlink(target.c_str(), file.c_str());
}

// As the runtime makes the table (datapath::RdmaInterface). Zeros where the MAC is the driver's secret until it runs.
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

// What may change while the process lives.
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
        if (gids[i] == wire::Gid{}) {  // no address, so nothing to say of it
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

// Returns the folder of a device that no hardware stands behind. Programs take the last part of the real path of
// `device` for a PCI address, and libfabric warns if it is none: this is one that no PCI bus has, in a domain of its
// own.
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

// Listings have what is really there, too.
void link_others(const std::string& real, const std::string& folder) {
    for (const std::string& name : names_in(real)) link(real + "/" + name, folder + "/" + name);
}

// Returns true if the process that has made the folder `name` became another program whose working directory is in it.
bool is_working_directory(const std::string& name) {
    const size_t begin = std::string_view(kPrefix).size();
    const std::string pid = name.substr(begin, name.find('-', begin) - begin);
    return target_of("/proc/" + pid + "/cwd").find("/" + name) != std::string::npos;
}

// Of processes that have gone: nobody holds the lock.
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

// Returns the folder that std::filesystem::temp_directory_path() would.
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
    // Between making and locking it, another process may sweep it away: then there is no lock to be had, or no folder.
    for (bool ours = false; !ours;) {
        folder = parent + "/" + kPrefix + std::to_string(getpid()) + "-XXXXXX";
        if (mkdtemp(folder.data()) == nullptr) return false;
        file_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat status;
        if (file_ < 0 && errno != ENOENT) return false;
        // (Where the file system knows no locks, nobody sweeps.)
        const bool swept = file_ < 0 || (flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
        ours = !swept && fstat(file_, &status) == 0 && status.st_nlink != 0;
        if (!ours && file_ >= 0) close(file_);
    }
    chmod(folder.c_str(), 0755);  // a process that gives up its privileges goes on reading
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
    // Of "/sys/class/infiniband/rove0/ports" the folder, and the name in it.
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

    // What we read ourselves meanwhile is what is really there.
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
    if (pid_ != getpid()) return;  // a child that ran no handlers may find the mutex held
    const std::lock_guard guard(mutex_);
    if (folder_.empty()) return;
    remove_all(folder_);
    folder_.clear();
}

}  // namespace rove::verbs
