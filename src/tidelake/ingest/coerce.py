"""Give rows the shape of a table, losing nothing: NDJSON, Python dicts, or Arrow.

What fits a column, whatever the rows came as:

==========  ===========================================================================================================
int, long   whole numbers; one beyond 32 bits makes an int column a long one, and any other number makes it real
real        numbers that a double holds exactly (a double as written, or a whole number it does not round)
bool        true and false
string      text; numbers and booleans as JSON writes them
timestamp   RFC 3339 text, numbers since 1970 by size, Python and Arrow times; see ``instants``
vector(N)   exactly N numbers, else an error
dynamic     anything
date        a date, or its ISO 8601 text
…_ntz       a time without a zone, a date, or the text of either
decimal     decimals and whole numbers that it holds without rounding, doubles of up to 15 digits, and their text
binary      bytes
nested      maps and lists whose every part fits; a map with a field that a struct lacks does not
==========  ===========================================================================================================

A long column becomes real only where ``Rules.exact`` says that no value in it is beyond what a double holds. A value
that does not fit its column goes to the overflow column, a map a row, under its own key, and its column is null there.
A key that is no column yet becomes one, as long as the rules allow more columns and the key can name one: of the type
that all its values in this call have (whole numbers and others together: real), and dynamic if they have no such type
or are nested. Beyond the limits it goes to the overflow column. Of a key that occurs twice in an object the last one
counts. Null and a missing key are the same. A key that is the overflow column's name goes into the map under it.

Keys that only case tells apart are brought together, since to Spark and DuckDB they are one name. A key that differs
only in case from a column goes into that column, and one that differs only in case from a key before it goes with that
one, unless a row of the same call has a value under both: then each is a column of its own, and both values are kept. A
key that is a column's exact name is always that column's.

Nothing is half done: an error means that nothing is returned. It does not write anything anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, SchemaError, TidelakeError
from tidelake.ingest.json.plain_reader import few_rows, require_json
from tidelake.ingest.quarantine import Quarantine
from tidelake.model.schema import OVERFLOW_COLUMN, Column, DataType, Schema
from tidelake.runtime.deferred import deferred
from tidelake.runtime.readiness import has_loops

if TYPE_CHECKING:
    from tidelake.ingest import arrays as from_arrow
    from tidelake.ingest import rows as from_rows
    from tidelake.ingest import time_detection
    from tidelake.ingest.json import columns as from_lines
else:  # they bring a compiler, which who only reads does without
    from_arrow, from_lines = deferred("tidelake.ingest.arrays"), deferred("tidelake.ingest.json.columns")
    from_rows, time_detection = deferred("tidelake.ingest.rows"), deferred("tidelake.ingest.time_detection")

TIME_NAMES = (
    "time", "timestamp", "ts", "_timestamp", "@timestamp", "event_time", "eventTime", "datetime", "at", "created_at",
    "time_unix_nano", "observed_time_unix_nano", "date",
)  # fmt: skip
FIRST_NUMBER_US = 10**14  # numbers before March 1973 are more likely durations than times

_PLAIN_KINDS = frozenset({"int", "long", "real", "bool", "string", "timestamp"})
_DYNAMIC, _LONG, _TIMESTAMP = DataType("dynamic"), DataType("long"), DataType("timestamp")
_REAL = DataType("real")


MISSING_TIMES = ("fail", "skip", "now")  # what becomes of a row without a time


@dataclass(frozen=True, slots=True)
class TimeRules:
    """How the times of rows are read, and what becomes of a row without one."""

    source: time_detection.TimeSource | None = None  # None for the time column itself, as it is
    missing: str = "fail"
    now_us: int = 0
    quarantine: Quarantine | None = None  # where rows that are passed over go


@dataclass(frozen=True, slots=True)
class Rules:
    """How far a table's schema may follow its rows."""

    time: str | None = None  # the column that must have a time in every row
    overflow: str = OVERFLOW_COLUMN
    max_new_columns: int = 32  # in one call
    max_columns: int = 1000  # of the table
    exact: Container[str] = frozenset()  # long columns whose values a double holds exactly, so that they may be real
    times: TimeRules | None = None


@dataclass(frozen=True, slots=True)
class Coerced:
    """Rows in the shape of a schema: the one that was given, or a wider one."""

    batch: pa.RecordBatch
    schema: Schema
    overflowed: int  # values that went to the overflow column
    rounded: Mapping[str, int] = field(default_factory=dict)  # times of Arrow data that were finer than microseconds


