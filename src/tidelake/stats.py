"""Know enough about a run of rows to skip it: merge what is known, and judge a predicate against it.

The same ``Stats`` describe a block, an extent, or anything merged from them. What is missing is unknown, and unknown
keeps the data: a bound that is None bounds nothing, a set that is None excludes nothing. Judging a predicate yields the
set of answers that some row may give, of true, false and null: a run of rows may match when true is among them, and is
proven when true stands alone. So ``Not`` needs no rule book of its own: it swaps true and false.

``collect`` makes statistics from rows. It does not read files or know their layout.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, reduce
from operator import lt
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.filters import Filter, Grams, hash_bytes, hash_int
from tidelake.later import later
from tidelake.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathTest,
    Equals,
    InSet,
    IsNull,
    Leaf,
    Not,
    Or,
    PathTest,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
    TimeRange,
    Value,
    VectorTest,
    text_holds,
    time_ns,
)
from tidelake.regex import Needs, needs_of
from tidelake.tokens import TOKEN_SET_CAP, Run, runs_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from tidelake import vectors
else:
    np, pa, pc, vectors = map(later, ("numpy", "pyarrow", "pyarrow.compute", "tidelake.vectors"))

DISTINCT_SET_CAP = 1_000  # exact values kept per extent and column
LEAF_TEXT_CAP = 256  # bytes of a text leaf that its hash reads
STRING_BOUND_CAP = 256  # bytes: one long line must not bloat every footer
PATH_SET_CAP = 4_096  # paths kept exactly; past it a filter
MERGED_FILTER_BYTES = 64 << 10  # the most that a manifest row carries for one column
NS_MIN, NS_MAX = -(2**63), 2**63 - 1  # a time outside has no bound
EXACT_IN_DOUBLE = 2**53  # from here on, doubles skip integers
EXACT_TEXT_CAP = 64  # distinct texts worth searching one by one; beyond it the tokens judge

Bound: TypeAlias = bool | int | float | str

TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL


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
    leaves: Filter | None = None  # of every path, and of every path with its scalar
    ball: Ball | None = None  # of every vector, scaled to length one
    span: Ball | None = None  # of every vector as it is


UNKNOWN = ColumnStats()


@dataclass(frozen=True, slots=True)
class Stats:
    """What is known of a run of rows, by column name. A column that is not there is unknown."""

    rows: int
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)


def may_match(predicate: Predicate, stats: Stats) -> bool:
    """Say whether some row may satisfy the predicate. False is a proof, true is not."""
    return bool(outcomes(predicate, stats) & TRUE)


def outcomes(predicate: Predicate, stats: Stats) -> int:
    """Give the answers that rows may give to a predicate, as a set of TRUE, FALSE and NULL."""
    if stats.rows == 0:
        return 0
    match predicate:
        case And(parts):
            return reduce(_both, (outcomes(part, stats) for part in parts))
        case Or(parts):
            return _negated(reduce(_both, (_negated(outcomes(part, stats)) for part in parts)))
        case Not(part):
            return _negated(outcomes(part, stats))
        case leaf:
            return _leaf_outcomes(leaf, stats.columns.get(leaf.column, UNKNOWN), stats.rows)


def merge(parts: Iterable[Stats]) -> Stats:
    """Describe the rows of all parts together; what one part does not know, the whole does not know."""
    return reduce(_merge_two, parts)


def column_to_json(known: ColumnStats) -> dict[str, Any]:
    """Give the stored shape of one column's statistics; what is unknown is left out, but for the two exact sets."""
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
        "leaves": known.leaves and known.leaves.to_text(),
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
        if low is not None and high is not None and _family(low) != _family(high):
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
            leaves=_filter_or_none(shape.get("leaves")),
            ball=_ball_or_none(shape.get("vec")),
            span=_ball_or_none(shape.get("span")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = error.message if isinstance(error, TidelakeError) else repr(error)
        raise InvalidInputError("not stored statistics", reason=reason) from error


def _leaf_outcomes(leaf: Leaf, known: ColumnStats, rows: int) -> int:
    if isinstance(leaf, IsNull):
        if known.nulls is None:
            return TRUE | FALSE
        return (TRUE if known.nulls else 0) | (FALSE if known.nulls < rows else 0)
    if isinstance(leaf, DynamicPathTest) and isinstance(leaf.test, IsNull):
        return TRUE | (FALSE if known.nulls != rows and _may_have_path(known, leaf.path) else 0)
    if known.nulls == rows:
        return NULL | (FALSE if isinstance(leaf, DynamicPathExists) else 0)
    may_be_null = 0 if known.nulls == 0 else NULL
    match leaf:
        case TimeRange(_, start, end):
            found = _time_outcomes(start, end, known)
        case Equals(_, value):
            found = _equals_outcomes(value, known)
        case InSet(_, values):
            found = reduce(_either, (_equals_outcomes(value, known) for value in values), FALSE)
        case Range():
            found = _range_outcomes(leaf, known)
        case StringHas() | StringContains() | StartsWith() | StringMatches():
            found = _text_outcomes(leaf, known)
        case DynamicPathExists(_, path):
            found = FALSE | (TRUE if _may_have_path(known, path) else 0)
        case DynamicPathEquals(_, path, value):
            found = FALSE | NULL | (TRUE if _may_have_leaf(known, path, value) else 0)
        case DynamicPathTest(_, path, test):
            found = FALSE | NULL | (TRUE if _may_pass_at(known, path, test) else 0)
        case VectorTest():
            found = _vector_outcomes(leaf, known, rows)
    return found | may_be_null


def _equals_outcomes(value: Value, known: ColumnStats) -> int:
    wanted = _comparable(value, known)
    if wanted is None:
        return TRUE | FALSE
    only = known.low is not None and known.high is not None and _same(known.low, wanted) and _same(known.high, wanted)
    return (TRUE if _may_hold(known, wanted) else 0) | (0 if only else FALSE)


def _time_outcomes(start: int | None, end: int | None, known: ColumnStats) -> int:
    """Judge ``[start, end)``. Every block is asked this, and its bounds are whole numbers, compared at once."""
    if start is None and end is None:
        return TRUE
    low, high = known.low, known.high
    if type(low) is not int or type(high) is not int or known.distinct is not None:
        return _range_outcomes(Range("", start, end, include_high=False), known)
    may = (start is None or high >= start) and (end is None or low < end)
    must = (start is None or low >= start) and (end is None or high < end)
    return (TRUE if may else 0) | (0 if must else FALSE)


def _range_outcomes(wanted: Range, known: ColumnStats) -> int:
    low = None if wanted.low is None else _comparable(wanted.low, known)
    high = None if wanted.high is None else _comparable(wanted.high, known)
    if (low is None) != (wanted.low is None) or (high is None) != (wanted.high is None):
        return TRUE | FALSE

    def inside(value: Bound) -> bool:
        return _is_above(value, low, wanted.include_low) and _is_below(value, high, wanted.include_high)

    if known.distinct is not None:
        answers = {inside(value) for value in known.distinct}
        return (TRUE if True in answers else 0) | (FALSE if False in answers else 0)
    may = (known.high is None or _is_above(known.high, low, wanted.include_low)) and (
        known.low is None or _is_below(known.low, high, wanted.include_high)
    )
    must = (low is None or (known.low is not None and _is_above(known.low, low, wanted.include_low))) and (
        high is None or (known.high is not None and _is_below(known.high, high, wanted.include_high))
    )
    return (TRUE if may else 0) | (0 if must else FALSE)


def _vector_outcomes(leaf: VectorTest, known: ColumnStats, rows: int) -> int:
    """Judge a distance by the ball that holds every vector: none is nearer or farther than the ball."""
    is_of_angles = leaf.metric == "cosine_distance"
    ball = known.ball if is_of_angles else known.span
    if ball is None or len(ball.centroid) != len(leaf.query):
        return ANY
    low, high = vectors.limits(leaf.metric, ball.centroid, ball.radius, leaf.query)
    if not (math.isfinite(low) and math.isfinite(high)):
        return ANY
    all_have_direction = known.nulls is not None and ball.count == rows - known.nulls
    may_be_null = NULL if is_of_angles and not all_have_direction else 0
    return _range_outcomes(leaf.test, ColumnStats(low=low, high=high)) | may_be_null


def _text_outcomes(leaf: StringHas | StringContains | StartsWith | StringMatches, known: ColumnStats) -> int:
    if not is_text(known):
        return TRUE | FALSE
    if known.distinct is not None and len(known.distinct) <= EXACT_TEXT_CAP:
        answers = _exact_answers(leaf, [text for text in known.distinct if isinstance(text, str)])
        if answers is not None:
            return (TRUE if True in answers else 0) | (FALSE if False in answers else 0)
    match leaf:
        case StringHas(_, term):
            may = _may_have_runs(known, runs_of(term, whole=True))
        case StringContains(_, needle):
            may = _may_have_runs(known, runs_of(needle))
        case StartsWith(_, prefix, case_sensitive):
            in_bounds = not case_sensitive or _prefix_in_bounds(prefix, known)
            may = in_bounds and _may_have_runs(known, runs_of(prefix, anchored=True))
        case StringMatches(_, pattern):
            may = _may_meet(known, needs_of(pattern))
    return FALSE | (TRUE if may else 0)


def _exact_answers(leaf: StringHas | StringContains | StartsWith | StringMatches, texts: list[str]) -> set[bool] | None:
    """Judge each text, or none unless all is ASCII: beyond it, who filters rows may know other letters than we do."""
    match leaf:
        case StringHas(_, sought) | StringContains(_, sought) | StartsWith(_, sought) | StringMatches(_, sought):
            if not sought.isascii() or not all(map(str.isascii, texts)):
                return None
    if isinstance(leaf, StringMatches):
        return set(pc.match_substring_regex(pa.array(texts, pa.utf8()), leaf.pattern).to_pylist())
    return {text_holds(leaf, text) for text in texts}


def is_text(known: ColumnStats) -> bool:
    """Say whether the column surely holds texts; a dynamic column has terms and grams as well."""
    samples = (known.low, known.high, *(known.distinct or ())[:1])
    return known.tokens is not None or any(isinstance(sample, str) for sample in samples)


def _prefix_in_bounds(prefix: str, known: ColumnStats) -> bool:
    below = isinstance(known.high, str) and known.high < prefix
    above = isinstance(known.low, str) and known.low > prefix and not known.low.startswith(prefix)
    return not (below or above)


def _may_hold(known: ColumnStats, wanted: Bound) -> bool:
    if known.distinct is not None:
        return _in_sorted(known.distinct, wanted)
    if known.low is not None and _before(wanted, known.low):
        return False
    if known.high is not None and _before(known.high, wanted):
        return False
    if isinstance(wanted, str):
        if known.values is not None and hash_bytes(wanted.encode("utf-8", "surrogatepass")) not in known.values:
            return False
        return not is_text(known) or _may_have_runs(known, runs_of(wanted, whole=True))
    if known.values is None or isinstance(wanted, bool):
        return True
    return _is_long(wanted) and hash_int(int(wanted)) in known.values


def _may_have_runs(known: ColumnStats, runs: Sequence[Run]) -> bool:
    """Judge the runs that a matching text must have; an edge run may be part of a longer token."""
    if known.tokens is not None:
        if not all(_in_sorted(known.tokens, run.text) for run in runs if run.starts and run.ends):
            return False
        parts = [run for run in runs if not (run.starts and run.ends)]
        text = "\n" + "\n".join(known.tokens) + "\n" if parts else ""
        return all(("\n" * run.starts + run.text + "\n" * run.ends) in text for run in parts)
    for run in runs:
        if run.starts and run.ends and known.terms is not None and hash_bytes(run.text.encode()) not in known.terms:
            return False
        if known.grams is not None and not known.grams.may_hold(run.text):
            return False
    return True


def _may_meet(known: ColumnStats, needs: Needs) -> bool:
    """Judge what a regular expression needs of a matching text."""
    if not _may_have_runs(known, needs.runs):
        return False
    return all(any(_may_meet(known, side) for side in choice) for choice in needs.choices)


def _may_have_path(known: ColumnStats, path: str) -> bool:
    """Judge a path; one that steps into a list is there only if the list is."""
    if "[" in path and _may_have_path(known, path[: path.index("[")]):
        return True
    if known.paths is not None:
        return _in_sorted(known.paths, path)
    return known.leaves is None or hash_bytes(path.encode("utf-8", "surrogatepass")) in known.leaves


def _may_have_leaf(known: ColumnStats, path: str, value: Value) -> bool:
    if not _may_have_path(known, path):
        return False
    if known.leaves is None or "[" in path or isinstance(value, bytes | datetime):
        return True
    return leaf_hash(path, value) in known.leaves


@lru_cache(maxsize=256, typed=True)  # asked of every block
def leaf_hash(path: str, value: bool | int | float | str) -> int:
    return hash_bytes(leaf_bytes(path, value))


def _may_pass_at(known: ColumnStats, path: str, test: PathTest) -> bool:
    """Judge what the value at a path must be like."""
    if not _may_have_path(known, path):
        return False
    match test:
        case InSet(_, values):
            return any(_may_have_leaf(known, path, value) for value in values)
        case Range():
            bounds = [bound for bound in (test.low, test.high) if bound is not None]
            if known.ranges is None or "[" in path or any(isinstance(b, str | bytes | bool | datetime) for b in bounds):
                return True
            if path not in known.ranges:
                return False
            low, high = known.ranges[path]
            return bool(_range_outcomes(test, ColumnStats(low=low, high=high)) & TRUE)
        case IsNull():
            return True
        case _ if is_text(known):  # not a dynamic column: unknown
            return True
        case StringHas(_, term):
            return _may_have_runs(known, runs_of(term, whole=True))
        case StringContains(_, needle):
            return _may_have_runs(known, runs_of(needle))
        case StartsWith(_, prefix):
            return _may_have_runs(known, runs_of(prefix, anchored=True))
        case StringMatches(_, pattern):
            return _may_meet(known, needs_of(pattern))


def leaf_bytes(path: str, value: bool | int | float | str) -> bytes:
    """Give the bytes that stand for a path and its scalar in a filter: equal numbers give equal bytes.

    A long text stands for all that begin like it, a number beyond 64 bits for all such numbers.
    """
    head = path.encode("utf-8", "surrogatepass") + b"\0"
    match value:
        case bool():
            return head + (b"t" if value else b"f")
        case str():
            return head + b"s" + value.encode("utf-8", "surrogatepass")[:LEAF_TEXT_CAP]
        case _:
            if isinstance(value, float) and not math.isfinite(value):
                return head + b"d" + struct.pack("<d", math.nan if math.isnan(value) else value)
            if not -(2**63) <= value < 2**63:
                return head + b"b"
            whole = value == int(value)
            return head + (b"i" + struct.pack("<q", int(value)) if whole else b"d" + struct.pack("<d", value))


def _comparable(value: Value, known: ColumnStats) -> Bound | None:
    """Give the value as the column's bounds are kept, or None when the two cannot be compared: unknown."""
    if isinstance(value, bytes):
        return None
    plain = time_ns(value) if isinstance(value, datetime) else value
    samples = [bound for bound in (known.low, known.high, *(known.distinct or ())[:1]) if bound is not None]
    family = _family(plain)
    if any(_family(sample) != family or _may_round(plain, sample) for sample in samples):
        return None
    return plain


def _may_round(plain: Bound, sample: Bound) -> bool:
    """Say whether an engine that compares integers with reals as doubles may see this one rounded."""
    mixed = isinstance(plain, float) != isinstance(sample, float)
    return mixed and not isinstance(plain, str) and EXACT_IN_DOUBLE <= abs(plain) < math.inf


def _is_long(number: float) -> bool:
    return -(2**63) <= number < 2**63 and number == int(number)


def _family(value: Bound) -> str:
    return "text" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


def _is_above(value: Bound, low: Bound | None, inclusive: bool) -> bool:
    return low is None or _before(low, value) or (inclusive and _same(low, value))


def _is_below(value: Bound, high: Bound | None, inclusive: bool) -> bool:
    return high is None or _before(value, high) or (inclusive and _same(value, high))


def _before(a: Bound, b: Bound) -> bool:
    """Order two values of one family: NaN is above every number."""
    if isinstance(a, float) and math.isnan(a):
        return False
    if isinstance(b, float) and math.isnan(b):
        return True
    return a < b  # type: ignore[operator]


def _same(a: Bound, b: Bound) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _in_sorted(values: tuple[Any, ...], wanted: Any) -> bool:
    at = bisect_left(values, wanted)
    return at < len(values) and values[at] == wanted


def _both(a: int, b: int) -> int:
    """Combine two sets of answers as AND does, over every pair."""
    found = 0
    if a & TRUE and b & TRUE:
        found |= TRUE
    if (a & FALSE and b) or (b & FALSE and a):
        found |= FALSE
    if (a & NULL and b & (TRUE | NULL)) or (b & NULL and a & (TRUE | NULL)):
        found |= NULL
    return found


def _either(a: int, b: int) -> int:
    return _negated(_both(_negated(a), _negated(b)))


def _negated(a: int) -> int:
    return (FALSE if a & TRUE else 0) | (TRUE if a & FALSE else 0) | (a & NULL)


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
    low = None if a.low is None or b.low is None else (b.low if _before(b.low, a.low) else a.low)
    high = None if a.high is None or b.high is None else (a.high if _before(b.high, a.high) else b.high)
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
        leaves=_united_filters(a.leaves, b.leaves),
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


def _united_balls(a: Ball | None, b: Ball | None) -> Ball | None:
    """Give a ball around two, a hair larger than needed."""
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
    a: Mapping[str, tuple[float, float]] | None, b: Mapping[str, tuple[float, float]] | None
) -> Mapping[str, tuple[float, float]] | None:
    if a is None or b is None:
        return None
    both = dict(a)
    for path, (low, high) in b.items():
        held_low, held_high = both.get(path, (low, high))
        both[path] = (low if _before(low, held_low) else held_low, held_high if _before(high, held_high) else high)
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


def _number_from_json(shape: Any) -> float:
    number = _bound_from_json(shape)
    if number is None or isinstance(number, bool | str):
        raise TypeError(f"not a number: {shape!r}")
    return number


def _filter_or_none(shape: Any) -> Filter | None:
    return None if shape is None else Filter.from_text(shape)
