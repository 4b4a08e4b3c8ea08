// SPDX-License-Identifier: Apache-2.0
// A borrowed mbuf: it belongs to no pool and is a view of a frame that is elsewhere. Zero-copy RxQueues return such
// mbufs.
#pragma once

#include <rte_mbuf.h>

namespace rove::datapath {

inline void lend(rte_mbuf& view, uint8_t* frame, uint32_t bytes) {
    view.buf_addr = frame;
    view.buf_len = view.data_len = static_cast<uint16_t>(bytes);
    view.pkt_len = bytes;
    view.data_off = 0;
    view.nb_segs = 1;
    view.ol_flags = 0;
    rte_mbuf_refcnt_set(&view, 1);
}

}  // namespace rove::datapath
