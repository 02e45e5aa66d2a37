"""Track which buckets are held for which entity, and which are missing.

``Coverage`` is a set of buckets for each entity, as 64-bit roaring bitmaps; it never changes, and uniting two gives a
third. An entity is named by the JSON array of its columns' values, ``["dev-1","eu"]``, and ``[]`` where a table has no
entity columns. ``Cells`` is what a batch of rows covers, found without a loop over rows. Questions are asked of
``Runs``, all entities at once: what is missing of a range, or of the parts of it that a schedule expects.

It does not read or write anything, and takes no clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidelake.coverage.bitmaps import Runs, read_runs
from tidelake.coverage.buckets import Bucket, Longs, to_ids
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model.predicate import Predicate
from tidelake.pruning.outcomes import may_match
from tidelake.pruning.statistics import UNKNOWN, ColumnStats, Stats

NO_ENTITY = "[]"
MARKED_CELLS = 1 << 24  # so many cells may be marked one by one, however few the rows…
CELLS_PER_ROW = 8  # …or so many for each row; more are sorted
FEW_RUNS = 128  # an entity of so few runs is made run by run

Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Index:
    """What coverage is counted by: a column, the bucket it is cut into, and the columns that name an entity."""

    column: str
    bucket: Bucket
    entity: tuple[str, ...] = ()


class Coverage:
    """Which buckets are held, by entity. A value: bitmaps that went in are not changed, by anybody."""

    def __init__(self, held: Mapping[str, BitMap64 | bytes] | None = None) -> None:
        self._held: dict[str, BitMap64 | bytes] = dict(held or {})

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __contains__(self, entity: str) -> bool:
        return entity in self._held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coverage):
            return NotImplemented
        entities = {*self._held, *other._held}
        return all(self.bitmap(entity) == other.bitmap(entity) for entity in entities)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Coverage({len(self)} entities)"

    def bitmap(self, entity: str) -> BitMap64:
        """Return the buckets of an entity, as ids; not to be changed."""
        found = self._held.get(entity)
        if isinstance(found, bytes):
            found = self._held[entity] = parse_bitmap(found)
        return BitMap64() if found is None else found

    def packed(self) -> dict[str, bytes]:
        """Return the bitmaps as bytes, in the order of entities."""
        return {entity: _packed(self._held[entity]) for entity in sorted(self._held)}

    def only(self, entities: Iterable[str]) -> Coverage:
        """Return the part of some entities."""
        return Coverage({entity: self._held[entity] for entity in entities if entity in self._held})

    def __or__(self, other: Coverage) -> Coverage:
        if len(other) > len(self):
            return other | self
        held = dict(self._held)
        for entity in other:
            held[entity] = self.bitmap(entity) | other.bitmap(entity) if entity in held else other._held[entity]
        return Coverage(held)

    def __and__(self, other: Coverage) -> Coverage:
        both = {entity: self.bitmap(entity) & other.bitmap(entity) for entity in self if entity in other}
        return Coverage({entity: bitmap for entity, bitmap in both.items() if bitmap})

    def __sub__(self, other: Coverage) -> Coverage:
        held = dict(self._held)
        for entity in other:
            if entity in held and not (left := self.bitmap(entity) - other.bitmap(entity)):
                del held[entity]
            elif entity in held:
                held[entity] = left
        return Coverage(held)

    def issubset(self, other: Coverage) -> bool:
        """Return whether another holds all of this."""
        return all(self.bitmap(entity).issubset(other.bitmap(entity)) for entity in self)

    @cached_property
    def entities(self) -> list[str]:
        """The entities in order; runs number them so."""
        return sorted(self._held)

    @cached_property
    def runs(self) -> Runs:
        """All that is held, as runs."""
        return read_runs(list(self.packed().values()))

    @property
    def buckets(self) -> int:
        """How many buckets are held, all entities together."""
        return int(self.runs.lengths.sum())


def united(parts: Iterable[Coverage]) -> Coverage:
    """Unite many at once; each entity's bitmaps are joined in one step."""
    by_entity: dict[str, list[BitMap64]] = {}
    for part in parts:
        for entity in part:
            by_entity.setdefault(entity, []).append(part.bitmap(entity))
    return Coverage({entity: BitMap64.union(*maps) for entity, maps in by_entity.items()})


