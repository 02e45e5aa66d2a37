"""Draw charts as SVG, for notebooks: lines, points, bars, a funnel, a map of what is held. Pure: numbers in, text out.

Whatever is told is escaped, colours read on light and on dark, and nothing is loaded from anywhere. Windows that are
not held are hatched, as on the page. It does not choose what to draw.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

COLOURS = ("#2a7f9e", "#e08b2c", "#6b5fb5", "#3f9b6c", "#c8486a", "#8a6d3b", "#4a90d9", "#a3b32a", "#b565a7", "#607d8b")
BAD, GAP = "#c0362c", "#97a7b0"
WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, FOOT = 56, 14, 12, 28
MAX_SERIES = 20
TEXT_SHOWN = 60
_FONT = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
_HATCH = (
    '<defs><pattern id="gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<line x1="0" y1="0" x2="0" y2="6" stroke="{GAP}" stroke-width="2"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class Line:
    """Values along an axis, under a name: at None a line stops, over NaN it goes on."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Gap:
    """A window that is not held: by nobody, or by some."""

    start: float
    end: float
    is_whole: bool = True
    who: str = ""


def draw_lines(
    x: Sequence[float], lines: Sequence[Line], *, kind: str = "line", is_time: bool = True, gaps: Sequence[Gap] = ()
) -> str:
    """Draw lines, an area, columns or points along an axis; times are seconds since 1970."""
    shown = lines[:MAX_SERIES]
    known = [value for line in shown for value in line.values if value is not None and math.isfinite(value)]
    if not x or not known:
        return _svg(40, [_text(LEFT, 24, "nothing to draw")])
    ticks = _ticks(min(0.0, *known), max(known))
    low, high = ticks[0], max(ticks[-1], max(known))
    first, last = x[0], x[-1] if x[-1] > x[0] else x[0] + 1

    def at_x(value: float) -> float:
        return LEFT + (value - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def at_y(value: float) -> float:
        return HEIGHT - FOOT - (value - low) / ((high - low) or 1) * (HEIGHT - FOOT - TOP)

    parts = [_HATCH]
    for tick in ticks:
        y = at_y(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GAP}" opacity="0.25"/>'
        )
        parts.append(_text(LEFT - 6, y + 4, _number(tick), "end"))
    for gap in gaps:
        left, right = at_x(max(gap.start, first)), at_x(min(gap.end, last))
        tall = HEIGHT - FOOT - TOP if gap.is_whole else 8
        told = "not held" if gap.is_whole else f"held in part: without {gap.who}"
        parts.append(
            f'<rect x="{left:.1f}" y="{HEIGHT - FOOT - tall}" width="{max(2.0, right - left):.1f}" height="{tall}" '
            f'fill="url(#gap)" opacity="0.7"><title>{_said(told)}</title></rect>'
        )
    for at, line in enumerate(shown):
        parts += _drawn(kind, [at_x(each) for each in x], line, at_y, at_y(max(low, 0.0)), COLOURS[at % len(COLOURS)])
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = first + share * (last - first)
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(
            _text(at_x(value), HEIGHT - 10, _clock(value, last - first) if is_time else _number(value), anchor)
        )
    height, legend = _legend([line.name for line in shown], len(lines) - len(shown), has_gaps=bool(gaps))
    return _svg(HEIGHT + height, [*parts, *legend])


def draw_bars(names: Sequence[str], values: Sequence[float | None], *, with_shares: bool = False) -> str:
    """Draw a bar for each name, and its number; of a whole, its share too."""
    known = [value or 0.0 for value in values]
    most, whole = max(map(abs, known), default=0.0) or 1.0, sum(known) or 1.0
    parts = []
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        y = 6 + at * 22
        wide = abs(value or 0.0) / most * (WIDTH - 340)
        told = "null" if value is None else _number(value) + (f" · {value / whole:.1%}" if with_shares else "")
        parts.append(_text(190, y + 14, name, "end"))
        parts.append(f'<rect x="200" y="{y}" width="{max(1.0, wide):.1f}" height="18" rx="3" fill="{COLOURS[0]}"/>')
        parts.append(_text(206 + wide, y + 14, told))
    return _svg(12 + 22 * len(names), parts)


def draw_funnel(stages: Sequence[tuple[str, float, str]]) -> str:
    """Draw what is left after each stage: its name, how much, and what is said of it."""
    most = max((size for _, size, _ in stages), default=0.0) or 1.0
    parts = []
    for at, (name, size, told) in enumerate(stages):
        y = 4 + at * 22
        parts.append(_text(130, y + 14, name, "end"))
        parts.append(
            f'<rect x="140" y="{y}" width="{max(1.5, size / most * 260):.1f}" height="16" rx="3" fill="{COLOURS[0]}"/>'
        )
        parts.append(_text(410, y + 14, told))
    return _svg(8 + 22 * len(stages), parts)


