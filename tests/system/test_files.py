# SPDX-License-Identifier: Apache-2.0
"""Tests that descriptors of rove and of DPDK's drivers stay in the process. A program that it starts, a child that
outlives it and a program that it executes have none of them."""
import fcntl
import os
import pathlib
import signal
import socket

from harness import (ROVE_RUN, SCRATCH, SERVER_CORE, Link, Process, Skip, check, free_port, memif_link, once, program,
                     unique, write_toml)
from test_interface import interfaces
from test_mesh import folder, mesh
from test_tap import Bridge
from test_udp import udp
from test_veth import veth
from test_vhost import vhost_link

CASES = ("started", "forked", "again")


def run(case, config, netns=None):
    """Runs verbs_files, which prints its own failures."""
    Process([program("verbs_files"), case], config, SERVER_CORE, netns).succeed(40)


def first(case, link, *_):
    run(case, link.configs[0], link.netns[0])


def beside_peer(case, link):
    """Runs the second of two processes, whose port has received its peer's memory and events."""
    port = free_port()
    Process(["ibv_rc_pingpong", "-g", "1", "-p", port], link.configs[0], SERVER_CORE).wait_listening(port)
    run(case, link.configs[1])


def dpdk_memif_link():
    socket = SCRATCH / unique()
    return Link([{"device": [{"port": f"net_memif0,role={role},socket={socket},socket-abstract=no",
                              "addresses": [f"10.0.0.{number}/24"]}]}
                 for number, role in ((1, "server"), (2, "client"))])


def scarce(what, config):
    """A first use that fails because there are too few descriptors can be repeated later, and leaks none."""
    plenty, scarce = (Process([program("verbs_descriptors"), how, what], config()).succeed(90)
                      for how in ("plenty", "scarce"))
    check("FILES" in plenty.out() and plenty.out() == scarce.out(), plenty.story() + "\n" + scarce.story())


def udp_devices(count):
    return {"device": [{"port": f"udp:127.0.1.{number}"} for number in range(1, count + 1)]}


def many_devices():
    """Uses rdma_cm on more than 32 devices."""
    Process([program("verbs_descriptors"), "plenty", "cm"], udp_devices(40)).succeed(60)


# The PIDs of the namespace begin at one that no process here has.
IN_PID_NAMESPACE = """
echo "$1" > /proc/sys/kernel/ns_last_pid && shift && exec "$@"
"""


def other_pid_namespace():
    """Tests containers that share one folder for sockets. A start removes the sockets of processes that have ended, and
    no others."""
    if os.geteuid() != 0:
        raise Skip("needs root for a PID namespace")
    free = next(pid for pid in range(30000, 20000, -100) if not any(
        pathlib.Path(f"/proc/{pid + more}").exists() for more in range(50)))
    # EAL makes its folder here. It belongs to the test, and no other process sweeps it.
    env = {"RUNTIME_DIRECTORY": str(SCRATCH / unique())}
    pathlib.Path(env["RUNTIME_DIRECTORY"]).mkdir()
    folders = lambda: set(pathlib.Path(env["RUNTIME_DIRECTORY"]).glob("dpdk/rove-*"))
    port = free_port()
    other = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", IN_PID_NAMESPACE, "sh",
                     free,
                     ROVE_RUN, "--config", write_toml(mesh(folder())), "--", "sh", "-c",
                     f"ibv_rc_pingpong -g 1 -p {port}; true"], env=env)
    other.wait_listening(port)
    made = folders()
    check(len(made) == 1, f"{made}\n{other.story()}")
    Process(["ibv_devinfo"], mesh(folder()), env=env).succeed(20)
    check(made <= folders(), "the folder of a process that lives was removed")
    other.kill()
    (path,) = made
    # The lock is released when the last process of the namespace ends.
    with open(path / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    Process(["ibv_devinfo"], mesh(folder()), env=env).succeed(20)
    check(not made & folders(), "the folder of a process that was killed is still there")


def tap(case):
    with Bridge() as bridge:
        first(case, bridge.link())


def keeps_file(port):
    """The name of a port's socket is, by mistake, that of a file, or a symbolic link to one."""
    for link in (False, True):
        file = SCRATCH / unique()
        file.write_text("precious")
        name = SCRATCH / unique() if link else file
        if link:
            name.symlink_to(file)
        run = Process(["ibv_devinfo"], {"device": [{"port": port.format(name), "addresses": ["10.0.0.1/24"]}]})
        check(run.wait(30) != 0, run.story())
        lines = [line for line in run.err().splitlines() if line.startswith("rove")]
        check(len(lines) == 1 and str(name) in lines[0], run.story())
        check(file.read_text() == "precious" and name.is_symlink() == link, run.story())


def keeps_abstract_namesake():
    """A socket with an abstract name has no relation to a file with that name in the current folder."""
    name = f"@{unique()}"
    (SCRATCH / name).write_text("precious")
    Process(["ibv_devinfo"],
            {"device": [{"port": f"memif:{name},role=server", "addresses": ["10.0.0.1/24"]}]}).succeed(30)
    check((SCRATCH / name).read_text() == "precious", "the file was removed")


def replaced_while_it_runs():
    """Another process replaces the port's socket by its own."""
    path = SCRATCH / unique()
    config = {"device": [{"port": f"memif:{path},role=server", "addresses": ["10.0.0.1/24"]}]}
    port = free_port()
    server = Process(["ibv_rc_pingpong", "-g", "1", "-p", port], config)
    server.wait_listening(port)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        server.kill(signal.SIGINT)
        check(path.is_socket(), server.story())


for name, port in {"memif": "memif:{},role=server", "net_memif": "net_memif0,role=server,socket={},socket-abstract=no",
                   "vhost": "net_vhost0,iface={}", "virtio-user": "net_virtio_user0,path={},server=1"}.items():
    once(f"files/not-removed/{name}", keeps_file, port, quick=name == "memif")
once("files/not-removed/abstract", keeps_abstract_namesake)
once("files/not-removed/replaced", replaced_while_it_runs)
once("files/placed", lambda: run("placed", mesh(folder())), quick=True)
once("files/scarce/verbs", scarce, "verbs", lambda: mesh(folder()), timeout=200)
once("files/scarce/cm", scarce, "cm", lambda: udp_devices(3), timeout=200)
once("files/many-devices", many_devices)
once("files/pid-namespace", other_pid_namespace)
for case in CASES:
    once(f"files/mesh/{case}", lambda case=case: run(case, mesh(folder())), quick=True)
    once(f"files/udp/{case}", lambda case=case: run(case, udp("127.0.0.1")))
    once(f"files/memif/{case}", lambda case=case: beside_peer(case, memif_link()))
    once(f"files/net_memif/{case}", lambda case=case: beside_peer(case, dpdk_memif_link()))
    once(f"files/af_packet/{case}", lambda case=case: veth("af_packet", lambda link, _: first(case, link)))
    once(f"files/vhost/{case}", lambda case=case: first(case, vhost_link()))
    # A forked child that executes no program keeps the descriptors that these drivers and libbpf open themselves,
    # because they rely on close-on-exec.
    if case == "forked":
        continue
    once(f"files/virtio-user/{case}", lambda case=case: beside_peer(case, vhost_link()))
    once(f"files/tap/{case}", tap, case)
    once(f"files/af_xdp/{case}", lambda case=case: veth("af_xdp", lambda link, _: first(case, link)))
    once(f"files/interface/{case}", lambda case=case: interfaces(lambda link: first(case, link), queues=2))
