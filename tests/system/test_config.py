# SPDX-License-Identifier: Apache-2.0
"""Tests user errors: every wrong key, type and range in a configuration, and rove-run's own arguments. Also tests the
installation."""
import os
import pathlib
import re
import shutil
import subprocess

from harness import (BUILD, ROOT, ROVE_RUN, SCRATCH, SERVER_CORE, Process, Skip, TwoNamespaces, check, memif_pair, once,
                     unique)

GOOD_DEVICE = 'port = "net_memif0,role=server,socket=rove-config-test"\naddresses = ["10.0.0.1/24"]\n'


def refused(text, line, key):
    """Checks that the program does not start: its exit status is not 0, and it prints one line "FILE:LINE: key 'KEY':
    ..."."""
    path = SCRATCH / f"{unique()}.toml"
    path.write_text(text)
    run = Process(["ibv_devices"], path, SERVER_CORE)
    status = run.wait(20)
    check(status != 0, f"was accepted:\n{text}\n{run.story()}")
    said = [said for said in run.err().splitlines() if str(path) in said]
    check(len(said) == 1, f"not one line about the file:\n{text}\n{run.story()}")
    check(f"{path}:{line}:" in said[0], f"not line {line}: {said[0]}")
    check(key is None or f"'{key}'" in said[0], f"not key '{key}': {said[0]}")
    check(key is None or "allowed" in said[0], f"does not name the allowed values: {said[0]}")


def device(line, key):
    """Checks a fourth line in an otherwise correct [[device]] table."""
    refused(f"[[device]]\n{GOOD_DEVICE}{line}\n", 4, key)


def runtime(line, key):
    refused(f"[runtime]\n{line}\n[[device]]\n{GOOD_DEVICE}", 2, key)


def transport(line, key):
    refused(f"[transport]\n{line}\n[[device]]\n{GOOD_DEVICE}", 2, key)


