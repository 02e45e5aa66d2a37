"""Turn rows into statistics: one collector per column of an extent, fed block by block.

Exact sets are kept for the extent up to their caps; past a cap, and for each block, a filter stands in, so that pruning
loses precision and never switches off. It does not keep rows, nor judge predicates: see ``outcomes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.cbor import NULL_KIND, PathTable, extract
from tidelake.kernels.bloom import MAX_FILL, Filter, Grams, hash_ints, size_for
from tidelake.kernels.text_loops import Hashes, TokenTable, add_to_bits, distinct_texts, filter_of
from tidelake.model.schema import OVERFLOW_COLUMN, DataType, Kind, Schema
from tidelake.model.vectors import Rows, ball_of, units_of
from tidelake.pruning.statistics import (
    DISTINCT_SET_CAP,
    MERGED_FILTER_BYTES,
    NS_MAX,
    NS_MIN,
    PATH_SET_CAP,
    STRING_BOUND_CAP,
    Ball,
    Bound,
    ColumnStats,
    Misfits,
    Stats,
    merge_columns,
)

BLOCK_VALUES_BYTES = 32 << 10  # a block's value filter: 4 bits a key when every row differs
BLOCK_TERMS_BYTES = 64 << 10  # a block's token filter: words are what people search for
BLOCK_DISTINCT_CAP = 16  # values of a block kept exactly: so few take no more room than a filter of them
SAMPLED_ROWS = 64  # of a block, which tell whether its values come again and again
PROSE_BYTES = 48  # a mean length above any identifier's, offsets included

_BIGGEST_CHAR = 0x10FFFF
_TAKING: tuple[Kind, ...] = ("int", "long", "real", "bool", "string")  # types that a misfit may turn out to fit

Bounds = tuple[Bound | None, Bound | None]


def collect(blocks: Sequence[pa.RecordBatch], schema: Schema) -> tuple[list[Stats], Stats]:
    """Describe each block, and all of them together as one extent."""
    return _assembled(blocks, schema, [_collect_column(blocks, schema, at) for at in range(len(schema))])


class Collecting:
    """Collect columns side by side; the answer of ``finish`` is ``collect``'s."""

    def __init__(self, blocks: Sequence[pa.RecordBatch], schema: Schema, pool: Executor) -> None:
        self._blocks, self._schema, self._pool = blocks, schema, pool
        self._under_way: dict[int, Future[tuple[list[ColumnStats], ColumnStats]]] = {}

    def begin(
        self, at: int, words: Sequence[pa.Array] | None = None, distinct: Sequence[pa.Array] | None = None
    ) -> None:
        """Begin a column, once, with what is known of its texts: ``distinct`` are those of each block, each once.

        ``words`` are texts of each block that have the tokens of its own, and are fewer.
        """
        if at not in self._under_way:
            known = words, distinct
            self._under_way[at] = self._pool.submit(_collect_column, self._blocks, self._schema, at, *known)

    def begin_all(self, *, but: Kind | None = None) -> None:
        """Begin all columns, or all but those of a kind."""
        # Text takes longest: it starts first, so that none is left alone at the end.
        kinds = [column.type.kind for column in self._schema]
        for at in sorted(range(len(kinds)), key=lambda at: kinds[at] != "string"):
            if kinds[at] != but:
                self.begin(at)

    def finish(self) -> tuple[list[Stats], Stats]:
        """Begin what is left, and wait for all."""
        self.begin_all()
        found = [self._under_way[at].result() for at in range(len(self._schema))]
        return _assembled(self._blocks, self._schema, found)


def _assembled(
    blocks: Sequence[pa.RecordBatch], schema: Schema, columns: Sequence[tuple[list[ColumnStats], ColumnStats]]
) -> tuple[list[Stats], Stats]:
    per_block = [
        Stats(block.num_rows, {name: known[0][at] for name, known in zip(schema.names, columns, strict=True)})
        for at, block in enumerate(blocks)
    ]
    whole = {name: known[1] for name, known in zip(schema.names, columns, strict=True)}
    return per_block, Stats(sum(block.num_rows for block in blocks), whole)


