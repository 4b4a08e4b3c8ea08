# SPDX-License-Identifier: Apache-2.0
"""Runs verbs_check over memif, which verifies every byte, completion and guard of every verb."""
from harness import Failure, check, memif_link, once, program, run_pair, test, verified

RC_VERBS = ("send", "send_imm", "write", "write_imm", "read", "faa", "cas")
SMALL_TO_LARGE = "--sizes 0,1,3,7,64,255,256,1000,4095,4096,4097,65537,300001"


def rc(options, **changes):
    lines = verified(memif_link(**changes), *options.split())
    check(len(lines) >= 1 and all(line["operations"] > 0 and line["lost"] == 0 for line in lines), str(lines))


def unreliable(transport, options, **changes):
    lines = verified(memif_link(**changes), "--transport", transport, *options.split())
    check(all(line["operations"] > 0 for line in lines), str(lines))
    return lines


def with_changes(options, changes):
    rc(options, **changes)


test("verified/rc", rc, f"{SMALL_TO_LARGE} --mtu 4096 --rounds 2", quick=True)
for mtu in (256, 512, 1024, 2048):
    test(f"verified/rc/mtu-{mtu}", rc, f"{SMALL_TO_LARGE} --mtu {mtu} --rounds 2")
test("verified/rc/ipv6", rc, f"{SMALL_TO_LARGE} --gid-index 2 --mtu 4096 --rounds 2")
test("verified/rc/scatter-gather", rc, f"{SMALL_TO_LARGE} --sge 5")
test("verified/rc/inline", rc, "--inline 64 --sizes 1,8,33,64 --verbs send,send_imm,write,write_imm --rounds 20")
test("verified/rc/events", rc, "--events --rounds 10")
test("verified/rc/srq", rc, "--srq --qps 8 --verbs send,send_imm,write_imm --rounds 10")
test("verified/rc/both-ways", rc, f"{SMALL_TO_LARGE} --both --qps 4 --depth 4")
test("verified/rc/both-ways/events", rc, "--both --qps 4 --events")
test("verified/rc/late-receives", rc, "--late --verbs send,send_imm,write_imm")
test("verified/rc/service-levels", rc, "--sl 6 --qps 4")
# A polling worker shares its core with the program here, and the scheduler takes milliseconds to switch between them,
# so the runs are short.
test("verified/rc/dedicated", with_changes, "--both --qps 2 --sizes 0,1,64,4097,65537 --rounds 1 --depth 4",
     {"progress": "dedicated"})
test("verified/rc/dedicated/events", with_changes, "--events --rounds 2", {"progress": "dedicated"})
test("verified/rc/1000-qps", rc, "--qps 1000 --depth 4 --sizes 64,1500,8192 --rounds 3", timeout=120)
test("verified/rc/1000-qps/both-ways", rc, "--qps 1000 --depth 2 --sizes 4000 --both --rounds 3", timeout=120)
test("verified/uc", unreliable, "uc", "--sizes 0,1,64,4096,4097,65537 --verbs send,send_imm,write,write_imm",
     quick=True)
test("verified/ud", unreliable, "ud", "--sizes 0,1,64,1000,1024,4096 --verbs send,send_imm --mtu 4096", quick=True)
once("verified/ud/16-qps/events", unreliable, "ud", "--sizes 100,1024 --verbs send,send_imm --qps 16 --events")


def controlled(paths):
    """Uses other controls and choices of paths than MP-RDMA's, over four paths with losses and marks."""
    link = memif_link(impair={"paths": 4, "loss": 0.002, "mark": 0.01})
    for config in link.configs:
        config["transport"] = {"paths": paths}
    lines = verified(link, "--sizes", "1,1025,65537", "--rounds", "2")
    check(all(line["operations"] > 0 and line["lost"] == 0 for line in lines), str(lines))


for name, paths in {"dcqcn": {"control": "dcqcn", "choice": "random"}, "nscc": {"control": "nscc", "choice": "reps"},
                    "fixed": {"control": "fixed", "vps": 1}}.items():
    test(f"verified/control/{name}", controlled, paths, modes=("mp",))


def refused():
    command = [program("verbs_refused")]
    _, client = run_pair(memif_link(), command, command, "--port")
    check(len(client.json()) == 8, client.story())


test("verified/rc/refused", refused)


def churn(rate, seconds):
    command = [program("verbs_churn"), "--rate", rate, "--seconds", seconds]
    sides = run_pair(memif_link(), command, command, "--port", timeout=10 * seconds + 50)
    for side in sides:
        (line,) = side.json()
        check(line["connections"] == rate * seconds, str(line))
        # The growth must not exceed the rounding of the heap.
        check(line["rss_end"] - line["rss_warm"] < 256 * 1024, f"memory grows: {line}")


test("churn", churn, 400, 5, quick=True)
once("churn/longer", churn, 400, 10, timeout=180)
