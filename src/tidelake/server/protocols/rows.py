"""Take rows for a table that the address names: ``POST /v1/ingest/{namespace.table}``.

==========================================  ============================================================================
``application/x-ndjson`` and its likes      an object a line
``application/json``                        a list of objects, one object, or lines
``text/csv``, ``text/tab-separated-values``  a header and lines, read as ``tidelake ingest`` does
``application/vnd.apache.arrow.stream``     an Arrow IPC stream
``application/vnd.apache.parquet``          a Parquet file
==========================================  ============================================================================

Without a content type, the first bytes tell. ``?time=`` names the time of a table that is not there yet, where it is
not found by itself. The answer has how many rows went in, and in which snapshot. It does not
make anything of the values: see ``ingest``.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.catalog.protocol import parse_table_name
from tidelake.dynamic.values import decode, encode
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.format.ipc import PREFIX_BYTES, parse_batch
from tidelake.ingest import FileRows, ReadOptions, Rules
from tidelake.ingest.json.documents import LIST, Shape, as_lines
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.server.call import Answer, Call, Load, Outcome, Route, Work
from tidelake.server.refusals import TooLarge, Unsupported
from tidelake.write.append import AppendReport

MAX_ROWS_BYTES = 512 << 20  # that a columnar body may become: repeated values take no place in it
MAX_CELLS = 64 << 20  # rows times columns of one, for the same reason

_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
_UNTOLD = (
    "",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
)  # the last is curl's own, whatever it sends
_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "text/plain")
_ARROW = ("application/vnd.apache.arrow.stream", "application/x-arrow")
_PARQUET = ("application/vnd.apache.parquet", "application/x-parquet", "application/parquet")


def decode_rows(call: Call) -> Work:
    """Decode a body of rows by its content type."""
    name = ".".join(parse_table_name(call.table(call.path["table"])))
    load = replace(_load(name, call), time=call.query.get("time"))
    return Work([load], partial(_answer, name))


def _answer(name: str, outcomes: Sequence[Outcome]) -> Answer:
    (report,) = outcomes
    assert isinstance(report, AppendReport)
    told = {"table": name, "rows": report.rows, "snapshot": report.snapshot, "replayed": report.replayed}
    return Answer.json({**told, "commit": report.commit} if report.commit else told)


def _load(name: str, call: Call) -> Load:
    body, kind = call.body, call.content_type
    if kind in _PARQUET or (kind in _UNTOLD and body.startswith(b"PAR1")):
        return columnar(name, parquet_batches(body))
    if kind in _ARROW or (kind in _UNTOLD and body.startswith(b"\xff\xff\xff\xff")):
        return columnar(name, arrow_batches(body))
    if kind == "text/csv" or kind == "text/tab-separated-values":
        delimiter = call.query.get("delimiter", "\t" if kind.startswith("text/tab") else ",")
        return columnar(name, csv_batches(body, delimiter, call.query.get("time")))
    if kind in _NDJSON or kind in _UNTOLD or kind == "application/json":
        lines = json_lines(body)
        return Load(name, lines, count_lines(lines))
    raise Unsupported("rows of this content type are not known", content_type=kind[:80])


def columnar(name: str, batches: Iterator[pa.RecordBatch]) -> Load:
    """Return rows that come in batches as what is to be stored."""
    taken = list(batches)
    if not taken:
        raise InvalidInputError("there are no rows", kind="no_rows")
    rows = with_sound_values(pa.Table.from_batches(taken))
    return Load(name, rows, rows.num_rows)


def with_sound_values(rows: pa.Table) -> pa.Table:
    """Check columns that say they hold a dynamic column's own bytes: what a client sends is not trusted to be that."""
    for at, field in enumerate(rows.schema):
        told = (field.metadata or {}).get(b"tidelake.type")
        if told != DYNAMIC_FIELD[b"tidelake.type"]:
            continue
        try:
            values = [None if value is None else encode(decode(value)) for value in rows.column(at).to_pylist()]
        except (CorruptError, TypeError) as error:
            raise InvalidInputError(
                "a column's dynamic values cannot be read", column=field.name, kind="bad_body"
            ) from error
        rows = rows.set_column(
            at, pa.field(field.name, pa.binary(), metadata=DYNAMIC_FIELD), pa.array(values, pa.binary())
        )
    return rows


