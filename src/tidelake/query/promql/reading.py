"""Read the text of a query with ``promql-parser``, and say where it is wrong.

The parser tells what is wrong but not where. So the place is looked for: a name that the message quotes, a bracket that
is open, or the end of the longest beginning that would be a query. It does not evaluate anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import promql_parser

from tidelake.errors import InvalidInputError, QueryError, TidelakeError
from tidelake.model.lexer import error_at
from tidelake.query.promql.selecting import Condition, Conditions

LONGEST = 1 << 20  # characters of a query; past it, it is not one that somebody wrote
DEEPEST = 100  # brackets within brackets; the parser's stack ends the process some thousands further
MOST_OPERATORS = 300  # in one query, for the same reason: each is a level of the tree
LONGEST_MS = 1 << 53  # of a duration: some 285,000 years
TRIES = 400  # beginnings of a text that are looked at to find a mistake
_DURATION = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_UNITS_MS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000, 1)
_QUOTED = re.compile(r"'([^']+)'")
_QUOTES = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|\{[^{}\"'`]*\}", re.S)
_OPERATORS = re.compile(r"[-+*/%^<>]|==|!=|\b(?:and|or|unless|atan2)\b", re.I)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_SIGNS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}
NAME = "__name__"


def parse(text: str) -> promql_parser.Expr:
    """Return the tree of a query, or raise a QueryError with the place."""
    if len(text) > LONGEST:
        raise QueryError("the query is too long", kind="too_long", characters=len(text), limit=LONGEST)
    if not text.strip():
        raise QueryError("the query is empty", kind="syntax")
    plain = _QUOTES.sub("", text)
    if len(_OPERATORS.findall(plain)) > MOST_OPERATORS or _depth(plain) > DEEPEST:
        raise QueryError("the query is nested too deeply", kind="too_deep", brackets=DEEPEST, operators=MOST_OPERATORS)
    try:
        return promql_parser.parse(text)
    except (ValueError, OverflowError) as error:
        message = str(error)
    except BaseException as error:  # a panic of the parser is no Exception
        if type(error).__name__ != "PanicException":
            raise
        message = "the parser gave up"
    raise error_at(text, _place(text, message), message, kind="syntax")


def placed(error: QueryError, text: str, word: str) -> QueryError:
    """Return an error with the place of a word of the query, if it is there once."""
    if not word or "line" in error.facts or error.kind == "syntax":
        return error
    found = [match.start() for match in re.finditer(rf"(?<![\w:]){re.escape(word)}(?![\w:])", text)]
    return error_at(text, found[0], error.message, kind=error.kind) if len(found) == 1 else error


def duration_ms(given: str | float | timedelta) -> int:
    """Return a duration: ``30s``, ``1h30m``, or a number of seconds."""
    if isinstance(given, timedelta):
        return given // timedelta(milliseconds=1)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return _whole_ms(given)
    match = _DURATION.fullmatch(str(given))
    if match is not None and any(match.groups()):
        found = sum(int(part or 0) * unit for part, unit in zip(match.groups(), _UNITS_MS, strict=True))
        return _whole_ms(found / 1000) if found > LONGEST_MS else found
    try:
        seconds = float(given)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{given!r} is not a duration such as 30s or 1h", kind="bad_duration") from None
    return _whole_ms(seconds)


@contextmanager
def held_by_python(text: str) -> Iterator[None]:
    """Refuse durations and times that the parser reads, and that cannot be had from it: they are far out of range."""
    try:
        yield
    except TidelakeError:
        raise
    except (OverflowError, ValueError) as error:
        raise QueryError(f"a duration or a time is out of range: {error}", kind="out_of_range") from error
    except BaseException as error:  # a panic of the parser, for a time before 1970
        if type(error).__name__ != "PanicException":
            raise
        raise error_at(
            text, max(text.find("@"), 0), "timestamp out of bounds for @ modifier", kind="out_of_range"
        ) from None


def conditions_of(selector: promql_parser.VectorSelector) -> tuple[Conditions, ...]:
    """Return what a selector asks of labels: conditions that must all hold, in one of several alternatives."""
    matchers = selector.matchers
    named = () if selector.name is None else (Condition(NAME, "=", selector.name),)
    every = (*named, *map(_condition, matchers.matchers))
    if not matchers.or_matchers:
        return (every,)
    return tuple((*every, *map(_condition, several)) for several in matchers.or_matchers)


def _condition(matcher: promql_parser.Matcher) -> Condition:
    return Condition(matcher.name, _SIGNS[str(matcher.op)], matcher.value)


def _whole_ms(seconds: float) -> int:
    """Return a number of seconds in milliseconds; NaN and what is longer than any time are no durations."""
    if not abs(seconds) <= LONGEST_MS / 1000:
        raise InvalidInputError("a duration is out of range", got=str(seconds)[:40], kind="bad_duration")
    return round(seconds * 1000)


def _depth(text: str) -> int:
    """Return how deep round brackets are within one another."""
    depth = deepest = 0
    for letter in re.findall(r"[()]", text):
        depth += 1 if letter == "(" else -1
        deepest = max(deepest, depth)
    return deepest


def _place(text: str, message: str) -> int:
    quoted = _QUOTED.search(message)
    if quoted is not None and (at := text.find(quoted[1])) >= 0:
        return at
    if message.startswith(("unclosed", "unexpected end")):
        return next((at for at, _ in reversed(_open(text))), len(text))
    for end in range(len(text) - 1, max(len(text) - TRIES, 0), -1):
        closed = text[:end] + "".join(_CLOSING[bracket] for _, bracket in reversed(_open(text[:end])))
        try:
            promql_parser.parse(closed)
        except (ValueError, OverflowError):
            continue
        rest = text[end:]
        return end + len(rest) - len(rest.lstrip())
    return 0


def _open(text: str) -> list[tuple[int, str]]:
    """Return the brackets that are open at the end of a text; those in quotes do not count."""
    found: list[tuple[int, str]] = []
    quote = ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[at - 1] != "\\" else quote
        elif letter in "\"'`":
            quote = letter
        elif letter in _CLOSING:
            found.append((at, letter))
        elif letter in _CLOSING.values() and found:
            found.pop()
    return found
