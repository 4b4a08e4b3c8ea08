# SPDX-License-Identifier: Apache-2.0
"""Boots a machine with the Linux kernel's RoCE, and with NICs that DPDK drives: Debian's kernel in QEMU, in software
emulation, behind taps.

The guest's root is that of this machine, so every program has the same path on both sides. Files that the guest writes
there are lost afterwards. Control connections use a tap of their own, 192.0.2.1 (namespace) and .2 (guest). RoCE uses
the tap `data`: rove opens it by AF_PACKET as 10.0.0.1 and fd00::1, and the guest's rdma_rxe is 10.0.0.2 and fd00::2.
The NICs of each kind form a pair with a cable between them, and both ends belong to the guest. A boot takes 10 s and
serves all tests of a run.
"""
import atexit
import json
import lzma
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from harness import BUILD, CORES, SCRATCH, SERVER_CORE, Failure, Process, Skip, check, ip, unique

FOLDER = pathlib.Path(__file__).resolve().parent
CACHE = BUILD / "guest"
QEMU = "qemu-system-x86_64"
HOST, GUEST, AGENT_PORT = "192.0.2.1", "192.0.2.2", 7001
BOOTS_WITHIN = 100      # seconds; a busy machine takes 48
# The first process of the guest loads them in this order. Their dependencies are loaded automatically.
MODULES = ("virtio_pci", "virtio_rng", "virtio_net", "9pnet_virtio", "9p", "crc32_generic", "crc32-pclmul", "ib_uverbs",
           "rdma_ucm", "rdma_rxe",
           "ifb", "sch_netem", "sch_ingress", "cls_matchall", "act_mirred", "veth", "8021q", "overlay")
# The modules that scripts/prepare-nic loads, and the drivers of the NICs that it detaches from the kernel.
ON_DEMAND = ("vfio_pci", "vfio_iommu_type1", "uio_pci_generic", "e1000", "vmxnet3")
PLAIN = "".join(f",{offload}=off" for offload in ("csum", "guest_csum", "gso", "guest_tso4", "guest_tso6", "guest_ecn",
                                                 "guest_ufo", "host_tso4", "host_tso6", "host_ecn", "host_ufo"))
# QEMU's devices. A cable is a hub, or a bridge of taps for a NIC with more than one queue.
NICS = {
    "e1000": "e1000",
    "virtio": f"virtio-net-pci,mq=on,rss=on,vectors=6,host_mtu=9000{PLAIN}",
    "virtio-1500": f"virtio-net-pci,host_mtu=1500{PLAIN}",
    "virtio-no-filter": f"virtio-net-pci,ctrl_rx=off,ctrl_vlan=off,ctrl_mac_addr=off{PLAIN}",
    # The NIC reports a filter, but has no queue by which it could be set.
    "virtio-no-queue": f"virtio-net-pci,ctrl_vq=off{PLAIN}",
    "vmxnet3": "vmxnet3",
}
MULTIQUEUE = ("virtio",)
_guest = None


def run(*command, timeout=60, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, **options)
    check(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def kernel_package():
    """Returns the package of Debian's newest kernel, which is in the cache."""
    depends = run("apt-cache", "depends", "linux-image-amd64").decode()
    name = re.search(r"Depends: (linux-image-\d\S*)", depends)
    if not name:
        raise Skip("apt knows no linux-image-amd64")
    if not (found := list(CACHE.glob(f"{name[1]}_*.deb"))):
        try:
            run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name[1], timeout=100, cwd=CACHE)
        except (Failure, subprocess.TimeoutExpired) as failure:
            raise Skip(f"no kernel package: {str(failure).splitlines()[-1]}") from None
        found = list(CACHE.glob(f"{name[1]}_*.deb"))
    return found[0]


def needed(modules):
    """Returns the files of MODULES, ON_DEMAND and their dependencies, relative to the folder `modules`."""
    depends = dict(line.split(":") for line in (modules / "modules.dep").read_text().splitlines())
    by_name = {pathlib.Path(file).name.split(".")[0].replace("-", "_"): file for file in depends}
    files = set()
    for module in MODULES + ON_DEMAND:
        if file := by_name.get(module.replace("-", "_")):     # otherwise the module is built in
            files |= {file, *depends[file].split()}
    return sorted(files)