def parse_bitmap(data: bytes) -> BitMap64:
    """Read a serialised bitmap; CorruptError if it is none."""
    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptError("not a bitmap", kind="bad_bitmap") from error


def entity_text(values: Sequence[Any]) -> str:
    """Name an entity."""
    return orjson.dumps(list(values)).decode()


def entity_values(text: str) -> list[Any]:
    """Return the values that name an entity."""
    values: list[Any] = orjson.loads(text)
    return values


def may_concern(entities: pa.Table, where: Predicate) -> list[bool]:
    """Say of each entity whether its rows may satisfy a condition, by the values that name it."""
    return [
        may_match(where, Stats(1, {name: _known(value) for name, value in named.items()}))
        for named in entities.to_pylist()
    ]


def _known(value: Any) -> ColumnStats:
    """Return what is known of a column that holds one value."""
    if value is None:
        return ColumnStats(nulls=1)
    return ColumnStats(0, value, value, distinct=(value,)) if isinstance(value, str | int | float) else UNKNOWN


def shown_entity(text: str, columns: Sequence[str]) -> str:
    """Return an entity for people: ``device=dev-1,site=eu``."""
    return ",".join(f"{name}={value}" for name, value in zip(columns, entity_values(text), strict=False)) or "the table"


@dataclass(frozen=True)
class Cells:
    """The entities and buckets that rows fall into: each row's, and all of them as runs."""

    entities: list[str]
    code: Longs  # of each row's entity
    value: Longs  # of each row's index
    number: Longs  # of each row's bucket
    runs: Runs  # whose owners are numbered as the entities are

    @cached_property
    def coverage(self) -> Coverage:
        """What the rows cover."""
        return from_runs(self.runs, self.entities)

    def are_in(self, held: Coverage) -> Bools:
        """Return of each row whether its bucket is held."""
        found = np.zeros(len(self.code), dtype=bool)
        both = self.coverage & held
        if len(both):
            numbers = {entity: at for at, entity in enumerate(both.entities)}
            places = np.array([numbers.get(entity, -1) for entity in self.entities], dtype=np.int64)
            chosen = places[self.code] >= 0
            found[chosen] = _inside(both.runs, places[self.code[chosen]], self.number[chosen])
        return found

    def rows_in(self, held: Coverage) -> int:
        """Count the rows whose bucket is held."""
        return int(self.are_in(held).sum())

    def pairs_in(self, held: Coverage) -> set[tuple[str, int]]:
        """Return the entity and the value of each row whose bucket is held."""
        chosen = self.are_in(held)
        names = [self.entities[code] for code in self.code[chosen].tolist()]
        return set(zip(names, self.value[chosen].tolist(), strict=True))

    def twins(self) -> tuple[str, int, int] | None:
        """Find rows of one entity at one and the same value: an entity, the value, and how many rows are too many."""
        if int(self.runs.lengths.sum()) == len(self.code):  # a bucket for each row
            return None
        order = np.lexsort((self.value, self.code))
        code, value = self.code[order], self.value[order]
        same = np.flatnonzero((code[1:] == code[:-1]) & (value[1:] == value[:-1]))
        if not len(same):
            return None
        return self.entities[int(code[same[0]])], int(value[same[0]]), len(same)

    def ends(self) -> tuple[Longs, Longs]:
        """Return the least and the greatest value of each entity."""
        low = np.full(len(self.entities), np.iinfo(np.int64).max)
        high = np.full(len(self.entities), np.iinfo(np.int64).min)
        np.minimum.at(low, self.code, self.value)
        np.maximum.at(high, self.code, self.value)
        return low, high


def cells_of(rows: pa.RecordBatch | pa.Table, index: Index) -> Cells:
    """Find what rows cover; a row without index or entity is InvalidInputError."""
    value = _values(rows.column(index.column), index.column)
    number = index.bucket.numbers(value)
    code, entities = _codes([rows.column(name) for name in index.entity], index.entity, len(value))
    return Cells(entities, code, value, number, _runs_of(code, number, len(entities)))


def from_runs(runs: Runs, entities: Sequence[str]) -> Coverage:
    """Make coverage of runs, whose owners are numbered as the entities are."""
    bounds = np.searchsorted(runs.owner, np.arange(len(entities) + 1))
    first, last = to_ids(runs.first), to_ids(runs.last)
    held: dict[str, BitMap64 | bytes] = {}
    for at, entity in enumerate(entities):
        mine = slice(int(bounds[at]), int(bounds[at + 1]))
        if mine.start < mine.stop:
            held[entity] = _bitmap_of(first[mine], last[mine])
    return Coverage(held)


