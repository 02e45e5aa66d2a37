"""Define which rows are wanted, as plain values that statistics and scans can both judge.

A predicate asks a three-valued question of each row: true, false, or null when the column is null. Only true rows are
wanted. Numbers order as in Spark and DuckDB: NaN equals itself and is above every other number; text orders by its
UTF-8 bytes; a time is nanoseconds since 1970 UTC. It does not read rows or statistics.

Predicates combine with ``&``, ``|`` and ``~``. ``repr`` of a predicate is the text a person would write, and
``expression.parse_where`` reads it back to an equal predicate::

    >>> Equals("service", "auth") & ~IsNull("level")
    (service == 'auth' and not (level is null))

Not said, and so not read back: the column of a path's test, whether a bound that is not there is included, and that an
And or an Or has a single part. NaN reads back, and is not equal to itself in Python. A date reads back as its midnight
and a decimal as a number or a text, which columns of these types take for the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias, cast

from tidelake.errors import InvalidInputError, QueryError
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from tidelake.model.vectors import Metric
else:
    pa, pc = deferred("pyarrow"), deferred("pyarrow.compute")  # only a search by pattern needs them


class Nanoseconds(int):
    """A time that is known to be nanoseconds since 1970 UTC; of a plain number the size tells the unit."""

    __slots__ = ()


Value: TypeAlias = bool | int | float | str | bytes | datetime | date | Decimal

# Words of the text of a predicate; a column with such a name, in any case, is written in backquotes.
KEYWORDS = frozenset(
    ("and", "or", "not", "in", "is", "null", "true", "false", "nan", "inf", "has", "contains", "contains_cs",
     "startswith", "startswith_cs", "between", "matches", "regex", "exists", "datetime")
)  # fmt: skip
PLAIN_NAME = re.compile(r"[^\W\d]\w*")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Combined:
    """Combine predicates with ``&``, ``|`` and ``~``, flat where the meaning is the same."""

    __slots__ = ()

    def __and__(self, other: Predicate) -> And:
        return And((*_parts_of(And, self), *_parts_of(And, other))) if isinstance(other, _Combined) else NotImplemented

    def __or__(self, other: Predicate) -> Or:
        return Or((*_parts_of(Or, self), *_parts_of(Or, other))) if isinstance(other, _Combined) else NotImplemented

    def __bool__(self) -> bool:
        """Refuse: Python asks this for ``and``, ``or``, ``not`` and chained comparisons, and would lose a part."""
        raise InvalidInputError(
            "a predicate is asked of rows and is neither true nor false itself: combine predicates with & | ~, each in "
            "parentheses, and write a range as col(...).between(low, high)",
            predicate=repr(self),
            kind="not_a_truth_value",
        )

    def __invert__(self) -> Predicate:
        return self.part if isinstance(self, Not) else Not(cast("Predicate", self))


class _Asked(_Combined):
    """Say what is asked of a column; of a dynamic path the same can be asked."""

    __slots__ = ()

    column: str

    def __repr__(self) -> str:
        return self._said_of(_name_text(self.column))

    def _said_of(self, subject: str) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, repr=False)
class TimeRange(_Asked):
    """A timestamp in ``[start_ns, end_ns)``; None is unbounded."""

    column: str
    start_ns: int | None
    end_ns: int | None

    def _said_of(self, subject: str) -> str:
        return f"{subject} in [{_time_text(self.start_ns, '-∞')}, {_time_text(self.end_ns, '∞')})"


@dataclass(frozen=True, slots=True, repr=False)
class Equals(_Asked):
    """The column has exactly this value."""

    column: str
    value: Value

    def __post_init__(self) -> None:
        _check_value(self.value)

    def _said_of(self, subject: str) -> str:
        return f"{subject} == {_text(self.value)}"


@dataclass(frozen=True, slots=True, repr=False)
class InSet(_Asked):
    """The column has one of these values."""

    column: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        for value in self.values:
            _check_value(value)

    def _said_of(self, subject: str) -> str:
        return f"{subject} in ({', '.join(map(_text, self.values))})"


@dataclass(frozen=True, slots=True, repr=False)
class Range(_Asked):
    """The column lies between two values; None is unbounded."""

    column: str
    low: Value | None = None
    high: Value | None = None
    include_low: bool = True
    include_high: bool = True

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise InvalidInputError("a range needs at least one bound", column=self.column)
        for value in (self.low, self.high):
            if value is not None:
                _check_value(value)

    def _said_of(self, subject: str) -> str:
        if self.low is None and self.high is not None:
            return f"{subject} {'<=' if self.include_high else '<'} {_text(self.high)}"
        if self.high is None and self.low is not None:
            return f"{subject} {'>=' if self.include_low else '>'} {_text(self.low)}"
        below, above = ("<=" if included else "<" for included in (self.include_low, self.include_high))
        return f"{_text(cast(Value, self.low))} {below} {subject} {above} {_text(cast(Value, self.high))}"


@dataclass(frozen=True, slots=True, repr=False)
class StringHas(_Asked):
    """The text holds this term, whole, whatever its case: ``has "timeout"`` does not find ``timeouts``."""

    column: str
    term: str

    def _said_of(self, subject: str) -> str:
        return f"{subject} has {_text(self.term)}"


@dataclass(frozen=True, slots=True, repr=False)
class StringContains(_Asked):
    """The text holds this needle anywhere, by default whatever its case."""

    column: str
    needle: str
    case_sensitive: bool = False

    def _said_of(self, subject: str) -> str:
        return f"{subject} contains{'_cs' if self.case_sensitive else ''} {_text(self.needle)}"


@dataclass(frozen=True, slots=True, repr=False)
class StartsWith(_Asked):
    """The text begins with this prefix, by default whatever its case."""

    column: str
    prefix: str
    case_sensitive: bool = False

    def _said_of(self, subject: str) -> str:
        return f"{subject} startswith{'_cs' if self.case_sensitive else ''} {_text(self.prefix)}"


@dataclass(frozen=True, slots=True, repr=False)
class StringMatches(_Asked):
    """The text has a match of this regular expression, in RE2's syntax, anywhere."""

    column: str
    pattern: str

    def __post_init__(self) -> None:
        _check_regex(self.pattern)

    def _said_of(self, subject: str) -> str:
        return f"{subject} matches regex {_text(self.pattern)}"


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathExists(_Combined):
    """The dynamic value has something at this path, keys joined by dots. Never null: a null value has nothing."""

    column: str
    path: str

    def __repr__(self) -> str:
        return f"exists({_path_text(self.column, self.path)})"


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathEquals(_Combined):
    """The dynamic value has exactly this scalar at this path; null where nothing, or JSON's null, is there."""

    column: str
    path: str
    value: Value

    def __post_init__(self) -> None:
        _check_value(self.value)

    def __repr__(self) -> str:
        return f"{_path_text(self.column, self.path)} == {_text(self.value)}"


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathTest(_Combined):
    """The scalar at this path passes a test, whose own column is not looked at; null where the test does not apply.

    A range applies to values of its bounds' type, a text test to texts. A set applies to whatever is there, as equality
    does: a value of another type is not in it. Nothing and JSON's null are null, and the test for null applies to all.
    """

    column: str
    path: str
    test: PathTest

    def __repr__(self) -> str:
        return self.test._said_of(_path_text(self.column, self.path))


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathMayHold(_Combined):
    """A text at this path passes a test, or something other than a text is there; null where nothing, or null, is.

    It is what a scan can say of a test of values that are made texts: those that are none are left to whoever does.
    """

    column: str
    path: str
    test: StringHas | StringContains | StartsWith

    def __repr__(self) -> str:
        return f"maybe({self.test._said_of(_path_text(self.column, self.path))})"


