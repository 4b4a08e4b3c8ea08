// SPDX-License-Identifier: Apache-2.0
// Preloaded to perftest, which for each row of its table measures the TSC against gettimeofday(), for 0.2 s, and uses that clock for
// nothing else. This one is the TSC itself, at a tenth of what one ticks at: the measurement takes 0.02 s, and all times of the
// table are ten times too long. The second that ib_write_bw and ib_write_lat sleep, after all, is shorter likewise.
#define _DEFAULT_SOURCE  // usleep()
#include <sys/time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { kTicksPerMicrosecond = 256 };

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
    (void)zone;
    const unsigned long long us = __rdtsc() / kTicksPerMicrosecond;
    now->tv_sec = (time_t)(us / 1000000);
    now->tv_usec = (suseconds_t)(us % 1000000);
    return 0;
}

unsigned sleep(unsigned seconds) {
    usleep(seconds * 100000);
    return 0;
}
