# SPDX-License-Identifier: Apache-2.0
"""Tests the TENT engine with strangers, hostile peers and dead hosts, its secrets, and its addresses."""
import json
import os
import random
import socket
import struct
import threading
import time

from harness import CLIENT_CORE, SCRATCH, SERVER_CORE, Process, TwoNamespaces, check, free_port, ip, memif_pair, once, \
    program, telemetry, unique
from test_tent import finish
from test_tent_metadata import certificates as make_certificates

SECRET = {"ROVE_TENT_SECRET": "a secret of the system tests"}
DESCRIBE, CONNECT, CLOSE, NOTIFY, PROBE, LEASE = range(1, 7)
CONTROL, DATA = 1, 2
HELLO, HEADER = struct.Struct("<IHBB32s"), struct.Struct("<IHHII")


class Stranger:
    """A connection that speaks the engine's protocol by hand."""

    def __init__(self, port, purpose=CONTROL, has_secret=0):
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.socket.sendall(HELLO.pack(0x45564F52, 2, purpose, has_secret, os.urandom(32)))
        self.welcome = self.read(HELLO.size)

    def read(self, size):
        """Returns `size` bytes, or fewer if the engine closes the connection."""
        got = b""
        try:
            while len(got) < size and (more := self.socket.recv(size - len(got))):
                got += more
        except ConnectionError:
            pass
        return got

    def send(self, kind, body):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.socket.sendall(HEADER.pack(0x544E4554, 2, kind, len(text), 1) + text)
        except ConnectionError:
            pass

    def ask(self, kind, body):
        """Returns the answer, or None if the engine closes the connection."""
        self.send(kind, body)
        header = self.read(HEADER.size)
        return json.loads(self.read(HEADER.unpack(header)[3])) if len(header) == HEADER.size else None


def junk_of_strangers(port):
    """Sends data that needs no secret. Returns the connections that stay open."""
    chance = random.Random(1)
    silent = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(300)]
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", port), 5) as one:
            one.sendall(chance.randbytes(chance.randrange(1, 2000)))
    for _ in range(20):  # a Hello and an invalid proof
        one = Stranger(port, has_secret=1)
        try:
            one.socket.sendall(chance.randbytes(32))
        except ConnectionError:
            pass
        silent.append(one)
    return silent


def close_of(owner, rail, number):
    return {"owner": owner, "rail": rail, "number": number}


