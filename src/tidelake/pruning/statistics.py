"""Hold enough about a run of rows to skip it.

The same ``Stats`` describe a block, an extent, or anything merged from them. What is missing is unknown, and unknown
keeps the data: a bound that is None bounds nothing, a set that is None excludes nothing. ``collector`` makes statistics
from rows, ``outcomes`` asks them. It does not read files or know their layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import lt
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.kernels.bloom import Filter, Grams, hash_bytes, hash_int
from tidelake.kernels.tokens import TOKEN_SET_CAP
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from tidelake.model import vectors
else:
    np, pa, pc, vectors = map(deferred, ("numpy", "pyarrow", "pyarrow.compute", "tidelake.model.vectors"))

DISTINCT_SET_CAP = 1_000  # exact values kept per extent and column
STRING_BOUND_CAP = 256  # bytes: one long line must not bloat every footer
PATH_SET_CAP = 4_096  # paths kept exactly; past it a filter
MERGED_FILTER_BYTES = 64 << 10  # the most that a manifest row carries for one column
NS_MIN, NS_MAX = -(2**63), 2**63 - 1  # a time outside has no bound

Number = TypeVar("Number", bound=float)
Bound: TypeAlias = bool | int | float | str
Misfits: TypeAlias = Mapping[str, Mapping[str, int]]  # how many under "count", and how many each type would take


@dataclass(frozen=True, slots=True)
class Ball:
    """A ball that holds some vectors."""

    centroid: tuple[float, ...]
    radius: float
    count: int


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What is known of one column over a run of rows. Every default means unknown."""

    nulls: int | None = None
    low: Bound | None = None  # no value is below; a time in nanoseconds
    high: Bound | None = None  # no value is above; NaN is above every number
    tight: bool = True  # low and high occur, rather than only bound
    distinct: tuple[Bound, ...] | None = None  # every value, sorted
    values: Filter | None = None  # of every value
    tokens: tuple[str, ...] | None = None  # every token, sorted
    terms: Filter | None = None  # of every token
    grams: Grams | None = None  # of every token
    paths: tuple[str, ...] | None = None  # every path of a dynamic column, sorted
    ranges: Mapping[str, tuple[float, float]] | None = None  # bounds of the numbers at each path; no entry, no number
    initials: Mapping[str, tuple[int, int]] | None = None  # least and greatest first byte of the texts at each path
    leaves: Filter | None = None  # of every path, and of every path with its scalar
    misfits: Misfits | None = None  # of an overflow column: values that did not fit another column, by its name
    ball: Ball | None = None  # of every vector, scaled to length one
    span: Ball | None = None  # of every vector as it is


UNKNOWN = ColumnStats()


@dataclass(frozen=True, slots=True)
class Stats:
    """What is known of a run of rows, by column name. A column that is not there is unknown."""

    rows: int
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)


def merge(parts: Iterable[Stats]) -> Stats:
    """Describe the rows of all parts together; what one part does not know, the whole does not know."""
    return reduce(_merge_two, parts)


def column_to_json(known: ColumnStats) -> dict[str, Any]:
    """Return the stored shape of one column's statistics; what is unknown is left out, but for the two exact sets."""
    shape: dict[str, Any] = {
        "distinct": None if known.distinct is None else list(known.distinct),
        "tokens": None if known.tokens is None else list(known.tokens),
        "nulls": known.nulls,
        "min": _bound_to_json(known.low),
        "max": _bound_to_json(known.high),
        "loose": None if known.tight else True,
        "values": known.values and known.values.to_text(),
        "terms": known.terms and known.terms.to_text(),
        "grams": known.grams and known.grams.to_text(),
        "paths": None if known.paths is None else list(known.paths),
        "ranges": known.ranges and {p: [*map(_bound_to_json, pair)] for p, pair in known.ranges.items()},
        "initials": None if known.initials is None else {path: list(pair) for path, pair in known.initials.items()},
        "leaves": known.leaves and known.leaves.to_text(),
        "misfits": known.misfits or ({} if known.misfits is not None and known.paths is None else None),
    }
    if known.ball is not None:
        shape["vec"] = {**_ball_to_json(known.ball), "metric": "cosine"}
    if known.span is not None:
        shape["span"] = _ball_to_json(known.span)
    return {key: value for key, value in shape.items() if value is not None or key in ("distinct", "tokens")}


