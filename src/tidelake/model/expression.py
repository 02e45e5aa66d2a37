"""Write predicates as people do: with ``col`` in Python, or as text.

    >>> (col("level") == "ERROR") & ~col("attributes")["http.method"].isin(["GET", "HEAD"])
    (level == 'ERROR' and not (attributes['http.method'] in ('GET', 'HEAD')))
    >>> parse_where('level == "ERROR" and attributes["http.method"] !in ("GET", "HEAD")')
    (level == 'ERROR' and not (attributes['http.method'] in ('GET', 'HEAD')))

The text, where a subject is a column or a path into a dynamic one::

    level == "ERROR"   level = 'ERROR'   n != 5   n <> 5   n >= 2.5   1 <= n < 5   n between (1 .. 5)
    level in ("a", "b")   n !in (1, 2)   x is null   x is not null   exists(attributes["a.b"])
    message has "timeout"   message contains "Out"   message startswith_cs "GET"   message !has "x"
    message matches regex "^a.*b$"   message matches regex @"\\d+"
    ts >= datetime(2026-01-01T00:00:00Z)   ts in [2026-01-01T00:00:00Z, 2026-02-01T00:00:00Z)
    maybe(attributes["a.b"] has "timeout")   (also of what is there and no text)
    attributes["http.status"] == 500   attributes.http.status == 500   attributes["tags"][0] == "x"
    l2_distance(embedding, [0.1, 0.2]) < 0.5   cosine_distance(embedding, [1, 0]) <= 0.2
    `odd name` == 1   ['odd name'] == 1   not a == 1 and (b == 2 or c == 3)

Words are read in any case. Names are checked, and dots in them understood, when the columns are given. It does not know
types: ``scan.binding.check`` does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any, TypeAlias, TypeVar, cast

from tidelake.errors import InvalidInputError, QueryError
from tidelake.model.lexer import Token, cut, did_you_mean, error_at, literal_of, name_of, time_ns_of
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
    DynamicPathTest,
    Equals,
    InSet,
    IsNull,
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
    measure_text,
)
from tidelake.model.vectors import METRICS, Metric

MAX_NESTING = 100  # parentheses and nots within each other: whoever reads a predicate recurses
NAMES_SHOWN = 20  # columns listed in an error: a wide table's names would bury it

T = TypeVar("T")

_SIGNS: dict[str, Callable[[Any, Value], Predicate]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _Subject:
    """What a question is asked of; a comparison gives the predicate."""

    __slots__ = ()

    def _equals(self, value: Value) -> Predicate:
        raise NotImplementedError

    def _asked(self, test: PathTest) -> Predicate:
        """Ask a test, made without a column, of this subject."""
        raise NotImplementedError

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._equals(_literal(other))

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return Not(self._equals(_literal(other)))

    def __lt__(self, other: object) -> Predicate:
        return self._asked(Range("", high=_literal(other), include_high=False))

    def __le__(self, other: object) -> Predicate:
        return self._asked(Range("", high=_literal(other)))

    def __gt__(self, other: object) -> Predicate:
        return self._asked(Range("", low=_literal(other), include_low=False))

    def __ge__(self, other: object) -> Predicate:
        return self._asked(Range("", low=_literal(other)))

    def isin(self, values: Iterable[object]) -> Predicate:
        """Ask for one of these values."""
        if isinstance(values, str | bytes):
            raise InvalidInputError(f"isin takes a list of values, not {values!r}")
        return self._asked(InSet("", tuple(map(_literal, values))))

    def between(self, low: object, high: object) -> Predicate:
        """Ask for a value from low to high, both included."""
        return self._asked(Range("", _literal(low), _literal(high)))

    def has(self, term: str) -> Predicate:
        """Ask for a whole term, whatever its case."""
        return self._asked(StringHas("", term))

    def contains(self, needle: str, *, case_sensitive: bool = False) -> Predicate:
        """Ask for a part of a text."""
        return self._asked(StringContains("", needle, case_sensitive))

    def startswith(self, prefix: str, *, case_sensitive: bool = False) -> Predicate:
        """Ask for a beginning of a text."""
        return self._asked(StartsWith("", prefix, case_sensitive))

    def matches(self, regex: str) -> Predicate:
        """Ask for a match of a regular expression, in RE2's syntax, anywhere in a text."""
        return self._asked(StringMatches("", regex))

    def is_null(self) -> Predicate:
        """Ask for no value; at a path, for nothing or JSON's null."""
        return self._asked(IsNull(""))

    def is_not_null(self) -> Predicate:
        return Not(self.is_null())


