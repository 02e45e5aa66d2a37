"""Read rows from wherever they are, a piece at a time, and give them the table's shape.

Rows come as anything with an Arrow C stream, as dicts, as NDJSON bytes, or as the path of a file, for which see
``files``. A piece is some megabytes, so memory does not grow with the source. It does not decide how values fit: see
``coerce``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ingest.coerce import Coerced, Rules, coerce_arrow, coerce_lines, coerce_rows
from tidelake.ingest.files import FileRows
from tidelake.ingest.text_encoding import MAX_LINE_BYTES, line_too_long
from tidelake.model.schema import Schema

PIECE_BYTES = 8 << 20  # of NDJSON
PIECE_ROWS = 65_536  # of dicts, or of Arrow


def coerced_stream(rows: Any, schema: Schema, rules: Rules) -> Iterator[Coerced]:
    """Yield rows as batches of the schema, or of a wider one from the batch that needed it on."""
    if isinstance(rows, str | os.PathLike):
        rows = FileRows(Path(rows))
    if isinstance(rows, FileRows):
        yield from rows.coerced(schema, rules)
        return
    for piece in _pieces(rows):
        if isinstance(piece, tuple):
            line, data = piece
            coerced = coerce_lines(data, schema, rules, first_line=line)
        elif isinstance(piece, pa.RecordBatch):
            coerced = coerce_arrow(piece, schema, rules)
        else:
            coerced = coerce_rows(piece, schema, rules)
        schema = coerced.schema
        yield coerced


def is_rereadable(rows: Any) -> bool:
    """Return whether rows can be read a second time: all but streams and iterators can."""
    return rows.is_rereadable if isinstance(rows, FileRows) else not isinstance(rows, pa.RecordBatchReader | Iterator)


def first_rows(rows: Any) -> tuple[Sample, Any]:
    """Return the first rows, to choose a schema from, and rows that still begin with them."""
    if isinstance(rows, pa.RecordBatchReader):
        batches = iter(rows)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            raise InvalidInputError("no rows to choose a schema from", kind="no_rows")
        return first, pa.RecordBatchReader.from_batches(rows.schema, chain([first], batches))
    if isinstance(rows, Iterator):
        head = list(islice(rows, PIECE_ROWS))
        return head, chain(head, rows)
    piece = next(_pieces(rows), [])
    return (piece[1] if isinstance(piece, tuple) else piece), rows


Sample: TypeAlias = memoryview | pa.RecordBatch | list[Mapping[str, Any]]
Piece: TypeAlias = tuple[int, memoryview] | pa.RecordBatch | list[Mapping[str, Any]]


def _pieces(rows: Any) -> Iterator[Piece]:
    if isinstance(rows, bytes | bytearray | memoryview | pa.Buffer):
        yield from _ndjson_pieces(iter([pa.py_buffer(rows)]))
    elif isinstance(rows, pa.RecordBatch | pa.Table):
        yield from _arrow_pieces([rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches())
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from _arrow_pieces(_stream_of(rows))
    elif hasattr(rows, "__arrow_c_array__"):
        yield pa.record_batch(rows)
    elif isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise InvalidInputError(
            "append takes an Arrow stream, a list of dicts, NDJSON bytes or a path", got=type(rows).__name__
        )
    else:
        several = iter(rows)
        while piece := list(islice(several, PIECE_ROWS)):
            yield piece


def _is_polars(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "polars"


def _stream_of(rows: Any) -> pa.RecordBatchReader:
    """Open an Arrow stream; a frame that Arrow cannot take, such as one with a mixed object column, says why."""
    for name, kind in dict(getattr(rows, "schema", None) or {}).items() if _is_polars(rows) else ():
        if str(kind) == "Object":  # polars would hand over the addresses of the objects
            raise InvalidInputError("a column of Python objects cannot become Arrow", column=name, kind="not_arrow")
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = " ".join(str(part) for part in error.args)
        raise InvalidInputError(
            "a column cannot become Arrow: give it one type, or append frame.to_dict('records')",
            got=type(rows).__name__, reason=reason, kind="not_arrow",
        ) from error  # fmt: skip


def _arrow_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS * 16):
            yield batch.slice(start, PIECE_ROWS * 16)


def _ndjson_pieces(buffers: Iterator[pa.Buffer]) -> Iterator[tuple[int, memoryview]]:
    """Cut bytes at line ends into pieces, each with the number of its first line; a last line may lack its end."""
    line, rest, rest_bytes = 1, list[bytes](), 0
    held: tuple[int, bytes] | None = None  # the newest piece, which may be the last and takes the rest along
    for buffer in buffers:
        view = memoryview(buffer)
        start = 0
        while start < len(view):
            end = min(start + PIECE_BYTES, len(view))
            cut = _last_line_end(view, start, end)
            rest.append(bytes(view[start : cut if cut > start else end]))
            rest_bytes += len(rest[-1])
            if cut > start:
                if held is not None:
                    yield held[0], memoryview(held[1])
                piece = b"".join(rest)
                held = line, piece
                line, rest, rest_bytes = line + piece.count(b"\n"), [], 0
                start = cut
            else:
                if rest_bytes > MAX_LINE_BYTES:
                    raise line_too_long(line)
                start = end
    if held is not None:
        yield held[0], memoryview(b"".join([held[1], *rest]))
    elif rest:
        yield line, memoryview(b"".join(rest))


def _last_line_end(view: memoryview, start: int, end: int) -> int:
    """Return the place after the last line end in a window, or its start if there is none."""
    at = bytes(view[start:end]).rfind(b"\n")
    return start if at < 0 else start + at + 1
