/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rove's additions to verbs, for programs in C and C++. They need no library. They are for QPs of rove's devices only:
 * the drivers of other devices do not know them.
 */
#ifndef ROVE_VERBS_H
#define ROVE_VERBS_H

/*
 * A flag for ibv_send_wr::send_flags and ibv_qp_ex::wr_flags on RC QPs. The operation changes the peer's memory only
 * after all operations that were posted before it on the same QP have changed it. Typical use: a WRITE of a flag that
 * the peer polls, after WRITEs of the data.
 *
 * READs, atomics, and the peer's completions of SENDs and of WRITEs with immediate data keep their order without the
 * flag. Other WRITEs need it in mp mode in two cases: if the peer has registered their memory with
 * IBV_ACCESS_RELAXED_ORDERING, or if transport.ordering is "receiver-hold" (the default) at neither end. With
 * "sender-delay" at this end only the last packet of a WRITE keeps its order without the flag. With "optimistic" none
 * does.
 *
 * With "receiver-hold" the operation does not wait at the sender. With "sender-delay" it leaves when all earlier
 * packets are acknowledged. With "optimistic" it is delayed so that it rarely arrives early, and if it does, it is
 * dropped and sent again. rc mode, UC, UD and XRC accept the flag, which changes nothing there: rc mode and XRC use one
 * path and keep order anyway.
 *
 * The flag may be used by every thread that may post to the QP, causes no error, and does not change the order of
 * completions. The value is bit 7 of the flags. ibv_send_flags uses bits 0 to 4.
 */
#define ROVE_SEND_SYNC (1u << 7)

#endif
