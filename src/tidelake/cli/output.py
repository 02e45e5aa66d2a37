"""Print rows: as a table for people, as JSON, NDJSON, CSV, Parquet or Arrow for machines.

Rows come as anything with an Arrow stream and leave a batch at a time, so that there may be more of them than memory
holds. A dynamic value is nested in JSON, and its text in CSV. A time is RFC 3339 in UTC. It does not run queries.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from tidelake import dynamic
from tidelake.errors import InvalidInputError, StorageError
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.query.json_rows import is_marked, json_value
from tidelake.query.writing import write_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

SHOWN_ROWS = 50  # of a table on a terminal: more is not read by people
SHOWN_WIDTH = 80  # letters of one value there
SHOWN_RECORDS = 10  # rows, where each value needs a line of its own
MIN_WIDTH = 12  # letters of a column that can still be read
NULL = "–"

_SUFFIXES = {
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}


def suffix_format(output: str | None) -> str | None:
    """Return the format that a file's name asks for."""
    return None if output is None else _SUFFIXES.get(Path(output).suffix.lower())


def write_result(rows: Any, form: str, output: str | None, console: Console) -> None:
    """Write rows in a format, to a file or to standard output."""
    if form == "table" and output is not None:
        raise InvalidInputError(
            "a file needs a format: .json, .ndjson, .csv, .parquet or .arrow in its name, or --format", file=output
        )
    if form in ("parquet", "arrow") and output is None and sys.stdout.isatty():
        raise InvalidInputError(f"{form} is not for a terminal: give --output FILE")
    if form == "table":
        console.print(table_of(_reader_of(rows)))
        return
    with _opened(output) as out:
        write_rows(_reader_of(rows), form, out)


def _reader_of(rows: Any) -> pa.RecordBatchReader:
    """Return rows as a stream; one of our own raises our errors, which a foreign one turns into text."""
    return rows.to_reader() if hasattr(rows, "to_reader") else pa.RecordBatchReader.from_stream(rows)


def table_of(reader: pa.RecordBatchReader, *, title: str | None = None) -> Shown:
    """Read rows to the end, keep the first to show, and count all."""
    cells: list[list[str]] = []
    total = 0
    for batch in reader:
        cells += [list(map(_shown, row)) for row in rows_of(batch.slice(0, max(0, SHOWN_ROWS - len(cells))))]
        total += batch.num_rows
    is_number = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in reader.schema.types
    ]
    return Shown(title, [_shown(name) for name in reader.schema.names], is_number, cells, total)


@dataclass(frozen=True, slots=True)
class Shown:
    """The first rows of an answer as text: a table where it fits the terminal, else a line for each value."""

    title: str | None
    names: Sequence[str]
    is_number: Sequence[bool]
    cells: Sequence[Sequence[str]]
    total: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        widths = [max(map(len, column)) for column in zip(self.names, *self.cells, strict=True)]
        if sum(3 + min(width, MIN_WIDTH) for width in widths) <= options.max_width or not self.cells:
            yield self._table()
            yield self._told(len(self.cells))
        else:
            for at, row in enumerate(self.cells[:SHOWN_RECORDS]):
                yield from self._record(at, row)
            yield self._told(min(len(self.cells), SHOWN_RECORDS), ", nulls left out")

    def _table(self) -> RenderableType:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for name, is_number in zip(self.names, self.is_number, strict=True):
            table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
        for row in self.cells:
            table.add_row(*map(Text, row))
        return table

    def _record(self, at: int, row: Sequence[str]) -> Iterator[RenderableType]:
        from rich.text import Text

        pad = min(max(map(len, self.names)), 2 * MIN_WIDTH)
        yield Text(f"row {at + 1:,}", style="bold")
        for name, cell in zip(self.names, row, strict=True):
            if cell != NULL:
                yield Text(f"  {name:<{pad}}  {cell}", no_wrap=True, overflow="ellipsis")

    def _told(self, shown: int, more: str = "") -> RenderableType:
        from rich.text import Text

        told = f"{self.total:,} {'row' if self.total == 1 else 'rows'}"
        told += f", the first {shown:,} shown" if self.total > shown else ""
        return Text(told + more, style="dim")


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return a few rows as JSON has them, and reals that JSON does not have, for people."""
    return zip(
        *(_values(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)), strict=True
    )


def _values(field: pa.Field, column: pa.Array) -> Sequence[Any]:
    if is_marked(field, DYNAMIC_FIELD):
        return [None if value is None else dynamic.to_json(dynamic.decode(value)) for value in column.to_pylist()]
    if pa.types.is_floating(field.type):
        return list(column.to_pylist())  # with NaN and the infinities, which JSON has no names for
    if isinstance(field.type, pa.JsonType):
        column = column.storage
    return [json_value(value) for value in column.to_pylist()]


def _shown(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, dict | list):
        text = orjson.dumps(value).decode()
    elif isinstance(value, float):
        text = repr(value)  # the shortest that reads back as the same number
    else:
        text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= SHOWN_WIDTH else text[: SHOWN_WIDTH - 1] + "…"


@contextmanager
def _opened(output: str | None) -> Iterator[IO[bytes]]:
    """Return what to write to. A file has its name once it is whole: until then, and if it never is, it has another."""
    if output is None:
        with _named("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    place = Path(os.path.realpath(output))
    if place.exists() and not place.is_file():  # a pipe or a terminal
        with _named(output), place.open("wb") as file:
            yield file
        return
    unfinished = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    try:
        with _named(output), unfinished.open("xb") as file:
            yield file
        with _named(output):
            unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _named(output: str) -> Iterator[None]:
    """Name the file that cannot be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError("the file cannot be written", file=output, reason=error.strerror or error) from error
