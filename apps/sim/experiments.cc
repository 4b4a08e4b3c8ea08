// SPDX-License-Identifier: Apache-2.0
#include "experiments.h"

#include <array>

namespace rove::sim {

std::span<const Experiment> experiments() {
    static constexpr std::array kAll{
        Experiment{"mp-fig11a", "goodput of one connection when three of four paths lose packets", fig11a},
    };
    return kAll;
}

}  // namespace rove::sim
