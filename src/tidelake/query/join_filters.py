"""Leave rows out of a large scan that a join with a small one drops: extents, blocks, and where few are left, rows.

The values of the small side's column are read first. Few of them are a set that prunes as any condition does, and is
asked of every row, so that wide columns are read only where a row has a partner; of more, the set or its bounds prune
extents and blocks, and rows are left to the engine, which finds partners faster. The engine joins as before, so the
answer never depends on this. It does not find which columns are equal: see ``join_keys``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import InSet, Nanoseconds, Predicate, Range
from tidelake.pruning.outcomes import LONG_SET
from tidelake.query.join_keys import JoinKey
from tidelake.query.prepared import Scan
from tidelake.scan.extents import scan
from tidelake.scan.scannable import MemoryRows

SMALL_ROWS = 100_000  # read for their values, once more than the engine does: some milliseconds
LARGE_ROWS = 200_000  # below which a scan is as soon read
LARGER = 8  # times as many rows as the small side
FEW_VALUES = 64  # that are asked of every row

_LAST_NS = 2**63 - 1


def with_join_filters(
    keys: Iterable[JoinKey], scans: Sequence[Scan], planned: Callable[[Scan, Predicate], Scan]
) -> list[Scan]:
    """Return scans without rows that joins drop; ``planned`` plans one anew with another condition."""
    found = {each.name: each for each in scans}
    for key in sorted(keys, key=lambda each: _rows(found[each.small])):
        small, large = found[key.small], found[key.large]
        if not _is_worth(small, large):
            continue
        values = _values(small, key.small_column)
        predicate = None if values is None else _among(large.ask.reference.spelled[key.large_column], values)
        if predicate is None or values is None:
            continue
        narrowed = planned(large, predicate)
        if len(values) > FEW_VALUES:
            narrowed = replace(narrowed, plan=replace(narrowed.plan, question=large.plan.question))
        found[key.large] = narrowed
    return [found[each.name] for each in scans]


def _rows(each: Scan) -> int:
    return each.plan.stages[-1].rows + sum(batch.rows for batch in each.plan.hot)


def _is_worth(small: Scan, large: Scan) -> bool:
    if not isinstance(small.table, TableHandle | MemoryRows) or not isinstance(large.table, TableHandle):
        return False
    question = small.plan.question
    if question.limit is not None or question.counted is not None or large.plan.question.limit is not None:
        return False
    if any(each.ask.top is not None or each.ask.nearest is not None for each in (small, large)):
        return False
    rows = _rows(small)
    return rows <= SMALL_ROWS and _rows(large) >= max(LARGE_ROWS, rows * LARGER)


def _values(small: Scan, column: str) -> pa.Array | None:
    """Read the values of a column, each once and none of them null; None if there are none."""
    own = small.ask.reference.spelled[column]
    plan = replace(small.plan, question=replace(small.plan.question, columns=(own,), computed={}))
    batches = [pc.unique(batch.column(0)) for batch in scan(plan, small.table.footers)]
    whole = pc.unique(pa.chunked_array(batches)).drop_null() if batches else pa.nulls(0)
    return whole if len(whole) else None


def _among(column: str, values: pa.Array) -> Predicate | None:
    """Return what a column must be to have one of some values; None if no predicate can tell."""
    if pa.types.is_timestamp(values.type):
        return _among_times(column, values)
    if len(values) <= LONG_SET:
        return InSet(column, tuple(values.to_pylist()))
    bounds = pc.min_max(values.view(pa.binary()) if pa.types.is_string(values.type) else values)
    low, high = (bounds[key].as_py() for key in ("min", "max"))
    if isinstance(low, bytes):
        low, high = low.decode("utf-8"), high.decode("utf-8")
    return Range(column, low, high)


def _among_times(column: str, values: pa.Array) -> Predicate | None:
    whole = values.cast(pa.timestamp("us", "UTC")).view(pa.int64())
    low, high = (pc.min_max(whole)[key].as_py() for key in ("min", "max"))
    if max(abs(low), abs(high)) > _LAST_NS // 1000:
        return None
    nanoseconds: Any = [Nanoseconds(each * 1000) for each in (whole.to_pylist() if len(whole) <= LONG_SET else ())]
    return InSet(column, tuple(nanoseconds)) if nanoseconds else Range(
        column, Nanoseconds(low * 1000), Nanoseconds(high * 1000)
    )  # fmt: skip
