"""Answer tests of texts by the templates of a column: which texts pass whatever their variables are, and which may.

A variable is a word: a run of ASCII letters and digits that holds a digit, unless every word is one. So a needle that
is found in a template, with a character that the needle does not hold in the place of each variable, is in all of its
texts. Else it may be in them only if one of its own words can be a variable, and is found with that character in its
place. It does not read blocks, nor answer for single rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.model.predicate import (
    And,
    Equals,
    InSet,
    Not,
    Or,
    Predicate,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
)
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.scan import text_search as searching
else:
    searching = deferred("tidelake.scan.text_search")  # brings a compiler, which planning does without

TEXT_TESTS = (Equals, InSet, StringHas, StringContains, StartsWith, StringMatches)  # which no null passes
REMEMBERED = 16  # answers of one column of an extent
MOST_VALUES = 16  # of a set that are looked for one by one

Some: TypeAlias = npt.NDArray[np.bool_]
Judged: TypeAlias = tuple[Some, Some]  # of which templates all texts pass, and of which some may

_ANSWERED: WeakKeyDictionary[Lines, dict[Predicate, Judged]] = WeakKeyDictionary()
_WORD = re.compile(r"[0-9A-Za-z]+")
_DIGIT = re.compile(r"[0-9]")


class Lines(Protocol):
    """The templates of a column of an extent."""

    count: int
    every_word: bool

    @property
    def has_holes(self) -> Some:
        """Which templates have variables."""
        ...

    def filled(self, letter: str) -> pa.Array:
        """Return the templates with a character in the place of each variable."""
        ...


def answered(where: Predicate, lines: Lines) -> Judged:
    """Return what ``judged`` does, as it was found for another block of the same extent."""
    kept = _ANSWERED.get(lines) or _ANSWERED.setdefault(lines, {})
    found = kept.get(where)
    if found is None:
        if len(kept) >= REMEMBERED:
            kept.clear()
        found = kept[where] = judged(where, lines)
    return found


def judged(where: Predicate, lines: Lines) -> Judged:
    """Return of which templates all texts pass a predicate on the column, and of which some may; nulls aside."""
    match where:
        case And(parts):
            return reduce(lambda one, other: (one[0] & other[0], one[1] & other[1]), _each(parts, lines))
        case Or(parts):
            return reduce(lambda one, other: (one[0] | other[0], one[1] | other[1]), _each(parts, lines))
        case Not(part):
            all_pass, some_may = judged(part, lines)
            return ~some_may, ~all_pass
        case Equals(_, str(text)):
            return _equal(text, lines)
        case InSet(column, values) if len(values) <= MOST_VALUES and all(isinstance(value, str) for value in values):
            return judged(Or(tuple(Equals(column, value) for value in values)), lines) if values else _nothing(lines)
        case StringHas() | StringContains() | StartsWith():
            return _searched(where, lines)
        case _:
            return _open(lines)


def _each(parts: Sequence[Predicate], lines: Lines) -> Iterator[Judged]:
    return (judged(part, lines) for part in parts)


def _nothing(lines: Lines) -> Judged:
    none = np.zeros(lines.count, dtype=np.bool_)
    return none, none


def _open(lines: Lines) -> Judged:
    return np.zeros(lines.count, dtype=np.bool_), np.ones(lines.count, dtype=np.bool_)


def _equal(text: str, lines: Lines) -> Judged:
    letter = _letter_beside(text)
    if letter is None:
        return _open(lines)
    templates, holes = lines.filled(letter), lines.has_holes
    same = _bools(pc.equal(templates, pa.scalar(text))) & ~holes
    variant = _WORD.sub(lambda word: letter if _is_variable(word[0], lines) else word[0], text)
    return same, same | (_bools(pc.equal(templates, pa.scalar(variant))) & holes)


def _searched(leaf: StringHas | StringContains | StartsWith, lines: Lines) -> Judged:
    needle = leaf.term if isinstance(leaf, StringHas) else leaf.prefix if isinstance(leaf, StartsWith) else leaf.needle
    letter = _letter_beside(needle)
    if letter is None or not needle.isascii():
        return _open(lines)
    templates = lines.filled(letter)
    found = _bools(searching.search(leaf, templates))
    may = found
    cased = not isinstance(leaf, StringHas) and leaf.case_sensitive
    for variant in _variants(leaf, needle, letter, lines):
        test: Any = StartsWith if isinstance(leaf, StartsWith) else StringContains
        may = may | (_bools(searching.search(test(leaf.column, variant, cased), templates)) & lines.has_holes)
    return found, may


def _variants(leaf: StringHas | StringContains | StartsWith, needle: str, letter: str, lines: Lines) -> Iterator[str]:
    """Yield the needle with a character for those of its words that are variables, in every way that there can be."""
    choices: list[tuple[str, ...]] = []
    at = 0
    for word in _WORD.finditer(needle):
        begins = word.start() > 0 or not isinstance(leaf, StringContains)
        ends = word.end() < len(needle) or isinstance(leaf, StringHas)
        choices.append((needle[at : word.start()],))
        is_one = _is_variable(word[0], lines)
        choices.append((letter,) if is_one else (word[0],) if begins and ends else (word[0], letter))
        at = word.end()
    choices.append((needle[at:],))
    made = ("".join(each) for each in product(*choices))
    return (each for each in made if each != needle)


def _is_variable(word: str, lines: Lines) -> bool:
    return lines.every_word or _DIGIT.search(word) is not None


def _letter_beside(needle: str) -> str | None:
    """Return a digit, or else a letter, that a needle does not hold in any case."""
    held = needle.lower()
    return next((each for each in digits + ascii_lowercase if each not in held), None)


def _bools(found: pa.BooleanArray) -> Some:
    return np.asarray(found.to_numpy(zero_copy_only=False))
