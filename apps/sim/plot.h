// SPDX-License-Identifier: Apache-2.0
// A figure as SVG, with lines over a linear axis or groups of bars, and as PNG by a program that renders SVG.
#pragma once

#include "experiment.h"

namespace rove::sim {

std::string svg(const Plot& plot);

// Returns true if draw_png() can be called: rsvg-convert, of Debian's librsvg2-bin, is on PATH.
bool can_draw_png();
// Throws std::runtime_error if the file cannot be written.
void draw_png(const std::string& svg, const std::string& file);

}  // namespace rove::sim
