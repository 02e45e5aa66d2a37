"""Judge a predicate by what is known of a run of rows.

The answer is the set of answers that some row may give, of true, false and null: a run of rows may match when true is
among them, and is proven when true stands alone. So ``Not`` needs no rule book of its own: it swaps true and false. It
does not know which rows there are.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

from tidelake.kernels.bloom import LEAF_TEXT_CAP, hash_bytes, hash_int
from tidelake.kernels.tokens import Run, runs_of
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
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
from tidelake.pruning.required_texts import Needs, needs_of
from tidelake.pruning.statistics import UNKNOWN, Bound, ColumnStats, Stats, before, family
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from tidelake.model import vectors
else:
    pa, pc, vectors = map(deferred, ("pyarrow", "pyarrow.compute", "tidelake.model.vectors"))

EXACT_IN_DOUBLE = 2**53  # from here on, doubles skip integers
EXACT_TEXT_CAP = 64  # distinct texts worth searching one by one; beyond it the tokens judge

LONG_SET = 1_000  # values of a set worth judging one by one; beyond it the bounds judge

TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL


def may_match(predicate: Predicate, stats: Stats) -> bool:
    """Return whether some row may satisfy the predicate. False is a proof, true is not."""
    return bool(outcomes(predicate, stats) & TRUE)


def outcomes(predicate: Predicate, stats: Stats) -> int:
    """Return the answers that rows may give to a predicate, as a set of TRUE, FALSE and NULL."""
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
            found = _set_outcomes(values, known)
        case Range():
            found = _range_outcomes(leaf, known)
        case StringHas() | StringContains() | StartsWith() | StringMatches():
            found = _text_outcomes(leaf, known)
        case DynamicPathExists(_, path):
            found = FALSE | (TRUE if _may_have_path(known, path) else 0)
        case DynamicPathEquals(_, path, value):
            found = FALSE | NULL | (TRUE if _may_have_leaf(known, path, value) else 0)
        case DynamicPathMayHold(_, path, _):
            found = FALSE | NULL | (TRUE if _may_have_path(known, path) else 0)
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


def _set_outcomes(values: tuple[Value, ...], known: ColumnStats) -> int:
    """Judge a set value by value; of a long one those between the bounds, as long as they are few."""
    ordered = _ordered(values) if len(values) > LONG_SET else None
    low, high = known.low, known.high
    if ordered and type(low) is type(ordered[0]) and type(high) is type(ordered[0]):
        within = ordered[bisect_left(ordered, low) : bisect_right(ordered, high)]
        values = tuple(each for each in known.distinct if _in_sorted(within, each)) if known.distinct else within
    if len(values) > LONG_SET:
        return TRUE | FALSE
    found = reduce(_either, (_equals_outcomes(value, known) for value in values), FALSE)
    return TRUE if found & TRUE and _are_all_among(known, values) else found


def _are_all_among(known: ColumnStats, values: tuple[Value, ...]) -> bool:
    """Whether every value that there is, is one of a set. NaN is none: it is not found by its hash."""
    if not known.distinct or len(known.distinct) > len(values):
        return False
    wanted = {each for value in values if (each := _comparable(value, known)) is not None}
    return wanted.issuperset(known.distinct)


@lru_cache(maxsize=8)
def _ordered(values: tuple[Value, ...]) -> tuple[Any, ...] | None:
    """Return the different values of a set in order, as statistics order them; None where types are mixed."""
    distinct: set[Any] = set(values)
    kinds = {type(value) for value in values}
    return tuple(sorted(distinct)) if kinds in ({int}, {str}) else None


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
    """Return whether the column surely holds texts; a dynamic column has terms and grams as well."""
    samples = (known.low, known.high, *(known.distinct or ())[:1])
    return known.tokens is not None or any(isinstance(sample, str) for sample in samples)


def _prefix_in_bounds(prefix: str, known: ColumnStats) -> bool:
    below = isinstance(known.high, str) and known.high < prefix
    above = isinstance(known.low, str) and known.low > prefix and not known.low.startswith(prefix)
    return not (below or above)


def _may_hold(known: ColumnStats, wanted: Bound) -> bool:
    if known.distinct is not None:
        return _in_sorted(known.distinct, wanted)
    if known.low is not None and before(wanted, known.low):
        return False
    if known.high is not None and before(known.high, wanted):
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
        if not all(_in_sorted(known.tokens, run.text) for run in runs if run.is_whole):
            return False
        parts = [run for run in runs if not run.is_whole]
        text = "\n" + "\n".join(known.tokens) + "\n" if parts else ""
        return all(("\n" * run.starts + run.text + "\n" * run.ends) in text for run in parts)
    for run in runs:
        if run.is_whole and known.terms is not None and hash_bytes(run.text.encode()) not in known.terms:
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
            return len(values) > LONG_SET or any(_may_have_leaf(known, path, value) for value in values)
        case Range():
            bounds = [bound for bound in (test.low, test.high) if bound is not None]
            if all(isinstance(bound, str) for bound in bounds) and known.initials is not None and "[" not in path:
                return path in known.initials and _may_begin(test, *known.initials[path])
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


def _may_begin(test: Range, first: int, last: int) -> bool:
    """Judge a range of texts by the least and the greatest byte that they begin with; an empty text has none: zero."""
    low, high = (
        b"" if bound is None else str(bound).encode("utf-8", "surrogatepass") for bound in (test.low, test.high)
    )
    above = test.low is None or last >= (low[0] if low else 0)
    if test.high is None:
        return above
    if not high:
        return above and first == 0
    return above and (first < high[0] or (first == high[0] and (len(high) > 1 or test.include_high)))


def leaf_bytes(path: str, value: bool | int | float | str) -> bytes:
    """Return the bytes that stand for a path and its scalar in a filter: equal numbers give equal bytes.

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
    """Return the value as the column's bounds are kept, or None when the two cannot be compared: unknown."""
    if isinstance(value, bytes | Decimal) or (isinstance(value, date) and not isinstance(value, datetime)):
        return None
    plain = time_ns(value) if isinstance(value, datetime) else value
    samples = [bound for bound in (known.low, known.high, *(known.distinct or ())[:1]) if bound is not None]
    sort = family(plain)
    if any(family(sample) != sort or _may_round(plain, sample) for sample in samples):
        return None
    return plain


def _may_round(plain: Bound, sample: Bound) -> bool:
    """Return whether an engine that compares integers with reals as doubles may see this one rounded."""
    mixed = isinstance(plain, float) != isinstance(sample, float)
    return mixed and not isinstance(plain, str) and EXACT_IN_DOUBLE <= abs(plain) < math.inf


def _is_long(number: float) -> bool:
    return -(2**63) <= number < 2**63 and number == int(number)


def _is_above(value: Bound, low: Bound | None, inclusive: bool) -> bool:
    return low is None or before(low, value) or (inclusive and _same(low, value))


def _is_below(value: Bound, high: Bound | None, inclusive: bool) -> bool:
    return high is None or before(value, high) or (inclusive and _same(value, high))


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
