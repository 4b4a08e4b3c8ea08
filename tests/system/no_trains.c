// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: the kernel then refuses its segmented datagrams, as it refuses those that IPsec has to
// carry (EIO from a UDP socket), and as Linux before 6.2 does not support them on AF_PACKET (EINVAL). The program must
// send datagrams one by one. A seccomp filter turns sendmsg() and sendmmsg() into SIGSYS, whose handler examines the
// calls and makes them.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { kUdpSegment = 103, kTrain = 5, kTrainHeaderBytes = 10 };  // UDP_SEGMENT, VIRTIO_NET_HDR_GSO_UDP_L4

// Makes the system call at the address behind the instruction at `let_through`, which the filter knows. Returns -errno.
extern const char let_through[];
long make(long number, long a, long b, long c, long d);
__asm__(
    ".text\n"
    "make: mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; mov %rcx, %rdx; mov %r8, %r10; syscall\n"
    "let_through: ret\n");

static long send_message(long socket, struct msghdr* message, long flags) {
    for (struct cmsghdr* one = CMSG_FIRSTHDR(message); one != NULL; one = CMSG_NXTHDR(message, one))
        if (one->cmsg_level == IPPROTO_UDP && one->cmsg_type == kUdpSegment) return -EIO;
    return make(SYS_sendmsg, socket, (long)message, flags, 0);
}

static long send_messages(long socket, struct mmsghdr* messages, unsigned count, long flags) {
    unsigned taken = 0;
    for (; taken < count; ++taken) {
        const struct iovec* const first = messages[taken].msg_hdr.msg_iov;
        if (first->iov_len >= kTrainHeaderBytes && ((const uint8_t*)first->iov_base)[1] == kTrain) break;
    }
    return taken == 0 && count != 0 ? -EINVAL : make(SYS_sendmmsg, socket, (long)messages, taken, flags);
}

static void answer(int signal, siginfo_t* info, void* context) {
    (void)signal;
    greg_t* const registers = ((ucontext_t*)context)->uc_mcontext.gregs;
    const long a = registers[REG_RDI], b = registers[REG_RSI], c = registers[REG_RDX], d = registers[REG_R10];
    registers[REG_RAX] = info->si_syscall == SYS_sendmsg ? send_message(a, (struct msghdr*)b, c)
                                                         : send_messages(a, (struct mmsghdr*)b, (unsigned)c, d);
}

__attribute__((constructor)) static void begin(void) {
    // Filters survive exec(), and this one knows an address in this program only, not in those that start it.
    const char* const preloaded = getenv("LD_PRELOAD");
    if (preloaded == NULL || strstr(preloaded, "librove-verbs.so") == NULL) return;
    const uint64_t behind = (uintptr_t)let_through;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmmsg, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)behind, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(behind >> 32), 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        abort();
}
