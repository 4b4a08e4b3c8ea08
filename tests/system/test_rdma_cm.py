# SPDX-License-Identifier: Apache-2.0
"""rdma_cm: Debian's librdmacm and its programs, unmodified, over rove."""
import time

from harness import CLIENT_CORE, SERVER_CORE, STOPPED, Failure, Process, check, memif_pair, telemetry, test

IPV4, IPV6 = "10.0.0.1", "fd00::1"


def address_of(config, family="4"):
    """The first address of a configuration's first device in a family."""
    addresses = [address.split("/")[0] for address in config["device"][0]["addresses"]]
    return next(address for address in addresses if (":" in address) == (family == "6"))


def wait_ready(server):
    """Until `server` has a device's QP 1, and with it what it does just then: bind and listen."""
    def has_gsi():
        try:
            return 1 in (telemetry(server.pid, "/rove/qps") or [])
        except (OSError, KeyError):
            return False

    server.wait_for(has_gsi, 20, "general services interface")
    time.sleep(0.1)


def both(server, client, pair, timeout=40, stop=False):
    """Runs `client` against `server`; both must succeed. `stop`: the server goes on, and is stopped."""
    listening = Process(server, pair[0], SERVER_CORE)
    try:
        wait_ready(listening)
        connecting = Process(client, pair[1], CLIENT_CORE).succeed(timeout)
        if stop:
            check(listening.child.poll() is None, "the server has ended")
            listening.stop()
        else:
            listening.succeed(STOPPED)
    except Failure as failure:
        raise Failure(f"{failure}\n--- server\n{listening.story()}") from None
    return listening, connecting


def rping(family="4", count=100, options=(), **changes):
    """Every byte is compared (-V)."""
    pair = memif_pair(**changes)
    address = address_of(pair[0], family)
    _, client = both(["rping", "-s", "-v", "-V", "-C", count, "-a", address, *options],
                     ["rping", "-c", "-v", "-V", "-C", count, "-a", address, *options], pair)
    check(client.out().count("ping data: rdma-ping-") == count, client.story())


LOSS = {"loss": 0.01}

test("rdma-cm/rping", rping, quick=True)
test("rdma-cm/rping/ipv6", rping, "6")
for progress in ("shared", "dedicated"):
    def lossy(progress=progress):
        rping("4", 300, impair=LOSS, progress=progress)

    test(f"rdma-cm/rping/loss/{progress}", lossy)
