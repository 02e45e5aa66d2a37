"""Answer a predicate row by row, the slow and plain way, to judge the fast ways by.

Rows are as in ``rows``. Where the meaning is left to the engine that filters rows (a literal of another type, a column
that is not there, a number that a double cannot hold), every answer that some engine may give is given. It shares
nothing with what it judges but the names of the predicate nodes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import cbor2

from tests.support.rows import Row
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
)
from tidelake.model.schema import Schema

Answer: TypeAlias = bool | None
Answers: TypeAlias = frozenset[Answer]

EITHER: Answers = frozenset({True, False})
UNKNOWN: Answers = frozenset({True, False, None})

_FAMILY_OF_KIND = {
    "int": "number",
    "long": "number",
    "real": "number",
    "timestamp": "number",
    "string": "text",
    "bool": "bool",
}
_MISSING = object()


def answers(predicate: Predicate, row: Row, schema: Schema) -> Answers:
    """Return every answer that this row may give."""
    match predicate:
        case And(parts):
            return _combined(_all, (answers(part, row, schema) for part in parts))
        case Or(parts):
            return _combined(_any, (answers(part, row, schema) for part in parts))
        case Not(part):
            return frozenset(None if answer is None else not answer for answer in answers(part, row, schema))
        case leaf:
            return _leaf_answers(leaf, row, schema)


def answers_of_rows(predicate: Predicate, rows: Iterable[Row], schema: Schema) -> set[Answer]:
    """Return every answer that some row may give."""
    return {answer for row in rows for answer in answers(predicate, row, schema)}


def tokens_of(text: str) -> list[str]:
    """Cut one text into tokens."""
    found, token = [], ""
    for char in text + " ":
        if char.isascii() and char.isalnum():
            token += char.lower()
        else:
            if len(token) >= 2:
                found.append(token)
            token = ""
    return found


def _all(parts: tuple[Answer, ...]) -> Answer:
    return False if False in parts else None if None in parts else True


def _any(parts: tuple[Answer, ...]) -> Answer:
    return True if True in parts else None if None in parts else False


def _combined(rule: Callable[[tuple[Answer, ...]], Answer], parts: Iterable[Answers]) -> Answers:
    return frozenset(rule(chosen) for chosen in itertools.product(*parts))


def _leaf_answers(leaf: Leaf, row: Row, schema: Schema) -> Answers:
    if leaf.column not in row:
        return EITHER if isinstance(leaf, IsNull) else UNKNOWN
    value, kind = row[leaf.column], schema[leaf.column].type.kind
    if value is None:
        return frozenset({_answer_of_null(leaf)})
    found = value * 1000 if kind == "timestamp" else value
    family = _FAMILY_OF_KIND.get(kind)
    match leaf:
        case IsNull():
            return frozenset({False})
        case TimeRange(_, start, end):
            return _between(found, family, (start, True), (end, False))
        case Equals(_, wanted):
            return _equal(found, family, wanted)
        case InSet(_, values):
            return _combined(_any, (_equal(found, family, wanted) for wanted in values))
        case Range(_, low, high, include_low, include_high):
            return _between(found, family, (low, include_low), (high, include_high))
        case DynamicPathExists(_, path):
            return frozenset({_at_path(cbor2.loads(value), path) is not _MISSING}) if kind == "dynamic" else EITHER
        case DynamicPathEquals(_, path, wanted):
            return _scalar_answers(value, path, InSet("", (wanted,))) if kind == "dynamic" else UNKNOWN
        case DynamicPathTest(_, path, test):
            unknown = EITHER if isinstance(test, IsNull) else UNKNOWN
            return _scalar_answers(value, path, test) if kind == "dynamic" else unknown
        case DynamicPathMayHold(_, path, test):
            return _may_hold_answers(value, path, test) if kind == "dynamic" else UNKNOWN
        case VectorTest():
            return _vector_answers(leaf, value) if kind == "vector" else UNKNOWN
        case StringHas() | StringContains() | StartsWith() | StringMatches():
            return frozenset({_text_answer(leaf, value)}) if kind == "string" else EITHER


def _may_hold_answers(value: bytes, path: str, test: PathTest) -> Answers:
    """Judge a text at a path; whatever else is there may hold anything."""
    found = _at_path(cbor2.loads(value), path)
    is_other = found is not _MISSING and found is not None and not isinstance(found, str)
    return frozenset({True}) if is_other else _scalar_answers(value, path, test)


def _vector_answers(leaf: VectorTest, vector: Sequence[float]) -> Answers:
    """Measure one vector in plain Python; where rounding may decide, either answer will do."""
    products = math.fsum(a * b for a, b in zip(vector, leaf.query, strict=True))
    if leaf.metric == "inner_product":
        found = products
    elif leaf.metric == "l2_distance":
        found = math.dist(vector, leaf.query)
    else:
        lengths = math.hypot(*vector), math.hypot(*leaf.query)
        if min(lengths) <= 1e-12:
            return frozenset({None})
        found = 1 - products / (lengths[0] * lengths[1])
    test = leaf.test
    near = [found * (1 + sign * 1e-9) + sign * 1e-9 for sign in (-1, 0, 1)]
    sides = ((test.low, test.include_low), (test.high, test.include_high))
    return frozenset(answer for each in near for answer in _between(each, "number", *sides))


def _answer_of_null(leaf: Leaf) -> Answer:
    """Only the questions that ask whether something is there have an answer where nothing is."""
    match leaf:
        case IsNull() | DynamicPathTest(_, _, IsNull()):
            return True
        case DynamicPathExists():
            return False
        case _:
            return None


def _text_answer(leaf: StringHas | StringContains | StartsWith | StringMatches, text: str) -> bool:
    match leaf:
        case StringHas(_, term):
            return _has(_lower(text), _lower(term))
        case StringContains(_, needle, case_sensitive):
            return needle in text if case_sensitive else _lower(needle) in _lower(text)
        case StartsWith(_, prefix, case_sensitive):
            start = text[: len(prefix)]
            return start == prefix if case_sensitive else _lower(start) == _lower(prefix)
        case StringMatches(_, pattern):
            return re.search(pattern, text) is not None


def _equal(found: Any, family: str | None, wanted: Any) -> Answers:
    if _family(wanted) != family:
        return EITHER
    return frozenset(order == 0 for order in _orders(found, wanted))


def _between(found: Any, family: str | None, low: tuple[Any, bool], high: tuple[Any, bool]) -> Answers:
    return _combined(_all, [_on_side(found, family, low, side=1), _on_side(found, family, high, side=-1)])


def _on_side(found: Any, family: str | None, bound: tuple[Any, bool], *, side: int) -> Answers:
    wanted, inclusive = bound
    if wanted is None:
        return frozenset({True})
    if _family(wanted) != family:
        return EITHER
    return frozenset(order == side or (order == 0 and inclusive) for order in _orders(found, wanted))


def _orders(found: Any, wanted: Any) -> set[int]:
    """Compare two values of one family: -1, 0 or 1; both ways where an engine may compare integers as doubles."""
    wanted = _nanoseconds(wanted) if isinstance(wanted, datetime) else wanted
    orders = {_order(found, wanted)}
    if isinstance(found, float) != isinstance(wanted, float):
        orders.add(_order(_as_double(found), _as_double(wanted)))
    return orders


def _order(a: Any, b: Any) -> int:
    rank_a, rank_b = ((isinstance(x, float) and math.isnan(x), x) for x in (a, b))
    if rank_a[0] or rank_b[0]:
        return rank_a[0] - rank_b[0]
    return int(a > b) - int(a < b)


def _as_double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, 1 if number > 0 else -1)


def _nanoseconds(time: datetime) -> int:
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _family(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float | datetime):
        return "number"
    return "text" if isinstance(value, str) else "bytes"


def _lower(text: str) -> str:
    return "".join(char if char in ("\u212a", "\u0130") else char.lower() for char in text)


def _has(text: str, term: str) -> bool:
    """Try every place; letters or digits at the term's ends must not go on in the text."""
    for start in range(len(text) - len(term) + 1):
        end = start + len(term)
        before, after = text[max(start - 1, 0) : start], text[end : end + 1]
        goes_on = (before.isalnum() and term[:1].isalnum()) or (after.isalnum() and term[-1:].isalnum())
        if text[start:end] == term and not goes_on:
            return True
    return False


