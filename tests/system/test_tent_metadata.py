# SPDX-License-Identifier: Apache-2.0
"""Tests the TENT engine with a real metadata store on the loopback: names, processes that are killed and return with
another address, TLS, users, and names that several processes claim."""
import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from harness import CLIENT_CORE, SCRATCH, SERVER_CORE, Process, Skip, check, free_port, once, program, unique
from test_tent import finish

SERVERS = {"etcd": "etcd", "redis": "redis-server"}


def certificates(directory):
    """Creates a certificate authority, and certificates that it signed for the server at 127.0.0.1 and for its clients.
    They have no common name, because etcd's gateway refuses common names where there are users."""
    def openssl(*arguments):
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, cwd=directory)
        check(done.returncode == 0, done.stderr)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    # Python 3.13 requires an explicit permission to sign.
    openssl("req", "-x509", *key, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem", "-days", 2,
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name in ("server", "client"):
        openssl("req", *key, "-subj", f"/O={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (directory / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-extfile", f"{name}.ext", "-days", 2, "-out", f"{name}.pem")


class Store:
    def __init__(self, kind, secured=False, notifies=True):
        self.kind, self.port, self.secured, self.notifies = kind, free_port(), secured, notifies
        self.directory = SCRATCH / unique()
        self.directory.mkdir()
        if not shutil.which(SERVERS[kind]) or (secured and not shutil.which("openssl")):
            raise Skip(f"no {SERVERS[kind]} or no openssl here")
        self.scheme = ("https" if kind == "etcd" else "rediss") + "://" if secured else ""
        if secured:
            certificates(self.directory)
        self.server = Process([SERVERS[kind], *getattr(self, f"{kind}_options")()], core=SERVER_CORE)
        self.server.wait_listening(self.port)
        if secured and kind == "etcd":
            self.protect_etcd()

    def etcd_options(self):
        client = f"{self.scheme or 'http://'}127.0.0.1:{self.port}"
        peer = f"http://127.0.0.1:{free_port()}"
        tls = ["--cert-file", self.directory / "server.pem", "--key-file", self.directory / "server.key",
               "--trusted-ca-file", self.directory / "ca.pem", "--client-cert-auth"] if self.secured else []
        return ["--data-dir", self.directory / "data", "--listen-client-urls", client, "--advertise-client-urls",
                client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                f"default={peer}", "--unsafe-no-fsync", "--bcrypt-cost", 4, *tls]

    def redis_options(self):
        tls = ["--tls-port", self.port, "--port", 0, "--tls-cert-file", self.directory / "server.pem", "--tls-key-file",
               self.directory / "server.key", "--tls-ca-cert-file", self.directory / "ca.pem"]
        return [*(tls if self.secured else ["--port", self.port]), "--bind", "127.0.0.1", "--dir", self.directory,
                "--save", "", "--requirepass", "secret", "--notify-keyspace-events", "Kg$x" if self.notifies else ""]

    def protect_etcd(self):
        """Turns on authentication. Reading and writing then need a user."""
        tls = ssl.create_default_context(cafile=self.directory / "ca.pem")
        tls.load_cert_chain(self.directory / "client.pem", self.directory / "client.key")
        for call, body in (("user/add", {"name": "root", "password": "secret"}), ("role/add", {"name": "root"}),
                           ("user/grant", {"user": "root", "role": "root"}), ("enable", {})):
            url = f"https://127.0.0.1:{self.port}/v3/auth/{call}"
            urllib.request.urlopen(url, json.dumps(body).encode(), 5, context=tls).close()

    def settings(self):
        servers = f"{self.scheme}127.0.0.1:1,{self.scheme}127.0.0.1:{self.port}"
        files = [f"metadata_{what}_file={self.directory / name}"
                 for what, name in (("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key"))]
        return [f"metadata_servers={servers}", *(files if self.secured else [])]

    def stop(self):
        self.server.kill(signal.SIGKILL)

    def start(self, scenario, name, *options, core=CLIENT_CORE, env=None):
        """Starts an engine without ports. Its peers are found by name and use TCP."""
        settings = (f"metadata_type={self.kind}", *self.settings(), "metadata_ttl_secs=2",
                    f"local_segment_name={name}", "transports/shm/enable=false")
        user = {"MC_REDIS_PASSWORD": "secret", "ETCDCTL_USER": "root:secret" if self.secured else ""}
        return Process([program("tent_check"), scenario, "--set", *settings, *options], core=core, env=env or user)

    def target(self, name):
        process = self.start("target", name, core=SERVER_CORE)
        process.wait_for(process.json, 20, "its memory")
        return process


class HttpStore(Store):
    """A store like Mooncake's, with GET, PUT and DELETE of /metadata?key=KEY."""

    def __init__(self):
        self.kind, self.secured, self.values = "http", False, {}
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, text=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def key(self):
                return urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)["key"][0]

            def do_GET(self):
                value = store.values.get(self.key())
                self.answer(404 if value is None else 200, value or b"")

            def do_PUT(self):
                store.values[self.key()] = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(200)

            def do_DELETE(self):
                self.answer(200 if store.values.pop(self.key(), None) else 404)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def settings(self):
        return [f"metadata_servers=127.0.0.1:1/metadata,http://127.0.0.1:{self.port}/metadata"]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def names(kind):
    store = Store(kind)
    first, dies = store.target("a"), store.target("b")
    store.start("move", "c", "--peer", "a", "--sizes", "4096,1048576", "--rounds", "2").succeed(20)
    twice = store.start("target", "a")
    check(twice.wait(20) == 1 and "'a' is in use by a running process" in twice.err(), twice.story())

    initiator = store.start("two-peers", "c", "--peer", "a", "--other-peer", "b", "--seconds", "30", "--sizes",
                            "65536", "--tolerate")
    initiator.wait_for(initiator.json, 20, "start")
    time.sleep(0.3)
    dies.kill()
    time.sleep(0.3)
    again = store.target("b")  # It uses another port.
    initiator.wait_for(lambda: {"served_again": 1} in initiator.json(), 20, "the second life")
    alive, dead = finish(initiator).json()[-2:]
    check(alive["failed"] == 0 and alive["refused"] == 0, f"the live peer: {alive}")
    check(dead["failed"] + dead["refused"] > 0 and dead["after"] > 0, f"the one that came back: {dead}")

    again.kill()
    opens = store.start("names", "c", "--peer", "b", "--other-peer", "a")
    opens.wait_for(lambda: "a process that has ended" in opens.out(), 20, "the end of a process to be seen")
    check(first.wait(20) == 0, first.story())
    store.stop()
    opens.succeed(20)
    late = store.start("target", "d")
    check(late.wait(20) == 1 and f"MetadataError: {kind} " in late.err() and f"127.0.0.1:{store.port}" in late.err(),
          late.story())


