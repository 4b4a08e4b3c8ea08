# SPDX-License-Identifier: Apache-2.0
"""Runs the Python sample of the documents (tent-qos) as a whole program. It READs from its own segment. Its last line
is "ok"."""
import ctypes

import tent

size = 300000
engine = tent.TransferEngine(settings={"rpc_server_hostname": "127.0.0.1"})
segment_id = engine.open_segment(engine.get_segment_name())
with engine.allocate_memory_guard(size) as buffer_addr, engine.allocate_memory_guard(size) as remote, \
        engine.allocate_batch_guard(2) as batch_id:
    ctypes.memset(remote, ord("r"), size)

    # Create request with default priority (HIGH)
    req = tent.Request(
        opcode=tent.OpCode.READ,
        source=buffer_addr,
        target_id=segment_id,
        target_offset=remote,
        length=size
    )
    assert req.priority == tent.PRIO_HIGH

    # Or specify priority in constructor
    req = tent.Request(
        opcode=tent.OpCode.READ,
        source=buffer_addr,
        target_id=segment_id,
        target_offset=remote,
        length=size,
        priority=tent.PRIO_LOW  # or PRIO_HIGH, PRIO_MEDIUM
    )

    # Or set after creation
    req.priority = tent.PRIO_MEDIUM

    # Submit the request
    engine.submit_transfer(batch_id, [req])

    while (status := engine.get_transfer_status_overall(batch_id)).state == tent.TransferStatusEnum.PENDING:
        pass
    assert status.state == tent.TransferStatusEnum.COMPLETED and status.bytes == size
    assert ctypes.string_at(buffer_addr, size) == b"r" * size
    try:
        engine.submit_transfer(batch_id, [
            tent.Request(opcode=tent.OpCode.READ, source=1, target_id=segment_id, target_offset=remote, length=1)])
        raise SystemExit("an address that is not registered was taken")
    except tent.AddressNotRegisteredError as error:
        assert isinstance(error, tent.TentException) and "not within one registered buffer" in str(error)
print("ok")
