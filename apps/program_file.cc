// SPDX-License-Identifier: Apache-2.0
// Implements program_file.h.
#include "program_file.h"

#include <elf.h>
#include <endian.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace rove {

namespace {

constexpr int kMaxInterpreters = 4;  // how often a script's interpreter may be a script itself (Linux: exec.c)
constexpr uint64_t kMaxHeaders =
    1 << 16;                         // the longest table in bytes that is read; a longer one belongs to no program
constexpr size_t kScriptLine = 256;  // BINPRM_BUF_SIZE of Linux

class File {
  public:
    explicit File(const std::string& name) : stream_(name, std::ios::binary) {}

    // Reads `bytes` bytes at `offset`, or fewer at the end of the file.
    std::string read(uint64_t offset, uint64_t bytes) {
        std::string content(bytes, '\0');
        stream_.clear();
        stream_.seekg(static_cast<std::streamoff>(offset));
        stream_.read(content.data(), static_cast<std::streamsize>(bytes));
        content.resize(static_cast<size_t>(stream_.gcount()));
        return content;
    }

    template <class T>
    std::vector<T> table(uint64_t offset, uint64_t bytes) {
        if (bytes > kMaxHeaders) return {};
        const std::string content = read(offset, bytes);
        std::vector<T> entries(content.size() / sizeof(T));
        std::memcpy(entries.data(), content.data(), entries.size() * sizeof(T));
        return entries;
    }

  private:
    std::ifstream stream_;
};

struct Program {
    bool same_machine = true;  // true if it runs on the machine that this program was built for
    bool executable = false;   // ET_EXEC or a position-independent executable, not a shared object like ld.so
    std::optional<std::string> interpreter;  // the dynamic loader
};

// Returns nothing if the file is not in ELF. The headers of a program for another machine are not read.
std::optional<Program> read_program(File& file) {
    const std::vector<Elf64_Ehdr> headers = file.table<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr));
    if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
    const Elf64_Ehdr& header = headers[0];
    File own_file("/proc/self/exe");
    const std::vector<Elf64_Ehdr> own = own_file.table<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr));
    Program program;
    program.same_machine =
        own.empty() || (header.e_machine == own[0].e_machine && header.e_ident[EI_CLASS] == own[0].e_ident[EI_CLASS]);
    if (!program.same_machine || header.e_phentsize != sizeof(Elf64_Phdr)) return program;
    program.executable = header.e_type == ET_EXEC;
    const auto segments = file.table<Elf64_Phdr>(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
    for (const Elf64_Phdr& segment : segments) {
        if (segment.p_type == PT_INTERP && segment.p_filesz <= kMaxHeaders)
            program.interpreter = file.read(segment.p_offset, segment.p_filesz).c_str();
        if (segment.p_type != PT_DYNAMIC) continue;
        for (const Elf64_Dyn& entry : file.table<Elf64_Dyn>(segment.p_offset, segment.p_filesz))
            if (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_PIE) != 0) program.executable = true;
    }
    return program;
}

// Returns the interpreter of a script ("#!/bin/sh -e" names /bin/sh), or nothing for another file.
std::optional<std::string> script_interpreter(File& file) {
    const std::string begin = file.read(0, kScriptLine);
    if (begin.rfind("#!", 0) != 0) return std::nullopt;
    std::istringstream line(begin.substr(2, begin.find('\n') - 2));
    std::string interpreter;
    line >> interpreter;
    return interpreter;
}

std::string base_name(const std::string& path) {
    return path.substr(path.find_last_of('/') + 1);
}

// Returns true if the file's capabilities raise what this process may do, after the bounding set has removed some.
// Capabilities with the effective bit count even if new privileges are forbidden.
bool gives_capabilities(const std::string& file, bool no_new_privileges) {
    vfs_cap_data data{};
    if (getxattr(file.c_str(), "security.capability", &data, sizeof(data)) < static_cast<ssize_t>(XATTR_CAPS_SZ_1))
        return false;
    if ((le32toh(data.magic_etc) & VFS_CAP_FLAGS_EFFECTIVE) != 0) return true;
    if (no_new_privileges) return false;
    for (unsigned capability = 0; capability < 64; ++capability) {
        const uint32_t word = le32toh(data.data[capability / 32].permitted);
        if ((word >> capability % 32 & 1) != 0 && prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1) return true;
    }
    return false;
}

// Returns the reason why ld.so ignores LD_PRELOAD (AT_SECURE in ld.so(8)), or "". Linux decides it in
// cap_bprm_creds_from_file().
std::string secure_reason(const std::string& file) {
    struct stat status;
    struct statvfs system;
    if (stat(file.c_str(), &status) != 0) return {};
    if (statvfs(file.c_str(), &system) == 0 && (system.f_flag & ST_NOSUID) != 0) return {};
    const bool no_new_privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    if (getuid() != 0 && gives_capabilities(file, no_new_privileges)) return "has file capabilities";
    if (no_new_privileges) return {};
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) return "is set-user-ID";
    if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getgid())
        return "is set-group-ID";
    return {};
}

std::string own_loader() {
    File file("/proc/self/exe");
    const auto program = read_program(file);
    return program && program->interpreter ? base_name(*program->interpreter) : std::string();
}

}  // namespace

std::string find_program(const std::string& name) {
    const auto runs = [](const std::string& path) {
        struct stat status;
        return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
    };
    if (name.find('/') != std::string::npos) return runs(name) ? name : std::string();
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (const std::string found = (folder.empty() ? "." : folder) + "/" + name; runs(found)) return found;
    return {};
}

NotPreloaded why_not_preloaded(const std::string& name) {
    std::string file_name = name;
    for (int i = 0; i <= kMaxInterpreters; ++i) {
        File file(file_name);
        const std::string subject = i == 0 ? name : name + ": its interpreter " + file_name;
        if (const auto interpreter = script_interpreter(file)) {
            file_name = *interpreter;
            continue;
        }
        const auto program = read_program(file);
        if (!program) return {};
        if (!program->same_machine) return {subject + " is for another machine than rove"};
        if (!program->interpreter && program->executable) return {subject + " is statically linked"};
        if (const std::string secure = secure_reason(file_name); !secure.empty()) return {subject + " " + secure};
        const std::string loader = own_loader();
        if (program->interpreter && !loader.empty() && base_name(*program->interpreter) != loader)
            return {subject + " is for another C library, with the loader " + *program->interpreter, true};
        return {};
    }
    return {};
}

}  // namespace rove