class ColumnSubject(_Subject):
    """A column, by name; ``[...]`` steps into a dynamic one."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, step: str | int) -> PathSubject:
        return PathSubject(self.name, step if isinstance(step, str) else f"[{step}]")

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def _equals(self, value: Value) -> Predicate:
        return Equals(self.name, value)

    def _asked(self, test: PathTest) -> Predicate:
        return replace(test, column=self.name)


class PathSubject(_Subject):
    """What a dynamic column has at a path; ``[...]`` steps on, by key or by place in a list."""

    __slots__ = ("column", "path")

    def __init__(self, column: str, path: str) -> None:
        self.column, self.path = column, path

    def __getitem__(self, step: str | int) -> PathSubject:
        return PathSubject(self.column, f"{self.path}.{step}" if isinstance(step, str) else f"{self.path}[{step}]")

    def __repr__(self) -> str:
        return f"col({self.column!r})[{self.path!r}]"

    def exists(self) -> Predicate:
        """Ask for anything at all at the path, JSON's null included."""
        return DynamicPathExists(self.column, self.path)

    def _equals(self, value: Value) -> Predicate:
        return DynamicPathEquals(self.column, self.path, value)

    def _asked(self, test: PathTest) -> Predicate:
        return DynamicPathTest(self.column, self.path, test)


class Distance(_Subject):
    """How far a column's vectors are from a query, or their product with it: compared in ``where``, or scanned."""

    __slots__ = ("column", "metric", "name", "query")

    def __init__(self, column: str, metric: Metric, query: tuple[float, ...], name: str | None = None) -> None:
        self.column, self.metric, self.query = column, metric, query
        self.name: str = name or metric

    def alias(self, name: str) -> Distance:
        """Name the column that a scan gives it as."""
        return Distance(self.column, self.metric, self.query, name)

    def __repr__(self) -> str:
        return measure_text(self.column, self.metric, self.query)

    def _equals(self, value: Value) -> Predicate:
        return self._asked(Range("", value, value))

    def _asked(self, test: PathTest) -> Predicate:
        if not isinstance(test, Range) or not all(_is_number(bound) for bound in (test.low, test.high)):
            raise InvalidInputError(f"{self.metric} is a number: compare it with one", kind="type_mismatch")
        return VectorTest(self.column, self.metric, self.query, test)


Subject: TypeAlias = ColumnSubject | PathSubject | Distance


def col(name: str) -> ColumnSubject:
    """Name a column, to compare it: ``col("level") == "ERROR"``."""
    return ColumnSubject(name)


def cosine_distance(column: str | ColumnSubject, query: Iterable[float]) -> Distance:
    """Measure the angle between a column's vectors and a query: 0 is the same direction, 2 the opposite one."""
    return _distance("cosine_distance", column, query)


def l2_distance(column: str | ColumnSubject, query: Iterable[float]) -> Distance:
    """Measure the Euclidean distance of a column's vectors from a query."""
    return _distance("l2_distance", column, query)


def inner_product(column: str | ColumnSubject, query: Iterable[float]) -> Distance:
    """Multiply a column's vectors with a query: the larger, the more alike."""
    return _distance("inner_product", column, query)


def parse_where(text: str, *, columns: Sequence[str] | None = None) -> Predicate:
    """Read the text of a predicate; QueryError shows the place of a mistake."""
    return _Parser(text, columns).parse()


def unknown_column(name: str, known: Sequence[str]) -> QueryError:
    """Return that there is no such column, which ones are close, and which there are."""
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    shown = ", ".join(known[:NAMES_SHOWN]) + more
    error = QueryError(f"no column {name!r}{did_you_mean(name, known)}", columns=shown, kind="unknown_column")
    return error.about(name)


