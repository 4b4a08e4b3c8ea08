// SPDX-License-Identifier: Apache-2.0
// Preloaded to a program: the kernel takes no trains of datagrams from it, as it takes none that IPsec shall carry (EIO
// from a UDP socket), and as Linux before 6.2 knows none on AF_PACKET (EINVAL). What leaves it goes one by one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { kUdpSegment = 103, kTrain = 5, kTrainHeaderBytes = 10 };  // UDP_SEGMENT, VIRTIO_NET_HDR_GSO_UDP_L4

ssize_t sendmsg(int socket, const struct msghdr* message, int flags) {
    static ssize_t (*kernels)(int, const struct msghdr*, int);
    if (kernels == NULL) kernels = (ssize_t(*)(int, const struct msghdr*, int))dlsym(RTLD_NEXT, "sendmsg");
    struct msghdr copy = *message;
    for (struct cmsghdr* one = CMSG_FIRSTHDR(&copy); one != NULL; one = CMSG_NXTHDR(&copy, one)) {
        if (one->cmsg_level != IPPROTO_UDP || one->cmsg_type != kUdpSegment) continue;
        errno = EIO;
        return -1;
    }
    return kernels(socket, message, flags);
}

int sendmmsg(int socket, struct mmsghdr* messages, unsigned count, int flags) {
    static int (*kernels)(int, struct mmsghdr*, unsigned, int);
    if (kernels == NULL) kernels = (int (*)(int, struct mmsghdr*, unsigned, int))dlsym(RTLD_NEXT, "sendmmsg");
    unsigned taken = 0;
    for (; taken < count; ++taken) {
        const struct iovec* const first = messages[taken].msg_hdr.msg_iov;
        if (first->iov_len >= kTrainHeaderBytes && ((const uint8_t*)first->iov_base)[1] == kTrain) break;
    }
    if (taken == 0 && count != 0) {
        errno = EINVAL;
        return -1;
    }
    return kernels(socket, messages, taken, flags);
}
