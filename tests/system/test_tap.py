# SPDX-License-Identifier: Apache-2.0
"""Tests tap devices (config/tap.toml) in a network namespace: the kernel pings rove, and a bridge joins the taps of two
rove processes."""
import os
import pathlib
import re
import subprocess

from harness import (SERVER_CORE, STOPPED, Failure, Link, Process, Skip, check, device_arguments, device_string,
                     free_port, ip, once, program, shipped, start_client, start_server, stop_all, test, unique)


class Bridge:
    """A namespace with a bridge, 10.0.1.254, and the configurations of two processes that have taps in it."""

    def __enter__(self):
        if not pathlib.Path("/dev/net/tun").exists():
            raise Skip("needs /dev/net/tun")
        if os.geteuid() != 0:
            raise Skip("needs root for a network namespace and taps")
        self.netns = f"rove-tap-{unique()}"
        try:
            ip("netns", "add", self.netns)
            ip("link", "add", "bridge", "type", "bridge", netns=self.netns)
        except Failure as failure:
            self.__exit__()
            raise Skip(str(failure)) from None
        for device in ("lo", "bridge"):
            ip("link", "set", device, "up", netns=self.netns)
        ip("addr", "add", "10.0.1.254/24", "dev", "bridge", netns=self.netns)
        ip("addr", "add", "fd01::fe/64", "dev", "bridge", "nodad", netns=self.netns)
        return self

    def __exit__(self, *_):
        stop_all()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)

    def link(self, **device_changes):
        configs = []
        for number in (1, 2):
            config = shipped("tap")
            (device,) = config["device"]
            driver, arguments = device_arguments(device["port"])
            device["port"] = device_string(driver, {**arguments, "iface": f"tap{number}"})
            device["addresses"] = [f"10.0.1.{number}/24", f"fd01::{number}/64"]
            device.update(device_changes)
            configs.append(config)
        return Link(configs, (self.netns, self.netns))

    def join(self, process, number):
        """Adds the tap of a process to the bridge. The tap exists once the process has opened its port."""
        name = f"tap{number}"

        def joined():
            return subprocess.run(["ip", "-n", self.netns, "link", "set", name, "master", "bridge"],
                                  capture_output=True).returncode == 0

        process.wait_for(joined, 20, name)

    def run_pair(self, command, port_option):
        link, port = self.link(), free_port(self.netns)
        server = start_server(link, command, port, port_option)
        self.join(server, 1)
        client = start_client(link, command, port, port_option)
        self.join(client, 2)
        try:
            client.succeed(60)
            server.succeed(STOPPED)
        except Failure as failure:
            raise Failure(f"{failure}\n--- server\n{server.story()}\n--- client\n{client.story()}") from None
        return client


def ping():
    with Bridge() as bridge:
        link = bridge.link()
        server = start_server(link, ["ib_write_bw", "-F"], free_port(bridge.netns))
        bridge.join(server, 1)
        for address in ("10.0.1.1", "fd01::1"):
            done = subprocess.run([
                "ip", "netns", "exec", bridge.netns, "ping", "-c", "5", "-i", "0.2", "-W", "2", "-s", "1400", address],
                                  capture_output=True, text=True, timeout=30)
            check(" 0% packet loss" in done.stdout, f"{done.stdout}{done.stderr}\n{server.story()}")


def pingpong(options):
    with Bridge() as bridge:
        client = bridge.run_pair(["ibv_rc_pingpong", "-g", "1", "-c", *options.split()], "-p")
        check("invalid data" not in client.out() and "iters in" in client.out(), client.story())


def moves(options):
    with Bridge() as bridge:
        bridge.run_pair([
            program("verbs_check"), "--mtu", "1024", "--sizes", "0,1,64,1000,4097,65537", "--rounds", "2",
            *options.split()], "--port")


def devices(taps, queues):
    """Runs ibv_devinfo with `taps` taps. Returns its exit status and its output."""
    with Bridge() as bridge:
        config = shipped("tap")
        (device,) = config["device"]
        config["device"] = [{
            **device, "port": f"net_tap{number},iface=tap{number}", "addresses": [f"10.0.{number}.1/24"],
            "queues": queues} for number in range(taps)]
        process = Process(["ibv_devinfo"], config, SERVER_CORE, bridge.netns)
        status = process.wait(20)
        return status, process.out(), process.err()


def queues():
    """Tests RX rings of 12 x 1024 mbufs, which exceed a worker's pool for ports with one queue."""
    status, out, err = devices(taps=3, queues=4)
    check(status == 0 and "rove2" in out, f"{out}{err}")


def too_many_queues():
    """Tests five queues. net_tap 22.11 would write beyond an array and the process would be killed; 24.11 has room for
    them."""
    status, out, err = devices(taps=1, queues=5)
    refused = status > 0 and "got queues = 5, allowed 1..4" in err
    check(refused or status == 0 and "rove0" in out, f"{status} {out}{err}")


once("tap/queues", queues)
once("tap/queues/too-many", too_many_queues)
once("tap/ping", ping)
test("tap/pingpong", pingpong, "")
test("tap/pingpong/events", pingpong, "-e -n 200")
test("tap/verified", moves, "")
test("tap/verified/ipv6", moves, "--gid-index 2 --both --qps 2 --depth 4")
