# SPDX-License-Identifier: Apache-2.0
"""Runs pyverbs together with Python's multiprocessing, whose children are forks: multiprocessing_forks.py
after-list|with-objects. Its last line is "OK"."""
import errno
import multiprocessing
import sys

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError

forks = multiprocessing.get_context("fork")


def names():
    try:
        return [device.name.decode() for device in get_device_list()]
    except PyverbsRDMAError:    # The kernel has no RDMA.
        return []


def use():
    context = Context(name="rove0")
    pd = PD(context)
    mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    cq = CQ(context, 16)
    assert cq.poll()[0] == 0
    for one in (cq, mr, pd, context):
        one.close()
    return True


def inherit(number):
    assert "rove0" not in names()
    assert objects["cq"].poll()[0] == 0
    try:
        MR(objects["pd"], 4096, e.IBV_ACCESS_LOCAL_WRITE)
    except PyverbsRDMAError as failure:
        assert failure.error_code == errno.ENODEV, failure
    else:
        raise AssertionError("a child registered memory")
    return number


objects = {}


def main(case):
    assert "rove0" in names()
    if case == "with-objects":
        context = Context(name="rove0")
        pd = PD(context)
        objects.update(context=context, pd=pd, cq=CQ(context, 16), mr=MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE))
        with forks.Pool(3) as pool:
            assert pool.map_async(inherit, range(30)).get(30) == list(range(30))
        more = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)   # The objects still work in the parent.
        more.close()
    else:
        with forks.Pool(1) as pool:
            assert pool.apply_async(use).get(30)
        assert use()
    print("OK")


main(sys.argv[1])
