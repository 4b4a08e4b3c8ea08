# SPDX-License-Identifier: Apache-2.0
"""Runs rove on emulated NICs that DPDK drives, between the two NICs of a pair in the guest of tests/guest. The steps
are those that bench/hardware.md describes for real NICs."""
import json
import re
import time

from harness import ROOT, ROVE_RUN, STOPPED, Failure, check, free_port, program, shipped, write_toml

ADDRESSES = ("192.168.10.1", "192.168.10.2")
HUGEPAGES_MIB = 384     # for two processes, each with a pool of at most 60 MiB per worker
TIMEOUT = "17"          # timeout of a QP, 0.54 s, because the emulated machine stalls for long at times


# The guest has the device of rdma_rxe too.
CHECK = (program("verbs_check"), "--device", "rove0", "--timeout", TIMEOUT)


def prepare(machine, kind):
    """Runs scripts/prepare-nic as a user does. Without an IOMMU its output must name the driver that it uses
    instead."""
    for end in range(2):
        said = machine.run(ROOT / "scripts" / "prepare-nic", machine.nic_address(kind, end), HUGEPAGES_MIB)
        check("is ready" in said, said)
        check(machine.iommu or "uio_pci_generic" in said or "is bound to" in said, said)


def config(machine, kind, end, workers=0, mode="auto", **device):
    """Returns a copy of config/pci-nic.toml with the NIC's address, as bench/hardware.md says, and with `workers`
    dedicated workers. A key whose value is None is left out."""
    config = shipped("pci-nic")
    config["transport"]["mode"] = mode
    config["runtime"] = {"progress": "dedicated", "lcores": [str(cpu) for cpu in range(workers)]} if workers else {}
    for key in ("gateway_ipv4", "gateway_ipv6", "neighbour"):
        del config["device"][0][key]
    config["device"][0] |= {"port": machine.nic_address(kind, end),
                            "addresses": [f"{ADDRESSES[end]}/24", f"fd10::{end + 1}/64"], **device}
    config["device"][0] = {key: value for key, value in config["device"][0].items() if value is not None}
    return config


def rove(machine, config, *command):
    return machine.process([ROVE_RUN, "--config", write_toml(config), "--", *command])


def start_server(machine, config, command, port):
    """Starts a server and returns when it listens."""
    listens = f"grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6 && echo yes; true"
    server = rove(machine, config, *command, port)
    server.wait_for(lambda: machine.run("sh", "-c", listens), 60, "listener")
    return server


def pair(machine, configs, command, port_option="-p", timeout=100):
    """Runs the same command as a server and a client, one on each NIC. Returns both."""
    port = free_port(machine.netns)
    server = start_server(machine, configs[0], [*command, port_option], port)
    client = rove(machine, configs[1], *command, port_option, port, "127.0.0.1")
    try:
        client.succeed(timeout)
        server.succeed(4 * STOPPED)
    except Failure as failure:
        first = str(failure).splitlines()[0]
        raise Failure(f"{first}\n--- server\n{server.story()}\n--- client\n{client.story()}") from None
    return server, client


def configs(machine, kind, **changes):
    return [config(machine, kind, end, **changes) for end in range(2)]


def verified(machine, kind, *options, **changes):
    command = [*CHECK, "--rounds", "1", "--depth", "4", *options]
    server, client = pair(machine, configs(machine, kind, **changes), command, "--port")
    check(server.json() and len(server.json()) == len(client.json()), f"{server.story()}\n{client.story()}")


def perftest(machine, kind, tool, *options, **changes):
    """Runs a perftest program, which queries the port's state once, after it has opened the device."""
    _, client = pair(machine, configs(machine, kind, **changes), [tool, "-F", "-d", "rove0", "-x", "1", "-u", TIMEOUT,
                                                                  *options])
    check(re.search(r"^ *\d+ +\d+ +[\d.]+", client.out(), re.M), client.story())


def devinfo(machine, kind, active_mtu=4096, **device):
    """Checks that the port is up when the program sees it, and that nothing is on its stderr."""
    path = write_toml(config(machine, kind, 0, **device))
    out, err = machine.run("sh", "-c", '"$@" 2>/dev/shm/err; echo ---; cat /dev/shm/err', "sh", ROVE_RUN, "--config",
                           path, "--", "ibv_devinfo", "-d", "rove0").split("---\n")
    check("PORT_ACTIVE" in out and re.search(rf"active_mtu:\s+{active_mtu} ", out) and not err, out + err)


STATES = """
from pyverbs.device import Context
context = Context(name="rove0")
states = [context.query_port(1).state for _ in range(300)]
print(states.count(4), "of", len(states), "times active")     # IBV_PORT_ACTIVE
"""


def asked_often(machine, kind):
    """A program that queries the port's state repeatedly, while rove checks the link, always sees it up."""
    process = rove(machine, config(machine, kind, 0), "/usr/bin/python3", "-c", STATES)
    check("300 of 300 times active" in process.succeed(100).out(), process.story())


