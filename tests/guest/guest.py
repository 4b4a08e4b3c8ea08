# SPDX-License-Identifier: Apache-2.0
"""A machine with the Linux kernel's RoCE: Debian's kernel and its rdma_rxe in QEMU, in software emulation, behind a
tap.

The guest's root is that of this machine, read-only, so every program has the same path on both sides. Control
connections go over a tap of their own, 192.0.2.1 (namespace) and .2 (guest). RoCE goes over the tap `data`: rove takes
it by AF_PACKET as 10.0.0.1 and fd00::1, the guest is 10.0.0.2 and fd00::2. A boot takes 10 s and serves all tests of a
run.
"""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, SERVER_CORE, Failure, Process, Skip, check, ip, unique

FOLDER = pathlib.Path(__file__).resolve().parent
CACHE = BUILD / "guest"
QEMU = "qemu-system-x86_64"
HOST, GUEST, AGENT_PORT = "192.0.2.1", "192.0.2.2", 7001
BOOTS_WITHIN = 100      # seconds; a busy machine takes 48
# In the order in which the first process loads them; those that they need come by themselves.
MODULES = ("virtio_pci", "virtio_rng", "virtio_net", "9pnet_virtio", "9p", "crc32_generic", "crc32-pclmul", "ib_uverbs",
           "rdma_ucm", "rdma_rxe",
           "ifb", "sch_netem", "sch_ingress", "cls_matchall", "act_mirred", "veth")
_guest = None


def run(*command, timeout=60, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, **options)
    check(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def kernel_package():
    """The package of Debian's newest kernel, in the cache."""
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
    """The files of MODULES and of what they depend on, relative to the folder `modules`."""
    depends = dict(line.split(":") for line in (modules / "modules.dep").read_text().splitlines())
    by_name = {pathlib.Path(file).stem.replace("-", "_"): file for file in depends}
    files = set()
    for module in MODULES:
        if file := by_name.get(module.replace("-", "_")):     # else it is built in
            files |= {file, *depends[file].split()}
    return sorted(files)


def build_image():
    """vmlinuz and initramfs.gz in the cache: the kernel, its modules, busybox and `init`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    package = kernel_package()
    wanted = "\n".join([package.name, *MODULES, (FOLDER / "init").read_text()])
    made_of = CACHE / "made-of"
    if made_of.exists() and made_of.read_text() == wanted:
        return
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        unpacked, root = pathlib.Path(scratch) / "unpacked", pathlib.Path(scratch) / "root"
        unpacked.mkdir()
        run("sh", "-c",
            'dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -x --wildcards "./boot/vmlinuz-*" "./lib/modules/*"', "sh",
            package, unpacked)
        (modules,) = (unpacked / "lib" / "modules").iterdir()
        run("depmod", "-b", unpacked, modules.name)
        there = root / "lib" / "modules" / modules.name
        for file in needed(modules):
            (there / file).parent.mkdir(parents=True, exist_ok=True)
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
    def __init__(self):
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
        # The kernel on this side of the tap must say nothing on `data`. (On `ctl` it has IPv6, or getaddrinfo knows no
        # such addresses.)
        run("ip", "netns", "exec", self.netns, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/data/disable_ipv6")
        ip("link", "set", "lo", "up", netns=self.netns)
        ip("link", "set", "data", "mtu", "4300", "up", netns=self.netns)
        ip("addr", "add", f"{HOST}/24", "dev", "ctl", netns=self.netns)
        ip("link", "set", "ctl", "up", netns=self.netns)
        self.machine = self.boot()

    def boot(self):
        plain = ",".join(f"{offload}=off" for offload in ("csum", "guest_csum", "gso", "guest_tso4", "guest_tso6",
                                                          "guest_ecn", "guest_ufo",
                                                          "host_tso4", "host_tso6", "host_ecn", "host_ufo"))
        machine = Process(
            [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-machine",
             "q35", "-cpu", "max,la57=off",
             "-accel", "tcg,thread=multi,tb-size=256", "-smp", "1", "-m", "768", "-kernel", CACHE / "vmlinuz",
             "-initrd", CACHE / "initramfs.gz",
             "-append",
             "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check "
             f"rove.folder={FOLDER}",
             "-device", "virtio-rng-pci",
             "-fsdev", "local,id=host,path=/,security_model=none,multidevs=remap,readonly=on", "-device",
             "virtio-9p-pci,fsdev=host,mount_tag=host",
             "-netdev", "tap,id=data,ifname=data,script=no,downscript=no",
             "-device", f"virtio-net-pci,netdev=data,mac=52:54:00:00:00:01,host_mtu=4300,romfile=,{plain}",
             "-netdev", "tap,id=ctl,ifname=ctl,script=no,downscript=no", "-device",
             "virtio-net-pci,netdev=ctl,mac=52:54:00:00:00:02,romfile="],
            core=SERVER_CORE, netns=self.netns, outlives_test=True)
        machine.wait_for(lambda: "guest: ready" in machine.out(), BOOTS_WITHIN, "its agent")
        return machine

    def process(self, arguments):
        """A program in the guest, as a Process of this machine: its output, its exit status; who stops it ends the
        program."""
        return Process([sys.executable, FOLDER / "agent.py", "run", GUEST, AGENT_PORT, *arguments], netns=self.netns)

    def run(self, *arguments, timeout=30):
        """What a program in the guest prints; it must succeed."""
        return self.process(arguments).succeed(timeout).out()

    def wait_listening(self, port):
        self.run("sh", "-c", f"until grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done")

    def close(self):
        if hasattr(self, "machine"):
            self.machine.stop()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)


def guest():
    """The guest, booted by the first who asks. What prevents it once prevents it for everybody."""
    global _guest
    if _guest is None:
        try:
            _guest = Guest()
        except (Skip, Failure) as reason:
            _guest = reason
        except BaseException:       # the alarm of the test's time
            _guest = Failure("the guest did not boot")
            raise
    if isinstance(_guest, Exception):
        raise _guest
    return _guest