CASES = {
    "unknown-section": (refused, f"[[device]]\n{GOOD_DEVICE}[nonsense]\n", 4, "nonsense"),
    "unknown-top-level-key": (refused, f"nonsense = 1\n[[device]]\n{GOOD_DEVICE}", 1, "nonsense"),
    "unknown-device-key": (device, "mut = 1024", "device[0].mut"),
    "unknown-runtime-key": (runtime, "wrokers = 1", "runtime.wrokers"),
    "unknown-transport-key": (transport, "windows = 1", "transport.windows"),
    "unknown-impair-key": (device, "impair.los = 0.1", "device[0].impair.los"),
    "name": (device, 'name = "eth0"', "device[0].name"),
    "mtu-type": (device, 'mtu = "4096"', "device[0].mtu"),
    "mtu-range": (device, "mtu = 8192", "device[0].mtu"),
    "mtu-not-a-power": (device, "mtu = 1500", "device[0].mtu"),
    "queues-range": (device, "queues = 65", "device[0].queues"),
    "vlan-range": (device, "vlan = 4095", "device[0].vlan"),
    "mac": (device, 'mac = "02:00:00:00:00"', "device[0].mac"),
    "mac-multicast": (device, 'mac = "01:00:5e:00:00:01"', "device[0].mac"),
    "gateway-family": (device, 'gateway_ipv4 = "fd00::9"', "device[0].gateway_ipv4"),
    "loss-range": (device, "impair.loss = 1.5", "device[0].impair.loss"),
    "loss-type": (device, 'impair.loss = "1%"', "device[0].impair.loss"),
    "mark-range": (device, "impair.mark = 1.1", "device[0].impair.mark"),
    "delay-range": (device, "impair.delay_us = 1000001", "device[0].impair.delay_us"),
    "rate-type": (device, 'impair.rate_mbps = "10G"', "device[0].impair.rate_mbps"),
    "queue-range": (device, "impair.queue_packets = 0", "device[0].impair.queue_packets"),
    "ecn-threshold-range": (device, "impair.ecn_threshold_packets = 2049", "device[0].impair.ecn_threshold_packets"),
    "down-type": (device, "impair.down = 1", "device[0].impair.down"),
    "paths-range": (device, "impair.paths = 33", "device[0].impair.paths"),
    "path-without-paths": (device, "impair.path = [{index = 0}]", "device[0].impair.paths"),
    "path-type": (device, "impair = {paths = 2, path = [0]}", "device[0].impair.path"),
    "path-index-range": (device, "impair = {paths = 2, path = [{index = 2}]}", "device[0].impair.path[0].index"),
    "path-index-twice": (device, "impair = {paths = 2, path = [{index = 1}, {index = 1}]}",
                         "device[0].impair.path[1].index"),
    "path-without-index": (device, "impair = {paths = 2, path = [{loss = 1}]}", "device[0].impair.path[0].index"),
    "unknown-path-key": (device, "impair = {paths = 2, path = [{index = 0, seed = 1}]}",
                         "device[0].impair.path[0].seed"),
    "seed-negative": (device, "impair.seed = -1", "device[0].impair.seed"),
    "neighbour-type": (device, "neighbour = 1", "device[0].neighbour"),
    "neighbour-without-mac": (device, 'neighbour = [{address = "10.0.0.2"}]', "device[0].neighbour[0].mac"),
    "progress": (runtime, 'progress = "fast"', "runtime.progress"),
    "progress-type": (runtime, "progress = 1", "runtime.progress"),
    "lcores-type": (runtime, 'progress = "dedicated"\nlcores = "0"', None),
    "eal-type": (runtime, 'eal = "-m 256"', "runtime.eal"),
    "eal-plugin": (runtime, 'eal = ["-m", "256", "-d", "/tmp/x.so"]', "runtime.eal"),
    "eal-plugin-joined": (runtime, 'eal = ["-d/tmp/x.so"]', "runtime.eal"),
    "eal-plugin-behind": (runtime, 'eal = ["-vd/tmp/x.so"]', "runtime.eal"),
    "eal-command": (runtime, 'eal = ["--vdev=net_failsafe0,exec(touch /tmp/x)"]', "runtime.eal"),
    "port-command": (refused, '[[device]]\nport = "net_failsafe0,exec(touch /tmp/x)"\naddresses = ["10.0.0.1/24"]\n', 2,
                     "device[0].port"),
    "too-many-devices": (refused, "".join(f'[[device]]\nport = "udp:127.1.{number // 200}.{number % 200 + 1}"\n'
                                          for number in range(257)), 1, "device"),
    "window-range": (transport, "window_packets = 0", "transport.window_packets"),
    "window-type": (transport, "window_packets = 1.5", "transport.window_packets"),
    "mode": (transport, 'mode = "both"', "transport.mode"),
    "mode-type": (transport, "mode = 1", "transport.mode"),
    "ordering": (transport, 'ordering = "none"', "transport.ordering"),
    "sync-alpha": (transport, "paths.sync_alpha = -1", "transport.paths.sync_alpha"),
    "recovery": (transport, 'recovery = "none"', "transport.recovery"),
    "reorder": (transport, 'reorder = "bitmap"', "transport.reorder"),
    "reorder-block": (transport, "reorder_block_slots = 24", "transport.reorder_block_slots"),
    "reorder-cap": (transport, "reorder_cap_slots = 100", "transport.reorder_cap_slots"),
    "batch-acks-type": (transport, "batch_acks = 1", "transport.batch_acks"),
    "paths-unknown": (transport, "paths.window = 1", "transport.paths.window"),
    "paths-control": (transport, 'paths.control = "tcp"', "transport.paths.control"),
    "paths-choice": (transport, 'paths.choice = "best"', "transport.paths.choice"),
    "paths-vps": (transport, "paths.vps = 16385", "transport.paths.vps"),
    "paths-window": (transport, "paths.max_window = 100", "transport.paths.max_window"),
    "paths-initial-window": (transport, "paths = {initial_window = 64, max_window = 32}",
                             "transport.paths.initial_window"),
    "service-level-range": (transport, "high_service_levels = [8]", "transport.high_service_levels"),
    "service-level-type": (transport, "low_service_levels = 1", "transport.low_service_levels"),
    "dcqcn-range": (transport, "dcqcn.cnp_interval_us = 0", "transport.dcqcn.cnp_interval_us"),
    "no-device": (refused, '[runtime]\nprogress = "shared"\n', 1, "device"),
    "device-not-a-list": (refused, f"[device]\n{GOOD_DEVICE}", 1, "device"),
    "no-port": (refused, '[[device]]\naddresses = ["10.0.0.1/24"]\n', 1, "device[0].port"),
    "no-addresses": (refused, '[[device]]\nport = "net_null0"\n', 1, "device[0].addresses"),
    "addresses-empty": (refused, '[[device]]\nport = "net_null0"\naddresses = []\n', 3, "device[0].addresses"),
    "address": (refused, '[[device]]\nport = "net_null0"\naddresses = ["10.0.0.300/24"]\n', 3, "device[0].addresses"),
    "prefix": (refused, '[[device]]\nport = "net_null0"\naddresses = ["10.0.0.1/33"]\n', 3, "device[0].addresses"),
    "link-rate": (refused, f'[[device]]\n{GOOD_DEVICE}link_rate_mbps = 1\n', 4, "device[0].link_rate_mbps"),
    "numa-node": (refused, f'[[device]]\n{GOOD_DEVICE}numa_node = -2\n', 4, "device[0].numa_node"),
    "syntax": (refused, f"[[device]\n{GOOD_DEVICE}", 1, None), }
