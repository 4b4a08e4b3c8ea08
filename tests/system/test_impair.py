# SPDX-License-Identifier: Apache-2.0
"""Tests impaired paths between two processes: delay and rate as programs measure them, and a path that dies and returns
during a transfer."""
from harness import STOPPED, check, free_port, memif_link, program, shipped, start_client, start_server, telemetry, test
from test_perftest import perftest

# If the sleep until a packet is due were rounded up to a millisecond, the packet would be 0.6 ms late.
DELAY_US, LATE_US = 370, 200


def delay(tool, crossings):
    """Each direction delays, and the tool's latency consists of `crossings` of them. A late wake-up would also show in
    the minimum."""
    ((_, _, least, *_),) = perftest(memif_link(impair={"delay_us": DELAY_US}), tool, ["-n", "500"], figures=True)
    check(crossings * DELAY_US <= least < crossings * (DELAY_US + LATE_US), f"{tool}: at least {least} us")


test("impair/delay/ib_send_lat", delay, "ib_send_lat", 1, quick=True, alone=True)
# The target sleeps, so its progress thread must wake up in time.
test("impair/delay/ib_read_lat", delay, "ib_read_lat", 2, alone=True)


def rate(mbps):
    """Tests a rate that needs only a few per cent of a core, so that a busy machine can reach it."""
    ((_, _, _, average, _),) = perftest(memif_link(impair={"rate_mbps": mbps, "queue_packets": 128}), "ib_write_bw",
                                        ["--report_gbits", "-s", "65536", "-n", "100"], figures=True)
    check(0.3 * mbps / 1000 < average <= mbps / 1000,
          f"{average} Gb/s through {mbps} Mb/s")  # The transport determines how much of the rate is used.


test("impair/rate", rate, 100, alone=True)

WRONG = ("", ",rove9", ",rove0,4", ",rove0,-1,down=true", ",rove0,4294967296,down=true", ",rove0,all,down",
         ",rove0,all,down=maybe", ",rove0,1,loss=2", ",rove0,1,los=0", ',rove0,"', ",rove0," + 100 * "x" + ",loss=1",
         50 * ",rove0")


def paths(process):
    return telemetry(process.pid, "/rove/impair,rove0") or {}   # The telemetry is empty until the datapath has started.


def death_and_return():
    """All of a QP's packets use one path. It dies in the middle of a transfer that is verified, and returns in time."""
    link = memif_link(impair={"paths": 4, "rate_mbps": 2000, "queue_packets": 1024})
    command = [
        program("verbs_check"), "--verbs", "write,send,read", "--sizes", "65536", "--depth", "4", "--rounds", "400"]
    port = free_port()
    server = start_server(link, command, port, "--port")
    client = start_client(link, command, port, "--port")
    (busy,) = client.wait_for(lambda: [path for path, is_ in paths(server).items()
                                        if is_["frames"] > 1000], 20, "traffic")
    (qpn,) = telemetry(client.pid, "/rove/qps")
    udp_src = telemetry(client.pid, f"/rove/qp,{qpn}")["udp_src"]
    check(int(busy) == udp_src % 4, f"port {udp_src} takes path {busy}")
    for wrong in WRONG:
        answer = telemetry(server.pid, f"/rove/impair{wrong}")
        check(isinstance(answer, str) and "allowed" in answer, f"'{wrong}' is answered by {answer}")
    dead = telemetry(server.pid, f"/rove/impair,rove0,{busy},down=true,loss=0.25")[busy]
    check((dead["down"], dead["loss"], dead["rate_mbps"]) == ("true", "0.25", "2000"), str(dead))
    server.wait_for(lambda: paths(server)[busy]["drop_down"] > 0 and paths(server)[busy]["waiting"] == 0, 20,
                    "packets on the dead path")
    check(client.child.poll() is None, f"it ended without its path\n{client.story()}")
    telemetry(server.pid, "/rove/impair,rove0,all,down=false,loss=0,rate_mbps=0")
    client.succeed(30)
    check(all(line["lost"] == 0 for line in server.json()), server.story())
    server.succeed(STOPPED)


test("impair/death-and-return", death_and_return, quick=True, modes=("rc",))


def congested():
    """Tests DCQCN: the requester answers CE marks on READ data with CNPs, which reduce the responder's rate."""
    link = memif_link(impair={"mark": 0.01})
    command = [program("verbs_check"), "--verbs", "read", "--sizes", "65536", "--rounds", "200"]
    port = free_port()
    server = start_server(link, command, port, "--port")
    client = start_client(link, command, port, "--port")

    def counted(process, counter):
        return ((telemetry(process.pid, "/rove/workers") or {}).get("worker0") or {}).get(counter, 0)

    client.wait_for(lambda: counted(server, "rx_cnp") > 0, 20, "CNPs received")
    client.wait_for(lambda: counted(client, "rx_ce") > 0 and counted(client, "tx_cnp") > 0, 20, "CNPs sent")
    (qpn,) = telemetry(server.pid, "/rove/qps")
    client.wait_for(lambda: telemetry(server.pid, f"/rove/qp,{qpn}")["rate_limited"], 20, "limit of the rate")
    client.succeed(40)
    server.succeed(STOPPED)
    check(all(line["lost"] == 0 for line in server.json()), server.story())


test("impair/congested", congested, modes=("rc",))


def shipped_paths():
    """Uses config/impaired-*.toml in mp. A path that dies during the run and one that loses 5 % do not stop the
    others."""
    link = memif_link()
    for config, name in zip(link.configs, ("impaired-a", "impaired-b")):
        impair = config["device"][0]["impair"] = shipped(name)["device"][0]["impair"]
        # It dies later, because a HELLO must arrive first.
        (dies,) = [path for path in impair["path"] if path.pop("down", False)]
    command = [program("verbs_check"), "--verbs", "write,read", "--sizes", "65536", "--depth", "4", "--rounds", "200"]
    port = free_port()
    server = start_server(link, command, port, "--port")
    client = start_client(link, command, port, "--port")
    client.wait_for(lambda: sum(is_["frames"] for is_ in paths(server).values()) > 1000, 20, "traffic")
    for process in (server, client):
        telemetry(process.pid, f"/rove/impair,rove0,{dies['index']},down=true")
    client.wait_for(lambda: paths(server)[str(dies["index"])]["drop_down"] > 0, 20, "packets on the dead path")
    now = paths(server)
    check(all(is_["frames"] > 0 for is_ in now.values()) and len(now) == 9, str(now))
    check(now["2"]["lost"] > 0, str(now["2"]))
    client.succeed(40)
    check(all(line["lost"] == 0 for line in server.json()), server.story())
    server.succeed(STOPPED)


test("impair/shipped-paths", shipped_paths, modes=("mp",))
