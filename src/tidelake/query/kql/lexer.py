"""Cut KQL text into tokens that know their place.

Words are not sorted into names and keywords here: KQL lets most keywords be names, so the parser decides. A typed
literal such as ``datetime(2026-01-01)`` is one token. It does not judge literals: see ``literals``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from tidelake.errors import QueryError
from tidelake.query.kql.mistakes import error_at

MAX_TEXT = 1_000_000  # letters: more than any query a person wrote, and errors quote from it

TokenKind: TypeAlias = Literal["string", "number", "span", "typed", "name", "sign", "end"]

_SPAN_UNITS = (
    "days|day|d|hours|hour|hrs|hr|h|minutes|minute|min|milliseconds|millisecond|millis|milli|ms|microseconds|"
    "microsecond|micros|micro|nanoseconds|nanosecond|nanos|nano|m|seconds|second|sec|s|ticks|tick"
)
_TYPED = (
    "datetime|date|timespan|time|long|int64|int32|uint64|uint32|int|real|double|decimal|guid|uuid|uniqueid|boolean|bool"
)
_TOKEN = re.compile(
    rf"""
      (?P<space>(?:\s|﻿|​|//[^\n]*|\#[^\n]*)+)
    | (?P<string>[hH]?(?:
          @"(?:[^"\n]|"")*" | @'(?:[^'\n]|'')*'
        | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
        | ```(?:.|\n)*?``` | ~~~(?:.|\n)*?~~~ ))
    | (?P<typed>(?:{_TYPED})\s*\([^()"'\n]*\)|(?:{_TYPED})\s*\(\s*(?:"[^"\n]*"|'[^'\n]*')\s*\))
    | (?P<span>\d+(?:\.\d+)?(?:{_SPAN_UNITS})(?![A-Za-z0-9_]))
    | (?P<number>0[xX][0-9a-fA-F]+(?![A-Za-z0-9_])|\d+(?:\.(?!\.)\d*)?(?:[eE][+-]?\d+)?(?![A-Za-z0-9_]))
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*|\d+[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>==|!=|<>|<=|>=|=~|!~|=>|\.\.|[=<>!~()\[\]{{}},;:|.+\-*/%@?])
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z_$]")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text, where it begins, and whether space stands before it."""

    kind: TokenKind
    text: str
    at: int
    spaced: bool

    @property
    def end(self) -> int:
        return self.at + len(self.text)

    def is_word(self, *words: str) -> bool:
        return self.kind == "name" and self.text in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the query"
        return f"'{self.text if len(self.text) <= 40 else self.text[:39] + '…'}'"


def cut(text: str) -> list[Token]:
    """Return the tokens of a text, the last of which is its end."""
    if len(text) > MAX_TEXT:
        raise QueryError("the query is too long", letters=len(text), limit=MAX_TEXT, line=1, column=1)
    tokens: list[Token] = []
    at, spaced = 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or text.startswith("/*", at):
            raise error_at(text, at, _unreadable(text, at))
        if match.lastgroup == "space":
            spaced = True
        else:
            tokens.append(Token(cast(TokenKind, match.lastgroup), match[0], at, spaced))
            spaced = False
        at = match.end()
    return [*tokens, Token("end", "", len(text), True)]


def _unreadable(text: str, at: int) -> str:
    if text[at] in "\"'" or text[at : at + 3] in ("```", "~~~"):
        return "a string that is not closed"
    hints = {
        "/": ": a comment begins with //",
        "&": ": write and",
        "`": ": a text stands in ' or \"",
        "^": ": write pow(…)",
    }
    return f"cannot read {text[at]!r}{hints.get(text[at], '')}"
