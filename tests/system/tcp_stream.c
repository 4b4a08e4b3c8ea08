/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP program as librspreload takes it over: tcp_stream server|client IPV4 PORT BYTES. The client sends a sequence of
 * bytes, which the server compares and sends back, and the client compares too. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kChunk = 50000 };

static int fail(const char* what) {
    perror(what);
    return 1;
}

static void fill(unsigned char* data, size_t bytes, size_t offset) {
    for (size_t i = 0; i < bytes; ++i) data[i] = (unsigned char)((offset + i) * 2654435761u >> 24);
}

/* Waits in select() every other time, for at most 10 s, and else in recv(). */
static ssize_t receive_some(int peer, void* data, size_t most) {
    static int turn;
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(peer, &readable);
    struct timeval limit = {.tv_sec = 10};
    if (turn++ % 2 == 0 && select(peer + 1, &readable, NULL, NULL, &limit) != 1) return -1;
    return recv(peer, data, most, 0);
}

/* 0: all came as it was sent. */
static int receive(int peer, size_t total) {
    static unsigned char came[kChunk], wanted[kChunk];
    for (size_t done = 0; done < total;) {
        const size_t most = total - done < kChunk ? total - done : kChunk;
        const ssize_t bytes = receive_some(peer, came, most);
        if (bytes <= 0) return fail("recv");
        fill(wanted, (size_t)bytes, done);
        if (memcmp(came, wanted, (size_t)bytes) != 0) return fprintf(stderr, "other bytes near %zu\n", done), 1;
        done += (size_t)bytes;
    }
    return 0;
}

static int transmit(int peer, size_t total) {
    static unsigned char data[kChunk];
    for (size_t done = 0; done < total;) {
        const size_t most = total - done < kChunk ? total - done : kChunk;
        fill(data, most, done);
        const ssize_t bytes = send(peer, data, most, 0);
        if (bytes <= 0) return fail("send");
        done += (size_t)bytes;
    }
    return 0;
}

int main(int count, char** arguments) {
    if (count != 5) return 2;
    const size_t total = strtoull(arguments[4], NULL, 10);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(arguments[3]))};
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    int peer = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(arguments[1], "client") == 0) {
        if (connect(peer, (struct sockaddr*)&address, sizeof address) != 0) return fail("connect");
        if (transmit(peer, total) != 0 || receive(peer, total) != 0) return 1;
    } else {
        const int listener = peer;
        if (bind(listener, (struct sockaddr*)&address, sizeof address) != 0) return fail("bind");
        if (listen(listener, 1) != 0) return fail("listen");
        peer = accept(listener, NULL, NULL);
        if (peer < 0) return fail("accept");
        if (receive(peer, total) != 0 || transmit(peer, total) != 0) return 1;
        char end;
        if (recv(peer, &end, 1, 0) != 0) return fail("recv of the end");
    }
    return close(peer) != 0 ? fail("close") : 0;
}
