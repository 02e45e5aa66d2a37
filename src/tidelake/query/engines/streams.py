"""Give the rows of a scan to DuckDB, as often as it asks for them, without a copy where that can be.

DuckDB orders joins by how many rows it expects, and learns that of nothing but a table: so a scan passes for one, of
which only the schema, the number of rows and the stream can be had. Decimals that are stored as whole numbers are given
as they are stored. It does not plan, and decides nothing about what is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidelake.dynamic.cbor_json import json_of
from tidelake.errors import TidelakeError
from tidelake.logical import shown, shown_as_plain
from tidelake.model.path_value import PathValue
from tidelake.model.schema import DataType, Schema
from tidelake.pruning.plan import Question
from tidelake.query.prepared import Scan
from tidelake.scan.ahead import done_ahead
from tidelake.scan.extents import scan
from tidelake.scan.footers import Footers
from tidelake.scan.shapes import bare

NUMBERED = pa.dictionary(pa.int32(), pa.utf8())  # texts as numbers into a dictionary
NUMBERED_WORDS = 4096  # of a dictionary that is given with each batch
NUMBERED_ROWS = 65_536  # of a scan, from which on it is worth another form of the table
NUMBERED_EXTENTS = 256  # that are looked at for dictionaries
SMALL_ROWS = 1_024  # of a batch, which take less time than what an engine does for each batch
MOST_JOINED = 64  # small batches at once

_JSON = {b"ARROW:extension:name": b"arrow.json", b"ARROW:extension:metadata": b""}


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a scan as an engine knows them; they are alike for all snapshots of one schema of the table."""

    of: Schema
    columns: tuple[str, ...]
    kinds: tuple[DataType | PathValue, ...]
    schema: pa.Schema

    def is_of(self, scan: Scan) -> bool:
        """Whether a scan of the same query has these columns."""
        question = scan.plan.question
        return self.of is question.schema and self.columns == question.columns


def layout_of(scan: Scan, language: str) -> Layout:
    """Return the columns of a scan as an engine knows them."""
    question = scan.plan.question
    kinds = [_kind_of(question, name) for name in question.columns]
    if question.counted is not None:
        kinds.append(DataType("long"))
    fields = []
    for name, kind in zip(scan.columns, kinds, strict=True):
        nothing = pa.array([], kind.arrow)
        seen = nothing.type if isinstance(kind, PathValue) else _given(language)(nothing, kind).type
        fields.append(pa.field(name, seen, metadata=_JSON if _is_json(kind, seen) else None))
    return Layout(question.schema, question.columns, tuple(kinds), pa.schema(fields))


