"""Look keys up in a table that has them: which version of each is the newest, where it lies, and who could tell.

Hot rows are looked at first, then the manifest: the statistics of every extent, which leave out those that cannot have
a key. Only what is left is read, and of it only blocks that may have one. The answer for a key says which of the three
gave it: ``hot`` if its newest version is among the hot rows, ``manifest`` if no extent was left to look into, and
``extents`` otherwise. It does not write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.model.predicate import Equals, InSet, Predicate, Range
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Extent, HotBatch
from tidelake.pruning.outcomes import TRUE, outcomes
from tidelake.pruning.plan import Question, stats_of
from tidelake.scan.footers import Footers
from tidelake.scan.key_codes import Numbers, codes_of, newest
from tidelake.scan.versions import FEW_KEYS, Looking, Part, Wanted

Tier: TypeAlias = Literal["hot", "manifest", "extents"]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of one key: whether it is there, who said so, and where its newest version lies."""

    exists: bool
    tier: Tier
    seq: int | None = None  # of the newest version, a tombstone's too
    source: str | None = None  # the extent or hot batch that has it
    position: int | None = None  # in that

    def __bool__(self) -> bool:
        return self.exists


@dataclass(frozen=True, slots=True)
class Lookup:
    """Looks keys up in one snapshot."""

    schema: Schema
    keys: tuple[str, ...]
    footers: Footers
    hot: Sequence[HotBatch]

    def condition(self, asked: Sequence[pa.Array]) -> Predicate:
        """Return a condition on the first key column that every asked key satisfies."""
        values = asked[0].unique()
        if len(values) == 1:
            return Equals(self.keys[0], values[0].as_py())
        if len(values) <= FEW_KEYS:
            return InSet(self.keys[0], tuple(values.to_pylist()))
        bounds = pc.min_max(values)
        return Range(self.keys[0], bounds["min"].as_py(), bounds["max"].as_py())

    def find(self, asked: Sequence[pa.Array], extents: Sequence[Extent]) -> list[Found]:
        """Find each of some keys, given by column; ``extents`` are those that the catalog did not leave out."""
        hot, cold, absent = self._parts(asked, extents)
        return list(_answers(asked, hot, cold, absent))

    def newest(self, asked: Sequence[pa.Array], extents: Sequence[Extent]) -> tuple[Numbers, Flags]:
        """Return the newest version of each of many keys, -1 where there is none, and whether readers see it."""
        hot, cold, _ = self._parts(asked, extents)
        parts, count = [*hot, *cold], len(asked[0])
        best, seqs = _best(asked, parts)
        gone = [np.zeros(len(part.seqs), np.bool_) if part.deleted is None else part.deleted for part in parts]
        deleted = np.concatenate([np.ones(count, np.bool_), *gone])  # what is not there is not seen either
        return seqs[best], ~deleted[best]

    def _parts(self, asked: Sequence[pa.Array], extents: Sequence[Extent]) -> tuple[list[Part], list[Part], Tier]:
        """Read the rows that may have some keys, hot and cold, and say who answers for a key that is not there."""
        where = self.condition(asked)
        question = Question(self.schema, self.keys, where)
        left = [extent for extent in extents if outcomes(where, stats_of(extent, question)) & TRUE]
        looking = Looking(self.footers, self.schema, self.keys)
        wanted = Wanted(where, asked[0].unique())
        hot = [part for source in looking.of_hot(self.hot) for part in looking.parts(source, wanted)]
        cold = [part for extent in left for part in looking.parts(looking.of_extent(extent), wanted)]
        return hot, cold, "extents" if left else "manifest"


def _best(asked: Sequence[pa.Array], parts: Sequence[Part]) -> tuple[Numbers, Numbers]:
    """Return the newest row of each key among the keys themselves, at -1, and the rows; and all their versions."""
    count = len(asked[0])
    columns = [pa.concat_arrays([own, *(part.keys[at] for part in parts)]) for at, own in enumerate(asked)]
    seqs = np.concatenate([np.full(count, -1), *(part.seqs for part in parts)])
    codes, distinct = codes_of(columns)
    return newest(codes, distinct, seqs)[codes[:count]], seqs


def _answers(asked: Sequence[pa.Array], hot: Sequence[Part], cold: Sequence[Part], absent: Tier) -> Iterator[Found]:
    parts = [*hot, *cold]
    count = len(asked[0])
    best, _ = _best(asked, parts)
    starts = np.cumsum([count, *(len(part.positions) for part in parts)])
    for row in best.tolist():
        if row < count:
            yield Found(False, absent)
            continue
        at = int(np.searchsorted(starts, row, side="right")) - 1
        part, place = parts[at], row - int(starts[at])
        deleted = part.deleted is not None and bool(part.deleted[place])
        tier: Tier = "hot" if at < len(hot) else "extents"
        yield Found(not deleted, tier, int(part.seqs[place]), part.source, int(part.positions[place]))


def key_columns(rows: Mapping[str, Any] | pa.RecordBatch, keys: Sequence[str]) -> list[pa.Array]:
    """Return the key columns of rows, in the key's order."""
    return [rows.column(name) if isinstance(rows, pa.RecordBatch) else rows[name] for name in keys]
