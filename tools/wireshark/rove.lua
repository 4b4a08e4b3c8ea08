-- SPDX-License-Identifier: Apache-2.0
-- Dissects rove's multi-path packets and HELLO (docs/protocol/multipath.md has the format), and the parts of RoCE that
-- Wireshark's own InfiniBand dissector does not know: XRC (annex A14), FLUSH and ATOMIC WRITE (annex A19).
--     tshark -X lua_script:tools/wireshark/rove.lua -r capture.pcapng -Y rove
-- Not as root: Wireshark 4.4 then leaves scripts alone.
-- What is behind MPETH or XRCETH is what RC has, so that dissector reads it, from a copy of the packet without them.
-- Everything else on UDP port 4791 goes to that dissector as it is.

local rove = Proto("rove", "rove multi-path RoCE")

local ROCE_PORT = 4791
local XRC, MP, ACK, HELLO = 0xA0, 0xE0, 0xF1, 0xFF
local BTH, MPETH, MPAETH, HELLO_BYTES, ENTRY, ICRC = 12, 8, 12, 24, 8, 4
local XRCETH, FETH = 4, 4
local FLUSH, ATOMIC_WRITE = 0x1C, 0x1D

local OPERATIONS = {
    [0x00] = "SEND First", [0x01] = "SEND Middle", [0x02] = "SEND Last", [0x03] = "SEND Last Immediate",
    [0x04] = "SEND Only", [0x05] = "SEND Only Immediate", [0x06] = "WRITE First", [0x07] = "WRITE Middle",
    [0x08] = "WRITE Last", [0x09] = "WRITE Last Immediate", [0x0A] = "WRITE Only", [0x0B] = "WRITE Only Immediate",
    [0x0C] = "READ Request", [0x0D] = "READ Response First", [0x0E] = "READ Response Middle",
    [0x0F] = "READ Response Last", [0x10] = "READ Response Only", [0x12] = "ATOMIC Acknowledge",
    [0x13] = "CmpSwap", [0x14] = "FetchAdd", [0x16] = "SEND Last Invalidate", [0x17] = "SEND Only Invalidate",
    [FLUSH] = "FLUSH", [ATOMIC_WRITE] = "ATOMIC WRITE",
}
-- In mp every packet of a WRITE has RETH: to RC these are WRITEs of one packet.
local MP_AS_RC = { [0x07] = 0x0A, [0x08] = 0x0A, [0x09] = 0x0B }
-- A FLUSH has RETH behind FETH, as a READ has it, and an ATOMIC WRITE is like a WRITE of one packet.
local AS_OLDER = { [FLUSH] = 0x0C, [ATOMIC_WRITE] = 0x0A }
local KINDS = { [0] = "ACK", [1] = "SACK", [2] = "NACK", [3] = "ERR" }

local opcodes = { [ACK] = "mp Acknowledge", [HELLO] = "HELLO" }
for op, name in pairs(OPERATIONS) do
    opcodes[MP + op] = "mp " .. name
    opcodes[XRC + op] = "XRC " .. name
end
opcodes[XRC + 0x11] = "XRC Acknowledge"
opcodes[FLUSH], opcodes[ATOMIC_WRITE] = "FLUSH", "ATOMIC WRITE"

