"""Say which rows are wanted, as plain values that statistics and scans can both judge.

A predicate asks a three-valued question of each row: true, false, or null when the column is null. Only true rows are
wanted. Numbers order as in Spark and DuckDB: NaN equals itself and is above every other number; text orders by its
UTF-8 bytes; a time is nanoseconds since 1970 UTC. It does not read rows or statistics.

``repr`` of a predicate is the text a person would write::

    >>> And((Equals("service", "auth"), Not(IsNull("level"))))
    (service == 'auth' and not (level is null))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from tidelake.errors import InvalidInputError

Value: TypeAlias = bool | int | float | str | bytes | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, repr=False)
class TimeRange:
    """A timestamp in ``[start_ns, end_ns)``; None is unbounded."""

    column: str
    start_ns: int | None
    end_ns: int | None

    def __repr__(self) -> str:
        return f"{self.column} in [{_time_text(self.start_ns, '-∞')}, {_time_text(self.end_ns, '∞')})"


@dataclass(frozen=True, slots=True, repr=False)
class Equals:
    """The column has exactly this value."""

    column: str
    value: Value

    def __post_init__(self) -> None:
        _check_value(self.value)

    def __repr__(self) -> str:
        return f"{self.column} == {_text(self.value)}"


@dataclass(frozen=True, slots=True, repr=False)
class InSet:
    """The column has one of these values."""

    column: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        for value in self.values:
            _check_value(value)

    def __repr__(self) -> str:
        return f"{self.column} in ({', '.join(map(_text, self.values))})"


@dataclass(frozen=True, slots=True, repr=False)
class Range:
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

    def __repr__(self) -> str:
        low = "" if self.low is None else f"{self.column} {'>=' if self.include_low else '>'} {_text(self.low)}"
        high = "" if self.high is None else f"{self.column} {'<=' if self.include_high else '<'} {_text(self.high)}"
        return f"({low} and {high})" if low and high else low or high


@dataclass(frozen=True, slots=True, repr=False)
class StringHas:
    """The text holds this term, whole, whatever its case: ``has "timeout"`` does not find ``timeouts``."""

    column: str
    term: str

    def __repr__(self) -> str:
        return f"{self.column} has {self.term!r}"


@dataclass(frozen=True, slots=True, repr=False)
class StringContains:
    """The text holds this needle anywhere, by default whatever its case."""

    column: str
    needle: str
    case_sensitive: bool = False

    def __repr__(self) -> str:
        return f"{self.column} contains{'_cs' if self.case_sensitive else ''} {self.needle!r}"


@dataclass(frozen=True, slots=True, repr=False)
class StartsWith:
    """The text begins with this prefix, by default whatever its case."""

    column: str
    prefix: str
    case_sensitive: bool = False

    def __repr__(self) -> str:
        return f"{self.column} startswith{'_cs' if self.case_sensitive else ''} {self.prefix!r}"


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathExists:
    """The dynamic value has something at this path, keys joined by dots."""

    column: str
    path: str

    def __repr__(self) -> str:
        return f"exists({self.column}[{self.path!r}])"


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathEquals:
    """The dynamic value has exactly this scalar at this path."""

    column: str
    path: str
    value: Value

    def __post_init__(self) -> None:
        _check_value(self.value)

    def __repr__(self) -> str:
        return f"{self.column}[{self.path!r}] == {_text(self.value)}"


@dataclass(frozen=True, slots=True, repr=False)
class DynamicPathTest:
    """The scalar at this path passes a test, whose own column is not looked at; null where the test does not apply."""

    column: str
    path: str
    test: PathTest

    def __repr__(self) -> str:
        return repr(replace(self.test, column=f"{self.column}[{self.path!r}]"))


@dataclass(frozen=True, slots=True, repr=False)
class IsNull:
    """The column is null. Never null itself."""

    column: str

    def __repr__(self) -> str:
        return f"{self.column} is null"


@dataclass(frozen=True, slots=True, repr=False)
class And:
    """Every part is true."""

    parts: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        _check_parts("and", self.parts)

    def __repr__(self) -> str:
        return "(" + " and ".join(map(repr, self.parts)) + ")"


@dataclass(frozen=True, slots=True, repr=False)
class Or:
    """At least one part is true."""

    parts: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        _check_parts("or", self.parts)

    def __repr__(self) -> str:
        return "(" + " or ".join(map(repr, self.parts)) + ")"


@dataclass(frozen=True, slots=True, repr=False)
class Not:
    """The part is false; a null part stays null."""

    part: Predicate

    def __repr__(self) -> str:
        return f"not ({self.part!r})"


PathTest: TypeAlias = InSet | Range | StringHas | StringContains | StartsWith
Leaf: TypeAlias = (
    TimeRange
    | Equals
    | InSet
    | Range
    | StringHas
    | StringContains
    | StartsWith
    | DynamicPathExists
    | DynamicPathEquals
    | DynamicPathTest
    | IsNull
)
Predicate: TypeAlias = Leaf | And | Or | Not


def leaves_of(predicate: Predicate) -> Iterator[Leaf]:
    """Give every leaf, left to right."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves_of(part)
        case Not(part):
            yield from leaves_of(part)
        case leaf:
            yield leaf


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Give the names of the columns that a predicate looks at."""
    return frozenset(leaf.column for leaf in leaves_of(predicate))


def fold(text: str) -> str:
    """Lower-case letter by letter, so that no other alphabet's letter turns into an ASCII one.

    The Kelvin sign and the dotted capital I keep their case: tokens end at them, and a search must agree with tokens.
    """
    if text.isascii():
        return text.lower()
    return "".join(char if char in "\u212a\u0130" else char.lower() for char in text)


def text_holds(leaf: StringHas | StringContains | StartsWith, text: str) -> bool:
    """Say whether one text satisfies a text predicate: the meaning that every faster judge must agree with."""
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
    """Give a time as nanoseconds since 1970 UTC; a time without a zone is UTC."""
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000


def _check_value(value: object) -> None:
    if not isinstance(value, bool | int | float | str | bytes | datetime):
        raise InvalidInputError(f"a predicate cannot compare with {value!r}; for null use IsNull")


def _check_parts(word: str, parts: tuple[Predicate, ...]) -> None:
    if not parts:
        raise InvalidInputError(f"{word} of nothing: give at least one part")


def _text(value: Value) -> str:
    return f"datetime({value.isoformat()})" if isinstance(value, datetime) else repr(value)


def _time_text(ns: int | None, unbounded: str) -> str:
    if ns is None:
        return unbounded
    try:
        return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{ns} ns"