def build_image():
    """Puts vmlinuz and initramfs.gz into the cache: the kernel, its modules, busybox and `init`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    package = kernel_package()
    wanted = "\n".join([package.name, *MODULES, *ON_DEMAND, (FOLDER / "init").read_text()])
    made_of = CACHE / "made-of"
    if made_of.exists() and made_of.read_text() == wanted:
        return
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        unpacked, root = pathlib.Path(scratch) / "unpacked", pathlib.Path(scratch) / "root"
        for folder in (unpacked, root):     # Modules are in /lib, or in /usr/lib since Debian 13.
            folder.mkdir()
            (folder / "usr").symlink_to(".")
        run("sh", "-c",
            'dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -x --wildcards "./boot/vmlinuz-*" "*/lib/modules/*"', "sh",
            package, unpacked)
        (modules,) = (unpacked / "lib" / "modules").iterdir()
        run("depmod", "-b", unpacked, modules.name)
        there = root / "lib" / "modules" / modules.name
        for file in needed(modules):
            (there / file).parent.mkdir(parents=True, exist_ok=True)
            if file.endswith(".xz"):        # Debian 13 compresses modules, and busybox may not support that.
                (there / file).with_suffix("").write_bytes(lzma.decompress((modules / file).read_bytes()))
            else:
                shutil.copy(modules / file, there / file)
        for file in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            shutil.copy(modules / file, there / file)
        run("depmod", "-b", root, modules.name)
        (root / "bin").mkdir()
        shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
        (root / "modules").write_text("\n".join(MODULES))
        shutil.copy(FOLDER / "init", root / "init")
        (root / "init").chmod(0o755)
        run("sh", "-c", 'cd "$1" && find . | busybox cpio -o -H newc | gzip -1 > "$2"', "sh", root,
            CACHE / "initramfs.gz")
        (image,) = (unpacked / "boot").iterdir()
        shutil.copy(image, CACHE / "vmlinuz")
    made_of.write_text(wanted)


class Guest:
    def __init__(self, pairs=("e1000",), iommu=False, cpus=1, memory=1024):
        """`pairs` holds keys of NICS, and each makes two NICs. `memory` is in MiB."""
        self.pairs, self.iommu, self.cpus, self.memory = pairs, iommu, cpus, memory
        if os.geteuid() != 0:
            raise Skip("needs root for a network namespace and taps")
        if not pathlib.Path("/dev/net/tun").exists():
            raise Skip("needs /dev/net/tun")
        for tool in (QEMU, "busybox", "depmod", "dpkg-deb", "apt-get"):
            if shutil.which(tool) is None:
                raise Skip(f"needs {tool}")
        build_image()
        self.netns = f"rove-guest-{unique()}"
        try:
            ip("netns", "add", self.netns)
        except Failure as failure:
            raise Skip(str(failure)) from None
        atexit.register(self.close)
        for tap in ("data", "ctl"):
            ip("tuntap", "add", "dev", tap, "mode", "tap", netns=self.netns)
        # The kernel on this side of the tap must send nothing on `data`. It has IPv6 on `ctl`, because getaddrinfo
        # would not return IPv6 addresses otherwise.
        run("ip", "netns", "exec", self.netns, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/data/disable_ipv6")
        ip("link", "set", "lo", "up", netns=self.netns)
        ip("link", "set", "data", "mtu", "4300", "up", netns=self.netns)
        ip("addr", "add", f"{HOST}/24", "dev", "ctl", netns=self.netns)
        ip("link", "set", "ctl", "up", netns=self.netns)
        for kind in self.multiqueue():
            ip("link", "add", kind, "mtu", "9000", "type", "bridge", netns=self.netns)
            for end in range(2):
                ip("tuntap", "add", "dev", f"{kind}-{end}", "mode", "tap", "multi_queue", netns=self.netns)
                ip("link", "set", f"{kind}-{end}", "mtu", "9000", "master", kind, "up", netns=self.netns)
            ip("link", "set", kind, "up", netns=self.netns)
        self.monitor = SCRATCH / f"{self.netns}.qmp"
        self.machine = self.boot()

    def multiqueue(self):
        return [kind for kind in self.pairs if kind in MULTIQUEUE]

    def nic_address(self, kind, end):
        return f"0000:00:{self.slot(kind, end):02x}.0"

    def slot(self, kind, end):
        return 0x10 + 2 * self.pairs.index(kind) + end

    def nics(self):
        """Returns QEMU's arguments for both ends of each pair."""
        arguments = []
        for hub, kind in enumerate(self.pairs):
            for end in range(2):
                name = f"{kind}-{end}"
                cable = (f"tap,id=net-{name},ifname={name},queues=2,script=no,downscript=no" if kind in MULTIQUEUE else
                         f"hubport,id=net-{name},hubid={hub}")
                behind_iommu = ",iommu_platform=on,disable-legacy=on" if self.iommu and "virtio" in kind else ""
                slot = self.slot(kind, end)
                arguments += ["-netdev", cable, "-device", f"{NICS[kind]},id={name},netdev=net-{name},addr={slot:#x},"
                              f"mac=52:54:00:00:01:{slot:02x},romfile={behind_iommu}"]
        return arguments

    def set_link(self, kind, end, up):
        """Unplugs the cable of a NIC, or plugs it in."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(self.monitor))
            answers = connection.makefile("r")
            for command, arguments in (("qmp_capabilities", {}), ("set_link", {"name": f"{kind}-{end}", "up": up})):
                connection.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
                while "return" not in (answer := json.loads(answers.readline())):
                    check("error" not in answer, f"QEMU's {command}: {answer}")

    def boot(self):
        behind_iommu = ["-device", "intel-iommu,intremap=on,caching-mode=on"] if self.iommu else []
        machine = Process(
            [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-machine",
             "q35", "-cpu", "max,la57=off",
             "-accel", "tcg,thread=multi,tb-size=256", "-smp", self.cpus, "-m", self.memory, *behind_iommu,
             "-qmp", f"unix:{self.monitor},server=on,wait=off",
             "-kernel", CACHE / "vmlinuz", "-initrd", CACHE / "initramfs.gz",
             "-append",
             "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check "
             f"{'intel_iommu=on ' if self.iommu else ''}rove.folder={FOLDER}",
             "-device", "virtio-rng-pci",
             "-fsdev", "local,id=host,path=/,security_model=none,multidevs=remap,readonly=on", "-device",
             "virtio-9p-pci,fsdev=host,mount_tag=host",
             "-netdev", "tap,id=data,ifname=data,script=no,downscript=no",
             "-device", f"virtio-net-pci,netdev=data,mac=52:54:00:00:00:01,host_mtu=4300,romfile={PLAIN}",
             "-netdev", "tap,id=ctl,ifname=ctl,script=no,downscript=no", "-device",
             "virtio-net-pci,netdev=ctl,mac=52:54:00:00:00:02,romfile=", *self.nics()],
            core=set(CORES) if self.cpus > 1 else SERVER_CORE, netns=self.netns, outlives_test=True)
        machine.wait_for(lambda: "guest: ready" in machine.out(), BOOTS_WITHIN, "its agent")
        return machine

    def process(self, arguments):
        """Starts a program in the guest and returns it as a Process of this machine, with its output and exit status.
        Stopping the Process ends the program."""
        return Process([sys.executable, FOLDER / "agent.py", "run", GUEST, AGENT_PORT, *arguments], netns=self.netns)

    def run(self, *arguments, timeout=30):
        """Runs a program in the guest, which must succeed, and returns its output."""
        return self.process(arguments).succeed(timeout).out()

    def wait_listening(self, port):
        self.run("sh", "-c", f"until grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done")

    def close(self):
        if hasattr(self, "machine"):
            self.machine.stop()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)


def guest():
    """Returns the guest, which the first call boots. If that fails, every later call fails for the same reason."""
    global _guest
    if _guest is None:
        try:
            _guest = Guest()
        except (Skip, Failure) as reason:
            _guest = reason
        except BaseException:       # the alarm of the test's time limit
            _guest = Failure("the guest did not boot")
            raise
    if isinstance(_guest, Exception):
        raise _guest
    return _guest