def _literal(value: Any) -> Value:
    """Take a Python value as a literal: a date is its midnight, an array's scalar is its value."""
    if value is None:
        raise InvalidInputError("nothing compares with None; ask is_null() or is_not_null()")
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    found: Value = value.item() if hasattr(value, "item") else value
    return found


def _distance(metric: Metric, column: str | ColumnSubject, query: Iterable[float]) -> Distance:
    name = column.name if isinstance(column, ColumnSubject) else column
    if isinstance(query, str | bytes):
        raise InvalidInputError(f"{metric} takes a list of numbers, not {query!r}")
    numbers = tuple(map(_literal, query))
    if not numbers or not all(map(_is_number, numbers)):
        raise InvalidInputError(f"{metric} takes a list of numbers", column=name)
    return Distance(name, metric, tuple(map(float, cast("tuple[float, ...]", numbers))))


def _is_number(value: Value | None) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


class _Parser:
    """Read one text; each method reads what it is named for, from the next token on."""

    def __init__(self, text: str, columns: Sequence[str] | None) -> None:
        self._text, self._columns = text, columns
        self._tokens = cut(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> Predicate:
        if self._peek().kind == "end":
            raise self._error("an empty condition: write one such as level == 'ERROR'")
        found = self._either()
        token = self._peek()
        if token.kind != "end":
            raise self._error(f"expected and, or, or the end, found {token}{did_you_mean(token.text, ('and', 'or'))}")
        return found

    def _either(self) -> Predicate:
        parts = [self._both()]
        while self._take_word("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Predicate:
        parts = [self._negation()]
        while self._take_word("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self) -> Predicate:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._error(f"nested too deeply, more than {MAX_NESTING} levels")
        if self._take_word("not"):
            found: Predicate = Not(self._negation())
        elif self._take_sign("("):
            found = self._either()
            self._expect_sign(")")
        else:
            found = self._condition()
        self._depth -= 1
        return found

    def _condition(self) -> Predicate:
        if self._peek().is_word("exists") and self._peek(1).is_sign("("):
            return self._existence()
        if self._peek().is_word("maybe") and self._peek(1).is_sign("("):
            return self._possibility()
        if self._is_literal(self._peek()):
            return self._literal_first()
        subject = self._subject()
        token = self._peek()
        if self._take_sign(*_SIGNS):
            return _SIGNS[token.text](subject, self._value())
        if self._take_word("is"):
            negated = self._take_word("not")
            self._expect_word("null")
            return subject.is_not_null() if negated else subject.is_null()
        negated = self._take_sign("!") or self._take_word("not")
        word = self._peek()
        ask = _WORDS.get(word.text.lower()) if word.kind == "name" else None
        if ask is None:
            raise self._no_operator()
        self._next += 1
        found = ask(self, subject)
        return Not(found) if negated else found

    def _existence(self) -> Predicate:
        self._next += 2
        token, subject = self._peek(), self._subject()
        if not isinstance(subject, PathSubject):
            raise self._error(f"a path exists or not, a column is null or not: write {token} is not null", token)
        self._expect_sign(")")
        return subject.exists()

    def _possibility(self) -> Predicate:
        self._next += 2
        token, found = self._peek(), self._condition()
        self._expect_sign(")")
        match found:
            case DynamicPathTest(column, path, StringHas() | StringContains() | StartsWith() as test):
                return DynamicPathMayHold(column, path, test)
            case _:
                raise self._error("maybe is asked of a path that has, contains or starts with a text", token)

    def _literal_first(self) -> Predicate:
        """Read ``5 < x``, or a range, ``1 <= x < 5``."""
        low, token = self._value(), self._peek()
        if not self._take_sign(*_SIGNS):
            raise self._error(f"expected a comparison, found {token}")
        subject, second = self._subject(), self._peek()
        if token.text not in _MIRRORED or not self._take_sign(*_MIRRORED):
            return _SIGNS[_MIRRORED.get(token.text, token.text)](subject, low)
        if second.text[0] != token.text[0]:
            raise self._error(
                f"the two sides of a range point the same way: {token.text} and {second.text} do not", second
            )
        high = self._value()
        included, then_included = token.text.endswith("="), second.text.endswith("=")
        if token.text[0] == "<":
            return subject._asked(Range("", low, high, included, then_included))
        return subject._asked(Range("", high, low, then_included, included))

    def _subject(self) -> Subject:
        """Read a column or a path: names, then steps in brackets or after dots."""
        token = self._peek()
        subject: Subject
        if token.is_word(*METRICS) and self._peek(1).is_sign("("):
            return self._measure(token)
        if token.kind == "name" and not token.is_word("and", "or", "not", "in", "is", "null"):
            subject = self._dotted()
        elif token.kind == "quoted":
            self._next += 1
            subject = self._column(name_of(token), token)
        elif token.is_sign("[") and self._peek(1).kind in ("string", "verbatim"):
            self._next += 1
            subject = self._column(self._string(), token)
            self._expect_sign("]")
        else:
            raise self._error(f"expected a column, found {token}")
        while True:
            if self._take_sign("["):
                subject = subject[self._step()]
                self._expect_sign("]")
            elif self._take_sign("."):
                subject = subject[self._name("expected a name after the dot")]
            else:
                return subject

    def _measure(self, token: Token) -> Distance:
        """Read ``l2_distance(embedding, [0.1, 0.2])``."""
        self._next += 2
        column = self._subject()
        if not isinstance(column, ColumnSubject):
            raise self._error(f"{token} measures a column", token)
        self._expect_sign(",")
        numbers = self._values("[", "]")
        self._expect_sign(")")
        metric = cast(Metric, token.text.lower())
        return self._checked(token, lambda _: _distance(metric, column, cast("list[float]", numbers)))

    def _dotted(self) -> ColumnSubject | PathSubject:
        """Read a plain name; with dots, the longest beginning that is a column, then a path."""
        first, names = self._peek(), [self._name("expected a column")]
        while self._peek().is_sign(".") and self._peek(1).kind == "name":
            self._next += 1
            names.append(self._name("expected a name after the dot"))
        if self._columns is None and len(names) > 1:
            column, path = names[0], ".".join(names[1:])
            raise self._error(
                f"a dot in a name that is not known: write {column}[{path!r}] or `{'.'.join(names)}`", first
            )
        known = self._columns or ()
        count = next((count for count in range(len(names), 1, -1) if ".".join(names[:count]) in known), 1)
        column, path = ".".join(names[:count]), ".".join(names[count:])
        subject = self._column(column, first, written=".".join(names))
        return subject[path] if path else subject

    def _column(self, name: str, token: Token, *, written: str = "") -> ColumnSubject:
        if self._columns is not None and name not in self._columns:
            error = unknown_column(written if did_you_mean(written, self._columns) else name, self._columns)
            raise self._error(error.message, token, kind=error.kind, **error.facts).about(name)
        return col(name)

    def _step(self) -> str | int:
        token = self._peek()
        if token.kind == "number" and token.text.isdecimal():
            self._next += 1
            return int(token.text)
        return self._string("expected a key in quotes, or a place in a list")

    def _value(self) -> Value:
        token = self._peek()
        self._next += 1
        match token.kind, token.text.lower():
            case "sign", "-":
                number = self._peek()
                if number.kind != "number" and not number.is_word("inf"):
                    raise self._error(f"expected a number, found {number}")
                return -cast(float, self._value())
            case "name", "true" | "false":
                return token.is_word("true")
            case "name", "nan" | "inf":
                return float(token.text)
            case "name", "null":
                raise self._error("nothing compares with null: write is null, or is not null", token)
            case "name", _:
                hint = f"text stands in quotes, '{token}'"
                raise self._error(f"expected a value, found the name {token}: {hint}", token)
            case _:
                return self._checked(token, literal_of)

    def _values(self, opening: str = "(", closing: str = ")") -> tuple[Value, ...]:
        self._expect_sign(opening)
        values: list[Value] = []
        while not self._take_sign(closing):
            if values:
                self._expect_sign(",")
            values.append(self._value())
        return tuple(values)

    def _window(self, subject: Subject) -> Predicate:
        """Read a window of time, ``[from, to)``."""
        start = self._expect_sign("[")
        if not isinstance(subject, ColumnSubject):
            raise self._error("a window of time is asked of a column", start)
        low = self._bound_ns("-∞")
        self._expect_sign(",")
        high = self._bound_ns("∞")
        self._expect_sign(")")
        return TimeRange(subject.name, low, high)

    def _bound_ns(self, infinity: str) -> int | None:
        negative, token = self._take_sign("-"), self._peek()
        self._next += 1
        if token.is_sign("∞") and negative == (infinity == "-∞"):
            return None
        if token.kind == "number" and token.text.isdecimal():
            self._expect_word("ns")
            return -int(token.text) if negative else int(token.text)
        if token.kind != "time" or negative:
            raise self._error(f"expected a time, {infinity}, or a number and ns, found {token}", token)
        return self._checked(token, time_ns_of)

    def _range(self, subject: Subject) -> Predicate:
        self._expect_sign("(")
        low = self._value()
        self._expect_sign("..")
        high = self._value()
        self._expect_sign(")")
        return subject.between(low, high)

    def _regex(self, subject: Subject) -> Predicate:
        self._expect_word("regex")
        token, pattern = self._peek(), self._string()
        return self._checked(token, lambda _: subject.matches(pattern))

    def _string(self, expected: str = "expected text in quotes") -> str:
        token = self._peek()
        if token.kind not in ("string", "verbatim"):
            raise self._error(f"{expected}, found {token}")
        self._next += 1
        return str(self._checked(token, literal_of))

    def _name(self, expected: str) -> str:
        token = self._peek()
        if token.kind not in ("name", "quoted"):
            raise self._error(f"{expected}, found {token}")
        self._next += 1
        return name_of(token)

    def _is_literal(self, token: Token) -> bool:
        return (
            token.kind in ("string", "verbatim", "bytes", "number", "time")
            or token.is_sign("-")
            or token.is_word("true", "false", "nan", "inf")
        )

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take_word(self, *words: str) -> bool:
        taken = self._peek().is_word(*words)
        self._next += taken
        return taken

    def _take_sign(self, *signs: str) -> bool:
        taken = self._peek().is_sign(*signs)
        self._next += taken
        return taken

    def _expect_word(self, word: str) -> None:
        token = self._peek()
        if not self._take_word(word):
            raise self._error(f"expected {word}, found {token}{did_you_mean(token.text, (word,))}")

    def _expect_sign(self, sign: str) -> Token:
        token = self._peek()
        if not self._take_sign(sign):
            raise self._error(f"expected {sign}, found {token}")
        return token

    def _no_operator(self) -> QueryError:
        token = self._peek()
        if token.is_word("has_cs"):
            return self._error("has takes any case; contains_cs is the search that does not")
        if token.kind == "end" or token.is_word("and", "or") or token.is_sign(")"):
            return self._error(f"expected a comparison, found {token}: of a truth value write == true")
        words = (*_WORDS, "is", "and", "or") if token.kind == "name" else ()
        return self._error(f"expected a comparison, found {token}{did_you_mean(token.text, words)}")

    def _checked(self, token: Token, read: Callable[[Token], T]) -> T:
        """Read what may be refused, and then show where it stands."""
        try:
            return read(token)
        except InvalidInputError as error:
            kind = None if error.kind == InvalidInputError.default_kind else error.kind
            raise self._error(error.message, token, kind=kind) from None
        except ValueError as error:
            raise self._error(f"cannot read this: {error}", token) from None

    def _error(
        self, message: str, token: Token | None = None, *, kind: str | None = None, **facts: object
    ) -> QueryError:
        return error_at(self._text, (token or self._peek()).at, message, kind=kind, **facts)


# What follows a subject; each reads the rest.
_WORDS: dict[str, Callable[[_Parser, Subject], Predicate]] = {
    "in": lambda parser, subject: (
        parser._window(subject) if parser._peek().is_sign("[") else subject.isin(parser._values())
    ),
    "between": lambda parser, subject: parser._range(subject),
    "has": lambda parser, subject: subject.has(parser._string()),
    "contains": lambda parser, subject: subject.contains(parser._string()),
    "contains_cs": lambda parser, subject: subject.contains(parser._string(), case_sensitive=True),
    "startswith": lambda parser, subject: subject.startswith(parser._string()),
    "startswith_cs": lambda parser, subject: subject.startswith(parser._string(), case_sensitive=True),
    "matches": lambda parser, subject: parser._regex(subject),
}
