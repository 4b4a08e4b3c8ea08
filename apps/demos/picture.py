# SPDX-License-Identifier: Apache-2.0
"""Draws throughput over time as an SVG and marks the events."""
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 360, 60, 60, 45
COLOURS = {"both": "#333333", "rove0": "#1f77b4", "rove1": "#d95f02"}


def draw(samples, events, title):
    """Returns the SVG. `samples` holds (seconds, Gb/s by rail) and `events` holds (seconds, what happened)."""
    end = samples[-1][0]
    lines = {"both": [(t, sum(rails.values())) for t, rails in samples]}
    for rail in samples[0][1]:
        lines[rail] = [(t, rails[rail]) for t, rails in samples]
    top = 1.1 * max(y for _, y in lines["both"])
    x = lambda t: LEFT + t / end * (WIDTH - LEFT - 20)
    y = lambda gbps: HEIGHT - BOTTOM - gbps / top * (HEIGHT - TOP - BOTTOM)
    text = lambda at_x, at_y, words, more="": f'<text x="{at_x:.1f}" y="{at_y:.1f}" {more}>{escape(words)}</text>'
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 20, title, 'font-size="15"')]
    for i in range(5):
        gbps = top * i / 4
        svg += [f'<path d="M{LEFT} {y(gbps):.1f}H{WIDTH - 20}" stroke="#dddddd"/>',
                text(LEFT - 8, y(gbps) + 4, f"{gbps:.1f}", 'text-anchor="end"')]
    svg += [text(14, HEIGHT / 2, "Gb/s", f'transform="rotate(-90 14 {HEIGHT / 2})" text-anchor="middle"'),
            text((LEFT + WIDTH) / 2, HEIGHT - 8, "seconds", 'text-anchor="middle"')]
    svg += [
        text(x(t), HEIGHT - BOTTOM + 18, f"{t:.0f}", 'text-anchor="middle"') for t in (end * i / 4 for i in range(5))]
    for i, (when, what) in enumerate(events):
        svg += [f'<path d="M{x(when):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#999999" stroke-dasharray="4 3"/>',
                text(x(when) + 4, TOP + 10 + 15 * (i % 2), what, 'fill="#555555"')]
    for i, (name, points) in enumerate(lines.items()):
        where = " ".join(f"{x(t):.1f},{y(gbps):.1f}" for t, gbps in points)
        svg += [
            f'<polyline points="{where}" fill="none" stroke="{COLOURS[name]}" '
            f'stroke-width="{2.5 if name == "both" else 1.5}"/>',
            text(LEFT + 80 * i, 42, f"– {name}", f'fill="{COLOURS[name]}" font-weight="bold"')]
    return "\n".join([*svg, "</svg>"]) + "\n"
