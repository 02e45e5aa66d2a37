"""Find which rows of a block may match, by the words that its texts hold, before any text is read.

Extents may keep with a text column, or the texts at a path of a dynamic one, which rows hold which tokens. What a
predicate needs of tokens is found as pruning does; rows without them cannot match. Nor can rows whose template tells so
(``scan.template_answers``). Where there is no telling, every row may. It does not read texts, nor answer predicates:
candidates are always asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from tidelake.kernels.tokens import Run, has_digit, runs_of
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathMayHold,
    DynamicPathTest,
    Equals,
    InSet,
    Or,
    Predicate,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
    conjuncts_of,
    leaves_of,
)
from tidelake.pruning.required_texts import Needs, needs_of
from tidelake.scan.path_columns import is_apart
from tidelake.scan.template_answers import Lines, answered

if TYPE_CHECKING:
    from tidelake.format.shredded import TextRows
    from tidelake.format.template_rows import RowTemplates

FEW = 0.25  # of a block's rows: of more, all are as soon read

Rows: TypeAlias = npt.NDArray[np.bool_]
Texts: TypeAlias = (
    str | tuple[str, int]
)  # those of a column, or of a leaf of a dynamic one, by its number in the extent


class KnowsTokens(Protocol):
    """A reader of extents that may keep which rows, or values of a leaf, hold which tokens."""

    def keeps_words(self, place: str | tuple[str, str]) -> bool:
        """Whether words or templates of a column, or of the texts at a path, are kept."""
        ...

    def rows_with(self, block: int, texts: Texts, tokens: Sequence[str]) -> Rows | None:
        """Return which rows of a block may hold all of some tokens; None if there is no telling."""
        ...

    def rows_holding(self, block: int, texts: Texts, runs: Sequence[Run]) -> Rows | None:
        """Return which rows of a block hold all of some words or parts; None if there is no telling at once."""
        ...

    def lines(self, texts: Texts) -> Lines | None:
        """Return the templates that texts have; None if they are not stored by templates."""
        ...

    def row_templates(self, block: int, texts: Texts) -> RowTemplates:
        """Read which templates the texts of a block have."""
        ...

    def text_rows(self, block: int, column: str, path: str) -> TextRows | None:
        """Return which rows of a block have a text at a path; None if there is no telling at once."""
        ...


def texts_asked(where: Predicate | None) -> frozenset[str | tuple[str, str]]:
    """Return the columns, and the paths of dynamic ones, of which words or templates may tell which rows match."""
    found = set[str | tuple[str, str]]()
    for leaf in () if where is None else leaves_of(where):
        match leaf:
            case DynamicPathEquals(column, path, _) | DynamicPathTest(column, path, _):
                found.add((column, path))
            case DynamicPathMayHold(column, path, _):
                found.add((column, path))
            case InSet() | Equals() | StringHas() | StringContains() | StartsWith() | StringMatches():
                if _is_of_texts(leaf):
                    found.add(leaf.column)
            case _:
                pass
    return frozenset(found)


def tells(reader: Any, places: Collection[str | tuple[str, str]]) -> bool:
    """Whether an extent keeps words or templates of one of some columns, or of texts at paths."""
    return knows_tokens(reader) and any(map(reader.keeps_words, places))


def knows_tokens(reader: object) -> TypeGuard[KnowsTokens]:
    """Whether a reader is of an extent that may keep which rows hold which tokens; it is asked for every block."""
    return hasattr(reader, "rows_with")


def candidates(reader: Any, block: int, where: Predicate, elsewhere: Mapping[str, Any]) -> Rows | None:
    """Return the few rows of a block that may match; None if they are not few, or there is no telling.

    ``elsewhere`` has the columns whose values may lie in other places, too.
    """
    if not knows_tokens(reader):
        return None
    found = _rows(reader, block, where, elsewhere)
    return found if found is not None and _are_few(found) else None


def blocks_without(
    reader: Any, blocks: Sequence[int], where: Predicate, elsewhere: Mapping[str, Any]
) -> frozenset[int]:
    """Return the blocks of which it is known at once that they lack a word that a text column needs.

    It is for many blocks of which few have a word: what is asked of each is little.
    """
    found: frozenset[int] = frozenset()
    for part in conjuncts_of(where) if hasattr(reader, "blocks_without") else ():
        if isinstance(part, StringHas | StringContains | StartsWith | Equals) and not elsewhere.get(part.column):
            needs = _needs_of(part)
            if needs is not None and (tokens := _tokens_of(needs)):
                found |= reader.blocks_without([each for each in blocks if each not in found], part.column, tokens)
    return found


def _are_few(rows: Rows) -> bool:
    return bool(np.count_nonzero(rows) <= FEW * len(rows))  # a sixth of the time of a sum


def _rows(reader: KnowsTokens, block: int, where: Predicate, elsewhere: Mapping[str, Any]) -> Rows | None:
    match where:
        case And(parts):
            known = [found for part in parts if (found := _rows(reader, block, part, elsewhere)) is not None]
            return np.logical_and.reduce(known) if known else None
        case Or(parts):
            sides = [_rows(reader, block, part, elsewhere) for part in parts]
            return _either(sides)
        case DynamicPathEquals(column, path, str(text)):
            return _at_path(reader, block, (column, path), Equals(column, text), elsewhere)
        case DynamicPathTest(column, path, test):
            return _at_path(reader, block, (column, path), test, elsewhere)
        case DynamicPathMayHold(column, path, test):
            return _at_path(reader, block, (column, path), test, elsewhere, or_other=True)
        case StringHas() | StringContains() | StartsWith() | StringMatches() | Equals() | InSet():
            return None if elsewhere.get(where.column) else _of_texts(reader, block, where.column, where)
        case _:
            return None


def _at_path(
    reader: KnowsTokens, block: int, place: tuple[str, str], test: Predicate, elsewhere: Mapping[str, Any], *,
    or_other: bool = False,
) -> Rows | None:  # fmt: skip
    """Return the rows whose text at a path may pass a test of texts, or that have something else there."""
    column, path = place
    if elsewhere.get(column) or not is_apart(path) or not _is_of_texts(test):
        return None
    known = reader.text_rows(block, column, path)
    if known is None:
        return None
    found = known.others.copy() if or_other else np.zeros_like(known.others)
    for leaf, having in known.texts:
        own = _of_texts(reader, block, (column, leaf), test) if having.any() else None
        found[having] |= True if own is None else own
    return found


def _is_of_texts(test: Predicate) -> bool:
    """Whether a test is passed by texts alone."""
    match test:
        case InSet(_, values):
            return all(isinstance(value, str) for value in values)
        case StringHas() | StringContains() | StartsWith() | StringMatches() | Equals(_, str()):
            return True
        case _:
            return False


def _of_texts(reader: KnowsTokens, block: int, texts: Texts, test: Predicate) -> Rows | None:
    """Return the rows of a column, or values of a leaf, that may pass a test."""
    if isinstance(test, InSet) and _is_of_texts(test):
        return _either([_of_texts(reader, block, texts, Equals(test.column, value)) for value in test.values])
    needs = _needs_of(test)
    if needs is None:
        return None
    by_tokens = _with_tokens(reader, block, texts, needs)
    if by_tokens is not None and not np.count_nonzero(
        by_tokens
    ):  # a filter of a block's words costs less than its templates
        return by_tokens
    by_template = _by_template(reader, block, texts, test)
    if by_template is not None and _are_few(by_template):
        return by_template if by_tokens is None else by_template & by_tokens
    by_words = _meeting(reader, block, texts, needs, by_tokens)
    return by_words if by_template is None or by_words is None else by_template & by_words


def _needs_of(test: Predicate) -> Needs | None:
    """Return what a text needs to pass a test; None if there is no telling."""
    match test:
        case StringHas(_, term):
            return Needs(tuple(runs_of(term, whole=True)))
        case StringContains(_, needle):
            return Needs(tuple(runs_of(needle)))
        case StartsWith(_, prefix):
            return Needs(tuple(runs_of(prefix, anchored=True)))
        case StringMatches(_, pattern):
            return needs_of(pattern)
        case Equals(_, str(text)):
            return Needs(tuple(runs_of(text, whole=True)))
        case _:
            return None


def _by_template(reader: KnowsTokens, block: int, texts: Texts, test: Predicate) -> Rows | None:
    """Return the rows whose template lets them match; None if they may be all."""
    lines = reader.lines(texts)
    if lines is None or lines.every_word:  # then templates hold no words
        return None
    may = answered(test, lines)[1]
    return None if may.all() else reader.row_templates(block, texts).rows(may)


def _with_tokens(reader: KnowsTokens, block: int, texts: Texts, needs: Needs) -> Rows | None:
    """Return the rows that may hold all words that a text needs whole; None if there is no telling."""
    tokens = _tokens_of(needs)
    return reader.rows_with(block, texts, tokens) if tokens else None


def _tokens_of(needs: Needs) -> list[str]:
    return [run.text for run in needs.runs if run.is_whole]


def _meeting(reader: KnowsTokens, block: int, texts: Texts, needs: Needs, by_tokens: Rows | None) -> Rows | None:
    """Return the rows that may have what a text needs; of its whole words that is known."""
    known = [by_tokens]
    others = [run for run in needs.runs if not run.is_whole or has_digit(run.text)]
    if others and (by_tokens is None or not _are_few(by_tokens)):
        known.append(reader.rows_holding(block, texts, others))
    for choice in needs.choices:
        sides = [_meeting(reader, block, texts, side, _with_tokens(reader, block, texts, side)) for side in choice]
        known.append(_either(sides))
    told = [found for found in known if found is not None]
    return np.logical_and.reduce(told) if told else None


def _either(sides: Sequence[Rows | None]) -> Rows | None:
    told = [side for side in sides if side is not None]
    return np.logical_or.reduce(told) if told and len(told) == len(sides) else None
