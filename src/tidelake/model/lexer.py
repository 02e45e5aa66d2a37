"""Cut the text of an expression into tokens, read its literals, and show where a mistake is.

Literals are ``'text'`` and ``"text"`` with escapes, ``@"text as it stands"``, ``b'bytes'``, numbers, and times:
``datetime(2026-01-01T00:00:00Z)``, or the time alone. Names that are not plain stand in backquotes. A mistake is a
QueryError whose message shows the line with a caret under the place. It does not know what tokens mean together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, cast

from tidelake.errors import InvalidInputError, QueryError
from tidelake.model.predicate import PLAIN_NAME, Nanoseconds, Value
from tidelake.model.times import parse_time_ns

MAX_LISTED = 10  # tables in a message

TokenKind: TypeAlias = Literal["string", "verbatim", "bytes", "time", "number", "name", "quoted", "sign", "end"]

_STRING = r'(?:"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*')"
_TOKEN = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<verbatim>@"(?:[^"]|"")*"|@'(?:[^']|'')*')
    | (?P<bytes>b{_STRING})
    | (?P<string>{_STRING})
    | (?P<time>datetime\([^()]*\)|\d{{4}}-\d\d-\d\d(?:T[0-9:.]*(?:Z|[+-][0-9:.]+)?)?)
    | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<name>{PLAIN_NAME.pattern})
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<sign>==|!=|<>|<=|>=|\.\.|[=<>!()\[\],.∞-])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "'": "'", '"': '"', "/": "/"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text, and where it begins."""

    kind: TokenKind
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        """Return whether this is one of some words, in any case."""
        return self.kind == "name" and self.text.lower() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text


def cut(text: str) -> list[Token]:
    """Return the tokens of a text, the last of which is its end."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            message = "a quote that is not closed" if text[at] in "\"'`@" else f"cannot read {text[at]!r}"
            raise error_at(text, at, message)
        if match.lastgroup != "space":
            tokens.append(Token(cast(TokenKind, match.lastgroup), match[0], at))
        at = match.end()
    return [*tokens, Token("end", "", len(text))]


def name_of(token: Token) -> str:
    """Return the name that a plain or quoted name stands for."""
    return token.text if token.kind == "name" else token.text[1:-1].replace("``", "`")


def literal_of(token: Token) -> Value:
    """Return the value of a literal; a time that a datetime is too coarse for is its nanoseconds."""
    match token.kind:
        case "string":
            return _unescaped(token.text)
        case "verbatim":
            quote = token.text[1]
            return token.text[2:-1].replace(quote * 2, quote)
        case "bytes":
            return _unescaped(token.text[1:]).encode("latin-1")
        case "number":
            return int(token.text) if token.text.isdecimal() else float(token.text)
        case "time":
            ns = time_ns_of(token)
            return Nanoseconds(ns) if ns % 1000 else datetime.fromisoformat(_time_text(token))
        case _:
            raise InvalidInputError(f"expected a value, found {token}")


def time_ns_of(token: Token) -> int:
    """Return a time token as nanoseconds since 1970 UTC."""
    return parse_time_ns(_time_text(token))


def error_at(text: str, at: int, message: str, *, kind: str | None = None, **facts: object) -> QueryError:
    """Return what is wrong with a text, with the line, a caret under the place, and its line and column from 1."""
    before = text[:at]
    line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1)
    shown = text.split("\n")[line - 1]
    indent = re.sub(r"[^\t]", " ", shown[:column])
    return QueryError(f"{message}\n  {shown}\n  {indent}^", kind=kind, line=line, column=column + 1, **facts)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message that names what is close to a word, or nothing."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=3)
    return f", did you mean {' or '.join(repr(by_lower[each]) for each in close)}?" if close else ""


def tables_there_are(names: Sequence[str]) -> str:
    """Return the end of a message that lists the first tables of a lake, or says that there is none."""
    if not names:
        return ": the lake is empty, and tidelake ingest makes tables"
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return f": there are {', '.join(names[:MAX_LISTED])}{more}"


def _unescaped(quoted: str) -> str:
    return _ESCAPE.sub(_escaped_letter, quoted[1:-1])


def _escaped_letter(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code and int(code, 16) <= 0x10FFFF:
        return chr(int(code, 16))
    if match[4] not in _PLAIN_ESCAPES:
        hint = "" if code else f'; write \\{match[0]}, or @"…" for text as it stands'
        raise InvalidInputError(f"no such escape: {match[0]}{hint}")
    return _PLAIN_ESCAPES[match[4]]


def _time_text(token: Token) -> str:
    """Return the time within ``datetime(…)``, with quotes or none around it, or the time alone."""
    text = token.text
    return text[text.index("(") + 1 : -1].strip().strip("\"'") if text.endswith(")") else text