def junk_of_peers(port):
    """Sends requests that any accepted peer may send. Returns the connections that stay open."""
    chance = random.Random(1)
    owners = [f"{chance.getrandbits(128):032x}" for _ in range(40)]
    one = Stranger(port)
    for i in range(500):
        rail = chance.choice(["rove0-rove0", "tcp", "x"])
        answer = one.ask(CLOSE, close_of(chance.choice(owners), rail, 2**64 - 2 - i))
        check(answer == {"ok": True}, f"nothing of an owner without a lease is there: {answer}")
    endpoint = {"gid": "0" * 32, "mtu": 1024, "qpns": [1, 2, 3], "psns": [1, 2, 3], "probe_addr": 0, "probe_rkey": 0}
    connect = {**close_of(owners[0], "rove0-rove0", 1), "device": "rove0", "endpoint": endpoint}
    answer = one.ask(CONNECT, connect)
    check(answer["ok"] is False and "no lease" in answer["error"], f"connecting without a lease: {answer}")
    kept = [one]
    for owner in owners:
        lease = Stranger(port)
        check(lease.ask(LEASE, {"owner": owner})["ok"], "a lease")
        kept.append(lease)
    refused = [one.ask(CLOSE, close_of(owners[0], f"rail-{i}", 1))["ok"] for i in range(300)].count(False)
    check(refused == 300 - 256, f"rails of an owner beyond its limit: {refused} were refused")
    too_long = close_of(owners[0], "r" * 300, 1)
    for body in ({}, {"owner": 1}, {"owner": "x"}, too_long, {"number": -1}):
        for kind in (CONNECT, CLOSE, NOTIFY, 99):
            answer = one.ask(kind, body)
            check(answer is not None and answer["ok"] is False, f"{kind}, {body}: {answer}")
        Stranger(port).send(LEASE, body)
    for text in (b"[]", b"{", b"\xff", b"[" * 10000, b"{}" * 3):
        check(Stranger(port).ask(PROBE, text) is None, f"{text[:10]} is answered")
    endless = Stranger(port)
    endless.socket.sendall(HEADER.pack(0x544E4554, 2, PROBE, 2**31, 1))
    check(endless.read(1) == b"", "the engine waits for a message of 2 GiB")
    begun = Stranger(port)
    begun.socket.sendall(HEADER.pack(0x544E4554, 2, PROBE, 1000, 1) + b"{")
    greedy = Stranger(port)
    greedy.socket.setblocking(False)
    try:
        while True:
            greedy.socket.send((HEADER.pack(0x544E4554, 2, DESCRIBE, 2, 1) + b"{}") * 1000)
    except (BlockingIOError, ConnectionError):
        pass
    kept += [begun, greedy]
    for owner, allowed in (("f" * 32, False), (owners[1], True)):
        data = Stranger(port, DATA)
        data.socket.sendall(struct.pack("<II16sQ", 0x54434454, 3, bytes.fromhex(owner), 1))
        check((data.read(8) == bytes(8)) is allowed, f"the tcp transport without a lease, with one: {owner}")
        if allowed:
            data.socket.sendall(struct.pack("<IIQQ", 1, 0, 4096, 1 << 40))
            check(struct.unpack("<II", data.read(8))[0] == 1, "a READ of memory that is not registered")
            data.socket.sendall(struct.pack("<IIQQ", 1, 0, 2**64 - 1, 2**64 - 1))
            check(struct.unpack("<II", data.read(8))[0] == 1, "a READ around the end")
            data.socket.sendall(struct.pack("<IIQQ", 2, 0, 4096, 64) + bytes(64))
            check(struct.unpack("<II", data.read(8))[0] == 1, "a WRITE to memory that is not registered")
    return kept


def hostile(junk, env):
    """Runs a transfer over the only rail, and a second peer that connects while the hostile connections stay open."""
    a, b = memif_pair()
    port = free_port()
    only_rdma = ("--set", "transports/shm/enable=false", "transports/tcp/enable=false")
    target = Process([program("tent_check"), "target", "--set", f"rpc_server_port={port}"], a, SERVER_CORE, env=env)
    target.wait_for(target.json, 20, "its memory")
    stream = Process([program("tent_check"), "stream", "--peer", f"127.0.0.1:{port}", "--seconds", "30", "--sizes",
                      "65536", *only_rdma], b, CLIENT_CORE, env=env)
    stream.wait_for(stream.json, 20, "start")
    stream.wait_for(lambda: telemetry(stream.pid, "/tent/transports")["rdma"]["slices"] > 100, 20, "use of the rail")
    before = telemetry(stream.pid, "/tent/rails")
    kept = junk(port)
    opened = time.monotonic()
    late = Process([program("tent_check"), "stream", "--peer", f"127.0.0.1:{port}", "--seconds", "0.2", "--sizes",
                    "4096", "--offset", "33554432"], core=CLIENT_CORE, env=env)
    late.succeed(20)
    took = time.monotonic() - opened
    check(took < 5, f"another peer was served after {took:.1f} s only")
    after = telemetry(stream.pid, "/tent/rails")
    finish(stream)
    for name, rail in after.items():
        for what in ("errors", "silences", "connects"):
            check(rail[what] == before[name][what], f"{name}: {what} {before[name][what]}, then {rail[what]}")
    result = stream.json()[-1]
    check(result["failed"] == 0 and result["timeout"] == 0, stream.story())
    check(target.child.poll() is None, target.story())
    del kept


def strangers(env):
    hostile(junk_of_strangers, env)