@dataclass(frozen=True, slots=True, repr=False)
class VectorTest(_Combined):
    """A vector's distance from ``query``, or product with it, lies in a range, whose own column is not looked at.

    Null where the vector is, and where a cosine is asked of a vector without direction.
    """

    column: str
    metric: Metric
    query: tuple[float, ...]
    test: Range

    def __repr__(self) -> str:
        return self.test._said_of(measure_text(self.column, self.metric, self.query))


@dataclass(frozen=True, slots=True, repr=False)
class IsNull(_Asked):
    """The column is null. Never null itself."""

    column: str

    def _said_of(self, subject: str) -> str:
        return f"{subject} is null"


@dataclass(frozen=True, slots=True, repr=False)
class And(_Combined):
    """Every part is true."""

    parts: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        _check_parts("and", self.parts)

    def __repr__(self) -> str:
        return "(" + " and ".join(map(repr, self.parts)) + ")"


@dataclass(frozen=True, slots=True, repr=False)
class Or(_Combined):
    """At least one part is true."""

    parts: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        _check_parts("or", self.parts)

    def __repr__(self) -> str:
        return "(" + " or ".join(map(repr, self.parts)) + ")"


@dataclass(frozen=True, slots=True, repr=False)
class Not(_Combined):
    """The part is false; a null part stays null."""

    part: Predicate

    def __repr__(self) -> str:
        return f"not {self.part!r}" if isinstance(self.part, And | Or) else f"not ({self.part!r})"


