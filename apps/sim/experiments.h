// SPDX-License-Identifier: Apache-2.0
// All experiments, named by the number of the figure in its paper.
#pragma once

#include "experiment.h"

namespace rove::sim {

Report fig4(uint64_t seed);
Report fig5(uint64_t seed);
Report fig11a(uint64_t seed);
Report fig11b(uint64_t seed);
Report fig12a(uint64_t seed);
std::vector<Point> fig12b_points();
Report fig12b(const Results& results);
std::vector<Point> fig13_points();
Report fig13(const Results& results);
Report fig14a(uint64_t seed);
Report fig14b(uint64_t seed);
Report fig15(uint64_t seed);
Report fig16(uint64_t seed);
Report fig17(uint64_t seed);
Report fig18(uint64_t seed);
Report fig19(uint64_t seed);
Report fig20(uint64_t seed);
std::vector<Point> eu_load_points(), eu_lossy_points(), eu_hadoop_points(), eu_srpt_points(), eu_static_points(),
    eu_ordering_points();
Report eu_fig1a(const Results& results);
Report eu_fig1b(const Results& results);
Report eu_fig1c(const Results& results);
Report eu_fig3c(const Results& results);
Report eu_fig3d(const Results& results);
Report eu_fig11(const Results& results);
Report eu_fig12(const Results& results);
Report eu_fig13(const Results& results);
Report eu_fig17(const Results& results);
Report eu_fig18(const Results& results);
Report eu_fig20(const Results& results);
std::vector<Point> eu_hit_points(), eu_jellyfish_points(), eu_query_points(), eu_failure_points();
Report eu_fig2(const Results& results);
Report eu_fig3a(const Results& results);
Report eu_fig3b(const Results& results);
Report eu_fig14(const Results& results);
Report eu_fig15(const Results& results);
Report eu_fig16(const Results& results);
Report eu_fig19(const Results& results);
std::vector<Point> study_points();
Report study(const Results& results);
std::vector<Point> uec_points(), uec_failed_points();
Report uec(const Results& results);
Report uec_failed(const Results& results);
Report memory(uint64_t seed);
Report table1(uint64_t seed);
Report bx1(uint64_t seed);
Report tail(uint64_t seed);

}  // namespace rove::sim