def peers():
    hostile(junk_of_peers, {})


def secrets():
    """A peer with another secret, or with none, gets this reason and no other data."""
    port = free_port()
    target = Process([program("tent_check"), "target", "--set", f"rpc_server_port={port}"], core=SERVER_CORE,
                     env=SECRET)
    target.wait_for(target.json, 20, "its memory")
    one = Stranger(port)
    check(len(one.welcome) == HELLO.size and one.read(1) == b"", "it says more than Welcome to who has no secret")
    for env, why in (({"ROVE_TENT_SECRET": "another one of 16 bytes"}, "the peer's secret differs from this engine's"),
                     ({}, "the peer has a secret, and this engine has no secret")):
        other = Process([program("tent_check"), "open", "--peer", f"127.0.0.1:{port}"], core=CLIENT_CORE, env=env)
        check(other.wait(20) == 1 and why in other.err(), other.story())
    Process([program("tent_check"), "move", "--peer", f"127.0.0.1:{port}", "--set", "transports/shm/enable=false"],
            core=CLIENT_CORE, env=SECRET).succeed(20)
    refused = Process([program("tent_check"), "target", "--set", "rpc_server_hostname=192.0.2.7"], core=CLIENT_CORE)
    check(refused.wait(20) == 1 and "needs a secret" in refused.err(), refused.story())


def certificates_of(directory, name):
    return [f"tls_{what}_file={directory / file}"
            for what, file in (("ca", "ca.pem"), ("cert", f"{name}.pem"), ("key", f"{name}.key"))]


def certificates():
    """With certificates, connections of control and of the tcp transport are encrypted. Peers that the authority has
    not signed, or that do not use TLS, are refused with the reason. No plain text is sent."""
    ours, others = SCRATCH / unique(), SCRATCH / unique()
    for directory in (ours, others):
        directory.mkdir()
        make_certificates(directory)
    inner, outer = free_port(), free_port()
    seen = forward(outer, inner)
    target = Process([program("tent_check"), "target", "--set", f"rpc_server_port={inner}",
                      f"advertised_address=127.0.0.1:{outer}", *certificates_of(ours, "server")], core=SERVER_CORE)
    target.wait_for(target.json, 20, "its memory")

    def start(scenario, *settings):
        return Process([program("tent_check"), scenario, "--peer", f"127.0.0.1:{outer}", "--sizes", "4096,1048576",
                        "--rounds", "2", "--set", "transports/shm/enable=false", *settings], core=CLIENT_CORE)

    start("move", *certificates_of(ours, "client")).succeed(20)
    check(len(seen) > 4 << 20, f"{len(seen)} bytes passed by")
    start("leave", *certificates_of(ours, "client")).succeed(20)
    check(seen.startswith(b"\x16\x03"), f"it begins with {bytes(seen[:8])}")
    for word in (b'"buffers"', b'"instance"'):
        check(word not in seen, f"{word} was said in the clear")
    for settings, why in (([], "the peer requires TLS, and this engine has no certificate"),
                          (certificates_of(others, "client"), "TLS: self-signed certificate in certificate chain"),
                          ([*certificates_of(others, "client"), f"tls_ca_file={ours / 'ca.pem'}"],
                           "TLS: tlsv1 alert unknown ca"),
                          ([*certificates_of(ours, "client"), f"tls_key_file={others / 'client.key'}"],
                           "key 'tls_key_file'")):
        refused = start("open", *settings)
        check(refused.wait(20) == 1 and why in refused.err(), refused.story())
    junk_of_strangers(inner)
    start("open", *certificates_of(ours, "client")).succeed(20)