def _collect_column(
    blocks: Sequence[pa.RecordBatch],
    schema: Schema,
    at: int,
    words: Sequence[pa.Array] | None = None,
    distinct: Sequence[pa.Array] | None = None,
) -> tuple[list[ColumnStats], ColumnStats]:
    column = schema.columns[at]
    collector = _COLLECTORS[column.type.kind]()
    if column.name == OVERFLOW_COLUMN and isinstance(collector, _Dynamics):
        collector.names = frozenset(each.name for each in schema if each.type != DataType("dynamic"))
    if words is not None and isinstance(collector, _Texts):
        own = [collector.add(block.column(at), each) for block, each in zip(blocks, words, strict=True)]
        return own, collector.finish()
    if distinct is not None and isinstance(collector, _Texts):
        own = [collector.add(block.column(at), once=each) for block, each in zip(blocks, distinct, strict=True)]
        return own, collector.finish()
    return [collector.add(block.column(at)) for block in blocks], collector.finish()


class _Collector:
    """Collect nulls and bounds, which every kind has; kinds add what else they know."""

    def __init__(self) -> None:
        self._rows = 0
        self._whole = ColumnStats(nulls=0)

    def add(self, values: pa.Array) -> ColumnStats:
        low, high = self.bounds(values)
        return self.keep(ColumnStats(nulls=values.null_count, low=low, high=high), len(values))

    def bounds(self, values: pa.Array) -> Bounds:
        found = pc.min_max(values)
        return found["min"].as_py(), found["max"].as_py()

    def keep(self, block: ColumnStats, rows: int) -> ColumnStats:
        bounds = ColumnStats(nulls=block.nulls, low=block.low, high=block.high, tight=block.tight)
        self._whole = merge_columns(self._whole, bounds, self._rows, rows) if self._rows else bounds
        self._rows += rows
        return block

    def finish(self) -> ColumnStats:
        return self._whole


class _Reals(_Collector):
    """NaN is above every number, so it is a bound like any other."""

    def bounds(self, values: pa.Array) -> Bounds:
        if values.null_count:
            values = values.drop_null()
        if not len(values):
            return None, None
        numbers = values.to_numpy(zero_copy_only=False)
        high = float(numbers.max())  # NaN if there is one
        return float(np.fmin.reduce(numbers)), high


class _Times(_Collector):
    """Bounds are nanoseconds; a time outside their range leaves the block without bounds."""

    def bounds(self, values: pa.Array) -> Bounds:
        low, high = super().bounds(values.view(pa.int64()))
        if low is None or high is None:
            return None, None
        low_ns, high_ns = int(low) * 1000, int(high) * 1000
        return (low_ns, high_ns) if low_ns >= NS_MIN and high_ns <= NS_MAX else (None, None)


class _Opaque(_Collector):
    """Values without an order: nulls only."""

    def bounds(self, values: pa.Array) -> Bounds:
        return None, None


class _Integers(_Collector):
    """Adds the distinct values: exact for the extent up to the cap and for a block of few, else a filter."""

    def __init__(self) -> None:
        super().__init__()
        self._exact: set[Bound] | None = set()
        self._values: _GrowingFilter | None = _GrowingFilter()

    def add(self, values: pa.Array) -> ColumnStats:
        present = values.drop_null() if values.null_count else values
        ordered = np.sort(present.cast(pa.int64()).to_numpy())
        unique = ordered[np.concatenate([ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]])]
        low, high = (int(unique[0]), int(unique[-1])) if len(unique) else (None, None)
        block = ColumnStats(nulls=values.null_count, low=low, high=high)
        return self.keep(self.remember(block, unique.tolist, hash_ints(unique)), len(values))

    def remember(self, block: ColumnStats, listed: Callable[[], list[Any]], hashes: Hashes) -> ColumnStats:
        """Keep a block's distinct values for the extent, and add them to the block's own statistics."""
        count = len(hashes)
        if self._exact is not None:
            self._exact = self._exact.union(listed()) if count <= DISTINCT_SET_CAP and block.tight else None
        if self._exact is not None and len(self._exact) > DISTINCT_SET_CAP:
            self._exact = None
        if self._values is not None:
            self._values.add(hashes)
        if count <= BLOCK_DISTINCT_CAP and block.tight:
            return replace(block, distinct=tuple(sorted(listed())))
        return replace(block, values=_useful(_filter_of(hashes, BLOCK_VALUES_BYTES)))

    def finish(self) -> ColumnStats:
        whole = super().finish()
        if self._exact is None:
            return replace(whole, values=self._values.finish() if self._values else None)
        exact: Any = self._exact
        return replace(whole, distinct=tuple(sorted(exact)))


