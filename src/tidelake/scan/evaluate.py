"""Answer a predicate for every row of a batch: true, false or null, exactly as ``predicate`` says.

Comparisons are exact: a literal becomes the value of the column's own type that decides the same, so no row is ever
rounded to meet a literal. What a dynamic path has is judged type by type. Nothing here loops over rows, but for values
at a path that Arrow has no type for: integers beyond 64 bits, bytes and times. It does not read extents, nor prune: see
``pruning.outcomes``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor, path_values
from tidelake.dynamic.values import decode, get_path
from tidelake.errors import QueryError, SchemaError
from tidelake.model.expression import unknown_column
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
    VectorTest,
    conjuncts_of,
    leaves_of,
    time_ns,
)
from tidelake.model.schema import Column, DataType
from tidelake.model.vectors import Metric, measure
from tidelake.runtime.deferred import deferred
from tidelake.scan.binding import Family, bind, family_of
from tidelake.scan.path_columns import names_asked, path_name
from tidelake.scan.windows import NARROW_SHARE, ROUGH_SHARE, cut_by_time
from tidelake.scan.words import by_word, plain

if TYPE_CHECKING:
    from tidelake.scan import text_search as searching
else:
    searching = deferred("tidelake.scan.text_search")  # brings a compiler, which planning does without

MAX_HITS = 256  # of a text in a batch, looked at one by one; where there are more, the batch is asked as a whole

_SEARCHES = (StringHas, StringContains, StartsWith, StringMatches)

_Rows: TypeAlias = npt.NDArray[np.int64]
_OfPath: TypeAlias = DynamicPathExists | DynamicPathEquals | DynamicPathTest | DynamicPathMayHold

# What CBOR begins a value with that Arrow has no type for: integers of 64 bits or more, byte strings, times.
_RARE_HEADS: dict[Family, list[int]] = {
    int: [0x1B, 0x3B, 0xC2, 0xC3],
    bytes: list(range(0x40, 0x5C)),
    datetime: [0xC0, 0xC1],
}


def measured(metric: Metric, query: Sequence[float], values: pa.Array) -> pa.DoubleArray:
    """Measure each vector of a column against a query; null where there is no answer."""
    present = values.drop_null() if values.null_count else values
    rows = present.flatten().to_numpy(zero_copy_only=False).reshape(len(present), len(query))
    found, known = measure(metric, rows, query)
    if not values.null_count:
        return pa.array(found, mask=~known)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    whole, lacking = np.zeros(len(values)), np.ones(len(values), dtype=np.bool_)
    whole[valid], lacking[valid] = found, ~known
    return pa.array(whole, mask=lacking)


def evaluate(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Answer a predicate for every row."""
    match predicate:
        case And(parts):
            return reduce(pc.and_kleene, (evaluate(part, batch) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (evaluate(part, batch) for part in parts))
        case Not(part):
            return pc.invert(evaluate(part, batch))
        case leaf:
            return _leaf_answers(leaf, batch)


def select(predicate: Predicate, batch: pa.RecordBatch, *, rough: bool = False) -> pa.RecordBatch:
    """Keep the rows for which a predicate is true; ``rough`` may keep others too, where nearly all rows are kept.

    What an And asks is asked in order of cost, and dear questions only of the rows that are left once those are few. A
    window of a time column that ascends is cut out, which copies nothing.
    """
    batch, parts = cut_by_time(batch, sorted(conjuncts_of(predicate), key=_cost))
    if not parts:
        return batch
    asked, rows, answers = batch, None, None
    for at, part in enumerate(parts):
        found = _trues(part, asked)
        answers = found if answers is None else pc.and_kleene(answers, found)
        left = answers.true_count
        if left == 0:
            return batch.slice(0, 0)
        if at + 1 < len(parts) and left * NARROW_SHARE <= len(answers):
            kept = pc.indices_nonzero(answers)
            rows, answers = kept if rows is None else rows.take(kept), None
            needed = sorted(set().union(*(names_asked(part) for part in parts[at + 1 :])) & set(batch.schema.names))
            asked = batch.select(needed).take(rows)
    if rows is None:
        return batch if left >= batch.num_rows * (ROUGH_SHARE if rough else 1) else batch.filter(answers)
    return batch.take(rows if answers is None else rows.filter(answers))


def _trues(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return for which rows a predicate is true; of the others, it is not told whether it is false or null."""
    match predicate:
        case DynamicPathEquals(column, path, str(text)) if (
            text
            and "[" not in path
            and column in batch.schema.names
            and path_name(column, path) not in batch.schema.names
        ):
            values = batch.column(column)
            rows = _rows_with(_utf8(text), values)
            if rows is not None:
                answers = np.zeros(batch.num_rows, dtype=np.bool_)
                answers[rows] = _is_text_at(path, _utf8(text), values.take(pa.array(rows)))
                return pa.array(answers)
    return evaluate(predicate, batch)


def _is_text_at(path: str, text: bytes, values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which of a few values have a text at a path."""
    found = cbor.extract(values, path)
    answers: npt.NDArray[np.bool_] = (found.kinds == cbor.TEXT_KIND) & (found.lengths == len(text))
    for row in np.flatnonzero(answers).tolist():
        answers[row] = found.data[found.starts[row] :][: len(text)].tobytes() == text
    return answers


def _rows_with(needle: bytes, values: pa.Array) -> _Rows | None:
    """Find the rows of a dynamic column that hold some bytes, wherever; None if they are many.

    A text lies in CBOR as it is, so a row without its bytes has it at no path. To look for them takes a third of
    the time that walking the values does.
    """
    if not pa.types.is_binary(values.type):
        return None
    _, offsets, data = values.buffers()
    if offsets is None or data is None:
        return np.empty(0, dtype=np.int64)
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    letters, hits = data[int(places[0]) : int(places[-1])].to_pybytes(), []
    at = letters.find(needle)
    while at >= 0:
        hits.append(at + int(places[0]))
        if len(hits) > MAX_HITS:
            return None
        at = letters.find(needle, at + 1)
    return np.unique(np.searchsorted(places, np.array(hits, dtype=np.int64), side="right") - 1)


def _cost(predicate: Predicate) -> int:
    """Rank what a predicate costs for a row."""
    match predicate:
        case And() | Or() | Not():
            return max(map(_cost, leaves_of(predicate)))
        case StringMatches() | VectorTest():
            return 3
        case DynamicPathExists() | DynamicPathEquals() | DynamicPathTest() | DynamicPathMayHold():
            return 2
        case StringHas() | StringContains() | StartsWith():
            return 1
        case InSet() | Equals(value=str()):
            return 0
        case _:
            return -1


def _leaf_answers(leaf: Leaf, batch: pa.RecordBatch) -> pa.BooleanArray:
    if isinstance(leaf, DynamicPathExists | DynamicPathEquals | DynamicPathTest | DynamicPathMayHold):
        at = batch.schema.get_field_index(path_name(leaf.column, leaf.path))
        if at >= 0:
            return _apart_answers(leaf, batch.column(at))
    at = batch.schema.get_field_index(leaf.column)
    if at < 0:
        raise unknown_column(leaf.column, batch.schema.names)
    values = batch.column(at)
    if pa.types.is_dictionary(values.type):
        return values.is_null() if isinstance(leaf, IsNull) else by_word(_of_words, leaf, values)
    try:
        kind = DataType.from_arrow(values.type)
    except SchemaError as error:
        raise QueryError(error.message, column=leaf.column, **error.facts, kind=error.kind) from None
    leaf = bind(leaf, Column(0, leaf.column, kind))
    if values.type != kind.arrow:
        values = values.cast(kind.arrow)
    match leaf:
        case IsNull():
            return values.is_null()
        case Equals(_, value) if kind.kind == "dynamic":
            return _answers_to(InSet("", (value,)), cbor.whole(values), None, values)
        case InSet() | Range() | StringHas() | StringContains() | StartsWith() | StringMatches() if (
            kind.kind == "dynamic"
        ):
            return _answers_to(leaf, cbor.whole(values), None, values)
        case StringHas() | StringContains() | StartsWith() | StringMatches():
            return searching.search(leaf, values)
        case DynamicPathExists() | DynamicPathEquals() | DynamicPathTest() | DynamicPathMayHold():
            return _path_answers(leaf, values)
        case VectorTest(_, metric, query, test):
            return _compared(test, measured(metric, query, values))
        case Equals() | InSet() | Range() | TimeRange():
            return _compared(leaf, values)


def _of_words(leaf: Leaf, words: pa.Array) -> pa.BooleanArray:
    return _leaf_answers(leaf, pa.RecordBatch.from_arrays([words], [leaf.column]))


def _compared(leaf: Equals | InSet | Range | TimeRange, values: pa.Array) -> pa.BooleanArray:
    match leaf:
        case TimeRange(name, start, end) if start is not None or end is not None:
            return _in_range(Range(name, start, end, include_high=False), values)
        case TimeRange():
            return _all(values, True)
        case Equals(_, value):
            return _is_one_of([value], values)
        case InSet(_, points):
            return _is_one_of(points, values)
        case Range():
            return _in_range(leaf, values)


def _is_one_of(points: Sequence[Any], values: pa.Array) -> pa.BooleanArray:
    """Return which values equal one of the points; a point that the type has no equal of drops out."""
    kind, has_nan = values.type, False
    exact: Iterable[Any]
    if pa.types.is_timestamp(kind):
        exact = (ns // 1000 for ns in points if ns % 1000 == 0 and -(2**63) <= ns // 1000 < 2**63)
        values = values.view(pa.int64())
    elif pa.types.is_floating(kind):
        has_nan = any(map(_is_nan, points))
        exact = [real for point in points if (real := _nearest_real(point)) == point]
        exact += [0.0, -0.0] if 0.0 in exact else []  # the two zeros are equal, but not to a hash
    elif pa.types.is_string(kind):
        values, exact = values.view(pa.binary()), map(_utf8, points)
    elif pa.types.is_boolean(kind):
        exact = points
    else:
        low, high = _limits(kind)
        exact = (int(point) for point in points if low <= point <= high and point == int(point))
    members = pa.array(list(exact), values.type)
    if len(members) == 1 and not has_nan:
        return pc.equal(values, members[0])
    found = pc.is_in(values, value_set=members)
    if has_nan:
        found = pc.or_(found, pc.is_nan(values).fill_null(False))
    return _nulled(found, values)


def _in_range(wanted: Range, values: pa.Array) -> pa.BooleanArray:
    sides = []
    if wanted.low is not None:
        sides.append(_above(wanted.low, values, strict=not wanted.include_low))
    if wanted.high is not None:
        sides.append(pc.invert(_above(wanted.high, values, strict=wanted.include_high)))
    return reduce(pc.and_, sides)


def _above(bound: Any, values: pa.Array, *, strict: bool) -> pa.BooleanArray:
    """Return which values are at or above a bound, or only above it if strict."""
    kind = values.type
    if pa.types.is_string(kind):
        return (pc.greater if strict else pc.greater_equal)(values.view(pa.binary()), pa.scalar(_utf8(bound)))
    if pa.types.is_floating(kind):
        if _is_nan(bound) or (bound == math.inf and strict):
            return _all(values, False) if _is_nan(bound) and strict else pc.is_nan(values)
        return pc.invert(pc.less(values, pa.scalar(_least_real(bound, strict=strict))))  # NaN is not less
    if pa.types.is_timestamp(kind):
        return _at_least(-(-(bound + strict) // 1000), values.view(pa.int64()))
    if pa.types.is_boolean(kind):
        return _at_least(bound + strict, values.cast(pa.int8()))
    return _at_least(_least_int(bound, strict=strict), values)


def _at_least(least: float, values: pa.Array) -> pa.BooleanArray:
    low, high = _limits(values.type)
    if not low < least <= high:
        return _all(values, least <= low)
    return pc.greater_equal(values, pa.scalar(least, values.type))


def _least_int(bound: float, *, strict: bool) -> float:
    """Return the smallest integer at or above a number, or above it if strict; infinity if there is none."""
    if isinstance(bound, float) and not math.isfinite(bound):
        return -math.inf if bound < 0 else math.inf
    least = math.ceil(bound)
    return least + 1 if strict and least == bound else least


def _least_real(bound: float, *, strict: bool) -> float:
    """Return the smallest double at or above a number, or above it if strict."""
    real = _nearest_real(bound)
    return math.nextafter(real, math.inf) if real < bound or (strict and real == bound) else real


def _nearest_real(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _limits(kind: pa.DataType) -> tuple[int, int]:
    return -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1


def _utf8(text: Any) -> bytes:
    return bytes(text.encode("utf-8", "surrogatepass"))


def _all(values: pa.Array, answer: bool) -> pa.BooleanArray:
    return _nulled(pa.array(np.full(len(values), answer)), values)


def _nulled(answers: pa.BooleanArray, values: pa.Array) -> pa.BooleanArray:
    return pc.if_else(values.is_valid(), answers, pa.scalar(None, pa.bool_())) if values.null_count else answers


def _path_answers(leaf: _OfPath, values: pa.Array) -> pa.BooleanArray:
    found = cbor.extract(values, leaf.path)
    if isinstance(leaf, DynamicPathMayHold):
        return _may_hold(_answers_to(leaf.test, found, leaf.path, values), found.kinds)
    match leaf:
        case DynamicPathExists():
            return pa.array(found.is_present())
        case DynamicPathTest(_, _, IsNull()):
            return pa.array(found.kinds <= cbor.NULL_KIND)
        case DynamicPathEquals(_, _, value):
            return _answers_to(InSet("", (value,)), found, leaf.path, values)
        case DynamicPathTest(_, path, test):
            return _answers_to(test, found, path, values)


def _may_hold(answers: pa.BooleanArray, kinds: npt.NDArray[np.uint8]) -> pa.BooleanArray:
    """Answer what texts at a path pass, and all else that is there."""
    is_other = (kinds > cbor.NULL_KIND) & (kinds != cbor.TEXT_KIND)
    return pc.if_else(pa.array(is_other), pa.scalar(True), answers) if is_other.any() else answers


def _apart_answers(leaf: _OfPath, values: pa.StructArray) -> pa.BooleanArray:
    """Answer from what rows have at a path, held apart by type."""
    kinds = path_values.kinds_of(values)
    match leaf:
        case DynamicPathMayHold():
            return _may_hold(tested(leaf.test, values), kinds)
        case DynamicPathExists():
            return pa.array(kinds != cbor.MISSING_KIND)
        case DynamicPathTest(_, _, IsNull()):
            return pa.array(kinds <= cbor.NULL_KIND)
        case DynamicPathEquals(_, _, value):
            test: PathTest = InSet("", (value,))
        case DynamicPathTest():
            test = leaf.test
    answers, known = np.zeros(len(values), dtype=np.bool_), np.zeros(len(values), dtype=np.bool_)
    for part, family in _byfamily_of(test):
        for rows, judged in _judged_apart(part, family, kinds, values):
            answers[rows], known[rows] = judged[rows] if len(judged) == len(answers) else judged, True
    return pa.array(answers, mask=kinds <= cbor.NULL_KIND if isinstance(test, InSet) else ~known)


def _judged_apart(
    test: Any, family: Family, kinds: npt.NDArray[np.uint8], values: pa.StructArray
) -> Iterator[tuple[Any, npt.NDArray[np.bool_]]]:
    """Judge the values of one type: of all rows, of which those that have one are named."""
    names = {int: ("int", "real"), str: ("text",)}.get(family, ())
    for name in names:
        if (held := path_values.field(values, name)) is not None:
            judge = searching.search if isinstance(test, _SEARCHES) else _compared
            yield np.asarray(held.is_valid()), plain(pc.fill_null(by_word(judge, test, held), False))
    if family is bool and len(flags := path_values.flags(values)):
        yield np.asarray(flags.is_valid()), plain(pc.fill_null(_compared(test, flags), False))
    others = path_values.field(values, "other") if family in _RARE_HEADS else None
    if others is not None:
        rows, rare = _rare(family, cbor.whole(others), None, others)
        yield rows, np.array([_holds(test, value) for value in rare], dtype=np.bool_)


def tested(test: Leaf, values: pa.StructArray) -> pa.BooleanArray:
    """Return which texts at a path pass a test; null where there is no text."""
    judge = searching.search if isinstance(test, _SEARCHES) else _compared
    return by_word(judge, test, path_values.texts(values))


def _answers_to(test: PathTest, found: cbor.Extracted, path: str | None, values: pa.Array) -> pa.BooleanArray:
    """Test what was found at a path, or without one the values themselves."""
    is_null = found.kinds <= cbor.NULL_KIND
    answers, known = np.zeros(len(values), dtype=np.bool_), np.zeros(len(values), dtype=np.bool_)
    for part, family in _byfamily_of(test):
        for rows, judged in _judged_at_path(part, family, found, path, values):
            answers[rows], known[rows] = judged, True
    return pa.array(answers, mask=is_null if isinstance(test, InSet) else ~known)


def _byfamily_of(test: PathTest) -> Iterator[tuple[PathTest, Family]]:
    """Part a test by the types of value that it applies to."""
    match test:
        case InSet(name, values):
            for family in sorted({family_of(value) for value in values}, key=str):
                yield InSet(name, tuple(value for value in values if family_of(value) is family)), family
        case Range(_, low, high):
            families = {family_of(bound) for bound in (low, high) if bound is not None}
            if len(families) == 1:
                yield test, families.pop()
        case _:
            yield test, str


def _judged_at_path(
    test: Any, family: Family, found: cbor.Extracted, path: str | None, values: pa.Array
) -> Iterator[tuple[_Rows, npt.NDArray[np.bool_]]]:
    """Judge the rows that have a value of one type at a path."""
    if family is int:
        rows = np.flatnonzero(found.kinds == cbor.INT_KIND)
        yield rows, plain(_compared(test, pa.array(found.ints[rows])))
        rows = np.flatnonzero(found.kinds == cbor.REAL_KIND)
        yield rows, plain(_compared(test, pa.array(found.reals[rows])))
    elif family is bool:
        rows = np.flatnonzero((found.kinds == cbor.TRUE_KIND) | (found.kinds == cbor.FALSE_KIND))
        yield rows, plain(_compared(test, pa.array(found.kinds[rows] == cbor.TRUE_KIND)))
    elif family is str:
        is_text = found.kinds == cbor.TEXT_KIND
        texts = found.as_type(DataType("string"))
        judge = _compared if isinstance(test, InSet | Range) else searching.search
        yield np.flatnonzero(is_text), plain(judge(test, texts if is_text.all() else texts.drop_null()))
    if family in _RARE_HEADS:
        rows, held = _rare(family, found, path, values)
        yield rows, np.array([_holds(test, value) for value in held], dtype=np.bool_)


def _rare(family: Family, found: cbor.Extracted, path: str | None, values: pa.Array) -> tuple[_Rows, list[Any]]:
    """Decode the values at a path of a type that Arrow lacks; what they begin with tells them from the rest."""
    rows = np.flatnonzero(found.kinds == cbor.OTHER_KIND)
    if path is None or (path and "[" not in path):  # only then does what was found say where it lies
        rows = rows[np.isin(found.data[found.starts[rows]], _RARE_HEADS[family])]
    decoded = ((row, decode(values[row].as_py())) for row in rows.tolist())
    held = {row: value if path is None else get_path(value, path) for row, value in decoded}
    fitting = {row: value for row, value in held.items() if isinstance(value, family)}
    return np.array(list(fitting), dtype=np.int64), list(fitting.values())


def _holds(test: InSet | Range, value: Any) -> bool:
    """Judge one value that Arrow has no type for; none is NaN, but a bound may be."""
    found = _ordered(value)
    if isinstance(test, InSet):
        return any(found == _ordered(point) for point in test.values)
    above = test.low is None or _before(_ordered(test.low), found, inclusive=test.include_low)
    return above and (test.high is None or _before(found, _ordered(test.high), inclusive=test.include_high))


def _before(a: Any, b: Any, *, inclusive: bool) -> bool:
    if _is_nan(a) or _is_nan(b):
        return not _is_nan(a)
    return bool(a < b or (inclusive and a == b))


def _ordered(value: Any) -> Any:
    return time_ns(value) if isinstance(value, datetime) else value
