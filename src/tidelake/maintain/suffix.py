"""Choose which extents of a table with a key are worth uniting, by their versions.

Extents are looked at by the age of their rows. Those that came last and are small, the *suffix*, are united first, a
few at a time, so that a reader has few places to look for a key; the rule and its limits are the original's. What that
leaves is united by the rules of other tables (``choice``), with versions in the place of time for what is small, and
keys for what overlaps too deep: so no row is written more than O(log n) times. It does no IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelake.maintain.choice import FEWEST, deep_runs, fresh_enough, in_time_order, small_runs
from tidelake.model.schema import SEQ_COLUMN
from tidelake.model.snapshot import Extent
from tidelake.pruning.statistics import UNKNOWN, column_from_json

MIN_ELIGIBLE = 5  # small extents at the end before any are united
MAX_UNITED = 8  # at a time
MAX_ROWS_USER = 10_000  # of an extent that is small, in the scope of one user…
MAX_ROWS_SHARED = 25_000  # …and in a table that all share


def versions_between(extent: Extent) -> tuple[int, int]:
    """Return the least and the greatest version in an extent."""
    stored = extent.column_stats.get(SEQ_COLUMN)
    known = None if stored is None else column_from_json(stored)
    if known is not None and isinstance(known.low, int) and isinstance(known.high, int):
        return known.low, known.high
    first = extent.first_seq or 0
    return first, first + extent.row_count - 1


def suffix_of(
    extents: Sequence[Extent], *, is_user: bool, limits: Mapping[str, int], fewest: int = MIN_ELIGIBLE
) -> tuple[Extent, ...]:
    """Return the extents at the end that are worth uniting; none if there are too few."""
    limit = limits.get("max_rows", MAX_ROWS_USER if is_user else MAX_ROWS_SHARED)
    max_united, min_eligible = limits.get("max_segments", MAX_UNITED), limits.get("min_segments", fewest)
    newest_first = sorted(extents, key=lambda extent: (*versions_between(extent)[::-1], extent.id), reverse=True)
    tail: list[Extent] = []
    for extent in newest_first:
        if extent.row_count >= limit or extent.schema_version != newest_first[0].schema_version:
            break
        tail.append(extent)
    if len(tail) < max(2, min_eligible):
        return ()
    chosen, rows = tail[:1], tail[0].row_count
    for extent in tail[1:max_united]:
        if rows + extent.row_count > limit:
            break
        chosen.append(extent)
        rows += extent.row_count
    return tuple(chosen) if len(chosen) > 1 else ()


def keyed_runs(
    extents: Sequence[Extent], first_key: str, *, rows: int, is_user: bool, fewest: int, limits: Mapping[str, int]
) -> list[tuple[Extent, ...]]:
    """Return the runs that are worth compacting: the suffix, or else what is small or overlaps too deep."""
    able = fresh_enough(extents, rows)
    if suffix := suffix_of(able, is_user=is_user, limits=limits, fewest=MIN_ELIGIBLE if fewest >= FEWEST else fewest):
        return [suffix]
    runs = small_runs(sorted(able, key=lambda extent: (versions_between(extent), extent.id)), fewest)
    taken = {extent.id for run in runs for extent in run}
    return runs + _deep_in_keys([extent for extent in able if extent.id not in taken], first_key)


def _deep_in_keys(extents: Sequence[Extent], first_key: str) -> list[tuple[Extent, ...]]:
    """Return runs of extents whose keys overlap too deep: as in time, with ranks of keys in its place."""
    by_id = {extent.id: extent for extent in extents}
    bounds = {extent.id: _bounds(extent, first_key) for extent in extents}
    known = sorted({bound for pair in bounds.values() for bound in pair if bound is not None})
    ranks = {bound: rank for rank, bound in enumerate(known)}
    ranked = [
        replace(extent, min_ts_ns=ranks.get(bounds[extent.id][0]), max_ts_ns=ranks.get(bounds[extent.id][1]))
        for extent in extents
    ]
    return [tuple(by_id[each.id] for each in run) for run in deep_runs(in_time_order(ranked))]


def _bounds(extent: Extent, name: str) -> tuple[Any, Any]:
    stored = extent.column_stats.get(name)
    known = UNKNOWN if stored is None else column_from_json(stored)
    return known.low, known.high
