"""Keep a listing of very many extents in a few bytes for each: ids, time bounds, and what judges columns.

An extent is a number in a run. What is left of a question is asked of the catalog by its ids, with statistics, so no
Python value stands for an extent that nobody wants. A newer snapshot adds a run of what is new and marks what is gone;
small runs are put together. It never drops an extent that its statistics do not disprove. It does not read a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.model.predicate import And, Leaf, Not, Or, Predicate, TimeRange
from tidelake.model.snapshot import Extent
from tidelake.pruning.column_outcomes import Mask
from tidelake.pruning.large_columns import LargeColumn, united
from tidelake.pruning.plan import Question, time_window
from tidelake.pruning.statistics import column_from_json

Times: TypeAlias = npt.NDArray[np.int64]

NONE_BEFORE, NONE_AFTER = -(2**63), 2**63 - 1  # stand for a bound that is not known
SMALL_RUN = 8_192  # extents, up to which runs are put together
MAX_RUNS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Some extents, and which of them are gone."""

    ids: Any  # an Arrow array of texts
    minimums: Times
    maximums: Times
    columns: Mapping[str, LargeColumn]
    gone: Mask | None = None

    @classmethod
    def of(cls, extents: Sequence[Extent], names: Iterable[str]) -> Run:
        """Take what judges some columns out of the statistics of extents."""
        count = len(extents)
        lows = (NONE_BEFORE if extent.min_ts_ns is None else extent.min_ts_ns for extent in extents)
        highs = (NONE_AFTER if extent.max_ts_ns is None else extent.max_ts_ns for extent in extents)
        return cls(
            pa.array([extent.id for extent in extents], pa.large_string()),
            np.fromiter(lows, np.int64, count),
            np.fromiter(highs, np.int64, count),
            {name: LargeColumn.of([_stats_of(extent, name) for extent in extents]) for name in names},
        )

    @property
    def byte_size(self) -> int:
        own = self.ids.nbytes + self.minimums.nbytes + self.maximums.nbytes
        return int(own) + sum(column.byte_size for column in self.columns.values())

    def without(self, removed: pa.Array) -> Run:
        """Return the run with some extents gone."""
        fresh = pc.is_in(self.ids, removed).to_numpy(zero_copy_only=False)
        if not fresh.any():
            return self
        return replace(self, gone=fresh if self.gone is None else self.gone | fresh)

    def bounded(self, max_bytes: int) -> Run:
        """Return the run with no more than some memory for each column's sets."""
        return replace(self, columns={name: column.bounded(max_bytes) for name, column in self.columns.items()})

    def surviving(self, question: Question) -> pa.Array:
        """Return the ids of extents that may hold wanted rows."""
        start_ns, end_ns = time_window(question)
        found = np.ones(len(self.ids), dtype=np.bool_) if self.gone is None else ~self.gone
        if start_ns is not None:
            found &= self.maximums >= start_ns
        if end_ns is not None:
            found &= self.minimums < end_ns

        def judged(leaf: Leaf) -> Mask | None:
            if isinstance(leaf, TimeRange) and leaf.column == question.time:
                return None  # judged above, where all rows must lie in it
            column = self.columns.get(leaf.column)
            return None if column is None or leaf.column in question.alternatives else column.may_match(leaf)

        mask = may_match(question.where, judged)
        return self.ids.take(pa.array(np.flatnonzero(found if mask is None else found & mask)))


def may_match(where: Predicate | None, judged: Callable[[Leaf], Mask | None]) -> Mask | None:
    """Put together what is judged of each leaf; None is all."""
    match where:
        case And(parts):
            told = [mask for part in parts if (mask := may_match(part, judged)) is not None]
            return None if not told else np.logical_and.reduce(told)
        case Or(parts):
            each = [may_match(part, judged) for part in parts]
            known = [mask for mask in each if mask is not None]
            return None if len(known) < len(each) else np.logical_or.reduce(known)
        case Not() | None:
            return None
        case leaf:
            return judged(leaf)


@dataclass(frozen=True, slots=True)
class LargeListing:
    """What one snapshot holds, and what is known of some columns."""

    sequence: int
    names: frozenset[str]
    runs: tuple[Run, ...]

    @classmethod
    def of(
        cls, sequence: int, names: Collection[str], pages: Iterable[Sequence[Extent]], max_bytes: int
    ) -> LargeListing:
        """Take all extents of a snapshot, page by page; no column's sets take more than some memory."""
        runs: list[Run] = []
        left = max_bytes
        for page in pages:
            if page:
                run = Run.of(page, names)
                left -= run.byte_size
                runs.append(
                    run if left > 0 else replace(run, columns={n: c.bounded(0) for n, c in run.columns.items()})
                )
        whole = (_joined(runs).bounded(max_bytes // max(len(names), 1)),) if runs else ()
        return cls(sequence, frozenset(names), whole)

    def beside(self, other: LargeListing, max_bytes: int) -> LargeListing | None:
        """Return what both know of the same extents of a snapshot; None if they do not list them alike."""
        alike = self.sequence == other.sequence and len(self.runs) == len(other.runs) == 1
        if not alike or self.runs[0].gone is not None or not self.runs[0].ids.equals(other.runs[0].ids):
            return None
        names = self.names | other.names
        run = replace(self.runs[0], columns={**self.runs[0].columns, **other.runs[0].columns})
        return LargeListing(self.sequence, names, (run.bounded(max_bytes // len(names)),))

    @property
    def count(self) -> int:
        """How many extents it has, those that are gone included."""
        return sum(len(run.ids) for run in self.runs)

    @property
    def byte_size(self) -> int:
        """About how much memory it takes."""
        return sum(run.byte_size for run in self.runs)

    def changed(self, sequence: int, added: Sequence[Extent], removed: Collection[str]) -> LargeListing:
        """Return the listing after commits that added and removed extents."""
        gone = pa.array(list(removed), pa.large_string())
        runs = [run.without(gone) for run in self.runs] if len(gone) else list(self.runs)
        fresh = [extent for extent in added if extent.id not in removed]
        if fresh:
            run = Run.of(fresh, self.names)
            while runs and (len(runs[-1].ids) <= SMALL_RUN or len(runs) >= MAX_RUNS):
                run = _joined([runs.pop(), run])
            runs.append(run)
        return LargeListing(sequence, self.names, tuple(runs))

    def surviving(self, question: Question) -> list[str]:
        """Return the ids of extents that may hold wanted rows."""
        return [id for run in self.runs for id in run.surviving(question).to_pylist()]


def _joined(runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    gone = None
    if any(run.gone is not None for run in runs):
        gone = np.concatenate(
            [np.zeros(len(run.ids), dtype=np.bool_) if run.gone is None else run.gone for run in runs]
        )
    return Run(
        pa.concat_arrays([run.ids for run in runs]),
        np.concatenate([run.minimums for run in runs]),
        np.concatenate([run.maximums for run in runs]),
        {name: united([run.columns[name] for run in runs]) for name in runs[0].columns},
        gone,
    )


def _stats_of(extent: Extent, name: str) -> Any:
    shape = extent.column_stats.get(name)
    return None if shape is None else column_from_json(shape)