def forward(port, to):
    """Forwards connections from `port` to `to`, as NAT does. Returns a buffer that grows with the forwarded bytes."""
    seen = bytearray()

    def pump(source, sink):
        try:
            while data := source.recv(65536):
                seen.extend(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept():
        while True:
            here = listener.accept()[0]
            there = socket.create_connection(("127.0.0.1", to))
            for pair in ((here, there), (there, here)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=accept, daemon=True).start()
    return seen


def places():
    """Tests IPv6, names, and an advertised address that differs from the bound one. A peer reaches each of them by its
    name."""
    inner, outer = free_port(), free_port()
    forward(outer, inner)
    for settings, segment in ((["rpc_server_hostname=::1"], "[::1]:"),
                              (["rpc_server_hostname=localhost"], "localhost:"),
                              ([f"rpc_server_port={inner}", f"advertised_address=127.0.0.1:{outer}"],
                               f"127.0.0.1:{outer}")):
        target = Process([program("tent_check"), "target", "--set", *settings], core=SERVER_CORE)
        target.wait_for(target.json, 20, "its memory")
        name = target.json()[0]["segment"]
        check(name.startswith(segment), f"{settings}: {name}")
        Process([program("tent_check"), "move", "--peer", name, "--sizes", "65536", "--rounds", "1", "--set",
                 "transports/shm/enable=false"], core=CLIENT_CORE).succeed(20)
        target.stop()


def bridges():
    """On a host without a default route, the engine uses an interface's address, but not that of a local bridge."""
    with TwoNamespaces(1500) as namespaces:
        here = namespaces.names[0]
        ip("link", "del", "ctl", netns=here)
        ip("link", "add", "docker0", "type", "bridge", netns=here)
        ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth1", netns=here)
        for device, address in (("docker0", "172.17.0.1/16"), ("eth0", "10.9.0.2/24")):
            ip("addr", "add", address, "dev", device, netns=here)
            ip("link", "set", device, "up", netns=here)
        target = Process([program("tent_check"), "target", "--set", "rpc_server_hostname=0.0.0.0"], core=SERVER_CORE,
                         netns=here, env=SECRET)
        target.wait_for(target.json, 20, "its memory")
        name = target.json()[0]["segment"]
        check(name.startswith("10.9.0.2:"), name)


def dead_hosts():
    """A host loses its power. Its peers detect that within seconds, although they get no message. Meanwhile another
    peer is opened and its memory is read, in the presence of sixteen hosts that do not answer."""
    with TwoNamespaces(1500) as namespaces:
        far, here = namespaces.names

        def silence(address, netns):
            ip("neigh", "replace", address, "lladdr", "02:00:00:00:00:09", "nud", "permanent", "dev", "ctl",
               netns=netns)

        for host in range(101, 117):
            silence(f"192.0.2.{host}", here)
        dies = Process([program("tent_check"), "target", "--set", "rpc_server_hostname=192.0.2.1"], core=SERVER_CORE,
                       netns=far, env=SECRET)
        near = Process([program("tent_check"), "target"], core=SERVER_CORE, netns=here, env=SECRET)
        for target in (dies, near):
            target.wait_for(target.json, 20, "its memory")
        initiator = Process([program("tent_check"), "gone", "--peer", dies.json()[0]["segment"], "--seconds", "15",
                             "--set", "rpc_server_hostname=192.0.2.2"], core=CLIENT_CORE, netns=here, env=SECRET)
        initiator.wait_for(initiator.json, 20, "start")
        silence("192.0.2.1", here)
        silence("192.0.2.2", far)
        opener = Process([program("tent_check"), "dead-hosts", "--peer", near.json()[0]["segment"]], core=CLIENT_CORE,
                         netns=here, env=SECRET)
        opener.succeed(20)
        slowest = opener.json()[-1]["slowest"]
        check(slowest < 2.5, f"opening a live peer took {slowest:.3f} s")
        initiator.succeed(20)
        check(initiator.json()[-1] == {"gone": True}, initiator.story())


once("tent/trust/strangers", strangers, SECRET)
once("tent/trust/peers", peers)
once("tent/trust/secrets", secrets, quick=True)
once("tent/trust/certificates", certificates)
once("tent/trust/places", places)
once("tent/trust/bridges", bridges)
once("tent/peers/dead-hosts", dead_hosts)
