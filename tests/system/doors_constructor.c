// SPDX-License-Identifier: Apache-2.0
// A library whose constructor waits for a thread that uses files (THREAD), or opens a device. A program opens it
// (PROGRAM), or is linked with it (LINKED).
#ifdef PROGRAM
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** arguments) {
    if (count != 2 || dlopen(arguments[1], RTLD_NOW) == NULL) return puts("not loaded"), 1;
    puts("right");
    return 0;
}
#elif defined LINKED
#include <stdio.h>
void library(void);
int main(void) {
    library();
    puts("right");
    return 0;
}
#elif defined THREAD
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static void* look(void* unused) {
    struct stat status;
    char target[64];
    DIR* const folder = opendir("/");
    FILE* const stream = fopen("/proc/cpuinfo", "r");
    const int file = open("/dev/null", O_WRONLY), at = openat(AT_FDCWD, "/dev/null", O_RDONLY);
    if (folder == NULL || stream == NULL || file < 0 || at < 0 || stat("/", &status) != 0 ||
        fstat(file, &status) != 0 || lstat("/", &status) != 0 || access("/", R_OK) != 0 ||
        readlink("/proc/self/exe", target, sizeof(target)) < 0 || write(file, "x", 1) != 1)
        abort();
    close(dup(file));
    closedir(folder);
    fclose(stream);
    close(file);
    close(at);
    return unused;
}
__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, look, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();
}
void library(void) {}
#else
#include <infiniband/verbs.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
    struct ibv_device** const list = ibv_get_device_list(NULL);
    struct ibv_context* const context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
    if (context == NULL || ibv_close_device(context) != 0) abort();
    ibv_free_device_list(list);
}
void library(void) {}
#endif
