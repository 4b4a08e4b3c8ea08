// SPDX-License-Identifier: Apache-2.0
#include "experiments.h"

#include <array>

namespace rove::sim {

std::span<const Experiment> experiments() {
    static constexpr std::array kAll{
        Experiment{"mp-fig4", "the queue under two kinds of RED, and the model's", fig4},
        Experiment{"mp-fig5", "marking ratios of four unlike paths", fig5},
        Experiment{"mp-fig11a", "one connection, and loss on three of four paths", fig11a},
        Experiment{"mp-fig11b", "one connection, and paths that go down and come back", fig11b},
        Experiment{"mp-fig12a", "permutation of five connections over four paths", fig12a},
        Experiment{"mp-fig12b", "permutation of 320 hosts", nullptr, fig12b_points, fig12b},
        Experiment{"mp-fig13", "completion times of web-search flows by load", nullptr, fig13_points, fig13},
        Experiment{"mp-fig14a", "out-of-order degree with path 4 misconfigured or slow", fig14a},
        Experiment{"mp-fig14b", "goodput of these with a bitmap of 64 packets", fig14b},
        Experiment{"mp-fig15", "congestion on one of four paths", fig15},
        Experiment{"mp-fig16", "fairness of one to eight connections at a bottleneck", fig16},
        Experiment{"mp-fig17", "incast of one to nine senders", fig17},
        Experiment{"mp-fig18", "synchronise messages that arrive early, by alpha", fig18},
        Experiment{"mp-fig19", "goodput by the part of synchronise messages", fig19},
        Experiment{"mp-fig20", "flowlets of RDMA", fig20},
        Experiment{"mp-table1", "bytes that a connection adds", table1},
        Experiment{"eu-fig1a", "slowdown by load, lossless, with and without ordering", nullptr, eu_load_points,
                   eu_fig1a, "eunomia"},
        Experiment{"eu-fig1b", "... lossy", nullptr, eu_lossy_points, eu_fig1b, "eunomia"},
        Experiment{"eu-fig1c", "negative acknowledgements of these", nullptr, eu_load_points, eu_fig1c, "eunomia"},
        Experiment{"eu-fig2", "slowdown of flows that met a failed link", nullptr, eu_hit_points, eu_fig2},
        Experiment{"eu-fig3a", "mean time in a fat tree and in Jellyfish, by load", nullptr, eu_jellyfish_points,
                   eu_fig3a, "eunomia-jellyfish"},
        Experiment{"eu-fig3b", "throughput of these", nullptr, eu_jellyfish_points, eu_fig3b, "eunomia-jellyfish"},
        Experiment{"eu-fig3c", "packets out of order, by load", nullptr, eu_load_points, eu_fig3c, "eunomia"},
        Experiment{"eu-fig3d", "out-of-order degree, by size", nullptr, eu_load_points, eu_fig3d, "eunomia"},
        Experiment{"eu-fig11", "slowdown by size, AliStorage", nullptr, eu_load_points, eu_fig11, "eunomia"},
        Experiment{"eu-fig12", "slowdown by size, Meta Hadoop", nullptr, eu_hadoop_points, eu_fig12, "eunomia-hadoop"},
        Experiment{"eu-fig13", "pauses of ports, by load", nullptr, eu_load_points, eu_fig13, "eunomia"},
        Experiment{"eu-fig14", "slowdown in a fat tree and in Jellyfish with Eunomia, by load", nullptr,
                   eu_jellyfish_points, eu_fig14, "eunomia-jellyfish"},
        Experiment{"eu-fig15", "... by size", nullptr, eu_jellyfish_points, eu_fig15, "eunomia-jellyfish"},
        Experiment{"eu-fig16", "incast queries, with and without DIBS", nullptr, eu_query_points, eu_fig16},
        Experiment{"eu-fig17", "shortest flow first, by size", nullptr, eu_srpt_points, eu_fig17, "eunomia"},
        Experiment{"eu-fig18", "static bitmaps and Eunomia", nullptr, eu_static_points, eu_fig18, "eunomia"},
        Experiment{"eu-fig19", "slowdown while links fail and return", nullptr, eu_failure_points, eu_fig19},
        Experiment{"eu-fig20", "the last packet delayed or held", nullptr, eu_ordering_points, eu_fig20, "eunomia"},
        Experiment{"eu-memory", "Eunomia Fig. 9c, 9d, 10 and Table 1: bytes of reorder tracking", memory},
        Experiment{"bx1", "losses inferred by path, on and off: Fig. 11a and incast", bx1},
        Experiment{"tail", "single messages under loss: MP-10", tail},
        Experiment{"uec", "UEC's matrices: 1024 hosts, permutation and incast", nullptr, uec_points, uec},
        Experiment{"uec-failed", "UEC's 24 runs of 8192 hosts with slow links", nullptr, uec_failed_points, uec_failed},
        Experiment{"study", "today's transports side by side", nullptr, study_points, study},
    };
    return kAll;
}

}  // namespace rove::sim