PathTest: TypeAlias = InSet | Range | StringHas | StringContains | StartsWith | StringMatches | IsNull
Leaf: TypeAlias = (
    TimeRange
    | Equals
    | InSet
    | Range
    | StringHas
    | StringContains
    | StartsWith
    | StringMatches
    | DynamicPathExists
    | DynamicPathEquals
    | DynamicPathTest
    | DynamicPathMayHold
    | VectorTest
    | IsNull
)
Predicate: TypeAlias = Leaf | And | Or | Not


def measure_text(column: str, metric: Metric, query: tuple[float, ...]) -> str:
    """Write a distance, or a product, as a person would."""
    return f"{metric}({_name_text(column)}, [{', '.join(map(_text, query))}])"


def leaves_of(predicate: Predicate) -> Iterator[Leaf]:
    """Yield every leaf, left to right."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves_of(part)
        case Not(part):
            yield from leaves_of(part)
        case leaf:
            yield leaf


def conjuncts_of(predicate: Predicate | None) -> Iterator[Predicate]:
    """Yield the parts that must all be true, left to right; of nothing there are none."""
    if isinstance(predicate, And):
        for part in predicate.parts:
            yield from conjuncts_of(part)
    elif predicate is not None:
        yield predicate


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the names of the columns that a predicate looks at."""
    return frozenset(leaf.column for leaf in leaves_of(predicate))


def fold(text: str) -> str:
    """Lower-case letter by letter, so that no other alphabet's letter turns into an ASCII one.

    The Kelvin sign and the dotted capital I keep their case: tokens end at them, and a search must agree with tokens.
    """
    if text.isascii():
        return text.lower()
    return "".join(char if char in "\u212a\u0130" else char.lower() for char in text)


def text_holds(leaf: StringHas | StringContains | StartsWith, text: str) -> bool:
    """Return whether one text satisfies a text predicate: the meaning that every faster judge must agree with."""
    match leaf:
        case StringHas(_, term):
            return _has(fold(text), fold(term))
        case StringContains(_, needle, case_sensitive):
            return needle in text if case_sensitive else fold(needle) in fold(text)
        case StartsWith(_, prefix, case_sensitive):
            return text.startswith(prefix) if case_sensitive else fold(text).startswith(fold(prefix))


def _has(text: str, term: str) -> bool:
    """Find a term whose ends, where they are letters or digits, do not touch further letters or digits."""
    at = text.find(term)
    while at >= 0:
        end = at + len(term)
        starts = at == 0 or not (term[:1].isalnum() and text[at - 1].isalnum())
        ends = end == len(text) or not (term[-1:].isalnum() and text[end].isalnum())
        if starts and ends:
            return True
        at = text.find(term, at + 1)
    return False


def time_ns(value: datetime) -> int:
    """Return a time as nanoseconds since 1970 UTC; a time without a zone is UTC."""
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000


def _check_value(value: object) -> None:
    if not isinstance(value, bool | int | float | str | bytes | date | Decimal):
        raise InvalidInputError(f"a predicate cannot compare with {value!r}; for null use IsNull")


def _check_parts(word: str, parts: tuple[Predicate, ...]) -> None:
    if not parts:
        raise InvalidInputError(f"{word} of nothing: give at least one part")


def _check_regex(pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise QueryError(f"not a regular expression: {reason}", pattern=repr(pattern), kind="bad_regex") from None


def _parts_of(kind: type[And] | type[Or], predicate: object) -> tuple[Predicate, ...]:
    return predicate.parts if isinstance(predicate, kind) else (cast("Predicate", predicate),)


def _name_text(name: str) -> str:
    if PLAIN_NAME.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _path_text(column: str, path: str) -> str:
    return f"{_name_text(column)}[{path!r}]"


def _text(value: Value) -> str:
    """Write a literal; the plain type's own form, whatever enum or array scalar the value is."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return f"datetime({value.isoformat()})"
        case Nanoseconds():
            return f"datetime({_time_text(value, '')})"
        case date():
            return f"datetime({value.isoformat()})"
        case Decimal():
            near = float(value)
            return repr(near) if math.isfinite(near) and Decimal(repr(near)) == value else repr(str(value))
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value)
        case str():
            return str.__repr__(value)
        case bytes():
            return bytes.__repr__(value)


def _time_text(ns: int | None, unbounded: str) -> str:
    if ns is None:
        return unbounded
    try:
        us_text = (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat().removesuffix("+00:00")
    except OverflowError:
        return f"{ns} ns"
    below_us = f"{ns % 1000:03}" if ns % 1000 else ""
    return us_text + ("" if "." in us_text or not below_us else ".000000") + below_us + "Z"