class Source(Protocol):
    """Rows of any sort, as values by key; the keys that are columns come first."""

    @property
    def rows(self) -> int: ...
    @property
    def spilled(self) -> int: ...
    def names(self) -> Iterator[str]: ...
    def fold(self, name: str, into: str) -> bool:
        """Give all values of a key to another, and return whether that was done: not where a row has both."""
        ...

    def proposed(self, name: str) -> DataType | None: ...
    def has_reals(self, name: str) -> bool: ...
    def column(self, name: str, kind: DataType) -> pa.Array: ...
    def spill_others(self, kept: Collection[str]) -> None: ...
    def overflow(self) -> pa.Array: ...
    def where(self, row: int) -> dict[str, int]: ...
    def shown(self, name: str, row: int) -> str: ...
    def raw(self, rows: Sequence[int]) -> list[tuple[int, str]]: ...


def coerce_ndjson(
    data: bytes | memoryview | pa.Buffer, schema: Schema, rules: Rules, *, first_line: int = 1
) -> Coerced:
    """Coerce lines of JSON objects; a line that is not one is an InvalidInputError with line and column."""
    return _coerce(from_lines.Lines(_bytes_of(data), schema.names, first_line=first_line), schema, rules)


def coerce_lines(data: bytes | memoryview, schema: Schema, rules: Rules, *, first_line: int = 1) -> Coerced:
    """Coerce as ``coerce_ndjson`` does, without loops where lines are few or there are no compiled ones yet."""
    if (rows := few_rows(data)) is not None:
        try:
            return coerce_rows(rows, schema, rules)
        except TidelakeError:
            if not has_loops():  # nobody waits for a compiler to be told the line instead of the row
                raise
    require_json(data, first_line)
    return coerce_ndjson(data, schema, rules, first_line=first_line)


def coerce_rows(rows: Sequence[Mapping[str, Any]], schema: Schema, rules: Rules) -> Coerced:
    """Coerce dicts of Python values."""
    return _coerce(from_rows.Rows(rows, schema.names), schema, rules)


def coerce_arrow(data: pa.RecordBatch | pa.Table, schema: Schema, rules: Rules) -> Coerced:
    """Coerce Arrow data; see ``arrays`` for which binary columns are taken as a dynamic column's own bytes."""
    if isinstance(data, pa.RecordBatch) and (fitting := _as_it_is(data, schema, rules)) is not None:
        return Coerced(fitting, schema, 0)
    return _coerce(from_arrow.Arrays(data, schema.names, rules.overflow), schema, rules)


def coerce_source(source: Source, schema: Schema, rules: Rules) -> Coerced:
    """Coerce rows of any sort."""
    return _coerce(source, schema, rules)


def require_times(source: Source, times: pa.Array, column: str) -> None:
    """Raise if a row has no time, as ``coerce_source`` would."""
    if times.null_count:
        raise _missing(source, Column(1, column, _TIMESTAMP), times, Rules(time=column, times=TimeRules()))


def infer_columns(source: Source, *, time: str, consumed: Collection[str] = ()) -> Schema:
    """Choose the columns of a table that is to hold rows like these, whose times are known.

    A column that the times are taken from, and that has another name than the table's time column, is not chosen.
    """
    _fold_cases(source, (), (OVERFLOW_COLUMN, time, *consumed))
    types = {
        name: source.proposed(name) or _DYNAMIC
        for name in source.names()
        if name not in (OVERFLOW_COLUMN, time, *consumed) and _may_name_column(name)
    }
    order = [name for name in source.names() if name in types or name == time]
    if time not in order:
        order.insert(0, time)
    types[time] = _TIMESTAMP
    return Schema.of({name: types[name] for name in order[: Rules().max_columns - 1]})


def infer_schema(
    sample: bytes | memoryview | pa.Buffer | Sequence[Mapping[str, Any]] | pa.RecordBatch | pa.Table,
    *,
    time: str | None = None,
) -> tuple[Schema, str | None]:
    """Choose the columns and the time column of a table that is to hold rows like these.

    Keys with values of one scalar type become columns of that type, other keys dynamic columns. The time column is the
    one named, or the first of the usual names, in any case, that has a time in every row of the sample.
    """
    if isinstance(sample, bytes | memoryview) and (rows := few_rows(sample)):
        try:
            return infer_schema(rows, time=time)
        except TidelakeError:
            if not has_loops():
                raise  # else the lines' own says which line it is
    if isinstance(sample, bytes | memoryview):
        require_json(sample)
    source = _source_of(sample)
    if source.rows == 0:
        raise InvalidInputError("no rows to choose a schema from", kind="no_rows")
    _fold_cases(source, (), (OVERFLOW_COLUMN,))
    types = {
        name: source.proposed(name) or _DYNAMIC
        for name in source.names()
        if name != OVERFLOW_COLUMN and _may_name_column(name)
    }
    kept = dict(list(types.items())[: Rules().max_columns - 1]) or {OVERFLOW_COLUMN: _DYNAMIC}
    if time is not None and not (time in types and _is_time(source, time)):
        if time not in types:
            names = ", ".join(types)
            raise InvalidInputError(
                "there is no such column to take times from", column=time, columns=names, kind="bad_time"
            )
        row = pc.index(source.column(time, _TIMESTAMP).is_null(), True).as_py()
        raise InvalidInputError(
            "not every row has a time there, in RFC 3339 or as a number since 1970",
            **source.where(row), column=time, value=source.shown(time, row), kind="bad_time",
        )  # fmt: skip
    likely = dict.fromkeys([*(name for name in TIME_NAMES if name in kept), *time_detection.usual_names(kept)])
    found = time or next((name for name in likely if _is_time(source, name, types[name])), None)
    if found is not None:
        kept[found] = _TIMESTAMP
    return Schema.of(kept), found


