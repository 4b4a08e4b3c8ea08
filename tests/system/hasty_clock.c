// SPDX-License-Identifier: Apache-2.0
// Preloaded to perftest, which for each row of its table measures the TSC against gettimeofday(), for 0.2 s, and uses that clock for
// nothing else. This one is the TSC itself, at a tenth of what one ticks at: the measurement takes 0.02 s, and all times of the
// table are ten times too long. Sleeps are shorter likewise: ib_write_bw and ib_write_lat take a second of it, and EAL, which may not
// know the TSC's frequency, a tenth in which it measures that.
#define _DEFAULT_SOURCE
#include <errno.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { kTicksPerMicrosecond = 256, kHaste = 10 };

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