CASES["lcores-type"] = (refused, f'[runtime]\nprogress = "dedicated"\nlcores = "0"\n[[device]]\n{GOOD_DEVICE}', 3,
                        "runtime.lcores")
for name, (function, *arguments) in CASES.items():
    once(f"config/{name}", function, *arguments, quick=True)


def shipped_are_accepted(name):
    """Checks that a file of config/ parses. The only error that it may cause is that the port does not exist here."""
    run = Process(["ibv_devinfo"], ROOT / "config" / name, SERVER_CORE)
    run.wait(30)
    check("allowed" not in run.err() and "parse" not in run.err(), run.story())


for path in sorted((ROOT / "config").glob("*.toml")):
    if path.stem == "vhost-b":  # It waits for vhost-a; see test_vhost.py.
        continue
    once(f"config/shipped/{path.stem}", shipped_are_accepted, path.name, lane="shipped")


def rove_run(arguments, status, words):
    done = subprocess.run([str(ROVE_RUN), *arguments], capture_output=True, text=True, timeout=20,
                          stdin=subprocess.DEVNULL)
    check(done.returncode == status if status is not None else done.returncode != 0,
          f"status {done.returncode}: {done.stdout}{done.stderr}")
    for word in words:
        check(word in done.stdout + done.stderr, f"no '{word}' in: {done.stdout}{done.stderr}")


LOOPBACK = str(ROOT / "config" / "loopback-a.toml")
once("rove-run/help", rove_run, ["--help"], 0, ["--config", "--eal"], quick=True)
once("rove-run/no-program", rove_run, ["--config", LOOPBACK], None, [], quick=True)
once("rove-run/no-such-program", rove_run, ["--config", LOOPBACK, "--", "no-such-program"], 127, ["no-such-program"],
     quick=True)
once("rove-run/no-such-config", rove_run, ["--config", "/nonexistent.toml", "--", "ibv_devices"], None,
     ["/nonexistent.toml"], quick=True)
once("rove-run/unknown-option", rove_run, ["--nonsense", "--", "ibv_devices"], None, ["nonsense"], quick=True)
once("rove-run/exit-status", rove_run, ["--config", LOOPBACK, "--", "sh", "-c", "exit 7"], 7, [], quick=True)
once("rove-run/arguments", rove_run,
     ["--config", LOOPBACK, "--", "printf", "<%s>", "[1,2]", "", "--eal", "--", "a b"], 0,
     ["<[1,2]><><--eal><--><a b>"], quick=True)
once("rove-run/no-dashes", rove_run, ["--config", LOOPBACK, "printf", "<%s>", "[1,2]"], 0, ["<[1,2]>"], quick=True)
once("rove-run/without-verbs", rove_run, ["--config", LOOPBACK, "--", "echo", "plain"], 0, ["plain"], quick=True)


def eal_argument():
    """The option --eal reaches EAL: a bad argument stops it, and the error shows the argument."""
    config = memif_pair()[0]
    from harness import write_toml
    done = subprocess.run([
        str(ROVE_RUN), "--config",
        str(write_toml(config)), "--eal", "--no-such-eal-option", "--", "ibv_devinfo"], capture_output=True, text=True,
                          timeout=20, stdin=subprocess.DEVNULL)
    check("no-such-eal-option" in done.stderr, f"{done.stdout}{done.stderr}")


once("rove-run/eal", eal_argument)


def in_folder(folder, mode=0o755, file_mode=0o644, owner=None, file_owner=None, arguments=()):
    """Runs rove-run in a folder whose rove.toml has one device on UDP. Folder and file may belong to another user."""
    if os.geteuid() != 0 and (owner or file_owner):
        raise Skip("needs two users")
    folder.mkdir(parents=True)
    file = folder / "rove.toml"
    file.write_text('[[device]]\nname = "rove-found"\nport = "udp:127.0.0.9"\n')
    file.chmod(file_mode)
    folder.chmod(mode)
    for path, user in ((file, file_owner), (folder, owner)):
        if user:
            os.chown(path, user, user)
    return subprocess.run([str(ROVE_RUN), *arguments, "--", "ibv_devices"], cwd=folder, capture_output=True, text=True,
                          timeout=20, stdin=subprocess.DEVNULL)