def timed_schema(sample: Any, *, time: str | None = None) -> tuple[Schema, str]:
    """Choose as ``infer_schema`` does, for rows that must have a time column; say what is wrong with a likely one."""
    schema, found = infer_schema(sample, time=time)
    if found is None:
        if usual := next((name for name in TIME_NAMES if name in schema.names), None):
            infer_schema(sample, time=usual)  # an error that names the row, unless it is a number too small for a time
        names = ", ".join(schema.names)
        raise InvalidInputError("no time column was found: name it with time=", columns=names, kind="no_time")
    return schema, found


def _coerce(source: Source, schema: Schema, rules: Rules) -> Coerced:
    held = {column.name: column.type for column in schema}
    _check(held, rules)
    room = min(rules.max_new_columns, rules.max_columns - len(held) - (rules.overflow not in held))
    arrays: dict[str, pa.Array] = {}
    wider: list[tuple[str, DataType]] = []
    read_from = rules.times.source.columns if rules.times is not None and rules.times.source is not None else ()
    _fold_cases(source, schema.names, (rules.overflow, *read_from))
    consumed = _read_times(source, rules, arrays)
    for name in source.names():
        if name == rules.overflow or name in consumed:
            continue
        kind = held.get(name)
        if kind is None:
            if room <= 0:
                break
            if not _may_name_column(name):
                continue
            kind = source.proposed(name) or _DYNAMIC
            room -= 1
        elif _becomes_real(source, name, kind, rules):
            kind = _REAL
        arrays[name] = source.column(name, kind)
        if kind.kind == "int" and arrays[name].type == _LONG.arrow:
            kind = _LONG
        if held.get(name) != kind:
            wider.append((name, kind))
    source.spill_others({*arrays, *consumed}.intersection(source.names()) if consumed else arrays)
    if spilled := source.spilled:
        arrays[rules.overflow] = source.overflow()
        if rules.overflow not in held:
            wider.append((rules.overflow, _DYNAMIC))
    widened = schema.widen(wider) if wider else schema
    rounded = dict(getattr(source, "rounded", {}))
    return Coerced(_batch(source, arrays, widened, rules), widened, spilled, rounded)


def _fold_cases(source: Source, columns: Collection[str], apart: Collection[str] = ()) -> None:
    """Fold the keys of some rows that only case tells apart; those in ``apart`` stay as they are."""
    names = list(source.names())
    lowered = [name.lower() for name in names]
    if len({*lowered, *map(str.lower, columns)}) == len({*names, *columns}):
        return  # as nearly always
    first: dict[str, str] = {}
    for name in (*columns, *names):
        first.setdefault(name.lower(), name)
    kept = {name.lower() for name in apart}
    for name, low in zip(names, lowered, strict=True):
        if low not in kept and name not in columns and first[low] != name:
            source.fold(name, first[low])


def _becomes_real(source: Source, name: str, kind: DataType, rules: Rules) -> bool:
    """Whether a column of whole numbers is offered others, and its own are exact as such."""
    if kind.logical or kind.kind not in ("int", "long") or not source.has_reals(name):
        return False
    return kind.kind == "int" or name in rules.exact


def _as_it_is(data: pa.RecordBatch, schema: Schema, rules: Rules) -> pa.RecordBatch | None:
    """Return a batch that needs no conversion in the table's shape; None if a value has to be looked at.

    Its columns are the table's, of types that hold what they say, and it has its times. Columns that it lacks are
    null: a writer whose table was widened by another goes on without loading what converts.
    """
    if rules.time not in (None, *schema.names):
        return None
    if data.schema.equals(schema.arrow):
        if not all(map(_is_plain, schema)):
            return None
    elif _has_only(data, schema):
        data = _with_nulls(data, schema)
    else:
        return None
    required = [at for at, column in enumerate(schema) if column.name == rules.time or not column.nullable]
    return None if any(data.column(at).null_count for at in required) else data


def _has_only(data: pa.RecordBatch, schema: Schema) -> bool:
    """Return whether all columns of a batch are plain ones of the table, each once; what a field says may change it."""
    columns = {column.name: column for column in schema if _is_plain(column)}
    return len(set(data.schema.names)) == data.num_columns and all(
        field.name in columns and not field.metadata and field.type.equals(columns[field.name].type.arrow)
        for field in data.schema
    )


