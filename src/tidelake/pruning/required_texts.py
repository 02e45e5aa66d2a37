"""Find what every text that a regular expression matches must hold, so that statistics can judge it.

A pattern is read as RE2 reads it, as far as this module understands it: literals, groups, choices, repeats, classes and
the flag for case. A part that it does not know for certain demands nothing, and a construct it does not know at all
makes the whole pattern demand nothing: the data is kept. It does not match texts; RE2 does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tidelake.kernels.tokens import Run, runs_of

MAX_NESTING = 50  # of groups: deeper patterns come from machines, and this reader recurses

_GAP = " "  # stands in a literal for a place where no ASCII letter or digit can be
_REPEAT = re.compile(r"(?:([*+?])|\{(\d+)(?:,\d*)?\})\??")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|([imsU]*)(?:-([imsU]+))?([:)])))?")
_CLASS = re.compile(r"\[(\^?)(\]?(?:\[:\^?\w+:\]|\\.|[^\]\\[])*)\]", re.DOTALL)
_GAP_CLASS = re.compile(r"-?(?:[ !\"#$%&'()*+,./:;<=>?@_`{|}~]|\\[^0-9A-Za-z]|\\[sWnrt])+-?", re.ASCII)
_GAP_ESCAPES = frozenset("sWbAzntrfva")
_OPEN_ESCAPE = re.compile(r"\\(?:[dDwSB]|[pP](?:\{\^?\w+\}|[A-Z])|x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\}))")
_FOLDED = frozenset("kKsS")  # whatever their case, RE2 also takes the Kelvin sign and the long s for them


@dataclass(frozen=True, slots=True)
class Needs:
    """What a matching text must hold: every run, and of each choice what at least one of its sides needs."""

    runs: tuple[Run, ...] = ()
    choices: tuple[tuple[Needs, ...], ...] = ()


NOTHING = Needs()


@lru_cache(maxsize=256)
def needs_of(pattern: str) -> Needs:
    """Return what every match of a valid pattern needs; nothing where that is not certain."""
    try:
        return _Reader(pattern).read()
    except _Unsure:
        return NOTHING


class _Unsure(Exception):
    """The pattern has something that this reader does not know."""


class _Reader:
    """Read one pattern from left to right; ``at`` is the next letter."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self._ignores_case = False

    def read(self) -> Needs:
        if "\\Q" in self._pattern:  # quotes, within which nothing else here holds
            raise _Unsure
        found = _one_of(self._sides(0))
        if self._at < len(self._pattern):
            raise _Unsure
        return found

    def _sides(self, depth: int) -> list[Needs]:
        """Read the sides of a choice up to the end of its group."""
        if depth > MAX_NESTING:
            raise _Unsure
        ignores_case = self._ignores_case
        sides = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            sides.append(self._sequence(depth))
        self._ignores_case = ignores_case
        return sides

    def _sequence(self, depth: int) -> Needs:
        """Read what stands side by side; letters that touch make one literal."""
        literal = ""
        found: list[Needs] = []
        while self._peek() not in ("", "|", ")"):
            group = NOTHING
            if self._peek() == "(":
                atom, group = "", self._group(depth)
            else:
                atom = self._atom()
            least = self._least_repeats()
            if least is None and atom:
                literal += atom
                continue
            # Repeated or unknown: the literal ends here, and the next begins with the last repeat.
            found.append(_needs_of_literal(literal + (atom if least else "")))
            literal = atom if least else ""
            if least != 0:
                found.append(group)
        return _all_of([*found, _needs_of_literal(literal)])

    def _group(self, depth: int) -> Needs:
        match = _GROUP.match(self._pattern, self._at)
        if not match:
            raise _Unsure
        self._at = match.end()
        on, off, end = match[1] or "", match[2] or "", match[3]
        ignores_case = self._ignores_case
        self._ignores_case = (ignores_case or "i" in on) and "i" not in off
        if end == ")":  # flags for the rest of the group around this
            return NOTHING
        found = _one_of(self._sides(depth + 1))
        if self._peek() != ")":
            raise _Unsure
        self._at += 1
        self._ignores_case = ignores_case
        return found

    def _atom(self) -> str:
        """Read one letter's worth: the letter, a gap, or nothing when it may be one of many."""
        char = self._peek()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "*+?{":
            raise _Unsure
        self._at += 1
        if char in "^$":
            return _GAP
        return "" if char == "." else self._letter(char)

    def _class(self) -> str:
        match = _CLASS.match(self._pattern, self._at)
        if not match:
            raise _Unsure
        self._at = match.end()
        return _GAP if not match[1] and _GAP_CLASS.fullmatch(match[2]) else ""

    def _escape(self) -> str:
        escaped = self._pattern[self._at + 1 : self._at + 2]
        if match := _OPEN_ESCAPE.match(self._pattern, self._at):
            self._at = match.end()
            return ""
        self._at += 2
        if escaped in _GAP_ESCAPES:
            return _GAP
        if not escaped.isascii() or escaped.isalnum():
            raise _Unsure
        return escaped

    def _letter(self, char: str) -> str:
        is_one_of_many = self._ignores_case and (char in _FOLDED or not char.isascii())
        return "" if is_one_of_many else char

    def _least_repeats(self) -> int | None:
        """Read a repeat, if there is one, and give the least number of times it allows."""
        match = _REPEAT.match(self._pattern, self._at)
        if not match:
            return None
        self._at = match.end()
        if _REPEAT.match(self._pattern, self._at):
            raise _Unsure
        return int(match[2]) if match[2] else 1 if match[1] == "+" else 0

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]


def _needs_of_literal(literal: str) -> Needs:
    return Needs(tuple(runs_of(literal)))


def _all_of(parts: list[Needs]) -> Needs:
    return Needs(
        tuple(run for part in parts for run in part.runs), tuple(choice for part in parts for choice in part.choices)
    )


def _one_of(sides: list[Needs]) -> Needs:
    if len(sides) == 1:
        return sides[0]
    return NOTHING if NOTHING in sides else Needs(choices=(tuple(sides),))
