"""Print rows: as a table for people, as JSON, NDJSON, CSV, Parquet or Arrow for machines.

Rows come as anything with an Arrow stream and leave a batch at a time. A dynamic value is JSON in every text form. A
time is RFC 3339 in UTC. It does not run queries.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tidelake import dynamic
from tidelake.errors import InvalidInputError, StorageError
from tidelake.schema import DYNAMIC_FIELD

if TYPE_CHECKING:
    from rich.console import Console, Group

SHOWN_ROWS = 50  # of a table on a terminal: more is not read by people
SHOWN_WIDTH = 80  # letters of one value there

_SUFFIXES = {
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_SQL_WORDS = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*|\(\s*)*(select|with|values|from|show|describe)\b", re.I | re.S
)


def language_of(text: str) -> Literal["kql", "sql"]:
    """Tell SQL by its first word; all else is KQL."""
    first = _SQL_WORDS.match(text)
    if first is None:
        return "kql"
    is_kql = first[1].lower() in ("show", "describe", "from", "values") and "|" in text
    return "kql" if is_kql else "sql"


def suffix_format(output: str | None) -> str | None:
    """Give the format that a file's name asks for."""
    return None if output is None else _SUFFIXES.get(Path(output).suffix.lower())


def write_result(rows: Any, form: str, output: str | None, console: Console) -> None:
    """Write rows in a format, to a file or to standard output."""
    reader = pa.RecordBatchReader.from_stream(rows)
    if form == "table":
        if output is not None:
            raise InvalidInputError("a file needs a format: json, ndjson, csv, parquet or arrow", file=output)
        console.print(table_of(reader))
        return
    if form in ("parquet", "arrow") and output is None and sys.stdout.isatty():
        raise InvalidInputError(f"{form} is not for a terminal: give --output FILE")
    with _opened(output) as out:
        _WRITERS[form](reader, out)


def table_of(reader: pa.RecordBatchReader, *, title: str | None = None) -> Group:
    """Lay out the first rows as a table, and say how many there are."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for field in reader.schema:
        is_number = (
            pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        )
        table.add_column(Text(field.name), justify="right" if is_number else "left", overflow="fold")
    shown = total = 0
    for batch in reader:
        for row in rows_of(batch.slice(0, max(0, SHOWN_ROWS - shown))):
            table.add_row(*(Text(_shown(value)) for value in row.values()))
            shown += 1
        total += batch.num_rows
    told = f"{total:,} {'row' if total == 1 else 'rows'}" + (f", the first {shown:,} shown" if total > shown else "")
    return Group(table, Text(told, style="dim"))


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Give rows as JSON has them."""
    columns = [_values(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    names = batch.schema.names
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(field: pa.Field, column: pa.Array) -> Sequence[Any]:
    if field.metadata and all(field.metadata.get(key) == value for key, value in DYNAMIC_FIELD.items()):
        return [None if value is None else dynamic.to_json(dynamic.decode(value)) for value in column.to_pylist()]
    if isinstance(field.type, pa.JsonType):
        return [None if value is None else orjson.loads(value) for value in column.storage.to_pylist()]
    return [json_value(value) for value in column.to_pylist()]


def json_value(value: Any) -> Any:
    """Give a value as JSON can hold it: times as text, bytes as base64, no NaN."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta() | Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(key): json_value(inner) for key, inner in value.items()}
        case Iterable():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict | list):
        text = orjson.dumps(value).decode()
    elif isinstance(value, float):
        text = f"{value:,.6g}" if abs(value) < 1e15 else repr(value)
    else:
        text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= SHOWN_WIDTH else text[: SHOWN_WIDTH - 1] + "…"


def _write_json(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    lead = b"[\n  "
    for batch in reader:
        for row in rows_of(batch):
            out.write(lead + orjson.dumps(row))
            lead = b",\n  "
    out.write(b"[]\n" if lead.startswith(b"[") else b"\n]\n")


def _write_ndjson(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    for batch in reader:
        out.writelines(orjson.dumps(row) + b"\n" for row in rows_of(batch))


def _write_csv(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    schema = pa.schema([pa.field(field.name, _csv_type(field)) for field in reader.schema])
    with pa.csv.CSVWriter(out, schema) as writer:
        for batch in reader:
            columns = [_csv_column(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _csv_type(field: pa.Field) -> pa.DataType:
    plain = pa.types.is_primitive(field.type) and not pa.types.is_temporal(field.type)
    return field.type if plain or pa.types.is_string(field.type) else pa.string()


def _csv_column(field: pa.Field, column: pa.Array) -> pa.Array:
    if _csv_type(field) == field.type:
        return column
    texts = [v if v is None or isinstance(v, str) else orjson.dumps(v).decode() for v in _values(field, column)]
    return pa.array(texts, pa.string())


def _write_parquet(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    with pa.parquet.ParquetWriter(out, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)


def _write_arrow(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    with pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


_WRITERS = {
    "json": _write_json,
    "ndjson": _write_ndjson,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}


@contextmanager
def _opened(output: str | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with open(output, "wb") as file:
            yield file
    except OSError as error:
        raise StorageError("the file cannot be written", file=output, reason=error.strerror) from error
