// SPDX-License-Identifier: Apache-2.0
// A figure as SVG: lines over a linear axis, or groups of bars. And as PNG, by a program that draws SVG.
#pragma once

#include "experiment.h"

namespace rove::sim {

std::string svg(const Plot& plot);

// Whether draw_png() can be called: rsvg-convert, of Debian's librsvg2-bin, is on PATH.
bool can_draw_png();
// Throws std::runtime_error when the file cannot be written.
void draw_png(const std::string& svg, const std::string& file);

}  // namespace rove::sim