class Stream(pa.Table):  # type: ignore[misc]
    """The rows of one scan, as an Arrow stream that can be begun many times.

    It is a table only to those who ask how many rows there are: nothing else of a table is there.
    """

    def __init__(
        self,
        scan: Scan,
        footers: Footers,
        check_time: Callable[[], None],
        language: str,
        layout: Layout | None = None,
    ) -> None:
        self.name = scan.name
        self.failure: TidelakeError | None = None
        self.has_many = False  # more than were asked for at once
        self._scan, self._footers, self._check_time = scan, footers, check_time
        self._rows = scan.plan.stages[-1].rows + sum(batch.rows for batch in scan.plan.hot)
        self._given = _given(language)
        self.layout = layout if layout is not None and layout.is_of(scan) else layout_of(scan, language)
        self._kinds, self._schema = self.layout.kinds, self.layout.schema
        self._numbered = _numbered(scan, footers) if self._rows > NUMBERED_ROWS else frozenset()
        for at in self._numbered:
            self._schema = self._schema.set(at, self._schema.field(at).with_type(NUMBERED))

    def _shown(self, values: pa.Array, kind: DataType | PathValue) -> pa.Array:
        return values if isinstance(kind, PathValue) else self._given(values, kind)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def __len__(self) -> int:
        """Return about how many rows there are: those of the blocks that are read."""
        return self._rows

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {self._rows} rows)"

    def select(self, columns: Sequence[int]) -> pa.RecordBatchReader:
        """Stream some of the columns, by their places: the engine may find that it needs no more."""
        schema = pa.schema([self._schema.field(at) for at in columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.select(range(len(self._schema))).__arrow_c_stream__(requested_schema)

    def read(self, most_rows: float = math.inf, most_bytes: float = math.inf) -> pa.Table | None:
        """Return all rows at once; None if there are more than some."""
        held, rows, size = list[pa.RecordBatch](), 0, 0
        for batch in self._batches(range(len(self._schema))):
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > most_rows or size > most_bytes:
                self.has_many = True
                return None
        return pa.Table.from_batches(held, self._schema)

    def picked(self, columns: Sequence[str], names: Sequence[str]) -> pa.RecordBatchReader:
        """Return some of the columns under other names, as readers see them."""
        places = [self._scan.columns.index(column) for column in columns]
        kinds = [self._scan.plan.question.schema[self._scan.plan.question.columns[place]].type for place in places]
        schema = pa.schema([pa.field(name, kind.shown) for name, kind in zip(names, kinds, strict=True)])

        def converted(batch: pa.RecordBatch) -> pa.RecordBatch:
            arrays = [shown(batch.column(place), kind) for place, kind in zip(places, kinds, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        def batches() -> Iterator[pa.RecordBatch]:
            found = scan(self._scan.plan, self._footers)
            several = sum(len(task.blocks or ()) for task in self._scan.plan.tasks) > 1
            needs_work = several and any(kind.logical is not None for kind in kinds)
            for batch in done_ahead(converted, found) if needs_work else map(converted, found):
                self._check_time()
                yield batch

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._check_time()
            yield batch

    def _batches(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self._schema.field(at) for at in columns])
        question = self._scan.plan.question
        encoded = frozenset(question.columns[at] for at in self._numbered)
        plan = replace(self._scan.plan, question=replace(question, rough=not question.strict, encoded=encoded))
        try:
            found = self._watched(scan(plan, self._footers))
            for batch in found if encoded else with_small_joined(found):
                if not schema.names:
                    yield bare(batch.num_rows)
                    continue
                given = [
                    batch.column(at) if at in self._numbered else self._shown(batch.column(at), self._kinds[at])
                    for at in columns
                ]
                yield pa.RecordBatch.from_arrays(given, schema=schema)
        except TidelakeError as error:
            self.failure = error
            raise


def with_small_joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of one schema in their order, of few rows ever more at once: an engine has work with each.

    The first is given as it is, then two, then four: whoever stops early has read twice as much as needed, at most.
    """
    held, wanted = list[pa.RecordBatch](), 1
    for batch in batches:
        is_small = batch.num_rows < SMALL_ROWS
        if is_small:
            held.append(batch)
        if held and (not is_small or len(held) >= wanted):
            yield _joined(held)
            held, wanted = [], min(wanted * 2, MOST_JOINED)
        if not is_small:
            yield batch
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches[0].num_columns else bare(sum(batch.num_rows for batch in batches))


class Slot(Stream):
    """A place for the rows of streams of one schema, one after the other, that an engine knows as one table."""

    def __init__(self, stream: Stream) -> None:
        self.name, self.rows = stream.name, None
        self._schema, self._rows = stream.schema, len(stream)

    rows: pa.Table | None

    def fits(self, stream: Stream) -> bool:
        """Whether a stream has the columns that the slot was made for."""
        return self.name == stream.name and bool(self._schema.equals(stream.schema, check_metadata=True))

    def select(self, columns: Sequence[int]) -> pa.RecordBatchReader:
        assert self.rows is not None
        return self.rows.select(list(columns)).to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        assert self.rows is not None
        return self.rows.__arrow_c_stream__(requested_schema)


def _absent(self: object) -> None:
    raise AttributeError("a scan is no table: it has a schema, a length and a stream")


# What else a table has would be read from memory that is not there.
for _name in dir(pa.Table):
    if _name not in vars(Stream) and not (_name.startswith("__") and hasattr(object, _name)) and _name != "__len__":
        setattr(Stream, _name, property(_absent))
for _name in ("__eq__", "__hash__", "__reduce__"):
    setattr(Stream, _name, getattr(object, _name))


def _given(language: str) -> Callable[[pa.Array, DataType], pa.Array]:
    """Return what makes stored values those that a language sees."""
    return _as_plain if language == "kql" else _as_shown


def _as_shown(values: pa.Array, kind: DataType) -> pa.Array:
    """Return stored values as SQL sees them; dynamic ones as JSON."""
    if kind.kind == "dynamic" and kind.logical is None:
        return json_of(values)
    return _as_decimals(values, kind) if _is_short_decimal(kind) else shown(values, kind)


def _as_plain(values: pa.Array, kind: DataType) -> pa.Array:
    """Return stored values as KQL sees them, which has no dates, structs or bytes."""
    if kind.kind == "dynamic":
        return json_of(values)
    return _as_decimals(values, kind) if _is_short_decimal(kind) else shown_as_plain(values, kind)


def _is_short_decimal(kind: DataType) -> bool:
    return kind.logical is not None and kind.logical.kind == "decimal" and kind.kind == "long"


def _as_decimals(values: pa.Array, kind: DataType) -> pa.Array:
    """Return whole numbers of the last place as the decimals they are, without looking at them."""
    wide = kind.shown
    return values.view(pa.decimal64(wide.precision, wide.scale))


def _numbered(scan: Scan, footers: Footers) -> frozenset[int]:
    """Return the places of the columns whose texts all extents keep as numbers into a dictionary of few words.

    The engine takes them as they are: it groups by numbers, and compares each word once.
    """
    question = scan.plan.question
    if question.ordered_by is not None or not 0 < len(scan.plan.tasks) <= NUMBERED_EXTENTS:
        return frozenset()
    places = {
        at: name
        for at, name in enumerate(question.columns)
        if name not in question.computed
        and not question.alternatives.get(name)
        and question.schema[name].type == DataType("string")
    }
    for task in scan.plan.tasks:
        if not places:
            break
        count_of = getattr(footers.open(task.extent), "word_count", None)
        counts = {name: count_of(name) if count_of is not None else None for name in places.values()}
        places = {
            at: name for at, name in places.items() if (count := counts[name]) is not None and count <= NUMBERED_WORDS
        }
    return frozenset(places)


def _kind_of(question: Question, name: str) -> DataType | PathValue:
    """Return the type of a scan's column, or what it is computed from."""
    computed = question.computed.get(name)
    return computed if isinstance(computed, PathValue) else question.schema[name].type


def _is_json(kind: DataType | PathValue, given: pa.DataType) -> bool:
    if isinstance(kind, PathValue):
        return kind.form.startswith("json")
    return kind.kind == "dynamic" and bool(pa.types.is_string(given))