def column_from_json(shape: Mapping[str, Any]) -> ColumnStats:
    """Read the stored shape of one column's statistics; keys that are not known here are passed over."""
    try:
        low, high = _bound_from_json(shape.get("min")), _bound_from_json(shape.get("max"))
        if low is not None and high is not None and family(low) != family(high):
            raise TypeError(f"bounds {low!r} and {high!r}")
        return ColumnStats(
            nulls=_count_or_none(shape.get("nulls")),
            low=low,
            high=high,
            tight=not shape.get("loose"),
            distinct=_set_or_none(shape.get("distinct"), int, float, str),
            values=_filter_or_none(shape.get("values")),
            tokens=_set_or_none(shape.get("tokens"), str),
            terms=_filter_or_none(shape.get("terms")),
            grams=None if shape.get("grams") is None else Grams.from_text(shape["grams"]),
            paths=_set_or_none(shape.get("paths"), str),
            ranges=_ranges_or_none(shape),
            initials=_initials_or_none(shape.get("initials")),
            leaves=_filter_or_none(shape.get("leaves")),
            misfits=_misfits_or_none(shape.get("misfits")),
            ball=_ball_or_none(shape.get("vec")),
            span=_ball_or_none(shape.get("span")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = error.message if isinstance(error, TidelakeError) else repr(error)
        raise InvalidInputError("not stored statistics", reason=reason) from error


def family(value: Bound) -> str:
    """Name the values that a value can be compared with."""
    return "text" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


def before(a: Bound, b: Bound) -> bool:
    """Order two values of one family: NaN is above every number."""
    if isinstance(a, float) and math.isnan(a):
        return False
    if isinstance(b, float) and math.isnan(b):
        return True
    return a < b  # type: ignore[operator]


def _merge_two(a: Stats, b: Stats) -> Stats:
    if not a.rows or not b.rows:
        return a if a.rows else b
    names = a.columns.keys() & b.columns.keys()
    return Stats(
        a.rows + b.rows, {name: merge_columns(a.columns[name], b.columns[name], a.rows, b.rows) for name in names}
    )


def merge_columns(a: ColumnStats, b: ColumnStats, a_rows: int, b_rows: int) -> ColumnStats:
    """Describe one column over two runs of rows of known lengths."""
    if a.nulls == a_rows or b.nulls == b_rows:  # an all-null run adds nothing but its nulls
        kept = b if a.nulls == a_rows else a
        return replace(kept, nulls=None if a.nulls is None or b.nulls is None else a.nulls + b.nulls)
    low = None if a.low is None or b.low is None else (b.low if before(b.low, a.low) else a.low)
    high = None if a.high is None or b.high is None else (a.high if before(b.high, a.high) else b.high)
    distinct = _united(a.distinct, b.distinct, DISTINCT_SET_CAP)
    tokens = _united(a.tokens, b.tokens, TOKEN_SET_CAP)
    paths = _united(a.paths, b.paths, PATH_SET_CAP)
    return ColumnStats(
        nulls=None if a.nulls is None or b.nulls is None else a.nulls + b.nulls,
        low=low,
        high=high,
        tight=a.tight and b.tight,
        distinct=distinct,
        values=_united_filters(_values_of(a), _values_of(b)) if distinct is None and _tells_values(a, b) else None,
        tokens=tokens,
        terms=None if tokens is not None else _united_filters(_terms_of(a), _terms_of(b)),
        grams=None
        if tokens is not None or (ours := _grams_of(a)) is None or (theirs := _grams_of(b)) is None
        else ours | theirs,
        paths=paths,
        ranges=_united_ranges(a.ranges, b.ranges) if paths is not None else None,
        initials=_united_ranges(a.initials, b.initials) if paths is not None else None,
        leaves=_united_filters(a.leaves, b.leaves),
        misfits=_united_misfits(a.misfits, b.misfits),
        ball=_united_balls(a.ball, b.ball),
        span=_united_balls(a.span, b.span),
    )


def _united(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None, cap: int) -> tuple[Any, ...] | None:
    if a is None or b is None:
        return None
    both = a if a == b else tuple(sorted({*a, *b}))
    return both if len(both) <= cap else None


def _tells_values(*each: ColumnStats) -> bool:
    return all(known.distinct is not None or known.values is not None for known in each)


def _values_of(known: ColumnStats) -> Filter | None:
    if known.distinct is None:
        return known.values
    return _filter_of(hash_bytes(v.encode()) if isinstance(v, str) else hash_int(int(v)) for v in known.distinct)


def _terms_of(known: ColumnStats) -> Filter | None:
    return known.terms if known.tokens is None else _filter_of(hash_bytes(token.encode()) for token in known.tokens)


def _grams_of(known: ColumnStats) -> Grams | None:
    return known.grams if known.tokens is None else Grams.of_tokens(known.tokens)


def _filter_of(hashes: Iterable[int]) -> Filter:
    return Filter.of(np.array(list(hashes), dtype=np.uint64), max_bytes=MERGED_FILTER_BYTES)


def _united_filters(a: Filter | None, b: Filter | None) -> Filter | None:
    return None if a is None or b is None else a | b


def _united_misfits(a: Misfits | None, b: Misfits | None) -> Misfits | None:
    if a is None or b is None:
        return None
    return {
        name: {
            key: a.get(name, {}).get(key, 0) + b.get(name, {}).get(key, 0)
            for key in (*a.get(name, {}), *b.get(name, {}))
        }
        for name in (*a, *b)
    }


def _misfits_or_none(shape: Any) -> Misfits | None:
    if shape is None:
        return None
    return {str(name): {str(key): int(count) for key, count in counts.items()} for name, counts in shape.items()}


def _united_balls(a: Ball | None, b: Ball | None) -> Ball | None:
    """Return a ball around two, a hair larger than needed."""
    if a is None or b is None or len(a.centroid) != len(b.centroid):
        return None
    first, second = np.array(a.centroid), np.array(b.centroid)
    count = a.count + b.count
    middle = first + (second - first) * (b.count / count if count else 0.5)
    radius = max(
        float(np.linalg.norm(middle - first)) + a.radius,
        float(np.linalg.norm(middle - second)) + b.radius,
    )
    radius *= 1 + 1e-12
    return Ball(tuple(middle.tolist()), radius, count) if math.isfinite(radius) else None


def _united_ranges(
    a: Mapping[str, tuple[Number, Number]] | None, b: Mapping[str, tuple[Number, Number]] | None
) -> Mapping[str, tuple[Number, Number]] | None:
    if a is None or b is None:
        return None
    both = dict(a)
    for path, (low, high) in b.items():
        held_low, held_high = both.get(path, (low, high))
        both[path] = (low if before(low, held_low) else held_low, held_high if before(high, held_high) else high)
    return both


def _bound_to_json(bound: Bound | None) -> Any:
    """Keep numbers as JSON numbers; what JSON has no number for goes as text in an object."""
    if isinstance(bound, float) and not math.isfinite(bound):
        return {"real": repr(bound)}
    return bound


def _bound_from_json(shape: Any) -> Bound | None:
    if isinstance(shape, dict):
        return float(shape["real"])
    if shape is None or isinstance(shape, bool | int | float | str):
        return shape
    raise TypeError(f"not a bound: {shape!r}")


def _ball_to_json(ball: Ball) -> dict[str, Any]:
    return {"centroid": list(ball.centroid), "radius": ball.radius, "count": ball.count}


def _ball_or_none(shape: Any) -> Ball | None:
    if shape is None:
        return None
    return Ball(tuple(map(float, shape["centroid"])), float(shape["radius"]), int(shape["count"]))


def _count_or_none(shape: Any) -> int | None:
    if shape is None or (type(shape) is int and shape >= 0):
        return shape
    raise TypeError(f"not a count: {shape!r}")


def _set_or_none(shape: Any, *kinds: type) -> tuple[Any, ...] | None:
    """Read an exact set; one out of order would be searched wrongly."""
    if shape is None:
        return None
    if type(shape) is not list or not set(map(type, shape)) <= set(kinds) or not all(map(lt, shape, shape[1:])):
        raise TypeError(f"not a sorted set of {' or '.join(kind.__name__ for kind in kinds)}")
    return tuple(shape)


def _ranges_or_none(shape: Mapping[str, Any]) -> Mapping[str, tuple[float, float]] | None:
    """A column with paths and no range of numbers has no numbers."""
    if shape.get("ranges") is None:
        return {} if shape.get("paths") is not None else None
    return {path: (_number_from_json(low), _number_from_json(high)) for path, (low, high) in shape["ranges"].items()}


def _initials_or_none(shape: Any) -> Mapping[str, tuple[int, int]] | None:
    if shape is None:
        return None
    found = {path: (low, high) for path, (low, high) in shape.items()}
    if not all(type(byte) is int and 0 <= byte <= 255 for pair in found.values() for byte in pair):
        raise TypeError(f"not first bytes: {shape!r}")
    return found


def _number_from_json(shape: Any) -> float:
    number = _bound_from_json(shape)
    if number is None or isinstance(number, bool | str):
        raise TypeError(f"not a number: {shape!r}")
    return number


def _filter_or_none(shape: Any) -> Filter | None:
    return None if shape is None else Filter.from_text(shape)
