// SPDX-License-Identifier: Apache-2.0
// Units: pixels.
#include "plot.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace rove::sim {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 70, kRight = 200, kTop = 40, kBottom = 60;
constexpr std::array kColours{"#1f6fb4", "#e07b1a", "#2c9a4b", "#c8352f", "#7a5ab0", "#7f5b4c", "#d567a8", "#6b6b6b"};

[[gnu::format(printf, 2, 3)]] void add(std::string& out, const char* format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    out += line;
}

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
    }
    return out;
}

void text(std::string& out, double x, double y, const char* anchor, const std::string& what) {
    add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, escaped(what).c_str());
}

// An axis from `low` to `high` with grid lines at 1, 2 or 5 times a power of ten.
struct Axis {
    double low, high, step;

    Axis(double least, double most) {
        const double rough = std::max(most - least, 1e-9) / 6;
        const double power = std::pow(10, std::floor(std::log10(rough)));
        step = power * (rough / power <= 1 ? 1 : rough / power <= 2 ? 2 : rough / power <= 5 ? 5 : 10);
        low = std::floor(least / step) * step;
        high = std::ceil(most / step - 1e-9) * step;
    }
    double part(double value) const { return (value - low) / (high - low); }
};

}  // namespace

std::string svg(const Plot& plot) {
    const bool bars = !plot.categories.empty();
    double x_low = bars ? -0.5 : 1e300, x_high = bars ? static_cast<double>(plot.categories.size()) - 0.5 : -1e300;
    double y_high = 1e-9;
    for (const Curve& curve : plot.curves) {
        for (const auto& [x, y] : curve.points) {
            x_low = std::min(x_low, x);
            x_high = std::max(x_high, x);
            y_high = std::max(y_high, y);
        }
    }
    const Axis xs(x_low, x_high), ys(0, y_high);
    const double plot_width = kWidth - kLeft - kRight, plot_height = kHeight - kTop - kBottom;
    const auto at_x = [&](double x) {
        return kLeft + plot_width * (bars ? (x - x_low) / (x_high - x_low) : xs.part(x));
    };
    const auto at_y = [&](double y) { return kTop + plot_height * (1 - ys.part(y)); };

    std::string out;
    add(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        kWidth, kHeight);
    text(out, kLeft + plot_width / 2, kTop - 15, "middle", plot.title);
    text(out, kLeft + plot_width / 2, kHeight - 15, "middle", plot.x);
    add(out, "<text transform=\"translate(18 %g) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
        kTop + plot_height / 2, escaped(plot.y).c_str());
    for (double y = ys.low; y <= ys.high + ys.step / 2; y += ys.step) {
        add(out, "<path d=\"M%g %.1fh%g\" stroke=\"#ddd\"/>\n", kLeft, at_y(y), plot_width);
        char label[32];
        std::snprintf(label, sizeof label, "%g", y);
        text(out, kLeft - 6, at_y(y) + 4, "end", label);
    }
    if (bars) {
        for (size_t i = 0; i < plot.categories.size(); ++i)
            text(out, at_x(static_cast<double>(i)), kHeight - kBottom + 18, "middle", plot.categories[i]);
    } else {
        for (double x = xs.low; x <= xs.high + xs.step / 2; x += xs.step) {
            char label[32];
            std::snprintf(label, sizeof label, "%g", std::abs(x) < xs.step / 1e6 ? 0 : x);
            text(out, at_x(x), kHeight - kBottom + 18, "middle", label);
        }
    }
    for (size_t i = 0; i < plot.curves.size(); ++i) {
        const Curve& curve = plot.curves[i];
        const char* const colour = kColours[i % kColours.size()];
        const double key = kTop + 10 + 20 * static_cast<double>(i);
        add(out, "<rect x=\"%g\" y=\"%g\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", kWidth - kRight + 15, key - 10,
            colour);
        text(out, kWidth - kRight + 33, key, "start", curve.name);
        if (bars) {
            const double width = 0.8 / static_cast<double>(plot.curves.size());
            for (const auto& [x, y] : curve.points) {
                const double left = at_x(x - 0.4 + width * static_cast<double>(i));
                add(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", left, at_y(y),
                    at_x(x + width) - at_x(x), at_y(0) - at_y(y), colour);
            }
            continue;
        }
        add(out, "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"%s\" points=\"", colour);
        for (const auto& [x, y] : curve.points) add(out, "%.1f,%.1f ", at_x(x), at_y(y));
        out += "\"/>\n";
    }
    add(out, "<path d=\"M%g %gv%gh%g\" fill=\"none\" stroke=\"black\"/>\n</svg>\n", kLeft, kTop, plot_height,
        plot_width);
    return out;
}

bool can_draw_png() {
    return std::system("command -v rsvg-convert >/dev/null") == 0;
}

void draw_png(const std::string& svg, const std::string& file) {
    std::signal(SIGPIPE, SIG_IGN);  // if the child ends early, its status reports that
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe to rsvg-convert");
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("rsvg-convert", "rsvg-convert", "--zoom=2", "--output", file.c_str(), nullptr);
        _exit(1);
    }
    close(ends[0]);
    std::FILE* const out = fdopen(ends[1], "w");
    std::fputs(svg.c_str(), out);
    std::fclose(out);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        throw std::runtime_error("rsvg-convert cannot write " + file);
}

}  // namespace rove::sim
