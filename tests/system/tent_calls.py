# SPDX-License-Identifier: Apache-2.0
"""Calls the Python module `tent` as Mooncake's programs do: positions and names of arguments, guards, exceptions, and
other Python threads that run while a call waits. Its last line is "ok"."""
import ctypes
import os
import socket
import threading
import time

import tent

SIZE = 65536
LOCAL = {"rpc_server_hostname": "127.0.0.1"}


def raises(what, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except what:
        return
    raise SystemExit(f"{what.__name__} was not raised")


def finish(engine, batch):
    while engine.get_transfer_status_overall(batch_id=batch).state == tent.PENDING:
        pass
    status = engine.get_transfer_status(batch, 0)
    assert status.state == tent.COMPLETED and status.bytes == SIZE, status.state


def transfers(engine):
    here = engine.allocate_local_memory(SIZE)
    there = engine.allocate_local_memory_ex(size=SIZE, options=tent.MemoryOptions())
    handle = engine.open_segment(segment_name=engine.get_segment_name())
    assert handle == tent.LOCAL_SEGMENT_ID
    info = engine.get_segment_info(handle)
    assert info.type == tent.SegmentInfoType.Memory and there in [buffer.base for buffer in info.buffers]
    ctypes.memset(here, ord("w"), SIZE)

    # The positional arguments are priority, transport_hint, policy_name, deadline_ns and intent_type.
    request = tent.Request(tent.WRITE, here, handle, there, SIZE, tent.PRIO_LOW, tent.UNSPEC, None, 0, tent.MIGRATION)
    batch = engine.allocate_transfer_batch(batch_size=1)
    engine.submit_transfer(batch, [request], tent.Notification("kind", "text"))
    finish(engine, batch)
    engine.free_transfer_batch(batch)
    assert ctypes.string_at(there, SIZE) == b"w" * SIZE

    ctypes.memset(there, ord("r"), SIZE)
    request = tent.Request()
    request.opcode, request.source, request.target_id = tent.OpCode.READ, here, handle
    request.target_offset, request.length = there, SIZE
    guard = engine.allocate_batch_guard(batch_size=1)
    engine.submit_transfer_notif(guard.id(), [request], "kind", "more")
    finish(engine, guard.id())
    guard.release()
    assert ctypes.string_at(here, SIZE) == b"r" * SIZE

    received, until = [], time.monotonic() + 5
    while len(received) < 2 and time.monotonic() < until:
        received += [(one.name, one.msg) for one in engine.recv_notifi()]
    assert sorted(received) == [("kind", "more"), ("kind", "text")], received
    engine.free_local_memory(addr=here)
    engine.free_local_memory(there)
    return handle


def guards_and_registrations(engine):
    with engine.allocate_memory_guard(SIZE) as address:
        assert address != 0
    guard = engine.allocate_memory_guard_ex(size=SIZE, options=tent.MemoryOptions())
    assert guard.size() == SIZE
    address = guard.address()
    guard.release()
    raises(tent.AddressNotRegisteredError, engine.free_local_memory, address)
    guard = engine.allocate_memory_guard(SIZE)
    address = guard.address()
    del guard  # This frees the memory.
    raises(tent.AddressNotRegisteredError, engine.free_local_memory, address)
    raises(tent.TooManyRequestsError, engine.allocate_transfer_batch, 1 << 40)
    raises(tent.TooManyRequestsError, engine.allocate_batch_guard, 1 << 40)
    raises(tent.InvalidArgumentError, engine.allocate_memory_guard, 0)

    memory = ctypes.create_string_buffer(2 * SIZE)
    first = ctypes.addressof(memory)
    engine.register_local_memory_batch([first, first + SIZE], [SIZE, SIZE], tent.Permission.GlobalReadOnly)
    engine.unregister_local_memory(first)
    engine.unregister_local_memory_batch([first + SIZE])
    raises(tent.AddressNotRegisteredError, engine.unregister_local_memory, first)


def inline_configuration():
    os.environ["MC_TENT_CONF"] = '{"rpc_server_hostname": "127.0.0.1", "transports/rdma/enable": false}'
    assert tent.TransferEngine().get_segment_name().startswith("127.0.0.1:")
    os.environ["MC_TENT_CONF"] = '{"rpc_server_prot": 1}'
    raises(tent.InvalidArgumentError, tent.TransferEngine)
    del os.environ["MC_TENT_CONF"]


def others_run(wait):
    """Returns the longest time for which another thread did not run during `wait()`, and the duration of `wait()`."""
    longest, last, ended = [0.0], time.monotonic(), threading.Event()

    def tick():
        nonlocal last
        while not ended.is_set():
            time.sleep(0.005)
            now = time.monotonic()
            longest[0] = max(longest[0], now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    begun = time.monotonic()
    wait()
    took = time.monotonic() - begun
    ended.set()
    thread.join()
    return longest[0], took


def a_store_that_says_nothing():
    silent = socket.create_server(("127.0.0.1", 0))
    store = {"metadata_type": "redis", "metadata_servers": f"127.0.0.1:{silent.getsockname()[1]}"}
    stood, took = others_run(lambda: raises(tent.TentException, tent.TransferEngine, settings={**LOCAL, **store}))
    assert took > 0.5 and stood < took / 2, f"{stood} of {took} s"


used = tent.TransferEngine(settings=LOCAL)
transfers(used)
guards_and_registrations(used)
raises(tent.InvalidArgumentError, tent.TransferEngine, settings={"rpc_server_prot": "1"})
inline_configuration()
a_store_that_says_nothing()
print("ok")