def taken(**options):
    folder = SCRATCH / unique() / "a folder: $HOME"
    done = in_folder(folder, **options)
    check(done.returncode == 0 and "rove-found" in done.stdout, f"{done.stdout}{done.stderr}")
    check(done.stderr == f"rove-run: the configuration is {folder}/rove.toml\n", done.stderr)


def strangers(why, **options):
    folder = SCRATCH / unique()
    done = in_folder(folder, **options)
    check(done.returncode == 2 and "rove-found" not in done.stdout, f"{done.stdout}{done.stderr}")
    lines = done.stderr.splitlines()
    check(len(lines) == 1 and str(folder) in lines[0] and why in lines[0] and "--config" in lines[0], done.stderr)
    # A file that --config names is used.
    named = subprocess.run([str(ROVE_RUN), "--config", "rove.toml", "--", "ibv_devices"], cwd=folder,
                           capture_output=True, text=True, timeout=20)
    check("rove-found" in named.stdout and named.stderr == "", f"{named.stdout}{named.stderr}")


def linked_to_strangers():
    """The folder has a symbolic link to a file in a folder that others may write to."""
    folder, other = SCRATCH / unique(), SCRATCH / unique()
    in_folder(other, mode=0o777)
    folder.mkdir(mode=0o755)
    (folder / "rove.toml").symlink_to(other / "rove.toml")
    done = subprocess.run([str(ROVE_RUN), "--", "ibv_devices"], cwd=folder, capture_output=True, text=True, timeout=20)
    check(done.returncode == 2 and f"{other} can be written to by others" in done.stderr, f"{done.stdout}{done.stderr}")


once("rove-run/found/own", taken, quick=True)
once("rove-run/found/file-of-another", lambda: strangers("belongs to user 65534", file_owner=65534))
once("rove-run/found/folder-of-another", lambda: strangers("belongs to user 65534", owner=65534))
once("rove-run/found/file-open", lambda: strangers("can be written to by others", file_mode=0o666))
once("rove-run/found/folder-open", lambda: strangers("can be written to by others", mode=0o777))
once("rove-run/found/folder-sticky", lambda: strangers("can be written to by others", mode=0o1777))
once("rove-run/found/folder-of-group", lambda: strangers("can be written to by others", mode=0o775))
once("rove-run/found/link", linked_to_strangers)
once("rove-run/folder", rove_run, ["--config", str(SCRATCH), "--", "true"], 2, [str(SCRATCH), "is not a regular file"], quick=True)


def other_text(prefix, end):
    """Tests text as editors of other systems write it."""
    file = SCRATCH / f"{unique()}.toml"
    file.write_bytes(prefix + end.join([b"[[device]]", b'name = "rove-found"', b'port = "udp:127.0.0.9"', b""]))
    run = Process(["ibv_devices"], file).succeed(20)
    check("rove-found" in run.out() and run.err() == "", run.story())


once("config/byte-order-mark", other_text, b"\xef\xbb\xbf", b"\n")
once("config/carriage-returns", other_text, b"", b"\r\n")


def awkward_place(name):
    """LD_PRELOAD cannot name a library in such a folder, and one line explains that."""
    place = SCRATCH / unique() / name / "build"
    place.parent.mkdir(parents=True)
    for part in ("apps/rove-run", "lib/preload/librove-verbs.so"):
        (place / part).parent.mkdir(parents=True)
        shutil.copy2(BUILD / part, place / part)
    done = subprocess.run([str(place / "apps" / "rove-run"), "--", "true"], capture_output=True, text=True, timeout=20,
                          cwd="/")
    check(done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "LD_PRELOAD" in done.stderr
          and str(place) in done.stderr, f"{done.stdout}{done.stderr}")


for name, place in {"blank": "a b", "colon": "a:b", "dollar": "$LIB"}.items():
    once(f"rove-run/place/{name}", awkward_place, place)


