/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rove's additions to verbs, for programs in C and C++. They need no library. On other devices than rove's they have no
 * effect.
 */
#ifndef ROVE_VERBS_H
#define ROVE_VERBS_H

/*
 * A flag for ibv_send_wr::send_flags and ibv_qp_ex::wr_flags on RC QPs. The operation changes the peer's memory only
 * after all operations that were posted before it on the same QP have changed it. Typical use: a WRITE of a flag that
 * the peer polls, after WRITEs of the data.
 *
 * It is needed in mp mode unless transport.ordering is "receiver-hold" (the default), which orders every operation.
 * "sender-delay" orders every WRITE, but other operations only with this flag: such an operation leaves when all
 * earlier packets are acknowledged. With "optimistic" nothing else keeps order: the operation is delayed so that it
 * rarely arrives early, and if it does, it is dropped and sent again. rc mode uses one path and keeps order anyway.
 * There the flag is accepted and changes nothing.
 *
 * The flag may be used by every thread that may post to the QP, and causes no error. The value is bit 7 of the flags.
 * ibv_send_flags uses bits 0 to 4.
 */
#define ROVE_SEND_SYNC (1u << 7)

#endif
