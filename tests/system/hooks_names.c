/* SPDX-License-Identifier: Apache-2.0
 * Reads the first device's files in sysfs by names that are not absolute: below an open folder, below the working
 * directory, by a pattern, and by absolute names that are written in another way. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fprintf(stderr, " (line %d, errno %d)\n", __LINE__, errno), exit(1))

static char guid[64];

static void holds_guid(int file, const char* how) {
    char text[64] = "";
    if (file < 0 || read(file, text, sizeof(text) - 1) <= 0 || strcmp(text, guid) != 0) FAIL("%s: '%s'", how, text);
    close(file);
}

static int lists(DIR* folder, const char* wanted) {
    int found = 0;
    if (folder == NULL) FAIL("no folder to look for %s in", wanted);
    for (struct dirent* entry; (entry = readdir(folder)) != NULL;) found |= strcmp(entry->d_name, wanted) == 0;
    closedir(folder);
    return found;
}

static void below(int folder, const char* prefix) {
    char name[PATH_MAX], target[PATH_MAX];
    struct stat status;
    struct statx more;
    snprintf(name, sizeof(name), "%srove0/node_guid", prefix);
    holds_guid(openat(folder, name, O_RDONLY), name);
    if (fstatat(folder, name, &status, 0) != 0 || !S_ISREG(status.st_mode)) FAIL("fstatat of %s", name);
    if (statx(folder, name, 0, STATX_TYPE, &more) != 0 || !S_ISREG(more.stx_mode)) FAIL("statx of %s", name);
    if (faccessat(folder, name, R_OK, 0) != 0) FAIL("faccessat of %s", name);
    snprintf(name, sizeof(name), "%srove0/device", prefix);
    if (readlinkat(folder, name, target, sizeof(target)) <= 0) FAIL("readlinkat of %s", name);
    snprintf(name, sizeof(name), "%srove0/ports", prefix);
    if (!lists(fdopendir(openat(folder, name, O_RDONLY | O_DIRECTORY)), "1")) FAIL("%s is not listed", name);
    snprintf(name, sizeof(name), "%srove1", prefix);
    if (openat(folder, name, O_RDONLY) >= 0 || errno != ENOENT) FAIL("there is %s", name);
}

static void match(const char* pattern, size_t count, const char* first) {
    glob_t found;
    memset(&found, 0xFF, sizeof(found));
    const int result = glob(pattern, 0, NULL, &found);
    if (count == 0 && result == GLOB_NOMATCH) return;
    if (result != 0 || found.gl_pathc != count || strcmp(found.gl_pathv[0], first) != 0)
        FAIL("glob of %s: %d, %zu of %zu, %s", pattern, result, found.gl_pathc, count, first);
    globfree(&found);
}

int main(void) {
    FILE* file = fopen("/sys/class/infiniband/rove0/node_guid", "r");
    if (file == NULL || fgets(guid, sizeof(guid), file) == NULL) FAIL("the absolute name");
    fclose(file);

    static const char* const folders[][2] = {{"/sys/class/infiniband", ""},  {"/sys/class/infiniband/", "./"},
                                             {"/sys/class", "infiniband/"},  {"/sys/class/net", "../infiniband/"},
                                             {"/", "sys/class/infiniband/"}, {"/sys", "./class//infiniband/./"}};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); ++i) {
        const int folder = open(folders[i][0], O_RDONLY | O_DIRECTORY);
        const int path = open(folders[i][0], O_PATH);
        if (folder < 0 || path < 0) FAIL("open of %s", folders[i][0]);
        below(folder, folders[i][1]);
        below(path, folders[i][1]);
        if (chdir("/") != 0 || chdir(folders[i][0]) != 0) FAIL("chdir to %s", folders[i][0]);
        below(AT_FDCWD, folders[i][1]);
        if (chdir("/") != 0 || fchdir(folder) != 0) FAIL("fchdir to %s", folders[i][0]);
        below(AT_FDCWD, folders[i][1]);
        close(folder);
        close(path);
    }
    static const char* const names[] = {"//sys/class/infiniband/rove0/node_guid",
                                        "/sys//class/./infiniband/rove0/node_guid",
                                        "/./sys/class/infiniband//rove0/./node_guid"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) holds_guid(open(names[i], O_RDONLY), names[i]);

    /* Up and out of the folder, and back. */
    char before[PATH_MAX], resolved[PATH_MAX], absolute[PATH_MAX];
    if (chdir("/tmp") != 0 || getcwd(before, sizeof(before)) == NULL) FAIL("getcwd");
    if (chdir("/sys/class/infiniband/rove0") != 0) FAIL("chdir");
    if (realpath("node_guid", resolved) == NULL ||
        realpath("/sys/class/infiniband/rove0/node_guid", absolute) == NULL || strcmp(resolved, absolute) != 0)
        FAIL("realpath: %s and %s", resolved, absolute);
    below(AT_FDCWD, "../");
    if (!lists(opendir("../.."), "net") || lists(opendir("../.."), "rove0")) FAIL("what is above");
    if (access("../../net/lo", F_OK) != 0) FAIL("a file above");
    if (chdir("..") != 0) FAIL("chdir upwards");
    below(AT_FDCWD, "");
    if (chdir("..") != 0 || access("net/lo", F_OK) != 0) FAIL("chdir upwards, and out");
    below(AT_FDCWD, "infiniband/");
    if (chdir("infiniband") != 0) FAIL("chdir into it again");
    below(AT_FDCWD, "");
    if (chdir("../../..") != 0 || access("proc/self", F_OK) != 0) FAIL("chdir to the root");
    if (chdir(before) != 0) FAIL("chdir back");

    match("/sys/class/infiniband/rov*", 1, "/sys/class/infiniband/rove0");
    match("/sys/class/infiniband/*/ports/*/gids", 1, "/sys/class/infiniband/rove0/ports/1/gids");
    match("/sys/class/infiniband/rove0/node_g*", 1, "/sys/class/infiniband/rove0/node_guid");
    match("/sys/class/infiniband/rove1*", 0, "");
    if (chdir("/sys/class/infiniband") != 0) FAIL("chdir");
    match("rove*/node_guid", 1, "rove0/node_guid");
    if (chdir("/sys/class") != 0) FAIL("chdir");
    match("infiniband/*/node_guid", 1, "infiniband/rove0/node_guid");
    struct dirent** entries;
    if (scandirat(AT_FDCWD, "infiniband/rove0/ports", &entries, NULL, NULL) != 3) FAIL("scandirat");
    puts("right");
    return 0;
}
