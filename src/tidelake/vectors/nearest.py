"""Find the rows nearest to queries: candidates by codes where there are any, all rows where not, ranked by the vectors.

1. pin a snapshot; find the rows that the condition leaves, extents and blocks pruned first
2. of indexed extents, take the rows whose codes are nearest among those; of all others, every row
3. measure the candidates by their vectors, and keep the nearest ``k``
4. read the wanted columns of those, and only those

Few rows that are left by a condition are all measured. It does not change anything, but for telling upkeep of sidecars
that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.dynamic.forms import check_form, table_in_form
from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.logical import shown
from tidelake.model.predicate import Predicate
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.model.snapshot import Snapshot
from tidelake.model.times import When
from tidelake.pruning.plan import Question
from tidelake.scan.questions import question_of
from tidelake.scan.shapes import Shape
from tidelake.vectors import quantizing
from tidelake.vectors.codebook import Codebook, Effort, Mask
from tidelake.vectors.definition import (
    DISTANCE,
    QUERY,
    Doubles,
    check_effort,
    check_k,
    check_metric,
    checked_queries,
    indexes_of,
    vector_column,
)
from tidelake.vectors.quantizing import Shard
from tidelake.vectors.ranking import POSITION_BITS, Asked, Best, Ids, Told, by_source, gathered, measure_all
from tidelake.vectors.sources import ExtentSource, HotSource, Positions, Source, matching
from tidelake.vectors.views import View, seen, view_of

RECALL = 0.98  # of the rows that are truly nearest, unless told otherwise; of the sample, so that others have a margin
EXACT_ROWS = 20_000  # that a condition leaves, which are all measured: it takes a few milliseconds


Apart: TypeAlias = Sequence[npt.NDArray[np.uint32]]  # positions that are not among the codes, of each extent


class Asking(TypedDict, total=False):
    """What may be told of a search beside its column and its queries; ``Table.nearest`` says what each means."""

    k: int
    where: Predicate | str | None
    start: When | None
    end: When | None
    recall: float | None
    probes: int | None
    metric: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The rows that are nearest to each query, nearest first."""

    snapshot: Snapshot
    sources: Sequence[Source]
    ids: list[Ids]
    distances: list[Doubles]
    told: Told
    unknown: Ids  # some rows without a distance, if they were asked for


def nearest(
    table: TableHandle,
    column: str,
    query: Any,
    *,
    columns: Sequence[str] | None = None,
    dynamic: str = "json",
    **asking: Unpack[Asking],
) -> pa.Table:
    """Return the rows nearest to one query or to each of several, as ``Table.nearest`` says."""
    check_form(dynamic)
    pinned = table.pinned()
    asked, is_one = _asked_of(pinned, column, query, asking)
    question = question_of(pinned.name, pinned.snapshot, columns)
    if taken := {DISTANCE, QUERY}.intersection(question.columns):
        raise InvalidInputError("the answer has a column of that name: leave it out of columns", column=min(taken))
    with pinned.reading():
        found = search(pinned, asked)
        return _table(found, question, None if is_one else QUERY, dynamic)


def explain(table: TableHandle, column: str, query: Any, **asking: Unpack[Asking]) -> str:
    """Search, and say what was looked at."""
    pinned = table.pinned()
    asked, _ = _asked_of(pinned, column, query, asking)
    with pinned.reading():
        return described(search(pinned, asked).told, asked, pinned.name)


def _asked_of(table: TableHandle, column: str, query: Any, asking: Asking) -> tuple[Asked, bool]:
    """Check what is asked of a table, and whether it is of one query alone."""
    if unknown := asking.keys() - Asking.__annotations__.keys():
        raise TypeError(f"a search has no argument {min(unknown)!r}")
    snapshot = table.snapshot
    vectors = vector_column(snapshot.schema, column)
    index = indexes_of(snapshot.settings, snapshot.schema).get(column)
    metric, recall, probes = asking.get("metric"), asking.get("recall"), asking.get("probes")
    chosen = check_metric(metric) if metric is not None else index.metric if index is not None else "cosine"
    check_effort(recall, probes)
    queries, is_one = checked_queries(query, vectors, chosen)
    where, start, end = asking.get("where"), asking.get("start"), asking.get("end")
    return Asked(vectors, chosen, queries, check_k(asking.get("k", 10)), where, start, end, recall, probes), is_one


