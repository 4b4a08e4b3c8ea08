// SPDX-License-Identifier: Apache-2.0
// A port's rate in the encoding of verbs and sysfs: the number of lanes and the speed of each (IBTA 14.2.5.6). Rates
// are rounded up to the next of Linux's steps for Ethernet.
#pragma once

#include <cstdint>

namespace rove::verbs {

struct Rate {
    uint8_t width, speed;  // bits of LinkWidthActive and LinkSpeedActive
    const char* text;      // the text in sysfs
};

inline Rate rate_of(uint32_t mbps) {
    constexpr struct {
        uint32_t up_to_mbps;
        Rate rate;
    } kSteps[]{{2'500, {1, 1, "2.5 Gb/sec (1X SDR)"}},     {10'000, {1, 8, "10 Gb/sec (1X FDR10)"}},
               {20'000, {2, 2, "20 Gb/sec (4X DDR)"}},     {25'000, {1, 32, "25 Gb/sec (1X EDR)"}},
               {40'000, {2, 8, "40 Gb/sec (4X FDR10)"}},   {50'000, {16, 32, "50 Gb/sec (2X EDR)"}},
               {100'000, {2, 32, "100 Gb/sec (4X EDR)"}},  {200'000, {2, 64, "200 Gb/sec (4X HDR)"}},
               {400'000, {2, 128, "400 Gb/sec (4X NDR)"}}, {UINT32_MAX, {4, 128, "800 Gb/sec (8X NDR)"}}};
    for (const auto& step : kSteps)
        if (mbps <= step.up_to_mbps) return step.rate;
    __builtin_unreachable();
}

}  // namespace rove::verbs
