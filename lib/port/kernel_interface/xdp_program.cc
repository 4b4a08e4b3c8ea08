// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/xdp_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/text.h"

namespace rove::datapath {

namespace {

alignas(8) constexpr unsigned char kObject[] = {
#include "roce_bpf.h"
};

// Silences libbpf, because errors are reported in one line of our own. The program may use the same library.
struct SilencedLibbpf {
    ~SilencedLibbpf() { libbpf_set_print(before); }
    const libbpf_print_fn_t before = libbpf_set_print(nullptr);
};

}  // namespace

std::unique_ptr<XdpProgram> XdpProgram::load(uint32_t queues, std::string* error) {
    const SilencedLibbpf quiet;
    bpf_object* const object = bpf_object__open_mem(kObject, sizeof kObject, nullptr);
    if (object == nullptr) {
        *error = "libbpf: " + reason_of(errno);
        return nullptr;
    }
    std::unique_ptr<XdpProgram> program(new XdpProgram(object));
    bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "sockets"), queues);
    if (const int result = bpf_object__load(object); result != 0) {
        *error = "the kernel does not load our XDP program: " + reason_of(-result);
        return nullptr;
    }
    return program;
}

XdpProgram::~XdpProgram() {
    detach();
    bpf_object__close(object_);
}

int XdpProgram::file() const {
    return bpf_program__fd(bpf_object__find_program_by_name(object_, "to_sockets"));
}

int XdpProgram::map(const char* name) const {
    return bpf_map__fd(bpf_object__find_map_by_name(object_, name));
}

// Attaches by a link, which ends with its file. An attachment by netlink would outlive a process that is killed.
bool XdpProgram::attach(unsigned interface, std::string* error) {
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    link_ = bpf_link_create(file(), static_cast<int>(interface), BPF_XDP, &options);
    if (link_ >= 0) return true;
    *error = link_ == -EBUSY || link_ == -EEXIST ? "another XDP program is attached to it"
                                                 : "the kernel attaches no XDP program: " + reason_of(-link_);
    return false;
}

void XdpProgram::detach() {
    if (const int link = std::exchange(link_, -1); link >= 0) close(link);
}

bool XdpProgram::lead(uint32_t queue, int socket) {
    return bpf_map_update_elem(map("sockets"), &queue, &socket, BPF_ANY) == 0;
}

bool XdpProgram::take(const wire::Gid& address) {
    const uint8_t any = 0;
    return bpf_map_update_elem(map("addresses"), address.data(), &any, BPF_ANY) == 0;
}

void XdpProgram::leave(const wire::Gid& address) {
    bpf_map_delete_elem(map("addresses"), address.data());
}

}  // namespace rove::datapath
