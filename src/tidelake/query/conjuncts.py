"""Turn parts of a query's conditions into predicates that prune and filter a scan.

A predicate keeps every row that its condition keeps; it may keep more, and says so (``exact``). What cannot be turned
is left to the engine, which asks every condition again. It does not decide where a condition may be asked early.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from tidelake.errors import TidelakeError
from tidelake.model.logical_types import NESTED
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
    Predicate,
    Range,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
    Value,
    columns_of,
)
from tidelake.model.schema import DataType
from tidelake.pruning.outcomes import LONG_SET, TRUE, outcomes
from tidelake.pruning.statistics import ColumnStats, Stats
from tidelake.query.constants import Constant, constant_of, time_of
from tidelake.query.converted_values import MAX_EXACT, given_as, numbers_given
from tidelake.query.fields import compares, field_of
from tidelake.query.long_lists import values_of
from tidelake.scan.evaluate import evaluate

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.NullSafeEQ: exp.NullSafeEQ,
    exp.NullSafeNEQ: exp.NullSafeNEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
# What changes the meaning of a condition in ways that are not looked at here.
_TWISTS = ("symmetric", "flag", "full_match", "unnest", "field")
_SEVERAL_TERMS = ("tide_has_any", "tide_has_all")
MAX_TERMS = 16  # of one test: for each of them a scan looks through the texts
# Functions that a text passes only if it holds the part that is sought.
_PARTS = frozenset(f"tide_{name}{case}" for name in ("endswith", "hasprefix", "hassuffix") for case in ("", "_cs")) | {
    "tide_has_cs"
}
# Letters of which engines have other small ones than scans: the Kelvin sign is a k to them, the dotted capital I an i,
# perhaps with a dot of its own, and to some a sigma at the end of a word is not the one elsewhere.
_UNLIKE = re.compile("[iIkK\u0130\u0307\u212a\u03a3\u03c3\u03c2]")
_CONVERSION = re.compile(r"tide_to_(string|long|int|real|bool|datetime|timespan)_from_dynamic")
_PLAIN_TIMES = {
    "date": re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    "timestamp_ntz": re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII),
}
_WILDCARD = re.compile(r"[%_\\]")
# Tests that say nothing of a null, and something of any other value.
_OF_VALUES = (Equals, InSet, Range, StringHas, StringContains, StartsWith, StringMatches)


@dataclass(frozen=True, slots=True)
class Pushed:
    """A predicate, and whether it keeps exactly the rows that its condition keeps."""

    predicate: Predicate
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a condition is about: a column, or a path of a dynamic one."""

    column: str
    type: DataType
    path: str | None = None
    null_is: str | None = None  # what a null counts as
    as_double: bool = False  # whole numbers that are compared as doubles
    converted: str | None = None  # what the value at a path is converted to before it is compared
    field: str | None = None  # the type of a struct's field, which the path leads to

    @property
    def kind(self) -> str:
        """The type that a comparison sees: the logical one, where there is one."""
        return self.type.kind if self.type.logical is None else self.type.logical.kind


