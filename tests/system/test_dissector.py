# SPDX-License-Identifier: Apache-2.0
"""Tests tools/wireshark/rove.lua by tshark, with a capture of every packet that rove's wire library can build and
Wireshark does not know."""
import json
import os
import shutil
import subprocess

from harness import ROOT, SCRATCH, Skip, check, once, program, unique


def dissect(capture, *options):
    """Returns tshark's output for a capture, a JSON object for each packet."""
    if shutil.which("tshark") is None:
        raise Skip("needs tshark")
    # tshark runs as an unprivileged user, because Wireshark 4.4 loads no scripts for root. That user may not be able to
    # enter the folders, so it inherits open files.
    with open(ROOT / "tools" / "wireshark" / "rove.lua") as script, open(capture, "rb") as packets:
        files = [script.fileno(), packets.fileno()]
        done = subprocess.run([
            "tshark", "-X", f"lua_script:/dev/fd/{files[0]}", "-n", "-r", f"/dev/fd/{files[1]}", "-T", "json", *options
        ], capture_output=True, text=True, timeout=30, pass_fds=files, user="nobody", group="nogroup", extra_groups=[],
                              env={"HOME": "/", "PATH": os.environ["PATH"]}, cwd="/")
    check(done.returncode == 0 and "Lua" not in done.stderr, done.stderr)
    return [packet["_source"]["layers"] for packet in json.loads(done.stdout)]


def leaves(tree, found=None):
    """Returns every field of a packet by its name, at any depth, with a list of its values."""
    found = {} if found is None else found
    for key, value in tree.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                leaves(one, found)
            else:
                found.setdefault(key, []).append(one)
    return found


def expect(packet, **fields):
    for name, value in fields.items():
        name = name.replace("__", ".")
        check(packet.get(name) == value, f"opcode {packet['rove.opcode']}: {name} is {packet.get(name)}, not {value}")


def every_packet():
    capture = SCRATCH / f"{unique()}.pcap"
    subprocess.run([program("mp_frames"), capture], check=True, timeout=10)
    packets = [leaves(packet) for packet in dissect(capture, "--no-duplicate-keys")]
    ours = [packet for packet in packets if "rove.opcode" in packet]
    check(
        len(packets) - len(ours) == 1 and "infiniband.bth" in str(dissect(capture, "-Y", "not rove")),
        "RC's own packet is Wireshark's")
    cut = ours[-3:]
    check(all("rove.short" in str(packet) and "rove.psn" not in packet for packet in cut), str(cut))
    by_opcode = {int(packet["rove.opcode"][0], 16): packet for packet in ours[:-3]}
    check(len(by_opcode) == len(ours) - 3 == 26 + 25 + 2, f"{len(by_opcode)} opcodes")
    for opcode, packet in by_opcode.items():
        expect(packet, rove__psn=[str(1000 + opcode)], rove__dest_qp=["0x123456"],
               rove__vp=[str(0xC123)] if opcode >= 0xE0 else None)
        check(packet["rove.icrc"] == [packet.get("infiniband.invariant.crc", packet["rove.icrc"])[0]], str(packet))
    data = {opcode: packet for opcode, packet in by_opcode.items() if opcode >= 0xE0 and opcode not in (0xF1, 0xFF)}
    for opcode, packet in data.items():
        expect(packet, rove__mpeth__retx=["1"], rove__mpeth__sync=["0"], rove__mpeth__last=["1"],
               rove__mpeth__response=["0"], rove__mpeth__early=["1"], rove__mpeth__msn=["5"], rove__mpeth__ipsn=["9"],
               infiniband__bth__psn=[str(1000 + opcode)])
    for write in (0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xEB):      # Each of them has a RETH.
        expect(data[write], infiniband__reth__va=["0x1122334455667788"], infiniband__reth__dmalen=["64"])
    for opcode in [opcode for opcode in by_opcode if 0xA0 <= opcode < 0xC0]:
        request = not 0xAD <= opcode <= 0xB2
        expect(by_opcode[opcode], rove__xrceth__srq=["0x0a0b0c"] if request else None,
               infiniband__bth__psn=[str(1000 + opcode)])
    for opcode in (0xA6, 0xAA, 0xAC, 0xBC, 0xBD, 0x1C, 0x1D, 0xFC, 0xFD):   # The RETH follows an XRCETH, FETH or MPETH.
        expect(by_opcode[opcode], infiniband__reth__va=["0x1122334455667788"], infiniband__reth__dmalen=["64"])
    for opcode in (0x1C, 0xBC, 0xFC):
        expect(by_opcode[opcode], rove__feth__placement=["0x00000001"], rove__feth__selectivity=["1"])
    expect(by_opcode[0xB1], infiniband__aeth__msn=["77"])
    expect(data[0xF0], infiniband__aeth__msn=["77"])
    expect(by_opcode[0xF1], rove__mpaeth__syndrome=["0x62"], rove__mpaeth__aack=["499"],
           rove__mpaeth__room=["15"], rove__mpaeth__more=["2"],
           rove__entry__kind=["1", "0", "2"], rove__entry__ece=["1", "0", "0"], rove__entry__retx=["0", "0", "1"],
           rove__entry__response=["1", "1", "0"], rove__entry__trimmed=["0", "0", "1"],
           rove__entry__psn=["500", "501", "502"], rove__entry__vp=["49153", "49154", "49155"])
    expect(by_opcode[0xFF], rove__hello__version=["2"], rove__hello__mp=["1"], rove__hello__answer=["1"],
           rove__hello__qp=["0x654321"], rove__hello__nonce=["0xdeadbeef"], rove__hello__reorder=["120"],
           rove__hello__early=["1024"], rove__hello__tick=["7000"], rove__hello__echo=["5000"])


once("dissector/every-packet", every_packet, quick=True)