def missing(runs: Runs, owners: int, low: int, high: int) -> Runs:
    """Return what of the buckets ``low`` to ``high`` owners do not hold."""
    runs = within(runs, low, high)
    size = len(runs) + owners
    first, last = np.full(size, low, dtype=np.int64), np.full(size, high, dtype=np.int64)
    at = np.arange(len(runs), dtype=np.int64) + runs.owner
    last[at] = runs.first - 1
    first[at + 1] = runs.last + 1
    owner = np.empty(size, dtype=np.int64)
    owner[at] = runs.owner
    counts = np.bincount(runs.owner, minlength=owners)
    owner[np.cumsum(counts + 1) - 1] = np.arange(owners)
    keep = first <= last
    return Runs(owner[keep], first[keep], last[keep])


def within(runs: Runs, low: int, high: int) -> Runs:
    """Return the parts of runs that lie between two buckets, both included."""
    keep = (runs.last >= low) & (runs.first <= high)
    if keep.all():
        return Runs(runs.owner, np.maximum(runs.first, low), np.minimum(runs.last, high))
    return Runs(runs.owner[keep], np.maximum(runs.first[keep], low), np.minimum(runs.last[keep], high))


def meet(runs: Runs, first: Longs, last: Longs) -> Runs:
    """Return the parts of runs that lie in any of some stretches, which are sorted and apart."""
    begin = np.searchsorted(last, runs.first)
    count = np.searchsorted(first, runs.last, side="right") - begin
    count = np.maximum(count, 0)
    which = np.repeat(np.arange(len(runs), dtype=np.int64), count)
    number = np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count) + begin[which]
    return Runs(
        runs.owner[which], np.maximum(runs.first[which], first[number]), np.minimum(runs.last[which], last[number])
    )


