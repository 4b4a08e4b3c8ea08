/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the rdma_cm tests' programs. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The answer of a function whose call `what` has failed with errno. */
static inline int fail(const char* what) {
    perror(what);
    return 1;
}

static inline double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline struct sockaddr_in address_of(const char* address, const char* port) {
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    inet_pton(AF_INET, address, &made.sin_addr);
    return made;
}
