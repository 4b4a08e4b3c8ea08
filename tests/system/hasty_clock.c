// SPDX-License-Identifier: Apache-2.0
// Preloaded into perftest, which for each row of its table compares the TSC with gettimeofday() for 0.2 s, and uses
// that clock for nothing else. This clock is the TSC itself at a tenth of its rate: the comparison takes 0.02 s, and
// all times of the table are ten times too long. Sleeps are shortened likewise: ib_write_bw and ib_write_lat sleep for
// a second, and EAL, which may not know the TSC's frequency, measures it for a tenth. A client also waits until its
// server listens, so that both can start at once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { kTicksPerMicrosecond = 256, kHaste = 10, kRetryUs = 2000, kRetries = 30000 };

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
    (void)zone;
    const unsigned long long us = __rdtsc() / kTicksPerMicrosecond;
    now->tv_sec = (time_t)(us / 1000000);
    now->tv_usec = (suseconds_t)(us % 1000000);
    return 0;
}

int nanosleep(const struct timespec* time, struct timespec* left) {
    const long long ns = (time->tv_sec * 1000000000LL + time->tv_nsec) / kHaste;
    const struct timespec shorter = {ns / 1000000000, ns % 1000000000};
    const int error = clock_nanosleep(CLOCK_REALTIME, 0, &shorter, left);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

unsigned sleep(unsigned seconds) {
    usleep(seconds * (1000000 / kHaste));
    return 0;
}

int connect(int socket, const struct sockaddr* address, socklen_t bytes) {
    int (*const once)(int, const struct sockaddr*, socklen_t) = dlsym(RTLD_NEXT, "connect");
    for (int tries = 0;; ++tries) {
        const int done = once(socket, address, bytes);
        if (done == 0 || errno != ECONNREFUSED || address->sa_family == AF_UNIX || tries == kRetries) return done;
        const struct timespec pause = {0, kRetryUs * 1000};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
}