def _at_path(value: Any, path: str) -> Any:
    """Find what a dynamic value has at a path: the longest key that leads there wins."""
    ends = [len(path), *(at for at in range(len(path) - 1, 0, -1) if path[at] == ".")]
    for end in ends:
        found = _at_step(value, path[:end])
        if found is not _MISSING and end < len(path):
            found = _at_path(found, path[end + 1 :])
        if found is not _MISSING:
            return found
    return _MISSING


def _at_step(value: Any, step: str) -> Any:
    if isinstance(value, dict) and step in value:
        return value[step]
    if step.endswith("]"):
        before, _, at = step[:-1].rpartition("[")
        items = _at_path(value, before) if before else value
        if isinstance(items, list) and at.isdecimal() and int(at) < len(items):
            return items[int(at)]
    return _MISSING


def _scalar_answers(value: bytes, path: str, test: PathTest) -> Answers:
    """Judge the scalar at a path; null where nothing is there, or where the test is about another type."""
    found = _at_path(cbor2.loads(value), path)
    if isinstance(test, IsNull):
        return frozenset({found is _MISSING or found is None})
    if found is _MISSING or found is None:
        return frozenset({None})
    family = _family(found) if isinstance(found, bool | int | float | str) else None
    match test:
        case InSet(_, values):
            return frozenset({any(_family(wanted) == family and 0 in _orders(found, wanted) for wanted in values)})
        case Range(_, low, high):
            if any(bound is not None and _family(bound) != family for bound in (low, high)):
                return frozenset({None})
            return _between(found, family, (low, test.include_low), (high, test.include_high))
        case StringHas() | StringContains() | StartsWith() | StringMatches():
            return frozenset({_text_answer(test, found) if isinstance(found, str) else None})
