"""Number the rows of one snapshot, so that whoever read a row can say later which one it was.

A row's id is the number of its extent or hot batch among all of the snapshot, in the order of their ids, and its
position in that. It is computed as a row's version in a table with a key is: the scan counts from a first number on.
Ids mean something for their snapshot alone. It does not read or take away rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tidelake.model.snapshot import Extent, HotBatch
from tidelake.pruning.plan import ScanPlan

POSITION_BITS = 32  # of an id; what is above them is the number of the extent or hot batch


@dataclass(frozen=True, slots=True)
class RowIds:
    """The extents and hot batches of a snapshot, numbered."""

    sources: tuple[str, ...]

    @classmethod
    def of(cls, extents: Sequence[Extent], hot: Sequence[HotBatch]) -> RowIds:
        """Number all that a snapshot holds."""
        return cls((*sorted(extent.id for extent in extents), *sorted(batch.id for batch in hot)))

    def numbered(self, plan: ScanPlan) -> ScanPlan:
        """Return a plan whose hidden column ``_seq`` is the id of each row."""
        first = {source: number << POSITION_BITS for number, source in enumerate(self.sources)}
        tasks = [replace(task, extent=replace(task.extent, first_seq=first[task.extent.id])) for task in plan.tasks]
        hot = [replace(batch, first_seq=first[batch.id]) for batch in plan.hot]
        return replace(plan, tasks=tuple(tasks), hot=tuple(hot))

    def positions(self, ids: npt.NDArray[np.int64]) -> Mapping[str, npt.NDArray[Any]]:
        """Return the positions of rows, ascending, by the extent or hot batch that has them."""
        every = np.unique(ids)
        numbers, positions = every >> POSITION_BITS, every & ((1 << POSITION_BITS) - 1)
        found, starts = np.unique(numbers, return_index=True)
        parts = np.split(positions, starts[1:])
        return {self.sources[number]: part for number, part in zip(found.tolist(), parts, strict=True)}
