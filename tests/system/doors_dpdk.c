// SPDX-License-Identifier: Apache-2.0
// A program with a DPDK of its own and a port that delivers packets without end (net_null), which uses verbs: both
// work.
#include <infiniband/verbs.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { kBurst = 32, kFrames = 64 };

static unsigned receive(void) {
    struct rte_mbuf* burst[kBurst];
    unsigned received = 0;
    for (unsigned i = 0; i < 1000 && received < kFrames; ++i) {
        const unsigned n = rte_eth_rx_burst(0, 0, burst, kBurst);
        rte_pktmbuf_free_bulk(burst, n);
        received += n;
    }
    return received;
}

int main(int argc, char** argv) {
    (void)argc;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "--file-prefix=doors-%d", (int)getpid());
    char* arguments[] = {argv[0], "--no-huge", "--no-pci", "-m", "64", prefix, "--vdev", "net_null0", NULL};
    if (rte_eal_init(8, arguments) < 0) return 1;
    struct rte_mempool* pool = rte_pktmbuf_pool_create("doors", 1023, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    struct rte_eth_conf conf;
    memset(&conf, 0, sizeof conf);
    if (!pool || rte_eth_dev_configure(0, 1, 1, &conf) != 0 ||
        rte_eth_rx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL, pool) != 0 ||
        rte_eth_tx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL) != 0 || rte_eth_dev_start(0) != 0)
        return 2;
    const unsigned ports = rte_eth_dev_count_avail(), received = receive();

    int devices = 0;
    struct ibv_device** list = ibv_get_device_list(&devices);
    struct ibv_context* context = devices > 0 ? ibv_open_device(list[0]) : NULL;
    struct ibv_port_attr port;
    const int opened = context && ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE;
    const unsigned still = receive();
    printf("{\"ports\": %u, \"devices\": %d, \"opened\": %s, \"received\": %u, \"still\": %u}\n", ports, devices,
           opened ? "true" : "false", received, still);
    if (context) ibv_close_device(context);
    if (list) ibv_free_device_list(list);
    rte_eth_dev_stop(0);
    rte_eal_cleanup();
    return 0;
}
