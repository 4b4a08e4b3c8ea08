// SPDX-License-Identifier: Apache-2.0
// The functions of the C library that are more than one system call. They call libc's own functions, which are looked
// up in libc.so.6 itself. Some of those are cancellation points, so a thread cannot be cancelled while it is in one.
// See libc.h.
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <ifaddrs.h>
#include <link.h>
#include <net/if.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "base/dpdk_files.h"
#include "base/libc.h"

namespace rove::libc {

namespace {

// The tables in libc.so.6 that the dynamic loader uses to find its symbols.
struct Symbols {
    uintptr_t base = 0;
    const ElfW(Sym) * symbols = nullptr;
    const char* names = nullptr;
    const ElfW(Half) * versions = nullptr;
    const uint32_t* hash = nullptr;  // DT_GNU_HASH
};

int read_tables(dl_phdr_info* library, size_t, void* into) {
    const char* const slash = strrchr(library->dlpi_name, '/');
    if (strcmp(slash != nullptr ? slash + 1 : library->dlpi_name, "libc.so.6") != 0) return 0;
    Symbols& tables = *static_cast<Symbols*>(into);
    tables.base = library->dlpi_addr;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        if (library->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        // The loader has replaced the offsets in this table by addresses.
        const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(tables.base + library->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; ++entry) {
            const auto* const table = reinterpret_cast<const void*>(entry->d_un.d_ptr);
            if (entry->d_tag == DT_SYMTAB) tables.symbols = static_cast<const ElfW(Sym)*>(table);
            if (entry->d_tag == DT_STRTAB) tables.names = static_cast<const char*>(table);
            if (entry->d_tag == DT_VERSYM) tables.versions = static_cast<const ElfW(Half)*>(table);
            if (entry->d_tag == DT_GNU_HASH) tables.hash = static_cast<const uint32_t*>(table);
        }
    }
    return 1;
}

uint32_t hash_of(const char* name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<uint8_t>(*name);
    return hash;
}

void* look_up(const Symbols& in, const char* name) {
    constexpr ElfW(Half) kHidden = 0x8000;  // set if this is not the default version of the symbol
    if (in.hash == nullptr || in.symbols == nullptr || in.names == nullptr || in.versions == nullptr) return nullptr;
    const uint32_t buckets = in.hash[0], first = in.hash[1], words = in.hash[2];
    const uint32_t* const bucket = in.hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t* const chain = bucket + buckets;
    const uint32_t hash = hash_of(name);
    uint32_t at = bucket[hash % buckets];
    if (at < first) return nullptr;
    for (;; ++at) {
        const uint32_t found = chain[at - first];
        const ElfW(Sym)& symbol = in.symbols[at];
        if ((found | 1) == (hash | 1) && (in.versions[at] & kHidden) == 0 && symbol.st_shndx != SHN_UNDEF &&
            strcmp(in.names + symbol.st_name, name) == 0)
            return reinterpret_cast<void*>(in.base + symbol.st_value);
        if ((found & 1) != 0) return nullptr;  // end of the bucket
    }
}

// Returns libc's own `Declared`, which is looked up by `name` on the first call.
template <auto* Declared>
decltype(Declared) own(const char* name) {
    static constinit decltype(Declared) function = nullptr;
    decltype(Declared) found = __atomic_load_n(&function, __ATOMIC_RELAXED);
    if (found == nullptr) {
        found = reinterpret_cast<decltype(Declared)>(find(name));
        __atomic_store_n(&function, found, __ATOMIC_RELAXED);
    }
    return found;
}

}  // namespace

void* find(const char* name) {
    Symbols tables;
    dl_iterate_phdr(read_tables, &tables);
    void* const found = look_up(tables, name);
    if (found == nullptr) abort();  // not the C library that this was built for
    return found;
}

}  // namespace rove::libc

using namespace rove::libc;