def conjuncts_of(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that must all be true."""
    match condition:
        case None:
            return
        case exp.And():
            yield from conjuncts_of(condition.this)
            yield from conjuncts_of(condition.expression)
        case exp.Paren():
            yield from conjuncts_of(condition.this)
        case _:
            yield condition


def pushed(condition: exp.Expr, types: Mapping[str, DataType], spelled: Mapping[str, str]) -> Pushed | None:
    """Return what a condition on one table's columns asks of a scan, in the table's own names, or None if nothing."""
    try:
        found = _pushed(condition, types)
    except TidelakeError:  # a value that no predicate can hold
        return None
    return found and replace(found, predicate=_respelled(found.predicate, spelled))


def _respelled(predicate: Predicate, spelled: Mapping[str, str]) -> Predicate:
    match predicate:
        case And(parts) | Or(parts):
            return type(predicate)(tuple(_respelled(part, spelled) for part in parts))
        case Not(part):
            return Not(_respelled(part, spelled))
        case leaf:
            own = spelled[leaf.column]
            return leaf if own == leaf.column else replace(leaf, column=own)


def with_short_sets(predicate: Predicate) -> Predicate | None:
    """Return a predicate that keeps all that another keeps, with bounds in the place of long sets; None if it is all.

    A scan on Spark is given its predicate as text, which every task reads.
    """
    match predicate:
        case And(parts):
            kept = [short for part in parts if (short := with_short_sets(part)) is not None]
            return None if not kept else kept[0] if len(kept) == 1 else And(tuple(kept))
        case Or(parts):
            each = [with_short_sets(part) for part in parts]
            some = tuple(part for part in each if part is not None)
            return Or(some) if len(some) == len(each) else None
        case Not(part):
            return predicate if with_short_sets(part) == part else None
        case InSet(column, values) if len(values) > LONG_SET:
            ordered: list[Any] = list(values) if {type(value) for value in values} in ({int}, {str}) else []
            return Range(column, min(ordered), max(ordered)) if ordered else None
        case DynamicPathTest(_, _, InSet(_, values)) if len(values) > LONG_SET:
            return None
        case _:
            return predicate


def rejects_nulls(predicate: Predicate) -> bool:
    """Return whether a predicate is never true of a row whose columns are all null."""
    nothing = {name: ColumnStats(nulls=1) for name in columns_of(predicate)}
    return not outcomes(predicate, Stats(1, nothing)) & TRUE


def both(found: Iterable[Pushed]) -> Pushed | None:
    """Return the predicate that asks all of some."""
    parts = list(found)
    if not parts:
        return None
    exact = all(part.exact for part in parts)
    flat = [piece for part in parts for piece in _flat(part.predicate)]
    distinct = tuple(dict.fromkeys(flat)) if _all_hashable(flat) else tuple(flat)
    return Pushed(distinct[0] if len(distinct) == 1 else And(distinct), exact)


def _flat(predicate: Predicate) -> tuple[Predicate, ...]:
    return predicate.parts if isinstance(predicate, And) else (predicate,)


def _all_hashable(parts: Iterable[Predicate]) -> bool:
    return all(type(part).__hash__ is not None for part in parts)


def _pushed(node: exp.Expr, types: Mapping[str, DataType]) -> Pushed | None:
    if node.args.get("negate"):
        plain = node.copy()
        plain.set("negate", None)
        return _pushed(exp.Not(this=plain), types)
    if any(node.args.get(key) for key in _TWISTS):
        return None
    match node:
        case exp.Paren():
            return _pushed(node.this, types)
        case exp.And():
            sides = [_pushed(side, types) for side in (node.this, node.expression)]
            found = both(side for side in sides if side is not None)
            return found if found is None or None not in sides else Pushed(found.predicate, exact=False)
        case exp.Or():
            left, right = _pushed(node.this, types), _pushed(node.expression, types)
            if left is None or right is None:
                return None
            return Pushed(left.predicate | right.predicate, left.exact and right.exact)
        case exp.Not() if (asked := _unless_null(node.this)) is not None:
            return _not_true(_pushed(asked, types), types)
        case exp.Coalesce() if (asked := _unless_null(node)) is not None:
            found = _pushed(asked, types)
            return None if found is None else Pushed(found.predicate, exact=False)
        case exp.Not():
            inner = _pushed(node.this, types)
            return _negated(inner, types) if inner is not None and inner.exact else None
        case exp.Is() if isinstance(node.expression, exp.Null):
            subject = _subject(node.this, types)
            return None if subject is None else _asked(subject, IsNull(subject.column))
        case exp.In() if node.expressions and not node.args.get("query"):
            return _in(node, types)
        case exp.Between():
            subject = _subject(node.this, types)
            if subject is None:
                return None
            bounds = (_value(node.args["low"], subject), _value(node.args["high"], subject))
            low, high = bounds
            return None if low is None or high is None else _asked(subject, Range(subject.column, low, high))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.NullSafeEQ() | exp.NullSafeNEQ():
            return _compared(node, types)
        case exp.ILike():
            return _ilike(node, types)
        case exp.Like():
            return _like(node, types)
        case exp.RegexpLike() | exp.StartsWith() | exp.Contains() | exp.Anonymous():
            return _text(node, types)
        case exp.Column():
            subject = _subject(node, types)
            is_bool = subject is not None and subject.kind == "bool" and subject.path is None
            return Pushed(Equals(node.name, True)) if is_bool else None
        case _:
            return None


def _negated(found: Pushed, types: Mapping[str, DataType]) -> Pushed:
    """Ask the opposite; of a dynamic value that is of another type an engine says that it does not know."""
    is_dynamic = any(types[name].kind == "dynamic" for name in columns_of(found.predicate))
    return Pushed(Not(found.predicate), exact=not is_dynamic)


def _unless_null(node: exp.Expr) -> exp.Expr | None:
    """Return the condition of which a null counts as false, as KQL writes ``!in`` and its like."""
    node = node.unnest()
    if not isinstance(node, exp.Coalesce) or len(node.expressions) != 1:
        return None
    filler = node.expressions[0]
    return node.this if isinstance(filler, exp.Boolean) and not filler.this else None


def _not_true(found: Pushed | None, types: Mapping[str, DataType]) -> Pushed | None:
    """Ask for what does not pass a test of a column, nulls among it."""
    if found is None or not found.exact or not isinstance(found.predicate, _OF_VALUES):
        return None
    column = found.predicate.column
    return None if types[column].kind == "dynamic" else Pushed(Not(found.predicate) | IsNull(column), exact=False)


def _other_than(subject: _Subject, value: Value, types: Mapping[str, DataType]) -> Pushed | None:
    """Ask for another value than this, of a column whose nulls are other values, or count as some text."""
    found = _not_true(_asked(replace(subject, null_is=None), Equals(subject.column, value)), types)
    if found is None or subject.null_is != value:
        return found
    return Pushed(Not(Equals(subject.column, value)), exact=False)


def _subject(node: exp.Expr, types: Mapping[str, DataType]) -> _Subject | None:
    match node:
        case exp.Paren():
            return _subject(node.this, types)
        case exp.Column() if node.name in types:
            return _Subject(node.name, types[node.name])
        case exp.Dot() if (found := field_of(node, types)) is not None:
            return _Subject(found.column, types[found.column], found.path, field=found.kind)
        case exp.Cast():
            return _widened(_subject(node.this, types), node.to)
        case exp.Coalesce() if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
            inner, filler = _subject(node.this, types), node.expressions[0]
            return replace(inner, null_is=str(filler.this)) if inner is not None and filler.is_string else None
        case exp.Anonymous() if (match := _CONVERSION.fullmatch(str(node.this).lower())) and len(node.expressions) == 1:
            inner = _subject(node.expressions[0], types)
            return replace(inner, converted=match[1]) if inner is not None and inner.type.kind == "dynamic" else None
        case exp.Anonymous() if str(node.this).lower() == "tide_get" and isinstance(node.expressions[0], exp.Column):
            column, path = node.expressions
            kind = types.get(column.name)
            is_dynamic = kind is not None and kind.kind == "dynamic"
            if kind is None or not is_dynamic or not isinstance(path, exp.Literal):
                return None
            return _Subject(column.name, kind, str(path.this))
        case _:
            return None


def _widened(subject: _Subject | None, to: exp.DataType) -> _Subject | None:
    """Look through a cast that keeps every value, or only rounds whole numbers to doubles."""
    if subject is None or subject.path is not None:
        return None
    kind = subject.kind
    if (kind, to.this) in (("int", exp.DType.BIGINT), ("long", exp.DType.BIGINT), ("real", exp.DType.DOUBLE)):
        return subject
    return replace(subject, as_double=True) if kind in ("int", "long") and to.this is exp.DType.DOUBLE else None


def _asked(subject: _Subject, leaf: Leaf) -> Pushed | None:
    """Ask a column, or the path of a dynamic one."""
    if subject.null_is is not None:
        return _asked_of_nulls(subject, leaf)
    if subject.converted is not None:
        return _asked_of_converted(subject, leaf)
    if subject.path is None:
        askable = isinstance(leaf, IsNull) or subject.kind not in ("vector", "binary", *NESTED)
        return Pushed(leaf) if askable else None
    exact = subject.field is None
    match leaf:
        case Equals(_, value):
            return Pushed(DynamicPathEquals(subject.column, subject.path, value), exact)
        case InSet() | Range() | StringHas() | StringContains() | StartsWith() | StringMatches() | IsNull():
            return Pushed(DynamicPathTest(subject.column, subject.path, leaf), exact)
        case _:
            return None


def _asked_of_nulls(subject: _Subject, leaf: Leaf) -> Pushed | None:
    """Ask a column whose nulls count as some text: a test that the text passes, nulls pass too."""
    if isinstance(leaf, IsNull):
        return None
    found = _asked(replace(subject, null_is=None), leaf)
    if found is None:
        return None
    text = pa.RecordBatch.from_arrays([pa.array([subject.null_is])], names=[subject.column])
    passes = subject.path is None and evaluate(found.predicate, text)[0].as_py()
    if subject.path is not None and subject.null_is == "" and not _needs_text(leaf):
        return None
    predicate = found.predicate | IsNull(subject.column) if passes else found.predicate
    return Pushed(predicate, exact=False)


def _needs_text(leaf: Leaf) -> bool:
    """Return whether a test is never true of the empty text."""
    match leaf:
        case Equals(_, value):
            return value != ""
        case InSet(_, values):
            return "" not in values
        case StringHas(_, sought) | StringContains(_, sought) | StartsWith(_, sought):
            return bool(sought)
        case _:
            return False


def _asked_of_converted(subject: _Subject, leaf: Leaf) -> Pushed | None:
    """Ask what a path's value is converted to: values that give it, else that there is something at all.

    A number is given by a number, or by a text that reads as one: such a text begins with a digit, a sign, a dot or a
    space, all of which are below a colon. A text is given by itself, and by the number or bool that it is the text of.
    """
    if isinstance(leaf, IsNull):
        return None
    column, path = subject.column, subject.path
    if path is None:  # a value of its own, of which only the nulls are known
        some = subject.converted != "string" or _needs_text(leaf)
        return Pushed(Not(IsNull(column)), exact=False) if some else None
    exists = Pushed(DynamicPathExists(column, path), exact=False)
    if subject.converted == "string":
        texts = (leaf.value,) if isinstance(leaf, Equals) else leaf.values if isinstance(leaf, InSet) else ()
        given = [value for text in texts for value in given_as(str(text))]
        if texts and all(given_as(str(text)) for text in texts):
            if len(given) == 1:
                return Pushed(DynamicPathEquals(column, path, given[0]), exact=False)
            return Pushed(DynamicPathTest(column, path, InSet(column, tuple(given))), exact=False)
        if not _needs_text(leaf):
            return None
        if isinstance(leaf, StringHas | StringContains | StartsWith):
            return Pushed(DynamicPathMayHold(column, path, leaf), exact=False)
        return exists
    if subject.converted in ("real", "long", "int") and isinstance(leaf, Equals | InSet | Range):
        numbers = numbers_given(leaf, whole=subject.converted != "real")
        if numbers is not None:
            tests: list[Range | InSet] = [numbers, Range(column, high=":", include_high=False)]
            if isinstance(leaf, Range) and leaf.high is None:  # infinity in letters is above all
                tests += [Range(column, "I", "J", include_high=False), Range(column, "i", "j", include_high=False)]
            return Pushed(Or(tuple(DynamicPathTest(column, path, test) for test in tests)), exact=False)
    return exists


def _value(node: exp.Expr, subject: _Subject) -> Value | None:
    """Return a constant as the subject's type compares it, or None where an engine might convert the column instead."""
    return _fitting(constant_of(node), subject)


def _fitting(value: Constant | None, subject: _Subject) -> Value | None:
    kind = subject.kind
    if value is None:
        return None
    if subject.as_double and (isinstance(value, str | date) or not -MAX_EXACT < value < MAX_EXACT):
        return None
    if subject.field is not None and not compares(value, subject.field):
        return None
    if subject.path is not None or kind == "dynamic":
        return _plain_number(value) if not isinstance(value, str | bool) else value
    if kind == "timestamp":
        return time_of(value)
    if kind in ("date", "timestamp_ntz"):  # engines read other texts in ways of their own
        return time_of(value) if not isinstance(value, str) or _PLAIN_TIMES[kind].fullmatch(value) else None
    if kind == "decimal":  # compared with a double, engines round it
        return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind in ("int", "long", "real") and not isinstance(value, bool):
        return _plain_number(value)
    return None


def _plain_number(value: Constant) -> Value | None:
    match value:
        case Decimal():
            real = float(value)
            return int(value) if value == int(value) else real if abs(real) < MAX_EXACT else None
        case float() if not math.isfinite(value):
            return None
        case int() | float():
            return value
        case datetime() | date() | str():
            return None


def _in(node: exp.In, types: Mapping[str, DataType]) -> Pushed | None:
    listed = values_of(node)
    constants = listed if listed is not None else [constant_of(each) for each in node.expressions]
    if isinstance(node.this, exp.Lower):
        return _in_small_letters(node.this, constants, types)
    subject = _subject(node.this, types)
    if subject is None:
        return None
    values = [_fitting(each, subject) for each in constants]
    known = tuple(value for value in values if value is not None)
    return _asked(subject, InSet(subject.column, known)) if len(known) == len(values) else None


def _compared(node: exp.Expr, types: Mapping[str, DataType]) -> Pushed | None:
    kind, left, right = type(node), node.this, node.expression
    if kind is exp.EQ and isinstance(left, exp.Lower):
        return _in_small_letters(left, [constant_of(right)], types)
    subject = _subject(left, types)
    if subject is None:
        kind, right = _FLIPPED[kind], left
        subject = _subject(node.expression, types)
    if subject is None or (value := _value(right, subject)) is None:
        return None
    name = subject.column
    if kind in (exp.EQ, exp.NullSafeEQ):
        return _asked(subject, Equals(name, value))
    if kind is exp.NullSafeNEQ or (kind is exp.NEQ and subject.null_is is not None):
        return _other_than(subject, value, types)
    if kind is exp.NEQ:
        equal = _asked(subject, Equals(name, value))
        return _negated(equal, types) if equal is not None and equal.exact else None
    if kind in (exp.GT, exp.GTE):
        return _asked(subject, Range(name, low=value, include_low=kind is exp.GTE))
    return _asked(subject, Range(name, high=value, include_high=kind is exp.LTE))


def _in_small_letters(
    lowered: exp.Lower, values: Sequence[Constant | None], types: Mapping[str, DataType]
) -> Pushed | None:
    """Ask for a part of each text that a text is compared with in small letters, as engines have them."""
    subject = _subject(lowered.this, types)
    if subject is None or subject.kind != "string" or not 0 < len(values) <= MAX_TERMS:
        return None
    parts = [max(_UNLIKE.split(value), key=len) if isinstance(value, str) else "" for value in values]
    found = [_asked(subject, StringContains(subject.column, part)) if part else None for part in parts]
    asked = tuple(each.predicate for each in found if each is not None)
    if len(asked) < len(values):
        return None
    return Pushed(asked[0] if len(asked) == 1 else Or(asked), exact=False)


def _like(node: exp.Like, types: Mapping[str, DataType]) -> Pushed | None:
    """Turn the patterns that ask for a part, a beginning or the whole; of others the beginning is asked."""
    subject, pattern = _text_subject(node.this, types), constant_of(node.expression)
    if subject is None or not isinstance(pattern, str) or "\\" in pattern:
        return None
    name, core = subject.column, pattern.strip("%")
    if _WILDCARD.search(core):
        start = _WILDCARD.split(pattern)[0]
        found = _asked(subject, StartsWith(name, start, case_sensitive=True)) if start else None
        return None if found is None else Pushed(found.predicate, exact=False)
    if not core:
        return None
    match pattern.startswith("%"), pattern.endswith("%"):
        case False, False:
            return _asked(subject, Equals(name, core))
        case False, True:
            return _asked(subject, StartsWith(name, core, case_sensitive=True))
        case starts, ends:
            found = _asked(subject, StringContains(name, core, case_sensitive=True))
            return found if found is None or (starts and ends) else Pushed(found.predicate, exact=False)


def _ilike(node: exp.ILike, types: Mapping[str, DataType]) -> Pushed | None:
    """Ask for the longest part of a pattern without regard to case; the engine asks for the whole of it."""
    subject, pattern = _text_subject(node.this, types), constant_of(node.expression)
    if subject is None or not isinstance(pattern, str) or "\\" in pattern:
        return None
    parts = [part for between in _WILDCARD.split(pattern) for part in _UNLIKE.split(between)]
    longest = max(parts, key=len)
    if not longest:
        return None
    begins = parts[0] == longest
    leaf = StartsWith(subject.column, longest) if begins else StringContains(subject.column, longest)
    found = _asked(subject, leaf)
    return None if found is None else Pushed(found.predicate, exact=False)


def _text_subject(node: exp.Expr, types: Mapping[str, DataType]) -> _Subject | None:
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "tide_text":
        node = node.expressions[0]
    subject = _subject(node, types)
    if subject is None or (subject.path is None and subject.kind not in ("string", "dynamic")):
        return None
    if subject.field not in (None, "string"):
        return None
    return subject


def _text(node: exp.Expr, types: Mapping[str, DataType]) -> Pushed | None:
    """Turn the functions that search text."""
    if isinstance(node, exp.Anonymous):
        if str(node.this).lower() in _SEVERAL_TERMS:
            return _terms(node, types)
        if len(node.expressions) != 2:
            return _exists(node, types)
        name, (first, second) = str(node.this).lower(), node.expressions
    else:
        name, first, second = type(node).__name__, node.this, node.expression
    subject, sought = _text_subject(first, types), constant_of(second)
    if subject is None or not isinstance(sought, str):
        return None
    column = subject.column
    match name:
        case "tide_has":
            return _asked(subject, StringHas(column, sought))
        case "tide_contains":
            return _asked(subject, StringContains(column, sought))
        case "tide_contains_cs" | "Contains":
            return _asked(subject, StringContains(column, sought, case_sensitive=True))
        case "tide_startswith":
            return _asked(subject, StartsWith(column, sought))
        case "tide_startswith_cs" | "StartsWith":
            return _asked(subject, StartsWith(column, sought, case_sensitive=True))
        case _ if name in _PARTS:
            if not sought:
                return None
            found = _asked(subject, StringContains(column, sought, case_sensitive=name.endswith("_cs")))
            return None if found is None else Pushed(found.predicate, exact=False)
        case "tide_matches" | "RegexpLike":
            found = _asked(subject, StringMatches(column, sought))
            return None if found is None else Pushed(found.predicate, exact=name == "tide_matches")
        case _:
            return None


def _terms(node: exp.Anonymous, types: Mapping[str, DataType]) -> Pushed | None:
    """Turn the functions that look for any, or all, of some terms."""
    subject, sought = _text_subject(node.expressions[0], types), [constant_of(each) for each in node.expressions[1:]]
    terms = [each for each in sought if isinstance(each, str)]
    if subject is None or len(terms) < len(sought) or not 0 < len(terms) <= MAX_TERMS:
        return None
    parts = [found for term in terms if (found := _asked(subject, StringHas(subject.column, term))) is not None]
    if len(parts) < len(terms):
        return None
    if str(node.this).lower() == "tide_has_all" or len(parts) == 1:
        return both(parts)
    return Pushed(Or(tuple(part.predicate for part in parts)), all(part.exact for part in parts))


def _exists(node: exp.Anonymous, types: Mapping[str, DataType]) -> Pushed | None:
    if node.this != "tide_exists" or len(node.expressions) != 1:
        return None
    subject = _subject(node.expressions[0], types)
    if subject is None or subject.path is None:
        return None
    return Pushed(DynamicPathExists(subject.column, subject.path))