class _Texts(_Integers):
    """Adds tokens: exact for the extent up to the cap, a filter and grams beyond it and for each block.

    A column of many long and different texts is prose: its values are not kept, because the tokens of a text already
    tell whether an equal one can be there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tokens = TokenTable()
        self._terms: _GrowingFilter | None = _GrowingFilter()
        self._grams: Grams | None = None
        self._is_prose = False

    def add(self, values: pa.Array, words: pa.Array | None = None, once: pa.Array | None = None) -> ColumnStats:
        """Add a block; ``words`` are texts that have the tokens of its values, and ``once`` those values, each once."""
        present = once
        if present is None:
            present = values.drop_null() if values.null_count else values
        if self._is_prose:
            return self.keep(self._with_tokens(_text_bounds(present, values.null_count), present, words), len(values))
        present, hashes = distinct_texts(present)
        block = _text_bounds(present, values.null_count)
        if _is_prose(present):
            self._is_prose = True
            self._exact = self._values = None
        else:
            block = self.remember(block, present.to_pylist, hashes)
        return self.keep(self._with_tokens(block, present, words), len(values))

    def _with_tokens(self, block: ColumnStats, texts: pa.Array, words: pa.Array | None) -> ColumnStats:
        found = self._tokens.add(texts if words is None else words)
        if found is None:
            self._terms = self._grams = None
            return block
        hashes, grams = found
        if self._terms is not None:
            self._terms.add(hashes)
            self._grams = grams if self._grams is None else self._grams | grams
        if all(isinstance(value, str) and value.isascii() for value in block.distinct or [None]):
            return block  # so few plain values answer every search themselves
        terms = _useful(_filter_of(hashes, BLOCK_TERMS_BYTES))
        # Where every value is a token of its own, the filter of tokens tells all that one of values would.
        values = None if terms is not None and len(hashes) >= len(texts) else block.values
        return replace(block, values=values, terms=terms, grams=grams)

    def finish(self) -> ColumnStats:
        whole = super().finish()
        tokens = self._tokens.tokens
        if tokens is not None or self._terms is None:
            return replace(whole, tokens=tokens)
        return replace(whole, terms=self._terms.finish(), grams=self._grams)


class _Dynamics(_Opaque):
    """Adds paths, the ranges of numbers at them, and filters of leaves and of the tokens in text leaves."""

    names: frozenset[str] = frozenset()  # of columns whose misfits are counted

    def __init__(self) -> None:
        super().__init__()
        self._table = PathTable()
        self._leaves: _GrowingFilter | None = _GrowingFilter()
        self._terms: _GrowingFilter | None = _GrowingFilter()

    def add(self, values: pa.Array) -> ColumnStats:
        found = self._table.add(_without_repeats(values.drop_null() if values.null_count else values))
        block = ColumnStats(nulls=values.null_count)
        if found is None:
            self._leaves = self._terms = None
            return self.keep(block, len(values))
        exact = len(found.paths) <= PATH_SET_CAP
        block = replace(
            block,
            paths=found.paths if exact else None,
            ranges=found.ranges if exact else None,
            initials=found.initials if exact else None,
            leaves=self._filtered("_leaves", found.leaves),
            terms=self._filtered("_terms", found.terms),
            grams=found.grams,
            misfits=misfits_in(values, self.names.intersection(found.paths)) if self.names else None,
        )
        return self.keep(block, len(values))

    def _filtered(self, name: str, hashes: Hashes | None) -> Filter | None:
        """Return a block's filter, and keep its hashes for the extent's."""
        whole: _GrowingFilter | None = getattr(self, name)
        if hashes is None:
            setattr(self, name, None)
            return None
        if whole is not None:
            whole.add(hashes)
        return _useful(_filter_of(hashes, BLOCK_TERMS_BYTES))

    def keep(self, block: ColumnStats, rows: int) -> ColumnStats:
        whole = replace(block, leaves=None, terms=None)
        self._whole = merge_columns(self._whole, whole, self._rows, rows) if self._rows else whole
        self._rows += rows
        return block

    def finish(self) -> ColumnStats:
        leaves = self._leaves.finish() if self._leaves else None
        terms = self._terms.finish() if self._terms else None
        return replace(super().finish(), leaves=leaves, terms=terms)


def misfits_in(overflow: pa.Array, names: Iterable[str]) -> Misfits:
    """Count the values that an overflow column has under each of some names, and those that each type would take."""
    found = {}
    for name in sorted(names):
        extracted = extract(overflow, name)
        counts = {"count": int((extracted.kinds > NULL_KIND).sum())}
        for kind in _TAKING:
            if taken := len(overflow) - extracted.as_column(DataType(kind)).null_count:
                counts[kind] = taken
        if counts["count"]:
            found[name] = counts
    return found


class _Vectors(_Opaque):
    """Adds the balls that hold every vector, as it is and scaled to length one."""

    def add(self, values: pa.Array) -> ColumnStats:
        present = values.drop_null() if values.null_count else values
        block = ColumnStats(nulls=values.null_count)
        if len(present):
            rows = present.flatten().to_numpy(zero_copy_only=False).reshape(len(present), -1)
            block = replace(block, ball=_ball_of(units_of(rows)), span=_ball_of(rows))
        return self.keep(block, len(values))

    def keep(self, block: ColumnStats, rows: int) -> ColumnStats:
        self._whole = merge_columns(self._whole, block, self._rows, rows) if self._rows else block
        self._rows += rows
        return block


class _GrowingFilter:
    """A filter at the size that a whole extent may need, so that blocks unite without loss."""

    def __init__(self) -> None:
        self._bits = np.zeros(MERGED_FILTER_BYTES, dtype=np.uint8)

    def add(self, hashes: Hashes) -> None:
        add_to_bits(self._bits, hashes)

    def finish(self) -> Filter | None:
        return _useful(Filter(self._bits.tobytes()).trimmed())


_COLLECTORS: dict[Kind, Callable[[], _Collector]] = {
    "int": _Integers,
    "long": _Integers,
    "real": _Reals,
    "bool": _Collector,
    "string": _Texts,
    "timestamp": _Times,
    "dynamic": _Dynamics,
    "vector": _Vectors,
}


def _filter_of(hashes: Hashes, max_bytes: int) -> Filter:
    return filter_of(hashes, min(size_for(len(hashes)), max_bytes))


def _useful(filter: Filter) -> Filter | None:
    return filter if filter.fill <= MAX_FILL else None


def _without_repeats(values: pa.Array) -> pa.Array:
    """Return the distinct values of a column in which most come again, as what describes a whole request does."""
    sample = values.slice(0, SAMPLED_ROWS)
    if len(values) <= SAMPLED_ROWS or len(distinct_texts(sample)[0]) > SAMPLED_ROWS // 4:
        return values
    return distinct_texts(values)[0]


def _is_prose(unique: pa.Array) -> bool:
    return len(unique) > DISTINCT_SET_CAP and unique.nbytes > len(unique) * PROSE_BYTES


def _text_bounds(texts: pa.Array, nulls: int) -> ColumnStats:
    """Find text bounds of bounded length: a long low is cut, a long high is cut and raised."""
    found = pc.min_max(texts)
    low, high = found["min"].as_buffer(), found["max"].as_buffer()
    if low is None or high is None:
        return ColumnStats(nulls=nulls)
    if pc.max(pc.binary_length(texts)).as_py() <= STRING_BOUND_CAP:
        return ColumnStats(nulls=nulls, low=str(low, "utf-8"), high=str(high, "utf-8"))
    short_high = str(high, "utf-8") if high.size <= STRING_BOUND_CAP else _raised(_cut(high))
    return ColumnStats(nulls=nulls, low=_cut(low), high=short_high, tight=False)


def _cut(text: pa.Buffer) -> str:
    """Cut at the cap, between characters."""
    return str(text[:STRING_BOUND_CAP], "utf-8", "ignore")


def _raised(prefix: str) -> str | None:
    """Return a text above every text that begins with this prefix, within the cap, or None if there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        if code <= _BIGGEST_CHAR:
            raised = prefix[:at] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
            if len(raised.encode()) <= STRING_BOUND_CAP:
                return raised
    return None


def _ball_of(rows: Rows) -> Ball | None:
    found = ball_of(rows)
    return None if found is None else Ball(tuple(found[0].tolist()), found[1], len(rows))
