# SPDX-License-Identifier: Apache-2.0
"""Uses `mooncake.engine` as connectors of vLLM and SGLang do. A producer process and a consumer process, each with an
engine, move blocks by WRITE and READ in every form that the class has, and check every byte. Its last line is "ok"."""
import ctypes
import logging
import multiprocessing
import sys
import time

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

SIZE, BLOCKS = 65536, 8
protocol = sys.argv[1] if len(sys.argv) > 1 else "tcp"


def make_engine():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, None) == 0
    return engine, f"127.0.0.1:{engine.get_rpc_port()}"


def peer(pipe):
    engine, session = make_engine()
    memory = ctypes.create_string_buffer(b"p" * BLOCKS * SIZE, BLOCKS * SIZE)
    address = ctypes.addressof(memory)
    assert engine.register_memory(address, BLOCKS * SIZE) == 0
    pipe.send((session, address))
    pipe.recv()
    until, notifies = time.monotonic() + 5, []
    while not notifies and time.monotonic() < until:
        notifies = engine.get_notifies()
    pipe.send(([(one.name, one.msg) for one in notifies], memory.raw))
    pipe.recv()
    assert engine.unregister_memory(address) == 0


def main():
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=peer, args=(theirs,))
    process.start()
    session, remote = ours.recv()
    engine, _ = make_engine()
    assert engine.send_probe(session) == 0
    assert engine.get_first_buffer_address(session) == remote
    local = engine.allocate_managed_buffer(BLOCKS * SIZE)
    here, there = [[base + i * SIZE for i in range(BLOCKS)] for base in (local, remote)]
    lengths = [SIZE] * BLOCKS
    expected = b""
    for i in range(BLOCKS):
        engine.write_bytes_to_buffer(here[i], bytes([65 + i]) * SIZE, SIZE)
        expected += bytes([65 + i]) * SIZE

    # Each call moves one block, and the calls with lists move the rest.
    assert engine.transfer_sync_write(session, here[0], there[0], SIZE) == 0
    assert engine.transfer_sync(session, here[1], there[1], SIZE, TransferOpcode.Write) == 0
    batch = engine.transfer_submit_write(session, here[2], there[2], SIZE)
    assert batch > 0
    while (state := engine.transfer_check_status(batch)) == 0:
        pass
    assert state == 1
    assert engine.batch_transfer_sync_write(session, here[3:5], there[3:5], lengths[3:5]) == 0
    batches = [engine.batch_transfer_async_write(session, [here[i]], [there[i]], [SIZE]) for i in (5, 6)]
    assert all(batches) and engine.get_batch_transfer_status(batches) == 0
    assert engine.batch_transfer_sync(session, here[7:], there[7:], lengths[7:], TransferOpcode.Write,
                                      TransferNotify("done", "all of it")) == 0

    for clear in range(BLOCKS):
        engine.write_bytes_to_buffer(here[clear], b"-" * SIZE, SIZE)
    assert engine.transfer_sync_read(session, here[0], there[0], SIZE) == 0
    assert engine.batch_transfer_sync_read(session, here[1:4], there[1:4], lengths[1:4], transport_hint="tcp") == 0
    batch = engine.batch_transfer_async_read(session, here[4:], there[4:], lengths[4:])
    assert batch > 0 and engine.get_batch_transfer_status([batch]) == 0
    assert engine.read_bytes_from_buffer(local, BLOCKS * SIZE) == expected
    ours.send("look")
    assert ours.recv() == ([("done", "all of it")], expected)

    # A call that fails logs the reason, and returns the value that callers of the original check.
    said = []
    logging.getLogger("mooncake.engine").addFilter(lambda record: said.append(record.getMessage()))
    assert engine.transfer_sync_write(session, 4096, there[0], SIZE) == -1
    assert engine.transfer_submit_write(session, here[0], 4096, SIZE) == 0
    assert engine.transfer_sync_write("127.0.0.1:1", here[0], there[0], SIZE) == -1
    assert engine.batch_transfer_sync_write(session, here, there, [SIZE]) == -1
    assert engine.transfer_sync_write(session, here[0], there[0], SIZE, "no such") == -1
    assert len(said) == 5 and "not within one registered buffer" in said[0], said
    assert engine.batch_transfer_sync_write(session, [], [], []) == 0
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "no-such-device") == -1
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "nvlink", "") == -1
    assert engine.transfer_sync_write(session, here[0], there[0], SIZE) == 0
    assert engine.free_managed_buffer(local, BLOCKS * SIZE) == 0
    ours.send("end")
    process.join(20)
    assert process.exitcode == 0
    print("ok")


if __name__ == "__main__":
    main()