def search(table: TableHandle, asked: Asked) -> Nearest:
    """Find the rows of a pinned table that are nearest to queries."""
    view = view_of(table, asked.column.name, asked.metric)
    sources: Sequence[Source] = view.sources
    left: Mapping[int, Positions] | None = None
    if asked.is_filtered:
        sources, left = _left_by_condition(table, asked, view)
    told, best = Told(reasons=view.reasons), Best(asked)
    masks = list(view.allowed) if left is None else [_mask(shard, numbers, left) for shard, numbers in view.parts]
    rows = sum(
        shard.coded if mask is None else int(mask.sum()) for (shard, _), mask in zip(view.parts, masks, strict=True)
    )
    effort = _effort(view.codebook, asked, rows, is_filtered=left is not None)
    if effort is not None:
        _by_codes(view, sources, asked, effort, masks, best, told)
        coded = {number for _, numbers in view.parts for number in numbers}
        others = [number for number in (view.exact if left is None else left) if number not in coded]
        _measure(sources, others, left, view, asked, best, told)
    everything: Collection[int] = range(len(sources)) if left is None else left
    if effort is None or best.fewest < min(asked.k, rows):
        told, best = Told(reasons=view.reasons), Best(asked)  # lists that were not probed may have what is lacking
        _measure(sources, everything, left, view, asked, best, told)
    ids, distances = best.finish()
    return Nearest(table.snapshot, sources, ids, distances, told, best.unknown)


def _measure(
    sources: Sequence[Source],
    numbers: Iterable[int],
    left: Mapping[int, Positions] | None,
    view: View,
    asked: Asked,
    best: Best,
    told: Told,
) -> None:
    """Measure all rows of some sources that a condition leaves, or that are not hidden."""
    for number in numbers:
        positions = seen(view, number) if left is None else left[number]
        measure_all(sources[number], number, positions, asked, best, told)


def described(told: Told, asked: Asked, name: str) -> str:
    """Say what a search did, in a few lines."""
    lines = [f"nearest {asked.k:,} of {name} by {asked.metric} of {asked.column.name}"]
    if told.probes:
        lines.append(f"index: {told.probes:,} of {told.lists:,} lists probed, {told.coded:,} coded rows,")
        lines[-1] += f" {told.candidates:,} candidates measured"
    lines.append(f"exact: {told.measured:,} rows measured one by one")
    lines += [f"{count:,} extents have a {why} sidecar" for why, count in sorted(told.reasons.items())]
    return "\n".join(lines)


def _effort(codebook: Codebook | None, asked: Asked, rows: int, *, is_filtered: bool) -> Effort | None:
    """Return how thorough a search by codes is to be among so many rows; None if all of them are to be measured."""
    if codebook is None or (is_filtered and rows <= EXACT_ROWS):
        return None
    if asked.probes is not None:
        wanted = Effort(asked.probes)
    else:
        found = codebook.effort(RECALL if asked.recall is None else asked.recall)
        if found is None or asked.recall == 1:
            return None
        times = (max(asked.k, quantizing.TRIED_K) / quantizing.TRIED_K) ** 0.2
        wanted = Effort(round(found.probes * times), found.refine)
    if is_filtered:  # what is nearest of fewer rows is farther away, in more lists
        wanted = Effort(round(wanted.probes * max(1.0, codebook.rows / rows) ** 0.5), wanted.refine)
    is_worth_it = wanted.probes < codebook.lists and wanted.candidates(asked.k) * 2 < rows
    return wanted if is_worth_it else None


def _by_codes(
    view: View,
    sources: Sequence[Source],
    asked: Asked,
    effort: Effort,
    masks: Sequence[Mask | None],
    best: Best,
    told: Told,
) -> None:
    """Take the rows whose codes are nearest, and measure them."""
    assert view.codebook is not None
    prepared = view.codebook.prepared_queries(asked.queries.astype(np.float32))
    count = effort.candidates(asked.k)
    found_ids, found_far = [], []
    for (shard, numbers), mask in zip(view.parts, masks, strict=True):
        far, rows = shard.search(prepared, min(count, max(1, shard.coded)), effort.probes, mask)
        found_ids.append(_ids_of(shard, numbers, rows))
        found_far.append(np.where(rows < 0, np.inf, far))
        told.coded += shard.coded if mask is None else int(mask.sum())
    told.lists, told.probes = view.codebook.lists, effort.probes
    odd = _apart(view, masks, lambda shard: shard.odd)
    if asked.with_unknown:
        best.note_unknown(_apart(view, masks, lambda shard: shard.absent))
    if not found_ids:
        return
    ids, far = np.concatenate(found_ids, axis=1), np.concatenate(found_far, axis=1)
    if ids.shape[1] > count:
        order = np.argpartition(far, count - 1, axis=1)[:, :count]
        ids, far = np.take_along_axis(ids, order, axis=1), np.take_along_axis(far, order, axis=1)
    chosen = [row[np.isfinite(away)] for row, away in zip(ids, far, strict=True)]
    chosen = [np.concatenate([each, odd]) if len(odd) else each for each in chosen]
    every = np.sort(chosen[0]) if len(chosen) == 1 else np.unique(np.concatenate(chosen))  # rows of one are distinct
    told.candidates += len(every)
    vectors, there = gathered(sources, every, asked)
    for at, (query, own) in enumerate(zip(asked.queries, chosen, strict=True)):
        places = np.searchsorted(every, own)
        best.offer(at, query, own, vectors[places], there[places])


