# SPDX-License-Identifier: Apache-2.0
"""The TENT engine with a metadata store, a real one on the loopback: names, processes that are killed and come back
elsewhere."""
import shutil
import signal
import time

from harness import CLIENT_CORE, SCRATCH, SERVER_CORE, Process, Skip, check, free_port, once, program, unique


class Store:
    def __init__(self, kind):
        self.kind, self.port = kind, free_port()
        directory = SCRATCH / unique()
        directory.mkdir()
        server = {"etcd": "etcd", "redis": "redis-server"}[kind]
        if not shutil.which(server):
            raise Skip(f"no {server} here")
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        options = {
            "etcd": [
                "--data-dir", directory, "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                f"default={peer}", "--unsafe-no-fsync"],
            "redis": [
                "--port", self.port, "--bind", "127.0.0.1", "--dir", directory, "--save", "", "--requirepass",
                "secret"], }[kind]
        self.server = Process([server, *options], core=SERVER_CORE)
        self.server.wait_listening(self.port)

    def start(self, scenario, name, *options, core=CLIENT_CORE):
        """An engine that has no ports: what is found by name is reached by TCP."""
        settings = (f"metadata_type={self.kind}", f"metadata_servers=127.0.0.1:1,127.0.0.1:{self.port}",
                    f"local_segment_name={name}", "transports/shm/enable=false")
        return Process([program("tent_check"), scenario, "--set", *settings, *options], core=core,
                       env={"MC_REDIS_PASSWORD": "secret"})

    def target(self, name):
        process = self.start("target", name, core=SERVER_CORE)
        process.wait_for(process.json, 20, "its memory")
        return process


def names(kind):
    store = Store(kind)
    first, dies = store.target("a"), store.target("b")
    store.start("move", "c", "--peer", "a", "--sizes", "4096,1048576", "--rounds", "2").succeed(20)
    twice = store.start("target", "a")
    check(twice.wait(10) == 1 and "'a' is the name of a process that lives" in twice.err(), twice.story())

    initiator = store.start("two-peers", "c", "--peer", "a", "--other-peer", "b", "--seconds", "1.5", "--sizes",
                            "65536", "--tolerate")
    initiator.wait_for(initiator.json, 20, "start")
    time.sleep(0.3)
    dies.kill()
    time.sleep(0.3)
    again = store.target("b")  # on another port
    initiator.succeed(20)
    alive, dead = initiator.json()[-2:]
    check(alive["failed"] == 0 and alive["refused"] == 0, f"the live peer: {alive}")
    check(dead["failed"] + dead["refused"] > 0 and dead["after"] > 0, f"the one that came back: {dead}")

    again.kill()
    opens = store.start("names", "c", "--peer", "b", "--other-peer", "a")
    opens.wait_for(lambda: "a process that has ended" in opens.out(), 10, "the end of a process to be seen")
    check(first.wait(5) == 0, first.story())
    store.server.kill(signal.SIGKILL)
    opens.succeed(20)
    late = store.start("target", "d")
    check(late.wait(10) == 1 and f"MetadataError: {kind} 127.0.0.1:{store.port}: " in late.err(), late.story())


for _kind in ("etcd", "redis"):
    once(f"tent/metadata/{_kind}", names, _kind)
