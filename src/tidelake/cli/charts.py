"""Draw rows in a terminal: bars for values by name, a line of columns for values over time.

Drawn with block letters, eight steps each, so that a chart needs nothing but text. It does not choose what to draw: a
query's ``render`` does, or the shell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from rich.text import Text

MAX_BARS = 40
MAX_GROUPED = 10**15  # a whole real from here on is written with its power of ten
HEIGHT = 8  # lines of a time chart
MAX_WIDE = 12  # letters of one of its columns, where there are few
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")

Number: TypeAlias = int | float | Decimal

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
    if not others and len(numeric) > 1:  # numbers by a number: the first is what they are by
        others, numeric = numeric[:1], numeric[1:]
    drawn = Text("\n").join(_bars(columns, rows, others, value, width, kind == "piechart") for value in numeric)
    if len(rows) > MAX_BARS:
        drawn.append(f"\n… and {len(rows) - MAX_BARS:,} more", style="dim")
    return drawn


def _bars(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    labels: Sequence[int],
    value: int,
    width: int,
    with_shares: bool,
) -> Text:
    """Draw the bars of one value column, each with its number, and its share of all if that is asked for."""
    shown = rows[:MAX_BARS]
    names = [" ".join(_name(row[at]) for at in labels) or f"{n + 1}" for n, row in enumerate(shown)]
    numbers = [None if row[value] is None else float(row[value]) for row in shown]
    whole = sum(float(row[value] or 0) for row in rows) if with_shares else 0.0
    told = [_told(row[value], whole) for row in shown]
    pad, most_told = min(max(map(len, names)), 40), max(map(len, told))
    room = max(width - pad - most_told - 4, 8)
    top = max((abs(n) for n in numbers if n is not None and math.isfinite(n)), default=1.0) or 1.0
    drawn = Text()
    drawn.append(f"{columns[value]}\n", style="bold")
    for name, number, text in zip(names, numbers, told, strict=True):
        drawn.append(f"{name if len(name) <= pad else name[: pad - 1] + '…':>{pad}} ")
        drawn.append(_bar(abs(number or 0.0) / top, room), style="red" if (number or 0.0) < 0 else "cyan")
        drawn.append(f" {text}\n")
    drawn.rstrip()
    return drawn


def _told(number: Number | None, whole: float) -> str:
    if number is None:
        return "–"
    share = f" ({float(number) / whole:.1%})" if whole > 0 and math.isfinite(whole) and 0 <= number <= whole else ""
    return _number(number) + share


def _time_chart(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    time: int,
    names: Sequence[int],
    values: Sequence[int],
    width: int,
) -> Text:
    """Draw one chart for each series: a value column, or a name in the columns that are neither time nor number.

    All have one scale, from zero or the least value below it to the greatest.
    """
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
    every = [value for points in series.values() for _, value in points]
    top, base = max(0.0, *every), min(0.0, *every)
    gutter = max(len(_number(top)), len(_number(base)), 6)
    distinct = len(set(moments))
    wide = min(max((max(width - gutter - 2, 10)) // distinct, 1), MAX_WIDE)
    room = min(max(width - gutter - 2, 10), distinct * wide)
    drawn = Text()
    height = HEIGHT if len(series) == 1 else max(2, HEIGHT // 2)
    for at, (name, points) in enumerate(list(series.items())[: len(COLOURS)]):
        drawn.append(f"{name}\n", style="bold")
        for line, text in enumerate(_columns(points, first, last, (base, top), room, wide, height)):
            edge = top if line == 0 else base if line == height - 1 else None
            drawn.append(f"{'' if edge is None else _number(edge):>{gutter}} ")
            drawn.append(text + "\n", style=COLOURS[at])
    left, right = first.isoformat(" ", "seconds")[:19], last.isoformat(" ", "seconds")[:19]
    after = f"{right:>{max(room - len(left), len(right) + 1)}}" if last > first else ""
    drawn.append(f"{'':>{gutter}} {left}{after}", style="dim")
    if len(series) > len(COLOURS):
        drawn.append(f"\n… and {len(series) - len(COLOURS):,} more series", style="dim")
    return drawn


def _columns(
    points: Sequence[tuple[datetime, float]],
    first: datetime,
    last: datetime,
    scale: tuple[float, float],
    room: int,
    wide: int,
    height: int,
) -> list[str]:
    """Return the lines of one chart, top line first: the greatest value of each column of time, points so wide."""
    span = (last - first).total_seconds()
    base, top = scale
    tallest = [base] * room
    for moment, value in points:
        place = (moment - first).total_seconds() / span * (room - wide) if span else 0.0
        for at in range(round(place), round(place) + wide):
            tallest[at] = max(tallest[at], value)
    eighths = [
        round((value / 2 - base / 2) / (top / 2 - base / 2) * height * 8) if top > base else 0 for value in tallest
    ]
    return [
        "".join(_STEPS[min(max(count - 8 * line, 0), 8)] for count in eighths) for line in range(height - 1, -1, -1)
    ]


def _bar(part: float, room: int) -> str:
    eighths = round(min(part, 1.0) * room * 8) if math.isfinite(part) else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _is_numeric(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )


def _name(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")[:19]
    return "–" if value is None else str(value)


def _number(value: Number) -> str:
    """Return a number with all its digits: a whole one in groups of three, another as short as it reads back."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isfinite(value) and value == int(value) and -MAX_GROUPED < value < MAX_GROUPED:
        return f"{int(value):,}"
    return str(value)