def without_time():
    """Tests a store that supports neither conditions nor expiry."""
    store = HttpStore()
    first, dies = store.target("a"), store.target("b")
    store.start("move", "c", "--peer", "a", "--sizes", "65536", "--rounds", "1").succeed(20)
    twice = store.start("target", "a")
    check(twice.wait(20) == 1 and "'a' is in use by a running process" in twice.err(), twice.story())
    dies.kill()
    again = store.target("b")
    for process, name in ((first, "a"), (again, "b")):
        store.start("quit", "c", "--peer", name).succeed(20)
        check(process.wait(20) == 0, process.story())
    check(store.values == {}, f"names of processes that have ended: {store.values}")


def claims():
    """Tests stores with TLS, certificates and users. If several processes claim a name at the same moment, one of them
    gets it and keeps it while it lives. The name of a killed process expires."""
    stores = [Store(kind, secured=True) for kind in SERVERS]
    wrong = {"MC_REDIS_PASSWORD": "wrong", "ETCDCTL_USER": "root:wrong"}
    for store in stores:
        dies, several = store.start("target", "b"), [store.start("target", "a") for _ in range(3)]
        until = time.monotonic() + 20
        while sum(process.child.poll() is None for process in several) > 1 and time.monotonic() < until:
            time.sleep(0.02)
        alive = [process for process in several if process.child.poll() is None]
        check(len(alive) == 1, "\n".join(process.story() for process in several))
        for process in several:
            check(process is alive[0] or "'a' is in use by a running process" in process.err(), process.story())
        dies.wait_for(dies.json, 20, "its memory")
        dies.kill()
        for refused in (store.start("open", "c", "--peer", "a", env=wrong),
                        store.start("open", "c", "--peer", "a", "--set", "metadata_ca_file=/dev/null")):
            check(refused.wait(20) == 1 and "MetadataError" in refused.err(), refused.story())
    for store in stores:
        until = time.monotonic() + 20
        while True:
            opens = store.start("open", "c", "--peer", "b")
            check(opens.wait(20) == 1 and time.monotonic() < until, opens.story())
            if "has no segment of this name" in opens.err():
                break
            time.sleep(0.1)
        store.start("open", "c", "--peer", "a").succeed(20)


def watches():
    """A process that has opened a segment learns from the store that the segment's process has stopped or has returned,
    at another address or after a pause. It does not need to send a request for that."""
    stores = [Store(kind, secured=True) for kind in SERVERS]
    first = [store.target("b") for store in stores]
    holders = [store.start("hold", "h", "--peer", "b", "--seconds", "30", "--set", "log_level=info")
               for store in stores]
    silent = Store("redis", notifies=False)
    silent.target("b")
    unsure = silent.start("hold", "h", "--peer", "b", "--seconds", "30")

    def wait(what, times):
        for holder in holders:
            holder.wait_for(lambda: holder.err().count(f"segment 'b': its process {what}") >= times, 20, what)

    for holder in holders:
        holder.wait_for(holder.json, 20, "start")
    for target in first:
        target.kill()
    wait("has ended", 1)
    again = [store.target("b") for store in stores]
    wait("has returned, at", 1)
    for target in again:
        os.kill(target.pid, signal.SIGSTOP)
    wait("has ended", 2)
    for target in again:
        os.kill(target.pid, signal.SIGCONT)
    wait("has returned, at", 2)
    unsure.wait_for(lambda: "notify-keyspace-events are '', not 'Kg$x'" in unsure.err(), 20, "a warning")


for _kind in SERVERS:
    once(f"tent/metadata/{_kind}", names, _kind)
once("tent/metadata/http", without_time)
once("tent/metadata/tls", claims)
once("tent/metadata/watches", watches)