def refused(machine, kind, *wanted, **device):
    """Checks that there is no device, and one line that gives the reason."""
    process = rove(machine, config(machine, kind, 0, **device), "ibv_devinfo", "-d", "rove0")
    process.wait(60)
    said = [line for line in process.out().splitlines() if line.startswith("rove: ")]
    check(len(said) == 1 and all(word in said[0] for word in wanted), process.story())


def taken(machine, kind):
    """Starts a second process on the same NIC, which is refused."""
    owner = rove(machine, config(machine, kind, 0), "stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0")
    owner.wait_for(lambda: "async event FD" in owner.out(), 60, "its start")
    refused(machine, kind, "in use by process", "ibv_asyncwatch", "mesh")
    owner.stop()


def does_not_start(machine, kind):
    """The driver cannot start the NIC. The port is down, and one line gives the reason."""
    process = rove(machine, config(machine, kind, 0), "ibv_devinfo", "-d", "rove0")
    process.succeed(60)
    said = process.out()
    check("PORT_DOWN" in said and said.count("does not start") == 1, process.story())


def link(machine, kind):
    """Unplugs the cable and plugs it in again. A program gets the events. The port of a program that starts meanwhile
    is down, and one line gives the reason."""
    watch = rove(machine, config(machine, kind, 0), "stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0")
    watch.wait_for(lambda: "async event FD" in watch.out(), 60, "its start")
    for up, event in ((False, "PORT_ERR"), (True, "PORT_ACTIVE")):
        machine.set_link(kind, 0, up)
        watch.wait_for(lambda event=event: event in watch.out(), 30, event)
    watch.stop()
    machine.set_link(kind, 1, False)
    try:
        down = rove(machine, config(machine, kind, 1), "ibv_devinfo", "-d", "rove0")
        down.succeed(60)
        check("PORT_DOWN" in down.out() and "has no link after 5 s" in down.out(), down.story())
    finally:
        machine.set_link(kind, 1, True)
    verified(machine, kind, "--verbs", "send", "--sizes", "64,4097")


def other_mac(machine, kind, changes=({}, {})):
    """Uses MACs that are not the NICs' own. Frames to them arrive, and so do frames to the IPv6 groups that resolve
    their addresses."""
    theirs = [config(machine, kind, end, mac=f"02:00:00:00:00:9{end}", **changes[end]) for end in range(2)]
    command = [*CHECK, "--rounds", "1", "--sizes", "64,2000", "--verbs", "send,read", "--mtu", "1024"]
    for gid_index in ("1", "2"):
        pair(machine, theirs, [*command, "--gid-index", gid_index], "--port")


def kernel_driver(machine, kind):
    """The kernel drives the NICs, and rove sends by AF_PACKET. The NICs' filters pass the frames for rove."""
    machine.run("modprobe", kind)
    ends = []
    for end in range(2):
        folder = f"/sys/bus/pci/devices/{machine.nic_address(kind, end)}/net"
        interface = machine.run("sh", "-c", f"until ls {folder}; do sleep 0.1; done 2>/dev/null").strip()
        machine.run("ip", "link", "set", interface, "up")
        machine.run("sh", "-c", f"until [ $(cat {folder}/{interface}/carrier) = 1 ]; do sleep 0.1; done")
        ends.append({"port": f"net_af_packet0,iface={interface}", "mtu": None})
    other_mac(machine, kind, ends)


QUEUES = r"""
import json, pathlib, socket
for path in pathlib.Path("/run/dpdk").glob("rove-*/dpdk_telemetry.v2"):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as query:
        query.connect(str(path))
        size = json.loads(query.recv(1024))["max_output_len"]
        query.send(b"/ethdev/xstats,0")
        print(json.dumps(json.loads(query.recv(size))["/ethdev/xstats"]))
"""


def queues(machine, kind, spreads):
    """Runs two workers, each with its own queue where the NIC has two. If `spreads` is set, the NIC has RSS, so both
    queues must receive frames."""
    both = configs(machine, kind, workers=2)
    rounds = "100" if spreads else "10"
    command = [*CHECK, "--rounds", rounds, "--depth", "4", "--qps", "8", "--verbs", "send", "--sizes", "64,4097"]
    port = free_port(machine.netns)
    server = start_server(machine, both[0], [*command, "--port"], port)
    client = rove(machine, both[1], *command, "--port", port, "127.0.0.1")
    most = [0, 0]
    while client.child.poll() is None and (spreads and not all(most)):
        for line in machine.run("python3", "-c", QUEUES).splitlines():
            counters = json.loads(line)
            # The first name is virtio's. The counters are missing while the port starts.
            most = [max(most[queue], *(counters.get(f"rx_q{queue}_{name}", 0) for name in ("good_packets", "packets")))
                    for queue in range(2)]
        time.sleep(0.2)
    client.succeed(200)
    server.succeed(4 * STOPPED)
    check(not spreads or all(most), f"frames of queues: {most}\n{client.story()}")
