# SPDX-License-Identifier: Apache-2.0
"""One side of the pyverbs test. It runs RC SEND, WRITE, READ and atomics and verifies the data, and then tries bad
arguments and error statuses.

pyverbs_peer.py server|client HOST PORT. Its last line is "OK", or it raises an exception.
"""
import errno
import json
import random
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 20000
GID_INDEX = 1
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC


class Control:
    def __init__(self, role, host, port):
        if role == "server":
            with socket.create_server(("", port)) as listener:
                self.socket = listener.accept()[0]
        else:
            self.socket = socket.create_connection((host, port), 20)
        self.answers = self.socket.makefile("r")

    def exchange(self, mine):
        self.socket.sendall(json.dumps(mine).encode() + b"\n")
        return json.loads(self.answers.readline())

    def barrier(self):
        self.exchange("here")


class Side:
    """A QP with its CQ and a memory region, connected to the QP of the other side."""

    def __init__(self, context, pd, control, access=ACCESS):
        self.control = control
        self.cq = CQ(context, 64)
        self.mr = MR(pd, SIZE, access)
        cap = QPCap(max_send_wr=32, max_recv_wr=32, max_send_sge=2, max_recv_sge=2)
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        psn = random.randrange(1 << 24)
        gid = context.query_gid(1, GID_INDEX).gid
        self.remote = control.exchange({
            "qpn": self.qp.qp_num, "psn": psn, "gid": gid, "va": self.mr.buf, "rkey": self.mr.rkey})
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        self.qp.to_init(attr)
        attr.path_mtu = e.IBV_MTU_1024
        attr.dest_qp_num = self.remote["qpn"]
        attr.rq_psn = self.remote["psn"]
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
        attr.min_rnr_timer = 20   # 10 ms, longer than a peer is off its core
        route = GlobalRoute(dgid=_gid(self.remote["gid"]), sgid_index=GID_INDEX, hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rtr(attr)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry = psn, 14, 7, 6
        self.qp.to_rts(attr)
        control.barrier()

    def sge(self, length, offset=0, lkey=None):
        return SGE(self.mr.buf + offset, length, self.mr.lkey if lkey is None else lkey)

    def post(self, opcode, length, rkey=None, va=None, atomic=None, lkey=None):
        wr = SendWR(opcode=opcode, num_sge=1, sg=[self.sge(length, lkey=lkey)], send_flags=e.IBV_SEND_SIGNALED)
        rkey, va = self.remote["rkey"] if rkey is None else rkey, self.remote["va"] if va is None else va
        if atomic:
            wr.set_wr_atomic(rkey, va, *atomic)
        elif opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
            wr.set_wr_rdma(rkey, va)
        self.qp.post_send(wr)

    def completion(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found, completions = self.cq.poll()
            if found:
                return completions[0]
        raise TimeoutError("no completion")

    def expect(self, status):
        got = self.completion()
        assert got.status == status, f"status {got.status}, not {status}"
        return got

    def ok(self):
        return self.expect(e.IBV_WC_SUCCESS)


def _gid(text):
    from pyverbs.addr import GID
    return GID(text)


def data(number):
    return random.Random(number).randbytes(SIZE).decode("latin-1").encode("latin-1")


def refused(error, call, *arguments, **options):
    """Checks that the call fails with this errno."""
    try:
        call(*arguments, **options)
    except PyverbsRDMAError as failure:
        assert failure.error_code == error, f"{call}: errno {failure.error_code}, not {error}"
    else:
        raise AssertionError(f"{call}{arguments} was accepted")


def moves(side, client):
    control = side.control
    if client:
        side.mr.write(data(1), SIZE)
        side.post(e.IBV_WR_SEND, SIZE)
        side.ok()
    else:
        side.qp.post_recv(RecvWR(num_sge=1, sg=[side.sge(SIZE)]))
        done = side.ok()
        assert done.byte_len == SIZE and side.mr.read(SIZE, 0) == data(1)
    control.barrier()
    if client:
        side.mr.write(data(2), SIZE)
        side.post(e.IBV_WR_RDMA_WRITE, SIZE)
        side.ok()
    control.barrier()
    if not client:
        assert side.mr.read(SIZE, 0) == data(2)
        side.mr.write(data(3), SIZE)
    control.barrier()
    if client:
        side.post(e.IBV_WR_RDMA_READ, SIZE)
        side.ok()
        assert side.mr.read(SIZE, 0) == data(3)
    control.barrier()
    if not client:
        side.mr.write((40).to_bytes(8, "little"), 8)
    control.barrier()
    if client:
        for atomic, opcode, before in (((2, 0), e.IBV_WR_ATOMIC_FETCH_AND_ADD, 40),
                                       ((42, 77), e.IBV_WR_ATOMIC_CMP_AND_SWP, 42), ((42, 99),
                                                                                     e.IBV_WR_ATOMIC_CMP_AND_SWP, 77)):
            side.post(opcode, 8, atomic=atomic)
            side.ok()
            assert int.from_bytes(side.mr.read(8, 0), "little") == before
    control.barrier()
    if not client:
        assert int.from_bytes(side.mr.read(8, 0), "little") == 77
    control.barrier()


def remote_error(context, pd, control, client, status, access=ACCESS, **request):
    """Sends a request that the responder must refuse. The requester's completion has the reason, and its QP is in the
    error state afterwards."""
    side = Side(context, pd, control, ACCESS if client else access)
    if client:
        options = {name: change(side) for name, change in request.items() if name != "opcode"}
        side.post(request.get("opcode", e.IBV_WR_RDMA_WRITE), options.pop("length", 64), **options)
        side.expect(status)
        side.post(e.IBV_WR_SEND, 8)
        side.expect(e.IBV_WC_WR_FLUSH_ERR)
        assert side.qp.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR
    control.barrier()


def errors(context, pd, control, client):
    denied, local = e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_LOC_PROT_ERR
    remote_error(context, pd, control, client, denied, rkey=lambda side: side.remote["rkey"] ^ 0x5A5A00)
    remote_error(context, pd, control, client, denied, va=lambda side: side.remote["va"] + SIZE - 63)
    remote_error(context, pd, control, client, denied, va=lambda side: side.remote["va"] - 1)
    remote_error(context, pd, control, client, denied, access=e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
    remote_error(context, pd, control, client, denied, access=e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE,
                 opcode=e.IBV_WR_RDMA_READ)
    remote_error(context, pd, control, client, e.IBV_WC_REM_INV_REQ_ERR, opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD,
                 length=lambda side: 8, va=lambda side: side.remote["va"] + 4, atomic=lambda side: (1, 0))
    remote_error(context, pd, control, client, local, lkey=lambda side: side.mr.lkey ^ 0x5A5A00)
    remote_error(context, pd, control, client, local, length=lambda side: SIZE + 1)
    remote_error(context, pd, control, client, e.IBV_WC_RNR_RETRY_EXC_ERR,
                 opcode=e.IBV_WR_SEND)  # No receive is posted.
    # A message longer than its receive causes an error at both ends.
    side = Side(context, pd, control)
    if not client:
        side.qp.post_recv(RecvWR(num_sge=1, sg=[side.sge(100)]))
    control.barrier()
    if client:
        side.post(e.IBV_WR_SEND, 101)
        side.expect(e.IBV_WC_REM_INV_REQ_ERR)
    else:
        side.expect(e.IBV_WC_LOC_LEN_ERR)
    control.barrier()


def bad_arguments(context, pd):
    cq = CQ(context, 16)
    limits = context.query_device()
    refused(errno.EINVAL, CQ, context, limits.max_cqe + 1)
    refused(errno.EINVAL, MR, pd, 4096, e.IBV_ACCESS_REMOTE_WRITE)      # without local write
    refused(errno.EINVAL, QP, pd,
            QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=limits.max_qp_wr + 1)))
    refused(errno.EINVAL, QP, pd,
            QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_sge=limits.max_sge + 1)))
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap()))
    refused(errno.EINVAL, qp.modify, QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)    # RESET to RTS
    refused(errno.EINVAL, qp.modify, QPAttr(qp_state=e.IBV_QPS_INIT), e.IBV_QP_STATE)  # required attributes are missing
    mr = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
    refused(errno.EINVAL, qp.post_send, SendWR(num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)]))   # in RESET


def main(role, host, port):
    names = [device.name.decode() for device in get_device_list()]
    assert "rove0" in names, names
    context = Context(name="rove0")
    pd = PD(context)
    control = Control(role, host, int(port))
    client = role == "client"
    moves(Side(context, pd, control), client)
    errors(context, pd, control, client)
    bad_arguments(context, pd)
    control.barrier()
    print("OK")


main(*sys.argv[1:])