def json_lines(body: bytes) -> bytes:
    """Return JSON as an object a line: lines as they are, and the elements of a list."""
    start = body.lstrip()[:1]
    if not start:
        raise InvalidInputError("there are no rows", kind="no_rows")
    if start != b"[":
        return body
    if not body.rstrip().endswith(b"]"):
        raise InvalidInputError("the list does not end", kind="bad_json")
    lines = b"".join(as_lines(iter([body]), Shape(LIST)))
    if not lines.strip():
        raise InvalidInputError("there are no rows", kind="no_rows")
    return lines


def count_lines(lines: bytes) -> int:
    """Return how many lines have something on them."""
    ended = lines.rstrip(b" \t\r\n")
    started = len(ended) - len(ended.lstrip(b" \t\r\n"))
    if _BLANK_LINE.search(ended):
        return sum(1 for line in ended.split(b"\n") if line.strip(b" \t\r"))
    return ended.count(b"\n", started) + 1


def csv_batches(body: bytes, delimiter: str, time: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of CSV, with the types and times that its values look like."""
    file = FileRows(io.BytesIO(body), ReadOptions(time=time, delimiter=delimiter))
    schema, time = file.schema()
    for coerced in file.coerced(schema, Rules(time=time)):
        yield coerced.batch


def parquet_batches(body: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, unless it would become too large."""
    with _arrow_errors("the body is not Parquet that can be read"):
        file = pq.ParquetFile(pa.BufferReader(body))
        told = file.metadata
        _check_size(sum(told.row_group(at).total_byte_size for at in range(told.num_row_groups)))
        _check_cells(told.num_rows * max(1, told.num_columns))
        yield from _bounded(file.iter_batches())


def arrow_batches(body: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow IPC stream, unless it would become too large."""
    with _arrow_errors("the body is not an Arrow IPC stream that can be read"):
        reader = pa.ipc.open_stream(pa.BufferReader(body))
        _check_compressed(body, reader.schema)
        yield from _bounded(iter(reader))


def _bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = cells = 0
    for batch in batches:
        batch.validate(full=True)
        size += batch.nbytes
        cells += batch.num_rows * max(1, batch.num_columns)
        _check_size(size)
        _check_cells(cells)
        if batch.num_rows:
            yield batch


def _check_compressed(body: bytes, schema: pa.Schema) -> None:
    """Refuse a stream whose compressed buffers say that they become too large, before one is decompressed."""
    at, size = 0, 0
    while at + PREFIX_BYTES <= len(body):
        mark, length = struct.unpack_from("<ii", body, at)
        if mark != -1 or length <= 0:
            return
        message = pa.ipc.read_message(pa.BufferReader(memoryview(body)[at:]))
        start = at + PREFIX_BYTES + length
        if message.type == "record batch":
            layout = parse_batch(memoryview(body)[at + PREFIX_BYTES : start], schema)
            for piece in layout.pieces if layout.codec else ():
                for offset, held in piece.buffers:
                    size += max(0, struct.unpack_from("<q", body, start + offset)[0]) if held >= 8 else 0
            _check_size(size)
        at = start + (message.body.size if message.body is not None else 0)


def _check_size(size: int) -> None:
    if size > MAX_ROWS_BYTES:
        raise TooLarge("the rows are too large", limit_bytes=MAX_ROWS_BYTES)


def _check_cells(cells: int) -> None:
    if cells > MAX_CELLS:
        raise TooLarge("the rows are too many for one request", limit_cells=MAX_CELLS)


class _arrow_errors:
    """Word what Arrow and hostile lengths raise as a mistake of the client's."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException | OSError | struct.error) or type(error) is ValueError:
            raise InvalidInputError(
                self._message, reason=" ".join(str(error).split())[:200], kind="bad_body"
            ) from error


ROUTES: Sequence[Route] = (Route("/v1/ingest/{table}", decode_rows, methods=("POST", "PUT")),)