def second_process(config, netns=None):
    """Only one process can own a port. A second process has no device, and one line names the owner and the
    alternative. All processes can read the device in sysfs. After the owner is killed, the port is free."""
    owner = Process(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rove0"], config, SERVER_CORE, netns)
    owner.wait_for(lambda: "async event FD" in owner.out(), 20, "open device")
    second = Process(["ibv_devinfo"], config, netns=netns)
    check(second.wait(20) != 0 and "hca_id" not in second.out(), second.story())
    lines = [line for line in second.err().splitlines() if line.startswith("rove")]
    wanted = f"in use by process {owner.pid} (ibv_asyncwatch)", 'Allowed: port = "mesh"'
    check(len(lines) == 1 and all(part in lines[0] for part in wanted), second.story())
    reader = Process(["cat", "/sys/class/infiniband/rove0/ports/1/pkeys/0"], config, netns=netns).succeed(20)
    check(reader.out() == "0xffff\n" and reader.err() == "", reader.story())
    owner.child.kill()
    owner.wait(20)
    Process(["ibv_devinfo"], config, netns=netns).succeed(20)


def in_namespace(port):
    with TwoNamespaces(mtu=2300) as namespaces:
        second_process({"device": [{"port": port, "addresses": ["10.0.0.1/24"], "mtu": 1024}]}, namespaces.names[0])


for end, role in enumerate(("server", "client")):
    once(f"config/second-process/{role}", lambda end=end: second_process(memif_pair()[end]))
for port in ("net_af_packet0,iface=data", "net_af_xdp0,iface=data", "net_tap0,iface=tap0"):
    once(f"config/second-process/{port.split('0')[0]}", in_namespace, port)
once("config/second-process/net_vhost", lambda: second_process(
    {"device": [{"port": f"net_vhost0,iface={SCRATCH}/vhost-{unique()}", "addresses": ["10.0.0.1/24"]}]}))


def installed():
    """Runs meson install with a directory of its own as destination. rove-run works from there, and pkg-config finds
    rove."""
    destination = SCRATCH / "installed"
    done = subprocess.run([
        "meson", "install", "-C",
        str(BUILD), "--no-rebuild", "--quiet", "--destdir",
        str(destination)], capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, done.stdout + done.stderr)
    (rove_run_there,) = destination.rglob("bin/rove-run")
    from harness import write_toml
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ROVE_")}
    listing = subprocess.run([str(rove_run_there), "--config", str(write_toml(memif_pair()[0])), "--", "ibv_devinfo"],
                             capture_output=True, text=True, timeout=30, env=environment)
    check("rove0" in listing.stdout, f"{listing.stdout}{listing.stderr}")
    packages = list(destination.rglob("rove*.pc"))
    check(
        packages,
        f"no rove*.pc in {[str(path.relative_to(destination)) for path in destination.rglob('*') if path.is_file()]}")
    for package in packages:
        answer = subprocess.run(["pkg-config", "--modversion", package.stem], capture_output=True, text=True,
                                env={**os.environ, "PKG_CONFIG_PATH": str(package.parent)})
        check(re.fullmatch(r"\d+\.\d+\.\d+", answer.stdout.strip()), answer.stdout + answer.stderr)
    check_manual(destination, rove_run_there.parent)


def check_manual(installed_to, programs):
    """Checks that each program has a manual page with all its options, that bash completes them, and that rove.toml(5)
    has every key."""
    def page(name):
        (file,) = installed_to.rglob(name)
        return file.read_text().replace("\\-", "-")

    (completion,) = installed_to.rglob("completions/rove-run")
    (engine,) = installed_to.rglob("librove-tent.so")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(engine.parent)}

    def output(command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=30, check=True,
                              env=environment).stdout

    for program in programs.iterdir():
        options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", output([program, "--help"]), re.MULTILINE))
        missing = [option for option in options if option not in page(f"{program.name}.1")]
        check("--config" in options or program.name in ("rove-bridge", "rove-sim"), f"{program.name} --help: {options}")
        check(not missing, f"{program.name}(1) lacks {missing}")
        completed = output([
            "bash", "-c", f"source {completion}; _rove {program} -- {program.name}; echo ${{COMPREPLY[@]}}"])
        check(set(completed.split()) >= options, f"bash completes of {program.name}: {completed}")
    code = "".join((ROOT / "lib" / name).read_text()
                   for name in ("runtime/config.cc", "port/device_config.h", "port/fault_injection/settings.h"))
    keys = set(re.findall(r'(?:table|visitor)\.\w+\("(\w+)"', code))
    missing = [key for key in keys if key not in page("rove.toml.5")]
    check(len(keys) > 50 and not missing, f"{len(keys)} keys are read; rove.toml(5) lacks {missing}")


once("install", installed)
