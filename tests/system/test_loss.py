# SPDX-License-Identifier: Apache-2.0
"""Tests packets that are lost, duplicated, damaged and reordered on both ports by configuration, and a peer that is
killed."""
import time

from harness import (SERVER_CORE, Failure, Process, check, free_port, memif_link, once, program, run_pair, start_client,
                     test, verified)
from test_perftest import COMBINED, iterations, only_rc, over_memif
from test_pingpong import pingpong

LOSS = {"loss": 0.01, "seed": 7}
EVERYTHING = {"loss": 0.01, "duplicate": 0.01, "corrupt": 0.01, "reorder": 0.01, "seed": 11}

for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat",
             "ib_atomic_lat"):
    test(f"loss/{tool}", lambda tool: over_memif(tool, "-n 500", impair=LOSS), tool)
for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
    test(f"loss/{tool}/all-sizes", lambda tool: over_memif(tool, "-a -n 20", sizes=23, timeout=150, impair=LOSS), tool,
         timeout=160)
for tool in ("ib_write_lat", "ib_read_lat", "ib_send_lat"):
    test(f"loss/{tool}/all-sizes", lambda tool: over_memif(tool, "-a -n 5 -x 2", sizes=23, timeout=150, impair=LOSS),
         tool, timeout=160)
MTUS = [(f"mtu-{mtu}", f"ib_{verb}_bw", f"-m {mtu}") for mtu in (256, 512, 1024, 2048)
        for verb in ("write", "read", "send")]
for (label, tool, options), register in [(one, test) for one in COMBINED] + [(one, only_rc) for one in MTUS]:
    register(f"loss/{tool}/{label}",
             lambda tool, options: over_memif(tool, options + iterations(tool, 500), impair=LOSS), tool, options)
test("loss/pingpong/rc", lambda: pingpong("rc", "-c -n 500", impair=LOSS))
test("loss/pingpong/rc/ipv6/events", lambda: pingpong("rc", "-g 2 -e -c -n 50", impair=LOSS))
test("loss/pingpong/srq", lambda: pingpong("srq", "-e -c -n 50", impair=LOSS))


def rc(impair, options):
    lines = verified(memif_link(impair=impair), *options.split(), timeout=100)
    check(all(line["lost"] == 0 for line in lines), str(lines))


def unreliable(transport, options):
    lines = verified(memif_link(impair=LOSS), "--transport", transport, "--lossy", *options.split())
    lost, sent = sum(line["lost"] for line in lines), sum(line["operations"] for line in lines)
    check(0 < lost < sent / 4, f"{lost} of {sent} messages lost: 1 % of the packets should be")


test("loss/verified/rc", rc, LOSS, "--sizes 0,1,64,1000,4097,65537 --depth 16 --rounds 10", quick=True)
test("loss/verified/rc/mtu-256", rc, LOSS, "--sizes 1000,65537 --mtu 256 --rounds 10")
test("loss/verified/rc/both-ways", rc, LOSS, "--both --qps 16 --depth 4")
test("loss/verified/rc/events", rc, LOSS, "--events --qps 4")
test("loss/verified/rc/late-receives", rc, LOSS, "--late --verbs send,send_imm,write_imm")
test("loss/verified/rc/1000-qps", rc, LOSS, "--qps 1000 --depth 2 --sizes 1500 --rounds 2")
test("loss/verified/rc/every-fault", rc, EVERYTHING, "--qps 4 --rounds 10")
once("loss/verified/uc", unreliable, "uc", "--verbs send_imm,write_imm --sizes 64,4000 --depth 32 --rounds 20")
once("loss/verified/ud", unreliable, "ud", "--verbs send_imm --sizes 64,1000 --depth 64 --rounds 20")

# One retry takes at most four times 4.096 us * 2^timeout (IBTA 9.9.2.1.1). The first transmission waits as long.
TIMEOUT, RETRIES = 14, 3
BOUND = 4 * 4.096e-6 * 2**TIMEOUT * (RETRIES + 1)


def peer_killed(link, second_survives, verbs="write,send,read"):
    """Kills the target by SIGKILL during the first of `verbs`. The survivor, one end of the link, sees errors in time,
    and then runs a whole check with a new peer."""
    if not second_survives:
        link.configs.reverse()
    port = free_port(link.netns[0])
    command = [program("verbs_check"), "--timeout", TIMEOUT, "--retry", RETRIES, "--mtu", 2048, "--verbs", verbs]
    # It does not wait for the target, because a port may open only when both ends are there.
    target = Process([*command, "--peer-dies", "--port", port], link.configs[0], SERVER_CORE, link.netns[0])
    survivor = start_client(link, [*command, "--peer-dies"], port, "--port")
    survivor.wait_for(lambda: any(line.get("running") for line in survivor.json()), 20, "traffic")
    killed_at, waited = time.monotonic(), survivor.waited_for_core()
    target.kill()
    (death,) = survivor.wait_for(lambda: [line for line in survivor.json()
                                           if line.get("died")], BOUND + 20, "error completion")
    check(death["status"] == "transport retry counter exceeded", str(death))
    # Timeouts do not run while the survivor waits for a core.
    took, waited = death["error_at"] - killed_at, survivor.waited_for_core() - waited
    check(took < BOUND + waited + 0.5,
          f"{took:.2f} s until the error, {waited:.2f} of them without a core; at most {BOUND:.2f} allowed")
    newcomer = Process([*command, "--port", port], link.configs[0], SERVER_CORE, link.netns[0])
    survivor.succeed(40)
    newcomer.succeed(20)


def memif_peer_killed(client_survives, verbs):
    peer_killed(memif_link(), client_survives, verbs)


test("peer-killed/memif-client-survives", memif_peer_killed, True, "write,read", quick=True)
test("peer-killed/memif-client-survives/read", memif_peer_killed, True, "read,faa")
test("peer-killed/memif-server-survives", memif_peer_killed, False, "send,write")
