/* SPDX-License-Identifier: Apache-2.0 */
/* What rove adds to verbs, for programs in C and C++. Everywhere else it does nothing. */
#ifndef ROVE_VERBS_H
#define ROVE_VERBS_H

/*
 * In ibv_send_wr::send_flags or ibv_qp_ex::wr_flags, of an RC QP: the operation changes the peer's memory only after
 * all operations before it have. Needed where transport.ordering does not promise that of every operation; a QP that
 * takes one path, as in rc mode, keeps order anyway. The highest bit that a byte has: ibv_send_flags has five.
 */
#define ROVE_SEND_SYNC (1u << 7)

#endif