#pragma GCC visibility push(hidden)
extern "C" {

#define ROVE_OWN(name) own<&::name>(#name)
#define ROVE_OWN_CALL(result, wrapper, name, parameters, arguments) \
    result wrapper parameters {                                     \
        const NoCancellation guard;                                 \
        return ROVE_OWN(name) arguments;                            \
    }

// --- streams
// Adds 'e' (close-on-exec) to the mode, even if the caller's mode has it already.
FILE* __wrap_fopen64(const char* path, const char* mode) {
    const NoCancellation guard;
    char with_e[16] = "";
    snprintf(with_e, sizeof(with_e), "%se", mode);
    return ROVE_OWN(fopen64)(path, with_e);
}
FILE* __wrap_fopen(const char* path, const char* mode) {
    return __wrap_fopen64(path, mode);
}
ROVE_OWN_CALL(FILE*, __wrap_fdopen, fdopen, (int file, const char* mode), (file, mode))
ROVE_OWN_CALL(FILE*, __wrap_popen, popen, (const char* command, const char* mode), (command, mode))
ROVE_OWN_CALL(int, __wrap_pclose, pclose, (FILE * stream), (stream))
ROVE_OWN_CALL(int, __wrap_fclose, fclose, (FILE * stream), (stream))
ROVE_OWN_CALL(int, __wrap_fflush, fflush, (FILE * stream), (stream))
ROVE_OWN_CALL(void, __wrap_rewind, rewind, (FILE * stream), (stream))
ROVE_OWN_CALL(size_t, __wrap_fread, fread, (void* to, size_t size, size_t count, FILE* stream),
              (to, size, count, stream))
ROVE_OWN_CALL(size_t, __wrap_fwrite, fwrite, (const void* from, size_t size, size_t count, FILE* stream),
              (from, size, count, stream))
ROVE_OWN_CALL(int, __wrap_fgetc, fgetc, (FILE * stream), (stream))
ROVE_OWN_CALL(char*, __wrap_fgets, fgets, (char* to, int room, FILE* stream), (to, room, stream))
ROVE_OWN_CALL(ssize_t, __wrap_getdelim, getdelim, (char** line, size_t* room, int end, FILE* stream),
              (line, room, end, stream))
ROVE_OWN_CALL(ssize_t, __wrap___getdelim, getdelim, (char** line, size_t* room, int end, FILE* stream),
              (line, room, end, stream))
ROVE_OWN_CALL(ssize_t, __wrap_getline, getline, (char** line, size_t* room, FILE* stream), (line, room, stream))
ROVE_OWN_CALL(int, __wrap_fputc, fputc, (int character, FILE* stream), (character, stream))
ROVE_OWN_CALL(int, __wrap_fputs, fputs, (const char* text, FILE* stream), (text, stream))
ROVE_OWN_CALL(int, __wrap_putchar, putchar, (int character), (character))
ROVE_OWN_CALL(int, __wrap_puts, puts, (const char* text), (text))
ROVE_OWN_CALL(void, __wrap_perror, perror, (const char* text), (text))

#define ROVE_VARIADIC(result, wrapper, parameters, last, call) \
    result wrapper parameters {                                \
        const NoCancellation guard;                            \
        va_list rest;                                          \
        va_start(rest, last);                                  \
        const result done = call;                              \
        va_end(rest);                                          \
        return done;                                           \
    }
ROVE_VARIADIC(int, __wrap_printf, (const char* format, ...), format, ROVE_OWN(vprintf)(format, rest))
ROVE_VARIADIC(int, __wrap_fprintf, (FILE * stream, const char* format, ...), format,
              ROVE_OWN(vfprintf)(stream, format, rest))
ROVE_VARIADIC(int, __wrap___printf_chk, (int, const char* format, ...), format, ROVE_OWN(vprintf)(format, rest))
ROVE_VARIADIC(int, __wrap___fprintf_chk, (FILE * stream, int, const char* format, ...), format,
              ROVE_OWN(vfprintf)(stream, format, rest))
ROVE_VARIADIC(int, __wrap___isoc99_fscanf, (FILE * stream, const char* format, ...), format,
              ROVE_OWN(vfscanf)(stream, format, rest))
ROVE_VARIADIC(int, __wrap___isoc23_fscanf, (FILE * stream, const char* format, ...), format,
              ROVE_OWN(vfscanf)(stream, format, rest))
ROVE_OWN_CALL(int, __wrap_vprintf, vprintf, (const char* format, va_list rest), (format, rest))
ROVE_OWN_CALL(int, __wrap_vfprintf, vfprintf, (FILE * stream, const char* format, va_list rest), (stream, format, rest))
ROVE_OWN_CALL(int, __wrap___vprintf_chk, vprintf, (int, const char* format, va_list rest), (format, rest))
ROVE_OWN_CALL(int, __wrap___vfprintf_chk, vfprintf, (FILE * stream, int, const char* format, va_list rest),
              (stream, format, rest))
ROVE_OWN_CALL(int, __wrap_vdprintf, vdprintf, (int file, const char* format, va_list rest), (file, format, rest))
ROVE_OWN_CALL(int, __wrap___vdprintf_chk, vdprintf, (int file, int, const char* format, va_list rest),
              (file, format, rest))
ROVE_OWN_CALL(void, __wrap_vsyslog, vsyslog, (int priority, const char* format, va_list rest), (priority, format, rest))
ROVE_OWN_CALL(void, __wrap___vsyslog_chk, vsyslog, (int priority, int, const char* format, va_list rest),
              (priority, format, rest))
void __wrap_syslog(int priority, const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    __wrap_vsyslog(priority, format, rest);
    va_end(rest);
}
void __wrap___syslog_chk(int priority, int, const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    __wrap_vsyslog(priority, format, rest);
    va_end(rest);
}
ROVE_OWN_CALL(void, __wrap_openlog, openlog, (const char* name, int options, int facility), (name, options, facility))
ROVE_OWN_CALL(void, __wrap_closelog, closelog, (void), ())

// --- folders and paths
ROVE_OWN_CALL(DIR*, __wrap_opendir, opendir, (const char* path), (path))
ROVE_OWN_CALL(DIR*, __wrap_fdopendir, fdopendir, (int file), (file))
ROVE_OWN_CALL(dirent64*, __wrap_readdir64, readdir64, (DIR * folder), (folder))
ROVE_OWN_CALL(void, __wrap_rewinddir, rewinddir, (DIR * folder), (folder))
ROVE_OWN_CALL(int, __wrap_closedir, closedir, (DIR * folder), (folder))
ROVE_OWN_CALL(int, __wrap_glob64, glob64,
              (const char* pattern, int flags, int (*error)(const char*, int), glob64_t* found),
              (pattern, flags, error, found))
ROVE_OWN_CALL(char*, __wrap_realpath, realpath, (const char* path, char* resolved), (path, resolved))
ROVE_OWN_CALL(char*, __wrap___realpath_chk, realpath, (const char* path, char* resolved, size_t), (path, resolved))
ROVE_OWN_CALL(int, __wrap_faccessat, faccessat, (int folder, const char* path, int mode, int flags),
              (folder, path, mode, flags))
ROVE_OWN_CALL(int, __wrap_remove, remove, (const char* path), (path))
ROVE_OWN_CALL(char*, __wrap_mkdtemp, mkdtemp, (char* path), (path))
int __wrap_mkstemp64(char* path) {
    const NoCancellation guard;
    return record_file(ROVE_OWN(mkostemp64)(path, O_CLOEXEC));
}
ROVE_OWN_CALL(int, __wrap_lockf64, lockf64, (int file, int command, off64_t bytes), (file, command, bytes))

// --- calls for which libc reads files or asks sockets
ROVE_OWN_CALL(int, __wrap_getifaddrs, getifaddrs, (ifaddrs * *list), (list))
ROVE_OWN_CALL(struct if_nameindex*, __wrap_if_nameindex, if_nameindex, (void), ())
ROVE_OWN_CALL(char*, __wrap_if_indextoname, if_indextoname, (unsigned index, char* name), (index, name))
ROVE_OWN_CALL(unsigned, __wrap_if_nametoindex, if_nametoindex, (const char* name), (name))
ROVE_OWN_CALL(passwd*, __wrap_getpwuid, getpwuid, (uid_t user), (user))
ROVE_OWN_CALL(tm*, __wrap_localtime, localtime, (const time_t* time), (time))

}  // extern "C"
#pragma GCC visibility pop
