"""Find which rows of a block may match, by the words that its texts hold, before any text is read.

Extents may keep with a text column which rows hold which tokens. What a predicate needs of tokens is found as pruning
does; rows without them cannot match. Where there is no telling, every row may. It does not read texts, nor answer
predicates: candidates are always asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.kernels.tokens import Run, runs_of
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

FEW = 0.25  # of a block's rows: of more, all are as soon read

Rows = npt.NDArray[np.bool_]


class KnowsTokens(Protocol):
    """A reader of extents that may keep which rows hold which tokens."""

    def rows_with(self, block: int, column: str, tokens: Sequence[str]) -> Rows | None:
        """Return which rows of a block may hold all of some tokens; None if there is no telling."""
        ...

    def rows_holding(self, block: int, column: str, runs: Sequence[str]) -> Rows | None:
        """Return which rows of a block hold all of some parts of words; None if there is no telling at once."""
        ...

    def read_block(self, block: int, projection: Sequence[str] | None, wanted: Rows) -> pa.RecordBatch:
        """Read these columns of a block; texts of rows that are not wanted may be empty."""
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
    return None if elsewhere.get(column) else _meeting(reader, block, column, needs)


def _meeting(reader: KnowsTokens, block: int, column: str, needs: Needs) -> Rows | None:
    """Return the rows that may have what a text needs."""
    tokens = [run.text for run in needs.runs if _is_whole(run)]
    known = [reader.rows_with(block, column, tokens) if tokens else None]
    parts = [run.text for run in needs.runs if not _is_whole(run)]
    if parts and (known[0] is None or known[0].mean() > FEW):
        known.append(reader.rows_holding(block, column, parts))
    known += [_either([_meeting(reader, block, column, side) for side in choice]) for choice in needs.choices]
    told = [found for found in known if found is not None]
    return np.logical_and.reduce(told) if told else None


def _is_whole(run: Run) -> bool:
    return run.starts and run.ends


def _either(sides: Sequence[Rows | None]) -> Rows | None:
    told = [side for side in sides if side is not None]
    return np.logical_or.reduce(told) if told and len(told) == len(sides) else None
