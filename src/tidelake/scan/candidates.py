"""Find which rows of a block may match, by the words that its texts hold, before any text is read.

Extents may keep with a text column which rows hold which tokens. What a predicate needs of tokens is found as pruning
does; rows without them cannot match. Nor can rows whose template tells so (``scan.template_answers``). Where there is
no telling, every row may. It does not read texts, nor answer predicates: candidates are always asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from tidelake.kernels.tokens import Run, has_digit, runs_of
from tidelake.model.predicate import (
    And,
    Equals,
    InSet,
    Or,
    Predicate,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
)
from tidelake.pruning.required_texts import Needs, needs_of
from tidelake.scan.template_answers import Lines, answered

if TYPE_CHECKING:
    from tidelake.format.template_rows import RowTemplates

FEW = 0.25  # of a block's rows: of more, all are as soon read

Rows = npt.NDArray[np.bool_]


class KnowsTokens(Protocol):
    """A reader of extents that may keep which rows hold which tokens."""

    def rows_with(self, block: int, column: str, tokens: Sequence[str]) -> Rows | None:
        """Return which rows of a block may hold all of some tokens; None if there is no telling."""
        ...

    def rows_holding(self, block: int, column: str, runs: Sequence[Run]) -> Rows | None:
        """Return which rows of a block hold all of some words or parts; None if there is no telling at once."""
        ...

    def lines(self, column: str) -> Lines | None:
        """Return the templates that the texts of a column have; None if it is not stored by templates."""
        ...

    def row_templates(self, block: int, column: str) -> RowTemplates:
        """Read which templates the texts of a block have."""
        ...


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
    return found if found is not None and int(found.sum()) <= FEW * len(found) else None


def _rows(reader: KnowsTokens, block: int, where: Predicate, elsewhere: Mapping[str, Any]) -> Rows | None:
    match where:
        case And(parts):
            known = [found for part in parts if (found := _rows(reader, block, part, elsewhere)) is not None]
            return np.logical_and.reduce(known) if known else None
        case Or(parts):
            sides = [_rows(reader, block, part, elsewhere) for part in parts]
            return _either(sides)
        case StringHas(column, term):
            needs = Needs(tuple(runs_of(term, whole=True)))
        case StringContains(column, needle):
            needs = Needs(tuple(runs_of(needle)))
        case StartsWith(column, prefix):
            needs = Needs(tuple(runs_of(prefix, anchored=True)))
        case StringMatches(column, pattern):
            needs = needs_of(pattern)
        case Equals(column, str(text)):
            needs = Needs(tuple(runs_of(text, whole=True)))
        case InSet(column, values) if all(isinstance(value, str) for value in values):
            return _either([_rows(reader, block, Equals(column, value), elsewhere) for value in values])
        case _:
            return None
    if elsewhere.get(column):
        return None
    by_template = _by_template(reader, block, column, where)
    if by_template is not None and by_template.sum() <= FEW * len(by_template):
        return by_template
    by_words = _meeting(reader, block, column, needs)
    return by_words if by_template is None or by_words is None else by_template & by_words


def _by_template(reader: KnowsTokens, block: int, column: str, where: Predicate) -> Rows | None:
    """Return the rows whose template lets them match; None if they may be all."""
    lines = reader.lines(column)
    if lines is None or lines.every_word:  # then templates hold no words
        return None
    may = answered(where, lines)[1]
    return None if may.all() else reader.row_templates(block, column).rows(may)


def _meeting(reader: KnowsTokens, block: int, column: str, needs: Needs) -> Rows | None:
    """Return the rows that may have what a text needs."""
    tokens = [run.text for run in needs.runs if run.is_whole]
    known = [reader.rows_with(block, column, tokens) if tokens else None]
    others = [run for run in needs.runs if not run.is_whole or has_digit(run.text)]
    if others and (known[0] is None or known[0].mean() > FEW):
        known.append(reader.rows_holding(block, column, others))
    known += [_either([_meeting(reader, block, column, side) for side in choice]) for choice in needs.choices]
    told = [found for found in known if found is not None]
    return np.logical_and.reduce(told) if told else None


def _either(sides: Sequence[Rows | None]) -> Rows | None:
    told = [side for side in sides if side is not None]
    return np.logical_or.reduce(told) if told and len(told) == len(sides) else None