def _with_nulls(data: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return a batch with all columns of a table; those it lacks are null."""
    at = {name: number for number, name in enumerate(data.schema.names)}
    return pa.RecordBatch.from_arrays(
        [
            data.column(at[column.name]) if column.name in at else pa.nulls(data.num_rows, column.type.arrow)
            for column in schema
        ],
        schema=schema.arrow,
    )


def _is_plain(column: Column) -> bool:
    return column.type.kind in _PLAIN_KINDS and column.type.logical is None


def _batch(source: Source, arrays: Mapping[str, pa.Array], schema: Schema, rules: Rules) -> pa.RecordBatch:
    """Put arrays in the schema's order; a column that must have values and lacks one is an error."""
    columns = [
        arrays[column.name] if column.name in arrays else pa.nulls(source.rows, column.type.arrow) for column in schema
    ]
    columns = _with_every_time(source, columns, schema, rules)
    for column, array in zip(schema, columns, strict=True):
        if (column.name == rules.time or not column.nullable) and array.null_count:
            raise _missing(source, column, array, rules)
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _read_times(source: Source, rules: Rules, arrays: dict[str, pa.Array]) -> set[str]:
    """Read the table's times from where the rules say; return the columns that need no place of their own then."""
    if rules.times is None or rules.times.source is None or rules.time is None:
        return set()
    found = rules.times.source
    arrays[rules.time] = found.times(source, now_us=rules.times.now_us)
    is_whole = len(found.columns) == 1 and found.path is None and not arrays[rules.time].null_count
    return {rules.time, *(found.columns if is_whole else ())}


def _with_every_time(source: Source, columns: list[pa.Array], schema: Schema, rules: Rules) -> list[pa.Array]:
    """Give every row a time, or leave it out, where the rules allow that."""
    times = rules.times
    if times is None or times.missing == "fail" or rules.time is None:
        return columns
    at = schema.names.index(rules.time)
    if not columns[at].null_count:
        return columns
    if times.missing == "now":
        columns[at] = columns[at].fill_null(pa.scalar(times.now_us, columns[at].type))
        return columns
    held = columns[at].is_valid()
    if times.quarantine is not None:
        rows = np.flatnonzero(~np.asarray(held)).tolist()
        for row, (line, raw) in zip(rows, source.raw(rows), strict=True):
            times.quarantine.add(line, f"no time in {rules.time}: {source.shown(rules.time, row)}", raw)
    return [column.filter(held) for column in columns]


def _missing(source: Source, column: Column, array: pa.Array, rules: Rules) -> InvalidInputError:
    row = pc.index(array.is_null(), True).as_py()
    facts: dict[str, Any] = {**source.where(row), "column": column.name, "value": source.shown(column.name, row)}
    if column.name == rules.time:
        hint = ": leave such rows out with missing_time=skip, or give them the present with missing_time=now"
        told = hint if rules.times is not None else ""
        return InvalidInputError(f"a row has no time in the table's time column{told}", **facts, kind="bad_time")
    return InvalidInputError("a row has no value in a column that needs one", **facts, kind="null_value")


def _check(held: Mapping[str, DataType], rules: Rules) -> None:
    if held.get(rules.overflow, _DYNAMIC) != _DYNAMIC:
        raise SchemaError(
            "the overflow column must be dynamic", column=rules.overflow, type=held[rules.overflow], kind="bad_overflow"
        )
    if rules.time is not None and (rules.time not in held or rules.time == rules.overflow):
        raise SchemaError("the time column is not in the schema", column=rules.time, kind="bad_time_column")


def _is_time(source: Source, name: str, proposed: DataType | None = None) -> bool:
    """Return whether every row has a time under a key; a number, only if it is not likely something else."""
    times = source.column(name, _TIMESTAMP)
    if times.null_count:
        return False
    is_number = proposed is not None and proposed.logical is None and proposed.kind in ("int", "long", "real")
    return not is_number or pc.min(times.view(pa.int64())).as_py() >= FIRST_NUMBER_US


def _may_name_column(name: str) -> bool:
    try:
        Schema((Column(1, name, _DYNAMIC),))
    except SchemaError:
        return False
    return True


def _source_of(sample: Any) -> Source:
    if isinstance(sample, pa.RecordBatch | pa.Table):
        return from_arrow.Arrays(sample, (), OVERFLOW_COLUMN)
    if isinstance(sample, bytes | bytearray | memoryview | pa.Buffer):
        return from_lines.Lines(_bytes_of(sample), ())
    return from_rows.Rows(sample, ())


def _bytes_of(data: bytes | memoryview | pa.Buffer) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8) if len(memoryview(data)) else np.zeros(0, dtype=np.uint8)