def common(runs: Runs, owners: int, low: int, high: int) -> Runs:
    """Return what every owner holds, as the runs of an owner 0."""
    if not owners:
        return Runs(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    gaps = flattened(missing(runs, owners, low, high))
    return missing(gaps, 1, low, high)


def flattened(runs: Runs) -> Runs:
    """Unite the runs of all owners, as those of an owner 0."""
    if not len(runs):
        return runs
    order = np.argsort(runs.first, kind="stable")
    first, reach = runs.first[order], np.maximum.accumulate(runs.last[order])
    begins = np.ones(len(first), dtype=bool)
    begins[1:] = first[1:] > reach[:-1] + 1
    at = np.flatnonzero(begins)
    return Runs(np.zeros(len(at), dtype=np.int64), first[at], reach[np.append(at[1:], len(first)) - 1])


def last_run(runs: Runs, least: int) -> tuple[int, int] | None:
    """Return the last run of at least so many buckets."""
    fits = np.flatnonzero(runs.lengths >= least)
    return None if not len(fits) else (int(runs.first[fits[-1]]), int(runs.last[fits[-1]]))


def split(runs: Runs, most: int) -> Runs:
    """Cut runs into pieces of at most so many buckets."""
    pieces = -(-runs.lengths // most)
    which = np.repeat(np.arange(len(runs), dtype=np.int64), pieces)
    number = np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = runs.first[which] + number * most
    return Runs(runs.owner[which], first, np.minimum(first + most - 1, runs.last[which]))


def _packed(held: BitMap64 | bytes) -> bytes:
    if isinstance(held, bytes):
        return held
    held.run_optimize()
    return bytes(held.serialize())


def _values(column: pa.Array | pa.ChunkedArray, name: str) -> Longs:
    if column.null_count:
        raise InvalidInputError(
            "a row has no value in the index", column=name, rows=column.null_count, kind="null_index"
        )
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = whole.view(pa.int64()) if pa.types.is_timestamp(whole.type) else whole.cast(pa.int64())
    found: Longs = whole.to_numpy(zero_copy_only=False)
    return found


def _codes(columns: Sequence[Any], names: Sequence[str], rows: int) -> tuple[Longs, list[str]]:
    """Number the entities of rows."""
    if not columns:
        return np.zeros(rows, dtype=np.int64), [NO_ENTITY] if rows else []
    code: Longs = np.zeros(rows, dtype=np.int64)
    parts: list[list[Any]] = []
    for column, name in zip(columns, names, strict=True):
        numbers, values = _one_code(column, name)
        code = code * max(len(values), 1) + numbers if parts else numbers
        parts.append(values)
    if len(parts) == 1:
        return code, [entity_text([value]) for value in parts[0]]
    code, kept = _renumbered(code, int(np.prod([max(len(values), 1) for values in parts], dtype=object)))
    return code, [entity_text(_unmixed(int(each), parts)) for each in kept]


def _one_code(column: Any, name: str) -> tuple[Longs, list[Any]]:
    if column.null_count:
        raise InvalidInputError(
            "a row has no value in an entity column", column=name, rows=column.null_count, kind="null_entity"
        )
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = whole if pa.types.is_dictionary(whole.type) else pc.dictionary_encode(whole)
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary.to_pylist()


def _renumbered(code: Longs, limit: int) -> tuple[Longs, Longs]:
    """Number codes from 0 without holes, and give the code of each number."""
    if limit > MARKED_CELLS:
        kept, numbers = np.unique(code, return_inverse=True)
        return numbers.astype(np.int64), kept
    present = np.zeros(limit, dtype=bool)
    present[code] = True
    return (np.cumsum(present) - 1)[code], np.flatnonzero(present)


def _unmixed(code: int, parts: Sequence[list[Any]]) -> list[Any]:
    values = []
    for part in reversed(parts):
        code, at = divmod(code, len(part))
        values.append(part[at])
    return values[::-1]


def _runs_of(code: Longs, number: Longs, owners: int) -> Runs:
    """Return the buckets of rows as runs, by the code of the entity."""
    if not len(code):
        return Runs(code, number, number)
    low = int(number.min())
    span = int(number.max()) - low + 2  # one more, so that no run goes on with the next entity
    if owners * span >= 2**62:
        order = np.lexsort((number, code))
        return _joined(code[order], number[order])
    key = code * span if owners > 1 else np.zeros(len(code), dtype=np.int64)
    key += number
    key -= low
    if owners * span > max(MARKED_CELLS, CELLS_PER_ROW * len(code)):
        key = np.unique(key)
        return _joined(key // span, key % span + low)
    marks = np.zeros(owners * span + 1, dtype=np.int8)  # one before the first
    marks[1:][key] = 1
    edges = np.flatnonzero(marks[1:] != marks[:-1])
    first, last = edges[::2], edges[1::2] - 1
    return Runs(first // span, first % span + low, last % span + low)


def _joined(owner: Longs, number: Longs) -> Runs:
    """Join sorted pairs of owner and bucket, of which some may be there twice."""
    begins = np.ones(len(owner), dtype=bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (number[1:] > number[:-1] + 1)
    at = np.flatnonzero(begins)
    return Runs(owner[at], number[at], number[np.append(at[1:], len(owner)) - 1])


def _bitmap_of(first: npt.NDArray[np.uint64], last: npt.NDArray[np.uint64]) -> BitMap64:
    if len(first) <= FEW_RUNS:
        bitmap = BitMap64()
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            bitmap.add_range(low, high + 1)
        return bitmap
    lengths = (last - first).astype(np.int64) + 1
    offsets = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    values = np.repeat(first, lengths) + offsets.astype(np.uint64)
    return BitMap64(array("Q", values.tobytes()))


def _inside(runs: Runs, owner: Longs, number: Longs) -> Bools:
    """Return of each pair of owner and bucket whether it is in some runs."""
    order = np.lexsort((number, owner))
    sorted_owner, sorted_number = owner[order], number[order]
    # Where a run begins and a pair is, side by side in one order: the last run at or before a pair decides.
    all_owner = np.concatenate([runs.owner, sorted_owner])
    all_number = np.concatenate([runs.first, sorted_number])
    is_pair = np.concatenate([np.zeros(len(runs), dtype=np.int8), np.ones(len(sorted_owner), dtype=np.int8)])
    merged = np.lexsort((is_pair, all_number, all_owner))
    run_before = np.cumsum(is_pair[merged] == 0)[is_pair[merged] == 1] - 1
    found = np.zeros(len(owner), dtype=bool)
    sure = np.maximum(run_before, 0)
    hit = (run_before >= 0) & (runs.owner[sure] == sorted_owner) & (runs.last[sure] >= sorted_number)
    found[order] = hit
    return found