local f = {
    opcode = ProtoField.uint8("rove.opcode", "Opcode", base.HEX, opcodes),
    ack_req = ProtoField.bool("rove.ack_req", "Acknowledge request", 32, nil, 0x80000000),
    dest_qp = ProtoField.uint24("rove.dest_qp", "Destination QP", base.HEX),
    psn = ProtoField.uint24("rove.psn", "PSN", base.DEC),
    pad = ProtoField.uint8("rove.pad", "Pad bytes", base.DEC, nil, 0x30),
    vp = ProtoField.uint16("rove.vp", "Virtual path (UDP source port)", base.DEC),
    mpeth = ProtoField.none("rove.mpeth", "MPETH"),
    retx = ProtoField.bool("rove.mpeth.retx", "Retransmission", 32, nil, 0x80000000),
    sync = ProtoField.bool("rove.mpeth.sync", "Synchronise", 32, nil, 0x40000000),
    last = ProtoField.bool("rove.mpeth.last", "Nothing queued behind", 32, nil, 0x20000000),
    response = ProtoField.bool("rove.mpeth.response", "Of the response stream", 32, nil, 0x10000000),
    early = ProtoField.bool("rove.mpeth.early", "May be placed early", 32, nil, 0x08000000),
    msn = ProtoField.uint24("rove.mpeth.msn", "MSN", base.DEC),
    ipsn = ProtoField.uint24("rove.mpeth.ipsn", "Packet in message (iPSN)", base.DEC),
    mpaeth = ProtoField.none("rove.mpaeth", "MPAETH"),
    syndrome = ProtoField.uint8("rove.mpaeth.syndrome", "Syndrome", base.HEX),
    aack = ProtoField.uint24("rove.mpaeth.aack", "First PSN not in order (AACK)", base.DEC),
    room = ProtoField.uint8("rove.mpaeth.room", "Room behind the AACK (0: no statement, n: (n - 1) * 8 packets, from 129 on 1024 + (n - 129) * 64)", base.DEC),
    more = ProtoField.uint8("rove.mpaeth.more", "More entries", base.DEC),
    entry = ProtoField.none("rove.entry", "Acknowledged packet"),
    kind = ProtoField.uint32("rove.entry.kind", "Kind", base.DEC, KINDS, 0xC0000000),
    ece = ProtoField.bool("rove.entry.ece", "Congestion echo", 32, nil, 0x20000000),
    entry_retx = ProtoField.bool("rove.entry.retx", "Of a retransmission", 32, nil, 0x10000000),
    entry_response = ProtoField.bool("rove.entry.response", "Of the response stream", 32, nil, 0x08000000),
    trimmed = ProtoField.bool("rove.entry.trimmed", "Trimmed by a switch", 32, nil, 0x04000000),
    entry_psn = ProtoField.uint24("rove.entry.psn", "PSN", base.DEC),
    entry_vp = ProtoField.uint16("rove.entry.vp", "Virtual path", base.DEC),
    hello = ProtoField.none("rove.hello", "HELLO"),
    version = ProtoField.uint8("rove.hello.version", "Version", base.DEC),
    mp = ProtoField.bool("rove.hello.mp", "Will speak mp", 8, nil, 0x02),
    answer = ProtoField.bool("rove.hello.answer", "Answer", 8, nil, 0x01),
    qpn = ProtoField.uint24("rove.hello.qp", "Sender's QP", base.HEX),
    nonce = ProtoField.uint32("rove.hello.nonce", "Nonce", base.HEX),
    reorder = ProtoField.uint16("rove.hello.reorder", "Reordering it can track (packets)", base.DEC),
    early_kib = ProtoField.uint16("rove.hello.early", "Early packets it can hold (KiB)", base.DEC),
    tick = ProtoField.uint32("rove.hello.tick", "Sender's time", base.DEC),
    echo = ProtoField.uint32("rove.hello.echo", "Echo of the question's time", base.DEC),
    srq = ProtoField.uint24("rove.xrceth.srq", "XRCETH: SRQ", base.HEX),
    feth = ProtoField.none("rove.feth", "FETH"),
    selectivity = ProtoField.uint32("rove.feth.selectivity", "Selectivity", base.DEC,
                                    { [0] = "Range", [1] = "Region" }, 0x30),
    placement = ProtoField.uint32("rove.feth.placement", "Placement (1 global, 2 persistent)", base.HEX, nil, 0x0F),
    icrc = ProtoField.uint32("rove.icrc", "ICRC", base.HEX),
}
local list = {}
for _, field in pairs(f) do list[#list + 1] = field end
rove.fields = list

local short = ProtoExpert.new("rove.short", "Packet shorter than its headers",
                              expert.group.MALFORMED, expert.severity.ERROR)
rove.experts = { short }

-- Not pinfo.src_port: the InfiniBand dissector changes that.
local udp_source = Field.new("udp.srcport")
local infiniband = DissectorTable.get("udp.port"):get_dissector(ROCE_PORT)

-- What an acknowledgement says of one packet. Its virtual path stands elsewhere in MPAETH than in an entry of the
-- payload.
local function add_entry(tree, word, vp)
    local kind = KINDS[word(0, 1):bitfield(0, 2)]
    local node = tree:add(f.entry, word)
    node:set_text(string.format("%s of PSN %d, path %d", kind, word(1, 3):uint(), vp:uint()))
    node:add(f.kind, word)
    node:add(f.ece, word)
    node:add(f.entry_retx, word)
    node:add(f.entry_response, word)
    node:add(f.trimmed, word)
    node:add(f.entry_psn, word(1, 3))
    node:add(f.entry_vp, vp)
    return kind
end

local function add_ack(tvb, pinfo, tree)
    local header, more = tvb(BTH, MPAETH), tvb(BTH + 11, 1):uint()
    local node = tree:add(f.mpaeth, header)
    local kind = add_entry(node, header(0, 4), header(8, 2))
    node:add(f.syndrome, header(4, 1))
    node:add(f.aack, header(5, 3))
    node:add(f.room, header(10, 1))
    node:add(f.more, header(11, 1))
    local fit = (tvb:len() - BTH - MPAETH - ICRC) / ENTRY
    if more > fit then tree:add_proto_expert_info(short) end
    for i = 0, math.min(more, math.floor(fit)) - 1 do
        local at = BTH + MPAETH + i * ENTRY
        add_entry(tree, tvb(at, 4), tvb(at + 4, 2))
    end
    pinfo.cols.info = string.format("mp %s PSN %d, AACK %d%s", kind, header(1, 3):uint(), header(5, 3):uint(),
                                    more > 0 and string.format(", %d more", more) or "")
end

local function add_hello(tvb, pinfo, tree)
    local at = tvb(BTH, HELLO_BYTES)
    local node = tree:add(f.hello, at)
    node:add(f.version, at(0, 1))
    node:add(f.mp, at(1, 1))
    node:add(f.answer, at(1, 1))
    node:add(f.qpn, at(5, 3))
    node:add(f.nonce, at(8, 4))
    node:add(f.reorder, at(12, 2))
    node:add(f.early_kib, at(14, 2))
    node:add(f.tick, at(16, 4))
    node:add(f.echo, at(20, 4))
    local mp, answer = at(1, 1):bitfield(6, 1) == 1, at(1, 1):bitfield(7, 1) == 1
    pinfo.cols.info = string.format("HELLO %s, mp: %s", answer and "answer" or "question", mp and "yes" or "no")
end

-- What is left without the `skipped` bytes behind BTH is what RC has under the opcode `op`.
local function add_as_rc(tvb, pinfo, tree, root, op, skipped)
    local rest = BTH + skipped
    if op == FLUSH then
        if tvb:len() < rest + FETH + ICRC then
            tree:add_proto_expert_info(short)
            return
        end
        local bits = tvb(rest, FETH)
        local node = tree:add(f.feth, bits)
        node:add(f.selectivity, bits)
        node:add(f.placement, bits)
        rest = rest + FETH
    end
    local as_rc = tvb:bytes(0, BTH)
    as_rc:set_index(0, AS_OLDER[op] or op)
    as_rc:append(tvb:bytes(rest))
    if infiniband then infiniband:call(as_rc:tvb("as RC"), pinfo, root) end
end

local function add_xrc(tvb, pinfo, tree, root, op, header)
    if header ~= 0 then tree:add(f.srq, tvb(BTH + 1, 3)) end
    add_as_rc(tvb, pinfo, tree, root, op, header)
    pinfo.cols.info = string.format("%s PSN %d", opcodes[XRC + op], tvb(9, 3):uint())
end

local function add_data(tvb, pinfo, tree, root, op, path)
    local header = tvb(BTH, MPETH)
    local node = tree:add(f.mpeth, header)
    for _, flag in ipairs { f.retx, f.sync, f.last, f.response, f.early } do node:add(flag, header(0, 4)) end
    node:add(f.msn, header(1, 3))
    node:add(f.ipsn, header(5, 3))
    add_as_rc(tvb, pinfo, tree, root, MP_AS_RC[op] or op, MPETH)
    pinfo.cols.info = string.format("mp %s PSN %d%s, path %d", OPERATIONS[op], tvb(9, 3):uint(),
                                    header(0, 1):bitfield(0, 1) == 1 and " again" or "", path)
end

function rove.dissector(tvb, pinfo, root)
    local opcode = tvb:len() > 0 and tvb(0, 1):uint() or 0
    if not opcodes[opcode] then
        return infiniband and infiniband:call(tvb, pinfo, root) or 0
    end
    local path = udp_source() and udp_source().value or 0
    local tree = root:add(rove, tvb(), "rove, " .. opcodes[opcode])
    tree:add(f.opcode, tvb(0, 1))
    local rc = opcode < XRC
    local xrc = not rc and opcode < MP
    local response = xrc and opcode - XRC >= 0x0D and opcode - XRC <= 0x12
    local header = (rc or response) and 0 or xrc and XRCETH or opcode == ACK and MPAETH or
                   opcode == HELLO and HELLO_BYTES or MPETH
    if tvb:len() < BTH + header + ICRC then
        tree:add_proto_expert_info(short)
        pinfo.cols.protocol = "rove"
        return tvb:len()
    end
    tree:add(f.pad, tvb(1, 1))
    tree:add(f.dest_qp, tvb(5, 3))
    tree:add(f.ack_req, tvb(8, 4))
    tree:add(f.psn, tvb(9, 3))
    if opcode >= MP then tree:add(f.vp, tvb(0, 0), path):set_generated() end
    if rc then
        add_as_rc(tvb, pinfo, tree, root, opcode, 0)
        pinfo.cols.info = string.format("%s PSN %d", opcodes[opcode], tvb(9, 3):uint())
    elseif xrc then
        add_xrc(tvb, pinfo, tree, root, opcode - XRC, header)
    elseif opcode == ACK then
        add_ack(tvb, pinfo, tree)
    elseif opcode == HELLO then
        add_hello(tvb, pinfo, tree)
    else
        add_data(tvb, pinfo, tree, root, opcode - MP, path)
    end
    tree:add(f.icrc, tvb(tvb:len() - ICRC, ICRC))
    pinfo.cols.protocol = "rove"
    return tvb:len()
end

DissectorTable.get("udp.port"):set(ROCE_PORT, rove)
