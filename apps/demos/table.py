# SPDX-License-Identifier: Apache-2.0
"""The live table of the demo, which shows where the bytes go. A terminal shows it in place; elsewhere it is printed
once per event."""
import sys

EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR = 16        # length of the longest bar in characters


def bar(share):
    eighths = round(max(0, min(1, share)) * BAR * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).ljust(BAR)[:BAR]


class Table:
    """Shows rates since the previous update. A path's bar is full at `full` Gb/s."""

    def __init__(self, full):
        self.full = full
        self.live = sys.stdout.isatty()
        self.drawn = 0          # number of lines that the next update replaces
        self.before = None
        self.text = []

    def event(self, when, what):
        if not self.live:
            print("\n".join(self.text))
        self.drawn = 0
        print(f"{when:6.1f} s  {what}", flush=True)

    def update(self, when, rails, paths, priorities):
        """Draws the table from the bytes since the start."""
        now = (when, rails, paths, priorities)
        if self.before is not None:
            self.text = self.lines(now)
            if self.live:
                sys.stdout.write(f"\x1b[{self.drawn}F\x1b[J" if self.drawn else "")
                self.drawn = len(self.text)
                print("\n".join(self.text), flush=True)
        self.before = now

    def lines(self, now):
        begun, rails, paths, priorities = self.before
        seconds = now[0] - begun
        gbps = lambda after, before: (after - before) * 8e-9 / seconds
        rail = {name: gbps(now[1][name], rails[name]) for name in rails}
        lines = [f"{now[0]:6.1f} s  {sum(rail.values()):5.2f} Gb/s to and fro   " +
                 "   ".join(f"{name.upper()} {gbps(now[3][name], priorities[name]):5.2f}" for name in ("high", "low"))]
        for path in range(len(paths["rove0"])):
            cells = []
            for name in paths:
                rate = gbps(now[2][name][path], paths[name][path])
                cells.append(f"{bar(rate / self.full)} {rate:5.3f}")
            lines.append(f"  path {path}  " + "   ".join(cells))
        return lines + ["  rail    " + "   ".join(f"{name:<{BAR}} {rate:5.2f}" for name, rate in rail.items())]