def draw_held(names: Sequence[str], strips: Sequence[Sequence[float]], ends: tuple[str, str]) -> str:
    """Draw how full each stretch of time is, for each name; less than 0 is where nothing is expected."""
    parts = []
    for row, (name, strip) in enumerate(zip(names, strips, strict=True)):
        y = 4 + row * 15
        parts.append(_text(150, y + 11, name, "end"))
        wide = (WIDTH - 170) / max(1, len(strip))
        left = 160.0
        for share, same in itertools.groupby(strip):
            size = wide * len(list(same))
            if share >= 0:
                paint, strength = (COLOURS[0], 0.35 + 0.65 * share) if share > 0 else (BAD, 1.0)
                parts.append(
                    f'<rect x="{left:.1f}" y="{y}" width="{size:.1f}" height="12" fill="{paint}" '
                    f'opacity="{strength:.2f}"><title>{_said(name)}: {share:.0%} held</title></rect>'
                )
            left += size
    foot = 18 + 15 * len(names)
    parts += [_text(160, foot, ends[0]), _text(WIDTH - 10, foot, ends[1], "end")]
    return _svg(foot + 8, parts)


def _drawn(
    kind: str, xs: Sequence[float], line: Line, at_y: Callable[[float], float], ground: float, colour: str
) -> list[str]:
    title = f"<title>{_said(line.name)}</title>"
    if kind in ("points", "columns"):
        wide = max(1.0, (WIDTH - LEFT - RIGHT) / max(1, len(xs)) * 0.8)
        found = []
        for x, value in zip(xs, line.values, strict=True):
            if value is None or not math.isfinite(value):
                continue
            y = at_y(value)
            if kind == "points":
                found.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}">{title}</circle>')
            else:
                top, tall = min(y, ground), abs(ground - y)
                found.append(
                    f'<rect x="{x - wide / 2:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
                    f'fill="{colour}" opacity="0.8">{title}</rect>'
                )
        return found
    parts = []
    for run in _runs(xs, line.values):
        points = " ".join(f"{x:.1f},{at_y(value):.1f}" for x, value in run)
        if kind == "area":
            closed = f"{run[0][0]:.1f},{ground:.1f} {points} {run[-1][0]:.1f},{ground:.1f}"
            parts.append(f'<polygon points="{closed}" fill="{colour}" opacity="0.18"/>')
        if len(run) == 1:
            parts.append(
                f'<circle cx="{run[0][0]:.1f}" cy="{at_y(run[0][1]):.1f}" r="2" fill="{colour}">{title}</circle>'
            )
        else:
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5">{title}</polyline>'
            )
    return parts


def _runs(xs: Sequence[float], values: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """Yield what a line goes through, anew after each place without a value."""
    run: list[tuple[float, float]] = []
    for x, value in zip(xs, values, strict=True):
        if value is None and run:
            yield run
            run = []
        elif value is not None and math.isfinite(value):
            run.append((x, value))
    if run:
        yield run


def _legend(names: Sequence[str], left: int, *, has_gaps: bool) -> tuple[int, list[str]]:
    entries = [(name, f'fill="{COLOURS[at % len(COLOURS)]}"') for at, name in enumerate(names)]
    entries += [("not held", 'fill="url(#gap)"')] if has_gaps else []
    entries += [(f"{left:,} more not drawn", 'fill="none"')] if left else []
    parts, x, y = [], float(LEFT), HEIGHT + 4
    for name, paint in entries:
        wide = 26 + 6.2 * min(len(name), 40)
        if x + wide > WIDTH and x > LEFT:
            x, y = LEFT, y + 18
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="10" height="10" rx="2" {paint}/>')
        parts.append(_text(x + 14, y + 9, name[:40]))
        x += wide
    return y + 20 - HEIGHT, parts


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers from one to another."""
    size = (high - low) or abs(high) or 1.0
    rough = size / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (1, 2, 5, 10) if step * power >= rough) * power
    first = math.floor(low / step)
    return [round((first + n) * step, 12) for n in range(math.ceil(high / step) - first + 1)]


def _clock(seconds: float, span: float) -> str:
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _number(seconds)
    return at.strftime("%Y-%m-%d" if span > 5 * 86_400 else "%m-%d %H:%M" if span > 600 else "%H:%M:%S")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def _said(text: str) -> str:
    shown = text if len(text) <= TEXT_SHOWN else text[: TEXT_SHOWN - 1] + "…"
    return escape("".join(c if c.isprintable() else "�" for c in shown))


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT}>{_said(text)}</text>'


def _svg(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'style="max-width:100%" role="img">{"".join(parts)}</svg>'
    )
