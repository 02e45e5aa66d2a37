"""Make a chart of rows, as a ``render`` asks or as the columns suggest, for notebooks.

A time chart hatches the windows that its table does not hold, where the table knows. It does not draw: see
``model.svg``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.model.svg import Gap, Line, draw_bars, draw_lines

KINDS = {
    "timechart": "line", "linechart": "line", "anomalychart": "line", "areachart": "area", "stackedareachart": "area",
    "scatterchart": "points", "columnchart": "columns", "barchart": "bars", "piechart": "shares", "card": "bars",
}  # fmt: skip
MAX_ROWS = 200_000
MAX_BARS = 60

FindGaps = Callable[[float, float], Sequence[Gap]]  # between two times, in seconds


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart: notebooks show it, and ``save`` writes it as an SVG file."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Plot({len(self.svg):,} characters of SVG)"


def plot(rows: pa.Table, kind: str | None, find_gaps: FindGaps) -> Plot:
    """Return the chart of some rows."""
    if kind is not None and kind not in KINDS:
        raise InvalidInputError("no such chart", kind_given=kind, known=", ".join(KINDS), kind="bad_chart")
    if rows.num_rows > MAX_ROWS:
        raise InvalidInputError("too many rows to draw: summarize them first", rows=rows.num_rows, most=MAX_ROWS)
    numbers = [field.name for field in rows.schema if _is_number(field.type)]
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)]
    others = [field.name for field in rows.schema if field.name not in (*numbers, *times)]
    if not numbers or not rows.num_rows:
        raise InvalidInputError("a chart needs rows with a column of numbers", columns=", ".join(rows.schema.names))
    chosen = KINDS[kind or ("timechart" if times else "barchart")]
    if chosen in ("bars", "shares") or (not times and len(numbers) < 2):
        return Plot(_bars(rows, others or times or numbers[:1], numbers[-1], with_shares=chosen == "shares"))
    axis = times[0] if times else numbers[0]
    return Plot(_lines(rows, axis, others, [name for name in numbers if name != axis], chosen, find_gaps))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _bars(rows: pa.Table, labels: Sequence[str], value: str, *, with_shares: bool) -> str:
    shown = rows.slice(0, MAX_BARS)
    names = [" · ".join(map(str, row)) for row in zip(*(shown[name].to_pylist() for name in labels), strict=True)]
    return draw_bars(names, [_number(each) for each in shown[value].to_pylist()], with_shares=with_shares)


def _lines(
    rows: pa.Table, axis: str, labels: Sequence[str], values: Sequence[str], kind: str, find_gaps: FindGaps
) -> str:
    along = [_number(each) for each in rows[axis].to_pylist()]
    named = list(zip(*(rows[name].to_pylist() for name in labels), strict=True)) if labels else [()] * rows.num_rows
    held: dict[str, dict[float, float | None]] = {}
    for value in values:
        for at, label, each in zip(along, named, rows[value].to_pylist(), strict=True):
            if at is None:
                continue
            parts = [*map(str, label), *([value] if len(values) > 1 or not label else [])]
            held.setdefault(" · ".join(parts), {})[at] = _number(each)
    x = sorted({each for each in along if each is not None})
    is_time = not _is_number(rows.schema.field(axis).type)
    gaps = find_gaps(x[0], x[-1]) if is_time and len(x) > 1 else ()
    whole = _broken(x, gaps) if is_time else x
    ranked = sorted(held.items(), key=lambda item: -sum(abs(each or 0.0) for each in item[1].values()))
    lines = [Line(name, _filled(whole, known, gaps)) for name, known in ranked]
    return draw_lines(whole, lines, kind=kind, is_time=is_time, gaps=gaps)


def _broken(x: Sequence[float], gaps: Sequence[Gap]) -> list[float]:
    """Return an axis with a place inside each window that is not held, where lines stop."""
    return sorted({*x, *((gap.start + gap.end) / 2 for gap in gaps if gap.is_whole and x[0] < gap.start < x[-1])})


def _filled(x: Sequence[float], known: dict[float, float | None], gaps: Sequence[Gap]) -> list[float | None]:
    """Return values along an axis: what a series lacks is passed over, but for windows that are not held."""
    stops = {(gap.start + gap.end) / 2 for gap in gaps if gap.is_whole}
    return [known.get(each, None if each in stops else math.nan) for each in x]


def gaps_between(missing: pa.Table, entity: Sequence[str], count: int) -> list[Gap]:
    """Return the gaps of some entities as windows: whole where none of ``count`` is held, in part where some are."""
    found = [
        (_number(row["start"]) or 0.0, _number(row["end"]) or 0.0, " · ".join(str(row[name]) for name in entity))
        for row in missing.to_pylist()
    ]
    edges = sorted({edge for start, end, _ in found for edge in (start, end)})
    gaps = []
    for start, end in itertools.pairwise(edges):
        who = [name for low, high, name in found if low <= start and high >= end]
        if who:
            gaps.append(Gap(start, end, len(who) >= max(1, count), ", ".join(who)))
    return gaps


def _number(value: Any) -> float | None:
    match value:
        case None:
            return None
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
        case int() | float() | Decimal():
            number = float(value)
            return number if math.isfinite(number) else None
        case _:
            return None
