"""Draw rows in a terminal: bars for values by name, a line of columns for values over time.

Drawn with block letters, eight steps each, so that a chart needs nothing but text. It does not choose what to draw: a
query's ``render`` does, or the shell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

MOST_BARS = 40
HEIGHT = 8  # lines of a time chart
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STEPS = " ▁▂▃▄▅▆▇█"


def chart(kind: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int = 100) -> Text:
    """Draw rows as the kind asks; what is not numbers by name or by time is told in words."""
    numeric = [at for at in range(len(columns)) if _is_numeric([row[at] for row in rows])]
    others = [at for at in range(len(columns)) if at not in numeric]
    if not rows or not numeric:
        return Text("nothing to draw: a chart needs rows with a number")
    times = [at for at in others if all(isinstance(row[at], datetime) for row in rows)]
    if kind in ("timechart", "linechart", "areachart", "scatterchart") and times:
        return _time_chart(columns, rows, times[0], [at for at in others if at not in times], numeric, width)
    return _bars(columns, rows, others, numeric[0], width)


def _bars(columns: Sequence[str], rows: Sequence[Sequence[Any]], labels: Sequence[int], value: int, width: int) -> Text:
    shown = rows[:MOST_BARS]
    names = [" ".join(_name(row[at]) for at in labels) or f"{n + 1}" for n, row in enumerate(shown)]
    numbers = [float(row[value] or 0) for row in shown]
    told = [_number(number) for number in numbers]
    pad, most_told = min(max(map(len, names)), 40), max(map(len, told))
    room = max(width - pad - most_told - 4, 8)
    top = max((abs(n) for n in numbers if math.isfinite(n)), default=1.0) or 1.0
    drawn = Text(f"{columns[value]}\n", style="bold")
    for name, number, text in zip(names, numbers, told, strict=True):
        drawn.append(f"{name[:pad]:>{pad}} ")
        drawn.append(_bar(abs(number) / top, room), style="red" if number < 0 else "cyan")
        drawn.append(f" {text}\n")
    if len(rows) > len(shown):
        drawn.append(f"… and {len(rows) - len(shown):,} more\n", style="dim")
    drawn.rstrip()
    return drawn


def _time_chart(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    time: int,
    names: Sequence[int],
    values: Sequence[int],
    width: int,
) -> Text:
    """Draw one chart for each series: a value column, or a name in the columns that are neither time nor number."""
    series: dict[str, list[tuple[datetime, float]]] = {}
    for row in rows:
        label = " ".join(_name(row[at]) for at in names)
        for at in values:
            if row[at] is not None and math.isfinite(row[at]):
                name = " ".join(part for part in (label, columns[at] if len(values) > 1 or not label else "") if part)
                series.setdefault(name, []).append((row[time], float(row[at])))
    moments = [moment for points in series.values() for moment, _ in points]
    if not moments:
        return Text("nothing to draw: every value is null")
    first, last = min(moments), max(moments)
    top = max(value for points in series.values() for _, value in points)
    gutter = max(len(_number(top)), 6)
    distinct = len(set(moments))
    wide = max((max(width - gutter - 2, 10)) // distinct, 1)
    room = min(max(width - gutter - 2, 10), distinct * wide)
    drawn = Text()
    height = HEIGHT if len(series) == 1 else max(2, HEIGHT // 2)
    for at, (name, points) in enumerate(list(series.items())[: len(COLOURS)]):
        drawn.append(f"{name}\n", style="bold")
        for line, text in enumerate(_columns(points, first, last, top, room, wide, height)):
            drawn.append(f"{_number(top) if line == 0 else '0' if line == height - 1 else '':>{gutter}} ")
            drawn.append(text + "\n", style=COLOURS[at])
    left, right = first.isoformat(" ", "seconds")[:19], last.isoformat(" ", "seconds")[:19]
    drawn.append(f"{'':>{gutter}} {left}{right:>{max(room - len(left), len(right) + 1)}}", style="dim")
    if len(series) > len(COLOURS):
        drawn.append(f"\n… and {len(series) - len(COLOURS):,} more series", style="dim")
    return drawn


def _columns(
    points: Sequence[tuple[datetime, float]],
    first: datetime,
    last: datetime,
    top: float,
    room: int,
    wide: int,
    height: int,
) -> list[str]:
    """Give the lines of one chart, top line first: the greatest value of each column of time, points so wide."""
    span = (last - first).total_seconds()
    tallest = [0.0] * room
    for moment, value in points:
        place = (moment - first).total_seconds() / span * (room - wide) if span else 0.0
        for at in range(round(place), round(place) + wide):
            tallest[at] = max(tallest[at], value)
    eighths = [round(max(value, 0.0) / top * height * 8) if top > 0 else 0 for value in tallest]
    return [
        "".join(_STEPS[min(max(count - 8 * line, 0), 8)] for count in eighths) for line in range(height - 1, -1, -1)
    ]


def _bar(part: float, room: int) -> str:
    eighths = round(min(part, 1.0) * room * 8) if math.isfinite(part) else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _is_numeric(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)


def _name(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")[:19]
    return "–" if value is None else str(value)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.4g}"