def _ids_of(shard: Shard, numbers: Sequence[int], rows: npt.NDArray[np.int64]) -> Ids:
    at = np.searchsorted(shard.firsts, rows, side="right") - 1
    sources = np.array([*numbers, 0], np.int64)
    found: Ids = (sources[at] << POSITION_BITS) | (rows - shard.firsts[at])
    return found


def _apart(view: View, masks: Sequence[Mask | None], of: Callable[[Shard], Apart]) -> Ids:
    """Return rows of shards that have no code, as far as they may be found."""
    found = [np.empty(0, np.int64)]
    for (shard, numbers), mask in zip(view.parts, masks, strict=True):
        for number, first, own in zip(numbers, shard.firsts, of(shard), strict=False):
            positions = own.astype(np.int64)
            if mask is not None and len(positions):
                positions = positions[mask[first + positions]]
            found.append((number << POSITION_BITS) | positions)
    return np.concatenate(found)


def _left_by_condition(table: TableHandle, asked: Asked, view: View) -> tuple[Sequence[Source], dict[int, Positions]]:
    """Return the rows that a condition leaves, by the numbers of their sources; hot rows are a source of their own."""
    plan = table.plan((), asked.where, start=asked.start, end=asked.end)
    numbers = {source.extent.id: at for at, source in enumerate(view.sources) if isinstance(source, ExtentSource)}
    left = {numbers[extent.id]: rows for extent, rows in matching(plan, table.footers)}
    sources = list(view.sources)
    if plan.hot:
        hot = HotSource.of(plan)
        left[len(sources)] = np.arange(hot.batch.num_rows, dtype=np.int64)
        sources.append(hot)
    return sources, {number: rows for number, rows in left.items() if len(rows)}


def _mask(shard: Shard, numbers: Sequence[int], left: Mapping[int, Positions]) -> Mask:
    allowed = np.zeros(int(shard.firsts[-1]), np.bool_)
    for number, first in zip(numbers, shard.firsts, strict=False):
        if number in left:
            allowed[first + left[number]] = True
    return allowed


def _table(found: Nearest, question: Question, query_column: str | None, dynamic: str) -> pa.Table:
    """Read the columns of the rows that were found, and say of each how far it is, and from which query."""
    ids = np.concatenate([np.empty(0, np.int64), *found.ids])
    every, places = np.unique(ids, return_inverse=True)
    arrow = pa.schema([_field(question, name) for name in question.columns])
    shape = Shape.of(question, question.columns)
    parts = [found.sources[number].rows(shape, positions) for number, positions in by_source(every)]
    rows = pa.Table.from_batches([_shown(part, question, arrow) for part in parts], arrow)
    rows = rows.take(pa.array(places)) if question.columns else pa.table({})
    if any(field.metadata for field in arrow):  # dynamic values have forms
        rows = table_in_form(rows.combine_chunks().to_reader(), dynamic)
    if query_column is not None:
        numbers = np.repeat(np.arange(len(found.ids)), [len(each) for each in found.ids])
        rows = rows.append_column(query_column, pa.array(numbers, pa.int64()))
    return rows.append_column(DISTANCE, pa.array(np.concatenate([np.empty(0), *found.distances]), pa.float64()))


def _field(question: Question, name: str) -> pa.Field:
    kind = question.schema[name].type
    metadata = DYNAMIC_FIELD if kind.kind == "dynamic" and kind.logical is None else None
    return pa.field(name, kind.arrow if kind.logical is None else kind.shown, metadata=metadata)


def _shown(batch: pa.RecordBatch, question: Question, arrow: pa.Schema) -> pa.RecordBatch:
    kinds = [question.schema[name].type for name in question.columns]
    if all(kind.logical is None for kind in kinds):
        return pa.RecordBatch.from_arrays(batch.columns, schema=arrow)
    arrays = [
        array if kind.logical is None else shown(array, kind, name)
        for array, kind, name in zip(batch.columns, kinds, question.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
